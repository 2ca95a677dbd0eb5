//! Formats that are found by their columns, each by a sample that was written by hand, and how they are told apart.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use trimtab_core::trace::EventKind::{self, Discard, Flush, Read, Write};
use trimtab_trace::{Columns, Format, open};

use super::{brief, data, file_of, message, read, text};

/// DiskSim: milliseconds with decimals; the lowest bit of the flags is set for a read.
const DISKSIM: &str = "0.0 0 1234 8 1\n12.345678 1 16 3 0\n13.5 0 0 4096 3\n";
/// MQSim and SSDsim: nanoseconds.
const MQSIM: &str = "4851300 1 524288 16 0\n4864300 1 524304 16 1\n";
const LIBCACHESIM: &str =
    "version,time,op,size,lbn\n1,5633898,2a,4096,42932745\n1,5633900,88,512,8\n1,5633901,42,24,0\n";
const BIOSNOOP: &str = "TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)\n\
    0.000000    jbd2/nvme0n1   174     nvme0n1   W 95737904   45056     0.27\n\
    0.000513    Web Content    3011    sda       R 8          4096      1.50\n\
    0.002000    ?              0       sda       R 18446744073709551615 0         0.05\n";
const CSV: &str = "time_ns,device,kind,start,length,latency_ns,process,error,file_system\n\
    5,sda,write,0,4096,100,fio,0,\n9,sda,free,0,4096,,,0,/mnt\n";

/// Records of the vscsi tracer of a version: opcode, sector, bytes, microseconds.
pub(super) fn vscsi(version: u16, records: &[(u16, u64, u32, u64)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, (opcode, sector, length, time)) in (0_u32..).zip(records) {
        let (opcode, version_field) = (opcode.to_le_bytes(), (version << 8).to_le_bytes());
        let (number, length, elements) = (number.to_le_bytes(), length.to_le_bytes(), 1_u32.to_le_bytes());
        let head = if version == 1 {
            [&number[..], &length, &elements, &opcode, &version_field].concat()
        } else {
            [&opcode[..], &version_field, &number, &length, &elements].concat()
        };
        bytes.extend(head);
        bytes.extend(sector.to_le_bytes());
        bytes.extend(time.to_le_bytes());
        if version == 2 {
            bytes.extend(77_u64.to_le_bytes());
        }
    }
    bytes
}

