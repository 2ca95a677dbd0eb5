//! The errors of traces.

use std::io;
use std::path::PathBuf;

use parquet::errors::ParquetError;
use trimtab_core::trace::TRACE_SCHEMA;
use trimtab_core::units::{Bytes, Nanos};

/// Why a trace can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The operating system refused.
    #[error("{}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Parquet's structure is broken.
    #[error("{}: not a whole Parquet file", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The damage.
        source: ParquetError,
    },
    /// A file that is no trace, or a trace whose header is not understood.
    #[error("{}: {reason}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: HeaderError,
    },
    /// A row that makes no sense.
    #[error("{}: row {row}: {reason}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The row: a line of a text, a record of a binary file; the first is 1.
        row: u64,
        /// The reason.
        reason: RowError,
    },
}

impl TraceError {
    /// Whether what was read before it is no good either: the trace was taken for what it isn't.
    pub const fn spoils_all(&self) -> bool {
        matches!(self, Self::Row { reason: RowError::TooFast { .. }, .. })
    }
}

/// Why a file is not read as a trace.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// A pipe, whose begin can't be read twice.
    #[error("a pipe can't be read twice to find the trace's format; copy it to a file")]
    Pipe,
    /// A file that has to be unpacked first, or is empty.
    #[error("{0}")]
    Unpack(&'static str),
    /// A format that says nothing of addresses.
    #[error(
        "its columns have no sectors and no bytes, as those of biosnoop.bt: record with biosnoop of BCC, or blktrace"
    )]
    NoPlaces,
    /// A format that says nothing of what is done.
    #[error(
        "libCacheSim's oracleGeneral, whose records do not tell reads from writes: take the trace that it was made of, \
         such as vscsi or CSV"
    )]
    NoOperations,
    /// More than one format.
    #[error("its lines could be of several formats ({formats}): --format says which")]
    Ambiguous {
        /// The formats.
        formats: String,
    },
    /// A table without the columns of a trace.
    #[error("a table, but no trace: {0}")]
    Table(String),
    /// No known format.
    #[error("no trace format that trimtab knows ({known})")]
    UnknownFormat {
        /// The known formats.
        known: String,
    },
    /// Not a Parquet file.
    #[error("no Parquet file")]
    NotParquet,
    /// A Parquet file that was cut off before its first footer.
    #[error("no whole footer is left in it, so nothing of it can be read")]
    NoFooter,
    /// A Parquet file with other columns than a trace.
    #[error("Parquet, but no trace of trimtab: column {number} isn't {name}")]
    Column {
        /// The number of the first column that differs, from 1.
        number: usize,
        /// The name of that column in a trace.
        name: String,
    },
    /// A Parquet file without a trace's header.
    #[error("Parquet, but no trace of trimtab: it has no header")]
    Missing,
    /// A header that isn't the expected JSON.
    #[error("its header is broken: {0}")]
    Broken(#[from] serde_json::Error),
    /// A trace of another version.
    #[error(
        "it is in the format {schema:?}; this trimtab reads {:?}: use the one that wrote it",
        TRACE_SCHEMA
    )]
    Schema {
        /// The schema in the header.
        schema: String,
    },
    /// More devices or file systems than events can name.
    #[error("its header names more than 65536 devices or file systems")]
    TooManyNames,
}

/// Why a row makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// Parquet's structure is broken there.
    #[error("the data from here on is broken: {0}")]
    Parquet(#[from] ParquetError),
    /// Arrow's structure is broken there.
    #[error("the data from here on is broken: {0}")]
    Arrow(#[from] arrow_schema::ArrowError),
    /// An encoding that this crate's writer doesn't use.
    #[error("column {column} is stored as {encoding}, which trimtab doesn't read")]
    Encoding {
        /// The column.
        column: &'static str,
        /// How its values are stored.
        encoding: parquet::basic::Encoding,
    },
    /// A compression that this crate's writer doesn't use.
    #[error("column {column} is packed as {compression}, which trimtab doesn't read")]
    Packed {
        /// The column.
        column: &'static str,
        /// How its pages are packed.
        compression: parquet::basic::Compression,
    },
    /// A column that ends too early or holds what can't be.
    #[error("column {column} is broken from here on")]
    Broken {
        /// The column.
        column: &'static str,
    },
    /// A number that can't be one of its column's.
    #[error("{column} is {value}, which can't be")]
    Value {
        /// The column.
        column: &'static str,
        /// The number.
        value: i64,
    },
    /// A name that stands for nothing.
    #[error("{column} is {name:?}, which {problem}")]
    Name {
        /// The column.
        column: &'static str,
        /// The name.
        name: String,
        /// The reason.
        problem: &'static str,
    },
    /// Time runs backwards.
    #[error("its time, {at} ns, is before that of the row above, {before} ns")]
    Backwards {
        /// Its time.
        at: u64,
        /// The time of the row above.
        before: u64,
    },
    /// A line of another shape.
    #[error("it has not the {wanted} fields that a line of this format has")]
    Fields {
        /// How many there should be.
        wanted: usize,
    },
    /// A record that ends in the middle.
    #[error("the file ends in the middle of it")]
    CutOff,
    /// The file can't be read on.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// More devices than an event can name.
    #[error("it names more than 65536 devices; take a part of the trace")]
    TooManyDevices,
    /// An offset that no device has.
    #[error("it names {length} bytes at {start}, past 1 PiB; are its offsets in another unit?")]
    TooFar {
        /// The first byte.
        start: u64,
        /// How many.
        length: u64,
    },
    /// A row that comes so late that it can't be put in order.
    #[error("its time, {at} ns, is before {before} ns, that of a row more than {window} rows above")]
    TooLate {
        /// Its time.
        at: u64,
        /// The time of the row above.
        before: u64,
        /// How many rows are put in order.
        window: usize,
    },
    /// A partition whose start is learnt too late, or differs.
    #[error(
        "it says that the partition begins at {begins} of its disk; {events} events before it assumed another place: \
         record the whole disk, or take the trace from here on"
    )]
    Moved {
        /// Where the partition begins.
        begins: Bytes,
        /// The events of it that were handed out before.
        events: u64,
    },
    /// An address before the partition that it should be in.
    #[error("it names an address at {start} of the disk, before the partition, which begins at {begins}")]
    BeforePartition {
        /// The address.
        start: Bytes,
        /// Where the partition begins.
        begins: Bytes,
    },
    /// A first line that does not name the columns of a trace.
    #[error("{0}")]
    Table(String),
    /// A trace without a record that makes an event.
    #[error("none of its {records} records makes an event ({skipped}): is it of another format?")]
    NoEvents {
        /// How many records it has.
        records: u64,
        /// Their kinds.
        skipped: String,
    },
    /// A time that no trace has.
    #[error("it has a time of {time} ns, more than 146 years: are its times in another unit?")]
    TooLong {
        /// The time.
        time: u64,
    },
    /// More bytes than any device moves in the time.
    #[error(
        "up to here {moved} were read and written in {time}, more than any device can: are its times or sizes in \
         other units than this format's, or is it of another format?"
    )]
    TooFast {
        /// The bytes that were read and written.
        moved: Bytes,
        /// In how long.
        time: Nanos,
    },
}
