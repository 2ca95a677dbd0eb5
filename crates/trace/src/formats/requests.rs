//! From the steps that blktrace and ftrace record of a request to one event a request; one for each range of a discard
//! that has several.

use std::collections::VecDeque;

use trimtab_core::extent::Extent;
use trimtab_core::hash::FastMap;
use trimtab_core::trace::{Comm, DeviceIndex, EventKind, Range, Ranges};
use trimtab_core::units::{Bytes, Nanos};

use super::in_flight::{InFlight, Numbers, Place};
use super::partitions::{Number, Remap, Remaps};
use crate::error::RowError;
use crate::rows::{Row, Rows};

/// Rows that are held back for requests under way, at most: older ones count as never completed.
const MOST: usize = 1 << 16;
/// A request that was issued longer ago counts as never completed if another one takes its place: the kernel's default
/// timeout of a drive, in nanoseconds.
const TIMEOUT: u64 = 30_000_000_000;
/// The name under which a bio on its way to a request is counted.
const QUEUED: &str = "queued bios";
/// The name under which a completion without a new request is counted.
const COMPLETIONS: &str = "completions";

/// A step of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Q: a bio was handed to the block layer.
    Queue,
    /// X: the first part of a bio that was too long, which was split off.
    Split,
    /// M, F: a bio or request became part of a request that was there before.
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
pub(crate) struct Step {
    pub(super) action: Action,
    /// Nanoseconds on the trace's clock.
    pub(super) time: u64,
    pub(super) device: DeviceIndex,
    pub(super) kind: EventKind,
    pub(super) start: u64,
    pub(super) length: u64,
    /// The task that took the step.
    pub(super) pid: u32,
    pub(super) process: Comm,
    pub(super) error: u16,
}

impl Step {
    fn begin(&self) -> Place {
        Place::new(self.device, self.kind, self.start)
    }

    /// A request's end stays where it is when a driver completes it in pieces, or advances its start.
    fn end(&self) -> Place {
        Place::new(self.device, self.kind, self.start.wrapping_add(self.length))
    }

    fn extent(&self) -> Extent {
        Extent { start: Bytes(self.start), end: Bytes(self.start.saturating_add(self.length)) }
    }
}

/// Pairs issues with completions. If nothing is issued on a device, because its driver handles bios or because the trace
/// lacks issues, its bios are the events; if nothing is queued either, its completions are.
///
/// Events come out in the order of their issues, so each waits for the requests before it.
#[derive(Default)]
pub(crate) struct Requests {
    held: VecDeque<Option<Held>>,
    /// The number of the first row that is held back; numbers go up by one.
    first: u64,
    /// The latest bio that begins, and that ends, at a place, and was not issued yet.
    begins: FastMap<Place, u64>,
    ends: FastMap<Place, u64>,
    /// The requests that were issued, by their ends.
    issued: InFlight,
    /// Requests that the driver gave back since.
    requeued: InFlight,
    ranges: Ranges,
    remaps: Remaps,
    /// The layers that were seen of each device.
    layers: Vec<Layers>,
    /// Discards whose ranges are not known.
    unknown_ranges: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Layers {
    queues: bool,
    issues: bool,
}

struct Held {
    row: Row,
    /// Where the request ends that it is, or that it is a range of.
    end: Place,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A bio was queued.
    Queued,
    /// A bio was queued, and is done.
    QueuedAndDone,
    /// The request was issued.
    Issued,
    /// The request is done.
    Done,
    /// Only the completion is known.
    OnlyCompleted,
}

impl Requests {
    pub(super) fn step(&mut self, step: &Step, rows: &mut Rows) -> Result<(), RowError> {
        let index = usize::from(step.device.0);
        if self.layers.len() <= index {
            self.layers.resize(index + 1, Layers::default());
        }
        match step.action {
            Action::Queue => {
                self.layers[index].queues = true;
                if step.kind != EventKind::Flush {
                    self.remaps.queued(step.start, step.device, rows)?;
                }
                if step.kind == EventKind::Discard {
                    let range = Range { pid: step.pid, process: step.process, extent: step.extent() };
                    self.ranges.queue(step.device, range);
                }
                self.queue(step);
            }
            Action::Split => {
                rows.skip("splits");
                self.ranges.split(step.device, step.extent());
            }
            Action::Merge => {
                rows.skip("merges");
                self.merge(step, rows);
            }
            Action::Issue => {
                self.layers[index].issues = true;
                self.issue(step, rows);
            }
            Action::Requeue => {
                rows.skip("requeues");
                if let Some(numbers) = self.issued.take(step.end()) {
                    self.requeued.add(step.end(), numbers);
                }
            }
            Action::Complete => self.complete(step, rows),
        }
        self.hand_over(rows, MOST)
    }

