//! The block traces that Tencent published: ten days of a cloud's volumes.
//!
//! Lines of `Timestamp,Offset,Size,IOType,VolumeID`: the timestamp in seconds since 1970, offset and
//! size in sectors of 512 bytes, the type 0 for a read and 1 for a write (SNIA IOTTA repository, trace
//! set 27917, README).

use std::time::Duration;

use trimtab_core::trace::{Comm, EventKind};

use crate::error::RowError;
use crate::rows::{Row, Rows};
use crate::text::{Parse, fields, number, scaled, unknown};

pub(crate) struct Tencent;

impl Parse for Tencent {
    fn line(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let [timestamp, offset, size, io_type, volume] = fields(line, b',')?;
        if timestamp == b"Timestamp" {
            rows.skip("column names");
            return Ok(());
        }
        let kind = match io_type {
            b"0" => EventKind::Read,
            b"1" => EventKind::Write,
            _ => return Err(unknown("IOType", io_type, "is neither 0 nor 1")),
        };
        let seconds = number("Timestamp", timestamp)?;
        rows.set_clock(Duration::from_secs(seconds));
        let device = rows.device(volume)?;
        rows.push(Row {
            time: scaled("Timestamp", seconds, 1_000_000_000)?,
            device,
            kind,
            start: scaled("Offset", number("Offset", offset)?, 512)?,
            length: scaled("Size", number("Size", size)?, 512)?,
            latency: None,
            process: Comm::default(),
            error: 0,
        })
    }
}
