//! A time limit for questions that may never be answered: those to the server of a network file system or of FUSE, and
//! those to a drive.

use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// How long an answer is waited for.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A question that was asked.
pub(crate) struct Asked<T> {
    answer: Receiver<T>,
    deadline: Instant,
}

/// Asks `question` on a thread of its own.
pub(crate) fn ask<T: Send + 'static>(question: impl FnOnce() -> T + Send + 'static) -> Asked<T> {
    let (sender, answer) = mpsc::channel();
    // Where no thread can be made, nobody answers.
    let _ = thread::Builder::new().spawn(move || {
        // Nobody waits any more for an answer that comes late.
        let _ = sender.send(question());
    });
    Asked { answer, deadline: Instant::now() + TIMEOUT }
}

impl<T> Asked<T> {
    /// Waits for the answer; none where it does not come within [`TIMEOUT`] from the question on.
    pub(crate) fn answer(self) -> Option<T> {
        self.answer.recv_timeout(self.deadline.saturating_duration_since(Instant::now())).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_wait_side_by_side() {
        let asked: Vec<_> = (0..3).map(|_| ask(|| thread::sleep(Duration::from_secs(3600)))).collect();
        let quick = ask(|| 42);
        assert!(asked.into_iter().all(|asked| asked.answer().is_none()));
        assert_eq!(quick.answer(), Some(42), "an answer that came in time is not lost");
    }
}
