//! The block traces of CloudPhysics's customers, a virtual disk a file, as they go around in CSV.
//!
//! Lines of `timestamp,lba,op,size`: the timestamp in microseconds, the address in sectors of 512
//! bytes, `r` or `w`, the size in bytes. CloudPhysics published binary records of VMware's vscsi
//! tracer; this layout is the one that the block-trace profiler Cydonia reads (pbhandar2/cydonia,
//! `CPReader`).

use trimtab_core::trace::{Comm, EventKind};

use crate::error::RowError;
use crate::rows::{Row, Rows};
use crate::text::{Parse, fields, number, scaled, unknown};

pub(crate) struct CloudPhysics;

impl Parse for CloudPhysics {
    fn line(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let [timestamp, lba, op, size] = fields(line, b',')?;
        if timestamp == b"ts" || timestamp == b"timestamp" {
            rows.skip("column names");
            return Ok(());
        }
        let kind = match op {
            b"r" | b"R" => EventKind::Read,
            b"w" | b"W" => EventKind::Write,
            _ => return Err(unknown("op", op, "is neither r nor w")),
        };
        let device = rows.device(b"disk")?;
        rows.push(Row {
            time: scaled("timestamp", number("timestamp", timestamp)?, 1000)?,
            device,
            kind,
            start: scaled("lba", number("lba", lba)?, 512)?,
            length: number("size", size)?,
            latency: None,
            process: Comm::default(),
            error: 0,
        })
    }
}
