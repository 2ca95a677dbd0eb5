//! Trace files, written and read back.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, LazyLock};

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};
use proptest::sample::Index;
use trimtab_core::extent::Extent;
use trimtab_core::trace::{
    Comm, DeviceIndex, EventKind, FsIndex, TraceDevice, TraceEvent, TraceFileSystem, TraceHeader, TraceSource,
};
use trimtab_core::units::{Bytes, Nanos};
use trimtab_trace::{Columns, TraceError, TraceFile, TraceWriter};

/// Two devices of one name, and two file systems at one mount point, one after the other.
fn header() -> TraceHeader {
    let device = |name: &str| TraceDevice { name: name.to_owned(), ..TraceDevice::default() };
    let fs = |kind: &str| TraceFileSystem {
        kind: kind.to_owned(),
        mount_point: "/mnt/a b".to_owned(),
        options: "rw,discard".to_owned(),
        source: "/dev/sda1".to_owned(),
    };
    TraceHeader {
        devices: vec![device("sda"), device("nvme0n1"), device("sda")],
        file_systems: vec![fs("ext4"), fs("xfs")],
        has_discards: true,
        duration: Some(Nanos(1 << 60)),
        ..TraceHeader::new("record")
    }
}

#[test]
fn a_recording_that_did_not_end_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    TraceWriter::create(&path, TraceHeader { duration: None, ..header() }).unwrap().finish().unwrap();
    let gaps = TraceFile::open(&path).unwrap().header().gaps.clone();
    assert!(gaps.len() == 1 && gaps[0].contains("did not come to its end"), "{gaps:?}");
}

fn events() -> impl Strategy<Value = Vec<TraceEvent>> {
    let size = prop_oneof![Just(4096_u64), 0..1_u64 << 20, 0..1_u64 << 62];
    let latency = prop::option::of(prop_oneof![0..1000_u64, 0..1_u64 << 62]);
    let process = prop_oneof![Just(""), Just("fstrim"), Just("kworker/0:1"), Just("é")];
    let event = (
        (prop_oneof![0..2_u64, 0..1_000_000_u64, 0..1_u64 << 50], 0..3_u16, 0..9_usize),
        (0..1_u64 << 62, size, latency),
        (process, prop_oneof![Just(0_u16), any::<u16>()], prop::option::of(0..2_u16)),
    );
    prop::collection::vec(event, 0..600).prop_map(|events| {
        let mut now = 0;
        let of = |((after, device, kind), (start, length, latency), (process, error, fs))| {
            now += after;
            TraceEvent {
                at: Nanos(now),
                device: DeviceIndex(device),
                kind: EventKind::ALL[kind],
                extent: Extent::at(Bytes(start), Bytes(length)),
                latency: Option::map(latency, Nanos),
                process: Comm::new(str::as_bytes(process)),
                error,
                fs: Option::map(fs, FsIndex),
            }
        };
        events.into_iter().map(of).collect()
    })
}

/// All events of the file, and the error that ended it.
fn read(path: &Path, columns: Columns) -> (Vec<TraceEvent>, Option<TraceError>) {
    let mut file = TraceFile::open(path).unwrap().with_columns(columns);
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    loop {
        let read = file.next_batch(&mut batch);
        all.extend_from_slice(&batch);
        match read {
            Ok(()) if batch.is_empty() => return (all, None),
            Ok(()) => {}
            Err(error) => return (all, Some(error)),
        }
    }
}

/// A file of three row groups of ten events each, and where each group's footer ends.
fn three_groups(path: &Path) -> (Vec<TraceEvent>, Vec<u64>) {
    let of = |place: u64| TraceEvent {
        at: Nanos(place * 1000),
        device: DeviceIndex((place % 3) as u16),
        kind: EventKind::ALL[place as usize % 9],
        extent: Extent::at(Bytes(place * 4096), Bytes(4096)),
        latency: place.is_multiple_of(2).then_some(Nanos(place + 100)),
        process: Comm::new(if place.is_multiple_of(5) { b"" } else { b"fio" }),
        error: (place % 7 == 3).into(),
        fs: (place % 4 == 1).then_some(FsIndex(1)),
    };
    let events: Vec<_> = (0..GROUPS * GROUP).map(of).collect();
    let mut ends = vec![];
    let mut writer = TraceWriter::create(path, header()).unwrap();
    for group in events.chunks(GROUP as usize) {
        writer.write(group).unwrap();
        writer.end_group().unwrap();
        ends.push(path.metadata().unwrap().len());
    }
    drop(writer);
    (events, ends)
}

static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    three_groups(&path);
    std::fs::read(&path).unwrap()
});

const GROUPS: u64 = 3;
const GROUP: u64 = 10;

/// The program was killed, or the power failed, while a group was being written: the file ends
/// anywhere. All groups before are there, and the header says what isn't.
#[test]
fn a_file_cut_anywhere_keeps_the_groups_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let (events, ends) = three_groups(&path);
    let whole = std::fs::read(&path).unwrap();
    for length in ends[0] as usize..=whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        let groups = ends.iter().filter(|end| **end <= length as u64).count();
        let file = TraceFile::open(&path).unwrap();
        let torn = length as u64 != ends[groups - 1];
        assert_eq!(file.header().gaps.iter().any(|gap| gap.contains("torn")), torn, "{length}");
        let (read, error) = read(&path, Columns::All);
        assert!(error.is_none());
        assert_eq!(read, events[..groups * GROUP as usize], "{length}");
    }
}

