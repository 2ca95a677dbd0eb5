//! Tables in Parquet files: all encodings and compressions that the crate `parquet` reads.

use std::fs::File;
use std::path::Path;

use arrow_schema::TimeUnit as ArrowUnit;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use super::values::{counted, double, nanoseconds, single};
use super::{AtRow, Batch, NEEDED, Places, TableNames, Texts, Values, begin};
use crate::error::{HeaderError, RowError, TraceError};
use crate::file::{self, Column, Columns, read_header, value_of};
use crate::reader::{RecordReader, Records};
use crate::rows::Rows;

/// Rows that are decoded at once.
const BATCH: usize = 4096;

/// A Parquet file.
pub(super) struct Table {
    reader: SerializedFileReader<File>,
}

impl Table {
    /// Opens a file; `None` if it is no whole Parquet file.
    pub(super) fn open(file: File) -> Option<Self> {
        let length = file.metadata().ok()?.len();
        let reader = SerializedFileReader::new(file).ok()?;
        let metadata = reader.metadata();
        let are_inside = metadata.row_groups().iter().all(|group| is_inside(group, length));
        let rows: i64 =
            metadata.row_groups().iter().map(RowGroupMetaData::num_rows).fold(0, i64::saturating_add);
        (are_inside && rows == metadata.file_metadata().num_rows()).then_some(Self { reader })
    }

    pub(super) fn metadata(&self) -> &ParquetMetaData {
        self.reader.metadata()
    }

    /// Returns a reader of its rows.
    pub(super) fn into_reader(
        self,
        path: &Path,
        columns: Columns,
    ) -> Result<RecordReader<TableRows>, TraceError> {
        let refuse = |reason| TraceError::Header { path: path.to_owned(), reason };
        let (mut rows, names) = begin("parquet", read_header(self.metadata())).map_err(refuse)?;
        let durations = durations(self.metadata()).map_err(refuse)?;
        let schema = self.metadata().file_metadata().schema_descr();
        let flat = |column: &ColumnDescriptor| {
            if column.max_rep_level() == 0 && column.path().parts().len() == 1 {
                column.name().to_owned()
            } else {
                column.path().string()
            }
        };
        let found: Vec<_> = schema.columns().iter().map(|column| flat(column)).collect();
        let places = Places::find(found.iter().map(String::as_str), &mut rows.header.gaps).map_err(refuse)?;
        let mut shapes = [Shape::default(); 9];
        let mut wanted = Vec::new();
        for column in Column::ALL {
            let Some(place) = places.of(column) else { continue };
            // pyarrow makes a column of no type of one that has no value.
            let is_void = matches!(schema.column(place).logical_type_ref(), Some(LogicalType::Unknown));
            if is_void && !NEEDED.contains(&column) {
                continue;
            }
            shapes[column as usize] =
                Shape::of(column, schema.column(place).as_ref(), &durations).map_err(refuse)?;
            if columns.include(column) {
                wanted.push((column, place));
            }
        }
        let records = TableRows {
            reader: self.reader,
            wanted,
            shapes,
            names,
            next_group: 0,
            left: 0,
            columns: Vec::new(),
        };
        Ok(RecordReader::new(path, records, rows))
    }
}

/// Whether a group of rows lies in a file of this length, and its columns have a value for each row.
fn is_inside(group: &RowGroupMetaData, length: u64) -> bool {
    group.num_rows() >= 0
        && group.columns().iter().all(|chunk| {
            let is_flat = chunk.column_descr().max_rep_level() == 0;
            (!is_flat || chunk.num_values() == group.num_rows()) && file::is_inside(chunk, length)
        })
}

/// The columns that held durations of Arrow, and their units. Parquet has no type for durations, and only the schema of Arrow
/// in the metadata tells them from numbers. The types of other columns in it may be any, such as integers of 128 bits.
fn durations(metadata: &ParquetMetaData) -> Result<Vec<(String, ArrowUnit)>, HeaderError> {
    let Some(text) = value_of(metadata, "ARROW:schema") else { return Ok(Vec::new()) };
    let broken = || HeaderError::Table("the Arrow schema in its metadata is broken".to_owned());
    let bytes = BASE64_STANDARD.decode(text).map_err(|_| broken())?;
    // The message comes after a mark and its length, or alone.
    let message = if bytes.starts_with(&[0xff; 4]) { bytes.get(8..).ok_or_else(broken)? } else { &bytes };
    let message = arrow_ipc::root_as_message(message).map_err(|_| broken())?;
    let schema = message.header_as_schema().ok_or_else(broken)?;
    let unit = |field: arrow_ipc::Field| {
        let (duration, name) = (field.type_as_duration()?, field.name()?);
        Some(match duration.unit() {
            arrow_ipc::TimeUnit::SECOND => Ok((name.to_owned(), ArrowUnit::Second)),
            arrow_ipc::TimeUnit::MILLISECOND => Ok((name.to_owned(), ArrowUnit::Millisecond)),
            arrow_ipc::TimeUnit::MICROSECOND => Ok((name.to_owned(), ArrowUnit::Microsecond)),
            arrow_ipc::TimeUnit::NANOSECOND => Ok((name.to_owned(), ArrowUnit::Nanosecond)),
            _ => Err(broken()),
        })
    };
    schema.fields().into_iter().flatten().filter_map(unit).collect()
}

