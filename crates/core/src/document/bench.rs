//! The document of `trimtab bench`. All times in it are wall time.

use serde::{Deserialize, Serialize};

pub use super::background::Background;
pub use super::degradation::{DegradationRound, DegradationStep};
pub use super::latency::{Latency, LatencyBucket, LatencyHistogram};
use super::{Environment, KernelCounters};
use crate::erase::{Engine, Operation};
use crate::extent::Extent;
use crate::profile::DiscardedReads;
use crate::units::Bytes;

/// The schema name of [`BenchDocument`].
pub const BENCH_SCHEMA: &str = "trimtab/bench/1";

/// The measurements of `trimtab bench`: schema `trimtab/bench/1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchDocument {
    /// [`BENCH_SCHEMA`].
    pub schema: String,
    /// The version of trimtab that wrote it.
    pub version: String,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// When it was started: RFC 3339, UTC.
    pub started: String,
    /// The machine it ran on.
    pub environment: Environment,
    /// The device.
    pub device: BenchDevice,
    /// The plan of the measurements; a run that resumes this one has the same.
    pub plan: BenchPlan,
    /// The latency sweep: one entry a finished cell.
    pub sweeps: Vec<SweepCell>,
    /// Whether discards work; none until that was measured.
    pub verify: Option<Verify>,
    /// Whether a discard waits for the commands before it; none until that was measured.
    pub queueing: Option<Queueing>,
    /// The effect of discards on other I/O: the foreground alone first, then beside discards.
    pub interference: Vec<InterferenceCell>,
    /// How the drive slows without discards and recovers with them, round by round.
    pub degradation: Vec<DegradationRound>,
    /// The drive's own work; none until that was measured, and in documents of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<Background>,
    /// The conclusions; none until the sweep has enough cells.
    pub fit: Option<Fit>,
    /// The measurements that were asked for and are not here, and why.
    pub missing: Vec<Missing>,
    /// Why the run ended early; none when it did not.
    pub stopped: Option<String>,
}

impl BenchDocument {
    /// Whether it holds no figures at all.
    pub fn measured_nothing(&self) -> bool {
        self.sweeps.is_empty()
            && self.verify.is_none()
            && self.interference.is_empty()
            && self.degradation.is_empty()
            && self.background.is_none()
    }
}

/// The device that was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BenchDevice {
    /// Its path when it was measured, such as `/dev/nvme0n1`.
    pub path: String,
    /// Its model; `loop over FILE`, `zram` or the like where it is no hardware.
    pub model: String,
    /// Its firmware revision; empty where there is none.
    pub firmware: String,
    /// Its serial number or world-wide name; empty where there is none.
    pub serial: String,
    /// Its size.
    pub size: Bytes,
    /// Its logical block.
    pub logical_block: Bytes,
    /// Its physical block.
    pub physical_block: Bytes,
    /// Whether the kernel takes it for a rotational disk.
    pub rotational: bool,
    /// The I/O scheduler, such as `none` or `mq-deadline`.
    pub scheduler: String,
    /// How many requests its queue holds.
    pub queue_requests: u32,
    /// `discard_granularity`.
    pub discard_granularity: Bytes,
    /// `discard_alignment`.
    pub discard_alignment: Bytes,
    /// `discard_max_bytes`: the longest discard the kernel sends as one command.
    pub discard_max: Bytes,
    /// `discard_max_hw_bytes`: the longest the device takes.
    pub discard_max_hardware: Bytes,
    /// `write_zeroes_max_bytes`; zero where it has no such command.
    pub write_zeroes_max: Bytes,
}

impl BenchDevice {
    /// Whether `other` is the same device, whatever its path is today.
    pub fn is_same(&self, other: &Self) -> bool {
        let identity =
            |device: &Self| (device.model.clone(), device.serial.clone(), device.size, device.logical_block);
        identity(self) == identity(other)
    }
}

/// The plan of a bench.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchPlan {
    /// The bytes of the device that may be written and discarded.
    pub range: Extent,
    /// The parts of the bench.
    pub parts: Vec<Part>,
    /// The sizes of the latency sweep, largest first.
    pub sizes: Vec<Bytes>,
    /// Its patterns.
    pub patterns: Vec<Pattern>,
    /// Its queue depths.
    pub depths: Vec<u32>,
    /// Its operations.
    pub operations: Vec<Operation>,
    /// The seconds that the whole run may take, about.
    pub budget_wall_s: f64,
    /// How long after a discard its area is read for the last time.
    pub verify_delay_wall_s: f64,
    /// Makes patterns and places the same at every run.
    pub seed: u64,
}

