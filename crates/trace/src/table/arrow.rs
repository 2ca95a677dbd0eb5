//! Tables as Arrow IPC: streams, and files, which Feather calls its version 2. A batch of records is in memory as a whole.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{self, ArrowPrimitiveType};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_ipc::MessageHeader;
use arrow_ipc::reader::{RecordBatchDecoder, read_dictionary};
use arrow_schema::{DataType, Schema};
use arrow_select::take::take;

use super::messages::{CONTINUATION, FILE, Messages, Parts, open_file, open_stream, wrong};
use super::values::{counted, double, nanoseconds, single};
use super::{AtRow, Batch, NEEDED, Places, TableNames, Texts, Values, begin};
use crate::error::{HeaderError, RowError, TraceError};
use crate::file::{Column, Columns, HEADER_KEY, header_of};
use crate::input;
use crate::reader::{RecordReader, Records};
use crate::rows::Rows;

/// Rows that are handed over at once.
const BATCH: usize = 4096;

/// Returns true if a file begins like one of Arrow, or like a stream.
pub(crate) fn is_arrow(start: &[u8]) -> bool {
    start.starts_with(FILE) || start.starts_with(&CONTINUATION)
}

/// Opens the table at `path`.
pub(crate) fn open(path: &Path, columns: Columns) -> Result<RecordReader<ArrowRows>, TraceError> {
    let io = |source| TraceError::Io { path: path.to_owned(), source };
    let refuse = |reason| TraceError::Header { path: path.to_owned(), reason };
    let mut input = BufReader::new(input::open(path).map_err(io)?);
    let opened = if input.fill_buf().map_err(io)?.starts_with(FILE) {
        // Files are read at any place, which packed ones do not have.
        let mut file = BufReader::new(File::open(path).map_err(io)?);
        if !file.fill_buf().map_err(io)?.starts_with(FILE) {
            return Err(refuse(HeaderError::Unpack("a packed Arrow file: unpack it first")));
        }
        open_file(file)
    } else {
        open_stream(input)
    };
    let (messages, schema) = opened.map_err(|error| refuse(HeaderError::Table(error.to_string())))?;
    let header = header_of(schema.metadata().get(HEADER_KEY).map(String::as_str));
    let (mut rows, names) = begin("arrow", header).map_err(refuse)?;
    let fields = schema.fields();
    let places = Places::find(fields.iter().map(|field| field.name().as_str()), &mut rows.header.gaps);
    let places = places.map_err(refuse)?;
    let (mut wanted, mut places_of_wanted) = (Vec::new(), Vec::new());
    for column in Column::ALL {
        let Some(place) = places.of(column) else { continue };
        let kind = fields[place].data_type();
        if *kind == DataType::Null && !NEEDED.contains(&column) {
            continue;
        }
        check_type(column, kind).map_err(refuse)?;
        if columns.include(column) {
            wanted.push(column);
            places_of_wanted.push(place);
        }
    }
    let records = ArrowRows {
        messages,
        schema: Arc::new(schema),
        dictionaries: HashMap::new(),
        wanted,
        places: places_of_wanted,
        batch: None,
        names,
    };
    Ok(RecordReader::new(path, records, rows))
}

/// Refuses a type that does not fit a column.
fn check_type(column: Column, kind: &DataType) -> Result<(), HeaderError> {
    let wrong = |what: &str| Err(HeaderError::Table(format!("its column {} holds {what}", column.name())));
    if column.is_text() {
        return match kind {
            _ if is_text(kind) => Ok(()),
            DataType::RunEndEncoded(..) => wrong("runs of texts: write them one by one"),
            _ => wrong("no text"),
        };
    }
    match kind {
        DataType::Dictionary(_, values) => check_type(column, values),
        DataType::RunEndEncoded(..) => wrong("runs of numbers: write them one by one"),
        DataType::Float16 => wrong("floats of 16 bits: write them as 64 bits"),
        _ if kind.is_integer() => Ok(()),
        DataType::Float32 | DataType::Float64 => Ok(()),
        DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_) | DataType::Duration(_) => {
            if column.is_time() {
                Ok(())
            } else {
                wrong("times, not whole numbers")
            }
        }
        DataType::Interval(_) => wrong("intervals of months and days: write them as nanoseconds"),
        _ if kind.is_numeric() || kind.is_temporal() => wrong("dates or decimals, not whole numbers"),
        _ => wrong("no numbers"),
    }
}

fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => {
            matches!(**values, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
        }
        _ => false,
    }
}

/// The rows of a table.
pub(crate) struct ArrowRows {
    messages: Messages,
    schema: Arc<Schema>,
    dictionaries: HashMap<i64, ArrayRef>,
    /// The columns that are read, and their places.
    wanted: Vec<Column>,
    places: Vec<usize>,
    /// The batch at hand, and how many of its rows were handed over.
    batch: Option<(RecordBatch, usize)>,
    names: TableNames,
}

impl Records for ArrowRows {
    fn next(&mut self, rows: &mut Rows) -> Result<bool, RowError> {
        let Some((batch, done)) = &mut self.batch else {
            let Some(parts) = self.messages.next()? else { return Ok(false) };
            self.take(&parts)?;
            return Ok(true);
        };
        let count = BATCH.min(batch.num_rows() - *done);
        let mut cells = Batch::default();
        for (column, array) in self.wanted.iter().zip(batch.columns()) {
            let part = array.slice(*done, count);
            let values = Values::of(*column, &part).map_err(|error| error.count(rows))?;
            cells.0[*column as usize] = Some(values);
        }
        *done += count;
        if *done == batch.num_rows() {
            self.batch = None;
        }
        self.names.push_all(&cells, count, rows)?;
        Ok(true)
    }

    fn end(&mut self, _rows: &mut Rows) -> Result<(), RowError> {
        Ok(())
    }
}

impl ArrowRows {
    /// Takes a message in: a batch, or a dictionary for later ones.
    fn take(&mut self, parts: &Parts) -> Result<(), RowError> {
        let message = parts.message()?;
        match message.header_type() {
            MessageHeader::RecordBatch => {
                let batch = message.header_as_record_batch().ok_or_else(|| wrong("a batch is empty"))?;
                parts.check(batch, self.schema.fields().iter().map(|field| field.data_type()))?;
                let decoder = RecordBatchDecoder::try_new(
                    &parts.body,
                    batch,
                    self.schema.clone(),
                    &self.dictionaries,
                    &message.version(),
                )?
                .with_projection(Some(&self.places))
                .read_record_batch()?;
                self.batch = (decoder.num_rows() > 0).then_some((decoder, 0));
            }
            MessageHeader::DictionaryBatch => {
                let dictionary = message.header_as_dictionary_batch();
                let dictionary = dictionary.ok_or_else(|| wrong("a dictionary is empty"))?;
                if let Some(batch) = dictionary.data() {
                    #[expect(deprecated, reason = "only this finds the type of a dictionary's values")]
                    let fields = self.schema.fields_with_dict_id(dictionary.id());
                    let values = fields.first().and_then(|field| match field.data_type() {
                        DataType::Dictionary(_, values) => Some(&**values),
                        _ => None,
                    });
                    parts.check(batch, values.into_iter())?;
                }
                let version = message.version();
                read_dictionary(&parts.body, dictionary, &self.schema, &mut self.dictionaries, &version)?;
            }
            _ => return Err(wrong("a message is neither a batch nor a dictionary")),
        }
        Ok(())
    }
}

/// The texts of a column.
enum ArrowTexts {
    Plain(ArrayRef),
    /// Texts of a dictionary, and the place of each row's in that.
    Names {
        array: ArrayRef,
        keys: Vec<usize>,
    },
}

impl Texts for ArrowTexts {
    fn text(&self, row: usize) -> Option<&[u8]> {
        match self {
            Self::Plain(array) => text(array, row),
            Self::Names { array, keys } if array.is_valid(row) => {
                text(&**array.as_any_dictionary().values(), keys[row])
            }
            Self::Names { .. } => None,
        }
    }
}

