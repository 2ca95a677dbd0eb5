//! How many rows a second are read and written on this machine: `cargo bench -p trimtab-trace`. With `-- FILE`, how many
//! events a second of that trace.

use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

use trimtab_core::extent::Extent;
use trimtab_core::trace::TraceSource;
use trimtab_core::trace::{Comm, DeviceIndex, EventKind, TraceDevice, TraceEvent, TraceHeader};
use trimtab_core::units::{Bytes, Nanos};
use trimtab_trace::{Columns, Format, TraceError, TraceFile, TraceWriter, open};

const ROWS: u64 = 4_000_000;
const ROUNDS: usize = 5;

fn main() {
    // Cargo adds `--bench`.
    let files: Vec<_> = std::env::args_os().skip(1).filter(|argument| argument != "--bench").collect();
    if !files.is_empty() {
        return files.iter().for_each(|file| read_file(Path::new(file)));
    }
    let dir = tempfile::tempdir().expect("a directory for the files");
    let path = dir.path().join("trace");
    report("write", (0..ROUNDS).map(|_| write(&path)));
    let file = || TraceFile::open(&path).expect("the file was just written");
    report("read, all columns", (0..ROUNDS).map(|_| read(&mut file())));
    report("read, columns of a replay", (0..ROUNDS).map(|_| read(&mut file().with_columns(Columns::Replay))));
    for (format, line) in LAYOUTS {
        let mut text = String::new();
        (0..ROWS).for_each(|row| line(&mut text, row));
        std::fs::write(&path, text).expect("the text is written");
        let open = || open(&path, Some(format), Columns::All).expect("the text was just written");
        report(&format!("read {format}"), (0..ROUNDS).map(|_| read(&mut *open())));
    }
}

type Line = fn(&mut String, u64);

const LAYOUTS: [(Format, Line); 5] = [
    (Format::Msr, |text, row| {
        let _ =
            writeln!(text, "{},usr,0,Write,{},4096,41286", 128_166_372_003_061_629 + row * 1000, place(row));
    }),
    (Format::Alibaba, |text, row| {
        let _ = writeln!(text, "7,W,{},4096,{}", place(row), 1_577_808_000_000_626 + row * 100);
    }),
    (Format::Tencent, |text, row| {
        let _ = writeln!(text, "{},{},8,1,1283", 1_538_323_199 + row / 1000, place(row) / 512);
    }),
    (Format::Fio3, |text, row| {
        let _ = writeln!(text, "{} /dev/nvme0n1 write {} 4096", row * 100, place(row));
    }),
    (Format::Blkparse, |text, row| {
        let (action, request) = (["D", "C"][row as usize % 2], row / 2);
        let by = ["[fio]", "[0]"][row as usize % 2];
        let (seconds, sector) = (row / 100_000, place(request) / 512);
        let _ =
            writeln!(text, "259,0  1 {row} {seconds}.{:09} 93 {action} WS {sector} + 8 {by}", row % 100_000);
    }),
];

/// A 4 KiB block of a 256 GiB drive, drawn anew for each row.
fn place(row: u64) -> u64 {
    (row.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 38) << 12
}

fn write(path: &Path) -> f64 {
    let device = TraceDevice { name: "nvme0n1".to_owned(), ..TraceDevice::default() };
    let header = TraceHeader { devices: vec![device], ..TraceHeader::new("record") };
    let event = |row: u64| TraceEvent {
        at: Nanos(row * 5000 + place(row) % 4000),
        device: DeviceIndex(0),
        kind: [EventKind::Read, EventKind::Write, EventKind::Write, EventKind::Discard][row as usize % 4],
        extent: Extent::at(Bytes(place(row)), Bytes(4096 << (row % 3))),
        latency: Some(Nanos(50_000 + place(row) % 100_000)),
        process: Comm::new(b"fio"),
        error: 0,
        fs: None,
    };
    let events: Vec<_> = (0..ROWS).map(event).collect();
    let _ = std::fs::remove_file(path);
    let begin = Instant::now();
    let mut writer = TraceWriter::create(path, header).expect("the file can be made");
    events.chunks(4096).for_each(|events| writer.write(events).expect("there is room"));
    writer.finish().expect("there is room");
    begin.elapsed().as_secs_f64()
}

fn read(source: &mut (impl TraceSource<Error = TraceError> + ?Sized)) -> f64 {
    let begin = Instant::now();
    let mut batch = Vec::new();
    loop {
        source.next_batch(&mut batch).expect("the trace is sound");
        if batch.is_empty() {
            return begin.elapsed().as_secs_f64();
        }
    }
}

fn read_file(path: &Path) {
    let begin = Instant::now();
    let mut source = open(path, None, Columns::All).expect("a trace of a known format");
    read(&mut *source);
    let (counts, seconds) = (source.counts(), begin.elapsed().as_secs_f64());
    let millions = |count: u64| count as f64 / seconds / 1e6;
    let (records, events) = (millions(counts.records), millions(counts.events));
    println!("{counts}: {seconds:.3} s, {records:.1} million records/s, {events:.1} million events/s");
}

fn report(what: &str, seconds: impl Iterator<Item = f64>) {
    let mut seconds: Vec<_> = seconds.collect();
    seconds.sort_by(f64::total_cmp);
    let millions = |seconds: f64| ROWS as f64 / seconds / 1e6;
    let (best, median) = (millions(seconds[0]), millions(seconds[ROUNDS / 2]));
    println!("{what:<28} {median:6.1} million rows/s, best {best:6.1}");
}
