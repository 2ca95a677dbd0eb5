//! Latency distributions, as the documents of experiments hold them.

use serde::{Deserialize, Serialize};

/// Latencies as an HDR histogram counted them: to three digits, empty buckets left out, shortest
/// first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LatencyHistogram(pub Vec<LatencyBucket>);

impl LatencyHistogram {
    /// How many latencies it counted.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|bucket| bucket.count).fold(0, u64::saturating_add)
    }

    /// The latency in nanoseconds that a share `quantile` of them, from 0 to 1, did not exceed; none
    /// where nothing was counted.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let rank = ((quantile * self.total() as f64).ceil() as u64).max(1);
        let mut counted = 0_u64;
        let reached = self.0.iter().find(|bucket| {
            counted = counted.saturating_add(bucket.count);
            counted >= rank
        });
        reached.or(self.0.last()).map(|bucket| bucket.ns)
    }

    /// Their mean in nanoseconds; none where nothing was counted.
    pub fn mean(&self) -> Option<f64> {
        let sum: f64 = self.0.iter().map(|bucket| bucket.ns as f64 * bucket.count as f64).sum();
        let total = self.total();
        (total > 0).then(|| sum / total as f64)
    }
}

/// One bucket of a [`LatencyHistogram`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyBucket {
    /// The largest latency that it counts, in nanoseconds of wall time.
    pub ns: u64,
    /// How many.
    pub count: u64,
}

/// A latency distribution in a few figures, all in microseconds of wall time, and in full.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Latency {
    /// How many commands.
    pub n: u64,
    /// The shortest.
    pub min_us: f64,
    /// The mean.
    pub mean_us: f64,
    /// Half took no longer.
    pub p50_us: f64,
    /// 90 % took no longer.
    pub p90_us: f64,
    /// 99 % took no longer.
    pub p99_us: f64,
    /// 99.9 % took no longer.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
    /// All of them.
    pub histogram: LatencyHistogram,
}

impl Latency {
    /// The figures of `histogram`; all zero where nothing was counted.
    pub fn of(histogram: LatencyHistogram) -> Self {
        let at = |quantile| histogram.quantile(quantile).map_or(0.0, |ns| ns as f64 / 1e3);
        Self {
            n: histogram.total(),
            min_us: at(0.0),
            mean_us: histogram.mean().map_or(0.0, |ns| ns / 1e3),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: at(1.0),
            histogram,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, prop, prop_assert_eq, proptest};
    use proptest::strategy::Strategy;

    use super::*;

    fn counted(samples: &[u64]) -> LatencyHistogram {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        let buckets = sorted.chunk_by(|left, right| left == right);
        LatencyHistogram(
            buckets.map(|same| LatencyBucket { ns: same[0], count: same.len() as u64 }).collect(),
        )
    }

    #[test]
    fn empty_latency_is_all_zero() {
        assert_eq!(Latency::of(LatencyHistogram::default()), Latency::default());
        assert_eq!(LatencyHistogram::default().quantile(0.5), None);
    }

    #[test]
    fn figures_are_in_microseconds() {
        let samples: Vec<_> = (1..=1000).map(|us| us * 1_000).collect();
        let latency = Latency::of(counted(&samples));
        let figures = [latency.min_us, latency.p50_us, latency.p90_us, latency.p99_us, latency.p999_us];
        assert_eq!(figures, [1.0, 500.0, 900.0, 990.0, 999.0]);
        assert_eq!((latency.n, latency.mean_us, latency.max_us), (1000, 500.5, 1000.0));
    }

    proptest! {
        #[test]
        fn a_quantile_is_the_sorted_sample_of_that_rank(
            (samples, rank) in prop::collection::vec(1..50u64, 1..200)
                .prop_flat_map(|samples| { let n = samples.len(); (Just(samples), 1..=n) }),
        ) {
            let mut sorted = samples.clone();
            sorted.sort_unstable();
            let quantile = (rank as f64 - 0.5) / samples.len() as f64;
            prop_assert_eq!(counted(&samples).quantile(quantile), Some(sorted[rank - 1]));
        }
    }
}
