//! The target of a bench: a block device, or in tests something that behaves like one.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use trimtab_core::document::KernelCounters;
use trimtab_core::erase::{Engine, Operation};
use trimtab_core::{Bytes, Extent};
use trimtab_linux::block::BlockCounters;
use trimtab_linux::device::Device;
use trimtab_linux::queue;
pub use trimtab_linux::queue::{Command, CommandKind, Completion};

/// A device to measure. Every address and length is a whole multiple of the logical block.
pub trait Target: Send + Sync {
    /// Its logical block.
    fn logical_block(&self) -> Bytes;

    /// Reads from `at` on, past all caches of the kernel.
    ///
    /// # Errors
    /// The kernel's error.
    fn read(&self, at: Bytes, into: &mut [u8]) -> io::Result<()>;

    /// Writes `data` from `at` on, past all caches of the kernel.
    ///
    /// # Errors
    /// The kernel's error.
    fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()>;

    /// Brings what was written to stable storage.
    ///
    /// # Errors
    /// The kernel's error.
    fn flush(&self) -> io::Result<()>;

    /// Sends one `operation` for `extent` and waits for its end.
    ///
    /// # Errors
    /// The kernel's error.
    fn erase(&self, operation: Operation, extent: Extent) -> io::Result<()>;

    /// Drops what the kernel caches of it.
    ///
    /// # Errors
    /// The kernel's error.
    fn drop_caches(&self) -> io::Result<()>;

    /// Returns the kernel's counts so far; none where it has no counters.
    fn counters(&self) -> Option<KernelCounters>;

    /// The time on the clock that its commands take.
    fn now(&self) -> Instant;

    /// Sends nothing for so long.
    fn pause(&self, span: Duration);

    /// A queue of up to `depth` commands in flight.
    ///
    /// # Errors
    /// The kernel's error.
    fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue + '_>>;
}

/// Commands in flight.
pub trait Queue {
    /// How its commands of kind `kind` are kept in flight.
    fn engine(&self, kind: CommandKind) -> Engine;

    /// Sends `command`; `tag` comes back with its completion.
    ///
    /// # Errors
    /// The kernel's error where it can't even be sent.
    ///
    /// # Panics
    /// If the queue is full.
    fn submit(&mut self, tag: u64, command: Command) -> io::Result<()>;

    /// Waits for the end of a command; gives up at `until`, or at once where nothing is in flight.
    ///
    /// # Errors
    /// The kernel's error where it can't wait.
    fn wait(&mut self, until: Option<Instant>) -> io::Result<Option<Completion>>;
}

/// How long the kernel may take to count a command whose end is known.
const SETTLED: Duration = Duration::from_millis(10);

impl Target for Device {
    fn logical_block(&self) -> Bytes {
        self.logical_block()
    }

    fn read(&self, at: Bytes, into: &mut [u8]) -> io::Result<()> {
        self.read(at, into)
    }

    fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
        self.write(at, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.flush()
    }

    fn erase(&self, operation: Operation, extent: Extent) -> io::Result<()> {
        self.erase(operation, extent)
    }

    fn drop_caches(&self) -> io::Result<()> {
        self.drop_caches()
    }

    fn counters(&self) -> Option<KernelCounters> {
        let settled = Instant::now() + SETTLED;
        loop {
            let counters = self.block().counters().ok()?;
            if counters.in_flight == 0 || Instant::now() > settled {
                return Some(counters.since(&BlockCounters::default()));
            }
            thread::sleep(SETTLED / 100);
        }
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn pause(&self, span: Duration) {
        thread::sleep(span);
    }

    fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue + '_>> {
        Ok(Box::new(queue::Queue::new(self, depth)?))
    }
}

impl Queue for queue::Queue {
    fn engine(&self, kind: CommandKind) -> Engine {
        self.engine(kind)
    }

    fn submit(&mut self, tag: u64, command: Command) -> io::Result<()> {
        self.submit(tag, command)
    }

    fn wait(&mut self, until: Option<Instant>) -> io::Result<Option<Completion>> {
        self.wait(until)
    }
}
