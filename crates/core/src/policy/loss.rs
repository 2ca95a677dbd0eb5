//! The share of the computed loss of writes that is real, learned from the time for which a drive is busy.
//!
//! While extents are pending, writes take longer: that is their loss. The formulas of [`Worth`](super::Worth) compute
//! it for writes that are spread evenly over the drive. A host that overwrites whole erase blocks loses nothing, and
//! copies cost nothing that a drive makes while nobody waits for it. So the loss is also measured. While nothing is
//! trimmed, a drive is busy for
//!
//! ```text
//! a * the time of its commands one by one + b * the time of their bytes + g * the computed loss
//! ```
//!
//! A Kalman filter estimates a, b and g. As long as the same extents are pending, the computed loss grows with the
//! bytes, so that g can hardly be told from b. Trims change the computed loss of each byte, and show whether the
//! drive gets faster.

use super::flash::FlashTime;
use super::kalman::Estimate;

/// The factors before the first measurement, and their variance. Where requests are large or many at a time, their
/// number costs nothing; where one small request follows the other, each takes as long as a program does.
const PRIOR: [f64; 3] = [0.5, 1.0, 1.0];
const VARIANCE: [f64; 3] = [1.0, 0.09, 1.0];
/// The variance that each second of busy time adds.
const DRIFT: f64 = 0.01;
/// The busy time in seconds that one measurement has at least. Requests take time before they complete, which is when
/// their bytes count, so that a shorter time may hold the work of one span and the bytes of another.
const LEAST_BUSY: f64 = 0.2;
/// The deviation of a measurement, as a part of it, and the clock's deviation, in seconds.
const NOISE: f64 = 0.1;
const CLOCK: f64 = 0.005;
/// The largest error that one measurement counts for, in deviations.
const MOST_SURPRISE: f64 = 3.0;
/// The least and the largest factors.
const FACTORS: [(f64, f64); 3] = [(0.0, 10.0), (0.3, 3.0), (0.0, 2.0)];

/// The busy time of a drive in a span.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measurement {
    /// The seconds of commands, of bytes, and of the computed loss by the profile.
    pub parts: [f64; 3],
    /// The seconds for which the drive was busy.
    pub busy: f64,
    /// Whether little was read, so that these seconds are those of writes.
    pub mostly_writes: bool,
}

/// The sum of no spans.
const NOTHING: Measurement = Measurement { parts: [0.0; 3], busy: 0.0, mostly_writes: true };

/// The estimate of the three factors.
#[derive(Debug, Clone)]
pub(super) struct LossFilter {
    factors: Estimate<3>,
    /// The sum of the spans since the factors were corrected.
    sum: Measurement,
    flash: FlashTime,
}

impl LossFilter {
    /// A filter that believes the formulas until measurements show otherwise.
    pub fn new() -> Self {
        let covariance = std::array::from_fn(|row| {
            std::array::from_fn(|column| if row == column { VARIANCE[row] } else { 0.0 })
        });
        Self { factors: Estimate::new(PRIOR, covariance), sum: NOTHING, flash: FlashTime::default() }
    }

    /// Learns from a span in which nothing was discarded.
    pub fn learn(&mut self, span: &Measurement) {
        self.sum.parts.iter_mut().zip(span.parts).for_each(|(sum, part)| *sum += part);
        self.sum.busy += span.busy;
        self.sum.mostly_writes &= span.mostly_writes;
        if self.sum.busy < LEAST_BUSY {
            return;
        }
        let Measurement { parts, busy, mostly_writes } = std::mem::replace(&mut self.sum, NOTHING);
        if mostly_writes {
            self.flash.learn(parts, busy);
        }
        let parts = parts.map(|part| part * self.flash.factor());
        let expected = self.factors.sum(parts);
        self.factors.drift(DRIFT * busy, VARIANCE);
        let noise = (NOISE * busy.max(expected) + CLOCK).powi(2);
        let most = MOST_SURPRISE * (self.factors.variance(parts) + noise).sqrt();
        self.factors.correct(parts, (busy - expected).clamp(-most, most), noise);
        self.factors.keep_within(FACTORS);
    }

    /// How many times as long as by the profile the flash takes.
    pub fn flash_factor(&self) -> f64 {
        self.flash.factor()
    }

