//! Counters, histograms and summaries that several crates share.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Nanos};

/// Counts by size, in powers of two: bucket `n` counts sizes of `2^n ..= 2^(n+1) - 1` bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<SizeBucket>", into = "Vec<SizeBucket>")]
pub struct SizeHistogram {
    counts: Vec<u64>,
}

/// One bucket of a [`SizeHistogram`], as it is written to JSON; empty buckets are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeBucket {
    /// The smallest size it counts, in bytes: a power of two. It counts up to twice this.
    pub from_bytes: Bytes,
    /// How many.
    pub count: u64,
}

impl SizeHistogram {
    /// Counts one thing of this size; sizes of zero count with those of one byte.
    pub fn record(&mut self, size: Bytes) {
        self.add(size.0.max(1).ilog2() as usize, 1);
    }

    fn add(&mut self, bucket: usize, count: u64) {
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] = self.counts[bucket].saturating_add(count);
    }

    /// How many were recorded.
    pub fn total(&self) -> u64 {
        self.counts.iter().copied().fold(0, u64::saturating_add)
    }

    /// The buckets that counted something, smallest first.
    pub fn buckets(&self) -> impl Iterator<Item = SizeBucket> + '_ {
        (0..)
            .zip(&self.counts)
            .filter(|(_, count)| **count > 0)
            .map(|(power, count)| SizeBucket { from_bytes: Bytes(1 << power), count: *count })
    }

    /// Returns the samples recorded after `earlier` was taken from the same histogram.
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |bucket| earlier.counts.get(bucket).copied().unwrap_or(0);
        Self { counts: (0..).zip(&self.counts).map(|(n, count)| count - before(n)).collect() }
    }

    /// Adds what `other` recorded.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in other.counts.iter().enumerate() {
            self.add(bucket, *count);
        }
    }
}

impl From<Vec<SizeBucket>> for SizeHistogram {
    fn from(buckets: Vec<SizeBucket>) -> Self {
        let mut histogram = Self::default();
        for bucket in buckets {
            histogram.add(bucket.from_bytes.0.max(1).ilog2() as usize, bucket.count);
        }
        histogram
    }
}

impl From<SizeHistogram> for Vec<SizeBucket> {
    fn from(histogram: SizeHistogram) -> Self {
        histogram.buckets().collect()
    }
}

/// The totals of a modelled drive since it was made. They only grow, so that a span is the
/// difference of two snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DriveCounters {
    /// Model time.
    pub model_ns: Nanos,
    /// Read commands.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: Bytes,
    /// Write commands.
    pub writes: u64,
    /// Bytes written by the host.
    pub write_bytes: Bytes,
    /// Flush commands.
    pub flushes: u64,
    /// Discard commands.
    pub discards: u64,
    /// Bytes they named, honoured or not.
    pub discard_bytes: Bytes,
    /// Discard commands by size.
    pub discard_sizes: SizeHistogram,
    /// Model time that discards kept the drive busy.
    pub discard_busy_ns: Nanos,
    /// Mapping pages the host's writes programmed.
    pub host_pages: u64,
    /// Mapping pages that garbage collection copied, or that were folded from the drive's cache.
    pub copied_pages: u64,
    /// Mapping pages of journal that discards caused.
    pub journal_pages: u64,
    /// Pages of the map that were programmed because memory holds only a part of it.
    #[serde(default)]
    pub map_pages: u64,
    /// Pages of the map that were read from flash.
    #[serde(default)]
    pub map_reads: u64,
    /// Erase-block erases.
    pub erases: u64,
}

impl DriveCounters {
    /// Mapping pages programmed: host, copied, journal and map together.
    pub fn programmed_pages(&self) -> u64 {
        let own = self.journal_pages.saturating_add(self.map_pages);
        self.host_pages.saturating_add(self.copied_pages).saturating_add(own)
    }

    /// Write amplification: flash pages programmed / host pages written; none without host writes.
    pub fn waf(&self) -> Option<f64> {
        (self.host_pages > 0).then(|| self.programmed_pages() as f64 / self.host_pages as f64)
    }

    /// Adds what happened over another span; counts stay at 2^64 - 1 where they would pass it.
    pub fn merge(&mut self, other: &Self) {
        let add = |count: &mut u64, other: u64| *count = count.saturating_add(other);
        self.model_ns += other.model_ns;
        add(&mut self.reads, other.reads);
        self.read_bytes += other.read_bytes;
        add(&mut self.writes, other.writes);
        self.write_bytes += other.write_bytes;
        add(&mut self.flushes, other.flushes);
        add(&mut self.discards, other.discards);
        self.discard_bytes += other.discard_bytes;
        self.discard_sizes.merge(&other.discard_sizes);
        self.discard_busy_ns += other.discard_busy_ns;
        add(&mut self.host_pages, other.host_pages);
        add(&mut self.copied_pages, other.copied_pages);
        add(&mut self.journal_pages, other.journal_pages);
        add(&mut self.map_pages, other.map_pages);
        add(&mut self.map_reads, other.map_reads);
        add(&mut self.erases, other.erases);
    }

