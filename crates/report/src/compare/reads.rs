//! Latencies of the probe's reads over a run, as other users of the drive see them.

use trimtab_core::document::{Reads, Run, START, StepKind};
use trimtab_core::stats::LatencySummary;
use trimtab_core::units::Nanos;

/// The fewest reads that have a p99.
pub const LEAST: f64 = 100.0;
/// The most points that stand for the reads of one step.
const POINTS: u64 = 1000;

/// The larger of two p99s, in seconds: of the reads in all activities, and of those in all pauses of the
/// workload.
/// None where neither has [`LEAST`] reads.
pub fn p99_s(run: &Run) -> Option<f64> {
    if let Some(Reads { activities, pauses }) = run.reads {
        let enough = |reads: &LatencySummary| reads.count as f64 >= LEAST;
        let both = [activities, pauses].into_iter().flatten().filter(enough);
        return both.map(|reads| reads.p99_ns.seconds()).max_by(f64::total_cmp);
    }
    let pooled = |kind| {
        let steps = run.steps.iter().filter(|step| step.kind == kind && step.name != START);
        pooled_p99_s(steps.filter_map(|step| step.probe.as_ref()))
    };
    let both = [StepKind::Activity, StepKind::Pause].into_iter().filter_map(pooled);
    both.max_by(f64::total_cmp)
}

/// The longest read of all, in seconds; none without reads.
pub fn longest_s(run: &Run) -> Option<f64> {
    run.steps.iter().filter_map(|step| Some(step.probe?.max_ns.seconds())).max_by(f64::total_cmp)
}

/// The p99 of the reads that several summaries count together. Exact where one of them counts all
/// reads; otherwise reads between two known quantiles of a step are taken to rise evenly on a
/// logarithmic scale.
fn pooled_p99_s<'a>(summaries: impl Iterator<Item = &'a LatencySummary>) -> Option<f64> {
    let mut points: Vec<(f64, f64)> = summaries.flat_map(points).collect();
    let total: f64 = points.iter().map(|(_, count)| count).sum();
    if total < LEAST {
        return None;
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut counted = 0.0;
    // Sums of fractions fall short of the whole by less than a millionth of a read.
    let reached = points.iter().find(|(_, count)| {
        counted += count;
        counted + 1e-6 * count >= 0.99 * total
    });
    reached.or(points.last()).map(|(ns, _)| ns / 1e9)
}

/// Points that stand for the reads of `summary`: a latency in nanoseconds, and how many reads.
fn points(summary: &LatencySummary) -> Vec<(f64, f64)> {
    let LatencySummary { count, min_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns } = *summary;
    let n = count as f64;
    let rank = |quantile: f64| (quantile * n).ceil();
    let known = |rank: f64, Nanos(ns): Nanos| (rank, ns.max(1) as f64);
    let known = [
        known(1.0, min_ns),
        known(rank(0.5), p50_ns),
        known(rank(0.9), p90_ns),
        known(rank(0.99), p99_ns),
        known(rank(0.999), p999_ns),
        known(n, max_ns),
    ];
    let of = count.min(POINTS);
    let at = |point: u64| {
        let rank = (point as f64 * n / of as f64).ceil();
        let above = known.iter().position(|(known, _)| *known >= rank).unwrap_or(known.len() - 1);
        let (high, latency) = known[above];
        let (low, before) = known[above.saturating_sub(1)];
        if high <= rank || low >= high {
            return latency;
        }
        let part = (rank - low) / (high - low);
        before * (latency / before).powf(part)
    };
    (1..=of).map(|point| (at(point), n / of as f64)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop, prop_assert, proptest};
    use trimtab_core::stats::Latencies;

    use super::*;

    fn summary(samples: &[u64]) -> LatencySummary {
        let mut latencies = Latencies::default();
        samples.iter().for_each(|us| latencies.record(Nanos(us * 1000)));
        latencies.summary()
    }

    fn pooled_us(summaries: &[LatencySummary]) -> Option<f64> {
        pooled_p99_s(summaries.iter()).map(|seconds| seconds * 1e6)
    }

    #[test]
    fn few_reads_have_no_p99() {
        assert_eq!(pooled_us(&[]), None);
        assert_eq!(pooled_us(&[summary(&[7; 3]), summary(&[9; 96])]), None);
        assert!(pooled_us(&[summary(&[7; 3]), summary(&[9; 97])]).is_some());
    }

    #[test]
    fn the_p99_of_one_step_is_its_own() {
        for count in [100, 999, 1000, 54_321] {
            let step = summary(&(1..=count).collect::<Vec<_>>());
            let found = pooled_us(&[step]).unwrap();
            assert_eq!((found * 1e3).round(), step.p99_ns.0 as f64, "{count}");
        }
    }

    #[test]
    fn a_stall_in_a_short_step_counts_by_its_share() {
        let quiet = summary(&[1000; 990]);
        assert!(pooled_us(&[quiet, summary(&[700_000; 5])]).unwrap() < 1100.0);
        assert!(pooled_us(&[quiet, summary(&[700_000; 20])]).unwrap() > 600_000.0);
    }

    proptest! {
        /// The estimate lies between latencies that really happened, near the true rank.
        #[test]
        fn a_pooled_p99_is_near_that_of_all_samples(
            steps in prop::collection::vec(prop::collection::vec(100..1_000_000_u64, 40..200), 3..8),
        ) {
            let summaries: Vec<_> = steps.iter().map(|step| summary(step)).collect();
            let mut all: Vec<u64> = steps.into_iter().flatten().collect();
            all.sort_unstable();
            let at = |quantile: f64| all[((quantile * all.len() as f64).ceil() as usize).clamp(1, all.len()) - 1] as f64;
            let found = pooled_us(&summaries).unwrap();
            prop_assert!(found >= 0.998 * at(0.95) && found <= 1.002 * at(1.0), "{found}");
        }

        #[test]
        fn any_summary_has_finite_latencies(
            counts in prop::collection::vec((0..u64::MAX, 0..u64::MAX, 0..u64::MAX), 0..5),
        ) {
            let summaries: Vec<_> = counts
                .iter()
                .map(|(count, p50, max)| LatencySummary {
                    count: *count,
                    p50_ns: Nanos(*p50),
                    max_ns: Nanos(*max),
                    ..LatencySummary::default()
                })
                .collect();
            prop_assert!(pooled_us(&summaries).is_none_or(|us| us.is_finite() && us >= 0.0));
        }
    }
}