/// The same, with rubbish instead of nothing: a file system that had the length before the data.
#[test]
fn a_tail_of_zeros_is_torn_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let (events, ends) = three_groups(&path);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[ends[1] as usize..].fill(0);
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(read(&path, Columns::All).0, events[..20]);
}

#[test]
fn rows_out_of_order_are_refused_by_number() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let (events, _) = three_groups(&dir.path().join("other"));
    let mut writer = TraceWriter::create(&path, header()).unwrap();
    writer.write(&[events[3], events[4], events[2]]).unwrap();
    writer.finish().unwrap();
    let (good, error) = read(&path, Columns::All);
    assert_eq!(good, events[3..5]);
    let error = error.unwrap().to_string();
    assert!(error.ends_with("row 3: its time, 2000 ns, is before that of the row above, 4000 ns"), "{error}");
}

#[test]
fn other_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    for (bytes, reason) in [
        (&b"not Parquet"[..], "no Parquet file"),
        (b"", "no Parquet file"),
        (b"PAR1 and no more PAR1", "no whole footer is left in it, so nothing of it can be read"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let error = TraceFile::open(&path).err().unwrap().to_string();
        assert_eq!(error, format!("{}: {reason}", path.display()));
    }
    assert!(TraceWriter::create(&path, header()).is_err(), "a file is never overwritten");
}

#[test]
fn a_trace_of_a_newer_trimtab_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let newer = TraceHeader { schema: "trimtab/trace/2".to_owned(), ..header() };
    TraceWriter::create(&path, newer).unwrap().finish().unwrap();
    let error = TraceFile::open(&path).err().unwrap().to_string();
    assert!(
        error.ends_with(
            "it is in the format \"trimtab/trace/2\"; this trimtab reads \"trimtab/trace/1\": use the one that wrote it"
        ),
        "{error}"
    );
}

/// A page of some KiB that unpacks to 256 MiB: the name of one process.
#[test]
fn a_page_that_unpacks_to_too_much_is_broken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let schema = "message event { required int64 time_ns; required binary device (STRING); required binary kind (STRING); \
        required int64 start; required int64 length; optional int64 latency_ns; optional binary process (STRING); \
        required int32 error; optional binary file_system (STRING); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_dictionary_page_size_limit(usize::MAX)
        .set_key_value_metadata(Some(vec![KeyValue::new(
            "trimtab".to_owned(),
            serde_json::to_string(&header()).unwrap(),
        )]));
    let numbers = ["time_ns", "start", "length", "latency_ns", "error"].map(ColumnPath::from);
    let properties = numbers.into_iter().fold(properties, |properties, column| {
        properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED)
    });
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut names =
        ["time_ns", "device", "kind", "start", "length", "latency_ns", "process", "error", "file_system"]
            .into_iter();
    while let Some(mut column) = group.next_column().unwrap() {
        let text = |text: &str| ByteArray::from(text.as_bytes().to_vec());
        match names.next().unwrap() {
            "device" => column.typed::<ByteArrayType>().write_batch(&[text("sda")], None, None),
            "kind" => column.typed::<ByteArrayType>().write_batch(&[text("read")], None, None),
            "process" => {
                let name = ByteArray::from(vec![b'x'; 1 << 28]);
                column.typed::<ByteArrayType>().write_batch(&[name], Some(&[1]), None)
            }
            "file_system" => column.typed::<ByteArrayType>().write_batch(&[], Some(&[0]), None),
            "latency_ns" => column.typed::<Int64Type>().write_batch(&[], Some(&[0]), None),
            "error" => column.typed::<Int32Type>().write_batch(&[0], None, None),
            _ => column.typed::<Int64Type>().write_batch(&[0], None, None),
        }
        .unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    assert!(path.metadata().unwrap().len() < 1 << 20);
    let error = read(&path, Columns::All).1.unwrap().to_string();
    assert!(error.ends_with("row 1: column process is broken from here on"), "{error}");
    assert_eq!(read(&path, Columns::Replay).0.len(), 1, "all but the process is sound");
}

/// A full disk: the group that doesn't fit is refused, and the file stays whole.
#[test]
fn a_full_disk_leaves_a_whole_file() {
    let Some(mount) = SmallDisk::mount() else { return };
    let path = mount.0.path().join("trace");
    let (events, _) = three_groups(&path);
    std::fs::remove_file(&path).unwrap();
    let mut writer = TraceWriter::create(&path, header()).unwrap();
    writer.write(&events).unwrap();
    writer.end_group().unwrap();
    let random = |place: u64| {
        let start = Bytes((place * place).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12);
        TraceEvent { at: Nanos(place << 20), extent: Extent::at(start, Bytes(512)), ..events[0] }
    };
    let more: Vec<_> = (1..200_000).map(random).collect();
    writer.write(&more).unwrap();
    let error = writer.end_group().unwrap_err();
    assert!(error.source().unwrap().to_string().contains("No space left"), "{error:?}");
    assert!(writer.finish().is_err(), "a footer alone would fit, and name the group that doesn't");
    let (kept, error) = read(&path, Columns::All);
    assert!(error.is_none());
    assert_eq!(kept, events);
    assert_eq!(TraceFile::open(&path).unwrap().header().gaps, header().gaps);
}

