//! The block traces of the SYSTOR '17 paper by Lee and others: six LUNs behind a virtual desktop infrastructure.
//!
//! Lines of `Timestamp,Response,IOType,LUN,Offset,Size`: the timestamp in seconds since 1970 with a fraction
//! of nine digits, and digits past the microsecond mean nothing; the response time in seconds; the type R,
//! W, or nothing where no response was seen; offset and size in bytes (SNIA IOTTA repository, trace set 4964,
//! README). Lines without a type are skipped: they don't say what was done.

use std::time::Duration;

use trimtab_core::units::Nanos;

use super::kinds::by_letter;
use crate::error::RowError;
use crate::parse::{Notes, Parse, Parsed};
use crate::rows::Row;
use crate::scan::{Cursor, fields};
use crate::text::{seconds, unknown};

#[derive(Clone, Default)]
pub(crate) struct Systor {
    device: Vec<u8>,
}

impl Parse for Systor {
    type Content = Row;

    #[inline(always)]
    fn quick(&mut self, line: &mut Cursor, notes: &mut Notes) -> Option<Parsed<Row>> {
        notes.clock()?;
        let (time, _) = line.seconds()?;
        line.byte(b',')?;
        let (response, _) = line.seconds()?;
        line.byte(b',')?;
        let kind = by_letter(line.until(b',')?)?;
        let lun = line.until(b',')?;
        let (start, length) = (line.number_and(b',')?, line.number_and(b'\n')?);
        self.device.clear();
        self.device.extend_from_slice(b"lun");
        self.device.extend_from_slice(lun);
        Some(Parsed::Content(Row {
            time,
            device: notes.known(&self.device)?,
            kind,
            start,
            length,
            latency: Some(Nanos(response)),
            ..Row::bare()
        }))
    }

    fn fork(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn line(&mut self, line: &[u8], notes: &mut Notes) -> Result<Parsed<Row>, RowError> {
        let [timestamp, response, io_type, lun, offset, size] = fields(line, b',')?;
        if timestamp.text == b"Timestamp" {
            return Ok(Parsed::Skip("column names"));
        }
        if io_type.text.is_empty() {
            return Ok(Parsed::Skip("requests without a response, of unknown type"));
        }
        let kind = by_letter(io_type.text)
            .ok_or_else(|| unknown("IOType", io_type.text, "is neither R, W nor empty"))?;
        let time = seconds("Timestamp", timestamp.text)?;
        notes.set_clock(Duration::from_nanos(time));
        let latency =
            if response.text.is_empty() { None } else { Some(Nanos(seconds("Response", response.text)?)) };
        self.device.clear();
        self.device.extend_from_slice(b"lun");
        self.device.extend_from_slice(lun.text);
        let device = notes.device(&self.device)?;
        Ok(Parsed::Content(Row {
            time,
            device,
            kind,
            start: offset.number("Offset")?,
            length: size.number("Size")?,
            latency,
            ..Row::bare()
        }))
    }
}

/// Returns true if a line is of this format.
pub(crate) fn is_line(line: &[u8]) -> bool {
    fields(line, b',').is_ok_and(|[timestamp, response, io_type, lun, offset, size]| {
        let numbers = [lun, offset, size].into_iter().all(|field| field.is_number());
        let times = seconds("", timestamp.text).is_ok()
            && (response.text.is_empty() || seconds("", response.text).is_ok());
        matches!(io_type.text, b"R" | b"W" | b"") && numbers && times
    })
}
