//! Which differences between two figures count.

use serde::Serialize;
use trimtab_core::document::Clock;

use crate::spread::Spread;

/// The noise of the figures of one situation: what differs by less is taken for equal.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Noise {
    /// Figures closer than this part of the larger are equal.
    pub part: f64,
    /// The clock's resolution, in seconds of drive time: times closer than this are equal, and
    /// ratios are only given of times ten times as long.
    pub resolution_s: f64,
}

impl Noise {
    /// In virtual time a run repeats exactly, but is one sample of many possible ones.
    const VIRTUAL: f64 = 0.02;
    /// On a real clock with several runs: as far as medians are promised to repeat.
    const REPEATED: f64 = 0.05;
    /// On a real clock with one run of a policy, where nothing shows what its figures do when repeated.
    const SINGLE: f64 = 0.1;
    /// A guest's timers fire this late at most.
    const VIRTUAL_RESOLUTION_S: f64 = 1e-3;
    /// How late a thread of a busy machine wakes, in wall time.
    const REAL_RESOLUTION_S: f64 = 1e-2;

    /// The noise by `clock` where a policy has as few as `runs` runs, and where policies that did
    /// nothing, as `none`, still waited times that lie `repeated` apart as parts of the larger.
    pub fn of(clock: &Clock, runs: usize, repeated: f64) -> Self {
        let (part, resolution_s) = match clock {
            Clock::Virtual { .. } => (Self::VIRTUAL, Self::VIRTUAL_RESOLUTION_S),
            Clock::Real { speed } => {
                let part = if runs > 1 { Self::REPEATED } else { Self::SINGLE };
                (part, Self::REAL_RESOLUTION_S * if speed.is_normal() { speed.clamp(1.0, 1e3) } else { 1.0 })
            }
        };
        Self { part: part.max(repeated), resolution_s }
    }

    /// Whether two figures differ by more than their runs do among themselves, by more than
    /// [`part`](Self::part), and by more than `least`.
    pub fn differs(&self, a: Spread, b: Spread, least: f64) -> bool {
        let apart = a.min > b.max || b.min > a.max;
        let difference = (a.median - b.median).abs();
        apart && difference > least && difference > self.part * a.median.max(b.median)
    }

    /// Whether two times differ.
    pub fn times_differ(&self, a: Spread, b: Spread) -> bool {
        self.differs(a, b, self.resolution_s)
    }

    /// `a` in multiples of `b`; none where either is too short for the clock.
    pub fn ratio(&self, a: Spread, b: Spread) -> Option<f64> {
        let long_enough = |time: Spread| time.median >= 10.0 * self.resolution_s;
        (long_enough(a) && long_enough(b)).then(|| a.median / b.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(samples: &[f64]) -> Spread {
        Spread::of(samples.iter().copied()).unwrap()
    }

    #[test]
    fn a_clock_and_its_runs_decide_what_is_equal() {
        let guest = Clock::Virtual { kernel: "6.12".to_owned() };
        let wall = Clock::Real { speed: 4.0 };
        for (clock, runs, differ) in
            [(&guest, 1, [false, true, true]), (&wall, 3, [false, false, true]), (&wall, 1, [false; 3])]
        {
            let noise = Noise::of(clock, runs, 0.0);
            let found = [10.1, 10.4, 10.9].map(|b| noise.times_differ(spread(&[10.0]), spread(&[b])));
            assert_eq!(found, differ, "{clock:?}, {runs} runs");
        }
        assert!(!Noise::of(&guest, 1, 0.1).times_differ(spread(&[10.0]), spread(&[10.9])), "repeats differ");
        assert!(
            !Noise::of(&guest, 3, 0.0).times_differ(spread(&[9.0, 9.0, 10.0]), spread(&[10.0, 11.0, 11.0]))
        );
    }

    #[test]
    fn short_times_have_no_ratio() {
        let noise = Noise::of(&Clock::Real { speed: 4.0 }, 3, 0.0);
        assert_eq!(noise.ratio(spread(&[0.004]), spread(&[10.0])), None);
        assert_eq!(noise.ratio(spread(&[10.0]), spread(&[0.0])), None);
        assert_eq!(noise.ratio(spread(&[5.0]), spread(&[10.0])), Some(0.5));
        assert!(!noise.times_differ(spread(&[0.004]), spread(&[0.03])), "below the resolution");
    }
}
