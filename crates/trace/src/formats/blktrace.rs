//! blktrace's binary records: one stream (`blktrace -o -`), or the files of each processor
//! (`NAME.blktrace.0`, `NAME.blktrace.1` and so on, or `NAME.blktrace.0.gz`), merged by time.
//!
//! A record is `struct blk_io_trace` of the kernel's `linux/blktrace_api.h`, version 7, in the byte
//! order of the machine that it was recorded on, and what its last field counts of data.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use trimtab_core::trace::{Comm, DeviceIndex, EventKind};

use super::blkparse::{OTHER_COMMANDS, OTHER_STEPS};
use super::partitions::{self, Remap};
use super::requests::{Action, Requests, Step};
use crate::error::{RowError, TraceError};
use crate::input::{self, fill};
use crate::reader::{RecordReader, Records};
use crate::rows::Rows;
use crate::text::{scaled, unknown};

/// The first bytes of a record, but for the version in the lowest byte.
pub(crate) const MAGIC: u32 = 0x6561_7400;
/// The version of records that is read: those of the next are laid out otherwise.
const VERSION: u8 = 7;
/// A record without its data.
const RECORD: usize = 48;
/// The highest number of a process (the kernel's `PID_MAX_LIMIT`).
const MAX_PID: u32 = 1 << 22;
/// Records that are put in order at once: buffers of processors come one after another in a stream.
const WINDOW: usize = 1 << 16;

/// Categories, in the upper half of a record's action.
const WRITE: u32 = 1 << 1;
const FLUSH: u32 = 1 << 2;
const PASSTHROUGH: u32 = 1 << 9;
const NOTIFY: u32 = 1 << 10;
const DISCARD: u32 = 1 << 13;
/// The bit in a record's action that says that a control group comes before its data.
const CGROUP: u32 = 1 << 8;

/// One or more streams of records.
pub(crate) struct Blktrace {
    /// Streams whose next record isn't in the heap yet, by their numbers.
    streams: Vec<Stream>,
    /// The records at hand, the earliest on top.
    window: BinaryHeap<Reverse<Record>>,
    /// How many of them came from each stream.
    waiting: Vec<usize>,
    processes: HashMap<u32, Comm>,
    requests: Requests,
    /// The last record's device.
    device: Option<(u32, DeviceIndex)>,
    /// The error that ended a stream early; the others are read to their ends.
    failure: Option<RowError>,
}

struct Stream {
    input: BufReader<Box<dyn Read + Send>>,
    big: bool,
    ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Record {
    time: u64,
    sequence: u32,
    stream: usize,
    sector: u64,
    bytes: u32,
    action: u32,
    pid: u32,
    device: u32,
    error: u16,
    data_length: u16,
    /// The begin of its data: as much as a notification needs.
    data: [u8; 16],
}

/// Opens the trace at `path`. If that is the file of one processor, opens those of all.
pub(crate) fn open(path: &Path, rows: Rows) -> Result<RecordReader<Blktrace>, TraceError> {
    let named = |path: &Path, source| TraceError::Io { path: path.to_owned(), source };
    let open = |path: PathBuf| {
        let input = input::open(&path).map_err(|source| named(&path, source))?;
        Ok(Stream { input: BufReader::with_capacity(1 << 17, input), big: false, ended: false })
    };
    let files = processors(path).map_err(|source| named(path, source))?;
    let streams = files.into_iter().map(open).collect::<Result<Vec<_>, TraceError>>()?;
    let records = Blktrace {
        waiting: vec![0; streams.len()],
        streams,
        window: BinaryHeap::new(),
        processes: HashMap::new(),
        requests: Requests::default(),
        device: None,
        failure: None,
    };
    Ok(RecordReader::new(path, records, rows))
}

impl Records for Blktrace {
    fn next(&mut self, rows: &mut Rows) -> Result<bool, RowError> {
        self.fill(rows);
        let Some(Reverse(record)) = self.window.pop() else {
            return self.failure.take().map_or(Ok(false), Err);
        };
        self.waiting[record.stream] -= 1;
        self.take(&record, rows)?;
        Ok(true)
    }

