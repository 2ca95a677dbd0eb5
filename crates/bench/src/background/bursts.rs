//! Bursts of writes, and where they slow.

use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use trimtab_core::document::background::{Burst, BurstState, WriteRound};
use trimtab_core::stats::median;
use trimtab_core::{Bytes, Extent};

use super::super::budget::Budget;
use super::super::device_under_test::{DeviceUnderTest, pieces};
use super::super::error::BenchError;
use super::super::target::{Command, CommandKind};

/// Sequential writes, how many are in flight, and the parts of the range and the bytes that a round has at least.
const SEQUENTIAL: (Bytes, u32) = (Bytes::MIB, 8);
const SEQUENTIAL_ROUND: (u64, Bytes) = (1024, Bytes(4 << 20));

/// The same of random writes.
const RANDOM: (Bytes, u32) = (Bytes(4 << 10), 32);
const RANDOM_ROUND: (u64, Bytes) = (512, Bytes(8 << 20));

/// Writes have slowed where they take this many times as long.
const SLOWER: f64 = 1.3;

/// The part of the spread of rounds that a drop has to explain.
const EXPLAINED: f64 = 0.5;

/// The fewest rounds before and after a drop.
const FEWEST: usize = 2;

/// A burst ends after this many slow rounds in a row.
const SLOW_ROUNDS: usize = 3;

/// How often a flush without writes is timed.
const FLUSHES: usize = 5;

/// The speeds before and after writes slow, and how much was written before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Slowdown {
    /// Seconds a byte.
    fast: f64,
    slow: f64,
    pub(super) fast_bytes: f64,
}

/// When a burst ends: at the latest after this many bytes, and where it has slowed.
pub(super) struct Until {
    pub(super) bytes: Bytes,
    pub(super) drop: Option<Slowdown>,
}

/// Writes bursts to a range.
pub(super) struct Writer {
    range: Extent,
    /// The next sequential write; of random writes, none.
    next: Bytes,
    random: Option<SmallRng>,
    round: Bytes,
    /// How long a flush takes that has nothing to write.
    flush_s: f64,
}

impl Writer {
    /// Writes in sequence, from the start of the range on, again and again.
    pub(super) fn sequential(tested: &DeviceUnderTest) -> Result<Self, BenchError> {
        Self::new(tested, SEQUENTIAL.0, SEQUENTIAL_ROUND, None)
    }

    /// Writes at random.
    pub(super) fn random(tested: &DeviceUnderTest, seed: u64) -> Result<Self, BenchError> {
        Self::new(tested, RANDOM.0, RANDOM_ROUND, Some(SmallRng::seed_from_u64(seed)))
    }

    fn new(
        tested: &DeviceUnderTest,
        size: Bytes,
        (rounds, least): (u64, Bytes),
        random: Option<SmallRng>,
    ) -> Result<Self, BenchError> {
        let range = tested.range.aligned_inside(size);
        let round = Bytes((range.len().0 / rounds).max(least.0) / least.0 * least.0);
        let mut flushes = Vec::new();
        tested.flush()?;
        for _ in 0..FLUSHES {
            let begun = tested.target.now();
            tested.flush()?;
            flushes.push((tested.target.now() - begun).as_secs_f64());
        }
        let flush_s = median(&flushes).unwrap_or(0.0);
        Ok(Self { range, next: range.start, random, round: round.min(range.len()), flush_s })
    }

    /// Goes on in the middle of the range.
    pub(super) fn start_in_the_middle(&mut self) {
        self.next = self.range.start + Bytes(self.whole().0 / self.round.0 / 2 * self.round.0);
    }

    /// The bytes of a round.
    pub(super) fn round(&self) -> Bytes {
        self.round
    }

    /// The bytes of all whole rounds that the range holds.
    pub(super) fn whole(&self) -> Bytes {
        Bytes(self.range.len().0 / self.round.0 * self.round.0)
    }

    /// Pauses, then writes until the burst ends.
    pub(super) fn burst(
        &mut self,
        tested: &mut DeviceUnderTest,
        state: BurstState,
        pause: Duration,
        until: &Until,
        budget: Budget,
    ) -> Result<Burst, BenchError> {
        tested.pause(pause)?;
        let mut burst = Burst { state, pause_wall_s: pause.as_secs_f64(), rounds: Vec::new() };
        let mut written = Bytes::ZERO;
        while written + self.round <= until.bytes && !budget.is_over() {
            let round = self.write(tested, self.round)?;
            written += round.bytes;
            burst.rounds.push(round);
            if until.drop.is_some_and(|drop| drop.is_over(&burst.rounds)) {
                break;
            }
        }
        Ok(burst)
    }

