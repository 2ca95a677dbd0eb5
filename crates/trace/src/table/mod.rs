//! Traces as tables that other programs wrote: Parquet, Arrow IPC, and CSV with the columns' names in the first line.
//!
//! The columns are those of our own files, in any order: `time_ns`, `kind`, `start` and `length` are needed, `device`,
//! `latency_ns`, `process`, `error` and `file_system` may lack. Others are ignored, and named.

mod arrow;
mod csv;
mod messages;
mod parquet;
mod values;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use trimtab_core::trace::{Comm, DeviceIndex, EventKind, FsIndex, TraceHeader};
use trimtab_core::units::Nanos;

pub(crate) use self::arrow::{is_arrow, open as open_arrow};
pub(crate) use self::csv::{Csv, is_header};
use self::values::required;
use crate::counts::TraceReader;
use crate::error::{HeaderError, RowError, TraceError};
use crate::file::{Column, Columns, TraceFile, is_ours};
use crate::input;
use crate::parse::Notes;
use crate::rows::{Row, Rows};
use crate::text::unknown;

/// The columns that a table needs to be a trace.
const NEEDED: [Column; 4] = [Column::Time, Column::Kind, Column::Start, Column::Length];

/// Opens the Parquet file at `path`: one of our own, or a table of another program.
pub(crate) fn open_parquet(path: &Path, columns: Columns) -> Result<Box<dyn TraceReader + Send>, TraceError> {
    let io = |source| TraceError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    // What is damaged is judged by the reader of our own files.
    match parquet::Table::open(file) {
        Some(table) if !is_ours(table.metadata()) => Ok(Box::new(table.into_reader(path, columns)?)),
        _ if is_packed(path).map_err(io)? => {
            let reason = HeaderError::Unpack("a packed Parquet file: unpack it first");
            Err(TraceError::Header { path: path.to_owned(), reason })
        }
        _ => Ok(Box::new(TraceFile::open(path)?.with_columns(columns))),
    }
}

/// How a Parquet file begins.
const PARQUET: &[u8; 4] = b"PAR1";

/// Whether a file is one of Parquet only after unpacking: tables are read at any place, which packed files do not have.
fn is_packed(path: &Path) -> io::Result<bool> {
    let begins = |mut input: &mut dyn Read| {
        let mut begin = [0; 4];
        Ok::<_, io::Error>(input::fill(&mut input, &mut begin)? == begin.len() && begin == *PARQUET)
    };
    if begins(&mut File::open(path)?)? {
        return Ok(false);
    }
    begins(&mut input::open_here(path)?)
}

/// Where a table has each column of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Places([Option<usize>; 9]);

impl Places {
    /// Finds the columns among `names`, and names those that are not read in a gap.
    fn find<'a>(names: impl Iterator<Item = &'a str>, gaps: &mut Vec<String>) -> Result<Self, HeaderError> {
        let mut places = [None; 9];
        let mut others = Vec::new();
        for (place, name) in names.enumerate() {
            match Column::ALL.into_iter().find(|column| column.name() == name) {
                Some(column) if places[column as usize].is_some() => {
                    return Err(HeaderError::Table(format!("it has two columns {name}")));
                }
                Some(column) => places[column as usize] = Some(place),
                None => others.push(name.to_owned()),
            }
        }
        if let Some(lacking) = NEEDED.into_iter().find(|column| places[*column as usize].is_none()) {
            let needed = NEEDED.map(Column::name).join(", ");
            return Err(HeaderError::Table(format!(
                "it has no column {}; needed are {needed}",
                lacking.name()
            )));
        }
        others.retain(|name| !name.is_empty() && !name.starts_with("__index_level_"));
        if !others.is_empty() {
            gaps.push(format!("columns that are not read: {}", others.join(", ")));
        }
        Ok(Self(places))
    }

    fn of(&self, column: Column) -> Option<usize> {
        self.0[column as usize]
    }
}

/// A row of a table.
struct TableRow<'a> {
    time: u64,
    device: Option<&'a [u8]>,
    kind: &'a [u8],
    start: u64,
    length: u64,
    latency: Option<u64>,
    process: &'a [u8],
    error: u64,
    file_system: Option<&'a [u8]>,
}

/// Returns the rows and names that a table of a format begins with, by the trace's header in its metadata, if it has one.
fn begin(format: &str, header: Result<TraceHeader, HeaderError>) -> Result<(Rows, TableNames), HeaderError> {
    match header {
        Ok(header) => {
            let names = TableNames::of(&header);
            Ok((Rows::with_header(header), names))
        }
        Err(HeaderError::Missing) => {
            let mut rows = Rows::new(format, true);
            rows.header.has_discards = true;
            Ok((rows, TableNames::default()))
        }
        Err(reason) => Err(reason),
    }
}

/// Texts of a column in some rows.
trait Texts {
    fn text(&self, row: usize) -> Option<&[u8]>;
}

