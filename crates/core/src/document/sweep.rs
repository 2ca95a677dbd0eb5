//! The document of `trimtab sweep`: a row a cell of the grid.

use serde::{Deserialize, Serialize};

use super::sim::{DiscardsFrom, PolicyClock, ReplayOutcome, SimRun};
use crate::policy::SimPolicy;
use crate::table::{Columns, TableColumn};
use crate::units::Bytes;

/// The schema name of [`SweepDocument`].
pub const SWEEP_SCHEMA: &str = "trimtab/sweep/1";

/// The results of a sweep: schema `trimtab/sweep/1`. All times are model time. It holds no wall time and names no
/// machine, so that the same cells give the same rows wherever they were computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepDocument {
    /// [`SWEEP_SCHEMA`].
    pub schema: String,
    /// The version of trimtab that wrote it.
    pub version: String,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// How many cells the grid has.
    pub cells: usize,
    /// One row a finished cell, in the order of the grid.
    pub rows: Vec<SweepRow>,
    /// Why `rows` is not complete; none when it is.
    pub stopped: Option<String>,
}

/// One cell of the grid, and its results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepRow {
    /// The hash of all that its results depend on, which names its file.
    pub key: String,
    /// The inputs of the simulation.
    pub cell: CellDescription,
    /// Why it has no figures; `None` if it has.
    pub error: Option<String>,
    /// Its figures.
    pub figures: Option<Figures>,
    /// How many cells with figures differ from this one in nothing but their seed, itself among them.
    pub seeds: u32,
    /// The 95 % confidence intervals of the means over these; none of fewer than two.
    pub intervals: Option<Intervals>,
}

/// A cell as the grid names it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CellDescription {
    /// The trace's name; none of a synthetic workload.
    pub trace: Option<String>,
    /// The hash of the trace file's content.
    pub trace_hash: Option<String>,
    /// The synthetic workload, or none.
    pub workload: Option<String>,
    /// The profile of the drive that a trace was replayed on.
    pub profile: Option<String>,
    /// The policy of a replay.
    pub policy: Option<SimPolicy>,
    /// The garbage collector of a synthetic workload.
    pub gc: Option<String>,
    /// The host's frontiers of a synthetic workload.
    pub streams: Option<u32>,
    /// Over-provisioning of the drive, (physical - logical) / logical.
    pub over_provisioning: Option<f64>,
    /// How much longer the host thinks between requests than in the trace.
    pub think_scale: Option<f64>,
    /// The clock that the policy goes by.
    pub policy_clock: Option<PolicyClock>,
    /// Whether the drive begins `new`, `used` or `aged`.
    pub state: Option<String>,
    /// The seed of every draw.
    pub seed: u64,
}

/// The figures of a cell, in model time; those that a bare flash model has no clock for are none. Counts, and sums of
/// times and bytes, are of all passes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Where a policy's discards came from.
    pub discards_from: Option<DiscardsFrom>,
    /// Whether the trace's frees were not recorded, but synthesised; none of a synthetic workload.
    #[serde(default)]
    pub synthetic_frees: Option<bool>,
    /// Passes of the trace.
    pub passes: Option<u32>,
    /// Whether write amplification was steady at the end; none where that was not asked.
    pub steady: Option<bool>,
    /// The drive's size.
    pub drive_bytes: Option<Bytes>,
    /// Erase-block erases.
    pub erases: u64,
    /// Flash pages programmed over pages that the host wrote; `None` if it wrote nothing.
    pub waf: Option<f64>,
    /// The write amplification by the closed form, where there is one.
    pub predicted_waf: Option<f64>,
    /// Pages that the host wrote.
    pub host_pages: u64,
    /// Pages that garbage collection copied.
    pub copied_pages: u64,
    /// For how long one or more reads, writes and flushes were under way.
    pub waited_ns: Option<u64>,
    /// 99 % of the reads took at most this long; none where there were none.
    pub read_p99_ns: Option<u64>,
    /// 99 % of the writes took at most this long; none where there were none.
    pub write_p99_ns: Option<u64>,
    /// Discards; trimmed pages of a synthetic workload.
    pub discards: u64,
    /// Bytes that they named.
    pub discard_bytes: Option<u64>,
    /// For how long they kept the drive busy.
    pub discard_busy_ns: Option<u64>,
    /// Bytes that were free at the end and not discarded.
    pub pending_bytes: Option<u64>,
    /// Years until the blocks are worn out at this rate; none where the trace is shorter than a day.
    pub lifetime_years: Option<f64>,
}

/// An interval of a mean.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MeanInterval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// The intervals of the figures that sweeps are compared by. Those of counts and sums are of one pass.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Intervals {
    /// Of the erases.
    pub erases: Option<MeanInterval>,
    /// Of the write amplification.
    pub waf: Option<MeanInterval>,
    /// Of the host's waits.
    pub waited_ns: Option<MeanInterval>,
    /// Of the reads' 99th percentile.
    pub read_p99_ns: Option<MeanInterval>,
    /// Of the writes' 99th percentile.
    pub write_p99_ns: Option<MeanInterval>,
}

