//! The user's own command, for the span of which something is recorded.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use trimtab_core::interrupt::Interrupt;

/// How often a command that is waited for is looked at.
const GLANCE: Duration = Duration::from_millis(20);
/// What a command gets to end by itself: a terminal tells it of Ctrl-C as well.
const GRACE: Duration = Duration::from_secs(1);

/// What can go wrong with a command.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It could not be started, or not be waited for.
    #[error("cannot run {program}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// It goes on although it was told to end.
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
    /// When it was told so.
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

    /// How it ended, if it has. Once the user has asked to stop, it is told so too, unless it ends by
    /// itself; where the user asks again, it is told at once.
    ///
    /// # Errors
    /// [`CommandError::Spawn`] where it can't be waited for; [`CommandError::LeftRunning`] where it goes on
    /// although it was told, and the user asked again.
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

    /// Tells it to end, and waits until it has: what it was started for cannot be done.
    pub fn abandon(mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }

    /// Waits until it has ended, and returns how.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub fn wait(&mut self, interrupt: &Interrupt) -> Result<ExitStatus, CommandError> {
        loop {
            if let Some(status) = self.poll(interrupt)? {
                return Ok(status);
            }
            thread::sleep(GLANCE);
        }
    }
}

/// The exit code that a shell gives a command that ended so: its own, or 128 and the signal.
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
    fn a_command_that_is_abandoned_has_ended() {
        let command = Foreground::start(&shell("exec sleep 60")).unwrap();
        let process = Pid::from_child(&command.child);
        command.abandon();
        assert!(rustix::process::test_kill_process(process).is_err());
    }

    #[test]
    fn an_interrupt_reaches_a_command_that_goes_on() {
        let interrupt = Interrupt::default();
        interrupt.ask();
        let mut command = Foreground::start(&shell("exec sleep 60")).unwrap();
        assert_eq!(exit_code(command.wait(&interrupt).unwrap()), 143);
    }

    #[test]
    fn a_command_that_heeds_nothing_is_left_on_the_second_interrupt() {
        let (interrupt, dir) = (Interrupt::default(), tempfile::tempdir().unwrap());
        let deaf = dir.path().join("deaf");
        let line = format!("trap '' TERM; : > {}; exec sleep 60", deaf.display());
        let mut command = Foreground::start(&shell(&line)).unwrap();
        while !deaf.exists() {
            thread::sleep(GLANCE);
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