/// How the values of a column are stored.
#[derive(Debug, Clone, Copy, Default)]
struct Shape {
    /// By what they are multiplied.
    scale: u64,
    is_unsigned: bool,
    is_optional: bool,
}

impl Shape {
    fn of(
        column: Column,
        found: &ColumnDescriptor,
        durations: &[(String, ArrowUnit)],
    ) -> Result<Self, HeaderError> {
        let wrong =
            |what: &str| Err(HeaderError::Table(format!("its column {} holds {what}", column.name())));
        let (physical, logical, converted) =
            (found.physical_type(), found.logical_type_ref(), found.converted_type());
        let is_optional = found.max_def_level() > 0;
        let is_unsigned = matches!(logical, Some(LogicalType::Integer(kind)) if !kind.is_signed)
            || matches!(converted, ConvertedType::UINT_32 | ConvertedType::UINT_64);
        let of = |scale| Ok(Self { scale, is_unsigned, is_optional });
        if column.is_text() {
            return match physical {
                Physical::BYTE_ARRAY => of(1),
                Physical::FIXED_LEN_BYTE_ARRAY => wrong("bytes of a fixed length: write them as texts"),
                _ => wrong("no text"),
            };
        }
        let is_plain = match logical {
            None => matches!(
                converted,
                ConvertedType::NONE
                    | ConvertedType::INT_8
                    | ConvertedType::INT_16
                    | ConvertedType::INT_32
                    | ConvertedType::INT_64
                    | ConvertedType::UINT_8
                    | ConvertedType::UINT_16
                    | ConvertedType::UINT_32
                    | ConvertedType::UINT_64
            ),
            Some(kind) => matches!(kind, LogicalType::Integer(_) | LogicalType::Unknown),
        };
        let duration = durations.iter().find(|(name, _)| name == found.name() && is_plain);
        let duration = duration.map(|(_, unit)| nanoseconds(*unit));
        match (physical, time_unit(found).or(duration)) {
            (Physical::INT32 | Physical::INT64, Some(scale)) if column.is_time() => of(scale),
            (Physical::INT32 | Physical::INT64, Some(_)) => wrong("times, not whole numbers"),
            (Physical::INT32 | Physical::INT64 | Physical::FLOAT | Physical::DOUBLE, None) if is_plain => {
                of(1)
            }
            (Physical::INT32 | Physical::INT64, _) => wrong("dates or decimals, not whole numbers"),
            (Physical::INT96, _) => wrong("times of 96 bits, an old form: write them as 64 bits"),
            (Physical::FIXED_LEN_BYTE_ARRAY, _) if converted == ConvertedType::INTERVAL => {
                wrong("intervals of months and days: write them as nanoseconds")
            }
            (Physical::FIXED_LEN_BYTE_ARRAY, _) if matches!(logical, Some(LogicalType::Float16)) => {
                wrong("floats of 16 bits: write them as 64 bits")
            }
            (Physical::FIXED_LEN_BYTE_ARRAY, _) if converted == ConvertedType::DECIMAL => {
                wrong("dates or decimals, not whole numbers")
            }
            _ => wrong("no numbers"),
        }
    }
}

/// The nanoseconds of the unit of a column of times.
fn time_unit(column: &ColumnDescriptor) -> Option<u64> {
    let unit = match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Timestamp(kind)), _) => kind.unit,
        (Some(LogicalType::Time(kind)), _) => kind.unit,
        (None, ConvertedType::TIMESTAMP_MILLIS | ConvertedType::TIME_MILLIS) => TimeUnit::MILLIS,
        (None, ConvertedType::TIMESTAMP_MICROS | ConvertedType::TIME_MICROS) => TimeUnit::MICROS,
        _ => return None,
    };
    Some(match unit {
        TimeUnit::MILLIS => 1_000_000,
        TimeUnit::MICROS => 1000,
        TimeUnit::NANOS => 1,
    })
}

