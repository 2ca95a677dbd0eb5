//! Decides which differences between two figures count.

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
    /// Whether the reads of others can be told apart: not where they were sampled once, on a machine
    /// that does other things.
    pub tells_reads: bool,
}

impl Noise {
    /// In virtual time a run repeats, but another build of trimtab takes other places in the guest's memory,
    /// which moved waits by up to 4.5 %.
    const VIRTUAL: f64 = 0.05;
    /// On a real clock with several runs: as far as medians are promised to repeat.
    const REPEATED: f64 = 0.05;
    /// On a real clock with one run of a policy, where nothing shows what its figures do when repeated.
    const SINGLE: f64 = 0.1;
    /// A guest's timers fire this late at most.
    const VIRTUAL_RESOLUTION_S: f64 = 1e-3;
    /// How often a command is looked at, to see whether it sleeps: so much is uncertain at both ends of a sleep.
    const SLEEP_RESOLUTION_S: f64 = 0.1;
    /// How late a thread of a busy machine wakes, in wall time.
    const REAL_RESOLUTION_S: f64 = 1e-2;

    /// So many erases more or less are no difference: a drive has half a dozen blocks open or in
    /// reserve, and how far it got with them at the end is chance.
    const HANDFUL: f64 = 10.0;
    /// From this many times another's p99, and this many seconds more, reads are much slower.
    const MUCH_P99: (f64, f64) = (2.0, 1e-3);
    /// The same for the longest read of a run, which is a single sample.
    const MUCH_LONGEST: (f64, f64) = (3.0, 1e-2);

    /// The noise by `clock` where a policy has as few as `runs` runs, and where policies that did
    /// nothing, as `none`, still waited times that lie `repeated` apart as parts of the larger. A command that
    /// `sleeps` waits for times that are known less exactly.
    pub fn of(clock: &Clock, runs: usize, repeated: f64, sleeps: bool) -> Self {
        let tells_reads = runs > 1 || matches!(clock, Clock::Virtual { .. });
        let (part, resolution_s) = match clock {
            Clock::Virtual { .. } => (Self::VIRTUAL, Self::VIRTUAL_RESOLUTION_S),
            Clock::Real { .. } => {
                let part = if runs > 1 { Self::REPEATED } else { Self::SINGLE };
                (part, Self::REAL_RESOLUTION_S * speed_of(clock))
            }
        };
        let of_sleeps = if sleeps { Self::SLEEP_RESOLUTION_S * speed_of(clock) } else { 0.0 };
        Self { part: part.max(repeated), resolution_s: resolution_s.max(of_sleeps), tells_reads }
    }

    /// Whether two figures differ by more than their runs do among themselves, by more than
    /// [`part`](Self::part), and by more than `least`.
    pub fn differs(&self, a: Spread, b: Spread, least: f64) -> bool {
        are_apart(a, b) && self.medians_differ(a, b, least)
    }

    /// Whether two times would differ if their runs did not overlap.
    pub fn overlaps(&self, a: Spread, b: Spread) -> bool {
        !are_apart(a, b) && self.medians_differ(a, b, self.resolution_s)
    }

    fn medians_differ(&self, a: Spread, b: Spread, least: f64) -> bool {
        let difference = (a.median - b.median).abs();
        difference > least && difference > self.part * a.median.max(b.median)
    }

    /// Whether `a` is less than `b`, and they differ.
    pub fn is_less(&self, a: Spread, b: Spread, least: f64) -> bool {
        a.median < b.median && self.differs(a, b, least)
    }

    /// Whether the time `a` is longer than `b`.
    pub fn takes_longer(&self, a: Spread, b: Spread) -> bool {
        self.is_less(b, a, self.resolution_s)
    }

    /// Whether `a` is more erases than `b`.
    pub fn has_more_erases(&self, a: Spread, b: Spread) -> bool {
        self.is_less(b, a, Self::HANDFUL)
    }

    /// Whether the p99 of reads `a` is much longer than `b`.
    pub fn p99_is_much_longer(&self, a: Spread, b: Spread) -> bool {
        self.is_much_longer(a, b, Self::MUCH_P99)
    }

    /// Whether the longest read `a` is much longer than `b`.
    pub fn longest_is_much_longer(&self, a: Spread, b: Spread) -> bool {
        self.is_much_longer(a, b, Self::MUCH_LONGEST)
    }

    fn is_much_longer(&self, a: Spread, b: Spread, (factor, more_s): (f64, f64)) -> bool {
        let much = a.median >= factor * b.median && a.median - b.median >= more_s;
        self.tells_reads && a.min > b.max && much
    }

