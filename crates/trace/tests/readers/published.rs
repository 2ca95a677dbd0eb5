//! The formats of published traces, each by a sample that was written by hand.

use std::path::Path;
use std::process::Command;

use proptest::prelude::{any, prop, proptest};
use proptest::sample::Index;
use trimtab_core::error::chain;
use trimtab_core::trace::EventKind::{self, Discard, Flush, Read, Write};
use trimtab_trace::Format;

use super::{Trace, data, file_of, read, text};

/// An event: its time, device, kind, start, length, latency, process and error.
type Whole<'a> = (u64, &'a str, EventKind, u64, u64, Option<u64>, &'a str, u16);

/// The samples that formats were added with, and the format of each.
const SAMPLES: [(&str, Format); 9] = [
    ("systor.csv", Format::Systor),
    ("financial.spc", Format::Spc),
    ("fiu.txt", Format::Fiu),
    ("midas.txt", Format::Midas),
    ("mobile.csv", Format::Mobile),
    ("android-block.txt", Format::Ftrace),
    ("android-mmc.txt", Format::Ftrace),
    ("android-mmc-new.txt", Format::Ftrace),
    ("ycsb.txt", Format::Blkparse),
];

fn sample(name: &str) -> Trace {
    read(&data(name), None).unwrap()
}

/// Holds all columns of a trace's events to `expected`.
fn assert_events(trace: &Trace, expected: &[Whole]) {
    let processes: Vec<_> = trace.events.iter().map(|event| event.process.to_string()).collect();
    let events: Vec<Whole> = trace
        .events
        .iter()
        .zip(&processes)
        .map(|(event, process)| {
            let device = trace.header.devices[usize::from(event.device.0)].name.as_str();
            let extent = event.extent;
            let latency = event.latency.map(|latency| latency.0);
            (
                event.at.0,
                device,
                event.kind,
                extent.start.0,
                extent.len().0,
                latency,
                process.as_str(),
                event.error,
            )
        })
        .collect();
    assert_eq!(events, expected);
}

fn skipped(trace: &Trace) -> String {
    trace
        .counts
        .to_string()
        .split_once("; skipped: ")
        .map_or(String::new(), |(_, skipped)| skipped.to_owned())
}

#[test]
fn systor_is_read() {
    let trace = sample("systor.csv");
    assert_events(
        &trace,
        &[
            (0, "lun4", Read, 899_056_122_368, 131_072, Some(806_000), "", 0),
            (3000, "lun0", Write, 8192, 4096, Some(215_000), "", 0),
            (986_882_000, "lun4", Write, 1_048_576, 65_536, Some(1_000_000), "", 0),
        ],
    );
    assert_eq!(trace.header.started.as_deref(), Some("2016-02-22T10:00:00Z"));
    assert_eq!(skipped(&trace), "column names 1, requests without a response, of unknown type 1");
    assert!(!trace.header.has_discards);
}

#[test]
fn spc_is_read() {
    let trace = sample("financial.spc");
    assert_events(
        &trace,
        &[
            (0, "asu0", Write, 303_567 * 512, 3584, None, "", 0),
            (0, "asu1", Write, 55_590 * 512, 3072, None, "", 0),
            (26_214_000, "asu0", Read, 303_574 * 512, 3584, None, "", 0),
            (1_500_000_000, "asu1", Read, 240_840 * 512, 3072, None, "", 0),
        ],
    );
    assert_eq!((trace.header.started.as_deref(), skipped(&trace).as_str()), (None, ""));
    assert!(!trace.header.has_discards);
}

#[test]
fn fiu_is_read() {
    let trace = sample("fiu.txt");
    assert_events(
        &trace,
        &[
            (0, "6,0", Write, 904_265_560 * 512, 4096, None, "syslogd", 0),
            (280, "6,0", Read, 904_265_568 * 512, 8192, None, "my daemon", 0),
            (32_595_281, "8,1", Write, 8 * 512, 4096, None, "kjournald", 0),
        ],
    );
    assert_eq!(trace.header.started, None);
    assert!(!trace.header.has_discards);
}

#[test]
fn midas_is_read_with_its_trims() {
    let trace = sample("midas.txt");
    assert_events(
        &trace,
        &[
            (0, "disk", Write, 0, 4096, None, "", 0),
            (49_590, "disk", Write, 4096, 8192, None, "", 0),
            (78_040, "disk", Read, 20_480, 4096, None, "", 0),
            (103_440_204, "disk", Discard, 0, 12_288, None, "", 0),
        ],
    );
    assert!(trace.header.has_discards);
    assert!(matches!(&trace.header.gaps[..], [gap] if gap.contains("concluded")));
    let with_unused = std::fs::read_to_string(data("midas.txt")).unwrap() + "104.0 2 0 4096\n";
    assert_eq!(skipped(&text(&with_unused).unwrap()), "rows of the type 2, which MiDAS does not use 1");
}

