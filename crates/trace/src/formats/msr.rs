//! The block traces that Microsoft Research Cambridge published: a week of 36 volumes of its servers.
//!
//! Lines of `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`: the timestamp is a Windows
//! file time (ticks of 100 ns since 1601), the type Read or Write, offset and size are in bytes, the
//! response time in ticks of 100 ns (SNIA IOTTA repository, trace set 388, README).

use std::time::Duration;

use trimtab_core::trace::{Comm, EventKind};
use trimtab_core::units::Nanos;

use crate::error::RowError;
use crate::rows::{Row, Rows};
use crate::text::{Parse, fields, number, scaled, unknown};

/// From 1601 to 1970, in ticks.
const EPOCH: u64 = 11_644_473_600 * 10_000_000;

#[derive(Default)]
pub(crate) struct Msr {
    device: Vec<u8>,
}

impl Parse for Msr {
    fn line(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let [timestamp, host, disk, kind, offset, size, response] = fields(line, b',')?;
        if timestamp == b"Timestamp" {
            rows.skip("column names");
            return Ok(());
        }
        let kind = match kind {
            b"Read" => EventKind::Read,
            b"Write" => EventKind::Write,
            _ => return Err(unknown("Type", kind, "is neither Read nor Write")),
        };
        let ticks = number("Timestamp", timestamp)?;
        let ticks = ticks.checked_sub(EPOCH);
        let ticks = ticks.ok_or_else(|| unknown("Timestamp", timestamp, "is no file time after 1970"))?;
        let time = scaled("Timestamp", ticks, 100)?;
        rows.set_clock(Duration::from_nanos(time));
        self.device.clear();
        self.device.extend_from_slice(host);
        self.device.push(b'_');
        self.device.extend_from_slice(disk);
        let device = rows.device(&self.device)?;
        rows.push(Row {
            time,
            device,
            kind,
            start: number("Offset", offset)?,
            length: number("Size", size)?,
            latency: Some(Nanos(scaled("ResponseTime", number("ResponseTime", response)?, 100)?)),
            process: Comm::default(),
            error: 0,
        })
    }
}
