//! Reading trace files.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::file::metadata::ParquetMetaData;
use trimtab_core::extent::Extent;
use trimtab_core::trace::{
    Comm, DeviceIndex, EventKind, FsIndex, TRACE_SCHEMA, TraceEvent, TraceHeader, TraceSource,
};
use trimtab_core::units::{Bytes, Nanos};

use super::column::{ColumnReader, NONE};
use super::footer::{Footer, FooterError};
use super::names::Names;
use super::schema::{Column, HEADER_KEY};
use crate::counts::{ReadCounts, TraceReader};
use crate::error::{HeaderError, RowError, TraceError};

/// Events in a batch: few enough to stay in a processor's cache.
const BATCH: usize = 4096;

/// The columns of a trace file to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Columns {
    /// All of them.
    #[default]
    All,
    /// The columns for a replay: all but the process and the file system, which are left empty.
    Replay,
}

impl Columns {
    /// Whether `column` is read.
    pub(crate) fn include(self, column: Column) -> bool {
        self == Self::All || !Column::REST.contains(&column)
    }
}

/// A trace file, read from its begin.
///
/// A file that was cut off is read up to its last whole row group, and its header says so among the
/// gaps.
pub struct TraceFile {
    path: PathBuf,
    file: Arc<File>,
    metadata: ParquetMetaData,
    header: TraceHeader,
    names: Names,
    columns: Columns,
    /// The next row group.
    next_group: usize,
    group: Option<Group>,
    counts: ReadCounts,
    last: u64,
}

/// The row group at hand.
struct Group {
    columns: Vec<ColumnReader>,
    /// Rows not yet handed out.
    rows: usize,
}

impl TraceFile {
    /// Opens the trace file at `path`.
    ///
    /// # Errors
    /// If it can't be read, is none, or holds not even one whole footer.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let io = |source| TraceError::Io { path: path.to_owned(), source };
        let no_trace = |reason| TraceError::Header { path: path.to_owned(), reason };
        let file = File::open(path).map_err(io)?;
        let broken = |error| match error {
            FooterError::Io(source) => io(source),
            FooterError::Parquet(source) => TraceError::Parquet { path: path.to_owned(), source },
            FooterError::Header(reason) => no_trace(reason),
        };
        let footer = Footer::find(&file).map_err(broken)?;
        let mut header = read_header(&footer.metadata).map_err(no_trace)?;
        footer.check().map_err(broken)?;
        let unfinished = "the recording did not come to its end; what came last is missing";
        let is_said = header.gaps.iter().any(|gap| gap == unfinished);
        if header.origin == "record" && header.duration.is_none() && !is_said {
            header.gaps.push(unfinished.to_owned());
        }
        if footer.end < footer.length {
            header.gaps.push(format!(
                "the file was cut off: its last {} are torn, and the events in them are lost",
                Bytes(footer.length - footer.end)
            ));
        }
        Ok(Self {
            path: path.to_owned(),
            file: Arc::new(file),
            metadata: footer.metadata,
            names: Names::of(&header),
            header,
            columns: Columns::All,
            next_group: 0,
            group: None,
            counts: ReadCounts::default(),
            last: 0,
        })
    }

    /// Reads only `columns` from now on; call it before the first batch.
    pub fn with_columns(mut self, columns: Columns) -> Self {
        self.columns = columns;
        self
    }

    /// How many events it holds.
    pub fn rows(&self) -> u64 {
        self.metadata.row_groups().iter().map(|group| group.num_rows() as u64).sum()
    }

    fn start_group(&mut self) -> Result<Option<Group>, RowError> {
        let Some(group) = self.metadata.row_groups().get(self.next_group) else { return Ok(None) };
        self.next_group += 1;
        let rows = group.num_rows() as usize;
        let wanted =
            Column::REPLAY.iter().chain(&Column::REST).filter(|column| self.columns.include(**column));
        let open =
            |column: &Column| ColumnReader::new(*column, &self.file, group.column(*column as usize), rows);
        Ok(Some(Group { columns: wanted.map(open).collect::<Result<_, _>>()?, rows }))
    }

    fn read(&mut self, batch: &mut Vec<TraceEvent>) -> Result<(), RowError> {
        let mut group = loop {
            match self.group.take() {
                Some(group) if group.rows > 0 => break group,
                _ => match self.start_group()? {
                    Some(group) => self.group = Some(group),
                    None => return Ok(()),
                },
            }
        };
        let mut count = group.rows.min(BATCH);
        for column in &mut group.columns {
            let ready = column.fill(&mut self.names)?.len();
            if ready == 0 {
                return Err(column.broken());
            }
            count = count.min(ready);
        }
        group.rows -= count;
        let assembled = self.assemble(&mut group.columns, count, batch);
        self.group = Some(group);
        assembled
    }

    /// Puts the next `count` values of the columns together.
    fn assemble(
        &mut self,
        columns: &mut [ColumnReader],
        count: usize,
        batch: &mut Vec<TraceEvent>,
    ) -> Result<(), RowError> {
        let (replay, rest) = columns.split_first_chunk_mut().expect("a replay's columns are always read");
        let [times, devices, kinds, starts, lengths, latencies, errors] =
            replay.each_mut().map(|column: &mut ColumnReader| column.take(count));
        let mut wrong = None;
        for row in 0..count {
            let (at, start, length) = (times[row], starts[row], lengths[row]);
            let Some(end) = start.checked_add(length).filter(|_| at >= self.last as i64) else {
                wrong = Some(self.wrong(at, length));
                break;
            };
            self.last = at as u64;
            batch.push(TraceEvent {
                at: Nanos(at as u64),
                device: DeviceIndex(devices[row] as u16),
                kind: EventKind::ALL[kinds[row] as usize],
                extent: Extent { start: Bytes(start as u64), end: Bytes(end as u64) },
                latency: (latencies[row] != NONE).then_some(Nanos(latencies[row] as u64)),
                process: Comm::default(),
                error: errors[row] as u16,
                fs: None,
            });
        }
        if let [processes, file_systems] = rest {
            let (processes, file_systems) = (processes.take(count), file_systems.take(count));
            for (row, event) in batch.iter_mut().enumerate() {
                event.process = self.names.process(processes[row]);
                event.fs = (file_systems[row] != NONE).then_some(FsIndex(file_systems[row] as u16));
            }
        }
        wrong.map_or(Ok(()), Err)
    }

    /// Returns the error of a row with this time and length.
    fn wrong(&self, at: i64, length: i64) -> RowError {
        match u64::try_from(at) {
            Err(_) => RowError::Value { column: Column::Time.name(), value: at },
            Ok(at) if at < self.last => RowError::Backwards { at, before: self.last },
            Ok(_) => RowError::Value { column: Column::Length.name(), value: length },
        }
    }
}

