//! How fast the flash of a drive is, against its profile.

/// The part of what was learned that each second of busy time takes away, so that a drive that changes is followed.
const FORGOTTEN: f64 = 0.02;

/// Two bounds of the factor by which the flash takes longer than by the profile.
///
/// A drive is busy for no longer than all its commands, all bytes and all computed loss take one by one, and for no less
/// than its bytes take with all dies at work. Commands that are under way together, and loss that is not real, lie
/// between the two. So the busy time shows nothing while it is within these bounds, and the profile is believed. Outside,
/// the profile is wrong by the distance at least.
#[derive(Debug, Clone, Default)]
pub(super) struct FlashTime {
    /// The seconds of commands, bytes and computed loss by the profile, those of bytes alone, and the busy seconds.
    all: f64,
    bytes: f64,
    busy: f64,
}

impl FlashTime {
    /// Learns that a drive was busy for so many seconds. `parts` are the seconds of commands, of bytes, and of the
    /// computed loss by the profile.
    pub fn learn(&mut self, parts: [f64; 3], busy: f64) {
        let [_, bytes, _] = parts;
        let kept = (-FORGOTTEN * busy).exp();
        self.all = self.all * kept + parts.iter().sum::<f64>();
        self.bytes = self.bytes * kept + bytes;
        self.busy = self.busy * kept + busy;
    }

    /// How many times as long as by the profile the flash takes; 1 as long as the profile may be right.
    pub fn factor(&self) -> f64 {
        if self.bytes <= 0.0 || self.busy <= 0.0 {
            return 1.0;
        }
        (self.busy / self.all).max(1.0).min(self.busy / self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The factor after writes on a drive that takes `factor` times as long as by the profile, of which commands cost
    /// this share of what they take one by one, and this share of the computed loss is real.
    fn found(factor: f64, at_once: f64, real: f64) -> f64 {
        let mut flash = FlashTime::default();
        for span in 0..100 {
            let parts = [[0.1, 0.02, 0.1], [0.02, 0.1, 0.05]][span % 2];
            let [commands, bytes, loss] = parts;
            flash.learn(parts, factor * (at_once * commands + bytes + real * loss));
        }
        flash.factor()
    }

    #[test]
    fn profile_that_may_be_right_is_believed() {
        for (at_once, real) in [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)] {
            assert!((found(1.0, at_once, real) - 1.0).abs() < 1e-9, "{at_once} {real}");
        }
        assert_eq!(FlashTime::default().factor(), 1.0);
    }

    #[test]
    fn profile_of_another_kind_is_corrected_as_far_as_it_must_be_wrong() {
        for factor in [0.01, 100.0] {
            for (at_once, real) in [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)] {
                let found = found(factor, at_once, real) / factor;
                assert!((0.2..5.0).contains(&found), "{found} of {factor} with {at_once} and {real}");
            }
        }
    }

    #[test]
    fn drive_that_becomes_slower_is_followed() {
        let mut flash = FlashTime::default();
        (0..1000).for_each(|_| flash.learn([0.1, 0.1, 0.0], 0.2));
        assert_eq!(flash.factor(), 1.0);
        (0..1000).for_each(|_| flash.learn([0.1, 0.1, 0.0], 2.0));
        assert!((9.0..10.1).contains(&flash.factor()), "{}", flash.factor());
    }
}
