//! Tables that other programs wrote as Parquet, with our columns.

mod events;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use trimtab_core::trace::{EventKind, TraceHeader};
use trimtab_trace::{Format, TraceFile, TraceWriter};

use events::{brief, read};

/// The values of a column; none is a missing one.
enum Column {
    Int(Vec<Option<i64>>),
    Short(Vec<Option<i32>>),
    Float(Vec<Option<f64>>),
    Text(Vec<Option<&'static str>>),
}

fn present<T: Clone, V>(values: &[Option<T>], convert: impl Fn(T) -> V) -> (Vec<V>, Vec<i16>) {
    let levels = values.iter().map(|value| i16::from(value.is_some())).collect();
    (values.iter().flatten().cloned().map(convert).collect(), levels)
}

/// Writes a table with the schema `fields`, half of the rows in each of two groups.
fn write(path: &Path, fields: &str, columns: &[Column], properties: WriterPropertiesBuilder) {
    let schema = Arc::new(parse_message_type(&format!("message table {{ {fields} }}")).unwrap());
    let file = File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build())).unwrap();
    for half in 0..2 {
        let mut group = writer.next_row_group().unwrap();
        for column in columns {
            let mut out = group.next_column().unwrap().unwrap();
            macro_rules! write {
                ($kind:ty, $values:expr, $convert:expr) => {{
                    let part = $values.chunks($values.len().div_ceil(2)).nth(half).unwrap();
                    let (values, levels) = present(part, $convert);
                    out.typed::<$kind>().write_batch(&values, Some(&levels), None).unwrap();
                }};
            }
            match column {
                Column::Int(values) => write!(Int64Type, values, |it| it),
                Column::Short(values) => write!(Int32Type, values, |it| it),
                Column::Float(values) => write!(DoubleType, values, |it| it),
                Column::Text(values) => write!(ByteArrayType, values, |it: &str| ByteArray::from(it)),
            }
            out.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
}

fn all<T: Clone>(values: &[T]) -> Vec<Option<T>> {
    values.iter().cloned().map(Some).collect()
}

const FIELDS: &str = "optional int64 start (INTEGER(64, false)); optional binary kind (STRING); optional double latency_ns; \
                      required int32 length (INTEGER(32, false)); optional binary mine (STRING); optional int64 time_ns; \
                      optional binary file_system (STRING); optional int32 process (UNKNOWN);";

fn columns() -> Vec<Column> {
    vec![
        Column::Int(all(&[0, 4096, 8192])),
        Column::Text(all(&["write", "discard", "free"])),
        Column::Float(vec![Some(100.0), Some(f64::NAN), None]),
        Column::Short(all(&[4096, -4096, 512])),
        Column::Text(vec![None, Some("x"), None]),
        Column::Int(all(&[7_000_000, 8_000_000, 9_000_000])),
        Column::Text(vec![None, None, Some("/mnt")]),
        Column::Short(vec![None; 3]),
    ]
}

#[test]
fn tables_are_read_in_every_packing_and_encoding() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table");
    let packings = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
    ];
    let large = 4_294_963_200; // -4096 without its sign
    let expected = [
        (0, EventKind::Write, 0, 4096, Some(100)),
        (1_000_000, EventKind::Discard, 4096, large, None),
        (2_000_000, EventKind::Free, 8192, 512, None),
    ];
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for packing in packings {
            for encoding in [None, Some(Encoding::PLAIN), Some(Encoding::BYTE_STREAM_SPLIT)] {
                let mut properties =
                    WriterProperties::builder().set_writer_version(version).set_compression(packing);
                if let Some(encoding) = encoding {
                    properties = properties.set_dictionary_enabled(false);
                    for name in ["start", "time_ns", "length", "latency_ns"] {
                        properties = properties.set_column_encoding(name.into(), encoding);
                    }
                }
                write(&path, FIELDS, &columns(), properties);
                let (header, events) = read(&path).unwrap();
                assert_eq!(brief(&events), expected, "{version:?} {packing} {encoding:?}");
                assert_eq!(header.gaps, ["columns that are not read: mine"]);
                assert_eq!(header.file_systems[0].mount_point, "/mnt");
                assert!(events[2].fs.is_some() && events[0].fs.is_none());
                assert_eq!(Format::detect(&path).unwrap(), Some(Format::Trimtab));
            }
        }
    }
}

