//! The block traces of CloudPhysics's customers, a virtual disk a file, as they go around in CSV.
//!
//! Lines of `timestamp,lba,op,size`: the timestamp in microseconds, the address in sectors of 512
//! bytes, `r` or `w`, the size in bytes. CloudPhysics published binary records of VMware's vscsi
//! tracer, which the module `vscsi` reads; this layout is the one that the block-trace profiler Cydonia reads
//! (pbhandar2/cydonia, `CPReader`). libCacheSim distributes lines of `version,time,op,size,lbn`: whole seconds, the SCSI
//! opcode in hexadecimal without a prefix, bytes, and sectors (its `data/cloudPhysicsIO.csv` beside the binary records of
//! the same requests). The columns' names in the first line show this layout.

use trimtab_core::trace::EventKind;

use super::vscsi;
use crate::error::RowError;
use crate::parse::{Notes, Parse, Parsed};
use crate::rows::Row;
use crate::scan::{Cursor, fields};
use crate::text::{hexadecimal, scaled, unknown};

#[derive(Clone, Default)]
pub(crate) struct CloudPhysics {
    /// Lines have libCacheSim's columns.
    is_libcachesim: bool,
}

impl CloudPhysics {
    /// The nanoseconds of a unit of time.
    const fn tick(&self) -> u64 {
        if self.is_libcachesim { 1_000_000_000 } else { 1000 }
    }
}

/// The names of libCacheSim's columns.
const LIBCACHESIM: &[u8] = b"version,time,op,size,lbn";

/// Returns the kind that a letter stands for.
#[inline]
fn kind_of(text: &[u8]) -> Option<EventKind> {
    Some(match text {
        b"r" | b"R" => EventKind::Read,
        b"w" | b"W" => EventKind::Write,
        _ => return None,
    })
}

/// Returns the SCSI opcode that one or two hexadecimal digits are.
#[inline]
fn opcode_of(text: &[u8]) -> Option<u16> {
    let digits = Some(text).filter(|text| text.len() <= 2)?;
    u16::try_from(hexadecimal(digits)?).ok()
}

impl Parse for CloudPhysics {
    type Content = Row;

    #[inline(always)]
    fn quick(&mut self, line: &mut Cursor, notes: &mut Notes) -> Option<Parsed<Row>> {
        if self.is_libcachesim {
            line.until(b',')?;
        }
        let time = line.number_and(b',')?.checked_mul(self.tick())?;
        let (kind, sector, length);
        if self.is_libcachesim {
            kind = vscsi::kind_of(opcode_of(line.until(b',')?)?)?;
            (length, sector) = (line.number_and(b',')?, line.number_and(b'\n')?);
        } else {
            sector = line.number_and(b',')?;
            kind = kind_of(line.until(b',')?)?;
            length = line.number_and(b'\n')?;
        }
        let is_flush = kind == EventKind::Flush;
        Some(Parsed::Content(Row {
            time,
            device: notes.known(b"disk")?,
            kind,
            start: if is_flush { 0 } else { sector.checked_mul(512)? },
            length: if is_flush { 0 } else { length },
            ..Row::bare()
        }))
    }

    fn fork(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn line(&mut self, line: &[u8], notes: &mut Notes) -> Result<Parsed<Row>, RowError> {
        if is_libcachesim(line) {
            self.is_libcachesim = true;
            notes.gap("its times are whole seconds".to_owned());
            return Ok(Parsed::Skip("column names"));
        }
        let [timestamp, lba, op, size] = if self.is_libcachesim {
            let [_version, timestamp, op, size, lbn] = fields(line, b',')?;
            [timestamp, lbn, op, size]
        } else {
            fields(line, b',')?
        };
        if matches!(timestamp.text, b"ts" | b"timestamp") {
            return Ok(Parsed::Skip("column names"));
        }
        let kind = if self.is_libcachesim {
            let wrong = || unknown("op", op.text, "is no opcode of two hexadecimal digits");
            let opcode = opcode_of(op.text).ok_or_else(wrong)?;
            let Some(kind) = vscsi::kind_of(opcode) else {
                return Ok(Parsed::Skip(vscsi::other(opcode)));
            };
            kind
        } else {
            kind_of(op.text).ok_or_else(|| unknown("op", op.text, "is neither r nor w"))?
        };
        let is_flush = kind == EventKind::Flush;
        let device = notes.device(b"disk")?;
        Ok(Parsed::Content(Row {
            time: scaled("time", timestamp.number("time")?, self.tick())?,
            device,
            kind,
            start: if is_flush { 0 } else { scaled("lba", lba.number("lba")?, 512)? },
            length: if is_flush { 0 } else { size.number("size")? },
            ..Row::bare()
        }))
    }
}

/// Returns true for the names of libCacheSim's columns, with or without spaces.
pub(crate) fn is_libcachesim(line: &[u8]) -> bool {
    line.iter().filter(|byte| **byte != b' ').eq(LIBCACHESIM)
}
