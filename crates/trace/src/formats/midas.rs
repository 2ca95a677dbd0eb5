//! The traces of MiDAS (FAST '24), which contain trims.
//!
//! Lines of `timestamp type LBA size`: seconds; 0 for a read, 1 for a write, 3 for a trim, and 2, which is not
//! used; an address in units of 4 KiB; a size (README of dgist-datalab/MiDAS). The README names no unit of the
//! size; it is bytes in its example, where consecutive blocks are written with a size of 4096. A fifth number, a
//! stream, is ignored.

use trimtab_core::trace::EventKind;

use crate::error::RowError;
use crate::parse::{Notes, Parse, Parsed};
use crate::rows::Row;
use crate::scan::{Cursor, Field, Words};
use crate::text::{scaled, seconds, unknown};

/// The bytes of a block.
const BLOCK: u64 = 4096;

pub(crate) struct Midas;

/// Returns the four fields of a line that mean something.
fn split(line: &[u8]) -> Result<[Field<'_>; 4], RowError> {
    let wrong = || RowError::Fields { wanted: 4 };
    let mut words = Words::<false>::of(line);
    let mut next = || words.next().ok_or_else(wrong);
    let four = [next()?, next()?, next()?, next()?];
    // The stream, and nothing after it.
    if words.next().is_some_and(|stream| stream.number("stream").is_err()) || words.next().is_some() {
        return Err(wrong());
    }
    Ok(four)
}

/// Returns the kind of a row, as the format writes it.
#[inline]
fn kind_of(text: &[u8]) -> Option<EventKind> {
    Some(match text {
        b"0" => EventKind::Read,
        b"1" => EventKind::Write,
        b"3" => EventKind::Discard,
        _ => return None,
    })
}

impl Parse for Midas {
    type Content = Row;

    #[inline(always)]
    fn quick(&mut self, line: &mut Cursor, notes: &mut Notes) -> Option<Parsed<Row>> {
        let (time, _) = line.seconds()?;
        line.byte(b' ')?;
        let kind = kind_of(line.word()?)?;
        line.byte(b' ')?;
        let (block, length) = (line.number_and(b' ')?, line.number_and(b'\n')?);
        length.is_multiple_of(512).then_some(())?;
        Some(Parsed::Content(Row {
            time,
            device: notes.known(b"disk")?,
            kind,
            start: block.checked_mul(BLOCK)?,
            length,
            ..Row::bare()
        }))
    }

    fn fork(&self) -> Option<Self> {
        Some(Self)
    }

    fn line(&mut self, line: &[u8], notes: &mut Notes) -> Result<Parsed<Row>, RowError> {
        let [timestamp, kind, lba, size] = split(line)?;
        if kind.text == b"2" {
            return Ok(Parsed::Skip("rows of the type 2, which MiDAS does not use"));
        }
        let kind =
            kind_of(kind.text).ok_or_else(|| unknown("type", kind.text, "is none of 0, 1, 2 and 3"))?;
        let device = notes.device(b"disk")?;
        Ok(Parsed::Content(Row {
            time: seconds("timestamp", timestamp.text)?,
            device,
            kind,
            start: scaled("LBA", lba.number("LBA")?, BLOCK)?,
            length: bytes(size)?,
            ..Row::bare()
        }))
    }
}

/// The bytes of a size: whole sectors, or it is of another format that has its columns.
fn bytes(size: Field) -> Result<u64, RowError> {
    let bytes = size.number("size")?;
    let whole = bytes.is_multiple_of(512);
    whole.then_some(bytes).ok_or_else(|| {
        unknown("size", size.text, "is no multiple of 512 bytes: is it another format, such as disksim?")
    })
}

/// Returns true if all sizes are blocks, which sectors of another format would hardly be.
pub(crate) fn has_blocks(line: &[u8]) -> bool {
    split(line).is_ok_and(|[.., size]| bytes(size).is_ok_and(|bytes| bytes.is_multiple_of(BLOCK)))
}

/// Returns true if a line is of this format.
pub(crate) fn is_line(line: &[u8]) -> bool {
    split(line).is_ok_and(|[timestamp, kind, lba, size]| {
        matches!(kind.text, b"0" | b"1" | b"2" | b"3")
            && lba.number("").is_ok()
            && bytes(size).is_ok()
            && seconds("", timestamp.text).is_ok()
    })
}
