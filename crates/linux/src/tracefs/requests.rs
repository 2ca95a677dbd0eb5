//! Joins the issue and the completion of each request into one event; events leave in the order of issue.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::ops::Range;

use trimtab_core::Nanos;
use trimtab_core::trace::{DeviceIndex, EventKind, TraceEvent};
use trimtab_core::units::Bytes;

use trimtab_core::hash::FastMap;

/// How long events are held back for an incomplete request: the kernel's default timeout of a drive.
const TIMEOUT: Nanos = Nanos(30_000_000_000);

/// How many events are held back for an incomplete request.
const MOST_ROWS: usize = 1 << 20;

/// Identifies a request in flight. Its end address stays the same when it completes in pieces, or when a
/// driver advances its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub device: DeviceIndex,
    pub kind: EventKind,
    pub end: Bytes,
}

impl Key {
    fn of(event: &TraceEvent) -> Self {
        Self { device: event.device, kind: event.kind, end: event.extent.end }
    }
}

/// The events that are held back.
#[derive(Debug, Default)]
pub(super) struct Requests {
    rows: VecDeque<HeldRow>,
    /// The number of the first row; rows are numbered in order.
    first: u64,
    /// The rows of each request in flight.
    open: FastMap<Key, Range<u64>>,
    /// Requests in flight with the key of an older one, oldest first.
    twins: Vec<(Key, Range<u64>)>,
    /// Requests that the driver returned to the queue, which will be issued again.
    requeued: Vec<(Key, Range<u64>)>,
    /// The time of the last row.
    last: Nanos,
}

#[derive(Debug)]
struct HeldRow {
    event: TraceEvent,
    /// Its request, while that is in flight.
    request: Option<Key>,
}

impl Requests {
    /// Adds an event without duration.
    pub fn add(&mut self, event: TraceEvent) {
        self.push(event, None);
    }

    /// Adds an issued request, with a row for each of its ranges.
    pub fn issue(&mut self, event: TraceEvent, rows: &[TraceEvent]) {
        let key = Key::of(&event);
        let first = self.next();
        rows.iter().for_each(|row| self.push(*row, Some(key)));
        self.open(key, first..self.next());
    }

    /// Returns true if the driver had returned this request to the queue, so that its issue doesn't count
    /// again.
    pub fn is_issued_again(&mut self, event: &TraceEvent) -> bool {
        let key = Key::of(event);
        let requeued = self.take_requeued(key);
        requeued.map(|numbers| self.open(key, numbers)).is_some()
    }

    /// Completes the oldest request in flight with this key, or else a requeued one. There is none, if the
    /// event is about a piece of a request, or a request from before the recording.
    pub fn complete(&mut self, key: Key, at: Nanos, error: u16) {
        if let Some(numbers) = self.close(key).or_else(|| self.take_requeued(key)) {
            for row in self.rows_of(numbers) {
                row.request = None;
                row.event.latency = Some(at.saturating_sub(row.event.at));
                row.event.error = error;
            }
        }
    }

    /// Notes that the driver returned a request to the queue.
    pub fn requeue(&mut self, key: Key) {
        if let Some(numbers) = self.close(key) {
            self.requeued.push((key, numbers));
        }
    }

    /// Stops waiting for all open requests. A request whose end was lost would take the end of the next
    /// request with its key, and so on.
    pub fn give_up(&mut self) {
        let all: Vec<_> =
            self.open.drain().chain(self.twins.drain(..)).chain(self.requeued.drain(..)).collect();
        for (_, numbers) in all {
            self.rows_of(numbers).for_each(|row| row.request = None);
        }
    }

