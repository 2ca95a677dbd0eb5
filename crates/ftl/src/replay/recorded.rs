//! The discards of a trace, whose time is spent beside the host's requests.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use trimtab_core::{Extent, Nanos};

use crate::discards::Unmapped;

/// Discards of a trace on their way to the drive, in the trace's order.
///
/// A trace doesn't tell whether somebody waited for a discard or a worker of the kernel sent it in the
/// background. So no request of the host follows from one. A discard follows from the discards that were
/// over in the trace when it began, and from the host's requests: on a slow drive those that went one by
/// one still do, later than in the trace. This is of their time alone: what the drive holds changes where
/// a discard stands in the trace, before what is written after it.
#[derive(Default)]
pub(super) struct Recorded {
    waiting: VecDeque<Waiting>,
    /// Discards that are not over in the trace yet: when they are, there and in the model.
    under_way: BinaryHeap<Reverse<(Nanos, Nanos)>>,
    /// When those are done in the model that are over in the trace.
    over: Nanos,
}

/// A discard whose time is not spent yet.
struct Waiting {
    /// When it is over in the trace.
    over: Nanos,
    /// When it began in the trace.
    traced: Nanos,
    /// When it comes to the drive, unless earlier discards hold it up.
    placed: Nanos,
    discarded: Discarded,
}

/// The bytes that a discard named, and its effect.
#[derive(Debug, Clone, Copy)]
pub(super) struct Discarded {
    /// The bytes that it names.
    pub(super) extent: Extent,
    /// Its effect.
    pub(super) unmapped: Unmapped,
}

/// The discard whose turn it is.
pub(super) struct Next {
    /// When it is sent.
    pub(super) arrival: Nanos,
    pub(super) discarded: Discarded,
    /// When it is over in the trace.
    over: Nanos,
}

impl Recorded {
    /// Adds a discard that began at `traced` and took `latency` there, and that comes at `placed` in the
    /// model's time. One whose latency isn't known is taken for over when the next begins.
    pub(super) fn add(&mut self, traced: Nanos, latency: Option<Nanos>, placed: Nanos, discarded: Discarded) {
        let over = traced + latency.unwrap_or_default();
        self.waiting.push_back(Waiting { over, traced, placed, discarded });
    }

    /// The next discard that is sent by `until`, if any is.
    pub(super) fn next(&mut self, until: Nanos) -> Option<Next> {
        let first = self.waiting.front()?;
        while let Some(Reverse((traced, model))) = self.under_way.peek()
            && *traced <= first.traced
        {
            self.over = self.over.max(*model);
            self.under_way.pop();
        }
        let arrival = first.placed.max(self.over);
        if arrival > until {
            return None;
        }
        let Waiting { over, discarded, .. } = self.waiting.pop_front()?;
        Some(Next { arrival, discarded, over })
    }

    /// The drive is done with `next` at `done`.
    pub(super) fn sent(&mut self, next: &Next, done: Nanos) {
        self.under_way.push(Reverse((next.over, done)));
    }
}

#[cfg(test)]
mod tests {
    use trimtab_core::Bytes;

    use super::*;

    /// When discards with these times in the trace come to a drive that takes `takes` for each.
    fn arrivals(discards: &[(u64, Option<u64>)], takes: u64) -> Vec<u64> {
        let mut recorded = Recorded::default();
        for (at, latency) in discards {
            let extent = Extent::at(Bytes(*at * 512), Bytes(512));
            let discarded = Discarded { extent, unmapped: Unmapped::default() };
            recorded.add(Nanos(*at), latency.map(Nanos), Nanos(*at), discarded);
        }
        let mut arrivals = Vec::new();
        while let Some(next) = recorded.next(Nanos(u64::MAX)) {
            recorded.sent(&next, next.arrival + Nanos(takes));
            arrivals.push(next.arrival.0);
        }
        arrivals
    }

    #[test]
    fn discards_go_one_by_one_if_they_did_in_the_trace() {
        let one_by_one = [(0, Some(10)), (10, Some(10)), (25, Some(10))];
        assert_eq!(arrivals(&one_by_one, 100), [0, 100, 200]);
        assert_eq!(arrivals(&one_by_one, 1), [0, 10, 25], "and never before their time");
        let together = [(0, Some(50)), (10, Some(50)), (20, Some(50)), (55, Some(9))];
        assert_eq!(arrivals(&together, 100), [0, 10, 20, 100]);
        assert_eq!(arrivals(&[(0, None), (10, None), (20, None)], 100), [0, 100, 200]);
    }
}
