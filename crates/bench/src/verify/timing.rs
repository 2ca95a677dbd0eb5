//! Judges by the times of reads, on a drive whose discarded blocks read as before.
//!
//! By content such a drive can't be told from one that ignores discards. But a block that it has
//! freed has no place on the flash any more, so reading it takes no flash. Where discarded blocks
//! read faster than their neighbours, written at the same time, the discards were honoured.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use trimtab_core::{Bytes, Extent};

use super::granularity::{Grain, UnknownGrain};
use super::stamp::Stamper;
use crate::device_under_test::{DeviceUnderTest, Flight};
use crate::error::BenchError;
use crate::target::{Command, CommandKind};

/// Reads of discarded blocks for each question, about, and as many of their neighbours.
const READS: usize = 500;
/// Discards for each question: every second stretch of an area is discarded.
const DISCARDS: u64 = 16;
/// The longest discard tried.
const LONGEST: Bytes = Bytes::MIB;
/// Some of the discarded blocks read faster where chance puts the ranks so far apart only once in
/// 30 000: a standard score ...
const SCORE: f64 = 4.0;
/// ... and most do where their median is at most this part of their neighbours'. Higher quantiles
/// tell more of a busy machine than of the drive.
const RATIO: f64 = 0.93;

/// How many of the discarded blocks read faster than those between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Faster {
    None,
    Some,
    Most,
}

/// Returns the grain by which discards in `range` are honoured, by the times of reads; none where
/// the times don't show that discards do anything at all.
pub(super) fn find(stamper: &mut Stamper, range: Extent, seed: u64) -> Result<Option<Grain>, BenchError> {
    let block = stamper.block();
    let room = LONGEST.0.min(range.len().0 / (2 * DISCARDS + 1)) / block.0;
    let Some(steps) = room.checked_ilog2() else { return Ok(None) };
    let random = SmallRng::seed_from_u64(seed);
    let mut watch = Watch { stamper, range, random };
    let whole = |step: u32| Extent::at(Bytes::ZERO, Bytes(block.0 << step));
    if watch.compare(whole(steps), false)? != Faster::None
        || watch.compare(whole(steps), true)? != Faster::Most
    {
        return Ok(None);
    }
    let (mut too_short, mut enough) = (0, steps);
    while too_short < enough {
        let step = u32::midpoint(too_short, enough);
        match watch.compare(whole(step), true)? {
            Faster::Most => enough = step,
            Faster::None | Faster::Some => too_short = step + 1,
        }
    }
    let grain = whole(enough).len();
    let parts = [Extent::new(Bytes::ZERO, grain - block), Extent::new(block, grain)];
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        if watch.compare(part, true)? != Faster::None {
            return Ok(Some(Err(UnknownGrain::ShorterThan { longest: grain })));
        }
    }
    Ok(Some(Ok((grain, Bytes::ZERO))))
}

struct Watch<'a, 'b> {
    stamper: &'a mut Stamper<'b>,
    range: Extent,
    random: SmallRng,
}

impl Watch<'_, '_> {
    /// How many blocks at `part` of every second stretch read faster than those between them, all
    /// of them just written, and where `discard` says so, these then discarded.
    fn compare(&mut self, part: Extent, discard: bool) -> Result<Faster, BenchError> {
        let stretch = Bytes(part.end.0.next_power_of_two());
        let start = Bytes(self.range.start.0.next_multiple_of(stretch.0));
        self.stamper.write(Extent::at(start, Bytes(2 * DISCARDS * stretch.0)))?;
        let stretches = (0..DISCARDS).map(|index| start + Bytes(2 * index * stretch.0));
        if discard {
            for at in stretches.clone() {
                self.stamper.discard(Extent::at(at + part.start, part.len()))?;
            }
        }
        let stretches: Vec<_> = stretches.collect();
        let (target, interrupt) = (self.stamper.target(), self.stamper.interrupt());
        let mut flight = Flight::new(&DeviceUnderTest::new(target, self.range, interrupt), 1)?;
        let block = target.logical_block();
        let mut samples = [Vec::new(), Vec::new()];
        for _ in 0..2 * READS {
            // Drawn, not in turns: what a read takes may depend on the one before.
            let side = self.random.random_range(0..samples.len());
            let within = self.random.random_range(0..part.len().0 / block.0) * block.0;
            let at = stretches[self.random.random_range(0..stretches.len())];
            let skipped = Bytes(side as u64 * stretch.0);
            let extent = Extent::at(at + skipped + part.start + Bytes(within), block);
            flight.send(Command { kind: CommandKind::Read, extent })?;
            samples[side].push(flight.next()?.latency.as_nanos() as u64);
        }
        Ok(faster(&mut samples))
    }
}