#[test]
fn mobile_is_read() {
    let trace = sample("mobile.csv");
    assert_events(
        &trace,
        &[
            (0, "8388608", Write, 2048 * 512, 256 * 512, None, "Binder:1, x", 0),
            (68_761_001, "8388608", Read, 4096 * 512, 8 * 512, None, "", 0),
            (818_761_000, "8388624", Write, 0, 16 * 512, None, "com.game", 0),
        ],
    );
    assert_eq!(
        (trace.header.started.as_deref(), skipped(&trace).as_str()),
        (None, "column names 1, markers 1")
    );
    assert!(!trace.header.has_discards);
}

/// A request is reported by the block layer and by the card's driver: it is one event.
#[test]
fn block_events_of_ftrace_are_read() {
    let trace = sample("android-block.txt");
    assert_events(
        &trace,
        &[
            (0, "179,0", Write, 6_029_312 * 512, 4096, Some(500_000), "Binder_2", 0),
            (900_000, "179,0", Discard, 8192 * 512, 1 << 20, Some(2_000_000), "kworker/u8:1", 5),
            (3_900_000, "179,0", Flush, 0, 0, Some(500_000), "kworker/u8:1", 0),
        ],
    );
    assert_eq!(trace.header.lost, 42);
    assert_eq!(
        skipped(&trace),
        "comments 4, completions 3, events of another layer for the same requests 1, lines about lost events 1, \
         other events 1"
    );
    assert!(trace.header.has_discards);
}

#[test]
fn mmc_events_of_old_kernels_are_read() {
    let trace = sample("android-mmc.txt");
    assert_events(
        &trace,
        &[
            (0, "mmc", Read, 0x39_f640 * 512, 32 * 512, Some(500_000), "mmcqd/0", 0),
            (83_574_000, "mmc", Write, 0x1000 * 512, 8 * 512, Some(400_000), "mmcqd/0", 0),
            (183_574_000, "mmc", Discard, 0x2000 * 512, 0x800 * 512, Some(1_000_000), "mmcqd/0", 0),
        ],
    );
    assert_eq!(skipped(&trace), "commands that are no reads, writes or erases 1, completions 3");
}

/// An erase is three commands; a request of the command queue has no command, and one here fails.
#[test]
fn mmc_events_of_newer_kernels_are_read() {
    let trace = sample("android-mmc-new.txt");
    assert_events(
        &trace,
        &[
            (0, "mmc0", Write, 0x1000 * 512, 4096, Some(400_000), "kworker/0:1H", 0),
            (900_000, "mmc0", Read, 64 * 512, 8192, Some(250_000), "kworker/0:1H", 110),
            (2_100_000, "mmc0", Discard, 0x2000 * 512, 0x800 * 512, Some(1_000_000), "kworker/0:1H", 0),
        ],
    );
}

/// A range that no command of the trace named would belong to an earlier erase, or the beginning of the drive.
#[test]
fn erase_of_mmc_without_its_range_is_no_discard() {
    let whole = std::fs::read_to_string(data("android-mmc-new.txt")).unwrap();
    for lost in ["cmd_opcode=35", "cmd_opcode=36"] {
        let lines: Vec<_> = whole.lines().filter(|line| !line.contains(lost)).collect();
        let trace = text(&lines.join("\n")).unwrap();
        assert!(trace.events.iter().all(|event| event.kind != Discard), "{lost}");
    }
    // A second erase does not take the range of the first.
    let twice = whole.replace("cmd_opcode=35", "cmd_opcode=99") + &whole;
    let erases = text(&twice).unwrap().events.iter().filter(|event| event.kind == Discard).count();
    assert_eq!(erases, 1);
}

#[test]
fn ycsb_on_rocksdb_is_read() {
    let trace = sample("ycsb.txt");
    assert_events(
        &trace,
        &[
            (0, "259,2", Write, 2048 * 512, 256 * 512, Some(147_500), "rocksdb:low", 0),
            (197_500, "259,2", Read, 8192 * 512, 4096, Some(90_000), "rocksdb:high", 0),
            (297_500, "259,2", Discard, 4096 * 512, 1024 * 512, Some(100_000), "jbd2/nvme0n1p1", 0),
        ],
    );
    assert!(trace.header.has_discards);
}

#[test]
fn packed_samples_read_like_plain_ones() {
    for (name, format) in SAMPLES {
        let plain = read(&data(name), None).unwrap();
        assert_eq!(plain.header.origin, format.name(), "{name}");
        let bytes = std::fs::read(data(name)).unwrap();
        let zstd = zstd::encode_all(&bytes[..], 3).unwrap();
        for packed in [packed("gzip", &[], &bytes), packed("xz", &[], &bytes), zstd] {
            let trace = read(file_of(&packed).path(), None).unwrap();
            assert_eq!((trace.events, trace.header), (plain.events.clone(), plain.header.clone()), "{name}");
            let half = read(file_of(&packed[..packed.len() / 2]).path(), Some(format));
            let error = chain(&half.err().expect("half a file is refused"));
            assert!(error.contains(": row ") && error.contains(": cannot be read: "), "{name}: {error}");
        }
    }
}