    /// `a` in multiples of `b`; none where either is too short for the clock.
    pub fn ratio(&self, a: Spread, b: Spread) -> Option<f64> {
        let long_enough = |time: Spread| time.median >= 10.0 * self.resolution_s;
        (long_enough(a) && long_enough(b)).then(|| a.median / b.median)
    }
}

/// Whether all runs of one are below all of the other.
fn are_apart(a: Spread, b: Spread) -> bool {
    a.min > b.max || b.min > a.max
}

/// Drive seconds per second of the clock.
fn speed_of(clock: &Clock) -> f64 {
    match clock {
        Clock::Real { speed } if speed.is_normal() => speed.clamp(1.0, 1e3),
        Clock::Real { .. } | Clock::Virtual { .. } => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use trimtab_core::document::Engine;

    use super::*;

    fn spread(samples: &[f64]) -> Spread {
        Spread::of(samples.iter().copied()).unwrap()
    }

    #[test]
    fn a_clock_and_its_runs_decide_what_is_equal() {
        let guest = Clock::Virtual { kernel: "6.12".to_owned(), engine: Engine::Qemu };
        let wall = Clock::Real { speed: 4.0 };
        for (clock, runs, differ) in
            [(&guest, 1, [false, false, true]), (&wall, 3, [false, false, true]), (&wall, 1, [false; 3])]
        {
            let noise = Noise::of(clock, runs, 0.0, false);
            let found = [10.1, 10.4, 10.9].map(|b| noise.takes_longer(spread(&[b]), spread(&[10.0])));
            assert_eq!(found, differ, "{clock:?}, {runs} runs");
        }
        assert!(
            !Noise::of(&guest, 1, 0.1, false).takes_longer(spread(&[10.9]), spread(&[10.0])),
            "repeats differ"
        );
        assert!(
            !Noise::of(&guest, 3, 0.0, false)
                .takes_longer(spread(&[10.0, 11.0, 11.0]), spread(&[9.0, 9.0, 10.0]))
        );
        let noise = Noise::of(&wall, 3, 0.0, false);
        let overlaps = |b: &[f64]| noise.overlaps(spread(&[9.0, 10.0, 11.0]), spread(b));
        assert_eq!(
            [overlaps(&[4.0, 5.0, 9.5]), overlaps(&[4.0, 5.0, 6.0]), overlaps(&[9.0, 10.1, 12.0])],
            [true, false, false],
            "one that is shorter in the median, one that is shorter, and one that is as long"
        );
    }

    #[test]
    fn short_times_have_no_ratio() {
        let noise = Noise::of(&Clock::Real { speed: 4.0 }, 3, 0.0, false);
        assert_eq!(noise.ratio(spread(&[0.004]), spread(&[10.0])), None);
        assert_eq!(noise.ratio(spread(&[10.0]), spread(&[0.0])), None);
        assert_eq!(noise.ratio(spread(&[5.0]), spread(&[10.0])), Some(0.5));
        assert!(!noise.takes_longer(spread(&[0.03]), spread(&[0.004])), "below the resolution");
    }

    #[test]
    fn sleeps_of_a_command_are_known_to_a_tenth_of_a_second() {
        let noise =
            Noise::of(&Clock::Virtual { kernel: "6.12".to_owned(), engine: Engine::Qemu }, 1, 0.0, true);
        assert!(!noise.takes_longer(spread(&[0.10]), spread(&[0.05])));
        assert_eq!(noise.ratio(spread(&[0.10]), spread(&[0.05])), None);
        assert!(noise.takes_longer(spread(&[2.2]), spread(&[2.0])));
        assert_eq!(noise.ratio(spread(&[2.0]), spread(&[1.0])), Some(2.0));
    }

    #[test]
    fn reads_are_only_judged_where_they_repeat() {
        let slow = |noise: Noise, a: &[f64]| noise.p99_is_much_longer(spread(a), spread(&[0.01]));
        let guest =
            Noise::of(&Clock::Virtual { kernel: "6.12".to_owned(), engine: Engine::Qemu }, 1, 0.0, false);
        assert_eq!([0.019, 0.021].map(|p99| slow(guest, &[p99])), [false, true]);
        assert!(!guest.longest_is_much_longer(spread(&[0.021]), spread(&[0.01])), "a single sample");
        assert!(guest.longest_is_much_longer(spread(&[0.031]), spread(&[0.01])));
        let wall = |runs| Noise::of(&Clock::Real { speed: 1.0 }, runs, 0.0, false);
        assert!(!slow(wall(1), &[0.5]) && slow(wall(2), &[0.5, 0.6]) && !slow(wall(2), &[0.01, 0.6]));
    }
}
