//! From the steps that blktrace records of a request to one event a request.

use std::collections::{HashMap, HashSet, VecDeque};

use trimtab_core::trace::{Comm, DeviceIndex, EventKind};
use trimtab_core::units::Nanos;

use crate::error::RowError;
use crate::rows::{Row, Rows};

/// Requests under way at once, at most: older ones count as never completed.
const MOST: usize = 1 << 16;
/// The name under which a bio on its way to a request is counted.
const QUEUED: &str = "queued bios";

/// A step of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Q: a bio was handed to the block layer.
    Queue,
    /// M, F: it became part of a request that was there before.
    Merge,
    /// D: the request went to the driver.
    Issue,
    /// R: the driver gave it back, to be issued again.
    Requeue,
    /// C: the request is done, or the bio if the driver handles bios.
    Complete,
}

/// A step and its request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) action: Action,
    /// Nanoseconds on the trace's clock.
    pub(super) time: u64,
    pub(super) device: DeviceIndex,
    pub(super) kind: EventKind,
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) process: Comm,
    pub(super) error: u16,
}

/// Pairs issues with completions. If a driver handles bios, and nothing is issued, a bio's queueing counts as
/// its issue.
///
/// Events come out in the order of their issues, so each waits for the requests before it.
#[derive(Default)]
pub(super) struct Requests {
    under_way: VecDeque<Option<Request>>,
    /// The number of the first of them; numbers go up by one.
    first: u64,
    /// The latest request at a place: the device, the first byte, the kind.
    places: HashMap<(DeviceIndex, u64, EventKind), u64>,
    /// Devices with issues: a bio that is only queued there was merged, split, or never issued.
    issuing: HashSet<DeviceIndex>,
}

struct Request {
    row: Row,
    issued: bool,
    done: bool,
}

impl Requests {
    pub(super) fn step(&mut self, step: &Step, rows: &mut Rows) -> Result<(), RowError> {
        let place = (step.device, step.start, step.kind);
        match step.action {
            Action::Queue => {
                self.start(step, step.process, false);
            }
            Action::Merge => {
                self.take_queued(place, rows);
                rows.skip("merges");
            }
            Action::Issue => {
                self.issuing.insert(step.device);
                let queued = self.take_queued(place, rows);
                self.start(step, queued.map_or(step.process, |row| row.process), true);
            }
            Action::Requeue => {
                rows.skip("requeues");
                if let Some(number) = self.places.get(&place).copied()
                    && let Some(request) = self.get(number)
                {
                    request.issued = false;
                }
            }
            Action::Complete => {
                rows.skip("completions");
                if let Some(number) = self.places.remove(&place)
                    && let Some(request) = self.get(number)
                {
                    request.row.latency = Some(Nanos(step.time.saturating_sub(request.row.time)));
                    request.row.error = step.error;
                    request.done = true;
                }
            }
        }
        self.hand_over(rows, MOST)
    }

    /// Takes the end of the trace.
    pub(super) fn end(&mut self, rows: &mut Rows) -> Result<(), RowError> {
        self.hand_over(rows, 0)
    }

    fn get(&mut self, number: u64) -> Option<&mut Request> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.under_way.get_mut(place)?.as_mut()
    }

    fn start(&mut self, step: &Step, process: Comm, issued: bool) {
        let row = Row {
            time: step.time,
            device: step.device,
            kind: step.kind,
            start: step.start,
            length: step.length,
            latency: None,
            process,
            error: 0,
        };
        let number = self.first + self.under_way.len() as u64;
        self.under_way.push_back(Some(Request { row, issued, done: false }));
        self.places.insert((step.device, step.start, step.kind), number);
    }

    /// Takes out the bio that was queued at a place and not issued yet.
    fn take_queued(&mut self, place: (DeviceIndex, u64, EventKind), rows: &mut Rows) -> Option<Row> {
        let number = *self.places.get(&place)?;
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let slot = self.under_way.get_mut(index)?;
        let queued = slot.take_if(|request| !request.issued)?;
        self.places.remove(&place);
        rows.skip(QUEUED);
        Some(queued.row)
    }

    /// Hands over the oldest requests that are done, and as many more as there are above `most`.
    fn hand_over(&mut self, rows: &mut Rows, most: usize) -> Result<(), RowError> {
        while let Some(oldest) = self.under_way.front() {
            let ready = oldest.as_ref().is_none_or(|request| request.done);
            if !ready && self.under_way.len() <= most {
                break;
            }
            let number = self.first;
            self.first += 1;
            let Some(Some(request)) = self.under_way.pop_front() else { continue };
            let row = request.row;
            let place = (row.device, row.start, row.kind);
            if self.places.get(&place) == Some(&number) {
                self.places.remove(&place);
            }
            if request.issued || !self.issuing.contains(&row.device) {
                rows.push(row)?;
            } else {
                rows.skip(QUEUED);
            }
        }
        Ok(())
    }
}
