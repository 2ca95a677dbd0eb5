//! Measures the load of the host.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use trimtab_core::policy::Load;
use trimtab_core::{Bytes, Nanos};

use crate::command::Op;

/// Counts the host's reads, writes and flushes as they complete, as Linux does.
#[derive(Default)]
pub(super) struct Meter {
    /// Requests that were sent and not counted yet.
    under_way: BinaryHeap<Reverse<Request>>,
    /// How many completed since it was last asked.
    completed: u64,
    /// The sum of their latencies.
    waited: Nanos,
    /// The bytes that they wrote and read.
    written: Bytes,
    read: Bytes,
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
    read: Bytes,
}

impl Meter {
    /// The host sent a request at `arrival` that reads or writes this many bytes, or `None` if it does something else.
    pub(super) fn sent(&mut self, arrival: Nanos, done: Nanos, op: Op, bytes: Bytes) {
        let (written, read) = match op {
            Op::Write => (bytes, Bytes::ZERO),
            Op::Read => (Bytes::ZERO, bytes),
            Op::Flush => (Bytes::ZERO, Bytes::ZERO),
            Op::Discard => return,
        };
        self.complete(arrival);
        let latency = done.saturating_sub(arrival);
        self.under_way.push(Reverse(Request { done, latency, written, read }));
    }

    /// Counts those that are done by `now`.
    fn complete(&mut self, now: Nanos) {
        while let Some(Reverse(request)) = self.under_way.peek()
            && request.done <= now
        {
            self.completed += 1;
            self.waited += request.latency;
            self.written += request.written;
            self.read += request.read;
            self.under_way.pop();
        }
    }

    /// Returns the host's load since the last call. It is `now` on the drive's clock, `at` on the policy's, and
    /// requests were under way for `busy` in all.
    pub(super) fn take(&mut self, now: Nanos, at: Nanos, in_flight: u64, busy: Nanos) -> Load {
        self.complete(now);
        let next =
            Self { under_way: std::mem::take(&mut self.under_way), asked: at, busy, ..Self::default() };
        let Self { completed, waited, written, read, asked, busy: before, .. } =
            std::mem::replace(self, next);
        Load {
            span: Duration::from_nanos(at.saturating_sub(asked).0),
            in_flight,
            completed,
            latency: Duration::from_nanos(waited.0.checked_div(completed).unwrap_or_default()),
            written,
            read,
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
        meter.sent(Nanos(0), Nanos(10), Op::Write, Bytes(4096));
        meter.sent(Nanos(2), Nanos(30), Op::Write, Bytes(8192));
        meter.sent(Nanos(5), Nanos(8), Op::Read, Bytes(512));
        meter.sent(Nanos(5), Nanos(7), Op::Flush, Bytes::ZERO);
        meter.sent(Nanos(5), Nanos(9), Op::Discard, Bytes(1 << 20));
        let load = meter.take(Nanos(20), Nanos(200), 1, Nanos(20));
        assert_eq!(
            (load.completed, load.written, load.read, load.latency.as_nanos()),
            (3, Bytes(4096), Bytes(512), 5)
        );
        assert_eq!((load.span.as_nanos(), load.busy), (200, Some(Duration::from_nanos(20))));
        let load = meter.take(Nanos(40), Nanos(500), 0, Nanos(30));
        assert_eq!((load.completed, load.written, load.latency.as_nanos()), (1, Bytes(8192), 28));
        assert_eq!((load.span.as_nanos(), load.busy), (300, Some(Duration::from_nanos(10))));
        assert_eq!(meter.take(Nanos(50), Nanos(600), 0, Nanos(30)).completed, 0);
    }
}