#[test]
fn timestamps_are_read_in_their_units() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table");
    for (kind, scale) in [
        ("TIMESTAMP(MILLIS, true)", 1_000_000),
        ("TIMESTAMP(MICROS, false)", 1000),
        ("TIMESTAMP(NANOS, true)", 1),
        ("TIMESTAMP_MICROS", 1000),
        ("INTEGER(64, true)", 1),
    ] {
        let fields = FIELDS.replace("time_ns", &format!("time_ns ({kind})"));
        write(&path, &fields, &columns(), WriterProperties::builder());
        let times: Vec<_> = read(&path).unwrap().1.iter().map(|event| event.at.0).collect();
        assert_eq!(times, [0, 1_000_000, 2_000_000].map(|time| time * scale), "{kind}");
    }
}

/// The types of Arrow that pyarrow, pandas and Polars keep in the metadata, as text: Parquet has no durations.
fn arrow_schema(fields: Vec<Field>) -> KeyValue {
    let schema = StreamWriter::try_new(Vec::new(), &Schema::new(fields)).unwrap().into_inner().unwrap();
    KeyValue::new("ARROW:schema".to_owned(), BASE64_STANDARD.encode(schema))
}

#[test]
fn durations_and_times_of_day_are_converted_by_their_units() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table");
    let plain = FIELDS.replace("double latency_ns", "int64 latency_ns");
    let mut columns = columns();
    columns[2] = Column::Int(vec![Some(100), None, Some(7)]);
    let latencies = |scale: u64| [Some(100 * scale), None, Some(7 * scale)];
    let found =
        || read(&path).map(|(_, events)| brief(&events).into_iter().map(|it| it.4).collect::<Vec<_>>());
    for (unit, scale) in [
        (TimeUnit::Second, 1_000_000_000),
        (TimeUnit::Millisecond, 1_000_000),
        (TimeUnit::Microsecond, 1000),
        (TimeUnit::Nanosecond, 1),
    ] {
        let fields = vec![
            Field::new("latency_ns", DataType::Duration(unit), true),
            Field::new("time_ns", DataType::Duration(unit), true),
        ];
        let properties =
            || WriterProperties::builder().set_key_value_metadata(Some(vec![arrow_schema(fields.clone())]));
        columns[5] = Column::Int(all(&[0, 1, 2]));
        write(&path, &plain, &columns, properties());
        assert_eq!(found().unwrap(), latencies(scale), "{unit:?}");
        let times: Vec<_> = read(&path).unwrap().1.iter().map(|event| event.at.0).collect();
        assert_eq!(times, [0, scale, 2 * scale], "{unit:?}");
    }
    for (kind, scale) in [
        ("TIME(MICROS, true)", 1000),
        ("TIME(NANOS, false)", 1),
        ("TIME_MICROS", 1000),
        ("TIMESTAMP(MILLIS, true)", 1_000_000),
    ] {
        let fields = plain.replace("latency_ns", &format!("latency_ns ({kind})"));
        write(&path, &fields, &columns, WriterProperties::builder());
        assert_eq!(found().unwrap(), latencies(scale), "{kind}");
    }
    // pandas makes categories of durations.
    let coded = DataType::Dictionary(DataType::Int8.into(), DataType::Duration(TimeUnit::Second).into());
    let fields = vec![Field::new("latency_ns", coded, true)];
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![arrow_schema(fields)]));
    write(&path, &plain, &columns, properties);
    assert_eq!(found().unwrap(), latencies(1_000_000_000));
    // Not every number is a time, and not every time a number.
    let fields = vec![Field::new("start", DataType::Duration(TimeUnit::Microsecond), true)];
    let metadata = vec![arrow_schema(fields)];
    let properties = WriterProperties::builder().set_key_value_metadata(Some(metadata));
    write(&path, &plain.replace(" (INTEGER(64, false))", ""), &columns, properties);
    assert!(found().unwrap_err().to_string().ends_with("its column start holds times, not whole numbers"));
    let broken = vec![KeyValue::new("ARROW:schema".to_owned(), "bm90IG9uZQ==".to_owned())];
    write(&path, &plain, &columns, WriterProperties::builder().set_key_value_metadata(Some(broken)));
    assert!(found().unwrap_err().to_string().ends_with("the Arrow schema in its metadata is broken"));
}

