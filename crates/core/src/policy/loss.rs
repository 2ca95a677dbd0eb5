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
/// The deviation of a measurement, as a part of it, and that of the clock, in seconds.
const NOISE: f64 = 0.1;
const CLOCK: f64 = 0.005;
/// The least and the largest factors.
const FACTORS: [(f64, f64); 3] = [(0.0, 10.0), (0.3, 3.0), (0.0, 2.0)];

/// The estimate of the three factors.
#[derive(Debug, Clone)]
pub(super) struct LossFilter {
    factors: Estimate<3>,
    /// The seconds of commands, of bytes and of the computed loss since the last measurement, and the busy seconds.
    parts: [f64; 3],
    busy: f64,
    flash: FlashTime,
}

impl LossFilter {
    /// A filter that believes the formulas until measurements show otherwise.
    pub fn new() -> Self {
        let covariance = std::array::from_fn(|row| {
            std::array::from_fn(|column| if row == column { VARIANCE[row] } else { 0.0 })
        });
        Self {
            factors: Estimate::new(PRIOR, covariance),
            parts: [0.0; 3],
            busy: 0.0,
            flash: FlashTime::default(),
        }
    }

    /// Learns that a drive was busy for so many seconds in which nothing was trimmed. `parts` are the seconds of
    /// commands, of bytes, and of the computed loss by the profile.
    pub fn learn(&mut self, parts: [f64; 3], busy: f64) {
        self.parts.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
        self.busy += busy;
        if self.busy < LEAST_BUSY {
            return;
        }
        let (parts, busy) = (std::mem::take(&mut self.parts), std::mem::take(&mut self.busy));
        self.flash.learn(parts, busy);
        let parts = parts.map(|part| part * self.flash.factor());
        let expected = self.factors.sum(parts);
        self.factors.drift(DRIFT * busy, VARIANCE);
        self.factors.correct(parts, busy - expected, (NOISE * busy.max(expected) + CLOCK).powi(2));
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

    /// A filter after so many seconds in which the host writes without a pause, in spans of 200 ms. The computed loss
    /// of a byte falls as extents are trimmed, and grows as others are freed. This share of it is real.
    fn after(seconds: f64, share: f64) -> LossFilter {
        let mut filter = LossFilter::new();
        for span in 0..(seconds / 0.2) as usize {
            let loss_of_bytes = [1.5, 1.2, 0.9, 0.6, 0.3][span % 5];
            let commands = [0.1, 0.3][span / 3 % 2];
            let parts = [0.1 * commands, 1.1, share * loss_of_bytes];
            let bytes = 0.2 / parts.iter().sum::<f64>();
            filter.learn([commands, 1.0, loss_of_bytes].map(|part| part * bytes), 0.2);
        }
        filter
    }

    #[test]
    fn formulas_are_believed_while_nothing_is_lost() {
        let mut filter = LossFilter::new();
        (0..100).for_each(|_| filter.learn([0.1, 0.1, 0.0], 0.5));
        assert_eq!(filter.real_share(), 1.0);
    }

    #[test]
    fn looks_that_are_shorter_than_requests_find_the_same_share() {
        // Looks of 10 ms beside requests of 40 ms, whose bytes count when they end.
        let mut filter = LossFilter::new();
        for request in 0..1000 {
            let loss = [0.015, 0.01, 0.005][request % 3];
            let all = 0.04 / (0.025 + 0.5 * loss);
            let done = [0.0, 0.025, loss].map(|part| part * all);
            [[0.0; 3], [0.0; 3], [0.0; 3], done].into_iter().for_each(|parts| filter.learn(parts, 0.01));
        }
        assert!((filter.real_share() - 0.5).abs() < 0.15, "{}", filter.real_share());
    }

    #[test]
    fn one_wrong_reading_changes_the_share_little() {
        for wrong in [[0.0, 20.0, 20.0], [0.0, 0.1, 0.001], [0.0, 0.0, 10.0]] {
            let mut filter = after(30.0, 1.0);
            filter.learn(wrong, 0.5);
            assert!(filter.real_share() > 0.5, "{} after {wrong:?}", filter.real_share());
        }
        let mut filter = after(30.0, 0.0);
        filter.learn([0.1, 0.1, 0.1], 60.0);
        assert!(filter.real_share() < 0.4, "{}", filter.real_share());
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
            filter.learn([0.0, 0.2, loss], 0.2 + loss);
        });
        assert!(filter.real_share() > 0.8, "{}", filter.real_share());
    }

    #[test]
    fn no_more_than_the_computed_loss_counts() {
        // One that has to learn first that there is a loss.
        let mut filter = after(30.0, 0.0);
        (0..100).for_each(|span| {
            let loss = [0.3, 0.2, 0.1][span % 3];
            filter.learn([0.0, 0.2, loss], 0.2 + 3.0 * loss);
        });
        assert_eq!(filter.real_share(), 1.0);
    }
}
