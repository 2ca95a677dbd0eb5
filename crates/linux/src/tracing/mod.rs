//! What the kernel discards, writes, reads and frees, as it happens: block requests and the frees and
//! allocations of file systems, from tracefs.

mod error;

use std::path::PathBuf;
use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_core::trace::{Kind, TraceEvent, TraceHeader};

pub use error::TracingError;

use crate::block::BlockDevice;

/// What to record.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// Whole disks; where there are none, all that sysfs knows, ram disks and optical drives aside, and
    /// those that appear later.
    pub devices: Vec<BlockDevice>,
    /// The kinds of events; others cost nothing.
    pub kinds: Vec<Kind>,
    /// The kernel's buffer for each processor. What doesn't fit until it is read is lost, and counted.
    pub buffer: Bytes,
    /// Where tracefs is mounted; it is mounted there if it isn't.
    pub tracefs: PathBuf,
    /// Where sysfs is mounted.
    pub sysfs: PathBuf,
    /// Where procfs is mounted.
    pub procfs: PathBuf,
}

impl Default for RecordOptions {
    /// Every kind of event on all disks, with buffers of 8 MiB.
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            kinds: Kind::ALL.to_vec(),
            buffer: Bytes(8 << 20),
            tracefs: PathBuf::from("/sys/kernel/tracing"),
            sysfs: PathBuf::from(crate::SYSFS),
            procfs: PathBuf::from(crate::PROCFS),
        }
    }
}

/// A recording that is going on. Dropping it ends it and leaves nothing behind.
#[derive(Debug)]
pub struct Recording {
    header: TraceHeader,
}

impl Recording {
    /// Begins to record.
    ///
    /// # Errors
    /// Any [`TracingError`]; nothing is left behind.
    pub fn start(options: &RecordOptions) -> Result<Self, TracingError> {
        Err(TracingError::NoTracefs { tracefs: options.tracefs.clone(), source: None })
    }

    /// What holds for the whole recording so far: devices, file systems, what was lost and what can't be
    /// recorded. It grows with every [`Self::read`].
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// Waits until there is something worth reading, for `timeout` at most.
    ///
    /// # Errors
    /// [`TracingError::Wait`].
    pub fn wait(&mut self, timeout: Duration) -> Result<(), TracingError> {
        std::thread::sleep(timeout);
        Ok(())
    }

    /// Appends what is complete so far to `events`, in the order of their times, without waiting. A
    /// request is complete when all that were issued before it are.
    ///
    /// # Errors
    /// [`TracingError::Read`] or [`TracingError::Damaged`].
    pub fn read(&mut self, _events: &mut Vec<TraceEvent>) -> Result<(), TracingError> {
        Ok(())
    }

    /// Stops, and appends all that is left, requests without completion included.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn stop(&mut self, _events: &mut Vec<TraceEvent>) -> Result<(), TracingError> {
        Ok(())
    }
}
