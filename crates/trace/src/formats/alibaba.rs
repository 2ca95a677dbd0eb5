//! The block traces that Alibaba published: a month of 1000 virtual disks.
//!
//! Lines of `device_id,opcode,offset,length,timestamp`: the opcode is R or W, offset and length are
//! in bytes, the timestamp in microseconds since 1970 (github.com/alibaba/block-traces, "Schema").

use std::time::Duration;

use super::kinds::by_letter;
use crate::error::RowError;
use crate::parse::{Notes, Parse, Parsed};
use crate::rows::Row;
use crate::scan::{Cursor, fields};
use crate::text::{scaled, unknown};

pub(crate) struct Alibaba;

impl Parse for Alibaba {
    type Content = Row;

    #[inline(always)]
    fn quick(&mut self, line: &mut Cursor, notes: &mut Notes) -> Option<Parsed<Row>> {
        notes.clock()?;
        let device = line.until(b',')?;
        let kind = by_letter(line.until(b',')?)?;
        let (start, length) = (line.number_and(b',')?, line.number_and(b',')?);
        let microseconds = line.number_and(b'\n')?;
        Some(Parsed::Content(Row {
            time: microseconds.checked_mul(1000)?,
            device: notes.known(device)?,
            kind,
            start,
            length,
            ..Row::bare()
        }))
    }

    fn fork(&self) -> Option<Self> {
        Some(Self)
    }

    fn line(&mut self, line: &[u8], notes: &mut Notes) -> Result<Parsed<Row>, RowError> {
        let [device, opcode, offset, length, timestamp] = fields(line, b',')?;
        if device.text == b"device_id" {
            return Ok(Parsed::Skip("column names"));
        }
        let kind =
            by_letter(opcode.text).ok_or_else(|| unknown("opcode", opcode.text, "is neither R nor W"))?;
        let microseconds = timestamp.number("timestamp")?;
        notes.set_clock(Duration::from_micros(microseconds));
        let device = notes.device(device.text)?;
        Ok(Parsed::Content(Row {
            time: scaled("timestamp", microseconds, 1000)?,
            device,
            kind,
            start: offset.number("offset")?,
            length: length.number("length")?,
            ..Row::bare()
        }))
    }
}
