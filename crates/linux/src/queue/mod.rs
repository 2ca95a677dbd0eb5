//! Commands kept in flight on a device: in `io_uring` where the kernel has it, else in threads.

mod ring;
mod workers;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use trimtab_core::Extent;
use trimtab_core::document::bench::{Engine, Operation};

use crate::aligned::Aligned;
use crate::device::Device;
use ring::Ring;
use workers::Workers;

/// A command for a [`Queue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    /// What it does.
    pub kind: Kind,
    /// The bytes it names; whole logical blocks.
    pub extent: Extent,
}

/// What a command in a [`Queue`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Reads, and throws away what it read.
    Read,
    /// Writes data that can't be compressed, the same in every write.
    Write,
    /// Frees.
    Erase(Operation),
}

/// The end of a command.
#[derive(Debug)]
pub struct Completion {
    /// The number it was submitted with.
    pub tag: u64,
    /// In `io_uring`: from just before its submission until its end was seen. In a thread: how long
    /// the system call took, which leaves out handing it to the thread and back.
    pub latency: Duration,
    /// When it ended.
    pub at: Instant,
    /// What the kernel said.
    pub result: io::Result<()>,
}

/// Up to so many commands in flight on a device. Dropping it waits for all of them.
#[derive(Debug)]
pub struct Queue {
    ring: Option<Ring>,
    workers: Workers,
    /// By the number that a command goes by while it is in flight.
    slots: Vec<Slot>,
    /// The numbers that no command goes by.
    free: Vec<usize>,
    data: Arc<Aligned>,
}

/// What is kept of a command in flight.
#[derive(Debug, Clone, Copy)]
struct Slot {
    tag: u64,
    submitted: Instant,
}

impl Queue {
    /// A queue of up to `depth` commands in flight on `device`.
    ///
    /// # Errors
    /// What the kernel says.
    ///
    /// # Panics
    /// If `depth` is zero.
    pub fn new(device: &Device, depth: u32) -> io::Result<Self> {
        assert!(depth > 0, "a queue holds at least one command");
        // Without a ring (Linux before 5.6, kernel.io_uring_disabled, a seccomp filter) all
        // commands go to threads.
        Ok(Self::with(Ring::new(device, depth).ok(), Workers::new(device)?, depth))
    }

    fn with(ring: Option<Ring>, workers: Workers, depth: u32) -> Self {
        let slots = vec![Slot { tag: 0, submitted: Instant::now() }; depth as usize];
        Self { ring, workers, slots, free: (0..depth as usize).collect(), data: Arc::default() }
    }

    /// How commands of kind `kind` are kept in flight.
    pub fn engine(&self, kind: Kind) -> Engine {
        match &self.ring {
            Some(ring) if ring.takes(kind) => Engine::IoUring,
            _ => Engine::Threads,
        }
    }

    /// How many commands are in flight.
    pub fn in_flight(&self) -> u32 {
        (self.slots.len() - self.free.len()) as u32
    }

    /// Sends `command`; `tag` comes back with its completion.
    ///
    /// # Errors
    /// What the kernel says where it can't even be sent; the queue can only be dropped after that.
    ///
    /// # Panics
    /// If the queue is full.
    pub fn submit(&mut self, tag: u64, command: Command) -> io::Result<()> {
        if command.kind == Kind::Write && (self.data.len() as u64) < command.extent.len().0 {
            self.data = Arc::new(Aligned::random(command.extent.len().0 as usize)?);
        }
        let slot = self.free.pop().expect("a command is submitted to a queue that is full");
        self.slots[slot] = Slot { tag, submitted: Instant::now() };
        match &mut self.ring {
            Some(ring) if ring.takes(command.kind) => ring.submit(slot, command, &self.data),
            _ => self.workers.submit(slot, command, &self.data),
        }
    }

    /// Waits for the end of a command; gives up at `until`, or at once where nothing is in flight.
    ///
    /// # Errors
    /// What the kernel says where it can't wait.
    pub fn wait(&mut self, until: Option<Instant>) -> io::Result<Option<Completion>> {
        loop {
            if let Some(completion) = self.reap() {
                return Ok(Some(completion));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if self.in_flight() == 0 || left == Some(Duration::ZERO) {
                return Ok(None);
            }
            self.sleep(left)?;
        }
    }

    /// The end of a command that has ended.
    fn reap(&mut self) -> Option<Completion> {
        let in_ring = self.ring.as_mut().and_then(Ring::reap).map(|(slot, result)| {
            let Slot { tag, submitted } = self.slots[slot];
            let at = Instant::now();
            (slot, Completion { tag, latency: at - submitted, at, result })
        });
        let ended = in_ring.or_else(|| {
            let done = self.workers.reap()?;
            let tag = self.slots[done.slot].tag;
            Some((done.slot, Completion { tag, latency: done.latency, at: done.at, result: done.result }))
        });
        ended.map(|(slot, completion)| {
            self.free.push(slot);
            completion
        })
    }

    /// Waits until a command may have ended, for `left` at most.
    fn sleep(&self, left: Option<Duration>) -> io::Result<()> {
        let ring = self.ring.as_ref().map(Ring::as_fd);
        let mut sources: Vec<_> = ring
            .into_iter()
            .chain([self.workers.bell()])
            .map(|fd: BorrowedFd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()) as _,
        });
        match poll(&mut sources, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}
