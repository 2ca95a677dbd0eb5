//! Traces of other programs, and of the published layouts.

mod counts;
mod formats;
mod ftrace;
mod independent;
mod published;
mod steps;

use std::io::Write;
use std::path::{Path, PathBuf};

use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};
use proptest::sample::Index;
use trimtab_core::trace::{EventKind, TraceEvent, TraceHeader};
use trimtab_core::units::{Bytes, Nanos};
use trimtab_trace::{Columns, Format, ReadCounts, TraceError, open};

struct Trace {
    header: TraceHeader,
    counts: ReadCounts,
    events: Vec<TraceEvent>,
}

impl Trace {
    fn of(&self, kind: EventKind) -> Vec<&TraceEvent> {
        self.events.iter().filter(|event| event.kind == kind).collect()
    }
}

/// Reads a trace to its end, and checks what holds for every one.
fn read(path: &Path, format: Option<Format>) -> Result<Trace, TraceError> {
    let mut reader = open(path, format, Columns::All)?;
    let (mut events, mut batch) = (Vec::new(), Vec::new());
    loop {
        reader.next_batch(&mut batch)?;
        if batch.is_empty() {
            break;
        }
        events.extend_from_slice(&batch);
    }
    let counts = reader.counts().clone();
    assert_eq!(counts.events, events.len() as u64);
    let taken = counts.events + counts.skipped.values().sum::<u64>();
    assert_eq!(counts.records + counts.more_events, taken, "{counts}");
    assert!(events.is_sorted_by_key(|event| event.at));
    assert!(events.iter().all(|event| usize::from(event.device.0) < reader.header().devices.len()));
    Ok(Trace { header: reader.header().clone(), counts, events })
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn file_of(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn text(text: &str) -> Result<Trace, TraceError> {
    read(file_of(text.as_bytes()).path(), None)
}

fn message(lines: &str) -> String {
    let error = text(lines).err().expect("it should be refused").to_string();
    error.split_once(": ").unwrap().1.to_owned()
}

/// Time, kind, start, length and latency.
type Brief = (u64, EventKind, u64, u64, Option<u64>);

fn brief(trace: &Trace) -> Vec<Brief> {
    let of = |event: &TraceEvent| {
        let latency = event.latency.map(|latency| latency.0);
        (event.at.0, event.kind, event.extent.start.0, event.extent.len().0, latency)
    };
    trace.events.iter().map(of).collect()
}

#[test]
fn published_layouts_are_read_in_their_units() {
    use EventKind::{Read, Write};
    let msr = "128166372003061629,usr,0,Read,7014609920,24576,41286\n\
               128166372016382155,usr,1,Write,1317441536,8192,1963\n";
    let alibaba = "0,R,126703644672,4096,1577808000000626\n419,W,8192,12288,1577808000001626\n";
    let tencent = "1538323199,8,16,0,1283\n1538323200,0,8,1,1576\n";
    let cloudphysics = "1000,16,r,4096\n3000,0,w,512\n";
    for (lines, format, started, devices, events) in [
        (
            msr,
            Format::Msr,
            Some("2007-02-22T17:00:00Z"),
            &["usr_0", "usr_1"][..],
            [
                (0, Read, 7_014_609_920, 24_576, Some(4_128_600)),
                (1_332_052_600, Write, 1_317_441_536, 8192, Some(196_300)),
            ],
        ),
        (
            alibaba,
            Format::Alibaba,
            Some("2019-12-31T16:00:00Z"),
            &["0", "419"],
            [(0, Read, 126_703_644_672, 4096, None), (1_000_000, Write, 8192, 12_288, None)],
        ),
        (
            tencent,
            Format::Tencent,
            Some("2018-09-30T15:59:59Z"),
            &["1283", "1576"],
            [(0, Read, 4096, 8192, None), (1_000_000_000, Write, 0, 4096, None)],
        ),
        (
            cloudphysics,
            Format::CloudPhysics,
            None,
            &["disk"],
            [(0, Read, 8192, 4096, None), (2_000_000, Write, 0, 512, None)],
        ),
    ] {
        let trace = text(lines).unwrap();
        assert_eq!(trace.header.origin, format.name());
        assert_eq!(trace.header.started.as_deref(), started, "{format}");
        assert_eq!(brief(&trace), events, "{format}");
        let names: Vec<_> = trace.header.devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, devices);
        assert!(!trace.header.has_discards);
        assert!(trace.header.gaps[0].contains("have no discards"));
    }
}

#[test]
fn packed_files_read_like_plain_ones() {
    let lines = "0,R,0,4096,1577808000000626\r\n\n0,W,8192,4096,1577808000000627";
    let plain = text(lines).unwrap();
    assert_eq!(plain.counts.to_string(), "records 3, events 2; skipped: empty lines 1");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(lines.as_bytes()).unwrap();
    for packed in [gzip.finish().unwrap(), zstd::encode_all(lines.as_bytes(), 1).unwrap()] {
        assert_eq!(read(file_of(&packed).path(), None).unwrap().events, plain.events);
        assert!(read(file_of(&packed[..packed.len() / 2]).path(), Some(Format::Alibaba)).is_err());
    }
}

#[test]
fn rows_a_little_late_are_put_in_order_and_others_refused() {
    let lines: String = (0..1000).map(|row| format!("{},8,w,512\n", row ^ 7)).collect();
    let trace = text(&lines).unwrap();
    assert!(trace.events.iter().zip(0..).all(|(event, at)| event.at == Nanos(at * 1000)));

    let mut lines: String = (0..70_000).map(|row| format!("{},8,w,512\n", row + 10)).collect();
    lines += "9,8,w,512\n";
    let error = message(&lines);
    assert!(error.starts_with("row 70001: its time, 9000 ns, is before"), "{error}");
}

#[test]
fn nonsense_is_refused_with_the_row_and_the_reason() {
    let good = "0,R,0,4096,1577808000000626\n";
    for (row, reason) in [
        ("0,R,0,4096", "it has not the 5 fields that a line of this format has"),
        ("0,R,0,4096,1,2", "it has not the 5 fields that a line of this format has"),
        ("0,T,0,4096,1", "opcode is \"T\", which is neither R nor W"),
        ("0,R,-8,4096,1", "offset is \"-8\", which is no number, or too large a one"),
        (
            "0,R,0,99999999999999999999,1",
            "length is \"99999999999999999999\", which is no number, or too large a one",
        ),
        (
            "0,R,1125899906842624,4096,1577808000000626",
            "it names 4096 bytes at 1125899906842624, past 1 PiB; are its offsets in another unit?",
        ),
    ] {
        assert_eq!(message(&format!("{good}{row}\n{good}")), format!("row 2: {reason}"));
    }
    assert!(message("hello\n").starts_with("no trace format that trimtab knows (trimtab, blktrace,"));
    assert_eq!(message(""), "it is empty");
}

#[test]
fn archives_are_refused_with_what_unpacks_them() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("hm_0.csv"), "128166372003061629,usr,0,Read,0,512,1\n").unwrap();
    for options in ["-cf", "-czf", "-cJf"] {
        let archive = dir.path().join("traces");
        let arguments = [options, archive.to_str().unwrap(), "-C", dir.path().to_str().unwrap(), "hm_0.csv"];
        assert!(std::process::Command::new("tar").args(arguments).status().unwrap().success());
        let error = read(&archive, None).err().unwrap().to_string();
        assert!(error.contains("tar -xf"), "{error}");
    }
}

