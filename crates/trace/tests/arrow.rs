//! Tables in Arrow's files and streams.

mod events;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow_array::types::{DurationMicrosecondType, Int16Type, UInt32Type};
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int16Array, Int32Array, Int64Array,
    LargeStringArray, NullArray, PrimitiveArray, RecordBatch, RunArray, StringArray, StringViewArray,
    TimestampMillisecondArray, UInt32Array, UInt64Array,
};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::ArrowError;
use trimtab_core::trace::EventKind::{Discard, Free, Write as Written};
use trimtab_core::trace::{TraceEvent, TraceHeader};
use trimtab_trace::{Format, TraceError};

use events::{brief, read};

fn read_bytes(bytes: &[u8]) -> Result<(TraceHeader, Vec<TraceEvent>), TraceError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    read(file.path())
}

/// The reason why bytes are refused.
fn reason(bytes: &[u8]) -> String {
    let error = read_bytes(bytes).expect_err("it should be refused").to_string();
    error.split_once(": ").unwrap().1.to_owned()
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
        .unwrap()
}

/// A table of three rows, with other types than our own files have.
fn table() -> RecordBatch {
    let processes: DictionaryArray<Int16Type> = [Some("fio"), None, Some("a, b")].into_iter().collect();
    batch(vec![
        ("start", Arc::new(UInt64Array::from(vec![0, 4096, 8192]))),
        (
            "kind",
            Arc::new(StringViewArray::from(vec!["write", "discard", "a kind that is too long for a view"])),
        ),
        ("mine", Arc::new(BooleanArray::from(vec![true, false, true]))),
        (
            "latency_ns",
            Arc::new(PrimitiveArray::<DurationMicrosecondType>::from(vec![Some(7), None, Some(9)])),
        ),
        ("length", Arc::new(UInt32Array::from(vec![512, 1 << 31, 1024]))),
        ("time_ns", Arc::new(TimestampMillisecondArray::from(vec![5, 6, 8]).with_timezone("UTC"))),
        ("process", Arc::new(processes)),
        ("error", Arc::new(Float64Array::from(vec![Some(5.0), None, Some(f64::NAN)]))),
        ("file_system", Arc::new(NullArray::new(3))),
        ("device", Arc::new(LargeStringArray::from(vec!["sda", "sdb", "sda"]))),
    ])
}

/// The same, with a kind that is one in the last row.
fn good() -> RecordBatch {
    let mut columns = table().columns().to_vec();
    columns[1] = Arc::new(StringViewArray::from(vec!["write", "discard", "free"]));
    RecordBatch::try_new(table().schema(), columns).unwrap()
}

fn written(batches: &[RecordBatch], is_file: bool, packed: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(packed).unwrap();
    let schema = batches[0].schema();
    let mut bytes = Vec::new();
    let write_all = |write: &mut dyn FnMut(&RecordBatch) -> Result<(), ArrowError>| {
        batches.iter().for_each(|batch| write(batch).unwrap());
    };
    if is_file {
        let mut writer = FileWriter::try_new_with_options(&mut bytes, &schema, options).unwrap();
        write_all(&mut |batch| writer.write(batch));
        writer.finish().unwrap();
    } else {
        let mut writer = StreamWriter::try_new_with_options(&mut bytes, &schema, options).unwrap();
        write_all(&mut |batch| writer.write(batch));
        writer.finish().unwrap();
    }
    bytes
}

#[test]
fn files_and_streams_are_read_in_every_packing() {
    let expected = [
        (0, Written, 0, 512, Some(7000)),
        (1_000_000, Discard, 4096, 1 << 31, None),
        (3_000_000, Free, 8192, 1024, Some(9000)),
    ];
    for is_file in [false, true] {
        for packed in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
            let bytes = written(&[good()], is_file, packed);
            let (header, events) = read_bytes(&bytes).unwrap();
            assert_eq!(brief(&events), expected, "{is_file} {packed:?}");
            let devices: Vec<_> = header.devices.iter().map(|device| device.name.as_str()).collect();
            assert_eq!(devices, ["sda", "sdb"]);
            let processes: Vec<_> = events.iter().map(|event| event.process.to_string()).collect();
            assert_eq!(processes, ["fio", "", "a, b"]);
            assert_eq!(events.iter().map(|event| event.error).collect::<Vec<_>>(), [5, 0, 0]);
            assert_eq!(header.gaps, ["columns that are not read: mine"]);
            assert_eq!(header.origin, "arrow");
            let zstd = zstd::encode_all(&bytes[..], 1).unwrap();
            if is_file {
                assert_eq!(reason(&zstd), "a packed Arrow file: unpack it first");
            } else {
                assert_eq!(read_bytes(&zstd).unwrap().1, events);
            }
        }
    }
}

