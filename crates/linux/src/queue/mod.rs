//! Commands kept in flight on a device: in `io_uring` where the kernel has it, else in threads.

mod ring;
mod workers;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use trimtab_core::aligned::Aligned;
use trimtab_core::erase::{Engine, Operation};
use trimtab_core::{Bytes, Extent};

use crate::device::Device;
use ring::Ring;
use workers::Workers;

/// A command for a [`Queue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    /// Its operation.
    pub kind: CommandKind,
    /// The bytes it names; whole logical blocks.
    pub extent: Extent,
}

/// The operation of a command in a [`Queue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandKind {
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
    /// The kernel's error.
    pub result: io::Result<()>,
}

/// Up to this many commands in flight on a device. Dropping it waits for all of them.
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

/// The record of a command in flight.
#[derive(Debug, Clone, Copy)]
struct Slot {
    tag: u64,
    command: Command,
    submitted: Instant,
}

/// The command of a slot that had none yet.
const NOTHING: Command =
    Command { kind: CommandKind::Read, extent: Extent { start: Bytes::ZERO, end: Bytes::ZERO } };

impl Queue {
    /// A queue of up to `depth` commands in flight on `device`.
    ///
    /// # Errors
    /// The kernel's error.
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
        let slots = vec![Slot { tag: 0, command: NOTHING, submitted: Instant::now() }; depth as usize];
        Self { ring, workers, slots, free: (0..depth as usize).collect(), data: Arc::default() }
    }

    /// How commands of kind `kind` are kept in flight.
    pub fn engine(&self, kind: CommandKind) -> Engine {
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
    /// The kernel's error where it can't even be sent; the queue can only be dropped after that.
    ///
    /// # Panics
    /// If the queue is full.
    pub fn submit(&mut self, tag: u64, command: Command) -> io::Result<()> {
        if command.kind == CommandKind::Write && (self.data.len() as u64) < command.extent.len().0 {
            self.data = Arc::new(random(command.extent.len().0 as usize)?);
        }
        let slot = self.free.pop().expect("a command is submitted to a queue that is full");
        self.slots[slot] = Slot { tag, command, submitted: Instant::now() };
        match &mut self.ring {
            Some(ring) if ring.takes(command.kind) => ring.submit(slot, command, &self.data),
            _ => self.workers.submit(slot, command, &self.data),
        }
    }

    /// Waits for the end of a command; gives up at `until`, or at once where nothing is in flight.
    ///
    /// # Errors
    /// The kernel's error where it can't wait.
    pub fn wait(&mut self, until: Option<Instant>) -> io::Result<Option<Completion>> {
        loop {
            if let Some(completion) = self.reap()? {
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
    fn reap(&mut self) -> io::Result<Option<Completion>> {
        while let Some((slot, result)) = self.ring.as_mut().and_then(Ring::reap) {
            let Slot { tag, command, submitted } = self.slots[slot];
            let refused = result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Unsupported);
            if refused && matches!(command.kind, CommandKind::Erase(_)) {
                // A driver without requests, such as zram, takes discards only from those who can
                // wait for it.
                self.ring.iter_mut().for_each(Ring::leave_discards);
                self.workers.submit(slot, command, &self.data)?;
                continue;
            }
            self.free.push(slot);
            let at = Instant::now();
            return Ok(Some(Completion { tag, latency: at - submitted, at, result }));
        }
        let Some(done) = self.workers.reap() else { return Ok(None) };
        self.free.push(done.slot);
        let tag = self.slots[done.slot].tag;
        Ok(Some(Completion { tag, latency: done.latency, at: done.at, result: done.result }))
    }

    /// Waits until a command may have ended, for `left` at most.
    fn sleep(&self, left: Option<Duration>) -> io::Result<()> {
        if let Some(ring) = self.ring.as_ref().filter(|ring| self.workers.is_idle() && ring.waits()) {
            return ring.wait(left);
        }
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

/// Returns `length` bytes that can't be compressed.
fn random(length: usize) -> io::Result<Aligned> {
    let mut bytes = Aligned::zeroed(length);
    let mut filled = 0;
    while filled < length {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::PathBuf;

    use super::*;
    use crate::captured::Captured;
    use rustix::fs::OFlags;

    /// A regular file that is taken for a device: it has no discards, all else works.
    fn file(size: Bytes) -> (tempfile::TempDir, PathBuf, Device) {
        // Temporary directories in memory may have no direct I/O; where this was built has.
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = directory.path().join("file");
        fs::File::create(&path).unwrap().set_len(size.0).unwrap();
        let flags = OFlags::DIRECT.bits() as i32;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path).unwrap();
        let sectors = (size.0 / 512).to_string();
        let attributes = [("size", sectors.as_str()), ("queue/logical_block_size", "512")];
        let machine = Captured::new().device("sda", "8:0", &attributes);
        let device = Device::new(file, machine.open("sda")).unwrap();
        (directory, path, device)
    }

    fn engines(device: &Device, depth: u32) -> Vec<Queue> {
        let threads = Queue::with(None, Workers::new(device).unwrap(), depth);
        assert_eq!(threads.engine(CommandKind::Write), Engine::Threads);
        vec![threads, Queue::new(device, depth).unwrap()]
    }

    fn write(at: Bytes, length: Bytes) -> Command {
        Command { kind: CommandKind::Write, extent: Extent::at(at, length) }
    }

    #[test]
    fn dropped_queue_finishes_its_commands() {
        let (_directory, path, device) = file(Bytes(4 << 20));
        let piece = Bytes(64 << 10);
        for mut queue in engines(&device, 64) {
            for number in 0..64 {
                queue.submit(number, write(Bytes(number * piece.0), piece)).unwrap();
            }
            drop(queue);
            let found = fs::read(&path).unwrap();
            assert!(found.chunks(512).all(|sector| sector.iter().any(|byte| *byte != 0)));
            fs::write(&path, vec![0; 4 << 20]).unwrap();
        }
    }

    #[test]
    fn a_wait_ends_in_time() {
        let (_directory, _path, device) = file(Bytes(64 << 20));
        for mut queue in engines(&device, 1) {
            assert!(queue.wait(None).unwrap().is_none(), "nothing is in flight");
            queue.submit(7, write(Bytes(0), Bytes(64 << 20))).unwrap();
            let now = Instant::now();
            let given_up = queue.wait(Some(now)).unwrap().is_none();
            let later = now + Duration::from_micros(300);
            let again = queue.wait(Some(later)).unwrap();
            assert!(given_up, "64 MiB take longer than no time");
            assert!(again.is_some() || Instant::now() >= later);
            let last = again.or_else(|| queue.wait(None).unwrap()).unwrap();
            last.result.unwrap();
            assert_eq!((last.tag, queue.in_flight()), (7, 0));
            assert!(last.at - now < now.elapsed() && last.latency > Duration::from_micros(100));
        }
    }

    #[test]
    fn failed_command_returns_its_error() {
        let (_directory, _path, device) = file(Bytes::MIB);
        for mut queue in engines(&device, 2) {
            assert_eq!(
                queue.engine(CommandKind::Erase(Operation::Discard)),
                Engine::Threads,
                "a file has none"
            );
            let beyond = Extent::at(Bytes::MIB, Bytes(4096));
            for (tag, kind) in [(1, CommandKind::Read), (2, CommandKind::Erase(Operation::Discard))] {
                queue.submit(tag, Command { kind, extent: beyond }).unwrap();
                let completion = queue.wait(None).unwrap().unwrap();
                assert_eq!((completion.tag, completion.result.is_err()), (tag, true));
            }
        }
    }

    #[test]
    #[should_panic(expected = "a queue that is full")]
    fn a_full_queue_takes_no_more() {
        let (_directory, _path, device) = file(Bytes::MIB);
        let mut queue = Queue::new(&device, 1).unwrap();
        for tag in 0..2 {
            queue.submit(tag, write(Bytes(0), Bytes(4096))).unwrap();
        }
    }
}