/// A part of a bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// How long discards take.
    Latency,
    /// Whether discarded data is gone.
    Verify,
    /// The effect of discards on other I/O.
    Interference,
    /// How the drive slows without discards.
    Degradation,
    /// Work that the drive does by itself: its cache, its work while it idles and after discards.
    Background,
}

impl Part {
    /// All of them, in the order they run.
    pub const ALL: [Self; 5] =
        [Self::Latency, Self::Verify, Self::Interference, Self::Degradation, Self::Background];

    /// The name that users give it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Verify => "verify",
            Self::Interference => "interference",
            Self::Degradation => "degradation",
            Self::Background => "background",
        }
    }
}

/// Where the commands of a sweep go, and what was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// One after the other over a written area.
    Sequential,
    /// In random order over a written area, each place once.
    Random,
    /// Over an area that was discarded just before.
    Discarded,
    /// Over an area that nothing was written to since the whole range was discarded.
    Unwritten,
    /// One after the other over a written area, each starting one logical block off its size.
    Unaligned,
}

impl Pattern {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Sequential, Self::Random, Self::Discarded, Self::Unwritten, Self::Unaligned];

    /// The name that users give it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Random => "random",
            Self::Discarded => "discarded",
            Self::Unwritten => "unwritten",
            Self::Unaligned => "unaligned",
        }
    }

    /// Whether data is written where the commands of a cell will go, before they are timed.
    pub const fn needs_data(self) -> bool {
        matches!(self, Self::Sequential | Self::Random | Self::Unaligned)
    }
}

/// One cell of the latency sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepCell {
    /// The operation that was sent.
    pub operation: Operation,
    /// Where.
    pub pattern: Pattern,
    /// How many in flight.
    pub depth: u32,
    /// How they were kept in flight.
    pub engine: Engine,
    /// The bytes each command named.
    pub size: Bytes,
    /// How long they took.
    #[serde(flatten)]
    pub latency: Latency,
    /// Wall seconds that they took together, preparation left out.
    pub wall_s: f64,
    /// Commands a second.
    pub commands_s: f64,
    /// MiB a second.
    pub mib_s: f64,
    /// The kernel's counts on the device meanwhile; none where it has no counters.
    pub kernel: Option<KernelCounters>,
    /// The kernel's handling of the commands.
    pub passage: Passage,
}

/// The kernel's handling of the commands of a cell, by the device's own counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Passage {
    /// It sent each as one.
    Whole,
    /// It sent each as several.
    Split,
    /// It sent fewer, or fewer bytes, than it was given.
    Shrunk,
    /// It counted none: it sent none, or the driver doesn't count them.
    Uncounted,
    /// There is nothing to tell it by.
    Unknown,
}

/// Whether discards work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verify {
    /// How many separate areas were written and discarded, with written data between them.
    pub areas: u32,
    /// The bytes of each.
    pub area_size: Bytes,
    /// The data that was read, each time.
    pub readings: Vec<Reading>,
    /// The areas, counted from 0 in the order of their discards, that were unchanged.
    pub ignored: Vec<u32>,
    /// Where every n-th discard was ignored: n.
    pub ignored_every: Option<u32>,
    /// Sectors outside every discard that did not read back as written: data loss.
    pub lost_outside: u64,
    /// The data that a discarded range reads as, over all readings; none where discards were ignored
    /// altogether and old data can't be told from that.
    pub reads: Option<DiscardedReads>,
    /// The granularity that it honours.
    pub granularity: Granularity,
    /// The changes by a power cycle; none where none was asked for.
    pub power_cycle: Option<PowerCycle>,
}

/// The data in the discarded sectors when they were read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// When: `at once`, `again`, `after a delay`.
    pub when: String,
    /// Wall seconds since the last discard.
    pub after_wall_s: f64,
    /// Logical blocks that read as zeros.
    pub zero: u64,
    /// Logical blocks that read as what was written before the discard.
    pub unchanged: u64,
    /// Logical blocks that read as what was written to another address, which no drive may do.
    pub misplaced: u64,
    /// Logical blocks that read as something else.
    pub changed: u64,
    /// Logical blocks, of all of these, that read otherwise than in the reading before.
    pub unstable: u64,
}

/// The granularity that a drive honours, beside what it advertises.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Granularity {
    /// `discard_granularity`.
    pub advertised: Bytes,
    /// The smallest aligned discard that took all of its data; none where it can't be seen.
    pub honoured: Option<Bytes>,
    /// The address modulo `honoured` at which grains start.
    pub alignment: Bytes,
    /// Why `honoured` is none.
    pub reason: Option<String>,
    /// The probes that tell it.
    pub probes: Vec<GranularityProbe>,
}