    fn end(&mut self, rows: &mut Rows) -> Result<(), RowError> {
        partitions::name_gaps(rows);
        self.requests.end(rows)
    }
}

impl Blktrace {
    /// Reads ahead in each stream.
    fn fill(&mut self, rows: &mut Rows) {
        let most = (WINDOW / self.streams.len()).max(1);
        for (number, stream) in self.streams.iter_mut().enumerate() {
            while self.waiting[number] < most && !stream.ended {
                match stream.next(number) {
                    Ok(Some(record)) => {
                        rows.counts.records += 1;
                        self.waiting[number] += 1;
                        self.window.push(Reverse(record));
                    }
                    Ok(None) => stream.ended = true,
                    Err(error) => {
                        stream.ended = true;
                        self.failure.get_or_insert(error);
                    }
                }
            }
        }
    }

    fn take(&mut self, record: &Record, rows: &mut Rows) -> Result<(), RowError> {
        let category = record.action >> 16;
        if category & NOTIFY != 0 {
            self.notified(record, rows);
            return Ok(());
        }
        let action = match record.action & 0xff {
            1 => Action::Queue,
            2 | 3 => Action::Merge,
            6 => Action::Requeue,
            7 => Action::Issue,
            8 => Action::Complete,
            13 => Action::Split,
            15 => return self.remap(record, rows),
            _ => {
                rows.skip(OTHER_STEPS);
                return Ok(());
            }
        };
        let kind = if category & PASSTHROUGH != 0 {
            None
        } else if category & DISCARD != 0 {
            Some(EventKind::Discard)
        } else if record.bytes == 0 {
            (category & FLUSH != 0).then_some(EventKind::Flush)
        } else if category & WRITE != 0 {
            Some(EventKind::Write)
        } else {
            Some(EventKind::Read)
        };
        let Some(kind) = kind else {
            rows.skip(OTHER_COMMANDS);
            return Ok(());
        };
        let device = self.device(record.device, rows)?;
        let step = Step {
            action,
            time: record.time,
            device,
            kind,
            start: if kind == EventKind::Flush { 0 } else { scaled("sector", record.sector, 512)? },
            length: u64::from(record.bytes),
            pid: record.pid,
            process: self.processes.get(&record.pid).copied().unwrap_or_default(),
            error: (record.error as i16).unsigned_abs(),
        };
        self.requests.step(&step, rows)
    }

    fn device(&mut self, number: u32, rows: &mut Rows) -> Result<DeviceIndex, RowError> {
        if let Some((known, device)) = self.device
            && known == number
        {
            return Ok(device);
        }
        let (major, minor) = (number >> 20, number & 0xf_ffff);
        let device = rows.device(format!("{major},{minor}").as_bytes())?;
        rows.header.devices[usize::from(device.0)].number = (major, minor);
        self.device = Some((number, device));
        Ok(device)
    }

    /// A remap from the traced device says where it begins, if it is a partition: `struct blk_io_trace_remap`, big
    /// endian.
    fn remap(&mut self, record: &Record, rows: &mut Rows) -> Result<(), RowError> {
        rows.skip("remaps");
        let number = |device: u32| (device >> 20, device & 0xf_ffff);
        let from = u32::from_be_bytes(*record.data.first_chunk().expect("there are 16 bytes"));
        if record.data_length < 16 || record.action & CGROUP != 0 {
            return Ok(());
        }
        let from_sector = u64::from_be_bytes(*record.data.last_chunk().expect("there are 16 bytes"));
        let device = self.device(record.device, rows)?;
        let remap = Remap { from: number(from), from_sector, sector: record.sector };
        remap.take(number(record.device), device, rows)
    }

