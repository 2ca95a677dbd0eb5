//! Requests: each one's issue and completion become one row, and rows leave in the order of issue.

use std::collections::VecDeque;

use trimtab_core::Nanos;
use trimtab_core::trace::{DeviceIndex, Kind, TraceEvent};
use trimtab_core::units::Bytes;

use super::hash::FastMap;

/// How long rows are held back for one that isn't complete; the kernel gives a drive as long by
/// default.
const PATIENCE: Nanos = Nanos(30_000_000_000);

/// How many rows are held back for one that isn't complete.
const MOST: usize = 1 << 20;

/// A request that was issued and not completed. Its end stays the same when it completes in pieces,
/// or when a driver has moved its start along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub device: DeviceIndex,
    pub kind: Kind,
    pub end: Bytes,
}

impl Key {
    fn of(event: &TraceEvent) -> Self {
        Self { device: event.device, kind: event.kind, end: event.extent.end }
    }
}

/// The rows that are not handed out yet.
#[derive(Debug, Default)]
pub(super) struct Requests {
    rows: VecDeque<Row>,
    /// The number of the first of them; rows are numbered in their order.
    first: u64,
    /// The row of each request in flight.
    open: FastMap<Key, u64>,
    /// Requests in flight with the key of an older one, oldest first.
    twins: Vec<(Key, u64)>,
    /// Requests that the driver gave back, which will be issued again.
    requeued: Vec<(Key, u64)>,
    /// The time of the last row.
    last: Nanos,
}

#[derive(Debug)]
struct Row {
    event: TraceEvent,
    in_flight: bool,
}

impl Requests {
    /// Adds what takes no time.
    pub fn add(&mut self, event: TraceEvent) {
        self.push(event, false);
    }

    /// Adds a request that was issued; one that is issued again after the driver gave it back counts
    /// once.
    pub fn issue(&mut self, event: TraceEvent) {
        let key = Key::of(&event);
        let number = match self.requeued.iter().position(|(requeued, _)| *requeued == key) {
            Some(place) => self.requeued.remove(place).1,
            None => self.push(event, true),
        };
        if let Some(older) = self.open.insert(key, number) {
            self.open.insert(key, older);
            self.twins.push((key, number));
        }
    }

    /// Completes the oldest request in flight with this key; there is none for the pieces of one, and
    /// for those issued before the recording began.
    pub fn complete(&mut self, key: Key, at: Nanos, error: u16) {
        if let Some(number) = self.close(key)
            && let Some(row) = self.row(number)
        {
            row.in_flight = false;
            row.event.latency = Some(at.saturating_sub(row.event.at));
            row.event.error = error;
        }
    }

    /// The driver gave a request back.
    pub fn requeue(&mut self, key: Key) {
        if let Some(number) = self.close(key) {
            self.requeued.push((key, number));
        }
    }

    /// Waits no more for the requests in flight. Where the end of one was lost, it would take that of the
    /// next request with its key, and so on.
    pub fn give_up(&mut self) {
        let open = self.open.drain().map(|(_, number)| number);
        let numbers: Vec<_> = open.chain(self.twins.drain(..).map(|(_, number)| number)).collect();
        for number in numbers {
            if let Some(row) = self.row(number) {
                row.in_flight = false;
            }
        }
    }

    /// Appends the rows of which all is known at the time `now` to `events`.
    pub fn take(&mut self, now: Nanos, events: &mut Vec<TraceEvent>) {
        while let Some(row) = self.rows.front() {
            let waited = now.saturating_sub(row.event.at) > PATIENCE || self.rows.len() > MOST;
            if row.in_flight && !waited {
                break;
            }
            self.take_first(events);
        }
    }

    /// Appends all rows to `events`, complete or not.
    pub fn take_all(&mut self, events: &mut Vec<TraceEvent>) {
        while !self.rows.is_empty() {
            self.take_first(events);
        }
    }

    fn take_first(&mut self, events: &mut Vec<TraceEvent>) {
        let Some(row) = self.rows.pop_front() else { return };
        if row.in_flight {
            self.forget(Key::of(&row.event), self.first);
        }
        self.first += 1;
        events.push(row.event);
    }

    fn push(&mut self, mut event: TraceEvent, in_flight: bool) -> u64 {
        self.last = self.last.max(event.at);
        event.at = self.last;
        self.rows.push_back(Row { event, in_flight });
        self.first + self.rows.len() as u64 - 1
    }

    fn row(&mut self, number: u64) -> Option<&mut Row> {
        self.rows.get_mut(number.checked_sub(self.first)? as usize)
    }

