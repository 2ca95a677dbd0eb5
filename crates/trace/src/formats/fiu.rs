//! The block traces of Florida International University (IODedup, FAST '10): home directories, a mail server,
//! a web server.
//!
//! Lines of `ts pid process lba size type major minor MD5`: nanoseconds, an address and a size in sectors of
//! 512 bytes, W or R, and a digest of the contents, which is ignored (SNIA IOTTA repository, trace set 391,
//! README). The README does not say when the clock shows zero, so the header has no date. No description of
//! the layout of the same authors' SRCMap traces (FAST '10) could be found: those in this one are read.

use trimtab_core::trace::Comm;

use super::kinds::by_letter;
use crate::error::RowError;
use crate::parse::{Notes, Parse, Parsed};
use crate::rows::Row;
use crate::scan::Cursor;
use crate::text::{number, scaled, unknown};

/// The fields that a line has; a process's name with spaces in it adds more.
const FIELDS: usize = 9;
/// The fields after the process's name.
const AFTER: usize = 6;

#[derive(Clone, Default)]
pub(crate) struct Fiu {
    device: Vec<u8>,
}

/// The fields of a line.
struct Line<'a> {
    time: &'a [u8],
    process: &'a [u8],
    lba: &'a [u8],
    size: &'a [u8],
    kind: &'a [u8],
    number: [&'a [u8]; 2],
}

impl<'a> Line<'a> {
    fn split(line: &'a [u8]) -> Result<Self, RowError> {
        let wrong = || RowError::Fields { wanted: FIELDS };
        let is_space = |byte: &u8| byte.is_ascii_whitespace();
        let mut back = line.rsplitn(AFTER + 1, is_space);
        let mut last = || back.next().ok_or_else(wrong);
        let [_digest, minor, major, kind, size, lba] = [last()?, last()?, last()?, last()?, last()?, last()?];
        let mut front = last()?.splitn(3, is_space);
        let mut first = || front.next().ok_or_else(wrong);
        let [time, _pid, process] = [first()?, first()?, first()?];
        Ok(Self { time, process, lba, size, kind, number: [major, minor] })
    }
}

impl Parse for Fiu {
    type Content = Row;

    #[inline(always)]
    fn quick(&mut self, line: &mut Cursor, notes: &mut Notes) -> Option<Parsed<Row>> {
        let time = line.number_and(b' ')?;
        let _pid = line.word_and(b' ')?;
        let process = line.word_and(b' ')?;
        let (start, length) = (line.number_and(b' ')?, line.number_and(b' ')?);
        let kind = by_letter(line.word_and(b' ')?)?;
        let (major, minor) = (line.word_and(b' ')?, line.word_and(b' ')?);
        let _digest = line.word_and(b'\n')?;
        let is_last = self.device.strip_prefix(major)?.strip_prefix(b",")? == minor;
        is_last.then_some(())?;
        Some(Parsed::Content(Row {
            time,
            device: notes.known(&self.device)?,
            kind,
            start: start.checked_mul(512)?,
            length: length.checked_mul(512)?,
            process: Comm::new(process),
            ..Row::bare()
        }))
    }

    fn fork(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn line(&mut self, line: &[u8], notes: &mut Notes) -> Result<Parsed<Row>, RowError> {
        let line = Line::split(line.trim_ascii())?;
        let kind = by_letter(line.kind).ok_or_else(|| unknown("type", line.kind, "is neither R nor W"))?;
        self.device.clear();
        self.device.extend_from_slice(line.number[0]);
        self.device.push(b',');
        self.device.extend_from_slice(line.number[1]);
        let device = notes.device(&self.device)?;
        Ok(Parsed::Content(Row {
            time: number("ts", line.time)?,
            device,
            kind,
            start: scaled("lba", number("lba", line.lba)?, 512)?,
            length: scaled("size", number("size", line.size)?, 512)?,
            process: Comm::new(line.process),
            ..Row::bare()
        }))
    }
}

/// Returns true if a line is of this format.
pub(crate) fn is_line(line: &[u8]) -> bool {
    let is_number = |text: &[u8]| number("", text).is_ok();
    Line::split(line).is_ok_and(|line| {
        let numbers = [line.time, line.lba, line.size, line.number[0], line.number[1]];
        matches!(line.kind, b"R" | b"W") && numbers.into_iter().all(is_number)
    })
}