    /// Writes `bytes` and flushes. The time of the flush itself does not count.
    pub(super) fn write(
        &mut self,
        tested: &mut DeviceUnderTest,
        bytes: Bytes,
    ) -> Result<WriteRound, BenchError> {
        tested.blank = false;
        let begun = tested.target.now();
        let written = match &mut self.random {
            Some(random) => {
                let (size, depth) = RANDOM;
                let places = self.range.len().0 / size.0;
                let mut place = || self.range.start + size * random.random_range(0..places);
                let extents = (0..bytes.0 / size.0).map(|_| Extent::at(place(), size));
                tested.run(depth, extents.map(write), None)?.bytes
            }
            None => {
                let (size, depth) = SEQUENTIAL;
                if self.next + bytes > self.range.end {
                    self.next = self.range.start;
                }
                let extent = Extent::at(self.next, bytes.min(self.range.len()));
                self.next = extent.end;
                tested.run(depth, pieces(extent, size).map(write), None)?.bytes
            }
        };
        tested.flush()?;
        let wall_s = ((tested.target.now() - begun).as_secs_f64() - self.flush_s).max(1e-9);
        Ok(WriteRound { bytes: written, wall_s })
    }
}

fn write(extent: Extent) -> Command {
    Command { kind: CommandKind::Write, extent }
}

/// Seconds a byte.
fn pace(round: &WriteRound) -> f64 {
    round.wall_s / round.bytes.0.max(1) as f64
}

impl Slowdown {
    pub(super) fn fast_mib_s(&self) -> f64 {
        1.0 / (self.fast * Bytes::MIB.0 as f64)
    }

    pub(super) fn slow_mib_s(&self) -> f64 {
        1.0 / (self.slow * Bytes::MIB.0 as f64)
    }

    /// Whether the last rounds were all slow.
    fn is_over(&self, rounds: &[WriteRound]) -> bool {
        let last = rounds.iter().rev().take(SLOW_ROUNDS);
        rounds.len() >= SLOW_ROUNDS && last.into_iter().all(|round| pace(round) > self.middle())
    }

    fn middle(&self) -> f64 {
        (self.fast * self.slow).sqrt()
    }

    /// The bytes of `rounds` that were written fast, up to the first slow rounds in a row. A round between the two
    /// speeds counts in part.
    pub(super) fn fast_part(&self, rounds: &[WriteRound]) -> f64 {
        let part = |round: &WriteRound| ((self.slow - pace(round)) / (self.slow - self.fast)).clamp(0.0, 1.0);
        let over = (SLOW_ROUNDS..=rounds.len()).find(|end| self.is_over(&rounds[..*end]));
        rounds[..over.unwrap_or(rounds.len())].iter().map(|round| part(round) * round.bytes.0 as f64).sum()
    }
}

/// Where the rounds slow for good; none where they don't. It is the place that splits them into two whose logarithms
/// lie closest to their own means.
pub(super) fn drop_in(rounds: &[WriteRound]) -> Option<Slowdown> {
    let logs: Vec<_> = rounds.iter().map(|round| pace(round).ln()).collect();
    let spread = |sum: f64, squares: f64, n: usize| squares - sum * sum / n as f64;
    let (sum, squares) = logs.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    let whole = spread(sum, squares, logs.len().max(1));
    let (mut left, mut left_squares) = (0.0, 0.0);
    let mut best: Option<(usize, f64)> = None;
    for (index, x) in logs.iter().enumerate() {
        left += x;
        left_squares += x * x;
        let (before, after) = (index + 1, logs.len() - index - 1);
        if before < FEWEST || after < FEWEST {
            continue;
        }
        let rest = spread(left, left_squares, before) + spread(sum - left, squares - left_squares, after);
        if best.is_none_or(|(_, least)| rest < least) {
            best = Some((before, rest));
        }
    }
    let (at, rest) = best?;
    let typical = |rounds: &[WriteRound]| median(&rounds.iter().map(pace).collect::<Vec<_>>());
    let (fast, slow) = (typical(&rounds[..at])?, typical(&rounds[at..])?);
    if slow < SLOWER * fast || rest > (1.0 - EXPLAINED) * whole {
        return None;
    }
    let drop = Slowdown { fast, slow, fast_bytes: 0.0 };
    Some(Slowdown { fast_bytes: drop.fast_part(rounds), ..drop })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(seconds: &[f64]) -> Vec<WriteRound> {
        seconds.iter().map(|wall_s| WriteRound { bytes: Bytes::MIB, wall_s: *wall_s }).collect()
    }

    #[test]
    fn drop_is_found_where_writes_slow_for_good() {
        let drop = drop_in(&rounds(&[1.0, 1.1, 0.9, 2.5, 4.0, 4.2, 3.9, 4.0, 4.1])).unwrap();
        assert_eq!((drop.fast * Bytes::MIB.0 as f64).round(), 1.0);
        assert_eq!((drop.slow * Bytes::MIB.0 as f64).round(), 4.0);
        // Three whole rounds, and half of the fourth.
        assert!((drop.fast_bytes / Bytes::MIB.0 as f64 - 3.5).abs() < 0.1, "{drop:?}");
    }

    #[test]
    fn no_drop_is_found_in_noise_or_in_single_slow_rounds() {
        assert_eq!(drop_in(&rounds(&[1.0, 1.2, 0.9, 1.1, 1.0, 1.2, 0.8, 1.1])), None);
        assert_eq!(drop_in(&rounds(&[1.0, 1.0, 9.0, 1.0, 1.0, 1.0, 9.0, 1.0, 1.0])), None);
        assert_eq!(drop_in(&rounds(&[4.0, 4.0, 4.0, 1.0, 1.0, 1.0])), None, "a drive that gets faster");
        assert_eq!(drop_in(&rounds(&[1.0, 4.0])), None);
    }
}
