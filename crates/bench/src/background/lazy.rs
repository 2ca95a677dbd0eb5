//! The work of a drive while a discard is in flight and after it has returned, as reads feel it.

use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use trimtab_core::document::background::{AfterDiscard, LazyFit};
use trimtab_core::erase::Operation;
use trimtab_core::{Bytes, Extent};

use super::super::budget::Budget;
use super::super::device_under_test::{DeviceUnderTest, Ended, Flight, Latencies};
use super::super::error::BenchError;
use super::super::profile::overhead_s;
use super::super::target::{Command, CommandKind};
use super::{SETTLE, halves};

/// The reads.
const READ: Bytes = Bytes(4 << 10);

/// Reads that are timed before a discard.
const ALONE: usize = 200;

/// Reads after a discard are compared in groups of this many.
const GROUP: usize = 10;

/// Reads are slowed where their median is this many times as long as for reads before the discard.
const SLOWED: f64 = 1.15;

/// The least reads beside a discard whose median counts.
const LEAST_BESIDE: u64 = 20;

/// So many groups in a row that aren't slowed are the end.
const QUIET: u32 = 3;

/// The part of the time in which data are laid down.
const PREPARATION: f64 = 0.3;

/// The longest that reads are watched after a discard.
const LONGEST: Duration = Duration::from_secs(60);

/// Times reads in the first half of the range before, beside and after a discard of the second half: of data first, then
/// of what that has left.
pub(super) fn measure(
    tested: &mut DeviceUnderTest,
    budget: Budget,
    seed: u64,
) -> Result<Vec<AfterDiscard>, BenchError> {
    let (read, half) = halves(tested.range);
    let affordable = tested.write_rate * budget.left().as_secs_f64() * PREPARATION;
    let length = Bytes((affordable as u64 / Bytes::MIB.0).max(8) * Bytes::MIB.0);
    let area = Extent::at(half.start, length.min(half.len()));
    tested.fill(&[area])?;
    tested.pause(SETTLE)?;
    let mut reads = Reads { area: read, random: SmallRng::seed_from_u64(seed) };
    let mut found = Vec::new();
    for of_data in [true, false] {
        found.push(after(tested, &mut reads, area, of_data, budget)?);
    }
    Ok(found)
}

fn after(
    tested: &DeviceUnderTest,
    reads: &mut Reads,
    area: Extent,
    of_data: bool,
    budget: Budget,
) -> Result<AfterDiscard, BenchError> {
    let alone_us = reads.time(tested, ALONE)?.median_us();
    let discard = Command { kind: CommandKind::Erase(Operation::Discard), extent: area };
    let (ended, beside) = beside(tested, reads, discard)?;
    let returned = tested.target.now();
    let mut slowed = Latencies::new();
    let (mut end, mut quiet) = (returned, 0);
    let deadline = Instant::now() + LONGEST.min(budget.left());
    while quiet < QUIET && Instant::now() < deadline {
        let group = reads.time(tested, GROUP)?;
        if group.median_us() > SLOWED * alone_us {
            slowed.add(&group);
            (end, quiet) = (tested.target.now(), 0);
        } else {
            quiet += 1;
        }
    }
    let slowed_us = if slowed.count() > 0 { slowed.median_us() } else { alone_us };
    let slowed_wall_s = (end - returned).as_secs_f64();
    Ok(AfterDiscard {
        size: area.len(),
        of_data,
        discard_us: ended.latency.as_secs_f64() * 1e6,
        beside_us: (beside.count() >= LEAST_BESIDE).then(|| beside.median_us()),
        alone_us,
        slowed_us,
        slowed_wall_s,
    })
}

/// Sends `discard`, and reads one after the other until it is done; returns its end, and how long those reads took that
/// were done before.
fn beside(
    tested: &DeviceUnderTest,
    reads: &mut Reads,
    discard: Command,
) -> Result<(Ended, Latencies), BenchError> {
    let mut flight = Flight::new(tested, 2)?;
    let mut beside = Latencies::new();
    let discard = flight.send(discard)?;
    loop {
        flight.send(reads.next())?;
        let ended = flight.next()?;
        if ended.tag == discard {
            flight.next()?;
            return Ok((ended, beside));
        }
        beside.record(ended.latency);
    }
}

