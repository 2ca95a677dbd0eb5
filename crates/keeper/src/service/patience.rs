//! Calls of the kernel that may take for ever: of a drive that hangs, or of a file system that is frozen or
//! lies on one that is.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How long an answer is waited for while all else waits.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Why nothing is known of a file system that lets its callers wait.
pub(super) const NO_ANSWER: &str = "the kernel doesn't answer: its drive hangs, or what it lies on is frozen";

/// Has `work` done by a thread of its own; what comes of it is there to be received once.
///
/// # Errors
/// What the kernel says where it gives no thread.
pub(super) fn begin<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<Receiver<T>> {
    let (tell, told) = channel();
    // Who gave up doesn't listen.
    thread::Builder::new().spawn(move || _ = tell.send(work()))?;
    Ok(told)
}

/// What comes of `work`; none where that isn't there in time, though the work goes on.
pub(super) fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    begin(work).ok()?.recv_timeout(PATIENCE).ok()
}

/// What is asked again and again of the same, one question at a time.
#[derive(Debug)]
pub(super) struct Asked<T>(Option<Receiver<T>>);

impl<T> Default for Asked<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Send + 'static> Asked<T> {
    /// What comes of `work`, or of what was asked before where that is still to be answered; none where it isn't
    /// there in time.
    pub fn ask(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (answer, patience) = match self.0.take() {
            Some(late) => (late, Duration::ZERO),
            None => (begin(work).ok()?, PATIENCE),
        };
        let told = answer.recv_timeout(patience);
        self.0 = matches!(told, Err(RecvTimeoutError::Timeout)).then_some(answer);
        told.ok()
    }
}
