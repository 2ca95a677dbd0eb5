//! CloudPhysics's virtual disks as VMware's vscsi tracer recorded them, in the binary records of two versions that
//! libCacheSim distributes (1a1a11a/libCacheSim, `vscsi.h`).
//!
//! Version 1: number of the command, bytes, scatter-gather elements (32 bits each), opcode, version (16 bits each),
//! sector of 512 bytes, microseconds (64 bits each). Version 2: opcode, version, number, bytes, elements, sector,
//! microseconds, and a response time whose unit is not documented, and which is ignored. The upper byte of the version's
//! field is 1 or 2. All in the byte order of x86.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use trimtab_core::trace::EventKind;

use crate::error::{RowError, TraceError};
use crate::input::{self, fill};
use crate::reader::{RecordReader, Records};
use crate::rows::{Row, Rows};
use crate::text::{scaled, unknown};

/// A version of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

impl Version {
    const fn length(self) -> usize {
        match self {
            Self::One => 32,
            Self::Two => 40,
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    /// The opcode and the number of the version in a record.
    fn opcode(self, record: &[u8]) -> (u16, u8) {
        let at = match self {
            Self::One => 12,
            Self::Two => 0,
        };
        (u16::from_le_bytes([record[at], record[at + 1]]), record[at + 3])
    }
}

/// Returns the kind of a command by its SCSI opcode (SCSI Block Commands); UNMAP names its ranges in data that the trace
/// lacks.
pub(super) const fn kind_of(opcode: u16) -> Option<EventKind> {
    match opcode {
        0x08 | 0x28 | 0xa8 | 0x88 => Some(EventKind::Read),
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0x8e => Some(EventKind::Write),
        0x35 | 0x91 => Some(EventKind::Flush),
        _ => None,
    }
}

/// Returns the version of the records that a file begins with; `None` if it has others.
pub(crate) fn version_of(start: &[u8]) -> Option<Version> {
    [Version::Two, Version::One].into_iter().find(|version| {
        let records = start.chunks_exact(version.length());
        let is_one = |record: &[u8]| {
            let (opcode, number) = version.opcode(record);
            // A device has at most 2^50 bytes, and no command moves a gibibyte.
            let (bytes, sector) = fields(*version, record);
            number == version.number() && opcode < 0x100 && sector < 1 << 41 && bytes <= 1 << 30
        };
        records.len() > 0 && records.take(64).all(is_one)
    })
}

/// Returns true if a file begins with records of libCacheSim's oracleGeneral: seconds (32 bits), an object (64), bytes (32),
/// and the number of the request that next has the object (64, signed), -1 for none. They do not tell reads from writes.
pub(crate) fn is_oracle_general(start: &[u8]) -> bool {
    const RECORD: usize = 24;
    let mut before = 0;
    let records = start.chunks_exact(RECORD).take(64);
    let is_one = |(number, record): (usize, &[u8])| {
        let word = |at: usize| u32::from_le_bytes(*record[at..].first_chunk().expect("a record is longer"));
        let next = long(record, 16);
        let is_later = next > number as u64 && next < 1 << 40;
        let fits =
            word(0) >= before && (1..=1 << 30).contains(&word(12)) && (is_later || next >= i64::MAX as u64);
        before = word(0);
        fits
    };
    records.len() > 0 && records.enumerate().all(is_one)
}

/// The bytes and the sector of a record.
fn fields(version: Version, record: &[u8]) -> (u32, u64) {
    let at = if version == Version::One { 4 } else { 8 };
    let bytes = u32::from_le_bytes(*record[at..].first_chunk().expect("a record is longer"));
    (bytes, long(record, 16))
}

fn long(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*record[at..].first_chunk().expect("a record is longer"))
}

/// The records of a trace.
pub(crate) struct Vscsi {
    input: BufReader<Box<dyn Read + Send>>,
    version: Option<Version>,
}

/// Opens the trace at `path`.
pub(crate) fn open(path: &Path, rows: Rows) -> Result<RecordReader<Vscsi>, TraceError> {
    let input = input::open(path).map_err(|source| TraceError::Io { path: path.to_owned(), source })?;
    let input = BufReader::with_capacity(1 << 17, input);
    Ok(RecordReader::new(path, Vscsi { input, version: None }, rows))
}

impl Records for Vscsi {
    fn next(&mut self, rows: &mut Rows) -> Result<bool, RowError> {
        let version = match self.version {
            Some(version) => version,
            None => {
                let start = self.input.fill_buf()?;
                let unknown = || unknown("version", b"of the first record", "is neither 1 nor 2");
                if start.is_empty() {
                    return Ok(false);
                }
                *self.version.insert(version_of(start).ok_or_else(unknown)?)
            }
        };
        let mut bytes = [0; 40];
        let record = &mut bytes[..version.length()];
        match fill(&mut self.input, record)? {
            0 => return Ok(false),
            length if length < record.len() => return Err(RowError::CutOff),
            _ => {}
        }
        rows.counts.records += 1;
        let (opcode, number) = version.opcode(record);
        if number != version.number() {
            return Err(unknown("version", number.to_string().as_bytes(), "is not that of the first record"));
        }
        let Some(kind) = kind_of(opcode) else {
            rows.skip(other(opcode));
            return Ok(true);
        };
        let (bytes, sector) = fields(version, record);
        let is_flush = kind == EventKind::Flush;
        let device = rows.device(b"disk")?;
        rows.push(&Row {
            time: scaled("ts", long(record, 24), 1000)?,
            device,
            kind,
            start: if is_flush { 0 } else { scaled("lbn", sector, 512)? },
            length: if is_flush { 0 } else { bytes.into() },
            ..Row::bare()
        })?;
        Ok(true)
    }

    fn end(&mut self, _rows: &mut Rows) -> Result<(), RowError> {
        Ok(())
    }
}

/// The name under which a command that is no event is counted.
pub(super) const fn other(opcode: u16) -> &'static str {
    match opcode {
        0x42 => "UNMAP commands, whose ranges are not recorded",
        0x41 | 0x93 => "WRITE SAME commands, whose ranges are not recorded",
        _ => "commands that are no reads, writes or flushes",
    }
}
