//! Waiting for space that a trim holds.
//!
//! While FITRIM discards an extent, ext4 (`ext4_trim_extent`) and btrfs (`do_trimming`) count it as used. A
//! writer that needs it meanwhile gets ENOSPC, though the space is free a moment later.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use trimtab_core::interrupt::Interrupt;

/// How often an operation is tried again while there is no space for it.
const RETRIES: u32 = 600;
/// The time between two tries.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Tries operations again that find no space, and counts them.
#[derive(Debug, Clone)]
pub struct SpaceRetry {
    interrupt: Interrupt,
    retried: Arc<AtomicU64>,
}

impl SpaceRetry {
    /// Tries again until `interrupt` is set.
    pub fn new(interrupt: Interrupt) -> Self {
        Self { interrupt, retried: Arc::default() }
    }

    /// Tries again until `interrupt` is set, and counts together with this one.
    pub fn until(&self, interrupt: Interrupt) -> Self {
        Self { interrupt, retried: self.retried.clone() }
    }

    /// Operations so far that found no space at first.
    pub fn retried(&self) -> u64 {
        self.retried.load(Ordering::Relaxed)
    }

    /// Tries `operation` until it finds space, for 30 s at most.
    ///
    /// # Errors
    /// The operation's own; ENOSPC also once the user asks to stop.
    pub fn run<T>(&self, mut operation: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        for retry in 0..RETRIES {
            match operation() {
                Err(error) if error.kind() == ErrorKind::StorageFull => {
                    self.retried.fetch_add(u64::from(retry == 0), Ordering::Relaxed);
                    if self.interrupt.sleep(RETRY_INTERVAL).is_err() {
                        return Err(error);
                    }
                }
                result => return result,
            }
        }
        operation()
    }

    /// Returns a writer to `inner` that waits for space.
    pub fn writer<W: Write>(&self, inner: W) -> impl Write + use<'_, W> {
        RetryWriter { inner, retry: self }
    }
}

struct RetryWriter<'a, W> {
    inner: W,
    retry: &'a SpaceRetry,
}

impl<W: Write> Write for RetryWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.retry.run(|| self.inner.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has no space for its first writes, and accepts two bytes at a time after them.
    struct Held {
        refusals: u32,
        written: Vec<u8>,
    }

    impl Write for Held {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.refusals > 0 {
                self.refusals -= 1;
                return Err(ErrorKind::StorageFull.into());
            }
            let length = bytes.len().min(2);
            self.written.extend(&bytes[..length]);
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn writes_wait_for_space_that_a_trim_holds() {
        let retry = SpaceRetry::new(Interrupt::never());
        let mut held = Held { refusals: 3, written: Vec::new() };
        retry.writer(&mut held).write_all(b"bytes").unwrap();
        assert_eq!((held.refusals, &held.written[..]), (0, &b"bytes"[..]));
        assert_eq!(retry.retried(), 1, "one operation, however often it was tried");
    }

    #[test]
    fn a_request_to_stop_ends_the_wait() {
        let interrupt = Interrupt::never().child();
        interrupt.ask();
        let mut held = Held { refusals: u32::MAX, written: Vec::new() };
        let written = SpaceRetry::new(interrupt).writer(&mut held).write_all(b"bytes");
        assert_eq!(written.unwrap_err().kind(), ErrorKind::StorageFull);
    }

    #[test]
    fn other_errors_are_returned_at_once() {
        let (retry, mut tries) = (SpaceRetry::new(Interrupt::never()), 0);
        let result: io::Result<()> = retry.run(|| {
            tries += 1;
            Err(ErrorKind::PermissionDenied.into())
        });
        assert_eq!((result.unwrap_err().kind(), tries), (ErrorKind::PermissionDenied, 1));
        assert_eq!(retry.retried(), 0);
    }
}
