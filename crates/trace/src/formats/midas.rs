//! The traces of MiDAS (FAST '24), which contain trims.
//!
//! Lines of `timestamp type LBA size`: seconds; 0 for a read, 1 for a write, 3 for a trim, and 2, which is not
//! used; an address in units of 4 KiB; a size (README of dgist-datalab/MiDAS). The README names no unit of the
//! size; it is bytes in its example, where consecutive blocks are written with a size of 4096. A fifth number, a
//! stream, is ignored.

use trimtab_core::trace::{Comm, EventKind};

use crate::error::RowError;
use crate::rows::{Row, Rows};
use crate::text::{Parse, number, scaled, seconds, unknown};

/// The bytes of a block.
const BLOCK: u64 = 4096;

pub(crate) struct Midas;

/// Returns the four fields of a line that mean something.
fn split(line: &[u8]) -> Result<[&[u8]; 4], RowError> {
    let wrong = || RowError::Fields { wanted: 4 };
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mut next = || words.next().ok_or_else(wrong);
    let four = [next()?, next()?, next()?, next()?];
    // The stream, and nothing after it.
    if words.next().is_some_and(|stream| number("stream", stream).is_err()) || words.next().is_some() {
        return Err(wrong());
    }
    Ok(four)
}

impl Parse for Midas {
    fn line(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let [timestamp, kind, lba, size] = split(line)?;
        let kind = match kind {
            b"0" => EventKind::Read,
            b"1" => EventKind::Write,
            b"3" => EventKind::Discard,
            b"2" => {
                rows.skip("rows of the type 2, which MiDAS does not use");
                return Ok(());
            }
            _ => return Err(unknown("type", kind, "is none of 0, 1, 2 and 3")),
        };
        let device = rows.device(b"disk")?;
        rows.push(Row {
            time: seconds("timestamp", timestamp)?,
            device,
            kind,
            start: scaled("LBA", number("LBA", lba)?, BLOCK)?,
            length: bytes(size)?,
            latency: None,
            process: Comm::default(),
            error: 0,
        })
    }
}

/// The bytes of a size: whole sectors, or it is of another format that has its columns.
fn bytes(size: &[u8]) -> Result<u64, RowError> {
    let bytes = number("size", size)?;
    let whole = bytes.is_multiple_of(512);
    whole.then_some(bytes).ok_or_else(|| {
        unknown("size", size, "is no multiple of 512 bytes: is it another format, such as disksim?")
    })
}

/// Returns true if all sizes are blocks, which sectors of another format would hardly be.
pub(crate) fn has_blocks(line: &[u8]) -> bool {
    split(line).is_ok_and(|[.., size]| bytes(size).is_ok_and(|bytes| bytes.is_multiple_of(BLOCK)))
}

/// Returns true if a line is of this format.
pub(crate) fn is_line(line: &[u8]) -> bool {
    split(line).is_ok_and(|[timestamp, kind, lba, size]| {
        matches!(kind, b"0" | b"1" | b"2" | b"3")
            && number("", lba).is_ok()
            && bytes(size).is_ok()
            && seconds("", timestamp).is_ok()
    })
}
