//! Reading traces that are lines of text.

use std::path::{Path, PathBuf};

use trimtab_core::trace::{TraceEvent, TraceHeader, TraceSource};

use crate::counts::{ReadCounts, TraceReader};
use crate::error::{RowError, TraceError};
use crate::input::{self, Lines};
use crate::rows::Rows;

/// Events in a batch, at least, but at the end.
const BATCH: usize = 4096;

/// Understands the lines of one format.
pub(crate) trait Parse {
    /// Takes a line that isn't empty: a row or more, or nothing that makes one.
    fn line(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError>;

    /// Takes the end of the text.
    fn end(&mut self, _rows: &mut Rows) -> Result<(), RowError> {
        Ok(())
    }
}

/// A trace of lines.
pub(crate) struct TextTrace<P> {
    path: PathBuf,
    lines: Lines,
    parser: P,
    rows: Rows,
    ended: bool,
}

impl<P: Parse> TextTrace<P> {
    pub(crate) fn open(path: &Path, parser: P, rows: Rows) -> Result<Self, TraceError> {
        let input = input::open(path).map_err(|source| TraceError::Io { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), lines: Lines::new(input), parser, rows, ended: false })
    }

    fn read(&mut self, batch: &mut Vec<TraceEvent>) -> Result<(), RowError> {
        while batch.len() < BATCH && !self.ended {
            let read = self.read_line();
            // What waits behind an error is as good as what went before.
            self.ended |= !matches!(read, Ok(true));
            let ended = if self.ended { self.parser.end(&mut self.rows) } else { Ok(()) };
            let taken = self.rows.take(batch, self.ended);
            read.and(ended).and(taken)?;
        }
        Ok(())
    }

    /// Takes the next line in, if there is one.
    fn read_line(&mut self) -> Result<bool, RowError> {
        let Some(line) = self.lines.next()? else { return Ok(false) };
        self.rows.counts.records += 1;
        if line.is_empty() {
            self.rows.skip("empty lines");
        } else {
            self.parser.line(line, &mut self.rows)?;
        }
        Ok(true)
    }
}

impl<P: Parse> TraceSource for TextTrace<P> {
    type Error = TraceError;

    fn header(&self) -> &TraceHeader {
        &self.rows.header
    }

    fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<(), TraceError> {
        batch.clear();
        let read = self.read(batch);
        self.ended |= read.is_err();
        let row = self.rows.counts.records;
        read.map_err(|reason| TraceError::Row { path: self.path.clone(), row, reason })
    }
}

impl<P: Parse> TraceReader for TextTrace<P> {
    fn counts(&self) -> &ReadCounts {
        &self.rows.counts
    }
}

/// The fields of a line between `comma`s; none unless there are exactly `N`.
pub(crate) fn fields<const N: usize>(line: &[u8], comma: u8) -> Result<[&[u8]; N], RowError> {
    let mut fields = [&line[..0]; N];
    let mut start = 0;
    for (place, field) in fields.iter_mut().enumerate() {
        let rest = line.get(start..).ok_or(RowError::Fields { wanted: N })?;
        let end = memchr::memchr(comma, rest);
        if end.is_some() == (place + 1 == N) {
            return Err(RowError::Fields { wanted: N });
        }
        let end = end.unwrap_or(rest.len());
        *field = rest[..end].trim_ascii();
        start += end + 1;
    }
    Ok(fields)
}

/// The number that `text` is.
pub(crate) fn number(column: &'static str, text: &[u8]) -> Result<u64, RowError> {
    let digits = |value: u64, digit: &u8| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 { None } else { value.checked_mul(10)?.checked_add(u64::from(digit)) }
    };
    let value = if text.is_empty() { None } else { text.iter().try_fold(0, digits) };
    value.ok_or_else(|| unknown(column, text, "is no number, or too large a one"))
}

/// `value` units of which each is `unit` large.
pub(crate) fn scaled(column: &'static str, value: u64, unit: u64) -> Result<u64, RowError> {
    value.checked_mul(unit).ok_or_else(|| unknown(column, value.to_string().as_bytes(), "is too large"))
}

/// What to say of a field that makes no sense.
pub(crate) fn unknown(column: &'static str, text: &[u8], problem: &'static str) -> RowError {
    let text = &text[..text.len().min(80)];
    RowError::Name { column, name: String::from_utf8_lossy(text).into_owned(), problem }
}