#[test]
fn tables_that_are_no_traces_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table");
    let refused = |fields: &str, columns: &[Column]| {
        write(&path, fields, columns, WriterProperties::builder());
        let error = read(&path).expect_err("it should be refused").to_string();
        error.strip_prefix(&format!("{}: ", path.display())).unwrap().to_owned()
    };
    let with = |place: usize, column: Column| {
        let mut columns = columns();
        columns[place] = column;
        columns
    };
    let needed = "needed are time_ns, kind, start, length";
    assert_eq!(
        refused(&FIELDS.replace("start", "offset"), &columns()),
        format!("a table, but no trace: it has no column start; {needed}")
    );
    let seconds = FIELDS.replace("int64 time_ns", "double time_ns");
    assert_eq!(
        refused(&seconds, &with(5, Column::Float(all(&[0.0, 0.25, 0.5])))),
        "row 2: time_ns is \"0.25\", which is no whole number that a float can tell from others"
    );
    assert_eq!(
        refused(FIELDS, &with(1, Column::Text(all(&["write", "trim", "free"])))),
        "row 2: kind is \"trim\", which is no kind of event"
    );
    assert_eq!(
        refused(FIELDS, &with(5, Column::Int(vec![Some(1), Some(2), None]))),
        "row 3: time_ns is \"\", which is missing"
    );
    assert_eq!(
        refused(FIELDS, &with(5, Column::Int(all(&[-1, 2, 3])))),
        "row 1: time_ns is \"-1\", which is negative"
    );
    let decimals = FIELDS.replace("int64 time_ns", "int64 time_ns (DECIMAL(18, 2))");
    assert!(refused(&decimals, &columns()).contains("its column time_ns holds dates or decimals"));
    for (kind, reason) in [
        ("fixed_len_byte_array(9) start (DECIMAL(20, 0))", "its column start holds dates or decimals"),
        ("fixed_len_byte_array(2) start (FLOAT16)", "its column start holds floats of 16 bits"),
        ("fixed_len_byte_array(16) start", "its column start holds no numbers"),
    ] {
        let fields = FIELDS.replace("int64 start (INTEGER(64, false))", kind);
        assert!(fields != FIELDS, "{kind}");
        let schema = Arc::new(parse_message_type(&format!("message table {{ {fields} }}")).unwrap());
        let file = File::create(&path).unwrap();
        SerializedFileWriter::new(file, schema, Arc::default()).unwrap().close().unwrap();
        let error = read(&path).expect_err(kind).to_string();
        assert!(error.contains(reason), "{error}");
    }
    let kinds = FIELDS.replace("binary kind (STRING)", "int64 kind");
    assert!(
        refused(&kinds, &with(1, Column::Int(all(&[1, 2, 3])))).contains("its column kind holds no text")
    );
}

/// As pyarrow does: other encodings, and the header is kept.
#[test]
fn rewritten_trace_of_our_own_keeps_its_header() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    let mut header = TraceHeader::new("record");
    header.devices.push(trimtab_core::trace::TraceDevice {
        name: "disk".to_owned(),
        size: trimtab_core::Bytes::GIB,
        ..Default::default()
    });
    let writer = TraceWriter::create(&ours, header.clone()).unwrap();
    writer.finish().unwrap();
    let reader = SerializedFileReader::new(File::open(&ours).unwrap()).unwrap();
    let metadata = reader.metadata().file_metadata().key_value_metadata().unwrap();
    let text = metadata.iter().find(|entry| entry.key == "trimtab").unwrap().value.clone().unwrap();
    let properties = WriterProperties::builder()
        .set_key_value_metadata(Some(vec![KeyValue::new("trimtab".to_owned(), text)]));
    write(&theirs, FIELDS, &columns(), properties);
    let (read_header, events) = read(&theirs).unwrap();
    assert_eq!(read_header.devices, header.devices);
    assert_eq!(events[0].at.0, 7_000_000, "times count from the beginning that the header names");
    assert!(TraceFile::open(&theirs).is_err());
}

#[test]
fn packed_tables_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let (path, packed) = (dir.path().join("table"), dir.path().join("packed"));
    write(&path, FIELDS, &columns(), WriterProperties::builder());
    std::fs::write(&packed, zstd::encode_all(&std::fs::read(&path).unwrap()[..], 1).unwrap()).unwrap();
    let error = read(&packed).unwrap_err().to_string();
    assert!(error.ends_with("a packed Parquet file: unpack it first"), "{error}");
}

/// A table that is cut off is no table.
#[test]
fn damaged_tables_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table");
    write(&path, FIELDS, &columns(), WriterProperties::builder());
    let bytes = std::fs::read(&path).unwrap();
    for cut in [5, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        assert!(read(&path).is_err(), "{cut}");
    }
    for place in 4..bytes.len() {
        let mut broken = bytes.clone();
        broken[place] ^= 0x41;
        std::fs::write(&path, &broken).unwrap();
        if let Ok((_, events)) = read(&path) {
            assert_eq!(events.len(), 3, "{place}");
        }
    }
}
