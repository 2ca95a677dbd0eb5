//! The reports of a watch, written as JSON: one object per line.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use trimtab_core::stats::{LatencySummary, SizeHistogram};
use trimtab_core::trace::{DeviceIndex, EventKind, FsIndex, TraceHeader};
use trimtab_core::{Bytes, Nanos};

use super::Watch;
use super::causes::Cause;
use super::span::{Key, Span};

/// The schema name of a [`Report`].
pub const WATCH_SCHEMA: &str = "trimtab/watch/1";

/// The period of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The time since the previous report.
    Interval,
    /// The whole time.
    Summary,
}

/// The events of a period. A request counts when it is complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`WATCH_SCHEMA`].
    pub schema: String,
    /// The period.
    pub scope: Scope,
    /// The start of the period, in seconds since the start of the watch.
    pub start_wall_s: f64,
    /// The length of the period in seconds.
    pub wall_s: f64,
    /// The devices watched, in the order in which they were found.
    pub devices: Vec<DeviceReport>,
    /// The file systems on them with frees or allocations since the watch started; a file system on several
    /// devices occurs once for each.
    pub file_systems: Vec<FileSystemReport>,
    /// The events by process name. When there are more than 1024 names, those with the fewest discards so far
    /// are merged into `(others)`; later events of such a process are counted under its name again.
    pub processes: Vec<ProcessReport>,
    /// The number of events that the kernel dropped: if not zero, all figures are too low.
    pub lost: u64,
    /// The devices that can't be watched, one sentence each.
    pub gaps: Vec<String>,
    /// The watched command; none in intervals, or without a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandReport>,
}

/// The requests of a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// The whole disk's name, such as `nvme0n1`.
    pub name: String,
    /// Discards.
    pub discards: Flow,
    /// Secure erases.
    pub secure_erases: Flow,
    /// Writes.
    pub writes: Flow,
    /// "Write zeroes" requests.
    pub write_zeroes: Flow,
    /// Reads.
    pub reads: Flow,
}

/// The frees and allocations of a file system on one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileSystemReport {
    /// The whole disk's name.
    pub device: String,
    /// The file system's kind, such as `ext4`.
    pub kind: String,
    /// Where it is mounted.
    pub mount_point: String,
    /// Frees.
    pub frees: Flow,
    /// Allocations.
    pub allocations: Flow,
    /// The extents freed since the watch started and neither discarded nor used again at the end of the
    /// period.
    pub pending: PendingReport,
}

/// Events of one kind.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Flow {
    /// How many.
    pub count: u64,
    /// The bytes they named.
    pub bytes: Bytes,
    /// How many failed.
    pub errors: u64,
    /// Events per second.
    pub per_s: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Their mean length; none without events.
    pub mean_bytes: Option<Bytes>,
    /// Their median length; none without events.
    pub median_bytes: Option<Bytes>,
    /// Their lengths.
    pub sizes: SizeHistogram,
    /// Wall time from issue to completion; `None` if it is unknown for all.
    pub latency: Option<LatencySummary>,
}

/// Freed extents that have not been discarded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PendingReport {
    /// How many ranges.
    pub ranges: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Ranges shorter than this were dropped because there were too many; zero if none was.
    pub coarsened_below_bytes: Bytes,
    /// The bytes in dropped ranges.
    pub let_go_bytes: Bytes,
}

/// The events of processes with one name. Writers on behalf of others, such as a journal's thread, count
/// under their own name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessReport {
    /// The name; empty if unknown.
    pub name: String,
    /// Discards.
    pub discards: u64,
    /// Bytes discarded.
    pub discard_bytes: Bytes,
    /// Frees.
    pub frees: u64,
    /// Bytes freed.
    pub free_bytes: Bytes,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: Bytes,
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: Bytes,
}

/// A watched command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandReport {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The exit code: its own, or 128 plus the signal that ended it.
    pub exit_code: u8,
    /// How long it ran, in seconds.
    pub wall_s: f64,
    /// How the devices settled; `None` if nobody waited for that.
    pub settled: Option<SettledReport>,
}

/// How devices settled after a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettledReport {
    /// The mount points that were synced: file systems discard when they commit.
    pub synced: Vec<String>,
    /// How long it took, in seconds.
    pub wall_s: f64,
    /// Whether the devices were still busy at the timeout.
    pub unsettled: bool,
}

impl Watch {
    pub(super) fn report(
        &self,
        scope: Scope,
        events: &Span,
        header: &TraceHeader,
        time: Range<Nanos>,
        lost: u64,
    ) -> Report {
        let seconds = (time.end - time.start).seconds();
        let flow = |key| Flow::of(events, key, seconds);
        let devices = (0..).map(DeviceIndex).zip(&header.devices).map(|(index, device)| DeviceReport {
            name: device.name.clone(),
            discards: flow((index, None, EventKind::Discard)),
            secure_erases: flow((index, None, EventKind::SecureErase)),
            writes: flow((index, None, EventKind::Write)),
            write_zeroes: flow((index, None, EventKind::WriteZeroes)),
            reads: flow((index, None, EventKind::Read)),
        });
        let file_systems = self.pending.iter().filter_map(|((device, fs), pending)| {
            let FsIndex(place) = *fs;
            let file_system = header.file_systems.get(usize::from(place))?;
            Some(FileSystemReport {
                device: header.devices.get(usize::from(device.0))?.name.clone(),
                kind: file_system.kind.clone(),
                mount_point: file_system.mount_point.clone(),
                frees: flow((*device, Some(*fs), EventKind::Free)),
                allocations: flow((*device, Some(*fs), EventKind::Allocate)),
                pending: PendingReport {
                    ranges: pending.ranges() as u64,
                    bytes: pending.bytes(),
                    coarsened_below_bytes: pending.coarsened_below,
                    let_go_bytes: pending.let_go,
                },
            })
        });
        Report {
            schema: WATCH_SCHEMA.to_owned(),
            scope,
            start_wall_s: time.start.seconds(),
            wall_s: seconds,
            devices: devices.collect(),
            file_systems: file_systems.collect(),
            processes: events.causes.iter().map(|(name, kinds)| process(name.to_string(), kinds)).collect(),
            lost,
            gaps: header.gaps.clone(),
            command: None,
        }
    }
}

impl Flow {
    fn of(events: &Span, key: Key, seconds: f64) -> Self {
        let Some(tally) = events.tally(key) else { return Self::default() };
        let a_second = |amount: u64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
        Self {
            count: tally.count,
            bytes: tally.bytes,
            errors: tally.errors,
            per_s: a_second(tally.count),
            bytes_per_s: a_second(tally.bytes.0),
            mean_bytes: tally.mean_size(),
            median_bytes: events.median_length(key),
            sizes: tally.sizes.clone(),
            latency: Some(tally.latencies.summary()).filter(|latency| latency.count > 0),
        }
    }
}

fn process(name: String, kinds: &BTreeMap<EventKind, Cause>) -> ProcessReport {
    let of = |kind| kinds.get(&kind).copied().unwrap_or_default();
    let [discards, frees, writes, reads] =
        [EventKind::Discard, EventKind::Free, EventKind::Write, EventKind::Read].map(of);
    ProcessReport {
        name,
        discards: discards.count,
        discard_bytes: discards.bytes,
        frees: frees.count,
        free_bytes: frees.bytes,
        writes: writes.count,
        write_bytes: writes.bytes,
        reads: reads.count,
        read_bytes: reads.bytes,
    }
}
