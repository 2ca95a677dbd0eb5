//! Writing trace files.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::writer::{SerializedRowGroupWriter, TrackedWrite};
use trimtab_core::trace::{Comm, EventKind, TraceEvent, TraceHeader};

use super::dictionary::write_names;
use super::schema::{CREATED_BY, Column, HEADER_KEY, PROPERTIES, SCHEMA, device_names, file_system_names};
use crate::error::TraceError;

/// The most rows of a row group.
const GROUP_ROWS: usize = 1 << 20;

/// Writes a trace file, a row group at a time.
///
/// After each group the file on disk is whole: a group goes out in one piece with a footer that names
/// all groups so far, behind the footer before it, which becomes a gap that readers skip. A crash
/// loses what was written since the last group. So does a full disk: the file is cut back to the
/// footer before, and stays readable.
///
/// Holds one row group in memory: about 110 MiB at most.
///
/// ```
/// use trimtab_core::trace::{Comm, DeviceIndex, EventKind, TraceDevice, TraceEvent, TraceHeader};
/// use trimtab_core::{Bytes, Extent, Nanos};
/// use trimtab_trace::{TraceFile, TraceWriter};
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("trace.parquet");
/// let mut header = TraceHeader::new("doctest");
/// header.devices.push(TraceDevice { name: "sda".to_owned(), ..TraceDevice::default() });
///
/// let mut writer = TraceWriter::create(&path, header)?;
/// writer.write(&[TraceEvent {
///     at: Nanos::ZERO,
///     device: DeviceIndex(0), // the first of the header's devices
///     kind: EventKind::Discard,
///     extent: Extent::at(Bytes::MIB, Bytes::KIB * 64),
///     latency: None,
///     process: Comm::new(b"fstrim"),
///     error: 0,
///     fs: None,
/// }])?;
/// writer.finish()?;
/// assert_eq!(TraceFile::open(&path)?.rows(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TraceWriter {
    path: PathBuf,
    file: File,
    header: TraceHeader,
    /// The bytes of the group being made; it counts those already in the file.
    sink: TrackedWrite<Vec<u8>>,
    /// The end of the last footer in the file.
    end: u64,
    groups: Vec<RowGroupMetaData>,
    rows: i64,
    /// How long the last footer was.
    footer: usize,
    pending: Vec<TraceEvent>,
    /// Whether a write failed: what follows would count bytes that aren't in the file.
    failed: bool,
}

impl TraceWriter {
    /// Starts a trace file at `path`, which must not exist yet.
    ///
    /// # Errors
    /// If it exists, or can't be written.
    pub fn create(path: &Path, header: TraceHeader) -> Result<Self, TraceError> {
        let file = File::create_new(path);
        Self::on(file.map_err(|source| TraceError::Io { path: path.to_owned(), source })?, path, header)
    }

    /// Starts a trace file in `file`, which is empty and is named `path` in errors.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn on(file: File, path: &Path, header: TraceHeader) -> Result<Self, TraceError> {
        let mut sink = TrackedWrite::new(Vec::new());
        sink.write_all(b"PAR1").expect("writes to memory succeed");
        let mut writer = Self {
            path: path.to_owned(),
            file,
            header,
            sink,
            end: 0,
            groups: Vec::new(),
            rows: 0,
            footer: 0,
            pending: Vec::new(),
            failed: false,
        };
        writer.end_group()?;
        Ok(writer)
    }

    /// The trace's header: its state at the end of a group goes into the file. It must
    /// name every device and file system of the events written so far.
    pub fn header_mut(&mut self) -> &mut TraceHeader {
        &mut self.header
    }

    /// Adds `events`, which follow all before in time.
    ///
    /// # Errors
    /// If a group was full and can't be written.
    pub fn write(&mut self, mut events: &[TraceEvent]) -> Result<(), TraceError> {
        while !events.is_empty() {
            let room = (GROUP_ROWS - self.pending.len()).min(events.len());
            let (now, later) = events.split_at(room);
            self.pending.extend_from_slice(now);
            events = later;
            if self.pending.len() == GROUP_ROWS {
                self.end_group()?;
            }
        }
        Ok(())
    }

    /// Ends the row group, so that a crash from now on loses nothing of it; call it every few
    /// seconds. Does nothing while the group is worth less than the footer that it costs, which keeps
    /// a long trace's file within twice its size.
    ///
    /// # Errors
    /// If the group can't be written.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        const BYTES_OF_A_ROW: usize = 8;
        let worth = self.pending.len() * BYTES_OF_A_ROW;
        if worth > self.footer || self.groups.is_empty() && worth > 0 { self.end_group() } else { Ok(()) }
    }

    /// Ends the file.
    ///
    /// # Errors
    /// If the rest of it can't be written.
    pub fn finish(mut self) -> Result<(), TraceError> {
        self.end_group()
    }

    /// Ends the row group whatever it costs: writes the rows that wait, if any, and a footer.
    ///
    /// # Errors
    /// If they can't be written, or an earlier group couldn't: the file stays as that left it.
    pub fn end_group(&mut self) -> Result<(), TraceError> {
        if self.failed {
            let source = io::Error::other("nothing more is written after a write that failed");
            return Err(TraceError::Io { path: self.path.clone(), source });
        }
        // Until all of it is in the file.
        self.failed = true;
        self.encode().map_err(|source| TraceError::Parquet { path: self.path.clone(), source })?;
        let bytes = std::mem::take(self.sink.inner_mut());
        self.pending.clear();
        let written = self.file.write_all_at(&bytes, self.end).and_then(|()| self.file.sync_data());
        if let Err(source) = written {
            // What a failing disk leaves behind the last footer hides that footer; should this fail
            // too, readers still find it.
            let _ = self.file.set_len(self.end);
            return Err(TraceError::Io { path: self.path.clone(), source });
        }
        self.end += bytes.len() as u64;
        self.failed = false;
        Ok(())
    }

    /// Puts the group and the footer behind it into the sink.
    fn encode(&mut self) -> Result<(), ParquetError> {
        if !self.pending.is_empty() {
            let mut group = SerializedRowGroupWriter::new(
                SCHEMA.clone(),
                PROPERTIES.clone(),
                &mut self.sink,
                self.groups.len() as i32,
                None,
            );
            encode_columns(&mut group, &self.header, &self.pending)?;
            self.groups.push(Arc::unwrap_or_clone(group.close()?));
            self.rows += self.pending.len() as i64;
        }
        self.sink.flush()?;
        let before = self.sink.bytes_written();
        let header = serde_json::to_string(&self.header).expect("a header is plain data");
        let file = FileMetaData::new(
            1,
            self.rows,
            Some(CREATED_BY.to_owned()),
            Some(vec![KeyValue::new(HEADER_KEY.to_owned(), header)]),
            SCHEMA.clone(),
            None,
        );
        let metadata = ParquetMetaData::new(file, self.groups.clone());
        let mut footer = Vec::new();
        ParquetMetaDataWriter::new(&mut footer, &metadata).finish()?;
        self.sink.write_all(&footer)?;
        self.sink.flush()?;
        self.footer = self.sink.bytes_written() - before;
        Ok(())
    }
}

