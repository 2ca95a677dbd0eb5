//! Running other programs, quietly and to their end.

use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, io};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use trimtab_core::interrupt::{Interrupt, Interrupted};

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// There is no room for its standard error.
    #[error("cannot make a file in {}", directory.display())]
    Stderr {
        /// The directory of temporary files.
        directory: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It could not be started.
    #[error("cannot run {program}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// It said no.
    #[error("{program} failed ({status}): {stderr}")]
    Failed {
        /// The program.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// The line of its standard error that says why.
        stderr: String,
    },
}

/// The time from one check of a running program to the next.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// How long an interrupted program has to end by itself before it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// The line of a failed program's standard error that gives the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The first; how to use it, or that it failed, may follow.
    First,
    /// The last.
    Last,
}

/// Runs a program to its end. If interrupted, it is ended with all that it started.
///
/// # Errors
/// [`ProgramError::Interrupted`], [`ProgramError::Spawn`], or [`ProgramError::Failed`] with the line of its
/// standard error that `reason` picks.
pub fn run(command: &mut Command, reason: Reason, interrupt: &Interrupt) -> Result<(), ProgramError> {
    run_watched(command, reason, interrupt, &mut |_| {}).map(drop)
}

/// Runs a program as [`run`] does, and calls `watch` with its process 20 times a second until it has
/// ended. Returns the line of its standard error that `reason` picks, if it wrote any.
///
/// # Errors
/// As [`run`].
pub fn run_watched(
    command: &mut Command,
    reason: Reason,
    interrupt: &Interrupt,
    watch: &mut dyn FnMut(Pid),
) -> Result<Option<String>, ProgramError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let spawn = |source| ProgramError::Spawn { program: program.clone(), source };
    // A file, since what the program leaves running would keep a pipe open.
    let mut stderr =
        tempfile::tempfile().map_err(|source| ProgramError::Stderr { directory: env::temp_dir(), source })?;
    let to_file = stderr.try_clone().map_err(spawn)?;
    let mut child = command.stdout(Stdio::null()).stderr(to_file).process_group(0).spawn().map_err(spawn)?;
    let status = wait(&mut child, interrupt, watch).map_err(spawn)?;
    if interrupt.is_set() {
        return Err(Interrupted.into());
    }
    let mut said = Vec::new();
    let _ = stderr.rewind().and_then(|()| stderr.read_to_end(&mut said));
    let said = String::from_utf8_lossy(&said);
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = match reason {
        Reason::First => lines.next(),
        Reason::Last => lines.next_back(),
    };
    if status.success() {
        return Ok(line.map(str::to_owned));
    }
    Err(ProgramError::Failed { program, status, stderr: line.unwrap_or("no message").to_owned() })
}

/// Waits for the leader of a process group, and ends the group if interrupted.
fn wait(child: &mut Child, interrupt: &Interrupt, watch: &mut dyn FnMut(Pid)) -> io::Result<ExitStatus> {
    let group = Pid::from_child(child);
    let pidfd = pidfd_open(group, PidfdFlags::empty())?;
    let mut asked: Option<Instant> = None;
    loop {
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&POLL_INTERVAL)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => break,
            Err(errno) => return Err(errno.into()),
        }
        watch(group);
        match asked {
            None if interrupt.is_set() => {
                let _ = kill_process_group(group, Signal::TERM);
                asked = Some(Instant::now());
            }
            Some(since) if since.elapsed() > GRACE => break,
            _ => {}
        }
    }
    if asked.is_some() {
        let _ = kill_process_group(group, Signal::KILL);
    }
    child.wait()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn shell(line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        command
    }

    #[test]
    fn failure_is_reported_with_the_line_of_the_reason() {
        let fails = |reason| {
            let mut command = shell("echo; echo one; echo two >&2; echo three >&2; exit 3");
            run(&mut command, reason, &Interrupt::never()).unwrap_err().to_string()
        };
        assert_eq!(fails(Reason::First), "sh failed (exit status: 3): two");
        assert_eq!(fails(Reason::Last), "sh failed (exit status: 3): three");
    }

    #[test]
    fn messages_of_a_program_that_succeeds_are_returned() {
        let said =
            |line| run_watched(&mut shell(line), Reason::Last, &Interrupt::never(), &mut |_| {}).unwrap();
        assert_eq!(said("echo one >&2; echo two >&2"), Some("two".to_owned()));
        assert_eq!(said("echo three"), None);
    }

    #[test]
    fn background_processes_are_not_waited_for() {
        let started = Instant::now();
        run(&mut shell("sleep 5 &"), Reason::Last, &Interrupt::never()).unwrap();
        assert!(started.elapsed() < Duration::from_secs(4));
    }

    #[test]
    fn an_interrupt_ends_the_program_and_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let (started, survived) = (dir.path().join("started"), dir.path().join("survived"));
        let line =
            format!("trap '' TERM; (sleep 4; : > {}) & : > {}; wait", survived.display(), started.display());
        let interrupt = Interrupt::default();
        let outcome = thread::scope(|scope| {
            let running = scope.spawn(|| run(&mut shell(&line), Reason::Last, &interrupt));
            while !started.exists() {
                thread::sleep(Duration::from_millis(5));
            }
            interrupt.ask();
            running.join().unwrap()
        });
        assert!(matches!(outcome, Err(ProgramError::Interrupted(_))));
        thread::sleep(Duration::from_secs(3));
        assert!(!survived.exists());
    }
}
