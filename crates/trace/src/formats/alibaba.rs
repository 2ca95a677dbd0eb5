//! The block traces that Alibaba published: a month of 1000 virtual disks.
//!
//! Lines of `device_id,opcode,offset,length,timestamp`: the opcode is R or W, offset and length are
//! in bytes, the timestamp in microseconds since 1970 (github.com/alibaba/block-traces, "Schema").

use std::time::Duration;

use trimtab_core::trace::{Comm, EventKind};

use crate::error::RowError;
use crate::rows::{Row, Rows};
use crate::text::{Parse, fields, number, scaled, unknown};

pub(crate) struct Alibaba;

impl Parse for Alibaba {
    fn line(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let [device, opcode, offset, length, timestamp] = fields(line, b',')?;
        if device == b"device_id" {
            rows.skip("column names");
            return Ok(());
        }
        let kind = match opcode {
            b"R" => EventKind::Read,
            b"W" => EventKind::Write,
            _ => return Err(unknown("opcode", opcode, "is neither R nor W")),
        };
        let microseconds = number("timestamp", timestamp)?;
        rows.set_clock(Duration::from_micros(microseconds));
        let device = rows.device(device)?;
        rows.push(Row {
            time: scaled("timestamp", microseconds, 1000)?,
            device,
            kind,
            start: number("offset", offset)?,
            length: number("length", length)?,
            latency: None,
            process: Comm::default(),
            error: 0,
        })
    }
}