#[test]
fn an_absurd_rate_is_a_wrong_unit() {
    let lines: String = (0..100_000).map(|row| format!("0,W,0,16777216,{}\n", 1_577_808_000 + row)).collect();
    let error = message(&lines);
    assert!(error.contains("were read and written in"), "{error}");
    assert!(error.contains("in other units than this format's"), "{error}");
}

#[test]
fn fio_logs_of_every_version_are_read() {
    let one = text("0, 4096, 512\n1, 0, 8192\n").unwrap();
    assert_eq!(brief(&one), [(0, EventKind::Read, 4096, 512, None), (0, EventKind::Write, 0, 8192, None)]);
    let two = text(
        "fio version 2 iolog\n/dev/a add\n/dev/a open\n/dev/a write 0 4096\n/dev/a wait 250 0\n\
         /dev/a trim 4096 8192\n/dev/a wait 50 0\n/dev/a datasync 0 0\n/dev/a close\n",
    )
    .unwrap();
    let expected = [
        (0, EventKind::Write, 0, 4096, None),
        (250_000, EventKind::Discard, 4096, 8192, None),
        (300_000, EventKind::Flush, 0, 0, None),
    ];
    assert_eq!(brief(&two), expected);
    assert_eq!(
        two.counts.to_string(),
        "records 9, events 3; skipped: file actions 3, version lines 1, waits 2"
    );
    assert!(two.header.has_discards);
}

