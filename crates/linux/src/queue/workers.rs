//! Threads that run commands by blocking calls, each one at a time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use super::{Command, CommandKind};
use crate::device::Device;
use trimtab_core::aligned::Aligned;

/// The threads, made as they are needed: as many as there were ever commands in flight at once.
/// Dropping them waits for the commands in flight.
#[derive(Debug)]
pub(super) struct Workers {
    device: Device,
    /// None once no more jobs come.
    jobs: Option<Sender<Job>>,
    waiting: Arc<Mutex<Receiver<Job>>>,
    ended: Receiver<Done>,
    ends: Sender<Done>,
    /// Readable when a command ended since it was last read.
    bell: Arc<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
    in_flight: usize,
}

#[derive(Debug)]
struct Job {
    slot: usize,
    command: Command,
    data: Arc<Aligned>,
}

/// The end of a command.
#[derive(Debug)]
pub(super) struct Done {
    /// The number it was submitted with.
    pub(super) slot: usize,
    /// How long the system call took.
    pub(super) latency: Duration,
    /// When it ended.
    pub(super) at: Instant,
    /// The kernel's error.
    pub(super) result: io::Result<()>,
}

impl Workers {
    /// No threads yet.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn new(device: &Device) -> io::Result<Self> {
        let (jobs, waiting) = channel();
        let (ends, ended) = channel();
        Ok(Self {
            device: device.clone(),
            jobs: Some(jobs),
            waiting: Arc::new(Mutex::new(waiting)),
            ended,
            ends,
            bell: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
            threads: Vec::new(),
            in_flight: 0,
        })
    }

    /// Has a thread run `command`, a write with the first bytes of `data`.
    ///
    /// # Errors
    /// The kernel's error where it makes no more threads.
    pub(super) fn submit(&mut self, slot: usize, command: Command, data: &Arc<Aligned>) -> io::Result<()> {
        if self.in_flight == self.threads.len() {
            let (device, waiting) = (self.device.clone(), Arc::clone(&self.waiting));
            let (ends, bell) = (self.ends.clone(), Arc::clone(&self.bell));
            let work = move || work(&device, &waiting, &ends, &bell);
            self.threads.push(thread::Builder::new().name("trimtab-queue".into()).spawn(work)?);
        }
        let job = Job { slot, command, data: Arc::clone(data) };
        let jobs = self.jobs.as_ref().expect("jobs are taken until the drop");
        jobs.send(job).expect("the receiver is kept beside the sender");
        self.in_flight += 1;
        Ok(())
    }

    /// The end of a command that has ended.
    pub(super) fn reap(&mut self) -> Option<Done> {
        if self.in_flight == 0 {
            return None;
        }
        // Read before looking: an end that is missed now rings again. Nothing to read is no error.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        let done = self.ended.try_recv().ok()?;
        self.in_flight -= 1;
        Some(done)
    }

    /// Whether no command is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Returns a descriptor that is readable when a command may have ended.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so on stderr.
            let _ = thread.join();
        }
    }
}

/// Runs commands until no more come.
fn work(device: &Device, waiting: &Mutex<Receiver<Job>>, ends: &Sender<Done>, bell: &OwnedFd) {
    let mut buffer = Aligned::default();
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
    while let Ok(Job { slot, command: Command { kind, extent }, data }) = next() {
        let length = extent.len().0 as usize;
        if kind == CommandKind::Read && buffer.len() < length {
            buffer = Aligned::zeroed(length);
        }
        let begin = Instant::now();
        let result = match kind {
            CommandKind::Read => device.read(extent.start, &mut buffer[..length]),
            CommandKind::Write => device.write(extent.start, &data[..length]),
            CommandKind::Erase(operation) => device.erase(operation, extent),
        };
        let at = Instant::now();
        // Where the queue is gone, nobody waits for the end of the command.
        let _ = ends.send(Done { slot, latency: at - begin, at, result });
        let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
    }
}
