//! Prints how much a trace frees and how much it discards, for each device.
//!
//! Reads the trace that is named, in any format that the crate knows. Without a name it first writes a
//! small trace of its own: a file of 8 MiB is written and deleted, and half of its space is discarded.
//!
//! Run it: `cargo run --example summary [TRACE]`

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use trimtab_core::error::chain;
use trimtab_core::trace::{Comm, DeviceIndex, EventKind, FsIndex, Summary, TraceDevice, TraceFileSystem};
use trimtab_core::trace::{TraceEvent, TraceHeader};
use trimtab_core::{Bytes, Extent, Nanos};
use trimtab_trace::{Columns, TraceError, TraceWriter};

/// Writes a trace of one file's life to `path`.
fn write_sample(path: &Path) -> Result<(), TraceError> {
    let mut header = TraceHeader::new("example");
    (header.has_frees, header.has_discards) = (true, true);
    header.devices.push(TraceDevice { name: "sda".to_owned(), size: Bytes::GIB, ..TraceDevice::default() });
    header.file_systems.push(TraceFileSystem {
        kind: "ext4".to_owned(),
        mount_point: "/mnt".to_owned(),
        options: "rw".to_owned(),
        source: "/dev/sda".to_owned(),
    });
    let event = |second: u64, kind: EventKind, mib: u64| TraceEvent {
        at: Nanos(second * 1_000_000_000),
        device: DeviceIndex(0),
        kind,
        extent: Extent::at(Bytes::MIB * 64, Bytes::MIB * mib),
        latency: None,
        process: Comm::new(b"example"),
        error: 0,
        fs: (kind == EventKind::Free).then_some(FsIndex(0)),
    };
    let mut trace = TraceWriter::create(path, header)?;
    trace.write(&[
        event(0, EventKind::Write, 8),
        event(1, EventKind::Free, 8),
        event(2, EventKind::Discard, 4),
    ])?;
    trace.finish()
}

fn main() -> ExitCode {
    if let Err(error) = run() {
        eprintln!("{}", chain(&*error));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run() -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let path = env::args().nth(1).map_or_else(|| scratch.path().join("sample.parquet"), PathBuf::from);
    if env::args().len() < 2 {
        write_sample(&path)?;
    }
    let mut trace = trimtab_trace::open(&path, None, Columns::All)?;
    let (mut summary, mut batch) = (Summary::default(), Vec::new());
    loop {
        trace.next_batch(&mut batch)?;
        if batch.is_empty() {
            break;
        }
        batch.iter().for_each(|event| summary.record(event));
    }
    println!("{}: {}", path.display(), trace.counts());
    for (device, _, kind, tally) in summary.tallies() {
        if matches!(kind, EventKind::Free | EventKind::Discard) {
            let known = trace.header().devices.get(usize::from(device.0));
            let name = known.map_or("device", |device| &device.name);
            println!("  {name}: {kind} events {}, bytes {}", tally.count, tally.bytes);
        }
    }
    Ok(())
}
