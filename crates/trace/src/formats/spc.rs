//! The trace format of the Storage Performance Council, in which UMass published the Financial and WebSearch
//! traces.
//!
//! Lines of `ASU,LBA,Size,Opcode,Timestamp` and optional fields, which are ignored: the application specific
//! unit, which is a device; the block of it; bytes; R or W in either case; seconds since the trace began (SPC
//! Trace File Format Specification, revision 1.0.1). The specification leaves the size of a block to the
//! description of a trace. This reader takes 512 bytes, as the UMass traces have: in Financial1, a write of
//! 3584 bytes is followed by one 7 blocks later.

use trimtab_core::trace::EventKind;

use crate::error::RowError;
use crate::parse::{Notes, Parse, Parsed};
use crate::rows::Row;
use crate::scan::{Cursor, fields};
use crate::text::{scaled, seconds, unknown};

/// The bytes of a block.
const BLOCK: u64 = 512;
/// The fields that every line has.
const FIELDS: usize = 5;

#[derive(Clone, Default)]
pub(crate) struct Spc {
    device: Vec<u8>,
}

/// Returns the kind of a row, as the format writes it.
#[inline]
fn kind_of(text: &[u8]) -> Option<EventKind> {
    Some(match text {
        b"R" | b"r" => EventKind::Read,
        b"W" | b"w" => EventKind::Write,
        _ => return None,
    })
}

impl Parse for Spc {
    type Content = Row;

    #[inline(always)]
    fn quick(&mut self, line: &mut Cursor, notes: &mut Notes) -> Option<Parsed<Row>> {
        let asu = line.until(b',')?;
        let (sector, length) = (line.number_and(b',')?, line.number_and(b',')?);
        let kind = kind_of(line.until(b',')?)?;
        let (time, _) = line.seconds()?;
        line.byte(b'\n')?;
        self.device.clear();
        self.device.extend_from_slice(b"asu");
        self.device.extend_from_slice(asu);
        Some(Parsed::Content(Row {
            time,
            device: notes.known(&self.device)?,
            kind,
            start: sector.checked_mul(BLOCK)?,
            length,
            ..Row::bare()
        }))
    }

    fn fork(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn line(&mut self, line: &[u8], notes: &mut Notes) -> Result<Parsed<Row>, RowError> {
        let [asu, lba, size, opcode, timestamp] = fields(required(line), b',')?;
        let kind =
            kind_of(opcode.text).ok_or_else(|| unknown("Opcode", opcode.text, "is neither R nor W"))?;
        self.device.clear();
        self.device.extend_from_slice(b"asu");
        self.device.extend_from_slice(asu.text);
        let device = notes.device(&self.device)?;
        Ok(Parsed::Content(Row {
            time: seconds("Timestamp", timestamp.text)?,
            device,
            kind,
            start: scaled("LBA", lba.number("LBA")?, BLOCK)?,
            length: size.number("Size")?,
            ..Row::bare()
        }))
    }
}

/// Returns the part of a line without its optional fields.
fn required(line: &[u8]) -> &[u8] {
    let end = memchr::memchr_iter(b',', line).nth(FIELDS - 1).unwrap_or(line.len());
    &line[..end]
}

/// Returns true if a line is of this format.
pub(crate) fn is_line(line: &[u8]) -> bool {
    let known = fields(required(line), b',');
    known.is_ok_and(|[asu, lba, size, opcode, timestamp]| {
        let numbers = [asu, lba, size].into_iter().all(|field| field.is_number());
        kind_of(opcode.text).is_some() && numbers && seconds("", timestamp.text).is_ok()
    })
}