/// How much of the first sample is clearly less than the second, by the rank-sum test (Mann and
/// Whitney, "On a Test of Whether one of Two Random Variables is Stochastically Larger than the
/// Other", 1947) and the medians.
fn faster([first, second]: &mut [Vec<u64>; 2]) -> Faster {
    first.sort_unstable();
    second.sort_unstable();
    let less: usize = first.iter().map(|a| second.len() - second.partition_point(|b| b <= a)).sum();
    let (m, n) = (first.len() as f64, second.len() as f64);
    let score = (less as f64 - m * n / 2.0) / (m * n * (m + n + 1.0) / 12.0).sqrt();
    if score < SCORE {
        Faster::None
    } else if first[first.len() / 2] as f64 > RATIO * second[second.len() / 2] as f64 {
        Faster::Some
    } else {
        Faster::Most
    }
}

#[cfg(test)]
mod tests {
    use trimtab_core::profile::DiscardedReads;

    use super::*;
    use crate::memory::{Behaviour, Memory};
    use trimtab_core::interrupt::Interrupt;

    const SIZE: Bytes = Bytes(9 << 20);

    fn found(behaviour: Behaviour) -> Option<Grain> {
        let (memory, interrupt) = (Memory::new(behaviour), Interrupt::never());
        let mut stamper = Stamper::new(&memory, 1, &interrupt);
        find(&mut stamper, Extent::new(Bytes(512), SIZE), 1).unwrap()
    }

    fn old() -> Behaviour {
        Behaviour { reads: DiscardedReads::Old, ..Behaviour::honest(SIZE) }
    }

    #[test]
    fn grains_that_are_powers_of_two_are_found() {
        for grain in (9..=18).map(|bit| Bytes(1 << bit)) {
            assert_eq!(found(Behaviour { grain, ..old() }), Some(Ok((grain, Bytes::ZERO))));
        }
        let ignores = Behaviour { grain: Bytes(4096), ignored_every: Some(10), ..old() };
        assert_eq!(found(ignores), Some(Ok((Bytes(4096), Bytes::ZERO))));
    }

    #[test]
    fn grains_that_are_no_powers_of_two_are_not_reported() {
        for blocks in [3, 5, 6, 7, 9, 10, 12, 20, 24, 28, 33, 48, 96, 160] {
            let grain = Bytes(512 * blocks);
            let found = found(Behaviour { grain, ..old() });
            assert!(matches!(found, Some(Err(_))), "{found:?} for {grain}");
        }
    }

    #[test]
    fn drive_that_ignores_discards_shows_no_grain() {
        assert_eq!(found(Behaviour { least: SIZE, ..old() }), None);
    }

    #[test]
    fn random_variation_is_no_difference() {
        let mut random = SmallRng::seed_from_u64(1);
        let mut sample =
            |least| -> Vec<u64> { (0..READS).map(|_| least + random.random_range(0..40_u64)).collect() };
        for _ in 0..1000 {
            assert_eq!(faster(&mut [sample(80), sample(80)]), Faster::None);
            assert_eq!(faster(&mut [sample(280), sample(288)]), Faster::Some);
            assert_eq!(faster(&mut [sample(50), sample(80)]), Faster::Most);
        }
    }
}
