//! From the rows of other programs' traces to events in the order of their times.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::time::{Duration, SystemTime};

use trimtab_core::extent::Extent;
use trimtab_core::trace::{
    Comm, DeviceIndex, EventKind, FsIndex, TraceDevice, TraceEvent, TraceFileSystem, TraceHeader,
};
use trimtab_core::units::{Bytes, Nanos};

use crate::counts::ReadCounts;
use crate::error::RowError;
use crate::file::device_names;
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

impl Row {
    /// A row that succeeded, with nothing else known, for `..Row::bare()`.
    #[inline]
    pub(crate) fn bare() -> Self {
        Self {
            time: 0,
            device: DeviceIndex(0),
            kind: EventKind::Read,
            start: 0,
            length: 0,
            latency: None,
            process: Comm::default(),
            error: 0,
        }
    }
}

/// Checks and sorts rows, and returns them as events.
pub(crate) struct Rows {
    pub(crate) header: TraceHeader,
    pub(crate) counts: ReadCounts,
    /// Whether the header's beginning was set.
    clock_is_set: bool,
    /// Whether the format has times, so that rates make sense.
    timed: bool,
    devices: DeviceNames,
    /// Counts of skipped records that are not in `counts` yet.
    skipped: Vec<(&'static str, u64)>,
    /// The latest events, with times on the trace's clock.
    window: VecDeque<TraceEvent>,
    /// The number of those at the front of the window that no later row can come before.
    settled: usize,
    /// The time of the trace's first event on its clock, known when the first is settled.
    begin: Option<u64>,
    /// The time of the last event that was settled, since the trace began.
    settled_to: u64,
    /// The facts of each device.
    facts: Vec<Facts>,
}

/// The devices by their names, numbered in the order in which they came.
#[derive(Clone, Default)]
pub(crate) struct DeviceNames {
    known: HashMap<Vec<u8>, DeviceIndex>,
    last: (Vec<u8>, DeviceIndex),
}

impl DeviceNames {
    /// Returns the device of a name, and whether it is new.
    #[inline]
    pub(crate) fn find(&mut self, name: &[u8]) -> Result<(DeviceIndex, bool), RowError> {
        if self.last.0 == name && !name.is_empty() {
            return Ok((self.last.1, false));
        }
        self.find_other(name)
    }

    /// Returns the device of a name that is known.
    #[inline]
    pub(crate) fn known(&mut self, name: &[u8]) -> Option<DeviceIndex> {
        if self.last.0 == name && !name.is_empty() {
            return Some(self.last.1);
        }
        self.known.contains_key(name).then(|| self.find_other(name).ok())?.map(|(device, _)| device)
    }

    fn find_other(&mut self, name: &[u8]) -> Result<(DeviceIndex, bool), RowError> {
        let (device, is_new) = match self.known.get(name) {
            Some(device) => (*device, false),
            None if name.len() > MAX_NAME => return Err(unknown("device", name, "is too long a name")),
            None => {
                let index = u16::try_from(self.known.len()).map_err(|_| RowError::TooManyDevices)?;
                self.insert(name, DeviceIndex(index));
                (DeviceIndex(index), true)
            }
        };
        self.last.0.clear();
        self.last.0.extend_from_slice(name);
        self.last.1 = device;
        Ok((device, is_new))
    }

