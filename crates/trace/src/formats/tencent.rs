//! The block traces that Tencent published: ten days of a cloud's volumes.
//!
//! Lines of `Timestamp,Offset,Size,IOType,VolumeID`: the timestamp in seconds since 1970, offset and
//! size in sectors of 512 bytes, the type 0 for a read and 1 for a write (SNIA IOTTA repository, trace
//! set 27917, README).

use std::time::Duration;

use super::kinds::by_digit;
use crate::error::RowError;
use crate::parse::{Notes, Parse, Parsed};
use crate::rows::Row;
use crate::scan::{Cursor, fields};
use crate::text::{scaled, unknown};

pub(crate) struct Tencent;

impl Parse for Tencent {
    type Content = Row;

    #[inline(always)]
    fn quick(&mut self, line: &mut Cursor, notes: &mut Notes) -> Option<Parsed<Row>> {
        notes.clock()?;
        let seconds = line.number_and(b',')?;
        let (start, length) = (line.number_and(b',')?, line.number_and(b',')?);
        let kind = by_digit(line.until(b',')?)?;
        let volume = line.until(b'\n')?;
        Some(Parsed::Content(Row {
            time: seconds.checked_mul(1_000_000_000)?,
            device: notes.known(volume)?,
            kind,
            start: start.checked_mul(512)?,
            length: length.checked_mul(512)?,
            ..Row::bare()
        }))
    }

    fn fork(&self) -> Option<Self> {
        Some(Self)
    }

    fn line(&mut self, line: &[u8], notes: &mut Notes) -> Result<Parsed<Row>, RowError> {
        let [timestamp, offset, size, io_type, volume] = fields(line, b',')?;
        if timestamp.text == b"Timestamp" {
            return Ok(Parsed::Skip("column names"));
        }
        let kind =
            by_digit(io_type.text).ok_or_else(|| unknown("IOType", io_type.text, "is neither 0 nor 1"))?;
        let seconds = timestamp.number("Timestamp")?;
        notes.set_clock(Duration::from_secs(seconds));
        let device = notes.device(volume.text)?;
        Ok(Parsed::Content(Row {
            time: scaled("Timestamp", seconds, 1_000_000_000)?,
            device,
            kind,
            start: scaled("Offset", offset.number("Offset")?, 512)?,
            length: scaled("Size", size.number("Size")?, 512)?,
            ..Row::bare()
        }))
    }
}
