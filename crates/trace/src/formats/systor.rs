//! The block traces of the SYSTOR '17 paper by Lee and others: six LUNs behind a virtual desktop infrastructure.
//!
//! Lines of `Timestamp,Response,IOType,LUN,Offset,Size`: the timestamp in seconds since 1970 with a fraction
//! of nine digits, of which those past the microsecond mean nothing; the response time in seconds; the type R,
//! W, or nothing where no response was seen; offset and size in bytes (SNIA IOTTA repository, trace set 4964,
//! README). Lines without a type are skipped: they don't say what was done.

use std::time::Duration;

use trimtab_core::trace::{Comm, EventKind};
use trimtab_core::units::Nanos;

use crate::error::RowError;
use crate::rows::{Row, Rows};
use crate::text::{Parse, fields, number, seconds, unknown};

#[derive(Default)]
pub(crate) struct Systor {
    device: Vec<u8>,
}

impl Parse for Systor {
    fn line(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let [timestamp, response, io_type, lun, offset, size] = fields(line, b',')?;
        if timestamp == b"Timestamp" {
            rows.skip("column names");
            return Ok(());
        }
        let kind = match io_type {
            b"R" => EventKind::Read,
            b"W" => EventKind::Write,
            b"" => {
                rows.skip("requests without a response, of unknown type");
                return Ok(());
            }
            _ => return Err(unknown("IOType", io_type, "is neither R, W nor empty")),
        };
        let time = seconds("Timestamp", timestamp)?;
        rows.set_clock(Duration::from_nanos(time));
        let latency = if response.is_empty() { None } else { Some(Nanos(seconds("Response", response)?)) };
        self.device.clear();
        self.device.extend_from_slice(b"lun");
        self.device.extend_from_slice(lun);
        let device = rows.device(&self.device)?;
        rows.push(Row {
            time,
            device,
            kind,
            start: number("Offset", offset)?,
            length: number("Size", size)?,
            latency,
            process: Comm::default(),
            error: 0,
        })
    }
}

/// Returns true if a line is of this format.
pub(crate) fn is_line(line: &[u8]) -> bool {
    fields(line, b',').is_ok_and(|[timestamp, response, io_type, lun, offset, size]| {
        let numbers = [lun, offset, size].into_iter().all(|text| number("", text).is_ok());
        let times = seconds("", timestamp).is_ok() && (response.is_empty() || seconds("", response).is_ok());
        matches!(io_type, b"R" | b"W" | b"") && numbers && times
    })
}
