//! Tables as CSV (RFC 4180), with the columns' names in the first line.

use std::borrow::Cow;

use super::values::{number_of, required};
use super::{Places, TableNames, TableRow};
use crate::error::RowError;
use crate::file::Column;
use crate::rows::Rows;
use crate::text::{Parse, unknown};

#[derive(Default)]
pub(crate) struct Csv {
    places: Option<(Places, usize)>,
    names: TableNames,
    /// Where the fields of the line at hand begin and end.
    fields: Vec<(usize, usize)>,
}

/// Returns true for a line that names the columns of a trace.
pub(crate) fn is_header(line: &[u8]) -> bool {
    let mut fields = Vec::new();
    let line = without_mark(line);
    split(line, &mut fields).is_ok()
        && ["time_ns", "kind", "start", "length"]
            .iter()
            .all(|name| fields.iter().any(|field| *unquoted(line, *field) == *name.as_bytes()))
}

/// A line without the mark of UTF-8 that some programs begin a file with.
fn without_mark(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
}

/// Finds the fields of a line.
fn split(line: &[u8], fields: &mut Vec<(usize, usize)>) -> Result<(), RowError> {
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
            memchr::memchr(b',', &line[start..]).map_or(line.len(), |length| start + length)
        };
        fields.push((start, end));
        match line.get(end) {
            None => return Ok(()),
            Some(b',') => start = end + 1,
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
    fn line(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let Some((places, columns)) = &self.places else {
            let line = without_mark(line);
            split(line, &mut self.fields)?;
            let names: Vec<_> = self.fields.iter().map(|field| unquoted(line, *field)).collect();
            let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
            let places = Places::find(names.iter().map(|name| &**name), &mut rows.header.gaps);
            self.places = Some((places.map_err(|reason| RowError::Table(reason.to_string()))?, names.len()));
            rows.skip("column names");
            return Ok(());
        };
        split(line, &mut self.fields)?;
        if self.fields.len() != *columns {
            return Err(RowError::Fields { wanted: *columns });
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
        self.names.push(&row, rows)
    }
}