/// A file system of 256 KiB, unmounted at the end.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(dir.path()).output();
        if mount.is_ok_and(|mount| mount.status.success()) {
            return Some(Self(dir));
        }
        assert!(std::env::var_os("CI").is_none(), "mounting a tmpfs needs root");
        eprintln!("skipped: mounting a tmpfs needs root");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// pyarrow sees the rows, types, nulls and header that were written, also behind the gaps of earlier
/// footers.
#[test]
fn pyarrow_reads_it() {
    const SCRIPT: &str = r#"
import json, sys, pyarrow.parquet as parquet
file = parquet.ParquetFile(sys.argv[1])
table = file.read()
header = json.loads(file.schema_arrow.metadata[b"trimtab"])
types = {field.name: str(field.type) for field in table.schema}
print(json.dumps([file.num_row_groups, header["schema"], types, table.to_pylist()[29], table["latency_ns"].null_count]))
"#;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.parquet");
    three_groups(&path);
    let Some(read) = by_python(SCRIPT, &path) else { return };
    let expected = serde_json::json!([
        3,
        "trimtab/trace/1",
        {
            "time_ns": "int64", "device": "string", "kind": "string", "start": "int64", "length": "int64",
            "latency_ns": "int64", "process": "string", "error": "int32", "file_system": "string",
        },
        {
            "time_ns": 29_000, "device": "sda (2)", "kind": "discard", "start": 118_784, "length": 4096,
            "latency_ns": null, "process": "fio", "error": 0, "file_system": "/mnt/a b (2)",
        },
        15,
    ]);
    assert_eq!(read, expected);
}

/// Nor do columns without a single name confuse it.
#[test]
fn pyarrow_reads_one_without_processes_and_file_systems() {
    const SCRIPT: &str = r#"
import json, sys, pyarrow.parquet as parquet
table = parquet.read_table(sys.argv[1])
print(json.dumps([table["start"].to_pylist(), table["process"].to_pylist(), table["file_system"].to_pylist()]))
"#;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.parquet");
    let (events, _) = three_groups(&dir.path().join("other"));
    let bare = |event: &TraceEvent| TraceEvent { process: Comm::default(), fs: None, ..*event };
    let bare: Vec<_> = events[..2].iter().map(bare).collect();
    let mut writer = TraceWriter::create(&path, TraceHeader { file_systems: vec![], ..header() }).unwrap();
    writer.write(&bare).unwrap();
    writer.finish().unwrap();
    assert_eq!(read(&path, Columns::All).0, bare);
    let Some(read) = by_python(SCRIPT, &path) else { return };
    assert_eq!(read, serde_json::json!([[0, 4096], [null, null], [null, null]]));
}

/// Returns the output of a script for the file at `path`; `None` if there is no python to run it.
fn by_python(script: &str, path: &Path) -> Option<serde_json::Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join("target/python/bin/python");
    if !python.exists() {
        assert!(std::env::var_os("CI").is_none(), "there is no {}; run make test", python.display());
        eprintln!("skipped: there is no {}; make test makes it", python.display());
        return None;
    }
    let out = Command::new(python).args(["-c", script]).arg(path).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(serde_json::from_slice(&out.stdout).unwrap())
}

proptest! {
    #[test]
    fn mutated_files_are_read_or_refused(
        edits in prop::collection::vec((any::<Index>(), any::<u8>()), 1..8),
        cut in prop::option::of(any::<Index>()),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let mut bytes = WHOLE.clone();
        for (place, byte) in edits {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        std::fs::write(&path, bytes).unwrap();
        if TraceFile::open(&path).is_ok() {
            read(&path, Columns::All);
        }
    }

    #[test]
    fn written_events_are_read(events in events(), flush in 1..200_usize) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let mut writer = TraceWriter::create(&path, header()).unwrap();
        for piece in events.chunks(flush) {
            writer.write(piece).unwrap();
            writer.flush().unwrap();
        }
        writer.header_mut().lost = 7;
        writer.finish().unwrap();
        let file = TraceFile::open(&path).unwrap();
        prop_assert_eq!(file.header(), &TraceHeader { lost: 7, ..header() });
        prop_assert_eq!(file.rows(), events.len() as u64);
        let (all, error) = read(&path, Columns::All);
        prop_assert_eq!(error.map(|error| error.to_string()), None);
        prop_assert_eq!(&all, &events);
        let bare = |event: &TraceEvent| TraceEvent { process: Comm::default(), fs: None, ..*event };
        let bare: Vec<_> = events.iter().map(bare).collect();
        prop_assert_eq!(read(&path, Columns::Replay).0, bare);
    }
}
