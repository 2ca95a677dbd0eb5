//! From the rows of other programs' traces to events in the order of their times.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::time::{Duration, SystemTime};

use trimtab_core::extent::Extent;
use trimtab_core::trace::{Comm, DeviceIndex, EventKind, TraceDevice, TraceEvent, TraceHeader};
use trimtab_core::units::{Bytes, Nanos};

use crate::counts::ReadCounts;
use crate::error::RowError;
use crate::text::unknown;

/// The most rows by which a row may be late: public traces are slightly out of order.
const WINDOW: usize = 1 << 16;
/// No device is larger: an offset past this is in another unit.
const MAX_OFFSET: u64 = 1 << 50;
/// No device moves more bytes a second for long: a trace in which one does is in another unit.
const MAX_RATE: u64 = 100_000_000_000;
/// Times past this, 146 years, are in another unit; those below can be added.
const MAX_TIME: u64 = 1 << 62;
/// The longest name of a device: there may be many.
const MAX_NAME: usize = 1024;

/// The contents of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// Nanoseconds on the trace's own clock.
    pub(crate) time: u64,
    pub(crate) device: DeviceIndex,
    pub(crate) kind: EventKind,
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) latency: Option<Nanos>,
    pub(crate) process: Comm,
    pub(crate) error: u16,
}

/// Checks and sorts rows, and returns them as events.
pub(crate) struct Rows {
    pub(crate) header: TraceHeader,
    pub(crate) counts: ReadCounts,
    /// Whether the header's beginning was set.
    clock_is_set: bool,
    /// Whether the format has times, so that rates make sense.
    timed: bool,
    devices: HashMap<Vec<u8>, DeviceIndex>,
    last_device: (Vec<u8>, DeviceIndex),
    window: VecDeque<TraceEvent>,
    /// The time of the trace's first event on its clock, known when the first leaves the window.
    begin: Option<u64>,
    handed_out: u64,
    /// The bytes that each device has read and written.
    moved: Vec<u64>,
}

impl Rows {
    pub(crate) fn new(origin: &str, timed: bool) -> Self {
        Self {
            header: TraceHeader::new(origin),
            counts: ReadCounts::default(),
            clock_is_set: false,
            timed,
            devices: HashMap::new(),
            last_device: (Vec::new(), DeviceIndex::default()),
            window: VecDeque::new(),
            begin: None,
            handed_out: 0,
            moved: Vec::new(),
        }
    }

    /// The device of a name, which the header names from now on.
    pub(crate) fn device(&mut self, name: &[u8]) -> Result<DeviceIndex, RowError> {
        if self.last_device.0 == name && !self.devices.is_empty() {
            return Ok(self.last_device.1);
        }
        let device = match self.devices.get(name) {
            Some(device) => *device,
            None if name.len() > MAX_NAME => return Err(unknown("device", name, "is too long a name")),
            None => {
                let index = u16::try_from(self.devices.len()).map_err(|_| RowError::TooManyDevices)?;
                let text = String::from_utf8_lossy(name).into_owned();
                self.header.devices.push(TraceDevice { name: text, ..TraceDevice::default() });
                self.moved.push(0);
                self.devices.insert(name.to_owned(), DeviceIndex(index));
                DeviceIndex(index)
            }
        };
        self.last_device = (name.to_owned(), device);
        Ok(device)
    }

    /// Counts a row that makes no event.
    pub(crate) fn skip(&mut self, what: &'static str) {
        self.counts.skip(what);
    }

    /// Takes a row in.
    pub(crate) fn push(&mut self, row: Row) -> Result<(), RowError> {
        let end = row.start.checked_add(row.length).filter(|end| *end <= MAX_OFFSET);
        let end = end.ok_or(RowError::TooFar { start: row.start, length: row.length })?;
        if let Some(time) = [Some(row.time), row.latency.map(|it| it.0)].into_iter().flatten().max()
            && time > MAX_TIME
        {
            return Err(RowError::TooLong { time });
        }
        if self.begin.is_some_and(|begin| row.time < begin + self.handed_out) {
            let before = self.begin.unwrap_or_default() + self.handed_out;
            return Err(RowError::TooLate { at: row.time, before, window: WINDOW });
        }
        let event = TraceEvent {
            at: Nanos(row.time),
            device: row.device,
            kind: row.kind,
            extent: Extent { start: Bytes(row.start), end: Bytes(end) },
            latency: row.latency,
            process: row.process,
            error: row.error,
            fs: None,
        };
        if self.window.back().is_none_or(|last| last.at.0 <= row.time) {
            self.window.push_back(event);
        } else {
            let place = self.window.partition_point(|other| other.at.0 <= row.time);
            self.window.insert(place, event);
        }
        Ok(())
    }

    /// Hands out the events that no later row can come before, or `all` of them.
    pub(crate) fn take(&mut self, batch: &mut Vec<TraceEvent>, all: bool) -> Result<(), RowError> {
        while self.window.len() > WINDOW || all {
            let Some(mut event) = self.window.pop_front() else { break };
            let begin = *self.begin.get_or_insert(event.at.0);
            event.at = Nanos(event.at.0 - begin);
            self.handed_out = event.at.0;
            self.check_rate(&event)?;
            self.counts.events += 1;
            batch.push(event);
        }
        Ok(())
    }

    fn check_rate(&mut self, event: &TraceEvent) -> Result<(), RowError> {
        if !self.timed || !matches!(event.kind, EventKind::Read | EventKind::Write) {
            return Ok(());
        }
        let moved = &mut self.moved[usize::from(event.device.0)];
        *moved = moved.saturating_add(event.extent.len().0);
        let seconds = event.at.0 / 1_000_000_000;
        if *moved / (seconds + 1) > MAX_RATE {
            return Err(RowError::TooFast { moved: Bytes(*moved), time: event.at });
        }
        Ok(())
    }

    /// Says in the header when the trace began; later calls change nothing.
    pub(crate) fn set_clock(&mut self, since_1970: Duration) {
        if mem::replace(&mut self.clock_is_set, true) {
            return;
        }
        let year_9999 = Duration::from_secs(253_402_300_799);
        if since_1970 <= year_9999 {
            let when = SystemTime::UNIX_EPOCH + since_1970;
            self.header.started = Some(humantime::format_rfc3339_seconds(when).to_string());
        }
    }
}