    fn insert(&mut self, name: &[u8], device: DeviceIndex) {
        self.known.insert(name.to_owned(), device);
    }
}

/// The facts of a device.
#[derive(Debug, Clone, Copy, Default)]
struct Facts {
    /// The bytes that it has read and written.
    moved: u64,
    /// The events of it that are settled.
    events: u64,
    /// Where it begins on the disk by which its rows count, if it is a partition.
    begins: Option<u64>,
    /// Remaps show that it has partitions.
    is_disk: bool,
}

impl Facts {
    /// Adds a read or write, unless no device moves as much in the time since the trace began.
    #[inline]
    fn add(&mut self, at: Nanos, length: Bytes) -> Result<(), RowError> {
        self.moved = self.moved.saturating_add(length.0);
        let seconds = at.0 / 1_000_000_000;
        if self.moved > MAX_RATE.saturating_mul(seconds + 1) {
            return Err(RowError::TooFast { moved: Bytes(self.moved), time: at });
        }
        Ok(())
    }
}

impl Rows {
    pub(crate) fn new(origin: &str, timed: bool) -> Self {
        Self {
            header: TraceHeader::new(origin),
            counts: ReadCounts::default(),
            clock_is_set: false,
            timed,
            devices: DeviceNames::default(),
            skipped: Vec::new(),
            window: VecDeque::new(),
            settled: 0,
            begin: None,
            settled_to: 0,
            facts: Vec::new(),
        }
    }

    /// Rows of a table that has a trace's header, which names the devices and when time began.
    pub(crate) fn with_header(header: TraceHeader) -> Self {
        let mut rows = Self::new("", true);
        for (index, name) in (0..).map(DeviceIndex).zip(device_names(&header)) {
            rows.devices.insert(&name.into_bytes(), index);
            rows.facts.push(Facts::default());
        }
        rows.header = header;
        rows.clock_is_set = true;
        rows.begin = Some(0);
        rows
    }

    /// The device of a name, which the header names from now on.
    pub(crate) fn device(&mut self, name: &[u8]) -> Result<DeviceIndex, RowError> {
        let (device, is_new) = self.devices.find(name)?;
        if is_new {
            let name = String::from_utf8_lossy(name).into_owned();
            self.header.devices.push(TraceDevice { name, ..TraceDevice::default() });
            self.facts.push(Facts::default());
        }
        Ok(device)
    }

    /// The file system of a mount point, which the header names from now on.
    pub(crate) fn file_system(&mut self, mount_point: &[u8]) -> Result<FsIndex, RowError> {
        let name = String::from_utf8_lossy(mount_point);
        let known = self.header.file_systems.iter().position(|it| it.mount_point == name);
        let index = known.unwrap_or(self.header.file_systems.len());
        if known.is_none() {
            self.add_file_system(mount_point);
        }
        u16::try_from(index).map(FsIndex).map_err(|_| RowError::TooManyDevices)
    }

    /// Adds a file system to the header, which knows nothing but its mount point.
    pub(crate) fn add_file_system(&mut self, mount_point: &[u8]) {
        self.header.file_systems.push(TraceFileSystem {
            kind: String::new(),
            mount_point: String::from_utf8_lossy(mount_point).into_owned(),
            options: String::new(),
            source: String::new(),
        });
    }

    /// Counts a row that makes no event.
    #[inline]
    pub(crate) fn skip(&mut self, what: &'static str) {
        match self.skipped.iter_mut().find(|(known, _)| std::ptr::eq(*known, what)) {
            Some((_, count)) => *count += 1,
            None => self.skipped.push((what, 1)),
        }
    }

    /// Brings the counts of skipped rows up to date.
    pub(crate) fn count_skipped(&mut self) {
        for (what, count) in self.skipped.drain(..) {
            *self.counts.skipped.entry(what).or_default() += count;
        }
    }

    /// Names a gap in the header, once.
    pub(crate) fn gap(&mut self, gap: String) {
        if !self.header.gaps.contains(&gap) {
            self.header.gaps.push(gap);
        }
    }

    /// Notes that a device is a partition that begins at `begins` on its disk, and that its rows have the disk's
    /// addresses.
    pub(crate) fn set_partition(&mut self, device: DeviceIndex, begins: u64) -> Result<(), RowError> {
        let facts = &mut self.facts[usize::from(device.0)];
        match facts.begins {
            Some(known) if known == begins => return Ok(()),
            None if facts.events == 0 => facts.begins = Some(begins),
            _ => return Err(RowError::Moved { begins: Bytes(begins), events: facts.events }),
        }
        for event in &mut self.window {
            if event.device == device && event.kind != EventKind::Flush {
                let start = in_partition(event.extent.start.0, begins)?;
                event.extent = Extent::at(Bytes(start), event.extent.len());
            }
        }
        Ok(())
    }