impl TraceSource for TraceFile {
    type Error = TraceError;

    fn header(&self) -> &TraceHeader {
        &self.header
    }

    fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<(), TraceError> {
        batch.clear();
        let read = self.read(batch);
        let good = batch.len() as u64;
        self.counts.records += good;
        self.counts.events += good;
        read.map_err(|reason| TraceError::Row {
            path: self.path.clone(),
            row: self.counts.records + 1,
            reason,
        })
    }
}

impl TraceReader for TraceFile {
    fn counts(&self) -> &ReadCounts {
        &self.counts
    }
}

/// Returns the header in a file's metadata.
pub(crate) fn read_header(metadata: &ParquetMetaData) -> Result<TraceHeader, HeaderError> {
    header_of(value_of(metadata, HEADER_KEY))
}

/// Returns the value of a key in a file's metadata.
pub(crate) fn value_of<'a>(metadata: &'a ParquetMetaData, key: &str) -> Option<&'a str> {
    let entries = metadata.file_metadata().key_value_metadata().map_or(&[][..], Vec::as_slice);
    entries.iter().find(|entry| entry.key == key).and_then(|entry| entry.value.as_deref())
}

/// Returns the header that a text is.
pub(crate) fn header_of(text: Option<&str>) -> Result<TraceHeader, HeaderError> {
    let text = text.ok_or(HeaderError::Missing)?;
    let header: serde_json::Value = serde_json::from_str(text)?;
    let schema = header.get("schema").and_then(|schema| schema.as_str()).unwrap_or_default();
    if schema != TRACE_SCHEMA {
        return Err(HeaderError::Schema { schema: schema.to_owned() });
    }
    let header: TraceHeader = serde_json::from_value(header)?;
    if header.devices.len().max(header.file_systems.len()) > 1 << 16 {
        return Err(HeaderError::TooManyNames);
    }
    Ok(header)
}
