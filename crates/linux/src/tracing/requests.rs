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
