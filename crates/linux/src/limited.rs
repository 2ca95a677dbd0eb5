//! A time limit for questions that may never be answered: those to the server of a network file system or of FUSE, and
//! those to a drive.

use std::cell::Cell;
use std::io;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// How long an answer is waited for.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long it is waited for once [`PATIENCE`] questions had none: a server that is silent is often asked about many files.
const SHORT_TIMEOUT: Duration = Duration::from_millis(100);
const PATIENCE: u32 = 3;

thread_local! {
    /// The questions of this thread that had no answer in time.
    static UNANSWERED: Cell<u32> = const { Cell::new(0) };
}

/// A question that was asked.
pub(crate) struct Asked<T> {
    answer: Receiver<T>,
    deadline: Instant,
}

/// Asks `question` on a thread of its own.
pub(crate) fn ask<T: Send + 'static>(question: impl FnOnce() -> T + Send + 'static) -> Asked<T> {
    ask_for(if UNANSWERED.get() < PATIENCE { TIMEOUT } else { SHORT_TIMEOUT }, question)
}

/// Asks `question` on a thread of its own, with a time limit of its own as well.
pub(crate) fn ask_for<T: Send + 'static>(
    limit: Duration,
    question: impl FnOnce() -> T + Send + 'static,
) -> Asked<T> {
    let (sender, answer) = mpsc::channel();
    // Where no thread can be made, nobody answers.
    let _ = thread::Builder::new().spawn(move || {
        // Nobody waits any more for an answer that comes late.
        let _ = sender.send(question());
    });
    Asked { answer, deadline: Instant::now() + limit }
}

/// Answers `question`, or says that there was no answer in time.
pub(crate) fn in_time<T: Send + 'static>(
    question: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    ask(question).answer().unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}

impl<T> Asked<T> {
    /// Waits for the answer; none where it does not come within the time limit, which begins with the question.
    pub(crate) fn answer(self) -> Option<T> {
        let answer = self.answer.recv_timeout(self.deadline.saturating_duration_since(Instant::now()));
        if answer.is_err() {
            UNANSWERED.set(UNANSWERED.get() + 1);
        }
        answer.ok()
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
        let begun = Instant::now();
        assert!((0..20).all(|_| ask(|| thread::sleep(Duration::from_secs(3600))).answer().is_none()));
        assert!(begun.elapsed() < Duration::from_secs(60), "patience ends");
    }
}