type GroupWriter<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

fn encode_columns(
    group: &mut GroupWriter,
    header: &TraceHeader,
    events: &[TraceEvent],
) -> Result<(), ParquetError> {
    for column in Column::ALL {
        let names = |group: &mut GroupWriter, names: &[String], place: fn(&TraceEvent) -> Option<u32>| {
            write_names(group, column, names, &events.iter().map(place).collect::<Vec<_>>())
        };
        match column {
            Column::Time => numbers(group, events.iter().map(|event| event.at.0)),
            Column::Start => numbers(group, events.iter().map(|event| event.extent.start.0)),
            Column::Length => numbers(group, events.iter().map(|event| event.extent.len().0)),
            Column::Error => {
                let errors: Vec<i32> = events.iter().map(|event| i32::from(event.error)).collect();
                put::<Int32Type>(group, &errors, None)
            }
            Column::Latency => {
                let latencies: Vec<i64> =
                    events.iter().filter_map(|event| event.latency).map(|latency| latency.0 as i64).collect();
                let known: Vec<_> = events.iter().map(|event| i16::from(event.latency.is_some())).collect();
                put::<Int64Type>(group, &latencies, Some(&known))
            }
            Column::Device => names(group, &device_names(header), |event| Some(event.device.0.into())),
            Column::Kind => {
                let kinds = EventKind::ALL.map(|kind| kind.name().to_owned());
                names(group, &kinds, |event| Some(event.kind as u32))
            }
            Column::Process => {
                let (processes, rows) = processes(events);
                write_names(group, column, &processes, &rows)
            }
            Column::FileSystem => {
                names(group, &file_system_names(header), |event| event.fs.map(|fs| fs.0.into()))
            }
        }?;
    }
    Ok(())
}

/// The names of the processes that are known, and each event's place among them. Bytes that are no text
/// are replaced, as the column is one of text; names that become the same by that are one.
fn processes(events: &[TraceEvent]) -> (Vec<String>, Vec<Option<u32>>) {
    let (mut names, mut texts) = (Vec::new(), HashMap::new());
    let mut places = HashMap::from([(Comm::default(), None)]);
    let mut last = (Comm::default(), None);
    let mut place = |process: Comm| {
        if last.0 != process {
            let place = places.entry(process).or_insert_with(|| {
                let place = texts.entry(process.to_string()).or_insert_with_key(|text| {
                    names.push(text.clone());
                    names.len() as u32 - 1
                });
                Some(*place)
            });
            last = (process, *place);
        }
        last.1
    };
    let rows = events.iter().map(|event| place(event.process)).collect();
    (names, rows)
}

fn numbers(group: &mut GroupWriter, values: impl Iterator<Item = u64>) -> Result<(), ParquetError> {
    let values: Vec<i64> = values.map(|value| value as i64).collect();
    put::<Int64Type>(group, &values, None)
}

fn put<T: DataType>(
    group: &mut GroupWriter,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.expect("the schema has as many columns");
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use trimtab_core::extent::Extent;
    use trimtab_core::trace::DeviceIndex;
    use trimtab_core::units::{Bytes, Nanos};

    use super::*;

    #[test]
    fn names_that_become_the_same_are_one() {
        let of = |process: &[u8]| TraceEvent {
            at: Nanos(0),
            device: DeviceIndex(0),
            kind: EventKind::Read,
            extent: Extent::at(Bytes(0), Bytes(1)),
            latency: None,
            process: Comm::new(process),
            error: 0,
            fs: None,
        };
        let (names, rows) = processes(&[&b"\xff"[..], b"fio", b"\xfe", b""].map(of));
        assert_eq!(names, ["\u{fffd}", "fio"]);
        assert_eq!(rows, [Some(0), Some(1), Some(0), None]);
    }
}