/// Random reads, one at a time.
struct Reads {
    area: Extent,
    random: SmallRng,
}

impl Reads {
    fn time(&mut self, tested: &DeviceUnderTest, count: usize) -> Result<Latencies, BenchError> {
        let commands = (0..count).map(|_| self.next());
        Ok(tested.run(1, commands, None)?.latencies)
    }

    fn next(&mut self) -> Command {
        let place = self.random.random_range(0..self.area.len().0 / READ.0);
        Command { kind: CommandKind::Read, extent: Extent::at(self.area.start + READ * place, READ) }
    }
}

/// The share of a die that other work takes where a read that takes `alone_us` takes `slowed_us` beside it: what takes
/// `t` on a die takes `t / (1 - share)`. Zero where reads are as fast.
fn share(alone_us: f64, slowed_us: f64) -> f64 {
    let die_us = alone_us - overhead_s(alone_us / 1e6) * 1e6;
    let added_us = (slowed_us - alone_us).max(0.0);
    added_us / (die_us + added_us).max(f64::MIN_POSITIVE)
}

/// The share that discards take until they return, by the longest that had reads beside it.
pub(super) fn busy_share(found: &[AfterDiscard]) -> Option<f64> {
    let felt = found.iter().filter(|discard| discard.beside_us.is_some());
    let longest = felt.max_by(|left, right| left.discard_us.total_cmp(&right.discard_us))?;
    let beside_us = longest.beside_us.filter(|beside| *beside > SLOWED * longest.alone_us)?;
    Some(share(longest.alone_us, beside_us))
}

/// The work that follows discards: at a share `s` of a die it lasts its own time over `s`.
pub(super) fn fit(found: &[AfterDiscard]) -> Option<LazyFit> {
    let longest = found.iter().max_by(|left, right| left.slowed_wall_s.total_cmp(&right.slowed_wall_s))?;
    let share = share(longest.alone_us, longest.slowed_us);
    if longest.slowed_wall_s == 0.0 || share == 0.0 {
        return None;
    }
    let per_gib_ms = |of_data| {
        let of = found.iter().find(|after| after.of_data == of_data)?;
        Some(of.slowed_wall_s * share * 1e3 / of.size.gib())
    };
    let (data, bare) = (per_gib_ms(true)?, per_gib_ms(false).unwrap_or(0.0));
    Some(LazyFit { share, per_gib_ms: bare.min(data), per_mapped_gib_ms: (data - bare).max(0.0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_and_work_follow_from_the_length_and_the_slowness_of_reads() {
        let after = |of_data, slowed_us, slowed_wall_s| AfterDiscard {
            size: Bytes::GIB * 2,
            of_data,
            discard_us: 100.0,
            beside_us: None,
            alone_us: 60.0,
            slowed_us,
            slowed_wall_s,
        };
        // 45 of 60 us are the die's: at a quarter they take 60.
        let lazy = fit(&[after(true, 75.0, 0.8), after(false, 75.0, 0.2)]).unwrap();
        assert!((lazy.share - 0.25).abs() < 1e-9, "{lazy:?}");
        assert!((lazy.per_gib_ms - 25.0).abs() < 1e-9, "{lazy:?}");
        assert!((lazy.per_mapped_gib_ms - 75.0).abs() < 1e-9, "{lazy:?}");
        assert_eq!(fit(&[after(true, 60.0, 0.0), after(false, 60.0, 0.0)]), None);
    }

    #[test]
    fn share_of_a_discard_follows_from_the_reads_beside_the_longest() {
        let beside = |discard_us, beside_us| AfterDiscard {
            size: Bytes::GIB,
            of_data: true,
            discard_us,
            beside_us,
            alone_us: 60.0,
            slowed_us: 60.0,
            slowed_wall_s: 0.0,
        };
        // 45 of 60 us are the die's: at a quarter they take 60.
        let found = [beside(5e3, Some(75.0)), beside(4e3, Some(500.0)), beside(9e3, None)];
        let share = busy_share(&found).unwrap();
        assert!((share - 0.25).abs() < 1e-9, "{share}");
        assert_eq!(busy_share(&[beside(5e3, Some(61.0)), beside(4e3, Some(75.0))]), None, "as fast");
        assert_eq!(busy_share(&[beside(5e3, None)]), None, "too few reads");
    }
}
