//! Prints one line per interval and device.

use trimtab_core::Bytes;
use trimtab_observe::watch::{DeviceReport, FileSystemReport, Report};

use super::figures::{latency, nothing, rate, size, size_of};

/// The header is repeated after this many lines.
const PAGE: usize = 20;

/// Formats intervals, and repeats the header regularly.
#[derive(Debug, Default)]
pub struct Lines {
    printed: usize,
}

impl Lines {
    /// Returns the lines of an interval: one per active device, or for the only device; one without figures if
    /// no device was active.
    pub fn of(&mut self, report: &Report) -> String {
        let only = report.devices.len() == 1;
        let active = report.devices.iter().filter(|device| only || is_active(device, report));
        let mut lines: Vec<_> = active.map(|device| line(device, report)).collect();
        if lines.is_empty() {
            lines.push(row(report, "-", std::array::from_fn(|_| nothing())));
        }
        let mut text = String::new();
        for line in lines {
            if self.printed.is_multiple_of(PAGE) {
                text += &header();
            }
            text += &line;
            self.printed += 1;
        }
        text
    }
}

const FIGURES: [&str; 13] = [
    "DISC/S", "B/S", "MEAN", "P50", "P99", "WRITE/S", "B/S", "READ/S", "B/S", "FREE/S", "B/S", "PENDING",
    "LOST",
];

fn header() -> String {
    format!("{:>8} {:<12}{}\n", "TIME", "DEVICE", FIGURES.map(|figure| format!(" {figure:>7}")).concat())
}

fn row(report: &Report, device: &str, figures: [String; 12]) -> String {
    let end = format!("{:.1}s", report.start_wall_s + report.wall_s);
    let figures = figures.map(|figure| format!(" {figure:>7}")).concat();
    format!("{end:>8} {device:<12}{figures} {:>7}\n", report.lost)
}

fn line(device: &DeviceReport, report: &Report) -> String {
    let discards = &device.discards;
    let file_systems = || of_device(device, report);
    let frees: f64 = file_systems().map(|fs| fs.frees.per_s).fold(0.0, |sum, rate| sum + rate);
    let freed: f64 = file_systems().map(|fs| fs.frees.bytes_per_s).fold(0.0, |sum, rate| sum + rate);
    let pending: Bytes = file_systems().map(|fs| fs.pending.bytes).sum();
    let figures = [
        rate(discards.per_s),
        size(discards.bytes_per_s),
        size_of(discards.mean_bytes),
        latency(discards.latency, |latency| latency.p50_ns),
        latency(discards.latency, |latency| latency.p99_ns),
        rate(device.writes.per_s),
        size(device.writes.bytes_per_s),
        rate(device.reads.per_s),
        size(device.reads.bytes_per_s),
        rate(frees),
        size(freed),
        size(pending.0 as f64),
    ];
    row(report, &device.name, figures)
}

fn of_device<'a>(device: &'a DeviceReport, report: &'a Report) -> impl Iterator<Item = &'a FileSystemReport> {
    report.file_systems.iter().filter(|fs| fs.device == device.name)
}

fn is_active(device: &DeviceReport, report: &Report) -> bool {
    let requests =
        [&device.discards, &device.secure_erases, &device.writes, &device.write_zeroes, &device.reads];
    let of_file_systems = of_device(device, report).flat_map(|fs| [&fs.frees, &fs.allocations]);
    requests.into_iter().chain(of_file_systems).any(|flow| flow.count > 0)
}