    /// Returns the totals after `earlier` was taken from the same drive.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            model_ns: self.model_ns - earlier.model_ns,
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes - earlier.read_bytes,
            writes: self.writes - earlier.writes,
            write_bytes: self.write_bytes - earlier.write_bytes,
            flushes: self.flushes - earlier.flushes,
            discards: self.discards - earlier.discards,
            discard_bytes: self.discard_bytes - earlier.discard_bytes,
            discard_sizes: self.discard_sizes.since(&earlier.discard_sizes),
            discard_busy_ns: self.discard_busy_ns - earlier.discard_busy_ns,
            host_pages: self.host_pages - earlier.host_pages,
            copied_pages: self.copied_pages - earlier.copied_pages,
            journal_pages: self.journal_pages - earlier.journal_pages,
            map_pages: self.map_pages - earlier.map_pages,
            map_reads: self.map_reads - earlier.map_reads,
            erases: self.erases - earlier.erases,
        }
    }
}

/// How erase counts spread over a drive's erase blocks.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct EraseSpread {
    /// The least worn block's count.
    pub min: u32,
    /// The mean over all blocks.
    pub mean: f64,
    /// The most worn block's count.
    pub max: u32,
    /// The standard deviation over all blocks.
    pub deviation: f64,
}

impl EraseSpread {
    /// The spread of these counts, one a block; all zero for no blocks.
    pub fn of(counts: &[u32]) -> Self {
        if counts.is_empty() {
            return Self::default();
        }
        let n = counts.len() as f64;
        let mean = counts.iter().map(|count| f64::from(*count)).sum::<f64>() / n;
        let variance = counts.iter().map(|count| (f64::from(*count) - mean).powi(2)).sum::<f64>() / n;
        Self {
            min: counts.iter().copied().min().unwrap_or(0),
            mean,
            max: counts.iter().copied().max().unwrap_or(0),
            deviation: variance.sqrt(),
        }
    }
}

/// A latency distribution in a few figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LatencySummary {
    /// How many commands.
    pub count: u64,
    /// The shortest.
    pub min_ns: Nanos,
    /// Half took no longer.
    pub p50_ns: Nanos,
    /// 90 % took no longer.
    pub p90_ns: Nanos,
    /// 99 % took no longer.
    pub p99_ns: Nanos,
    /// 99.9 % took no longer.
    pub p999_ns: Nanos,
    /// The longest.
    pub max_ns: Nanos,
}

/// Latencies to three digits, up to an hour.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("these bounds are valid"))
    }
}

impl Latencies {
    /// Counts one; longer ones than an hour count as an hour.
    pub fn record(&mut self, latency: Nanos) {
        self.0.saturating_record(latency.0);
    }

    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// The distribution in a few figures, all zero where nothing was counted.
    pub fn summary(&self) -> LatencySummary {
        let at = |quantile| Nanos(self.0.value_at_quantile(quantile));
        LatencySummary {
            count: self.0.len(),
            min_ns: Nanos(self.0.min()),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: Nanos(self.0.max()),
        }
    }
}

/// The median of `samples`: the middle one, or the mean of the middle two; none of no samples.
/// Samples that are not numbers count as the largest.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Whether rounds of random writes over a range of `range` bytes, `written` bytes together, show its
/// steady state: [`is_steady`], and written once over, before which a drive may live on its spare
/// blocks.
pub fn is_steady_over(range: Bytes, written: Bytes, rounds: &[f64]) -> bool {
    written >= range && is_steady(rounds)
}

/// How many rounds tell whether they are steady.
pub const STEADY_WINDOW: usize = 5;

