//! Tables as CSV (RFC 4180), with the columns' names in the first line, which shows by what fields are separated.

use std::borrow::Cow;

use trimtab_core::trace::{Comm, FsIndex};
use trimtab_core::units::Nanos;

use super::values::{number_of, required};
use super::{NEEDED, Places, TableNames, TableRow, kind_of};
use crate::error::RowError;
use crate::file::Column;
use crate::parse::{Content, Notes, Numbers, Parse, Parsed};
use crate::rows::{Row, Rows};
use crate::scan::Cursor;
use crate::text::unknown;

#[derive(Clone, Default)]
pub(crate) struct Csv {
    /// Set by the line of names.
    places: Option<Places>,
    /// The column of each field of a line, or nothing for a field that is not read.
    columns: Vec<Option<Column>>,
    /// The byte between fields.
    separator: u8,
    names: TableNames,
    /// Where the fields of the line at hand begin and end.
    fields: Vec<(usize, usize)>,
}

/// The bytes that programs put between fields.
const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// Returns true for a line that names the columns of a trace.
pub(crate) fn is_header(line: &[u8]) -> bool {
    separator_of(without_mark(line)).is_some()
}

/// Returns the byte between the names in a line that names the columns of a trace.
fn separator_of(line: &[u8]) -> Option<u8> {
    let mut fields = Vec::new();
    SEPARATORS.into_iter().find(|separator| {
        split(line, *separator, &mut fields).is_ok()
            && NEEDED
                .map(Column::name)
                .iter()
                .all(|name| fields.iter().any(|field| *unquoted(line, *field) == *name.as_bytes()))
    })
}

/// A line without the mark of UTF-8 that some programs begin a file with.
fn without_mark(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
}

/// Finds the fields of a line.
fn split(line: &[u8], separator: u8, fields: &mut Vec<(usize, usize)>) -> Result<(), RowError> {
    fields.clear();
    let mut start = 0;
    loop {
        let end = if line.get(start) == Some(&b'"') {
            let mut at = start + 1;
            loop {
                let quote = memchr::memchr(b'"', &line[at..])
                    .ok_or_else(|| unknown("line", line, "ends in quotes"))?;
                at += quote + 1;
                if line.get(at) != Some(&b'"') {
                    break at;
                }
                at += 1;
            }
        } else {
            memchr::memchr(separator, &line[start..]).map_or(line.len(), |length| start + length)
        };
        fields.push((start, end));
        match line.get(end) {
            None => return Ok(()),
            Some(byte) if *byte == separator => start = end + 1,
            Some(_) => return Err(unknown("line", line, "has a quote in the middle of a field")),
        }
    }
}

/// The text of a field.
fn unquoted(line: &[u8], (start, end): (usize, usize)) -> Cow<'_, [u8]> {
    let field = &line[start..end];
    let Some(inner) = field.strip_prefix(b"\"").and_then(|field| field.strip_suffix(b"\"")) else {
        return Cow::Borrowed(field.trim_ascii());
    };
    if memchr::memchr(b'"', inner).is_none() {
        return Cow::Borrowed(inner);
    }
    let mut text = inner.to_vec();
    let mut was_quote = false;
    text.retain(|byte| {
        was_quote = *byte == b'"' && !was_quote;
        *byte != b'"' || was_quote
    });
    Cow::Owned(text)
}

impl Parse for Csv {
    type Content = TableLine;

    #[inline(always)]
    fn quick(&mut self, line: &mut Cursor, notes: &mut Notes) -> Option<Parsed<TableLine>> {
        self.places.as_ref()?;
        let mut row = QuickRow::default();
        for (place, column) in self.columns.iter().enumerate() {
            let end = if place + 1 == self.columns.len() { b'\n' } else { self.separator };
            match column {
                Some(Column::Time) => row.time = Some(line.number_and(end)?),
                Some(Column::Start) => row.start = Some(line.number_and(end)?),
                Some(Column::Length) => row.length = Some(line.number_and(end)?),
                Some(Column::Latency) => row.latency = number_if_any(line, end)?,
                Some(Column::Error) => row.error = number_if_any(line, end)?.unwrap_or(0),
                Some(Column::Kind) => row.kind = text(line, end)?,
                Some(Column::Device) => row.device = text(line, end)?,
                Some(Column::Process) => row.process = text(line, end)?,
                // A trace has few events of file systems.
                Some(Column::FileSystem) => text(line, end)?.is_empty().then_some(())?,
                None => _ = text(line, end)?,
            }
        }
        let kind = kind_of(row.kind)?;
        let device = if row.device.is_empty() { b"disk" } else { row.device };
        let row = Row {
            time: row.time?,
            device: notes.known(device)?,
            kind,
            start: row.start?,
            length: row.length?,
            latency: row.latency.map(Nanos),
            process: Comm::new(row.process),
            error: u16::try_from(row.error).ok()?,
        };
        Some(Parsed::Content(TableLine { row, file_system: None }))
    }

