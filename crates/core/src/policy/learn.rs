//! Learns what discards cost on a drive from the trims that are made anyway.
//!
//! A trim takes a times the profile's time for its commands and b times the profile's time for its bytes. The
//! logarithms of a and b are estimated by an extended Kalman filter, whose measurement is the logarithm of the
//! time of one trim. The profile is the prior: it may be wrong by a factor of ten, and if its commands are too
//! slow, its bytes most probably are, too. So trims of one length correct both.

use super::kalman::Estimate;
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// The variance of the logarithms of a and b before the first trim, and their correlation.
const PRIOR: f64 = 4.0;
const CORRELATION: f64 = 0.97;
/// The variance of the logarithm of one trim's time, if it took less than expected, and if it took longer. On a
/// drive that others use, a trim also waits for their commands, but no trim takes less than its own time.
const NOISE_BELOW: f64 = 0.09;
const NOISE_ABOVE: f64 = 0.3;
/// The variance that each trim adds, so that a drive whose costs change is followed.
const DRIFT: f64 = 0.001;
/// The largest error that one trim counts for: a drive that hung once is not slow.
const MOST_SURPRISE: f64 = 1.5;
/// The least and the largest factor.
const FACTORS: (f64, f64) = (1e-3, 1e3);
/// The variance with which learned costs of an earlier run are believed.
const REMEMBERED: f64 = 0.05;

/// The discards that a drive completed in a trim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// How many discards.
    pub discards: u64,
    /// How many bytes they discarded.
    pub bytes: Bytes,
}

/// The costs of discards on one drive, as they were learned.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LearnedCosts {
    /// The time of one command.
    pub command: Nanos,
    /// The time of each GiB beyond the commands' time.
    pub per_gib: Nanos,
    /// The trims that they were learned from.
    pub trims: u64,
}

/// The estimate of the two factors.
#[derive(Debug, Clone)]
pub(super) struct CostFilter {
    /// The logarithms of a and b.
    logs: Estimate<2>,
    trims: u64,
}

impl CostFilter {
    /// A filter that believes the profile until trims show otherwise.
    pub fn new() -> Self {
        let shared = PRIOR * CORRELATION;
        Self { logs: Estimate::new([0.0; 2], [[PRIOR, shared], [shared, PRIOR]]), trims: 0 }
    }

    /// A filter with these factors, which were learned from `trims` trims before.
    pub fn remembering(factors: [f64; 2], trims: u64) -> Self {
        let known = |factor: f64| factor.clamp(FACTORS.0, FACTORS.1).ln();
        let variance = if trims == 0 { PRIOR } else { REMEMBERED.max(PRIOR / (trims + 1) as f64) };
        let shared = variance * CORRELATION;
        Self { logs: Estimate::new(factors.map(known), [[variance, shared], [shared, variance]]), trims }
    }

    /// The factor of the commands' time.
    pub fn command(&self) -> f64 {
        self.logs.values[0].exp()
    }

    /// The factor of the bytes' time.
    pub fn bytes(&self) -> f64 {
        self.logs.values[1].exp()
    }

    /// The trims that were learned from.
    pub fn trims(&self) -> u64 {
        self.trims
    }

    /// Learns that a trim took this many seconds, for which the profile predicts `parts`: the time of its
    /// commands, and the time of its bytes.
    pub fn learn(&mut self, parts: [f64; 2], took: f64) {
        let shares = [parts[0] * self.command(), parts[1] * self.bytes()];
        let predicted = shares[0] + shares[1];
        if !(predicted > 0.0 && took > 0.0) {
            return;
        }
        let shares = shares.map(|share| share / predicted);
        let surprise = (took / predicted).ln().clamp(-MOST_SURPRISE, MOST_SURPRISE);
        let noise = if surprise < 0.0 { NOISE_BELOW } else { NOISE_ABOVE };
        self.logs.drift(DRIFT, [PRIOR; 2]);
        self.logs.correct(shares, surprise, noise);
        self.logs.keep_within([(FACTORS.0.ln(), FACTORS.1.ln()); 2]);
        self.trims += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trains a filter on trims of one command, with this many GiB each, of a drive on which a command takes
    /// `factors[0]` times as long as in the profile, and a GiB `factors[1]` times.
    fn trained(factors: [f64; 2], lengths: &[f64], trims: usize) -> CostFilter {
        let mut filter = CostFilter::new();
        for gib in lengths.iter().cycle().take(trims) {
            let parts = [0.01, 0.3 * gib];
            filter.learn(parts, parts[0] * factors[0] + parts[1] * factors[1]);
        }
        filter
    }

    #[test]
    fn commands_and_bytes_are_learned_apart() {
        for factors in [[10.0, 1.0], [1.0, 10.0], [0.1, 0.1], [0.1, 3.0], [100.0, 100.0]] {
            let filter = trained(factors, &[0.001, 0.02, 0.1, 0.5], 100);
            let found = [filter.command() / factors[0], filter.bytes() / factors[1]];
            assert!(found.iter().all(|ratio| (0.8..1.25).contains(ratio)), "{factors:?}: {found:?} off");
        }
    }

    #[test]
    fn ten_trims_correct_a_profile_that_is_wrong_by_a_factor_of_ten() {
        for factor in [0.1, 10.0] {
            let filter = trained([factor; 2], &[0.02], 10);
            let ratio = (0.01 * filter.command() + 0.006 * filter.bytes()) / (0.016 * factor);
            assert!((0.85..1.15).contains(&ratio), "{factor}: {ratio}");
        }
    }

    #[test]
    fn long_trims_alone_correct_the_commands_too() {
        for factor in [0.1, 10.0] {
            let filter = trained([factor; 2], &[0.5], 10);
            let ratio = filter.command() / factor;
            assert!((0.75..1.33).contains(&ratio), "{factor}: {ratio}");
        }
    }

    #[test]
    fn waits_for_others_commands_are_not_taken_for_costs() {
        let mut filter = CostFilter::new();
        // Two trims in three wait for 1 to 20 times as long as they take themselves.
        for waits in [0.0, 5.0, 1.0, 0.0, 20.0, 3.0].iter().cycle().take(120) {
            filter.learn([0.01, 0.006], 0.016 * (1.0 + waits));
        }
        let ratio = (0.01 * filter.command() + 0.006 * filter.bytes()) / 0.016;
        // In the mean, they take 5.8 times as long.
        assert!((0.9..2.0).contains(&ratio), "{ratio}");
    }

    #[test]
    fn trim_of_a_drive_that_hung_changes_little() {
        let mut filter = trained([1.0; 2], &[0.02], 50);
        filter.learn([0.01, 0.006], 30.0);
        assert!(filter.command() < 1.3, "{}", filter.command());
    }

    #[test]
    fn remembered_costs_need_no_trims_and_can_still_be_corrected() {
        let mut filter = CostFilter::remembering([5.0, 0.2], 40);
        assert!((filter.command() - 5.0).abs() < 1e-9 && (filter.bytes() - 0.2).abs() < 1e-9);
        for _ in 0..60 {
            filter.learn([0.01, 0.0], 0.01);
        }
        assert!((0.9..1.1).contains(&filter.command()), "{}", filter.command());
    }
}