    /// Takes a remap in a line of the device `on`.
    pub(super) fn remap(&mut self, remap: Remap, on: Number) {
        self.remaps.take(remap, on);
    }

    /// Takes the end of the trace.
    pub(super) fn end(&mut self, rows: &mut Rows) -> Result<(), RowError> {
        let handed_over = self.hand_over(rows, 0);
        if self.unknown_ranges > 0 {
            rows.gap(format!(
                "the ranges of {} discards are not known, as it has not all their queue events: if the device takes \
                 several ranges in one discard, as NVMe drives do, each is one extent with the start of the first and \
                 the length of all",
                std::mem::take(&mut self.unknown_ranges)
            ));
        }
        handed_over
    }

    /// Stops waiting for what is under way, after events were lost: it would take the ends of other requests.
    pub(super) fn give_up(&mut self) {
        self.issued.clear();
        self.requeued.clear();
        self.begins.clear();
        self.ends.clear();
        self.ranges.clear();
    }

    fn queue(&mut self, step: &Step) {
        let number = self.next();
        self.hold(step, step.extent(), State::Queued);
        self.begins.insert(step.begin(), number);
        self.ends.insert(step.end(), number);
    }

    /// Adds a bio or request to the one before or behind it. If that is not known, it stays what it is: its bytes count
    /// once either way.
    fn merge(&mut self, step: &Step, rows: &mut Rows) {
        if step.kind == EventKind::Discard {
            self.ranges.merge(step.device, step.extent());
        }
        let Some(bio) = self.begins.get(&step.begin()).copied() else { return };
        let Some((start, end)) = self.held(bio).map(|held| {
            let row = held.row;
            (row.start, row.start.wrapping_add(row.length))
        }) else {
            return;
        };
        let (device, kind) = (step.device, step.kind);
        let (front, back) = (Place::new(device, kind, start), Place::new(device, kind, end));
        if let Some(before) = self.ends.get(&front).copied().filter(|before| *before != bio) {
            self.take_queued(bio, rows);
            self.ends.remove(&front);
            if let Some(held) = self.held(before) {
                held.row.length += end - start;
                held.end = back;
                self.ends.insert(back, before);
            }
        } else if let Some(behind) = self.begins.get(&back).copied().filter(|behind| *behind != bio) {
            self.take_queued(bio, rows);
            self.begins.remove(&back);
            if let Some(held) = self.held(behind) {
                held.row.start = start;
                held.row.length += end - start;
                self.begins.insert(front, behind);
            }
        }
    }

    fn issue(&mut self, step: &Step, rows: &mut Rows) {
        if let Some(numbers) = self.requeued.take(step.end()) {
            for number in numbers.all() {
                if let Some(held) = self.held(number) {
                    held.row.time = step.time;
                }
            }
            self.issued.add(step.end(), numbers);
            return rows.skip("repeated issues");
        }
        if let Some(old) = self.issued.oldest(step.end())
            && self.held(old.first).is_none_or(|held| step.time.saturating_sub(held.row.time) > TIMEOUT)
        {
            self.issued.take(step.end());
        }
        let queued = self.begins.get(&step.begin()).copied();
        let process =
            queued.and_then(|bio| self.take_queued(bio, rows)).map_or(step.process, |row| row.process);
        let step = &Step { process, ..*step };
        let number = self.next();
        if step.kind == EventKind::Discard {
            let ranges = self.ranges.take(step.device, step.extent());
            self.unknown_ranges += u64::from(ranges.is_none());
            let whole = || vec![Range { pid: step.pid, process: step.process, extent: step.extent() }];
            let ranges = ranges.unwrap_or_else(whole);
            for Range { process, extent, .. } in ranges.iter().copied() {
                let place = Place::new(step.device, step.kind, extent.start.0);
                if let Some(bio) = self.begins.get(&place).copied() {
                    self.take_queued(bio, rows);
                }
                self.hold(&Step { process, ..*step }, extent, State::Issued);
            }
            rows.counts.more_events += ranges.len() as u64 - 1;
        } else {
            self.hold(step, step.extent(), State::Issued);
        }
        self.issued.add(step.end(), Numbers { first: number, past: self.next() });
    }

    fn complete(&mut self, step: &Step, rows: &mut Rows) {
        let Layers { queues, issues } = self.layers[usize::from(step.device.0)];
        if let Some(numbers) = self.issued.take(step.end()).or_else(|| self.requeued.take(step.end())) {
            numbers.all().for_each(|number| self.done(number, step, State::Done));
        } else if queues && !issues {
            self.complete_bios(step);
        } else if !issues {
            // Not the start of the request, which came before; its end is the best that is known.
            return self.hold(step, step.extent(), State::OnlyCompleted);
        }
        rows.skip(COMPLETIONS);
    }