    fn fork(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn line(&mut self, line: &[u8], notes: &mut Notes) -> Result<Parsed<TableLine>, RowError> {
        let Some(places) = &self.places else {
            let line = without_mark(line);
            self.separator = separator_of(line).unwrap_or(b',');
            split(line, self.separator, &mut self.fields)?;
            let names: Vec<_> = self.fields.iter().map(|field| unquoted(line, *field)).collect();
            let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
            let mut gaps = Vec::new();
            let places = Places::find(names.iter().map(|name| &**name), &mut gaps);
            gaps.into_iter().for_each(|gap| notes.gap(gap));
            let column = |name: &Cow<str>| Column::ALL.into_iter().find(|column| column.name() == *name);
            self.columns = names.iter().map(column).collect();
            self.places = Some(places.map_err(|reason| RowError::Table(reason.to_string()))?);
            return Ok(Parsed::Skip("column names"));
        };
        split(line, self.separator, &mut self.fields)?;
        if self.fields.len() != self.columns.len() {
            return Err(RowError::Fields { wanted: self.columns.len() });
        }
        let text = |column| {
            places.of(column).map_or(Cow::Borrowed(&b""[..]), |place| unquoted(line, self.fields[place]))
        };
        let number = |column: Column| number_of(column.name(), &text(column));
        let needed = |column: Column| required(column.name(), number(column)?);
        let (device, kind, process, file_system) =
            (text(Column::Device), text(Column::Kind), text(Column::Process), text(Column::FileSystem));
        let row = TableRow {
            time: needed(Column::Time)?,
            device: (!device.is_empty()).then_some(&*device),
            kind: &kind,
            start: needed(Column::Start)?,
            length: needed(Column::Length)?,
            latency: number(Column::Latency)?,
            process: &process,
            error: number(Column::Error)?.unwrap_or(0),
            file_system: (!file_system.is_empty()).then_some(&*file_system),
        };
        let (row, file_system) = self.names.row(&row, notes)?;
        Ok(Parsed::Content(TableLine { row, file_system }))
    }
}

/// The fields of a line without quotes.
#[derive(Default)]
struct QuickRow<'a> {
    time: Option<u64>,
    device: &'a [u8],
    kind: &'a [u8],
    start: Option<u64>,
    length: Option<u64>,
    latency: Option<u64>,
    process: &'a [u8],
    error: u64,
}

/// Takes a field that is a number or empty.
#[inline(always)]
fn number_if_any(line: &mut Cursor, end: u8) -> Option<Option<u64>> {
    if line.is_at_digit() { line.number_and(end).map(Some) } else { line.byte(end).map(|()| None) }
}

/// Takes a field that is a text without quotes.
#[inline(always)]
fn text<'a>(line: &mut Cursor<'a>, end: u8) -> Option<&'a [u8]> {
    line.until(end).filter(|text| text.first() != Some(&b'"'))
}

/// The content of a line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableLine {
    row: Row,
    file_system: Option<FsIndex>,
}

impl Content for TableLine {
    type State = ();

    fn renumber(&mut self, numbers: &Numbers) {
        self.row.renumber(numbers);
        self.file_system = self.file_system.map(|it| numbers.file_system(it));
    }

    fn take(&self, (): &mut (), rows: &mut Rows) -> Result<(), RowError> {
        rows.push_of(&self.row, self.file_system)
    }

    fn end((): &mut (), _rows: &mut Rows) -> Result<(), RowError> {
        Ok(())
    }
}