    /// The share of the computed loss that is real, from 0 to 1.
    pub fn real_share(&self) -> f64 {
        let [_, _, share] = self.factors.values;
        share.min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learn(filter: &mut LossFilter, parts: [f64; 3], busy: f64) {
        filter.learn(&Measurement { parts, busy, mostly_writes: true });
    }

    /// A filter after this many seconds in which the host writes without a pause, in spans of 200 ms. The computed loss
    /// of a byte falls as extents are trimmed, and grows as others are freed. This share of it is real.
    fn after(seconds: f64, share: f64) -> LossFilter {
        let mut filter = LossFilter::new();
        continue_with(&mut filter, seconds, share);
        filter
    }

    fn continue_with(filter: &mut LossFilter, seconds: f64, share: f64) {
        for span in 0..(seconds / 0.2) as usize {
            let loss_of_bytes = [1.5, 1.2, 0.9, 0.6, 0.3][span % 5];
            let commands = [0.1, 0.3][span / 3 % 2];
            let parts = [0.1 * commands, 1.1, share * loss_of_bytes];
            let bytes = 0.2 / parts.iter().sum::<f64>();
            learn(filter, [commands, 1.0, loss_of_bytes].map(|part| part * bytes), 0.2);
        }
    }

    #[test]
    fn formulas_are_believed_while_they_explain_the_busy_time() {
        let mut filter = LossFilter::new();
        assert_eq!(filter.real_share(), 1.0);
        (0..100).for_each(|_| learn(&mut filter, [0.1, 0.2, 0.3], 0.55));
        assert!(filter.real_share() > 0.9, "{}", filter.real_share());
    }

    #[test]
    fn looks_that_are_shorter_than_requests_find_the_same_share() {
        // Looks of 10 ms beside requests of 40 ms, whose bytes count when they end.
        let mut filter = LossFilter::new();
        for request in 0..1000 {
            let loss = [0.015, 0.01, 0.005][request % 3];
            let all = 0.04 / (0.025 + 0.5 * loss);
            let done = [0.0, 0.025, loss].map(|part| part * all);
            [[0.0; 3], [0.0; 3], [0.0; 3], done]
                .into_iter()
                .for_each(|parts| learn(&mut filter, parts, 0.01));
        }
        assert!((filter.real_share() - 0.5).abs() < 0.15, "{}", filter.real_share());
    }

    /// The share and the flash's factor right after a wrong reading, and some seconds later.
    fn after_wrong_reading(share: f64, parts: [f64; 3], busy: f64) -> [(f64, f64); 2] {
        let mut filter = after(30.0, share);
        learn(&mut filter, parts, busy);
        let at_once = (filter.real_share(), filter.flash_factor());
        continue_with(&mut filter, 10.0, share);
        [at_once, (filter.real_share(), filter.flash_factor())]
    }

    #[test]
    fn one_wrong_reading_changes_little_and_not_for_long() {
        for share in [0.0, 1.0] {
            for (parts, busy) in [
                ([0.0, 20.0, 20.0], 0.5),
                ([0.0, 0.1, 0.001], 0.5),
                ([0.0, 0.0, 10.0], 0.5),
                ([0.0, 200.0, 200.0], 0.5),
                ([0.1, 0.1, 0.1], 60.0),
                ([0.0; 3], 60.0),
            ] {
                let [at_once, later] = after_wrong_reading(share, parts, busy);
                let wrong = format!("{share}: {at_once:?}, {later:?} after {parts:?} in {busy} s");
                assert!((at_once.0 - share).abs() < 0.5 && (later.0 - share).abs() < 0.25, "{wrong}");
                assert_eq!((at_once.1, later.1), (1.0, 1.0), "{wrong}");
            }
        }
    }

    #[test]
    fn drive_that_loses_less_is_noticed_within_seconds() {
        for share in [0.0, 0.3, 1.0] {
            let [early, late] = [4.0, 30.0].map(|seconds| after(seconds, share).real_share());
            assert!((early - share).abs() < 0.25, "{early} for {share}");
            assert!((late - share).abs() < 0.1, "{late} for {share}");
        }
    }

    #[test]
    fn drive_that_begins_to_copy_is_noticed_too() {
        let mut filter = after(30.0, 0.0);
        (0..100).for_each(|span| {
            let loss = [0.3, 0.2, 0.1][span % 3];
            learn(&mut filter, [0.0, 0.2, loss], 0.2 + loss);
        });
        assert!(filter.real_share() > 0.8, "{}", filter.real_share());
    }

    #[test]
    fn no_more_than_the_computed_loss_counts() {
        // One that has to learn first that there is a loss.
        let mut filter = after(30.0, 0.0);
        (0..100).for_each(|span| {
            let loss = [0.3, 0.2, 0.1][span % 3];
            learn(&mut filter, [0.0, 0.2, loss], 0.2 + 3.0 * loss);
        });
        assert_eq!(filter.real_share(), 1.0);
    }
}