/// One discard inside a written area, and what of it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GranularityProbe {
    /// The range that was discarded.
    pub discarded: Extent,
    /// From the first sector that went to the last; none where none did.
    pub gone: Option<Extent>,
}

/// The changes by a power cycle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerCycle {
    /// When the areas were discarded: RFC 3339, UTC.
    pub discarded: String,
    /// Discarded logical blocks that read as before the power cycle.
    pub same: u64,
    /// Discarded logical blocks whose old data came back.
    pub returned: u64,
    /// Discarded logical blocks that read otherwise than before.
    pub different: u64,
    /// Logical blocks outside every discard that did not read back as written: data loss.
    pub lost_outside: u64,
}

/// Whether a discard waits for the commands in flight before it, as ATA TRIM without NCQ does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Queueing {
    /// How often each was measured; all figures are medians.
    pub repeats: u32,
    /// The bytes of each discard.
    pub discard_size: Bytes,
    /// How long a discard takes alone.
    pub alone_us: f64,
    /// How long the reads in flight before it take from when it is sent until the last of them is done.
    pub reads_us: f64,
    /// How long the discard takes that is sent right after those reads.
    pub behind_us: f64,
    /// How long the reads take that are sent right after a discard: far above a read's own time
    /// where the discard holds them back.
    pub read_after_us: f64,
    /// How long such a read takes alone.
    pub read_alone_us: f64,
    /// Whether a discard may run beside other commands.
    pub queued: bool,
    /// Whether a discard holds back commands sent after it, which a layer above the drive can
    /// cause as well.
    pub holds_back: bool,
}

/// Foreground I/O at a fixed rate, alone or beside discards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InterferenceCell {
    /// The bytes of each discard; none for the foreground alone.
    pub discard_size: Option<Bytes>,
    /// Discards a second that were asked for; zero alone.
    pub discard_rate_s: f64,
    /// Discards done.
    pub discards: u64,
    /// Wall seconds it took.
    pub wall_s: f64,
    /// Foreground commands a second, half of them reads of 4 KiB and half writes, at random places.
    pub foreground_rate_s: f64,
    /// From when each read was due to when it was done, so that one that had to wait to be sent
    /// counts its wait (no coordinated omission).
    pub reads: Latency,
    /// The same of the writes.
    pub writes: Latency,
    /// Latency added to all foreground commands together, for each GiB discarded; none alone, and
    /// where it is within two standard errors.
    pub added_ms_per_gib: Option<f64>,
}

/// A figure with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
}

/// The conclusions from the measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// The cost of a discard that names next to nothing, in microseconds.
    pub command_us: Estimate,
    /// The cost that each GiB named in a discard adds, in milliseconds; of data where such discards were measured.
    pub per_gib_ms: Estimate,
    /// The part of `per_gib_ms` that is there for data only; none where discards of no data cost the same within
    /// the noise, or were not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_mapped_gib_ms: Option<Estimate>,
    /// How many discards the drive works on at once, at least, where they are more than one; none where that is not
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u32>,
    /// The median relative distance of the cells from command + size × per GiB: 0.05 is 5 %.
    pub residual: f64,
    /// Sizes at which the cost changes its slope, or jumps, beyond the noise.
    pub cliffs: Vec<Cliff>,
    /// The granularity it honours; none where that is not known.
    pub honoured_granularity: Option<Bytes>,
    /// Whether a discard may run beside other commands; none where that is not known.
    pub queued: Option<bool>,
    /// The data that a discarded range reads as; none where that is not known.
    pub reads: Option<DiscardedReads>,
    /// The size in bytes from which a discard gives back more write time than it takes; none where
    /// that is not known or no size does.
    pub pays_from_bytes: Option<Estimate>,
    /// How `pays_from_bytes` came about, or why there is none, in a sentence.
    pub pays_note: String,
}

/// A size at which the cost of a discard changes its slope, or jumps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cliff {
    /// The last measured size before the change.
    pub from: Bytes,
    /// The first measured size after it.
    pub to: Bytes,
    /// The cost of a discard of `to` by the sizes below, in microseconds.
    pub expected_us: f64,
    /// Its measured cost, with its interval.
    pub found_us: Estimate,
    /// The cost of each GiB below the change, in milliseconds.
    pub before_ms_per_gib: f64,
    /// The cost of each GiB above it, in milliseconds.
    pub after_ms_per_gib: f64,
}

/// Something that was asked for and is not in the document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// What, such as `latency: discard sequential, depth 32, 2 GiB`.
    pub what: String,
    /// Why.
    pub why: String,
}
