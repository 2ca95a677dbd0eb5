//! The order in which the kernel hands out requests, for the model to take them in.
//!
//! Several threads take requests, and one that has a lot of data to fetch may come to the model after
//! a later one with little. The drive would then do something else each time: which pages share an
//! erase block decides what garbage collection moves later.

use std::time::Duration;

/// What a request's number is more than that of the one handed out before it: Linux's
/// `FUSE_REQ_ID_STEP`.
const STEP: u64 = 2;

/// Longest that a request waits for those before it: many times what it takes to fetch one.
pub(crate) const PATIENCE: Duration = Duration::from_millis(2);

/// Waits in vain, one after the other, that show the numbers to mean something else in this kernel.
const IN_VAIN: u32 = 16;

/// A request's place in the order: the number that the kernel gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Turn(pub(crate) u64);

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    last: u64,
    in_vain: u32,
}

impl Turns {
    /// Whether a request has to wait for one that was handed out before it.
    pub(crate) fn is_early(&self, turn: Turn) -> bool {
        self.in_vain < IN_VAIN && self.last < turn.0.saturating_sub(STEP)
    }

    /// A request has waited: in vain if none of those before it came.
    pub(crate) fn waited(&mut self, in_vain: bool) {
        self.in_vain = if in_vain { self.in_vain + 1 } else { 0 };
    }

    /// A request has come to the model.
    pub(crate) fn came(&mut self, turn: Turn) {
        self.last = self.last.max(turn.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_for_the_one_before_it() {
        let mut turns = Turns::default();
        assert!(!turns.is_early(Turn(STEP)), "the first");
        turns.came(Turn(STEP));
        assert!(turns.is_early(Turn(3 * STEP)));
        assert!(!turns.is_early(Turn(2 * STEP)));
        turns.came(Turn(2 * STEP));
        assert!(!turns.is_early(Turn(3 * STEP)));
        assert!(!turns.is_early(Turn(STEP)), "late, but it comes");
    }

    #[test]
    fn numbers_that_mean_something_else_make_nobody_wait_for_long() {
        let mut turns = Turns::default();
        let mut waits = 0;
        for number in (1..1000).map(|n| n * 10 * STEP) {
            if turns.is_early(Turn(number)) {
                waits += 1;
                turns.waited(true);
            }
            turns.came(Turn(number));
        }
        assert_eq!(waits, IN_VAIN);
    }
}
