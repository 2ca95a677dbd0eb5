//! The logs that fio writes with `write_iolog`, versions 1 to 3 (fio's manual, "Trace file format").
//!
//! Version 1: lines of `rw, offset, length`, 0 for a read and 1 for a write. Version 2: lines of
//! `file action [offset length]`; the action `wait` has the microseconds since the last wait. Version 3:
//! the same without `wait`, each line after the microseconds since the start. Offsets and lengths are in
//! bytes.

use trimtab_core::trace::{Comm, EventKind};

use crate::error::RowError;
use crate::rows::{Row, Rows};
use crate::text::{Parse, fields, number, scaled, unknown};

/// The version of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
    Three,
}

pub(crate) struct Fio {
    version: Version,
    /// The microseconds waited so far.
    waited: u64,
}

impl Fio {
    pub(crate) const fn new(version: Version) -> Self {
        Self { version, waited: 0 }
    }
}

impl Parse for Fio {
    fn line(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        if self.version == Version::One {
            let [rw, offset, length] = fields(line, b',')?;
            let kind = match rw {
                b"0" => EventKind::Read,
                b"1" => EventKind::Write,
                _ => return Err(unknown("rw", rw, "is neither 0 nor 1")),
            };
            return push(rows, 0, b"file", kind, number("offset", offset)?, number("length", length)?);
        }
        if line.starts_with(b"fio version") {
            rows.skip("version lines");
            return Ok(());
        }
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let mut next = || words.next().ok_or(RowError::Fields { wanted: 2 });
        let time = match self.version {
            Version::Three => number("timestamp", next()?)?,
            _ => self.waited,
        };
        let (file, action) = (next()?, next()?);
        let kind = match action {
            b"read" => EventKind::Read,
            b"write" => EventKind::Write,
            b"trim" => EventKind::Discard,
            b"sync" | b"datasync" => EventKind::Flush,
            b"wait" if self.version == Version::Two => {
                let more = number("offset", next()?)?;
                self.waited = self.waited.checked_add(more).ok_or_else(|| too_long(more))?;
                rows.skip("waits");
                return Ok(());
            }
            b"add" | b"open" | b"close" => {
                rows.skip("file actions");
                return Ok(());
            }
            b"sync_file_range" => {
                rows.skip("partial syncs");
                return Ok(());
            }
            _ => return Err(unknown("action", action, "fio has no action of")),
        };
        if kind == EventKind::Flush {
            return push(rows, time, file, kind, 0, 0);
        }
        let (offset, length) = (number("offset", next()?)?, number("length", next()?)?);
        push(rows, time, file, kind, offset, length)
    }
}

fn too_long(waited: u64) -> RowError {
    unknown("offset", waited.to_string().as_bytes(), "is too long to wait")
}

fn push(
    rows: &mut Rows,
    microseconds: u64,
    file: &[u8],
    kind: EventKind,
    start: u64,
    length: u64,
) -> Result<(), RowError> {
    let (time, device) = (scaled("timestamp", microseconds, 1000)?, rows.device(file)?);
    rows.push(Row { time, device, kind, start, length, latency: None, process: Comm::default(), error: 0 })
}
