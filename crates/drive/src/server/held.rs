//! Replies held until the model says that their commands are done.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fuser::{ReplyData, ReplyEmpty, ReplyWrite};
use trimtab_linux::SYSFS;
use trimtab_linux::environment::clock_stands_still;

/// How long before a reply is due its thread stops sleeping: about what waking up takes. Where the clock stands still
/// while a thread runs, it sleeps to the end.
const SPIN: Duration = Duration::from_micros(30);

/// A reply that only has to be sent.
pub(crate) enum Answer {
    Data(ReplyData, Vec<u8>),
    Written(ReplyWrite, u32),
    Done(ReplyEmpty),
}

impl Answer {
    pub(crate) fn send(self) {
        match self {
            Self::Data(reply, data) => reply.data(&data),
            Self::Written(reply, length) => reply.written(length),
            Self::Done(reply) => reply.ok(),
        }
    }
}

/// An answer and when it is due; those due at the same time keep their order.
struct Held {
    due: (Instant, u64),
    answer: Answer,
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}

/// The answers held, and the thread that sends them.
pub(crate) struct HeldAnswers {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// How long before a reply is due its thread stops sleeping.
    spin: Duration,
}

#[derive(Default)]
struct Waiting {
    answers: BinaryHeap<Reverse<Held>>,
    taken: u64,
}

impl HeldAnswers {
    /// No answers.
    pub(crate) fn new() -> Self {
        let spin = if clock_stands_still(Path::new(SYSFS)) { Duration::ZERO } else { SPIN };
        Self { waiting: Mutex::default(), changed: Condvar::new(), spin }
    }

    /// Sends `answer` at `due`.
    pub(crate) fn hold(&self, due: Instant, answer: Answer) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.taken += 1;
        let due = (due, waiting.taken);
        let first = waiting.answers.peek().is_none_or(|Reverse(next)| due < next.due);
        waiting.answers.push(Reverse(Held { due, answer }));
        if first {
            self.changed.notify_one();
        }
    }

    /// Sends answers as they fall due, for ever; for a thread of its own.
    pub(crate) fn send_all(&self) {
        // The kernel may otherwise wake a thread 50 us late; without this it is only less precise.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        loop {
            self.next().send();
        }
    }

    /// Waits for the next answer to fall due.
    fn next(&self) -> Answer {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let Some(Reverse(next)) = waiting.answers.peek() else {
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = next.due.0.saturating_duration_since(Instant::now());
            if left.is_zero() {
                if let Some(Reverse(held)) = waiting.answers.pop() {
                    return held.answer;
                }
            } else if left > self.spin {
                let sleep = self.changed.wait_timeout(waiting, left - self.spin);
                waiting = sleep.unwrap_or_else(PoisonError::into_inner).0;
            } else {
                drop(waiting);
                std::hint::spin_loop();
                waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}