impl Figures {
    /// The figures of a replay on a drive of `size`.
    pub fn of_replay(
        outcome: &ReplayOutcome,
        from: DiscardsFrom,
        steady: Option<bool>,
        life: Option<f64>,
    ) -> Self {
        let counters = &outcome.counters;
        let p99 = |latency: &crate::stats::LatencySummary| (latency.count > 0).then_some(latency.p99_ns.0);
        Self {
            discards_from: Some(from),
            synthetic_frees: None,
            passes: Some(outcome.passes),
            steady,
            drive_bytes: None,
            erases: counters.erases,
            waf: counters.waf(),
            predicted_waf: None,
            host_pages: counters.host_pages,
            copied_pages: counters.copied_pages,
            waited_ns: Some(outcome.waited_ns.0),
            read_p99_ns: p99(&outcome.reads),
            write_p99_ns: p99(&outcome.writes),
            discards: counters.discards,
            discard_bytes: Some(counters.discard_bytes.0),
            discard_busy_ns: Some(counters.discard_busy_ns.0),
            pending_bytes: Some(outcome.pending.0),
            lifetime_years: life,
        }
    }

    /// `sum`, a count or time of all passes, as a mean of one: policies get steady after different numbers of passes.
    pub fn per_pass(&self, sum: u64) -> f64 {
        sum as f64 / f64::from(self.passes.unwrap_or(1).max(1))
    }

    /// The figures of one run of a simulation.
    pub fn of_run(run: &SimRun) -> Self {
        Self::of_replay(&run.outcome, run.discards_from, run.steady, run.lifetime_years)
    }
}

/// Adds the columns of figures.
pub fn figure_columns<'a, R>(
    columns: Columns<'a, R>,
    of: impl Fn(&R) -> Option<&Figures> + Copy,
) -> Columns<'a, R> {
    let count = |get: fn(&Figures) -> Option<u64>| move |row: &R| of(row).and_then(get);
    let real = |get: fn(&Figures) -> Option<f64>| move |row: &R| of(row).and_then(get);
    let from = |it: DiscardsFrom| match it {
        DiscardsFrom::Trace => "trace".to_owned(),
        DiscardsFrom::Frees => "frees".to_owned(),
        DiscardsFrom::Ideal => "ideal".to_owned(),
    };
    columns
        .text("discards_from", move |row| of(row)?.discards_from.map(from))
        .flag("synthetic_frees", move |row| of(row)?.synthetic_frees)
        .count("passes", count(|it| it.passes.map(u64::from)))
        .flag("steady", move |row| of(row)?.steady)
        .count("drive_bytes", count(|it| it.drive_bytes.map(|size| size.0)))
        .count("erases", count(|it| Some(it.erases)))
        .real("waf", real(|it| it.waf))
        .real("predicted_waf", real(|it| it.predicted_waf))
        .count("host_pages", count(|it| Some(it.host_pages)))
        .count("copied_pages", count(|it| Some(it.copied_pages)))
        .count("waited_ns", count(|it| it.waited_ns))
        .count("read_p99_ns", count(|it| it.read_p99_ns))
        .count("write_p99_ns", count(|it| it.write_p99_ns))
        .count("discards", count(|it| Some(it.discards)))
        .count("discard_bytes", count(|it| it.discard_bytes))
        .count("discard_busy_ns", count(|it| it.discard_busy_ns))
        .count("pending_bytes", count(|it| it.pending_bytes))
        .real("lifetime_years", real(|it| it.lifetime_years))
}

/// The table of `rows`: a row a cell.
pub fn columns(rows: &[SweepRow]) -> Vec<TableColumn> {
    let text = |get: fn(&CellDescription) -> &Option<String>| move |row: &SweepRow| get(&row.cell).clone();
    let columns = Columns::of(rows)
        .text("key", |row| Some(row.key.clone()))
        .text("trace", text(|it| &it.trace))
        .text("trace_hash", text(|it| &it.trace_hash))
        .text("workload", text(|it| &it.workload))
        .text("profile", text(|it| &it.profile))
        .text("policy", |row| row.cell.policy.map(|policy| policy.to_string()))
        .text("gc", text(|it| &it.gc))
        .count("streams", |row| row.cell.streams.map(u64::from))
        .real("over_provisioning", |row| row.cell.over_provisioning)
        .real("think_scale", |row| row.cell.think_scale)
        .text("policy_clock", |row| row.cell.policy_clock.map(|clock| clock.name().to_owned()))
        .text("state", text(|it| &it.state))
        .count("seed", |row| Some(row.cell.seed))
        .text("error", |row| row.error.clone());
    let ends = |get: fn(&Intervals) -> Option<MeanInterval>, end: fn(&MeanInterval) -> f64| {
        move |row: &SweepRow| get(row.intervals.as_ref()?).as_ref().map(end)
    };
    figure_columns(columns, |row| row.figures.as_ref())
        .count("seeds", |row| Some(row.seeds.into()))
        .real("erases_per_pass_low", ends(|it| it.erases, |it| it.low))
        .real("erases_per_pass_high", ends(|it| it.erases, |it| it.high))
        .real("waf_low", ends(|it| it.waf, |it| it.low))
        .real("waf_high", ends(|it| it.waf, |it| it.high))
        .real("waited_ns_per_pass_low", ends(|it| it.waited_ns, |it| it.low))
        .real("waited_ns_per_pass_high", ends(|it| it.waited_ns, |it| it.high))
        .real("read_p99_ns_low", ends(|it| it.read_p99_ns, |it| it.low))
        .real("read_p99_ns_high", ends(|it| it.read_p99_ns, |it| it.high))
        .real("write_p99_ns_low", ends(|it| it.write_p99_ns, |it| it.low))
        .real("write_p99_ns_high", ends(|it| it.write_p99_ns, |it| it.high))
        .finish()
}