/// The rows of a table.
pub(super) struct TableRows {
    reader: SerializedFileReader<File>,
    wanted: Vec<(Column, usize)>,
    shapes: [Shape; 9],
    names: TableNames,
    next_group: usize,
    /// Rows of the group that were not read yet.
    left: usize,
    columns: Vec<(Column, ColumnReader)>,
}

impl Texts for Vec<Option<ByteArray>> {
    fn text(&self, row: usize) -> Option<&[u8]> {
        self[row].as_ref().map(ByteArray::data)
    }
}

impl Records for TableRows {
    fn next(&mut self, rows: &mut Rows) -> Result<bool, RowError> {
        while self.left == 0 {
            if self.next_group == self.reader.num_row_groups() {
                return Ok(false);
            }
            let group = self.reader.get_row_group(self.next_group)?;
            self.next_group += 1;
            let count = group.metadata().num_rows();
            self.left = usize::try_from(count)
                .map_err(|_| ParquetError::General(format!("a group has {count} rows")))?;
            let open = |(column, place): &(Column, usize)| Ok((*column, group.get_column_reader(*place)?));
            self.columns = self.wanted.iter().map(open).collect::<Result<_, ParquetError>>()?;
        }
        let count = self.left.min(BATCH);
        let mut all = Batch::default();
        for (column, reader) in &mut self.columns {
            let values = read(*column, reader, count, self.shapes[*column as usize]);
            all.0[*column as usize] = Some(values.map_err(|error| error.count(rows))?);
        }
        self.left -= count;
        self.names.push_all(&all, count, rows)?;
        Ok(true)
    }

    fn end(&mut self, _rows: &mut Rows) -> Result<(), RowError> {
        Ok(())
    }
}

/// Reads the next `count` values of a column.
fn read(
    column: Column,
    reader: &mut ColumnReader,
    count: usize,
    shape: Shape,
) -> Result<Values<Vec<Option<ByteArray>>>, AtRow> {
    let name = column.name();
    let signed = |value| counted(name, value, shape.scale).map(Some);
    let reads = (count, shape.is_optional, name);
    let numbers = match reader {
        ColumnReader::Int32ColumnReader(reader) if shape.is_unsigned => {
            values(reader, reads, |value| Ok(Some(u64::from(value as u32))))
        }
        ColumnReader::Int64ColumnReader(reader) if shape.is_unsigned => {
            values(reader, reads, |value| Ok(Some(value as u64)))
        }
        ColumnReader::Int32ColumnReader(reader) => values(reader, reads, |value| signed(value.into())),
        ColumnReader::Int64ColumnReader(reader) => values(reader, reads, signed),
        ColumnReader::FloatColumnReader(reader) => values(reader, reads, |value| single(name, value)),
        ColumnReader::DoubleColumnReader(reader) => values(reader, reads, |value| double(name, value)),
        ColumnReader::ByteArrayColumnReader(reader) => {
            return values(reader, reads, |text| Ok(Some(text))).map(Values::Texts);
        }
        _ => Err(AtRow { row: 1, reason: RowError::Broken { column: name } }),
    };
    numbers.map(Values::Numbers)
}

/// Reads the next `count` values, with none for the missing ones.
fn values<T: DataType, V>(
    reader: &mut ColumnReaderImpl<T>,
    (count, is_optional, name): (usize, bool, &'static str),
    convert: impl Fn(T::T) -> Result<Option<V>, RowError>,
) -> Result<Vec<Option<V>>, AtRow> {
    let (mut levels, mut present) = (Vec::new(), Vec::new());
    let mut read = 0;
    while read < count {
        let levels = if is_optional { Some(&mut levels) } else { None };
        let records = match reader.read_records(count - read, levels, None, &mut present) {
            Ok((0, ..)) => Err(RowError::Broken { column: name }),
            Ok((records, ..)) => Ok(records),
            Err(error) => Err(error.into()),
        };
        read += records.map_err(|reason| AtRow { row: read as u64 + 1, reason })?;
    }
    let mut present = present.into_iter();
    let mut all = Vec::with_capacity(count);
    for row in 0..count {
        let is_present = !is_optional || levels.get(row).is_some_and(|level| *level > 0);
        let value = if is_present { present.next().map_or(Ok(None), &convert) } else { Ok(None) };
        all.push(value.map_err(|reason| AtRow { row: row as u64 + 1, reason })?);
    }
    Ok(all)
}
