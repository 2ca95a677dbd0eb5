//! Measures the load of the host.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use trimtab_core::policy::Load;
use trimtab_core::{Bytes, Nanos};

/// Counts the host's reads and writes as they complete.
#[derive(Default)]
pub(super) struct Meter {
    /// Requests that were sent and not counted yet.
    under_way: BinaryHeap<Reverse<Request>>,
    /// How many completed since it was last asked.
    completed: u64,
    /// The sum of their latencies.
    waited: Nanos,
    /// The bytes that they wrote.
    written: Bytes,
    /// When it was last asked, on the policy's clock.
    asked: Nanos,
    /// For how long requests had been under way by then.
    busy: Nanos,
}

/// A request. The one that completes first is the least.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    done: Nanos,
    latency: Nanos,
    written: Bytes,
}

impl Meter {
    /// The host sent a request at `arrival` that writes so many bytes; a read writes none.
    pub(super) fn sent(&mut self, arrival: Nanos, done: Nanos, written: Bytes) {
        self.complete(arrival);
        self.under_way.push(Reverse(Request { done, latency: done.saturating_sub(arrival), written }));
    }

    /// Counts those that are done by `now`.
    fn complete(&mut self, now: Nanos) {
        while let Some(Reverse(request)) = self.under_way.peek()
            && request.done <= now
        {
            self.completed += 1;
            self.waited += request.latency;
            self.written += request.written;
            self.under_way.pop();
        }
    }

    /// Returns the host's load since the last call. It is `now` on the drive's clock, `at` on the policy's, and
    /// requests were under way for `busy` in all.
    pub(super) fn take(&mut self, now: Nanos, at: Nanos, in_flight: u64, busy: Nanos) -> Load {
        self.complete(now);
        let next =
            Self { under_way: std::mem::take(&mut self.under_way), asked: at, busy, ..Self::default() };
        let Self { completed, waited, written, asked, busy: before, .. } = std::mem::replace(self, next);
        Load {
            span: Duration::from_nanos(at.saturating_sub(asked).0),
            in_flight,
            completed,
            latency: Duration::from_nanos(waited.0.checked_div(completed).unwrap_or_default()),
            written,
            busy: Some(Duration::from_nanos(busy.saturating_sub(before).0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_when_they_complete() {
        let mut meter = Meter::default();
        meter.sent(Nanos(0), Nanos(10), Bytes(4096));
        meter.sent(Nanos(2), Nanos(30), Bytes(8192));
        meter.sent(Nanos(5), Nanos(8), Bytes::ZERO);
        let load = meter.take(Nanos(20), Nanos(200), 1, Nanos(20));
        assert_eq!((load.completed, load.written, load.latency.as_nanos()), (2, Bytes(4096), 6));
        assert_eq!((load.span.as_nanos(), load.busy), (200, Some(Duration::from_nanos(20))));
        let load = meter.take(Nanos(40), Nanos(500), 0, Nanos(30));
        assert_eq!((load.completed, load.written, load.latency.as_nanos()), (1, Bytes(8192), 28));
        assert_eq!((load.span.as_nanos(), load.busy), (300, Some(Duration::from_nanos(10))));
        assert_eq!(meter.take(Nanos(50), Nanos(600), 0, Nanos(30)).completed, 0);
    }
}
