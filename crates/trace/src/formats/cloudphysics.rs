//! The block traces of CloudPhysics's customers, a virtual disk a file, as they go around in CSV.
//!
//! Lines of `timestamp,lba,op,size`: the timestamp in microseconds, the address in sectors of 512
//! bytes, `r` or `w`, the size in bytes. CloudPhysics published binary records of VMware's vscsi
//! tracer, which the module `vscsi` reads; this layout is the one that the block-trace profiler Cydonia reads
//! (pbhandar2/cydonia, `CPReader`). libCacheSim distributes lines of `version,time,op,size,lbn`, with the operation as
//! its SCSI opcode; its columns are found by their names in the first line.

use trimtab_core::trace::{Comm, EventKind};

use super::vscsi;
use crate::error::RowError;
use crate::rows::{Row, Rows};
use crate::text::{Parse, fields, number, scaled, unknown};

#[derive(Default)]
pub(crate) struct CloudPhysics {
    /// Lines have libCacheSim's columns.
    is_libcachesim: bool,
}

/// The names of libCacheSim's columns.
const LIBCACHESIM: &[u8] = b"version,time,op,size,lbn";

impl Parse for CloudPhysics {
    fn line(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        if is_libcachesim(line) {
            self.is_libcachesim = true;
            rows.skip("column names");
            return Ok(());
        }
        let [timestamp, lba, op, size] = if self.is_libcachesim {
            let [_version, timestamp, op, size, lbn] = fields(line, b',')?;
            [timestamp, lbn, op, size]
        } else {
            fields(line, b',')?
        };
        if timestamp == b"ts" || timestamp == b"timestamp" {
            rows.skip("column names");
            return Ok(());
        }
        let kind = match op {
            b"r" | b"R" => EventKind::Read,
            b"w" | b"W" => EventKind::Write,
            _ if self.is_libcachesim => {
                let opcode = u16::try_from(number("op", op)?).unwrap_or(u16::MAX);
                let Some(kind) = vscsi::kind_of(opcode) else {
                    rows.skip(vscsi::other(opcode));
                    return Ok(());
                };
                kind
            }
            _ => return Err(unknown("op", op, "is neither r nor w")),
        };
        let is_flush = kind == EventKind::Flush;
        let device = rows.device(b"disk")?;
        rows.push(Row {
            time: scaled("timestamp", number("timestamp", timestamp)?, 1000)?,
            device,
            kind,
            start: if is_flush { 0 } else { scaled("lba", number("lba", lba)?, 512)? },
            length: if is_flush { 0 } else { number("size", size)? },
            latency: None,
            process: Comm::default(),
            error: 0,
        })
    }
}

/// Returns true for the names of libCacheSim's columns, with or without spaces.
pub(crate) fn is_libcachesim(line: &[u8]) -> bool {
    line.iter().filter(|byte| **byte != b' ').eq(LIBCACHESIM)
}