    /// Completes the bios that a request is made of, on a device without known issues.
    fn complete_bios(&mut self, step: &Step) {
        if step.kind == EventKind::Discard
            && let Some(ranges) = self.ranges.take(step.device, step.extent())
        {
            for range in ranges {
                let place = Place::new(step.device, step.kind, range.extent.start.0);
                if let Some(bio) = self.begins.get(&place).copied() {
                    self.done(bio, step, State::QueuedAndDone);
                }
            }
            return;
        }
        let mut end = step.start.wrapping_add(step.length);
        while let Some(bio) = self.ends.get(&Place::new(step.device, step.kind, end)).copied() {
            let Some(start) = self.held(bio).map(|held| held.row.start).filter(|start| *start >= step.start)
            else {
                break;
            };
            self.done(bio, step, State::QueuedAndDone);
            if start == end || start == step.start {
                break;
            }
            end = start;
        }
    }

    fn done(&mut self, number: u64, step: &Step, state: State) {
        let Some(held) = self.held(number) else { return };
        held.row.latency = Some(Nanos(step.time.saturating_sub(held.row.time)));
        held.row.error = step.error;
        held.state = state;
        if state == State::QueuedAndDone {
            let row = held.row;
            self.forget_queued(number, &row);
        }
    }

    /// The number of the next row.
    fn next(&self) -> u64 {
        self.first + self.held.len() as u64
    }

    fn held(&mut self, number: u64) -> Option<&mut Held> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.held.get_mut(place)?.as_mut()
    }

    fn hold(&mut self, step: &Step, extent: Extent, state: State) {
        let row = Row {
            time: step.time,
            device: step.device,
            kind: step.kind,
            start: extent.start.0,
            length: extent.len().0,
            latency: None,
            process: step.process,
            error: step.error,
        };
        self.held.push_back(Some(Held { row, end: step.end(), state }));
    }

    /// Takes out a bio that was queued and not issued yet.
    fn take_queued(&mut self, number: u64, rows: &mut Rows) -> Option<Row> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let queued = self.held.get_mut(place)?.take()?;
        self.forget_queued(number, &queued.row);
        rows.skip(QUEUED);
        Some(queued.row)
    }

    fn forget_queued(&mut self, number: u64, row: &Row) {
        let end = row.start.wrapping_add(row.length);
        for (map, at) in [(&mut self.begins, row.start), (&mut self.ends, end)] {
            let place = Place::new(row.device, row.kind, at);
            if map.get(&place) == Some(&number) {
                map.remove(&place);
            }
        }
    }

    /// Hands over the oldest rows that are complete, and as many more as there are above `most`.
    fn hand_over(&mut self, rows: &mut Rows, most: usize) -> Result<(), RowError> {
        while let Some(oldest) = self.held.front() {
            let ready = oldest.as_ref().is_none_or(|held| match held.state {
                State::Done | State::QueuedAndDone => true,
                State::Queued | State::Issued => false,
                State::OnlyCompleted => self.is_known_otherwise(held.row.device),
            });
            if !ready && self.held.len() <= most {
                break;
            }
            let number = self.first;
            self.first += 1;
            let Some(Some(held)) = self.held.pop_front() else { continue };
            let row = held.row;
            let layers = self.layers[usize::from(row.device.0)];
            match held.state {
                State::Queued | State::QueuedAndDone => {
                    self.forget_queued(number, &row);
                    if layers.issues {
                        rows.skip(QUEUED);
                        continue;
                    }
                }
                State::Issued => {
                    self.issued.forget(held.end, number);
                    self.requeued.forget(held.end, number);
                }
                State::Done => {}
                State::OnlyCompleted => {
                    if self.is_known_otherwise(row.device) {
                        rows.skip(COMPLETIONS);
                        continue;
                    }
                    self.unknown_ranges += u64::from(row.kind == EventKind::Discard);
                    rows.gap(format!(
                        "of {} it has only completions: their times are the requests' ends, and how long they took is \
                         not known",
                        rows.header.devices[usize::from(row.device.0)].name
                    ));
                }
            }
            rows.push(&row)?;
        }
        Ok(())
    }

    /// Whether the requests of a device are known by other steps than their completions.
    fn is_known_otherwise(&self, device: DeviceIndex) -> bool {
        let layers = self.layers[usize::from(device.0)];
        layers.queues || layers.issues
    }
}
