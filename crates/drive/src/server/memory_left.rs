//! The memory that a drive larger than it may still take.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use trimtab_core::Bytes;
use trimtab_linux::environment::available_memory;
use trimtab_linux::{CGROUPS, PROCFS};

/// Memory that is left to others.
const RESERVE: Bytes = Bytes(1 << 30);
/// The most that is written before the available memory is read again: others take some meanwhile.
const STEP: Bytes = Bytes(64 << 20);

/// Refuses writes when memory is short, before the kernel ends processes for want of it.
#[derive(Debug, Default)]
pub(super) struct MemoryLeft {
    /// Bytes that may be written before the available memory is read again.
    granted: AtomicU64,
}

impl MemoryLeft {
    /// Asks for `length` bytes. Overwritten data count as well, which only reads the available memory more often; they need
    /// none, so that the caller does not refuse them.
    ///
    /// # Errors
    /// `ENOSPC` if memory is short.
    pub(super) fn take(&self, length: Bytes) -> io::Result<()> {
        self.take_of(length, || {
            available_memory(Path::new(PROCFS), Path::new(CGROUPS)).map_err(io::Error::other)
        })
    }

    /// As [`take`](Self::take), of the memory that `available` returns.
    fn take_of(&self, length: Bytes, available: impl FnOnce() -> io::Result<Bytes>) -> io::Result<()> {
        let take = |granted: u64| granted.checked_sub(length.0);
        if self.granted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            return Ok(());
        }
        let free = available()?.saturating_sub(RESERVE);
        if free < length {
            return Err(Errno::NOSPC.into());
        }
        self.granted.store((free - length).min(STEP).0, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_is_refused_when_memory_is_short() {
        let left = MemoryLeft::default();
        let piece = Bytes(1 << 20);
        left.take_of(piece, || Ok(RESERVE + piece + piece)).unwrap();
        left.take_of(piece, || panic!("a piece more was granted")).unwrap();
        let refused = left.take_of(piece, || Ok(RESERVE + piece - Bytes(1))).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
        left.take_of(piece, || Ok(RESERVE + piece)).unwrap();
        left.take_of(STEP, || Ok(Bytes(u64::MAX))).unwrap();
        left.take_of(STEP, || panic!("no more than a step is granted")).unwrap();
        assert!(left.take_of(Bytes(1), || Ok(Bytes::ZERO)).is_err(), "memory is read again");
    }
}
