//! The figures of one policy on one drive.

use serde::Serialize;
use trimtab_core::document::sim::SimRun;
use trimtab_core::policy::{PolicyKind, SimPolicy};

use crate::chart::policy_class;

/// One policy on one drive. Times are model time, but for the lifetime. Counts and sums of times are means of a
/// pass, since policies get steady after different numbers of passes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The policy, or the bound.
    pub policy: SimPolicy,
    /// Erase-block erases.
    pub erases: f64,
    /// Erases in multiples of those of `none`, or of the policy with the fewest where `none` was not
    /// replayed; none where neither erased anything.
    pub relative_erases: Option<f64>,
    /// Write amplification; none where nothing was written.
    pub waf: Option<f64>,
    /// Years until the blocks are worn out, at the rate of the trace; none where it has none or is shorter
    /// than a day.
    pub lifetime_years: Option<f64>,
    /// Blocks that turned bad.
    pub bad_blocks: u32,
    /// Seconds that 99 % of the writes took at most; none where there were none.
    pub write_p99_s: Option<f64>,
    /// Seconds that 99 % of the reads took at most; none where there were none.
    pub read_p99_s: Option<f64>,
    /// Seconds in which one or more reads, writes and flushes were under way.
    pub waited_s: f64,
    /// Discards.
    pub discards: f64,
    /// Bytes that they named.
    pub discard_bytes: f64,
    /// Seconds that they kept the drive busy.
    pub discard_busy_s: f64,
    /// The least share of the flash without data of use, over the time of the trace.
    pub least_reserve: Option<f64>,
    /// The class of its colour.
    #[serde(skip)]
    pub class: String,
}

/// `sum`, a count or time of all passes of `run`, as a mean of one.
pub fn per_pass(run: &SimRun, sum: f64) -> f64 {
    sum / f64::from(run.outcome.passes.max(1))
}

/// The row that others are compared with in their erases: `none`, or the policy with the fewest.
pub fn reference(rows: &[Row]) -> Option<&Row> {
    let fewest = || {
        let policies = rows.iter().filter(|row| !row.is_ideal());
        policies.min_by(|a, b| a.erases.total_cmp(&b.erases))
    };
    rows.iter().find(|row| row.is_none()).or_else(fewest)
}

/// Relates the erases of all rows to those of the reference.
pub(super) fn relate(rows: &mut [Row]) {
    let Some(least) = reference(rows).map(|row| row.erases) else { return };
    for row in rows {
        let ratio = row.erases / least;
        row.relative_erases = (!ratio.is_nan()).then_some(ratio);
    }
}

/// The class of the colour of `policy`.
fn class(policy: SimPolicy, policies: &[SimPolicy]) -> String {
    let all: Vec<_> = policies.iter().filter_map(|policy| policy.real()).collect();
    policy.real().map_or_else(|| policy.to_string(), |choice| policy_class(choice, &all))
}

impl Row {
    /// The figures of `run`, one of those under `policies`.
    pub(super) fn of(run: &SimRun, policies: &[SimPolicy]) -> Self {
        let SimRun { policy, outcome, .. } = run;
        let a_pass = |sum: f64| per_pass(run, sum);
        let p99 = |latency: &trimtab_core::stats::LatencySummary| {
            (latency.count > 0).then(|| latency.p99_ns.seconds())
        };
        Self {
            policy: *policy,
            erases: a_pass(outcome.counters.erases as f64),
            waf: outcome.counters.waf(),
            relative_erases: None,
            lifetime_years: run.lifetime_years,
            bad_blocks: outcome.bad_blocks,
            write_p99_s: p99(&outcome.writes),
            read_p99_s: p99(&outcome.reads),
            waited_s: a_pass(outcome.waited_ns.seconds()),
            discards: a_pass(outcome.counters.discards as f64),
            discard_bytes: a_pass(outcome.counters.discard_bytes.0 as f64),
            discard_busy_s: a_pass(outcome.counters.discard_busy_ns.seconds()),
            least_reserve: outcome.reserve.iter().map(|point| point.free_share).min_by(f64::total_cmp),
            class: class(*policy, policies),
        }
    }

    /// Whether it is the policy that trims nothing.
    pub(super) fn is_none(&self) -> bool {
        self.policy.is(PolicyKind::None)
    }

    /// Whether it is the bound, which no machine can use.
    pub(super) fn is_ideal(&self) -> bool {
        self.policy == SimPolicy::Ideal
    }
}
