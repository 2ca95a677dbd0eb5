//! What a watch tells, as it is written to JSON: one object a line.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use trimtab_core::stats::{LatencySummary, SizeHistogram};
use trimtab_core::trace::{DeviceIndex, FsIndex, Kind, TraceHeader};
use trimtab_core::{Bytes, Nanos};

use super::Watch;
use super::causes::Cause;
use super::span::{Key, Span};

/// The schema name of a [`Report`].
pub const WATCH_SCHEMA: &str = "trimtab/watch/1";

/// What a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The time since the report before.
    Interval,
    /// The whole time.
    Summary,
}

/// What happened in a span of time. A request counts when it is complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`WATCH_SCHEMA`].
    pub schema: String,
    /// What it is about.
    pub scope: Scope,
    /// When the span began, in seconds since the watch did.
    pub start_wall_s: f64,
    /// How long it was, in seconds.
    pub wall_s: f64,
    /// The devices watched, in the order in which they were found.
    pub devices: Vec<DeviceReport>,
    /// The file systems on them that freed or took anything since the watch began; one on several
    /// devices is there once for each.
    pub file_systems: Vec<FileSystemReport>,
    /// Who caused it, by name. When there are more than 1024 names, those that discarded least so far become
    /// one, `(others)`; one of them that goes on is named again, from there on.
    pub processes: Vec<ProcessReport>,
    /// Events that the kernel dropped: where there are any, all figures are too low.
    pub lost: u64,
    /// What can't be watched, each in a sentence.
    pub gaps: Vec<String>,
    /// The command for the span of which was watched; none in intervals, or without one.
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

/// What a file system did with its space on one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileSystemReport {
    /// The whole disk's name.
    pub device: String,
    /// The file system's kind, such as `ext4`.
    pub kind: String,
    /// Where it is mounted.
    pub mount_point: String,
    /// What it gave up.
    pub frees: Flow,
    /// What it took into use.
    pub allocations: Flow,
    /// What it freed since the watch began that was neither discarded nor used again, at the end of
    /// the span.
    pub pending: PendingReport,
}

/// Events of one kind.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Flow {
    /// How many.
    pub count: u64,
    /// The bytes they named.
    pub bytes: Bytes,
    /// How many ended with an error.
    pub errors: u64,
    /// How many a second.
    pub per_s: f64,
    /// The bytes a second.
    pub bytes_per_s: f64,
    /// Their mean length; none of none.
    pub mean_bytes: Option<Bytes>,
    /// The shortest length that at least half of them don't exceed; none of none.
    pub median_bytes: Option<Bytes>,
    /// Their lengths.
    pub sizes: SizeHistogram,
    /// From issue to completion, in wall time; none where it isn't known of any.
    pub latency: Option<LatencySummary>,
}

/// Freed extents that are not discarded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PendingReport {
    /// How many ranges.
    pub ranges: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// There were too many ranges, so those shorter than this were let go; zero where none was.
    pub coarsened_below_bytes: Bytes,
    /// The bytes in those that were let go.
    pub let_go_bytes: Bytes,
}

/// What processes of one name caused. Those that write for others, such as the journal's, are named
/// for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessReport {
    /// The name; empty where it isn't known.
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

/// A command for the span of which was watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandReport {
    /// Its words.
    pub command: Vec<String>,
    /// The exit code: its own, or 128 and the signal that ended it.
    pub exit_code: u8,
    /// How long it ran, in seconds.
    pub wall_s: f64,
    /// How its devices came to rest; none where that wasn't waited for.
    pub settled: Option<SettledReport>,
}

/// How devices came to rest after a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettledReport {
    /// The mount points that were synced: file systems discard when they commit.
    pub synced: Vec<String>,
    /// How long it took, in seconds.
    pub wall_s: f64,
    /// Whether discards, or other work of the devices, still went on when patience ran out.
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
            discards: flow((index, None, Kind::Discard)),
            secure_erases: flow((index, None, Kind::SecureErase)),
            writes: flow((index, None, Kind::Write)),
            write_zeroes: flow((index, None, Kind::WriteZeroes)),
            reads: flow((index, None, Kind::Read)),
        });
        let file_systems = self.pending.iter().filter_map(|((device, fs), pending)| {
            let FsIndex(place) = *fs;
            let file_system = header.file_systems.get(usize::from(place))?;
            Some(FileSystemReport {
                device: header.devices.get(usize::from(device.0))?.name.clone(),
                kind: file_system.kind.clone(),
                mount_point: file_system.mount_point.clone(),
                frees: flow((*device, Some(*fs), Kind::Free)),
                allocations: flow((*device, Some(*fs), Kind::Allocate)),
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

fn process(name: String, kinds: &BTreeMap<Kind, Cause>) -> ProcessReport {
    let of = |kind| kinds.get(&kind).copied().unwrap_or_default();
    let [discards, frees, writes, reads] = [Kind::Discard, Kind::Free, Kind::Write, Kind::Read].map(of);
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