/// fio 3.33 wrote these: 60 writes with a sync after each 20, and 40 pairs of a trim and a write at
/// 200 a second.
#[test]
fn logs_written_by_fio_are_read() {
    let writes = read(&data("write.iolog"), None).unwrap();
    assert_eq!((writes.of(EventKind::Write).len(), writes.of(EventKind::Flush).len()), (60, 2));
    let trims = read(&data("trim.iolog"), None).unwrap();
    assert_eq!((trims.of(EventKind::Discard).len(), trims.of(EventKind::Write).len()), (40, 40));
    assert!(trims.events.iter().all(|event| event.extent.len() == Bytes(8192)));
    let span = trims.events.last().unwrap().at;
    assert!((Nanos(150_000_000)..Nanos(3_000_000_000)).contains(&span), "{span}");
}

/// A recording of blktrace on an NVMe drive under kernel 6.12, and blkparse's output for it.
#[test]
fn blktrace_and_blkparse_give_the_same_events() {
    let binary = read(&data("bt.blktrace.0"), None).unwrap();
    let text = read(&data("bt.txt"), None).unwrap();
    let start = |trace: &Trace| brief(trace).into_iter().map(|event| (event.1, event.2, event.3, event.4));
    assert!(start(&binary).eq(start(&text)));
    assert_eq!(binary.header.devices[0].name, "259,0");
    assert_eq!(binary.header.devices[0].number, (259, 0));
    assert!(binary.events.iter().zip(&text.events).all(|(one, other)| one.process == other.process));

    let logged = read(&data("write.iolog"), None).unwrap();
    let extents =
        |trace: &Trace| trace.of(EventKind::Write).iter().map(|event| event.extent).collect::<Vec<_>>();
    assert_eq!(extents(&binary)[..60], extents(&logged)[..]);
    assert!(binary.events.iter().all(|event| event.latency.is_some() && event.error == 0));
    assert!(binary.header.gaps[0].contains("write-zeroes as writes"));
}

/// The processors' files are kept packed, in a directory that has them plain, too.
#[test]
fn packed_files_of_blktrace_are_read_with_their_siblings() {
    let dir = tempfile::tempdir().unwrap();
    for cpu in 0..2 {
        let name = format!("bt.blktrace.{cpu}");
        let plain = std::fs::read(data(&name)).unwrap();
        std::fs::write(dir.path().join(&name), &plain).unwrap();
        std::fs::write(dir.path().join(name + ".zst"), zstd::encode_all(&plain[..], 1).unwrap()).unwrap();
    }
    let plain = read(&data("bt.blktrace.0"), None).unwrap();
    for name in ["bt.blktrace.0", "bt.blktrace.0.zst", "bt.blktrace.1.zst"] {
        let packed = read(&dir.path().join(name), None).unwrap();
        assert_eq!((packed.events, packed.header), (plain.events.clone(), plain.header.clone()), "{name}");
    }
}

