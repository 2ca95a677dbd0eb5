//! The trace format of the Storage Performance Council, in which UMass published the Financial and WebSearch
//! traces.
//!
//! Lines of `ASU,LBA,Size,Opcode,Timestamp` and optional fields, which are ignored: the application specific
//! unit, which is a device; the block of it; bytes; R or W in either case; seconds since the trace began (SPC
//! Trace File Format Specification, revision 1.0.1). The specification leaves the size of a block to the
//! description of a trace. This reader takes 512 bytes, as the UMass traces have: in Financial1, a write of
//! 3584 bytes is followed by one 7 blocks later.

use trimtab_core::trace::{Comm, EventKind};

use crate::error::RowError;
use crate::rows::{Row, Rows};
use crate::text::{Parse, fields, number, scaled, seconds, unknown};

/// The bytes of a block.
const BLOCK: u64 = 512;
/// The fields that every line has.
const FIELDS: usize = 5;

#[derive(Default)]
pub(crate) struct Spc {
    device: Vec<u8>,
}

impl Parse for Spc {
    fn line(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let [asu, lba, size, opcode, timestamp] = fields(required(line), b',')?;
        let kind = match opcode {
            b"R" | b"r" => EventKind::Read,
            b"W" | b"w" => EventKind::Write,
            _ => return Err(unknown("Opcode", opcode, "is neither R nor W")),
        };
        self.device.clear();
        self.device.extend_from_slice(b"asu");
        self.device.extend_from_slice(asu);
        let device = rows.device(&self.device)?;
        rows.push(Row {
            time: seconds("Timestamp", timestamp)?,
            device,
            kind,
            start: scaled("LBA", number("LBA", lba)?, BLOCK)?,
            length: number("Size", size)?,
            latency: None,
            process: Comm::default(),
            error: 0,
        })
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
        let numbers = [asu, lba, size].into_iter().all(|text| number("", text).is_ok());
        matches!(opcode, b"R" | b"r" | b"W" | b"w") && numbers && seconds("", timestamp).is_ok()
    })
}
