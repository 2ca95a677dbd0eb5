//! Calls of the kernel that may take for ever: of a drive that hangs, or of a file system that is frozen or
//! lies on one that is.

use std::io;
use std::sync::mpsc::{Receiver, channel};
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
