//! The document of `trimtab sim TRACE`.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{DriveDescription, Environment};
use crate::policy::SimPolicy;
use crate::stats::{DriveCounters, EraseSpread, LatencySummary};
use crate::trace::{EventKind, TraceHeader};
use crate::units::{Bytes, Nanos};

/// The schema name of [`SimDocument`].
pub const SIM_SCHEMA: &str = "trimtab/sim/2";

/// A trace shorter than this says too little of a drive's life to state one.
pub const LEAST_SPAN_OF_LIFE: Nanos = Nanos(24 * 3_600_000_000_000);

/// The results of a trace on modelled drives under each policy: schema `trimtab/sim/2`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SimDocument {
    /// [`SIM_SCHEMA`].
    pub schema: String,
    /// The version of trimtab that wrote it.
    pub version: String,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// When it was started: RFC 3339, UTC.
    pub started: String,
    /// The machine it ran on.
    pub environment: Environment,
    /// The replayed trace.
    pub trace: ReplayedTrace,
    /// How it was replayed.
    pub replay: ReplayDescription,
    /// The drives it was replayed on.
    pub drives: Vec<DriveDescription>,
    /// The policies asked for, the bound among them.
    pub policies: Vec<SimPolicy>,
    /// Notes for the reader about the trace and its replay, each in a sentence.
    pub notes: Vec<String>,
    /// One entry a finished replay, by drive and then by policy.
    pub runs: Vec<SimRun>,
    /// The same trace alone, on drives of the traced device's size: what holds for one writer. None without copies of it, and
    /// if it can't be replayed so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_copy: Option<Box<SimDocument>>,
    /// Why `runs` is not complete; none when it is.
    pub stopped: Option<String>,
}

/// The trace of a [`SimDocument`], and the device of it that was replayed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayedTrace {
    /// The file.
    pub path: String,
    /// The header of the trace.
    pub header: TraceHeader,
    /// The device that was replayed, by name.
    pub device: String,
    /// Its size: the header's, or the end of the furthest extent in whole GiB.
    pub size: Bytes,
    /// How long one pass of the trace takes, in its own time.
    pub span_ns: Nanos,
    /// The totals of its events on this device, in the order of [`EventKind::ALL`]; kinds without events are left
    /// out.
    pub kinds: Vec<KindTotal>,
}

impl ReplayedTrace {
    /// How many events of a kind the device has.
    pub fn count(&self, kind: EventKind) -> u64 {
        self.kinds.iter().find(|total| total.kind == kind).map_or(0, |total| total.count)
    }

    /// Whether the trace is long enough to state a drive's life.
    pub fn tells_life(&self) -> bool {
        self.span_ns >= LEAST_SPAN_OF_LIFE
    }
}

/// The events of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindTotal {
    /// The kind.
    pub kind: EventKind,
    /// How many.
    pub count: u64,
    /// Bytes they name.
    pub bytes: Bytes,
}

/// How a trace was replayed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayDescription {
    /// The size that addresses were scaled to; none where they were kept.
    pub scaled_to: Option<Bytes>,
    /// The copies of the trace side by side; none where there was only one.
    #[serde(default)]
    pub tiling: Option<Tiling>,
    /// How often the trace was to be replayed.
    pub passes: Passes,
    /// Whether all of the drive had been written before.
    pub preconditioned: bool,
    /// The program and erase cycles that a block is taken to last where the run's drive does not say.
    pub endurance_cycles: u32,
    /// Whether `endurance_cycles` is an assumption, since none was stated.
    pub endurance_assumed: bool,
    /// How the host and the policies went by time.
    #[serde(default)]
    pub clocks: Clocks,
    /// The seed of the drives' draws.
    #[serde(default)]
    pub seed: u64,
}

/// Copies of a trace side by side on one drive, each with addresses of its own, as if this many workloads of the recorded
/// size shared it. Sizes and number of requests stay the same in each copy. A copy begins a part of the trace later than
/// the one before it, so that they are in different phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tiling {
    /// How many copies.
    pub copies: u32,
    /// The copies that write at a time.
    pub order: TileOrder,
}

/// The copies of a trace that write at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TileOrder {
    /// One at a time, in turns, each for a 64th of the trace, at the speed of the trace.
    Slice,
    /// All at once, each as many times slower as there are copies.
    Interleave,
}

impl TileOrder {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Slice, Self::Interleave];

    /// Its name, as `serde` writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slice => "slice",
            Self::Interleave => "interleave",
        }
    }
}

impl Tiling {
    /// The most copies.
    pub const MOST: u32 = 1024;
}

/// Why a text is not a tiling.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a number of copies from 1 to {}, then :slice or :interleave, such as 64:slice",
    Tiling::MOST
)]
pub struct TilingParseError;

impl FromStr for Tiling {
    type Err = TilingParseError;

    /// Parses `64:slice`, `64:interleave`, or `64`, which is `64:interleave`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (copies, order) = text.split_once(':').unwrap_or((text, TileOrder::Interleave.name()));
        let order = TileOrder::ALL.into_iter().find(|it| it.name() == order);
        let copies = copies.parse().ok().filter(|copies| (1..=Self::MOST).contains(copies));
        copies.zip(order).map(|(copies, order)| Self { copies, order }).ok_or(TilingParseError)
    }
}