/// The values of a column in some rows.
enum Values<T> {
    Numbers(Vec<Option<u64>>),
    Texts(T),
}

/// The values of the columns in some rows, read column by column.
struct Batch<T>([Option<Values<T>>; 9]);

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self([const { None }; 9])
    }
}

impl<T: Texts> Batch<T> {
    fn number(&self, column: Column, row: usize) -> Option<u64> {
        match &self.0[column as usize] {
            Some(Values::Numbers(numbers)) => numbers[row],
            _ => None,
        }
    }

    fn text(&self, column: Column, row: usize) -> Option<&[u8]> {
        match &self.0[column as usize] {
            Some(Values::Texts(texts)) => texts.text(row),
            _ => None,
        }
    }
}

/// An error of a value among some rows.
struct AtRow {
    /// The number of its row, from 1.
    row: u64,
    reason: RowError,
}

impl AtRow {
    /// Counts the rows to this one.
    fn count(self, rows: &mut Rows) -> RowError {
        rows.counts.records += self.row;
        self.reason
    }
}

/// The names in a table.
#[derive(Clone, Default)]
struct TableNames {
    file_systems: HashMap<Vec<u8>, FsIndex>,
}

/// Returns the kind of event that has this name.
#[inline]
fn kind_of(name: &[u8]) -> Option<EventKind> {
    EventKind::ALL.into_iter().find(|kind| kind.name().as_bytes() == name)
}

impl TableNames {
    /// The names of a table that has a trace's header.
    fn of(header: &TraceHeader) -> Self {
        let names = crate::file::file_system_names(header).into_iter().map(String::into_bytes);
        Self { file_systems: names.zip((0..).map(FsIndex)).collect() }
    }

    /// Takes the first `count` rows in.
    fn push_all(&mut self, cells: &Batch<impl Texts>, count: usize, rows: &mut Rows) -> Result<(), RowError> {
        for row in 0..count {
            let needed = |column: Column| required(column.name(), cells.number(column, row));
            let text = |column| cells.text(column, row);
            rows.counts.records += 1;
            let row = TableRow {
                time: needed(Column::Time)?,
                device: text(Column::Device),
                kind: text(Column::Kind).unwrap_or_default(),
                start: needed(Column::Start)?,
                length: needed(Column::Length)?,
                latency: cells.number(Column::Latency, row),
                process: text(Column::Process).unwrap_or_default(),
                error: cells.number(Column::Error, row).unwrap_or(0),
                file_system: text(Column::FileSystem),
            };
            self.push(&row, rows)?;
        }
        Ok(())
    }

    fn push(&mut self, row: &TableRow, rows: &mut Rows) -> Result<(), RowError> {
        let (row, fs) = self.row(row, rows)?;
        rows.push_of(&row, fs)
    }

    /// Returns a row and its file system, with numbers in place of names; `header` takes names that are new.
    fn row(&mut self, row: &TableRow, header: &mut impl Header) -> Result<(Row, Option<FsIndex>), RowError> {
        let kind = kind_of(row.kind);
        let kind = kind.ok_or_else(|| unknown("kind", row.kind, "is no kind of event"))?;
        let device = header.device(row.device.unwrap_or(b"disk"))?;
        let fs = row.file_system.map(|name| self.file_system(name, header)).transpose()?;
        let error = u16::try_from(row.error);
        let row = Row {
            time: row.time,
            device,
            kind,
            start: row.start,
            length: row.length,
            latency: row.latency.map(Nanos),
            process: Comm::new(row.process),
            error: error.map_err(|_| unknown("error", row.error.to_string().as_bytes(), "is no errno"))?,
        };
        Ok((row, fs))
    }

    fn file_system(&mut self, name: &[u8], header: &mut impl Header) -> Result<FsIndex, RowError> {
        if let Some(index) = self.file_systems.get(name) {
            return Ok(*index);
        }
        let index = u16::try_from(self.file_systems.len()).map_err(|_| RowError::TooManyDevices)?;
        header.add_file_system(name);
        self.file_systems.insert(name.to_owned(), FsIndex(index));
        Ok(FsIndex(index))
    }
}

/// The names in a trace's header.
trait Header {
    /// Returns the device of a name, which the header names from now on.
    fn device(&mut self, name: &[u8]) -> Result<DeviceIndex, RowError>;

    /// Adds a file system.
    fn add_file_system(&mut self, mount_point: &[u8]);
}

impl Header for Rows {
    fn device(&mut self, name: &[u8]) -> Result<DeviceIndex, RowError> {
        Self::device(self, name)
    }

    fn add_file_system(&mut self, mount_point: &[u8]) {
        Self::add_file_system(self, mount_point);
    }
}

impl Header for Notes {
    fn device(&mut self, name: &[u8]) -> Result<DeviceIndex, RowError> {
        Self::device(self, name)
    }

    fn add_file_system(&mut self, mount_point: &[u8]) {
        Self::add_file_system(self, mount_point);
    }
}