#[test]
fn single_stream_of_blktrace_is_read() {
    let trace = read(&data("single.blktrace"), None).unwrap();
    let reads = trace.of(EventKind::Read);
    assert_eq!((reads.len(), trace.events.len()), (20, 20));
    assert!(reads.iter().all(|event| event.process.to_string() == "dd" && event.extent.len() == Bytes(4096)));
}

#[test]
fn other_byte_order_gives_the_same_events() {
    let little = std::fs::read(data("single.blktrace")).unwrap();
    let (mut big, mut rest) = (Vec::new(), &little[..]);
    while !rest.is_empty() {
        let swapped = |at: usize, width: usize| rest[at..at + width].iter().rev().copied();
        let widths = [4, 4, 8, 8, 4, 4, 4, 4, 4, 2, 2];
        let mut at = 0;
        for width in widths {
            big.extend(swapped(at, width));
            at += width;
        }
        let data = usize::from(u16::from_le_bytes([rest[46], rest[47]]));
        let notification_of_time = rest[30] == 0 && rest[31] == 4 && rest[28] == 1;
        if notification_of_time {
            big.extend(swapped(48, 4).chain(swapped(52, 4)));
        } else {
            big.extend_from_slice(&rest[48..48 + data]);
        }
        rest = &rest[48 + data..];
    }
    let (one, other) =
        (read(&data("single.blktrace"), None).unwrap(), read(file_of(&big).path(), None).unwrap());
    assert_eq!(one.events, other.events);
    assert_eq!(one.header, other.header);
}

#[test]
fn bios_of_a_bio_based_driver_are_read() {
    let lines = "  7,0  0  1  0.000000100  9  Q  W 8 + 8 [dd]\n  7,0  0  2  0.000000200  9  Q  D 0 + 2048 [dd]\n  \
                 7,0  0  3  0.000000900  0  C  W 8 + 8 [0]\n  7,0  0  4  0.000001200  0  C  D 0 + 2048 [-5]\n";
    let trace = text(lines).unwrap();
    let expected =
        [(0, EventKind::Write, 4096, 4096, Some(800)), (100, EventKind::Discard, 0, 1 << 20, Some(1000))];
    assert_eq!(brief(&trace), expected);
    assert_eq!(trace.events[1].error, 5);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..500), format in 0..Format::ALL.len()) {
        let _ = read(file_of(&bytes).path(), Some(Format::ALL[format]));
    }

    #[test]
    fn mutated_traces_are_read_or_refused(
        file in 0..5_usize,
        edits in prop::collection::vec((any::<Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<Index>()),
    ) {
        let name = ["write.iolog", "trim.iolog", "single.blktrace", "bt.txt", "bt.blktrace.0"][file];
        let mut bytes = std::fs::read(data(name)).unwrap();
        for (place, byte) in edits {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = read(file_of(&bytes).path(), None);
    }

    #[test]
    fn rows_of_csv_come_back(rows in prop::collection::vec((0..1_u64 << 40, 0..1_u64 << 31, any::<bool>()), 1..50)) {
        let line = |(place, (offset, length, write)): (usize, &(u64, u64, bool))| {
            let op = if *write { "W" } else { "R" };
            format!("7,{op},{offset},{length},{}\n", 1_577_808_000_000_626 + place * 1000)
        };
        let trace = text(&rows.iter().enumerate().map(line).collect::<String>()).unwrap();
        prop_assert_eq!(trace.events.len(), rows.len());
        for (event, (offset, length, write)) in trace.events.iter().zip(&rows) {
            prop_assert_eq!((event.extent.start.0, event.extent.len().0), (*offset, *length));
            prop_assert!((event.kind == EventKind::Write) == *write);
        }
    }
}
