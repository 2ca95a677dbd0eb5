//! A canary in a process of its own: on a frozen file system, or on a drive that hangs, the kernel holds whoever writes, and
//! no signal ends that. Its process is left behind then. It ends by itself when the file system answers, and removes the
//! canary's file before, however its parent ended.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use serde::{Deserialize, Serialize};
use trimtab_core::Bytes;
use trimtab_core::document::doctor::Canary;
use trimtab_core::interrupt::Interrupt;
use trimtab_core::shell::quoted;
use trimtab_core::verdict::Verdict;
use trimtab_linux::SYSFS;
use trimtab_linux::block::BlockDevice;
use trimtab_linux::child::inherit_nothing;
use trimtab_linux::stack::{Machine, Stack};

use super::error::CanaryError;
use super::{Progress, Step, canary, file};

/// How long a step of a canary may take while its drive completes nothing.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The same of a drive whose counters don't show what it completes: a slow drive looks like one that hangs.
const BLIND_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a canary that is interrupted may take to remove its file, before its process is left alone with that.
const END_TIMEOUT: Duration = Duration::from_millis(500);
/// How often the interrupt and the drive are looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The arguments that make the program of [`send`] call [`serve`], before the path.
pub const ARGUMENTS: [&str; 2] = ["doctor", "--canary-process"];

/// A line from a canary's process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Message {
    /// This begins.
    Begins(Step),
    /// The result.
    Sent(Canary),
    /// The error, as text.
    Failed(String),
}

/// As [`canary`], in a process of its own: `program`, which is run with [`ARGUMENTS`] and `path`, and has to call [`serve`]
/// with that. `stack` is what is below `path`. The verdict is "unknown" if the file system does not answer.
///
/// # Errors
/// [`CanaryError`]. An interrupt is obeyed at once.
pub fn send(
    program: &Path,
    path: &Path,
    stack: &Stack,
    interrupt: &Interrupt,
) -> Result<Canary, CanaryError> {
    let (home, directory) = file::home(stack)?;
    let below = stack.layers[home].below.iter().filter_map(|below| stack.layers[below.layer].number);
    let devices: Vec<_> =
        below.filter_map(|number| BlockDevice::numbered(Path::new(SYSFS), number)).collect();
    let failed = |source| CanaryError::Process { program: program.to_owned(), source };
    let path = std::path::absolute(path).map_err(failed)?;
    let mut command = Command::new(program);
    command.args(ARGUMENTS).arg(path).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    inherit_nothing(&mut command);
    let mut child = command.spawn().map_err(failed)?;
    let lines = Lines::new(child.stdout.take().ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?);
    let life_line = child.stdin.take();
    let mut process = Process { child, lines, life_line, drive: Drive::of(&devices) };
    match process.result(interrupt) {
        Ok(Some(canary)) => Ok(canary),
        Ok(None) => Ok(unanswered(directory, process.child.id())),
        Err(error) => {
            if matches!(error, CanaryError::Interrupted(_)) {
                process.end();
            }
            Err(error)
        }
    }
}

