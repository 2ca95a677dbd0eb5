//! Formats the summary of a whole watch as text.

use trimtab_core::Bytes;
use trimtab_core::stats::SizeHistogram;
use trimtab_observe::watch::{CommandReport, Flow, ProcessReport, Report};
use trimtab_report::printable;

use super::figures::{latency, size_of};
use crate::tallies::counted;

/// The number of processes that are listed.
const PROCESSES: usize = 8;
/// The width of the longest bar in columns.
const BAR: u64 = 40;

/// Formats the summary.
pub fn text(report: &Report) -> String {
    let mut text = match &report.command {
        Some(command) => of_command(command),
        None => format!("Watched for {:.1} s\n", report.wall_s),
    };
    text += &format!(
        "\n{:<17}{:>9}{:>12}{:>8}{:>8}{:>8}{:>8}{:>8}\n",
        "", "COUNT", "BYTES", "MEAN", "MEDIAN", "P50", "P99", "ERRORS"
    );
    let mut quiet = 0;
    for device in &report.devices {
        let flows = [
            ("discards", &device.discards),
            ("secure erases", &device.secure_erases),
            ("writes", &device.writes),
            ("write zeroes", &device.write_zeroes),
            ("reads", &device.reads),
        ];
        if report.devices.len() > 1 && flows.iter().all(|(_, flow)| flow.count == 0) {
            quiet += 1;
            continue;
        }
        text += &format!("{}\n", device.name);
        // Discards get a line even if there are none; rarer commands only if there are any.
        let shown = flows.iter().filter(|(name, flow)| flow.count > 0 || *name == "discards");
        shown.for_each(|(name, flow)| text += &row(name, flow));
    }
    if quiet > 0 {
        text += &format!("{} did nothing\n", counted(quiet, "more device"));
    }
    for fs in &report.file_systems {
        text += &format!("{} {} on {}\n", fs.kind, printable(&fs.mount_point), fs.device);
        text += &row("frees", &fs.frees);
        text += &row("allocations", &fs.allocations);
        let pending = &fs.pending;
        text += &format!("  {:<15}{:>9}{:>12}", "pending", pending.ranges, pending.bytes);
        text += "  freed, not discarded or used since\n";
        if pending.let_go_bytes > Bytes::ZERO {
            text += &format!(
                "    too many ranges: dropped those below {}, {} in all\n",
                pending.coarsened_below_bytes, pending.let_go_bytes
            );
        }
    }
    let mut sizes = SizeHistogram::default();
    report.devices.iter().for_each(|device| sizes.merge(&device.discards.sizes));
    text += &histogram(&sizes);
    text += &processes(&report.processes);
    text += &match report.lost {
        0 => "\nNo events were lost.\n".to_owned(),
        lost => format!("\n{} LOST: all figures are too low.\n", counted(lost, "event")),
    };
    text
}

fn of_command(command: &CommandReport) -> String {
    let words = printable(&command.command.join(" "));
    let mut text = format!("{words}: exit code {} after {:.2} s\n", command.exit_code, command.wall_s);
    if let Some(settled) = &command.settled {
        let synced = match settled.synced.as_slice() {
            [] => "no file system was there to be synced".to_owned(),
            mounts => format!("synced {} before and after", printable(&mounts.join(", "))),
        };
        text += &format!("{synced}; waited {:.2} s for late discards\n", settled.wall_s);
        if settled.unsettled {
            text += "the devices were still busy then\n";
        }
    }
    text
}

fn row(name: &str, flow: &Flow) -> String {
    format!(
        "  {name:<15}{:>9}{:>12}{:>8}{:>8}{:>8}{:>8}{:>8}\n",
        flow.count,
        flow.bytes,
        size_of(flow.mean_bytes),
        size_of(flow.median_bytes),
        latency(flow.latency, |latency| latency.p50_ns),
        latency(flow.latency, |latency| latency.p99_ns),
        flow.errors
    )
}

fn histogram(sizes: &SizeHistogram) -> String {
    let most = sizes.buckets().map(|bucket| bucket.count).max();
    let mut text = most.map_or(String::new(), |_| "\nSizes of discards, from\n".to_owned());
    for bucket in sizes.buckets() {
        let columns = (bucket.count * BAR).div_ceil(most.unwrap_or(1)) as usize;
        text += &format!("  {:>8} {:<40} {}\n", bucket.from_bytes, "█".repeat(columns), bucket.count);
    }
    text
}

fn processes(all: &[ProcessReport]) -> String {
    let mut busiest: Vec<_> = all.iter().collect();
    busiest.sort_by_key(|process| {
        std::cmp::Reverse((
            process.discard_bytes + process.free_bytes,
            process.write_bytes,
            process.read_bytes,
        ))
    });
    if busiest.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n{:<17}{:>9}{:>12}{:>9}{:>12}{:>9}{:>12}\n",
        "Caused by", "DISCARDS", "BYTES", "FREES", "BYTES", "WRITES", "BYTES"
    );
    for process in busiest.iter().take(PROCESSES) {
        text += &format!(
            "  {:<15}{:>9}{:>12}{:>9}{:>12}{:>9}{:>12}\n",
            name(process),
            process.discards,
            process.discard_bytes,
            process.frees,
            process.free_bytes,
            process.writes,
            process.write_bytes
        );
    }
    match busiest.len().saturating_sub(PROCESSES) {
        0 => text,
        more => text + &format!("  and {more} more\n"),
    }
}

/// Returns a printable name.
pub fn name(process: &ProcessReport) -> String {
    if process.name.is_empty() { "(unknown)".to_owned() } else { printable(&process.name) }
}