    /// Appends the rows that are complete, or have timed out, at the time `now` to `events`.
    pub fn take(&mut self, now: Nanos, events: &mut Vec<TraceEvent>) {
        while let Some(row) = self.rows.front() {
            let waited = now.saturating_sub(row.event.at) > TIMEOUT || self.rows.len() > MOST_ROWS;
            if row.request.is_some() && !waited {
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
        let number = self.first;
        self.first += 1;
        events.push(row.event);
        if let Some(key) = row.request {
            self.forget(key, number);
        }
    }

    fn push(&mut self, mut event: TraceEvent, request: Option<Key>) {
        self.last = self.last.max(event.at);
        event.at = self.last;
        self.rows.push_back(HeldRow { event, request });
    }

    /// Returns the number of the next row.
    fn next(&self) -> u64 {
        self.first + self.rows.len() as u64
    }

    /// Returns the rows with these numbers that are still held back.
    fn rows_of(&mut self, numbers: Range<u64>) -> impl Iterator<Item = &mut HeldRow> {
        let place = |number: u64| number.saturating_sub(self.first) as usize;
        self.rows.range_mut(place(numbers.start)..place(numbers.end))
    }

    fn open(&mut self, key: Key, numbers: Range<u64>) {
        match self.open.entry(key) {
            Entry::Occupied(_) => self.twins.push((key, numbers)),
            Entry::Vacant(place) => _ = place.insert(numbers),
        }
    }

    fn close(&mut self, key: Key) -> Option<Range<u64>> {
        let numbers = self.open.remove(&key)?;
        if let Some(place) = self.twins.iter().position(|(twin, _)| *twin == key) {
            let (key, next) = self.twins.remove(place);
            self.open.insert(key, next);
        }
        Some(numbers)
    }

    fn take_requeued(&mut self, key: Key) -> Option<Range<u64>> {
        let place = self.requeued.iter().position(|(requeued, _)| *requeued == key)?;
        Some(self.requeued.remove(place).1)
    }

    /// Stops waiting for the request whose last row has this number, if there is one; it is the oldest with
    /// its key.
    fn forget(&mut self, key: Key, last: u64) {
        let is_it = |numbers: &Range<u64>| numbers.end == last + 1;
        if self.open.get(&key).is_some_and(is_it) {
            self.close(key);
        } else {
            self.twins.retain(|(_, twin)| !is_it(twin));
            self.requeued.retain(|(_, requeued)| !is_it(requeued));
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
            kind: EventKind::Write,
            extent: Extent::at(Bytes(start), Bytes(length)),
            latency: None,
            process: Comm::default(),
            error: 0,
            fs: None,
        }
    }

    fn issue(requests: &mut Requests, event: TraceEvent) {
        requests.issue(event, &[event]);
    }

    fn key(end: u64) -> Key {
        Key { device: DeviceIndex(0), kind: EventKind::Write, end: Bytes(end) }
    }

    fn rows(requests: &mut Requests, now: u64) -> Vec<(u64, Option<u64>, u16)> {
        let mut events = Vec::new();
        requests.take(Nanos(now), &mut events);
        events.iter().map(|row| (row.at.0, row.latency.map(|latency| latency.0), row.error)).collect()
    }

    #[test]
    fn rows_wait_for_older_requests() {
        let mut requests = Requests::default();
        issue(&mut requests, request(1, 0, 8));
        issue(&mut requests, request(2, 8, 8));
        requests.complete(key(16), Nanos(5), 0);
        assert_eq!(rows(&mut requests, 10), []);
        requests.complete(key(8), Nanos(9), 5);
        assert_eq!(rows(&mut requests, 10), [(1, Some(8), 5), (2, Some(3), 0)]);
    }

    #[test]
    fn pieces_and_unknown_requests_complete_nothing() {
        let mut requests = Requests::default();
        issue(&mut requests, request(1, 0, 8));
        requests.complete(key(4), Nanos(2), 0);
        requests.complete(key(99), Nanos(3), 0);
        assert_eq!(rows(&mut requests, 3), []);
        requests.complete(key(8), Nanos(4), 0);
        assert_eq!(rows(&mut requests, 4), [(1, Some(3), 0)]);
    }

    #[test]
    fn requests_of_one_address_complete_in_their_order() {
        let mut requests = Requests::default();
        (1..=3).for_each(|at| issue(&mut requests, request(at, 0, 8)));
        (11..=13).for_each(|at| requests.complete(key(8), Nanos(at), 0));
        assert_eq!(rows(&mut requests, 20), [(1, Some(10), 0), (2, Some(10), 0), (3, Some(10), 0)]);
        assert!(requests.open.is_empty() && requests.twins.is_empty());
    }

    #[test]
    fn requeued_request_counts_once() {
        let mut requests = Requests::default();
        issue(&mut requests, request(1, 0, 8));
        assert!(!requests.is_issued_again(&request(2, 0, 8)));
        requests.requeue(key(8));
        assert!(requests.is_issued_again(&request(5, 0, 8)));
        requests.complete(key(8), Nanos(9), 0);
        assert_eq!(rows(&mut requests, 9), [(1, Some(8), 0)]);
    }

    #[test]
    fn requeued_request_may_end_without_another_issue() {
        let mut requests = Requests::default();
        issue(&mut requests, request(1, 0, 8));
        requests.requeue(key(8));
        requests.complete(key(8), Nanos(4), 5);
        assert!(!requests.is_issued_again(&request(5, 0, 8)));
        issue(&mut requests, request(6, 0, 8));
        requests.requeue(key(8));
        requests.give_up();
        assert!(!requests.is_issued_again(&request(7, 0, 8)));
        assert_eq!(rows(&mut requests, 8), [(1, Some(3), 5), (6, None, 0)]);
    }

    #[test]
    fn ranges_are_rows_that_complete_together() {
        let mut requests = Requests::default();
        let ranges =
            [(0, 2), (90, 5), (50, 1)].map(|(start, length)| Extent::at(Bytes(start), Bytes(length)));
        let pieces = |event: TraceEvent| ranges.map(|extent| TraceEvent { extent, ..event });
        requests.issue(request(1, 0, 8), &pieces(request(1, 0, 8)));
        issue(&mut requests, request(2, 8, 8));
        requests.complete(key(16), Nanos(3), 0);
        requests.requeue(key(8));
        assert!(requests.is_issued_again(&request(4, 0, 8)));
        assert_eq!(rows(&mut requests, 5), []);
        requests.complete(key(8), Nanos(6), 5);
        let mut events = Vec::new();
        requests.take(Nanos(7), &mut events);
        assert_eq!(events[..3].iter().map(|row| row.extent).collect::<Vec<_>>(), ranges);
        assert!(
            events[..3].iter().all(|row| (row.at, row.latency, row.error) == (Nanos(1), Some(Nanos(5)), 5))
        );
        assert_eq!(events[3].latency, Some(Nanos(1)));
        // The first of them may have left when it completes.
        requests.issue(request(10, 0, 8), &pieces(request(10, 0, 8)));
        (2..MOST_ROWS as u64).for_each(|_| requests.add(request(11, 64, 8)));
        assert_eq!(rows(&mut requests, 12), [(10, None, 0)]);
        requests.complete(key(8), Nanos(15), 0);
        assert_eq!(rows(&mut requests, 20)[..2], [(10, Some(5), 0); 2]);
        assert!(requests.open.is_empty());
    }

    #[test]
    fn lost_end_is_not_taken_from_the_next_request() {
        let mut requests = Requests::default();
        (1..=2).for_each(|at| issue(&mut requests, request(at, 0, 8)));
        requests.give_up();
        issue(&mut requests, request(100, 0, 8));
        requests.complete(key(8), Nanos(103), 0);
        assert_eq!(rows(&mut requests, 104), [(1, None, 0), (2, None, 0), (100, Some(3), 0)]);
    }

    #[test]
    fn request_that_never_completes_is_given_up() {
        let mut requests = Requests::default();
        issue(&mut requests, request(1, 0, 8));
        issue(&mut requests, request(1, 0, 8));
        issue(&mut requests, request(2, 8, 8));
        requests.complete(key(16), Nanos(3), 0);
        assert_eq!(rows(&mut requests, TIMEOUT.0), []);
        assert_eq!(rows(&mut requests, TIMEOUT.0 + 2), [(1, None, 0), (1, None, 0), (2, Some(1), 0)]);
        assert!(requests.open.is_empty() && requests.twins.is_empty());
        issue(&mut requests, request(3, 0, 8));
        (0..MOST_ROWS as u64).for_each(|_| requests.add(request(4, 64, 8)));
        assert_eq!(rows(&mut requests, 5)[0], (3, None, 0));
        assert_eq!(requests.rows.len(), 0);
    }
}
