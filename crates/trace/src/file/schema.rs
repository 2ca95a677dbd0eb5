//! The columns of a trace file.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::schema::types::{ColumnPath, SchemaDescPtr, SchemaDescriptor, Type};
use trimtab_core::trace::TraceHeader;

/// The key of the header among the file's key-value metadata.
pub(crate) const HEADER_KEY: &str = "trimtab";

/// A column, by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Time,
    Device,
    Kind,
    Start,
    Length,
    Latency,
    Process,
    Error,
    FileSystem,
}

impl Column {
    pub(crate) const ALL: [Self; 9] = [
        Self::Time,
        Self::Device,
        Self::Kind,
        Self::Start,
        Self::Length,
        Self::Latency,
        Self::Process,
        Self::Error,
        Self::FileSystem,
    ];

    /// The columns for a replay.
    pub(super) const REPLAY: [Self; 7] =
        [Self::Time, Self::Device, Self::Kind, Self::Start, Self::Length, Self::Latency, Self::Error];

    /// The other columns.
    pub(crate) const REST: [Self; 2] = [Self::Process, Self::FileSystem];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Time => "time_ns",
            Self::Device => "device",
            Self::Kind => "kind",
            Self::Start => "start",
            Self::Length => "length",
            Self::Latency => "latency_ns",
            Self::Process => "process",
            Self::Error => "error",
            Self::FileSystem => "file_system",
        }
    }

    const fn physical(self) -> Physical {
        match self {
            Self::Time | Self::Start | Self::Length | Self::Latency => Physical::INT64,
            Self::Error => Physical::INT32,
            Self::Device | Self::Kind | Self::Process | Self::FileSystem => Physical::BYTE_ARRAY,
        }
    }

    pub(super) const fn is_optional(self) -> bool {
        matches!(self, Self::Latency | Self::Process | Self::FileSystem)
    }

    pub(crate) const fn is_text(self) -> bool {
        matches!(self, Self::Device | Self::Kind | Self::Process | Self::FileSystem)
    }

    /// Whether it holds nanoseconds.
    pub(crate) const fn is_time(self) -> bool {
        matches!(self, Self::Time | Self::Latency)
    }

    fn schema_type(self) -> Type {
        let repetition = if self.is_optional() { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        Type::primitive_type_builder(self.name(), self.physical())
            .with_repetition(repetition)
            .with_logical_type(self.is_text().then_some(LogicalType::String))
            .build()
            .expect("a constant schema is sound")
    }
}

/// The schema of every trace file.
pub(super) static SCHEMA: LazyLock<SchemaDescPtr> = LazyLock::new(|| {
    let fields = Column::ALL.map(|column| Arc::new(column.schema_type())).to_vec();
    let root = Type::group_type_builder("event").with_fields(fields).build();
    Arc::new(SchemaDescriptor::new(Arc::new(root.expect("a constant schema is sound"))))
});

/// How hard pages are compressed.
pub(super) const ZSTD_LEVEL: i32 = 1;

/// The most rows of a page.
pub(super) const PAGE_ROWS: usize = 1 << 17;

/// How numbers are stored: as packed differences. Columns of names are written by
/// [`write_names`](super::dictionary::write_names).
pub(super) static PROPERTIES: LazyLock<WriterPropertiesPtr> = LazyLock::new(|| {
    let properties = WriterProperties::builder()
        .set_created_by(CREATED_BY.to_owned())
        .set_compression(compression())
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(1 << 13);
    let numbers = Column::ALL.into_iter().filter(|column| !column.is_text());
    let properties = numbers.fold(properties, |properties, column| {
        let path = ColumnPath::from(column.name());
        properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED)
    });
    Arc::new(properties.build())
});

/// How pages are compressed.
pub(super) fn compression() -> Compression {
    Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL).expect("zstd has this level"))
}

/// The program that the files name as their maker.
pub(super) const CREATED_BY: &str = concat!("trimtab version ", env!("CARGO_PKG_VERSION"));

/// Whether a file was written by this project, by what it names as its maker.
pub(crate) fn is_ours(metadata: &ParquetMetaData) -> bool {
    metadata.file_metadata().created_by().is_some_and(|maker| maker.starts_with("trimtab "))
}

/// Returns the names of a trace's devices in its rows: their own, with a number if a device before has the
/// same name.
pub(crate) fn device_names(header: &TraceHeader) -> Vec<String> {
    told_apart(header.devices.iter().map(|device| device.name.as_str()))
}

/// Returns the names of a trace's file systems in its rows: their mount points, numbered likewise.
pub(crate) fn file_system_names(header: &TraceHeader) -> Vec<String> {
    told_apart(header.file_systems.iter().map(|fs| fs.mount_point.as_str()))
}

fn told_apart<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken = HashSet::new();
    names
        .map(|name| {
            let numbered = (2_u32..).map(|number| format!("{name} ({number})"));
            let free = std::iter::once(name.to_owned()).chain(numbered).find(|name| !taken.contains(name));
            let free = free.expect("some number is free");
            taken.insert(free.clone());
            free
        })
        .collect()
}