    fn close(&mut self, key: Key) -> Option<u64> {
        let number = self.open.remove(&key)?;
        if let Some(place) = self.twins.iter().position(|(twin, _)| *twin == key) {
            let (key, next) = self.twins.remove(place);
            self.open.insert(key, next);
        }
        Some(number)
    }

    /// Gives up waiting for a request, which is the oldest with its key.
    fn forget(&mut self, key: Key, number: u64) {
        if self.open.get(&key) == Some(&number) {
            self.close(key);
        } else {
            self.twins.retain(|(_, twin)| *twin != number);
            self.requeued.retain(|(_, requeued)| *requeued != number);
        }
    }
}

#[cfg(test)]
mod tests {
    use trimtab_core::Extent;
    use trimtab_core::trace::Comm;

    use super::*;

    fn request(at: u64, start: u64, length: u64) -> TraceEvent {
        TraceEvent {
            at: Nanos(at),
            device: DeviceIndex(0),
            kind: Kind::Write,
            extent: Extent::at(Bytes(start), Bytes(length)),
            latency: None,
            process: Comm::default(),
            error: 0,
            fs: None,
        }
    }

    fn key(end: u64) -> Key {
        Key { device: DeviceIndex(0), kind: Kind::Write, end: Bytes(end) }
    }

    fn rows(requests: &mut Requests, now: u64) -> Vec<(u64, Option<u64>, u16)> {
        let mut events = Vec::new();
        requests.take(Nanos(now), &mut events);
        events.iter().map(|row| (row.at.0, row.latency.map(|latency| latency.0), row.error)).collect()
    }

    #[test]
    fn rows_wait_for_older_requests() {
        let mut requests = Requests::default();
        requests.issue(request(1, 0, 8));
        requests.issue(request(2, 8, 8));
        requests.complete(key(16), Nanos(5), 0);
        assert_eq!(rows(&mut requests, 10), []);
        requests.complete(key(8), Nanos(9), 5);
        assert_eq!(rows(&mut requests, 10), [(1, Some(8), 5), (2, Some(3), 0)]);
    }

    #[test]
    fn pieces_and_strangers_complete_nothing() {
        let mut requests = Requests::default();
        requests.issue(request(1, 0, 8));
        requests.complete(key(4), Nanos(2), 0);
        requests.complete(key(99), Nanos(3), 0);
        assert_eq!(rows(&mut requests, 3), []);
        requests.complete(key(8), Nanos(4), 0);
        assert_eq!(rows(&mut requests, 4), [(1, Some(3), 0)]);
    }

    #[test]
    fn twins_complete_in_their_order() {
        let mut requests = Requests::default();
        (1..=3).for_each(|at| requests.issue(request(at, 0, 8)));
        (11..=13).for_each(|at| requests.complete(key(8), Nanos(at), 0));
        assert_eq!(rows(&mut requests, 20), [(1, Some(10), 0), (2, Some(10), 0), (3, Some(10), 0)]);
        assert!(requests.open.is_empty() && requests.twins.is_empty());
    }

    #[test]
    fn a_request_that_is_issued_again_counts_once() {
        let mut requests = Requests::default();
        requests.issue(request(1, 0, 8));
        requests.requeue(key(8));
        requests.issue(request(5, 0, 8));
        requests.complete(key(8), Nanos(9), 0);
        assert_eq!(rows(&mut requests, 9), [(1, Some(8), 0)]);
    }

    #[test]
    fn a_lost_end_is_not_made_up_from_the_next_request() {
        let mut requests = Requests::default();
        (1..=2).for_each(|at| requests.issue(request(at, 0, 8)));
        requests.give_up();
        requests.issue(request(100, 0, 8));
        requests.complete(key(8), Nanos(103), 0);
        assert_eq!(rows(&mut requests, 104), [(1, None, 0), (2, None, 0), (100, Some(3), 0)]);
    }

    #[test]
    fn one_that_never_completes_is_given_up() {
        let mut requests = Requests::default();
        requests.issue(request(1, 0, 8));
        requests.issue(request(1, 0, 8));
        requests.issue(request(2, 8, 8));
        requests.complete(key(16), Nanos(3), 0);
        assert_eq!(rows(&mut requests, PATIENCE.0), []);
        assert_eq!(rows(&mut requests, PATIENCE.0 + 2), [(1, None, 0), (1, None, 0), (2, Some(1), 0)]);
        assert!(requests.open.is_empty() && requests.twins.is_empty());
        requests.issue(request(3, 0, 8));
        (0..MOST as u64).for_each(|_| requests.add(request(4, 64, 8)));
        assert_eq!(rows(&mut requests, 5)[0], (3, None, 0));
        assert_eq!(requests.rows.len(), 0);
    }
}