/// Sends a canary down the stack below `path`, and writes lines for [`send`] to `out`.
pub fn serve(path: &Path, out: impl Write, interrupt: &Interrupt) {
    let mut out = out;
    let mut say = |message: &Message| {
        let line = serde_json::to_string(message).unwrap_or_default();
        // A parent that has ended closes the life line, too.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    };
    let begins = &mut |step| say(&Message::Begins(step));
    let stack = Stack::of(&Machine::live(), path).map_err(CanaryError::from);
    let sent = stack.and_then(|stack| canary(&stack, &mut Progress { interrupt, begins }));
    say(&match sent {
        Ok(canary) => Message::Sent(canary),
        Err(error) => Message::Failed(trimtab_core::error::chain(&error)),
    });
}

/// The canary of a file system that does not answer, mounted at `directory`, which `process` waits for.
fn unanswered(directory: &Path, process: u32) -> Canary {
    let (mount, word) = (directory.display(), quoted(directory.display()));
    let reason = format!(
        "{mount} does not answer: it is frozen (thaw it with fsfreeze --unfreeze {word}), or its drive hangs; process \
         {process} removes the canary and ends as soon as it answers"
    );
    Canary { sent_bytes: Bytes::ZERO, seen: Vec::new(), verdict: Verdict::Unknown, reason }
}

/// The process of a canary.
struct Process {
    child: Child,
    lines: Lines,
    /// The process gives up when this closes, also because this process is killed.
    life_line: Option<ChildStdin>,
    drive: Drive,
}

impl Process {
    /// Waits for the result; `None` if the file system does not answer.
    fn result(&mut self, interrupt: &Interrupt) -> Result<Option<Canary>, CanaryError> {
        let (mut step, mut since) = (Step::Write, Instant::now());
        let mut completed = self.drive.completed(step);
        loop {
            interrupt.check()?;
            match self.lines.next(POLL_INTERVAL)? {
                Line::Text(line) => match serde_json::from_slice(&line) {
                    Ok(Message::Begins(begun)) => (step, since) = (begun, Instant::now()),
                    Ok(Message::Sent(canary)) => return Ok(Some(canary)),
                    Ok(Message::Failed(reason)) => return Err(CanaryError::Failed { reason }),
                    Err(error) => return Err(CanaryError::Lines(error.into())),
                },
                Line::Late => {}
                Line::End => return Err(CanaryError::Lines(io::ErrorKind::UnexpectedEof.into())),
            }
            let now = self.drive.completed(step);
            if now != completed {
                (completed, since) = (now, Instant::now());
            }
            if since.elapsed() >= self.drive.timeout() {
                return Ok(None);
            }
        }
    }

    /// Has the process give up, and gives it a moment to do so.
    fn end(&mut self) {
        self.life_line = None;
        let deadline = Instant::now() + END_TIMEOUT;
        while Instant::now() < deadline && self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A long-lived caller leaves no zombie of a process that has ended; one that still waits is not waited for.
        let _ = self.child.try_wait();
    }
}

/// The devices directly below a canary's file system, or those below that count for them.
struct Drive {
    devices: Vec<BlockDevice>,
    /// Whether the counters of one don't show what it completes.
    is_blind: bool,
}

impl Drive {
    /// The drive that is `devices`.
    fn of(devices: &[BlockDevice]) -> Self {
        let counting: Vec<_> = devices.iter().map(BlockDevice::counted_by).collect();
        let is_blind = counting.iter().any(Option::is_none);
        Self { devices: counting.into_iter().flatten().flatten().collect(), is_blind }
    }

    /// Returns how long it may complete nothing before it counts as one that does not answer.
    fn timeout(&self) -> Duration {
        if self.is_blind { BLIND_TIMEOUT } else { ANSWER_TIMEOUT }
    }

    /// Returns how many requests that `step` waits for they have completed: whoever sent them, the drive answers. Others may
    /// discard on a frozen file system.
    fn completed(&self, step: Step) -> u64 {
        let counters = self.devices.iter().filter_map(|device| device.counters().ok());
        let requests = counters.map(|all| match step {
            Step::Write => all.writes,
            Step::Trim => all.writes + all.discards,
        });
        requests.sum()
    }
}

/// The lines that a canary's process prints.
struct Lines {
    stdout: ChildStdout,
    text: Vec<u8>,
}

/// A line, or none.
enum Line {
    Text(Vec<u8>),
    /// There is none yet.
    Late,
    /// There are no more.
    End,
}

impl Lines {
    fn new(stdout: ChildStdout) -> Self {
        Self { stdout, text: Vec::new() }
    }

    /// Returns the next line, after waiting for it for `timeout` at most.
    fn next(&mut self, timeout: Duration) -> Result<Line, CanaryError> {
        let failed = |errno: Errno| CanaryError::Lines(errno.into());
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                return Ok(Line::Text(self.text.drain(..=end).collect()));
            }
            let timeout = Timespec::try_from(timeout).ok();
            match poll(&mut [PollFd::new(&self.stdout, PollFlags::IN)], timeout.as_ref()) {
                Ok(0) | Err(Errno::INTR) => return Ok(Line::Late),
                Ok(_) => {}
                Err(errno) => return Err(failed(errno)),
            }
            let mut chunk = [0; 4096];
            match read(&self.stdout, &mut chunk).map_err(failed)? {
                0 => return Ok(Line::End),
                length => self.text.extend(&chunk[..length]),
            }
        }
    }
}

/// Keeps the process that called this, which sends a canary, from ending with its parent: it sets `interrupt` when the
/// parent ends or gives up, and goes on until the canary's file is removed.
pub fn outlive_parent(interrupt: &Interrupt) {
    // Away from the signals of the parent's terminal. It fails where this process leads its group already.
    let _ = rustix::process::setsid();
    let interrupt = interrupt.clone();
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        interrupt.ask();
    });
}
