//! Time limits for kernel calls that may block without end: on a drive that hangs, or on a file system that
//! is frozen or lies on a frozen one.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::thread;
use std::time::Duration;

/// How long the service waits for a kernel call; a client waits for the service for more than two of them.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);
/// How long it waits when it ends, and nobody waits for it.
pub(super) const LAST_TIMEOUT: Duration = Duration::from_secs(5);

/// A kernel call that did not return within [`TIMEOUT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the kernel doesn't answer: its drive is slow or hangs, or what it lies on is frozen")]
pub(super) struct NoAnswer;

/// Runs `work` in a thread of its own; its result arrives at the receiver.
///
/// # Errors
/// The kernel's error if it can't start a thread.
pub(super) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<Receiver<T>> {
    let (sender, receiver) = channel();
    // The receiver may be gone after a timeout.
    thread::Builder::new().spawn(move || _ = sender.send(work()))?;
    Ok(receiver)
}

/// Returns the result of `work`. After a timeout, `work` continues and its result is lost.
///
/// # Errors
/// [`NoAnswer`] if there is no result in time.
pub(super) fn with_timeout<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NoAnswer> {
    within(TIMEOUT, work)
}

/// Returns the result of `work`, as [`with_timeout`] does after `limit`.
///
/// # Errors
/// [`NoAnswer`] if there is no result in time.
pub(super) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NoAnswer> {
    let result = spawn(work).map_err(|_| NoAnswer)?;
    result.recv_timeout(limit).map_err(|_| NoAnswer)
}

/// A call that is repeated from time to time, but never runs twice at once.
#[derive(Debug)]
pub(super) struct SingleCall<T>(Option<Receiver<T>>);

impl<T> Default for SingleCall<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Send + 'static> SingleCall<T> {
    /// Returns the result of `work`, or of the previous call if that still ran.
    ///
    /// # Errors
    /// [`NoAnswer`] if there is no result in time; the next call waits for the same result.
    pub fn run(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, NoAnswer> {
        let (receiver, timeout) = match self.0.take() {
            Some(running) => (running, Duration::ZERO),
            None => (spawn(work).map_err(|_| NoAnswer)?, TIMEOUT),
        };
        let result = receiver.recv_timeout(timeout);
        self.0 = matches!(result, Err(RecvTimeoutError::Timeout)).then_some(receiver);
        result.map_err(|_| NoAnswer)
    }

    /// Returns the result of `work`. That of a previous call which was not in time is lost.
    ///
    /// # Errors
    /// [`NoAnswer`] if the previous call still runs, or if there is no result in time.
    pub fn run_anew(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, NoAnswer> {
        let is_running = |call: &Receiver<T>| matches!(call.try_recv(), Err(TryRecvError::Empty));
        self.0 = self.0.take().filter(is_running);
        if self.0.is_some() { Err(NoAnswer) } else { self.run(work) }
    }
}