/// The text in a row of an array.
fn text(array: &dyn Array, row: usize) -> Option<&[u8]> {
    if row >= array.len() || array.is_null(row) {
        return None;
    }
    Some(match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value(row).as_bytes(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).as_bytes(),
        DataType::Utf8View => array.as_string_view().value(row).as_bytes(),
        _ => return None,
    })
}

impl Values<ArrowTexts> {
    fn of(column: Column, array: &ArrayRef) -> Result<Self, AtRow> {
        use arrow_schema::TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
        if let DataType::Dictionary(..) = array.data_type() {
            let dictionary = array.as_any_dictionary();
            if !column.is_text() {
                let plain = take(&**dictionary.values(), dictionary.keys(), None);
                return Self::of(column, &plain.map_err(|error| AtRow { row: 1, reason: error.into() })?);
            }
            let is_empty = dictionary.values().is_empty();
            let keys = if is_empty { vec![0; array.len()] } else { dictionary.normalized_keys() };
            return Ok(Self::Texts(ArrowTexts::Names { array: array.clone(), keys }));
        }
        if column.is_text() {
            return Ok(Self::Texts(ArrowTexts::Plain(array.clone())));
        }
        let name = column.name();
        let plain = |value: i64| counted(name, value, 1).map(Some);
        macro_rules! times {
            ($kind:ident, $unit:expr) => {
                numbers::<types::$kind>(array, |value| {
                    counted(name, value.into(), nanoseconds($unit)).map(Some)
                })
            };
        }
        let numbers = match array.data_type() {
            DataType::Int8 => numbers::<types::Int8Type>(array, |value| plain(value.into())),
            DataType::Int16 => numbers::<types::Int16Type>(array, |value| plain(value.into())),
            DataType::Int32 => numbers::<types::Int32Type>(array, |value| plain(value.into())),
            DataType::Int64 => numbers::<types::Int64Type>(array, plain),
            DataType::UInt8 => numbers::<types::UInt8Type>(array, |value| Ok(Some(value.into()))),
            DataType::UInt16 => numbers::<types::UInt16Type>(array, |value| Ok(Some(value.into()))),
            DataType::UInt32 => numbers::<types::UInt32Type>(array, |value| Ok(Some(value.into()))),
            DataType::UInt64 => numbers::<types::UInt64Type>(array, |value| Ok(Some(value))),
            DataType::Float32 => numbers::<types::Float32Type>(array, |value| single(name, value)),
            DataType::Float64 => numbers::<types::Float64Type>(array, |value| double(name, value)),
            DataType::Timestamp(Second, _) => times!(TimestampSecondType, Second),
            DataType::Timestamp(Millisecond, _) => times!(TimestampMillisecondType, Millisecond),
            DataType::Timestamp(Microsecond, _) => times!(TimestampMicrosecondType, Microsecond),
            DataType::Timestamp(Nanosecond, _) => times!(TimestampNanosecondType, Nanosecond),
            DataType::Duration(Second) => times!(DurationSecondType, Second),
            DataType::Duration(Millisecond) => times!(DurationMillisecondType, Millisecond),
            DataType::Duration(Microsecond) => times!(DurationMicrosecondType, Microsecond),
            DataType::Duration(Nanosecond) => times!(DurationNanosecondType, Nanosecond),
            DataType::Time32(Second) => times!(Time32SecondType, Second),
            DataType::Time32(Millisecond) => times!(Time32MillisecondType, Millisecond),
            DataType::Time64(Microsecond) => times!(Time64MicrosecondType, Microsecond),
            DataType::Time64(Nanosecond) => times!(Time64NanosecondType, Nanosecond),
            _ => Ok(vec![None; array.len()]),
        };
        numbers.map(Self::Numbers)
    }
}

fn numbers<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    convert: impl Fn(T::Native) -> Result<Option<u64>, RowError>,
) -> Result<Vec<Option<u64>>, AtRow> {
    let array = array.as_primitive::<T>();
    let value = |(row, value): (usize, Option<T::Native>)| {
        let converted = value.map_or(Ok(None), &convert);
        converted.map_err(|reason| AtRow { row: row as u64 + 1, reason })
    };
    array.iter().enumerate().map(value).collect()
}
