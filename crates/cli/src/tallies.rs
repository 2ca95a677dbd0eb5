//! The totals of a trace, by device or file system and kind.

use std::io::{self, Write};

use serde::Serialize;
use trimtab_core::stats::{LatencySummary, SizeBucket};
use trimtab_core::trace::{DeviceIndex, EventKind, FsIndex, Summary, Tally, TraceHeader};
use trimtab_core::{Bytes, Nanos};
use trimtab_report::printable;

/// Totals of one kind of event on one device, reported by one file system or none.
#[derive(Serialize)]
pub struct Row {
    device: String,
    file_system: Option<String>,
    kind: EventKind,
    count: u64,
    bytes: Bytes,
    errors: u64,
    mean_bytes: Option<Bytes>,
    sizes: Vec<SizeBucket>,
    /// The latency of the events whose latency is known; `None` if there are none.
    latency: Option<LatencySummary>,
}

impl Row {
    /// The rows of a trace.
    pub fn all(header: &TraceHeader, summary: &Summary) -> Vec<Self> {
        let row = |(device, fs, kind, tally): (DeviceIndex, Option<FsIndex>, EventKind, &Tally)| {
            let fs = fs.and_then(|fs| header.file_systems.get(usize::from(fs.0)));
            let device = &header.devices[usize::from(device.0)].name;
            Self::new(device.clone(), fs.map(|fs| fs.mount_point.clone()), kind, tally)
        };
        summary.tallies().map(row).collect()
    }

    fn new(device: String, file_system: Option<String>, kind: EventKind, tally: &Tally) -> Self {
        let latency = tally.latencies.summary();
        Self {
            device,
            file_system,
            kind,
            count: tally.count,
            bytes: tally.bytes,
            errors: tally.errors,
            mean_bytes: tally.mean_size(),
            sizes: tally.sizes.buckets().collect(),
            latency: (latency.count > 0).then_some(latency),
        }
    }
}

/// A number of things: `1 event`, `2 events`.
pub fn counted(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// Prints the rows as a table, with a head.
pub fn print(rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    let place = |row: &Row| printable(row.file_system.as_ref().unwrap_or(&row.device));
    let width = rows.iter().map(|row| place(row).chars().count()).max().unwrap_or(0).max("device".len());
    writeln!(
        out,
        "{:<width$} {:<12} {:>9} {:>10} {:>10} {:>6} {:>9} {:>9}",
        "device", "kind", "events", "bytes", "mean size", "errors", "p50", "p99"
    )?;
    for row in rows {
        let of = |pick: fn(&LatencySummary) -> Nanos| {
            row.latency.as_ref().map_or_else(|| "-".to_owned(), |latency| pick(latency).to_string())
        };
        writeln!(
            out,
            "{:<width$} {:<12} {:>9} {:>10} {:>10} {:>6} {:>9} {:>9}",
            place(row),
            row.kind,
            row.count,
            row.bytes,
            row.mean_bytes.unwrap_or_default(),
            row.errors,
            of(|latency| latency.p50_ns),
            of(|latency| latency.p99_ns),
        )?;
    }
    Ok(())
}