    fn notified(&mut self, record: &Record, rows: &mut Rows) {
        match record.action & 0xff {
            0 if record.pid <= MAX_PID => {
                self.processes.insert(record.pid, Comm::new(&record.data));
            }
            1 => {
                let word = |at: usize| {
                    let bytes = *record.data[at..].first_chunk().expect("there are 16 bytes");
                    let big = self.streams[record.stream].big;
                    if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
                };
                rows.set_clock(Duration::from_secs(word(0).into()));
            }
            _ => {}
        }
        rows.skip("notifications");
    }
}

impl Stream {
    /// The next record; none at the end.
    fn next(&mut self, stream: usize) -> Result<Option<Record>, RowError> {
        let mut bytes = [0; RECORD];
        match fill(&mut self.input, &mut bytes)? {
            0 => return Ok(None),
            RECORD => {}
            _ => return Err(RowError::CutOff),
        }
        let magic: [u8; 4] = *bytes.first_chunk().expect("a record is longer");
        self.big = u32::from_be_bytes(magic) & !0xff == MAGIC;
        let word = |at: usize| {
            let bytes = *bytes[at..].first_chunk().expect("a record is longer");
            if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
        };
        let long = |at: usize| {
            let (first, second) = (u64::from(word(at)), u64::from(word(at + 4)));
            if self.big { first << 32 | second } else { second << 32 | first }
        };
        let halves = |at: usize| {
            let (high, low) = ((word(at) >> 16) as u16, word(at) as u16);
            if self.big { (high, low) } else { (low, high) }
        };
        if word(0) & !0xff != MAGIC {
            return Err(unknown("magic", format!("{:#010x}", word(0)).as_bytes(), "is not blktrace's"));
        }
        if word(0) as u8 != VERSION {
            return Err(unknown("version", (word(0) as u8).to_string().as_bytes(), "trimtab doesn't read"));
        }
        let (error, data_length) = halves(44);
        let mut data = [0; 16];
        let kept = usize::from(data_length).min(data.len());
        let rest = u64::from(data_length) - kept as u64;
        if fill(&mut self.input, &mut data[..kept])? < kept
            || io::copy(&mut self.input.by_ref().take(rest), &mut io::sink())? < rest
        {
            return Err(RowError::CutOff);
        }
        Ok(Some(Record {
            time: long(8),
            sequence: word(4),
            stream,
            sector: long(16),
            bytes: word(24),
            action: word(28),
            pid: word(32),
            device: word(36),
            error,
            data_length,
            data,
        }))
    }
}

/// The files of a trace: those beside `path` that differ from it in the processor's number, if it is one of
/// `NAME.blktrace.N`, which may be packed; those of the processors if there is no file `path`, but `path.blktrace.N`.
pub(crate) fn processors(path: &Path) -> io::Result<Vec<PathBuf>> {
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let ours = name(path);
    let is_base = around_number(&ours).is_none() && !ours.is_empty() && !path.exists();
    let parts = if is_base { Some((ours.as_str(), "")) } else { around_number(&ours) };
    let Some((before, behind)) = parts else { return Ok(vec![path.to_owned()]) };
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = match dir.read_dir() {
        Err(_) if is_base => return Ok(vec![path.to_owned()]),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let is_ours = around_number(&name(&path)).is_some_and(|parts| parts == (before, behind));
        if is_ours {
            files.push(path);
        }
    }
    // Where the file itself isn't there, opening it says so.
    let is_there = files.iter().any(|file| file.file_name() == path.file_name());
    if !is_there && (!is_base || files.is_empty()) {
        files.push(path.to_owned());
    }
    files.sort();
    Ok(files)
}

/// Returns the parts before and behind the number in `NAME.blktrace.N` or `NAME.blktrace.N.gz`.
fn around_number(name: &str) -> Option<(&str, &str)> {
    let (before, rest) = name.rsplit_once(".blktrace.")?;
    let (number, behind) = rest.split_at(rest.find('.').unwrap_or(rest.len()));
    number.parse::<u32>().is_ok().then_some((before, behind))
}