/// A table as Arrow's file or stream.
fn arrow(is_file: bool) -> Vec<u8> {
    let numbers = |values: [i64; 2]| Arc::new(Int64Array::from_iter_values(values)) as ArrayRef;
    let kinds = Arc::new(StringArray::from(vec!["read", "discard"])) as ArrayRef;
    let columns = [
        ("time_ns", numbers([1, 2])),
        ("kind", kinds),
        ("start", numbers([0, 512])),
        ("length", numbers([512; 2])),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    if is_file {
        let mut writer = FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap()
    } else {
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap()
    }
}

/// Every format, with a file of it.
fn samples() -> Vec<(Format, Vec<u8>)> {
    let file = |name: &str| std::fs::read(data(name)).unwrap();
    let mut samples: Vec<_> = [
        (Format::Blktrace, "bt.blktrace.0"),
        (Format::Blktrace, "single.blktrace"),
        (Format::Blkparse, "bt.txt"),
        (Format::Blkparse, "ycsb.txt"),
        (Format::Fio3, "write.iolog"),
        (Format::Systor, "systor.csv"),
        (Format::Spc, "financial.spc"),
        (Format::Fiu, "fiu.txt"),
        (Format::Midas, "midas.txt"),
        (Format::Ftrace, "android-block.txt"),
        (Format::Ftrace, "android-mmc.txt"),
        (Format::Mobile, "mobile.csv"),
    ]
    .map(|(format, name)| (format, file(name)))
    .to_vec();
    let logged = text("fio version 3 iolog\n0 a write 0 4096\n").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let mut writer = trimtab_trace::TraceWriter::create(&path, logged.header.clone()).unwrap();
    writer.write(&logged.events).unwrap();
    writer.finish().unwrap();
    samples.push((Format::Trimtab, std::fs::read(path).unwrap()));
    let texts = [
        (Format::Fio1, "0, 4096, 512\n1, 0, 8192\n"),
        (Format::Fio2, "fio version 2 iolog\na add\na write 0 4096\na wait 250 0\n"),
        (Format::Msr, "128166372003061629,usr,0,Read,7014609920,24576,41286\n"),
        (Format::Alibaba, "419,W,8192,12288,1577808000001626\n"),
        (Format::Tencent, "1538323199,8,16,0,1283\n"),
        (Format::CloudPhysics, "1000,16,r,4096\n"),
        (Format::CloudPhysics, LIBCACHESIM),
        (Format::Midas, "0.146559796 1 0 4096 0\n0.2 3 1 8192 1\n"),
        (Format::DiskSim, DISKSIM),
        (Format::MqSim, MQSIM),
        (Format::Biosnoop, BIOSNOOP),
        (Format::Csv, CSV),
    ];
    samples.extend(texts.map(|(format, text)| (format, text.as_bytes().to_vec())));
    samples.push((Format::Arrow, arrow(true)));
    samples.push((Format::Arrow, arrow(false)));
    for version in [1, 2] {
        samples.push((Format::Vscsi, vscsi(version, &[(0x2a, 8, 4096, 10), (0x28, 16, 512, 11)])));
    }
    samples
}

#[test]
fn no_format_is_taken_for_another() {
    let samples = samples();
    for format in Format::ALL {
        assert!(samples.iter().any(|(of, _)| *of == format), "{format} has no sample");
    }
    for (format, bytes) in &samples {
        let file = file_of(bytes);
        assert_eq!(Format::detect(file.path()).unwrap(), Some(*format), "{}", String::from_utf8_lossy(bytes));
        let found = read(file.path(), None).unwrap();
        assert!(!found.events.is_empty());
        let forced = read(file.path(), Some(*format)).unwrap();
        assert_eq!(forced.events, found.events);
        // By another reader it is refused, or read the same.
        for other in Format::ALL.into_iter().filter(|other| other != format) {
            if let Ok(trace) = read(file.path(), Some(other)) {
                let same = brief(&trace) == brief(&found);
                // These have the same columns, and no mark of their own.
                let have_five = |it| matches!(it, Format::Midas | Format::DiskSim | Format::MqSim);
                assert!(same || have_five(*format) && have_five(other), "{format} by {other}");
            }
        }
    }
}

/// The table of programs says what is read of every format.
#[test]
fn documentation_has_a_row_for_every_format() {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/record.md")).unwrap();
    let (_, table) = page.split_once("| program | `--format` |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.split('|').nth(2).unwrap());
    let documented: BTreeSet<_> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert_eq!(documented, Format::ALL.iter().map(|format| format.name()).collect());
}

#[test]
fn guesses_are_said_and_doubts_refused() {
    let guessed = text(DISKSIM).unwrap();
    let gaps = guessed.header.gaps.join("; ");
    assert!(
        gaps.contains("that its format is disksim was concluded from the shape of its records"),
        "{gaps}"
    );
    assert!(gaps.contains("--format names another"), "{gaps}");
    let forced = read(file_of(DISKSIM.as_bytes()).path(), Some(Format::DiskSim)).unwrap();
    assert!(!forced.header.gaps.join("; ").contains("concluded"));
    let named = text("fio version 3 iolog\n0 a write 0 4096\n").unwrap();
    assert!(named.header.gaps.is_empty());
    assert_eq!(
        message("0.5 1 8 512 0\n0.6 1 16 1024 1\n"),
        "its lines could be of several formats (midas, disksim): --format says which"
    );
    assert!(message("0.0 1 1234 8\n").starts_with("no trace format"), "no device writes 8 bytes");
    let midas = read(file_of(b"0.0 1 1234 8\n").path(), Some(Format::Midas)).err().unwrap().to_string();
    assert!(midas.contains("size is \"8\", which is no multiple of 512 bytes"), "{midas}");
}

#[test]
fn simulators_traces_are_read_in_sectors() {
    let trace = text(DISKSIM).unwrap();
    let expected = [
        (0, Read, 1234 * 512, 4096, None),
        (12_345_678, Write, 16 * 512, 3 * 512, None),
        (13_500_000, Read, 0, 4096 * 512, None),
    ];
    assert_eq!(brief(&trace), expected);
    let names: Vec<_> = trace.header.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["0", "1"]);
    let trace = text(MQSIM).unwrap();
    let expected = [(0, Write, 524_288 * 512, 8192, None), (13_000, Read, 524_304 * 512, 8192, None)];
    assert_eq!(brief(&trace), expected);
}

#[test]
fn libcachesims_columns_of_cloudphysics_are_read() {
    let trace = text(LIBCACHESIM).unwrap();
    let expected = [(0, Write, 42_932_745 * 512, 4096, None), (2_000_000_000, Read, 4096, 512, None)];
    assert_eq!(brief(&trace), expected);
    assert!(trace.header.gaps.contains(&"its times are whole seconds".to_owned()));
    for (row, reason) in [
        ("1,5633901,138,24,0", "op is \"138\", which is no opcode of two hexadecimal digits"),
        ("1,5633901,r,24,0", "op is \"r\", which is no opcode"),
        ("1,5633901368802,2a,24,0", "time is \"5633901368802\", which is too large"),
    ] {
        let error = message(&format!("{LIBCACHESIM}{row}\n"));
        assert!(error.contains(reason), "{error}");
    }
    assert_eq!(trace.counts.skipped["UNMAP commands, whose ranges are not recorded"], 1);
}

#[test]
fn records_of_vscsi_are_read_in_both_versions() {
    let records = [
        (0x28, 8, 4096, 1000),
        (0x2a, 16, 512, 1002),
        (0x35, 0, 0, 1003),
        (0x12, 0, 36, 1004),
        (0x8a, 0, 8192, 1005),
    ];
    for version in [1, 2] {
        let bytes = vscsi(version, &records);
        let trace = read(file_of(&bytes).path(), None).unwrap();
        let expected = [
            (0, Read, 4096, 4096, None),
            (2000, Write, 8192, 512, None),
            (3000, Flush, 0, 0, None),
            (5000, Write, 0, 8192, None),
        ];
        assert_eq!(brief(&trace), expected, "{version}");
        assert_eq!(trace.counts.skipped["commands that are no reads, writes or flushes"], 1);
        let cut = read(file_of(&bytes[..bytes.len() - 1]).path(), None).err().unwrap().to_string();
        assert!(cut.contains("ends in the middle"), "{cut}");
    }
}

/// libCacheSim's oracleGeneral has seconds, an object, bytes and the next request of the object.
#[test]
fn records_without_operations_are_refused_with_the_reason() {
    let record = |number: u32, next: i64| {
        let (object, size) = (u64::from(number % 3) * 8, 4096_u32);
        [&number.to_le_bytes()[..], &object.to_le_bytes(), &size.to_le_bytes(), &next.to_le_bytes()].concat()
    };
    let bytes: Vec<_> =
        (0..90).flat_map(|it| record(it, if it < 80 { i64::from(it) + 3 } else { -1 })).collect();
    for length in [bytes.len(), 24] {
        let error = read(file_of(&bytes[..length]).path(), None).err().unwrap().to_string();
        assert!(error.contains("oracleGeneral, whose records do not tell reads from writes"), "{error}");
    }
}

#[test]
fn biosnoop_is_read_and_its_gaps_are_named() {
    let trace = text(BIOSNOOP).unwrap();
    let expected =
        [(0, Read, 4096, 4096, Some(1_500_000)), (717_000, Write, 95_737_904 * 512, 45_056, Some(270_000))];
    assert_eq!(brief(&trace), expected);
    assert_eq!(trace.events[0].process.to_string(), "Web Content");
    assert!(trace.header.gaps.join("; ").contains("discards and flushes may be among the reads"));
    let queued = BIOSNOOP
        .replace("LAT(ms)", "QUE(ms) LAT(ms)")
        .replace(" 0.27", " 9.99 0.27")
        .replace(" 1.50", " 9.99 1.50")
        .replace(" 0.05", " 9.99 0.05");
    assert_eq!(text(&queued).unwrap().events, trace.events);
    // Requests that began before it did have no place.
    let early = BIOSNOOP.replace(
        "?              0       sda       R 18446744073709551615 0 ",
        "?              0       <unknown> R 0          4096 ",
    );
    let without_disk = early.replace("<unknown>", "");
    for lines in [early, without_disk] {
        let found = text(&lines).unwrap();
        assert_eq!(found.events, trace.events);
        assert_eq!(found.counts.skipped["requests that began before biosnoop did, without their places"], 1);
    }
    // With -P, a letter follows the bytes, behind seven digits without a space.
    let patterns = BIOSNOOP
        .replace("BYTES  LAT", "BYTES  P LAT")
        .replace("45056     0.27", "45056  ?    0.27")
        .replace("4096      1.50", "1048576S    1.50")
        .replace("0         0.05", "0      R    0.05");
    let places = brief(&text(&patterns).unwrap());
    assert_eq!((places[0].2, places[0].3), (4096, 1 << 20));
    assert_eq!(places[1], expected[1]);
    // The program of libbpf-tools has the kernel's letters: a write may begin with a flush.
    let letters = BIOSNOOP.replace(" W 9", " FWFS 9").replace("sda       R 8 ", "sda       FF 8 ");
    let trace = text(&letters.replace("4096      1.50", "0         1.50")).unwrap();
    let expected =
        [(0, Flush, 0, 0, Some(1_500_000)), (717_000, Write, 95_737_904 * 512, 45_056, Some(270_000))];
    assert_eq!(brief(&trace), expected);
    let message =
        message("TIME(ms)     COMM             PID    LAT(ms)\n611          bash             4179      10\n");
    assert!(message.contains("no sectors and no bytes"), "{message}");
}

#[test]
fn tables_in_csv_are_read() {
    let trace = text(CSV).unwrap();
    let expected = [(0, Write, 0, 4096, Some(100)), (4, EventKind::Free, 0, 4096, None)];
    assert_eq!(brief(&trace), expected);
    assert_eq!(trace.header.file_systems[0].mount_point, "/mnt");
    assert!(trace.events[1].fs.is_some());
    for separator in [";", "\t", "|"] {
        assert_eq!(text(&CSV.replace(',', separator)).unwrap().events, trace.events, "{separator:?}");
    }
    // pandas writes an index, floats and quotes; the order is another one.
    let other = "\u{feff},start,kind,time_ns,length,latency_ns,process,mine\n\
                 0,0,write,5,4096.0,100.0,\"a \"\"b\"\", c\",x\n1,0,discard,9,4096.0,,,\n";
    let trace = text(other).unwrap();
    assert_eq!(brief(&trace), [(0, Write, 0, 4096, Some(100)), (4, Discard, 0, 4096, None)]);
    assert_eq!(trace.events[0].process.to_string(), "a \"b\", c");
    assert_eq!(trace.header.devices[0].name, "disk");
    assert!(trace.header.gaps.contains(&"columns that are not read: mine".to_owned()));
    for (row, reason) in [
        ("5,sda,write,0.5,4096,,,0,", "start is \"0.5\", which is no whole number"),
        ("5,sda,wrote,0,4096,,,0,", "kind is \"wrote\", which is no kind of event"),
        ("5,sda,write,,4096,,,0,", "start is \"\", which is missing"),
        ("5,sda,write,0,4096", "it has not the 9 fields"),
        ("5,sda,write,0,4096,,\"x,0,", "ends in quotes"),
    ] {
        let error = message(&format!("{CSV}{row}\n"));
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn recordings_of_other_programs_are_refused_with_what_prints_them() {
    for (start, program) in [
        (&b"PERFILE2\x68\0\0\0"[..], "perf script"),
        (b"\x17\x08\x44tracing6\0", "trace-cmd report"),
        (b"FEA1", "Feather of version 1"),
        (b"\xff\xfe0\0,\0", "UTF-16"),
    ] {
        let error = read(file_of(start).path(), None).err().unwrap().to_string();
        assert!(error.contains(program), "{error}");
    }
}

/// The first processor saw no request; and the name is that which blktrace was given.
#[test]
fn blktrace_is_found_by_its_base_name_and_past_empty_files() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(data("bt.blktrace.0")).unwrap();
    std::fs::write(dir.path().join("t.blktrace.0"), b"").unwrap();
    std::fs::write(dir.path().join("t.blktrace.1"), &bytes).unwrap();
    let expected = read(&data("bt.blktrace.0"), None).unwrap().events;
    for name in ["t.blktrace.0", "t.blktrace.1", "t"] {
        let path = dir.path().join(name);
        assert_eq!(read(&path, None).unwrap().events, expected, "{name}");
        assert_eq!(trimtab_trace::files(&path).unwrap().len(), 2);
    }
    std::fs::write(dir.path().join("e.blktrace.0"), b"").unwrap();
    for (name, reason) in [("e", "it is empty"), ("none", "none")] {
        let error = open(&dir.path().join(name), None, Columns::All).err().unwrap().to_string();
        assert!(error.ends_with(reason), "{error}");
    }
    assert!(open(Path::new("/nonexistent/x"), None, Columns::All).is_err());
}
