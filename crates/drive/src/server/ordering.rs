//! Submits requests to the model in the order in which the kernel hands them out.
//!
//! Several threads fetch requests. One that fetches much data may reach the model after a later one
//! that fetches little. The drive would then behave differently each time, since garbage collection
//! later moves the pages that share an erase block.

use std::time::Duration;

/// The difference between the numbers of two successive requests: Linux's `FUSE_REQ_ID_STEP`.
const STEP: u64 = 2;

/// The longest time that a request waits for those before it: many times the time to fetch one.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(2);

/// After this many timeouts in a row, request numbers are taken not to be ordered in this kernel, and
/// requests no longer wait.
const MOST_TIMEOUTS: u32 = 16;

/// The number that the kernel gave a request; later requests have larger ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RequestNumber(pub(crate) u64);

/// The requests that have reached the model.
#[derive(Debug, Default)]
pub(crate) struct RequestOrder {
    last: u64,
    timeouts_in_a_row: u32,
}

impl RequestOrder {
    /// Whether a request has to wait for one that was handed out before it.
    pub(crate) fn is_early(&self, number: RequestNumber) -> bool {
        self.timeouts_in_a_row < MOST_TIMEOUTS && self.last < number.0.saturating_sub(STEP)
    }

    /// Notes that a request has waited, and whether its wait timed out.
    pub(crate) fn waited(&mut self, timeouts_in_a_row: bool) {
        self.timeouts_in_a_row = if timeouts_in_a_row { self.timeouts_in_a_row + 1 } else { 0 };
    }

    /// A request has come to the model.
    pub(crate) fn came(&mut self, number: RequestNumber) {
        self.last = self.last.max(number.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_for_the_one_before_it() {
        let mut ordering = RequestOrder::default();
        assert!(!ordering.is_early(RequestNumber(STEP)), "the first");
        ordering.came(RequestNumber(STEP));
        assert!(ordering.is_early(RequestNumber(3 * STEP)));
        assert!(!ordering.is_early(RequestNumber(2 * STEP)));
        ordering.came(RequestNumber(2 * STEP));
        assert!(!ordering.is_early(RequestNumber(3 * STEP)));
        assert!(!ordering.is_early(RequestNumber(STEP)), "late, but it comes");
    }

    #[test]
    fn unordered_request_numbers_delay_nobody_for_long() {
        let mut ordering = RequestOrder::default();
        let mut waits = 0;
        for number in (1..1000).map(|n| n * 10 * STEP) {
            if ordering.is_early(RequestNumber(number)) {
                waits += 1;
                ordering.waited(true);
            }
            ordering.came(RequestNumber(number));
        }
        assert_eq!(waits, MOST_TIMEOUTS);
    }
}