    /// Notes that a device has partitions, so that it is none.
    pub(crate) fn set_disk(&mut self, device: DeviceIndex) {
        self.facts[usize::from(device.0)].is_disk = true;
    }

    /// Whether a device is known to have partitions.
    pub(crate) fn is_disk(&self, device: DeviceIndex) -> bool {
        self.facts[usize::from(device.0)].is_disk
    }

    /// Whether it is known where a device begins on its disk.
    pub(crate) fn is_partition(&self, device: DeviceIndex) -> bool {
        self.facts[usize::from(device.0)].begins.is_some()
    }

    /// Takes a row in.
    #[inline]
    pub(crate) fn push(&mut self, row: &Row) -> Result<(), RowError> {
        self.push_of(row, None)
    }

    /// Takes the row of a file system in, if it is one.
    pub(crate) fn push_of(&mut self, row: &Row, fs: Option<FsIndex>) -> Result<(), RowError> {
        let start = match self.facts[usize::from(row.device.0)].begins {
            Some(begins) if row.kind != EventKind::Flush => in_partition(row.start, begins)?,
            _ => row.start,
        };
        let Some(end) = start.checked_add(row.length).filter(|end| *end <= MAX_OFFSET) else {
            return Err(RowError::TooFar { start, length: row.length });
        };
        let time = row.time.max(row.latency.map_or(0, |latency| latency.0));
        if time > MAX_TIME {
            return Err(RowError::TooLong { time });
        }
        if self.begin.is_some_and(|begin| row.time < begin + self.settled_to) {
            let before = self.begin.unwrap_or_default() + self.settled_to;
            return Err(RowError::TooLate { at: row.time, before, window: WINDOW });
        }
        let event = TraceEvent {
            at: Nanos(row.time),
            device: row.device,
            kind: row.kind,
            extent: Extent { start: Bytes(start), end: Bytes(end) },
            latency: row.latency,
            process: row.process,
            error: row.error,
            fs,
        };
        if self.window.back().is_none_or(|last| last.at.0 <= row.time) {
            self.window.push_back(event);
        } else {
            let place = self.window.partition_point(|other| other.at.0 <= row.time);
            self.window.insert(place, event);
        }
        Ok(())
    }

    /// Settles the events that no later row can come before, or `all` of them, and returns how many are settled.
    #[inline]
    pub(crate) fn settle(&mut self, all: bool) -> Result<usize, RowError> {
        let window = if all { 0 } else { WINDOW };
        while self.window.len() - self.settled > window {
            let TraceEvent { at, device, kind, extent, .. } = self.window[self.settled];
            let at = Nanos(at.0 - *self.begin.get_or_insert(at.0));
            self.settled_to = at.0;
            let facts = &mut self.facts[usize::from(device.0)];
            if self.timed && matches!(kind, EventKind::Read | EventKind::Write) {
                facts.add(at, extent.len())?;
            }
            facts.events += 1;
            self.counts.events += 1;
            self.settled += 1;
        }
        Ok(self.settled)
    }

    /// Hands out the events that are settled.
    pub(crate) fn hand_out(&mut self, batch: &mut Vec<TraceEvent>) {
        let begin = self.begin.unwrap_or_default();
        let (front, back) = self.window.as_slices();
        let front = &front[..self.settled.min(front.len())];
        let first = batch.len();
        batch.extend_from_slice(front);
        batch.extend_from_slice(&back[..self.settled - front.len()]);
        batch[first..].iter_mut().for_each(|event| event.at.0 -= begin);
        self.window.drain(..mem::take(&mut self.settled));
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

/// Returns an address in a partition that begins at `begins`, from one on its disk.
fn in_partition(start: u64, begins: u64) -> Result<u64, RowError> {
    start.checked_sub(begins).ok_or(RowError::BeforePartition { start: Bytes(start), begins: Bytes(begins) })
}
