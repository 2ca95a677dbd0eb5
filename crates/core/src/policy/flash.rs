//! How fast the flash of a drive is, against its profile.

/// The part of what was learned that each second of busy time takes away, so that a drive that changes is followed.
const FORGOTTEN: f64 = 0.02;
/// The most seconds that one reading counts for: a drive that hung once is not slow.
const MOST_COUNTED: f64 = 1.0;
/// Flushes, a slow link and a kernel that counts whole ticks of its timer make the busy time longer, and a cache that
/// takes bursts makes it shorter, by up to this factor.
const LEEWAY: f64 = 3.0;
/// The least share of a busy time that its writes explain, if the flash is not to blame.
const LEAST_WORK: f64 = 0.02;
/// The largest factor.
const MOST: f64 = 15.0;

/// Learns whether the flash is faster or slower than its profile says.
///
/// Writes keep a drive busy for at most as long as all commands, all bytes and all computed loss take one by one, and for
/// at least as long as the bytes take with all dies at work, except for what [`LEEWAY`] allows. Within these bounds, the
/// profile is believed. Outside, the profile is wrong by the distance at least.
#[derive(Debug, Clone, Default)]
pub(super) struct FlashTime {
    /// The seconds by the profile that writes take at most and at least, and for which the drive was busy.
    at_most: f64,
    at_least: f64,
    busy: f64,
}

impl FlashTime {
    /// Learns that a drive was busy for this many seconds with writes. `parts` are the seconds of commands, of bytes, and
    /// of the computed loss by the profile.
    pub fn learn(&mut self, parts: [f64; 3], busy: f64) {
        let ([_, at_least, _], at_most) = (parts, parts.iter().sum::<f64>());
        // Somebody may have discarded for longer than between two looks.
        if at_most < busy * LEAST_WORK {
            return;
        }
        let weight = MOST_COUNTED / busy.max(at_most).max(MOST_COUNTED);
        let kept = (-FORGOTTEN * busy * weight).exp();
        for (sum, new) in
            [(&mut self.at_most, at_most), (&mut self.at_least, at_least), (&mut self.busy, busy)]
        {
            *sum = *sum * kept + new * weight;
        }
    }

    /// How many times as long as by the profile the flash takes; 1 as long as the profile may be right.
    pub fn factor(&self) -> f64 {
        if self.busy <= 0.0 {
            return 1.0;
        }
        let (least, most) = (self.busy / self.at_most / LEEWAY, self.busy / self.at_least * LEEWAY);
        1.0_f64.max(least).min(most).clamp(MOST.recip(), MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPANS: [[f64; 3]; 2] = [[0.1, 0.02, 0.1], [0.02, 0.1, 0.05]];

    /// The factor after writes on a drive that takes `factor` times as long as by the profile. Commands cost
    /// this share of what they take one by one, and this share of the computed loss is real.
    fn found(factor: f64, at_once: f64, real: f64) -> f64 {
        let mut flash = FlashTime::default();
        for parts in SPANS.iter().cycle().take(100) {
            let [commands, bytes, loss] = parts;
            flash.learn(*parts, factor * (at_once * commands + bytes + real * loss));
        }
        flash.factor()
    }

    #[test]
    fn profile_that_may_be_right_is_believed() {
        for at_once in [0.0, 0.5, 1.0] {
            for real in [0.0, 0.5, 1.0] {
                // A flush or a slow link beside it, and a cache that hides some of it.
                for factor in [0.35, 1.0, 2.9] {
                    let (least, most) = (found(factor, at_once, real), found(factor.min(1.0), at_once, real));
                    assert!(least >= 1.0 - 1e-9 && most <= 1.0 + 1e-9, "{at_once} {real} {factor}");
                }
            }
        }
        assert_eq!(FlashTime::default().factor(), 1.0);
    }

    #[test]
    fn profile_of_another_kind_is_corrected_as_far_as_it_must_be_wrong() {
        for (factor, bounds) in [(0.01, 0.01..0.2), (50.0, 2.0..50.0)] {
            for (at_once, real) in [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)] {
                let found = found(factor, at_once, real);
                assert!(bounds.contains(&found), "{found} of {factor} with {at_once} and {real}");
            }
        }
        assert_eq!(found(1e6, 1.0, 1.0), 1.0, "nothing is that slow");
    }

    #[test]
    fn drive_that_hung_once_is_not_slow() {
        let mut flash = FlashTime::default();
        (0..10).for_each(|_| flash.learn([0.1, 0.1, 0.0], 0.2));
        flash.learn([0.1, 0.1, 0.0], 100.0);
        (0..100).for_each(|_| flash.learn([0.0; 3], 1.0));
        assert_eq!(flash.factor(), 1.0);
    }

    #[test]
    fn drive_that_becomes_slower_is_followed() {
        let mut flash = FlashTime::default();
        (0..1000).for_each(|_| flash.learn([0.1, 0.1, 0.0], 0.2));
        assert_eq!(flash.factor(), 1.0);
        (0..1000).for_each(|_| flash.learn([0.1, 0.1, 0.0], 6.0));
        assert!((9.0..10.1).contains(&flash.factor()), "{}", flash.factor());
    }
}
