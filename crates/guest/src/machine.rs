//! A machine that runs once: a process whose guest sends messages into a file.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use trimtab_core::Bytes;
use trimtab_core::interrupt::Interrupt;
use trimtab_linux::child::die_with_parent;

use super::console;
use super::error::{GuestError, at};
use super::protocol::{MessageKind, Receiver};

/// How often messages, an interrupt and the limit are looked for.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// How long a guest has to turn itself off after its results arrived.
const GRACE: Duration = Duration::from_secs(10);
/// The files in a machine's room: the guest's console, and its messages.
pub(super) const CONSOLE: &str = "console";
pub(super) const PORT: &str = "port";

/// A machine to boot once.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Path,
    pub(super) memory: Bytes,
    /// An empty directory for the machine's own files.
    pub(super) room: &'a Path,
    /// The most wall time that it may take.
    pub(super) limit: Duration,
}

impl Machine<'_> {
    /// Runs `command`, which boots the machine, calls `started` with its process, and passes every message from it to
    /// `receive`, until it turns itself off. Returns how it ended if its results have not arrived by then.
    ///
    /// # Errors
    /// [`GuestError`]; the machine has ended by then.
    pub(super) fn follow(
        &self,
        command: &mut Command,
        started: &mut dyn FnMut(&Child),
        interrupt: &Interrupt,
        receive: &mut dyn FnMut(MessageKind, Vec<u8>),
    ) -> Result<Option<ExitStatus>, GuestError> {
        let program = Path::new(command.get_program()).to_owned();
        // Ctrl-C is for this program, which then ends the machine.
        command.process_group(0).current_dir(self.room);
        die_with_parent(command);
        let mut running = Running(command.spawn().map_err(at(&program, "run"))?);
        started(&running.0);
        let pidfd = pidfd_open(Pid::from_child(&running.0), PidfdFlags::empty())
            .map_err(|errno| at(&program, "wait for")(errno.into()))?;
        let mut port = Port { path: &self.room.join(PORT), at: 0, receiver: Receiver::default() };
        let since_start = Instant::now();
        let mut finished: Option<Instant> = None;
        loop {
            let off = match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&POLL_INTERVAL)) {
                Ok(0) | Err(Errno::INTR) => false,
                Ok(_) => true,
                Err(errno) => return Err(at(&program, "wait for")(errno.into())),
            };
            interrupt.check()?;
            port.read()?;
            while let Some((kind, payload)) = port.receiver.next()? {
                if matches!(kind, MessageKind::End(_) | MessageKind::Missing | MessageKind::Failed) {
                    finished = Some(Instant::now());
                }
                receive(kind, payload);
            }
            match finished {
                Some(since) if off || since.elapsed() > GRACE => return Ok(None),
                None if off => {
                    return Ok(Some(running.0.wait().map_err(at(&program, "wait for"))?));
                }
                None if since_start.elapsed() > self.limit => {
                    let console = console::tail(&self.console());
                    return Err(GuestError::Hung { limit: self.limit, console });
                }
                _ => {}
            }
        }
    }

    /// The messages of the guest's kernel and first process.
    pub(super) fn console(&self) -> Vec<u8> {
        fs::read(self.room.join(CONSOLE)).unwrap_or_default()
    }
}

/// The file behind the serial port.
struct Port<'a> {
    path: &'a Path,
    at: u64,
    receiver: Receiver,
}

impl Port<'_> {
    /// Takes what has been written since the last time.
    fn read(&mut self) -> Result<(), GuestError> {
        let Ok(mut file) = File::open(self.path) else { return Ok(()) };
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(self.at))
            .and_then(|_| file.read_to_end(&mut bytes))
            .map_err(at(self.path, "read"))?;
        self.at += bytes.len() as u64;
        self.receiver.feed(&bytes);
        Ok(())
    }
}

/// A machine that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