/// Packs bytes by a program.
fn packed(program: &str, arguments: &[&str], bytes: &[u8]) -> Vec<u8> {
    let plain = file_of(bytes);
    let output = Command::new(program).arg("-c").args(arguments).arg(plain.path()).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn parts_of_xz_are_read_one_after_the_other() {
    let bytes = std::fs::read(data("midas.txt")).unwrap();
    let (first, last) = bytes.split_at(bytes.len() / 2);
    let joined = [packed("xz", &[], first), packed("xz", &[], last)].concat();
    assert_eq!(read(file_of(&joined).path(), None).unwrap().events, sample("midas.txt").events);
}

#[test]
fn xz_that_needs_much_memory_is_refused_with_the_reason() {
    let bytes = std::fs::read(data("midas.txt")).unwrap();
    let large = file_of(&packed("xz", &["--lzma2=dict=512MiB"], &bytes));
    for format in [None, Some(Format::Midas)] {
        let error = chain(&read(large.path(), format).err().expect("it should be refused"));
        let reason = "unpacking it takes more than 256 MiB of memory: unpack it (xz -d) first";
        assert!(error.starts_with(large.path().to_str().unwrap()) && error.ends_with(reason), "{error}");
    }
}

#[test]
fn bad_lines_are_refused_with_their_number() {
    for (name, line, reason) in [
        ("systor.csv", "1456135202.0,,X,4,0,512", "IOType is \"X\", which is neither R, W nor empty"),
        ("systor.csv", "1456135202.0,,R,4,0", "it has not the 6 fields that a line of this format has"),
        ("systor.csv", "now,,R,4,0,512", "Timestamp is \"now\", which is no number, or too large a one"),
        ("financial.spc", "0,1,512,T,2.0", "Opcode is \"T\", which is neither R nor W"),
        ("financial.spc", "0,1,512,w", "it has not the 5 fields that a line of this format has"),
        (
            "financial.spc",
            "0,2199023255552,512,w,2.0",
            "it names 512 bytes at 1125899906842624, past 1 PiB; are its offsets in another unit?",
        ),
        ("fiu.txt", "90000000001 1 a 8 8 X 6 0 53", "type is \"X\", which is neither R nor W"),
        ("fiu.txt", "90000000001 1 a 8 8 W 6", "it has not the 9 fields that a line of this format has"),
        ("midas.txt", "0.3 4 0 4096", "type is \"4\", which is none of 0, 1, 2 and 3"),
        ("midas.txt", "0.3 1 0 4096 0 0", "it has not the 4 fields that a line of this format has"),
        ("midas.txt", "0.3 1 0 many", "size is \"many\", which is no number, or too large a one"),
        ("mobile.csv", "a,1,D,0,8,5218130.0", "rw_flag is \"D\", which is neither R nor W"),
        ("mobile.csv", "1,W,0,8,5218130.0", "it has not the 6 fields that a line of this format has"),
        ("android-block.txt", "hello", "line is \"hello\", which is no event of ftrace"),
        (
            "android-block.txt",
            "a-1 [000] .... 100.1: block_rq_issue: 179,0 W",
            "it has not the 5 fields that a line of this format has",
        ),
        (
            "android-mmc.txt",
            "a-1 [000] .... 58.6: mmc_blk_rw_start: cmd=18,addr=0xg,size=0x1",
            "addr is \"0xg\", which is no number",
        ),
        (
            "android-mmc-new.txt",
            "a-1 [000] .... 11.0: mmc_request_start: mmc0: start struct mmc_request[1]: cmd_opcode=17",
            "cmd_arg is \"\", which is no number",
        ),
    ] {
        let good = std::fs::read_to_string(data(name)).unwrap();
        let row = good.lines().count() + 1;
        let file = file_of(format!("{good}{line}\n").as_bytes());
        let error = read(file.path(), None).err().expect(line).to_string();
        assert_eq!(error, format!("{}: row {row}: {reason}", file.path().display()), "{name}");
    }
}

/// Two formats have five fields with a letter in the fourth or second place, three have numbers and spaces.
#[test]
fn formats_without_column_names_are_told_apart() {
    for (line, format) in [
        ("1456135200.013118000,0.000806000,R,4,899056122368,131072\n", Format::Systor),
        ("0,303567,3584,W,0.000000\n", Format::Spc),
        ("0,303567,3584,W,0.000000,optional\n", Format::Spc),
        ("com.game,8388608,R,4096,8,5218128.25\n", Format::Mobile),
        ("0 4892 syslogd 904265560 8 W 6 0 531e779b\n", Format::Fiu),
        ("0.146559796 1 0 4096\n", Format::Midas),
        ("0,R,126703644672,4096,1577808000000626\n", Format::Alibaba),
    ] {
        assert_eq!(text(line).unwrap().header.origin, format.name(), "{line}");
    }
}

proptest! {
    #[test]
    fn mutated_samples_are_read_or_refused(
        file in 0..SAMPLES.len(),
        edits in prop::collection::vec((any::<Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<Index>()),
    ) {
        let (name, format) = SAMPLES[file];
        let mut bytes = std::fs::read(Path::new(&data(name))).unwrap();
        for (place, byte) in edits {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = read(file_of(&bytes).path(), Some(format));
    }
}
