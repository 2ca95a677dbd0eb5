//! What a bench does its work on: a block device, or in tests something that behaves like one.

use std::io;
use std::time::{Duration, Instant};

use trimtab_core::document::KernelCounters;
use trimtab_core::document::bench::{Engine, Operation};
use trimtab_core::{Bytes, Extent};

use super::error::Action;

/// A device to measure. Every address and length is a whole multiple of the logical block.
pub trait Target: Send + Sync {
    /// Its size.
    fn size(&self) -> Bytes;

    /// Its logical block.
    fn logical_block(&self) -> Bytes;

    /// Reads from `at` on, past all caches of the kernel.
    ///
    /// # Errors
    /// What the kernel says.
    fn read(&self, at: Bytes, into: &mut [u8]) -> io::Result<()>;

    /// Writes `data` from `at` on, past all caches of the kernel.
    ///
    /// # Errors
    /// What the kernel says.
    fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()>;

    /// Brings what was written to stable storage.
    ///
    /// # Errors
    /// What the kernel says.
    fn flush(&self) -> io::Result<()>;

    /// Sends one `operation` for `extent` and waits for its end.
    ///
    /// # Errors
    /// What the kernel says.
    fn erase(&self, operation: Operation, extent: Extent) -> io::Result<()>;

    /// Drops what the kernel caches of it.
    ///
    /// # Errors
    /// What the kernel says.
    fn drop_caches(&self) -> io::Result<()>;

    /// What the kernel counted on it so far; none where it has no counters.
    fn counters(&self) -> Option<KernelCounters>;

    /// A queue of up to `depth` commands in flight.
    ///
    /// # Errors
    /// What the kernel says.
    fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue + '_>>;
}

/// A command for a [`Queue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    /// What it does.
    pub action: Action,
    /// The bytes it names.
    pub extent: Extent,
}

/// The end of a command.
#[derive(Debug)]
pub struct Completion {
    /// The number it was submitted with.
    pub tag: u64,
    /// From its submission to its end.
    pub latency: Duration,
    /// When it ended.
    pub at: Instant,
    /// What the kernel said.
    pub result: io::Result<()>,
}

/// Commands in flight.
pub trait Queue {
    /// How its commands that do `action` are kept in flight.
    fn engine(&self, action: Action) -> Engine;

    /// How many are in flight.
    fn in_flight(&self) -> u32;

    /// Sends `command`; `tag` comes back with its completion.
    ///
    /// # Errors
    /// What the kernel says where it can't even be sent.
    ///
    /// # Panics
    /// If the queue is full.
    fn submit(&mut self, tag: u64, command: Command) -> io::Result<()>;

    /// Waits for the end of a command; gives up at `until`, or at once where nothing is in flight.
    ///
    /// # Errors
    /// What the kernel says where it can't wait.
    fn wait(&mut self, until: Option<Instant>) -> io::Result<Option<Completion>>;
}