#[test]
fn rows_of_many_batches_come_in_their_order() {
    let of = |numbers: std::ops::Range<i64>| {
        let kinds =
            StringArray::from_iter_values(numbers.clone().map(|it| ["read", "write"][it as usize % 2]));
        batch(vec![
            ("time_ns", Arc::new(Int64Array::from_iter_values(numbers.clone()))),
            ("kind", Arc::new(kinds)),
            ("start", Arc::new(Int64Array::from_iter_values(numbers.clone().map(|it| it * 512)))),
            ("length", Arc::new(Int64Array::from_iter_values(numbers.map(|_| 512)))),
        ])
    };
    let bytes = written(&[of(0..1), of(1..10_000), of(0..0), of(10_000..30_000)], false, None);
    let (_, events) = read_bytes(&bytes).unwrap();
    assert_eq!(events.len(), 30_000);
    assert!(events.iter().zip(0..).all(|(event, row)| event.extent.start.0 == row * 512));
    // A stream that is not ended by its mark, and the same with something behind the mark.
    assert_eq!(read_bytes(&bytes[..bytes.len() - 8]).unwrap().1, events);
    assert!(reason(&[&bytes[..], &bytes].concat()).ends_with("more follows the end of the stream"));
    let file = written(&[of(0..10), of(10..20)], true, None);
    let misplaced = "the messages that the footer names do not fill the file";
    assert!(reason(&[&file[..], &file].concat()).ends_with(misplaced));
    assert!(reason(&file[..file.len() - 1]).ends_with("the file ends in the middle of it"));
    // Polars writes no whole message for the schema at the beginning.
    let mut polars = file.clone();
    polars[8..16].copy_from_slice(b"\x04\0\0\0\xf2\xff\xff\xff");
    assert_eq!(read_bytes(&polars).unwrap().1, read_bytes(&file).unwrap().1);
}

/// pandas makes a dictionary of a column of categories, whatever they are.
#[test]
fn coded_numbers_are_read() {
    let mut columns = good().columns().to_vec();
    let lengths = Arc::new(UInt32Array::from(vec![1024, 512, 9]));
    let coded = DictionaryArray::new(Int16Array::from(vec![1, 0, 0]), lengths);
    columns[4] = Arc::new(coded);
    let microseconds = Arc::new(PrimitiveArray::<DurationMicrosecondType>::from(vec![7, 9]));
    let keys = Int16Array::from(vec![Some(0), None, Some(1)]);
    columns[3] = Arc::new(DictionaryArray::new(keys, microseconds));
    let names = good().schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    let coded = batch(names.iter().map(String::as_str).zip(columns).collect());
    for is_file in [true, false] {
        let events = brief(&read_bytes(&written(std::slice::from_ref(&coded), is_file, None)).unwrap().1);
        let lengths: Vec<_> = events.iter().map(|event| event.3).collect();
        assert_eq!(lengths, [512, 1024, 1024]);
        assert_eq!(events.iter().map(|event| event.4).collect::<Vec<_>>(), [Some(7000), None, Some(9000)]);
    }
}

#[test]
fn tables_that_are_no_traces_are_refused_with_the_reason() {
    let refused = |place: usize, array: ArrayRef| {
        let table = good();
        let names: Vec<_> = table.schema().fields().iter().map(|field| field.name().clone()).collect();
        let mut columns: Vec<_> =
            names.iter().map(String::as_str).zip(table.columns().iter().cloned()).collect();
        columns[place].1 = array;
        reason(&written(&[batch(columns)], true, None))
    };
    assert_eq!(
        reason(&written(&[table()], true, None)),
        "row 3: kind is \"a kind that is too long for a view\", which is no kind of event"
    );
    let numbers = || Arc::new(Int64Array::from(vec![Some(1), Some(2), None]));
    assert_eq!(refused(5, numbers()), "row 3: time_ns is \"\", which is missing");
    assert_eq!(
        refused(0, Arc::new(Int64Array::from(vec![1, -1, 2]))),
        "row 2: start is \"-1\", which is negative"
    );
    let far = Arc::new(TimestampMillisecondArray::from(vec![1, i64::MAX, 2]));
    assert!(refused(5, far).ends_with("which is too large"));
    assert_eq!(refused(1, numbers()), "a table, but no trace: its column kind holds no text");
    assert_eq!(
        refused(0, Arc::new(TimestampMillisecondArray::from(vec![1, 2, 3]))),
        "a table, but no trace: its column start holds times, not whole numbers"
    );
    let runs = RunArray::try_new(&Int32Array::from(vec![2, 3]), &StringArray::from(vec!["read", "write"]));
    assert!(refused(1, Arc::new(runs.unwrap())).ends_with("kind holds runs of texts: write them one by one"));
    let names: DictionaryArray<UInt32Type> = ["1", "2", "3"].into_iter().collect();
    assert_eq!(refused(4, Arc::new(names)), "a table, but no trace: its column length holds no numbers");
    let without = batch(vec![("kind", Arc::new(StringArray::from(vec!["read"])))]);
    assert_eq!(
        reason(&written(&[without], false, None)),
        "a table, but no trace: it has no column time_ns; needed are time_ns, kind, start, length"
    );
}

/// Whatever is changed in a file, it is read, with as many rows as it had, or refused.
#[test]
fn damaged_files_are_read_or_refused() {
    for packed in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        let bytes = written(&[good()], true, packed);
        for place in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[place] ^= [0x01, 0x41, 0xff][place % 3];
            if let Ok((_, events)) = read_bytes(&broken) {
                assert_eq!(events.len(), 3, "{place}");
            }
        }
        for cut in (0..bytes.len()).step_by(3) {
            assert!(read_bytes(&bytes[..cut]).is_err(), "{cut}");
        }
    }
    assert_eq!(Format::detect(Path::new("/dev/null")).unwrap(), None);
}
