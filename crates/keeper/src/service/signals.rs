//! The signals of the service, as a file descriptor to poll.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{SigId, flag, low_level};

/// The signals received since the last check.
#[derive(Debug)]
pub(super) struct Signals {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    woken: UnixStream,
    handlers: Vec<SigId>,
}

impl Signals {
    /// Installs the signal handlers.
    pub fn listen() -> io::Result<Self> {
        let (woken, waker) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let mut signals = Self { stop: Arc::default(), reload: Arc::default(), woken, handlers: Vec::new() };
        for (signal, asked) in [(SIGTERM, &signals.stop), (SIGINT, &signals.stop), (SIGHUP, &signals.reload)]
        {
            // The flag must be set before the file descriptor becomes readable.
            signals.handlers.push(flag::register(signal, Arc::clone(asked))?);
            signals.handlers.push(low_level::pipe::register(signal, waker.try_clone()?)?);
        }
        Ok(signals)
    }

    /// Returns whether a signal asked the service to end, and clears it.
    pub fn take_stop(&self) -> bool {
        self.stop.swap(false, Ordering::Relaxed)
    }

    /// Returns whether a signal asked to reload the configuration, and clears it.
    pub fn take_reload(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }

    /// Drains the file descriptor, so that the next signal makes it readable again.
    pub fn clear(&self) {
        let mut bytes = [0; 64];
        while rustix::io::read(&self.woken, &mut bytes).is_ok_and(|length| length > 0) {}
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handlers.drain(..).for_each(|handler| _ = low_level::unregister(handler));
    }
}