/// How the host and the policy of a replay go by time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Clocks {
    /// How much longer the host thinks between requests than in the trace.
    pub think_scale: f64,
    /// The clock of the policy.
    pub policy: PolicyClock,
}

impl Clocks {
    /// The most by which think times are stretched.
    pub const MOST_THINK_SCALE: f64 = 1e6;
}

impl Default for Clocks {
    /// The trace's.
    fn default() -> Self {
        Self { think_scale: 1.0, policy: PolicyClock::default() }
    }
}

/// The clock that policies go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyClock {
    /// The trace's: an hour is one of the machine that was recorded.
    #[default]
    Trace,
    /// The drive's: an hour is one beside the drive that is simulated, with its waits and the think times.
    Drive,
}

impl PolicyClock {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Trace, Self::Drive];

    /// The name that users call it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Drive => "drive",
        }
    }
}

/// How often a trace is replayed, one pass after the other on the same drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Passes {
    /// This many times.
    Count(u32),
    /// Until the write amplification of passes is steady by SNIA PTS, at most this many times.
    UntilSteady(u32),
}

impl Passes {
    /// The most passes until a drive is steady.
    const MOST: u32 = 100;

    /// Returns passes until the drive is steady where that is asked, else `count` passes.
    pub fn new(count: u32, until_steady: bool) -> Self {
        if until_steady { Self::UntilSteady(Self::MOST) } else { Self::Count(count) }
    }
}

/// One policy on one drive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SimRun {
    /// The profile's name.
    pub profile: String,
    /// The policy, or the bound.
    pub policy: SimPolicy,
    /// Where its discards came from.
    pub discards_from: DiscardsFrom,
    /// Whether write amplification was steady over the last passes; none where that was not asked.
    pub steady: Option<bool>,
    /// Years until the blocks are worn out at this rate, evenly worn; none where the trace is shorter than
    /// [`LEAST_SPAN_OF_LIFE`] or nothing was erased.
    pub lifetime_years: Option<f64>,
    /// The program and erase cycles that the drive's profile says a block lasts; none where it says nothing, or
    /// where the user stated them.
    #[serde(default)]
    pub endurance_cycles: Option<u32>,
    /// Wall seconds that the replay took.
    pub wall_s: f64,
    /// The results.
    pub outcome: ReplayOutcome,
}

/// Where the discards of a replay came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiscardsFrom {
    /// They are the trace's own.
    Trace,
    /// The policy made them of what the trace says was freed.
    Frees,
    /// There were none: the drive knew of each free, and of each discard of the trace, at once.
    Ideal,
}

/// The results of one replay on a drive. Counts are of all passes together and leave out everything done to
/// the drive before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayOutcome {
    /// How often the trace was replayed.
    pub passes: u32,
    /// The trace's own time that was replayed.
    pub trace_ns: Nanos,
    /// Events of the device, those left out among them.
    pub events: u64,
    /// Requests that had failed when they were recorded, and were left out.
    pub failed: u64,
    /// The totals of the drive, in model time.
    pub counters: DriveCounters,
    /// Write amplification of each pass; not a number where it wrote nothing.
    pub waf_passes: Vec<Option<f64>>,
    /// Erase blocks of the drive, with those of a cache of its own.
    pub erase_blocks: u32,
    /// The erase blocks of a cache of its own: in this model they last for ever.
    #[serde(default)]
    pub cache_blocks: u32,
    /// Erases of those; the totals have them too.
    #[serde(default)]
    pub cache_erases: u64,
    /// Blocks that turned bad, also before the first pass.
    #[serde(default)]
    pub bad_blocks: u32,
    /// How the erases spread over them.
    pub erase_spread: EraseSpread,
    /// Erases in each tenth of the trace's time, over all passes.
    pub erases_by_phase: Vec<u64>,
    /// How long reads took, in model time.
    pub reads: LatencySummary,
    /// How long writes took, in model time.
    pub writes: LatencySummary,
    /// How long discards took, in model time.
    pub discards: LatencySummary,
    /// How long flushes took, in model time.
    pub flushes: LatencySummary,
    /// For how long one or more reads, writes and flushes were under way, in model time: how long the drive
    /// held the host up. A discard adds to it only what these waited for it.
    pub waited_ns: Nanos,
    /// The bytes that were free at the end and not discarded.
    pub pending: Bytes,
    /// The drive's reserve over time: some 200 to 400 points.
    pub reserve: Vec<ReservePoint>,
}

/// The reserve of a drive at one time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ReservePoint {
    /// The time in the trace, its passes one after the other.
    pub trace_ns: Nanos,
    /// Erased blocks.
    pub free_blocks: u32,
    /// The share of all flash pages that hold no data of use.
    pub free_share: f64,
}

impl ReplayOutcome {
    /// Years until blocks that last `endurance_cycles` erases are worn out at this rate, were wear
    /// even over all but a cache's own; none where no trace time passed or none of them was erased.
    pub fn lifetime_years(&self, endurance_cycles: u32) -> Option<f64> {
        const YEAR_S: f64 = 365.25 * 86_400.0;
        let erases = self.counters.erases.saturating_sub(self.cache_erases) as f64;
        let blocks = f64::from(self.erase_blocks.saturating_sub(self.cache_blocks));
        let cycles_per_second = erases / blocks / self.trace_ns.seconds();
        (cycles_per_second.is_finite() && cycles_per_second > 0.0)
            .then(|| f64::from(endurance_cycles) / cycles_per_second / YEAR_S)
    }
}
