//! The user's command that is recorded while it runs.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use trimtab_core::interrupt::Interrupt;

/// How often a running command is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The time a command gets to end by itself: a terminal sends it Ctrl-C as well.
const GRACE: Duration = Duration::from_secs(1);

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It could not be started or waited for.
    #[error("cannot run {program}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// It ignored SIGTERM.
    #[error("{program} did not end on SIGTERM and was left running")]
    LeftRunning {
        /// The program.
        program: String,
    },
}

/// A command that runs with our standard input, output and error.
pub struct Foreground {
    child: Child,
    program: String,
    /// When the user asked to stop.
    asked: Option<Instant>,
    /// When SIGTERM was sent.
    told: Option<Instant>,
}

impl Foreground {
    /// Starts `command`: a program and its arguments.
    ///
    /// # Errors
    /// [`CommandError::Spawn`].
    ///
    /// # Panics
    /// If `command` is empty.
    pub fn start(command: &[OsString]) -> Result<Self, CommandError> {
        let program = command[0].to_string_lossy().into_owned();
        let child = Command::new(&command[0]).args(&command[1..]).spawn();
        let child = child.map_err(|source| CommandError::Spawn { program: program.clone(), source })?;
        Ok(Self { child, program, asked: None, told: None })
    }

    /// Returns the exit status if the command has ended. After the user asked to stop, sends SIGTERM unless
    /// the command ends by itself in time; if the user asks again, sends it at once.
    ///
    /// # Errors
    /// [`CommandError::Spawn`] if it can't be waited for; [`CommandError::LeftRunning`] if it ignored SIGTERM
    /// and the user asked again.
    pub fn poll(&mut self, interrupt: &Interrupt) -> Result<Option<ExitStatus>, CommandError> {
        let spawn = |source| CommandError::Spawn { program: self.program.clone(), source };
        let ended = self.child.try_wait().map_err(spawn)?;
        if ended.is_some() || !interrupt.is_set() {
            return Ok(ended);
        }
        let asked = *self.asked.get_or_insert_with(Instant::now);
        match self.told {
            None if interrupt.is_urgent() || asked.elapsed() > GRACE => {
                self.told = Some(Instant::now());
                let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            }
            Some(told) if interrupt.is_urgent() && told.elapsed() > GRACE => {
                return Err(CommandError::LeftRunning { program: self.program.clone() });
            }
            _ => {}
        }
        Ok(None)
    }

    /// Sends SIGTERM and waits until it has ended, because the recording failed.
    pub fn abandon(mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }

    /// Waits until it has ended, and returns its exit status.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub fn wait(&mut self, interrupt: &Interrupt) -> Result<ExitStatus, CommandError> {
        loop {
            if let Some(status) = self.poll(interrupt)? {
                return Ok(status);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Returns the exit code as a shell reports it: the command's own, or 128 plus the signal.
pub fn exit_code(status: ExitStatus) -> u8 {
    let signalled = || status.signal().map_or(1, |signal| 128 + signal);
    status.code().unwrap_or_else(signalled) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str) -> Vec<OsString> {
        ["sh", "-c", line].map(OsString::from).to_vec()
    }

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        for (line, code) in [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137)] {
            let mut command = Foreground::start(&shell(line)).unwrap();
            assert_eq!(exit_code(command.wait(&Interrupt::never()).unwrap()), code, "{line}");
        }
        let missing = Foreground::start(&[OsString::from("/nonexistent")]).err().unwrap();
        assert_eq!(missing.to_string(), "cannot run /nonexistent");
    }

    #[test]
    fn abandoned_command_has_ended() {
        let command = Foreground::start(&shell("exec sleep 60")).unwrap();
        let process = Pid::from_child(&command.child);
        command.abandon();
        assert!(rustix::process::test_kill_process(process).is_err());
    }

    #[test]
    fn interrupt_reaches_a_running_command() {
        let interrupt = Interrupt::default();
        interrupt.ask();
        let mut command = Foreground::start(&shell("exec sleep 60")).unwrap();
        assert_eq!(exit_code(command.wait(&interrupt).unwrap()), 143);
    }

    #[test]
    fn command_that_ignores_signals_is_left_running_on_the_second_interrupt() {
        let (interrupt, dir) = (Interrupt::default(), tempfile::tempdir().unwrap());
        let deaf = dir.path().join("deaf");
        let line = format!("trap '' TERM; : > {}; exec sleep 60", deaf.display());
        let mut command = Foreground::start(&shell(&line)).unwrap();
        while !deaf.exists() {
            thread::sleep(POLL_INTERVAL);
        }
        interrupt.ask();
        interrupt.ask();
        let left = command.wait(&interrupt).unwrap_err();
        assert_eq!(left.to_string(), "sh did not end on SIGTERM and was left running");
        assert!(command.child.try_wait().unwrap().is_none());
        command.child.kill().unwrap();
        command.child.wait().unwrap();
    }
}