/// Whether the last five of these rounds are steady by the SNIA Solid State Storage Performance
/// Test Specification (Enterprise v1.1, "Steady State"): their excursion (max - min) is at most
/// 20 % of their mean, and the best straight line through them rises or falls by at most 10 % of
/// it over the window.
pub fn is_steady(rounds: &[f64]) -> bool {
    const WINDOW: usize = STEADY_WINDOW;
    let Some(window) = rounds.len().checked_sub(WINDOW).map(|from| &rounds[from..]) else {
        return false;
    };
    let mean = window.iter().sum::<f64>() / WINDOW as f64;
    let max = window.iter().copied().fold(f64::MIN, f64::max);
    let min = window.iter().copied().fold(f64::MAX, f64::min);
    let centre = (WINDOW - 1) as f64 / 2.0;
    let distances = (0..WINDOW).map(|round| round as f64 - centre);
    let covariance: f64 = distances.clone().zip(window).map(|(x, y)| x * (y - mean)).sum();
    let variance: f64 = distances.map(|x| x * x).sum();
    let excursion_of_line = (covariance / variance * (WINDOW - 1) as f64).abs();
    max - min <= 0.20 * mean && excursion_of_line <= 0.10 * mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_survives_json_and_subtraction() {
        let mut histogram = SizeHistogram::default();
        for size in [0, 1, 4096, 4097, 8191, 8192, 1 << 40] {
            histogram.record(Bytes(size));
        }
        let json = serde_json::to_string(&histogram).unwrap();
        assert_eq!(serde_json::from_str::<SizeHistogram>(&json).unwrap(), histogram);
        assert_eq!(histogram.total(), 7);
        assert_eq!(histogram.buckets().find(|bucket| bucket.from_bytes == Bytes(4096)).unwrap().count, 3);
        let earlier = histogram.clone();
        histogram.record(Bytes(4096));
        assert_eq!(histogram.since(&earlier).total(), 1);
        assert_eq!(histogram.since(&histogram).total(), 0);
    }

    #[test]
    fn spans_add_up() {
        let at = |factor: u64| {
            let mut discard_sizes = SizeHistogram::default();
            (0..factor).for_each(|_| discard_sizes.record(Bytes(4096)));
            DriveCounters {
                model_ns: Nanos(factor),
                reads: 2 * factor,
                read_bytes: Bytes(3 * factor),
                writes: 4 * factor,
                write_bytes: Bytes(5 * factor),
                flushes: 6 * factor,
                discards: 7 * factor,
                discard_bytes: Bytes(8 * factor),
                discard_sizes,
                discard_busy_ns: Nanos(9 * factor),
                host_pages: 10 * factor,
                copied_pages: 11 * factor,
                journal_pages: 12 * factor,
                map_pages: 14 * factor,
                map_reads: 15 * factor,
                erases: 13 * factor,
            }
        };
        let mut sum = at(4).since(&at(3));
        sum.merge(&at(6).since(&at(4)));
        assert_eq!(sum, at(3));
        assert_eq!(sum.waf(), Some(47.0 / 10.0));
    }

    #[test]
    fn totals_of_impossible_figures_stop_at_the_largest_count() {
        let bucket = SizeBucket { from_bytes: Bytes(u64::MAX), count: u64::MAX };
        let discard_sizes = SizeHistogram::from(vec![bucket, bucket]);
        assert_eq!(discard_sizes.total(), u64::MAX);
        let most = DriveCounters {
            model_ns: Nanos(u64::MAX),
            write_bytes: Bytes(u64::MAX),
            host_pages: u64::MAX,
            copied_pages: u64::MAX,
            journal_pages: u64::MAX,
            map_pages: u64::MAX,
            map_reads: u64::MAX,
            erases: u64::MAX,
            discard_sizes,
            ..DriveCounters::default()
        };
        assert_eq!((most.programmed_pages(), most.waf()), (u64::MAX, Some(1.0)));
        let mut sum = most.clone();
        sum.merge(&most);
        assert_eq!(sum, most);
    }

    #[test]
    fn median_is_the_middle_sample_or_the_mean_of_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn steady_needs_five_flat_rounds() {
        assert!(!is_steady(&[1.0; 4]));
        assert!(is_steady(&[1.0; 5]));
        assert!(is_steady(&[9.0, 1.0, 1.05, 0.95, 1.0, 1.02]));
        assert!(!is_steady(&[1.0, 1.0, 1.3, 1.0, 1.0]), "excursion above 20 %");
        assert!(!is_steady(&[0.94, 0.97, 1.0, 1.03, 1.06]), "slope above 10 %");
    }

    #[test]
    fn steady_needs_the_range_written() {
        assert!(is_steady_over(Bytes(8), Bytes(8), &[1.0; 5]));
        assert!(!is_steady_over(Bytes(8), Bytes(7), &[1.0; 5]));
        assert!(!is_steady_over(Bytes(8), Bytes(8), &[1.0; 4]));
    }

    #[test]
    fn erase_spread_is_computed_from_counts() {
        let spread = EraseSpread::of(&[1, 3]);
        assert_eq!((spread.min, spread.mean, spread.max, spread.deviation), (1, 2.0, 3, 1.0));
        assert_eq!(EraseSpread::of(&[]), EraseSpread::default());
    }
}
