//! How a drive slows without discards, and how much of its speed they bring back.
//!
//! The steps are those of the SNIA Solid State Storage Performance Test Specification: purge (here
//! a discard of the whole range), a sequential fill, and random writes of 4 KiB until they are
//! steady; then the range is discarded again, and the first steps are repeated.

use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use trimtab_core::document::bench::{DegradationRound, DegradationStep};
use trimtab_core::stats::is_steady_over;
use trimtab_core::{Bytes, Extent};

use super::budget::Budget;
use super::device_under_test::{DeviceUnderTest, pieces};
use super::error::BenchError;
use super::target::{Command, CommandKind};

/// The random writes, and how many are in flight.
const RANDOM: (Bytes, u32) = (Bytes(4 << 10), 32);

/// The sequential writes, and how many are in flight.
const SEQUENTIAL: (Bytes, u32) = (Bytes::MIB, 8);

/// A round writes this part of the range, or takes this part of a step's time where that is less.
const ROUNDS: u32 = 16;

/// The parts of the time that the two fills may take together, and the rounds of random writes on
/// the range discarded again.
const FILLS: f64 = 0.5;
const FRESH: f64 = 0.1;

/// The outcome of the run.
pub(crate) enum Outcome {
    /// It went to its end; the writes were steady, or the time was up before they were.
    Done { steady: bool },
    /// The two fills take this long, which is more than half of the time there is.
    TooLong(Duration),
}

/// Runs all steps in about the time of `budget`; `done` is given each round.
pub(crate) fn measure(
    tested: &mut DeviceUnderTest,
    budget: Budget,
    seed: u64,
    done: &mut dyn FnMut(DegradationRound) -> Result<(), BenchError>,
) -> Result<Outcome, BenchError> {
    let bytes = tested.range.len().0 as f64;
    let fills = Duration::from_secs_f64(2.0 * bytes / tested.write_rate);
    if fills > budget.left().mul_f64(FILLS) {
        return Ok(Outcome::TooLong(fills));
    }
    let overwrites = budget.left().saturating_sub(fills).mul_f64(1.0 - FRESH);
    let mut run = Run { tested, written: Bytes::ZERO, random: SmallRng::seed_from_u64(seed), done };
    run.purge()?;
    if !run.fill(DegradationStep::Fill, budget)? {
        return Ok(Outcome::TooLong(fills));
    }
    let steady = run.overwrite(DegradationStep::Overwrite, Budget::new(overwrites), u32::MAX)?;
    run.purge()?;
    if !run.fill(DegradationStep::Refill, budget)? {
        return Ok(Outcome::TooLong(fills));
    }
    run.purge()?;
    let fresh = Budget::new(budget.left().max(Duration::from_secs(1)));
    run.overwrite(DegradationStep::Fresh, fresh, ROUNDS / 4)?;
    Ok(Outcome::Done { steady })
}

struct Run<'a, 'b> {
    tested: &'a mut DeviceUnderTest<'b>,
    /// Bytes written since the whole range was discarded.
    written: Bytes,
    random: SmallRng,
    done: &'a mut dyn FnMut(DegradationRound) -> Result<(), BenchError>,
}

impl Run<'_, '_> {
    fn purge(&mut self) -> Result<(), BenchError> {
        self.written = Bytes::ZERO;
        self.tested.discard(self.tested.range)
    }

    /// Writes the whole range in sequence; returns whether it came to the end in time.
    fn fill(&mut self, step: DegradationStep, budget: Budget) -> Result<bool, BenchError> {
        let (size, depth) = SEQUENTIAL;
        let round =
            Bytes((self.tested.range.len().0 / u64::from(ROUNDS)).max(size.0).next_multiple_of(size.0));
        for extent in pieces(self.tested.range, round) {
            if budget.is_over() {
                return Ok(false);
            }
            let writes = pieces(extent, size).map(|extent| Command { kind: CommandKind::Write, extent });
            self.round(step, depth, writes, None)?;
        }
        Ok(true)
    }

    /// Writes at random until that is steady, time is up, or there were as many rounds as asked
    /// for; returns whether it is steady.
    fn overwrite(&mut self, step: DegradationStep, budget: Budget, most: u32) -> Result<bool, BenchError> {
        let (size, depth) = RANDOM;
        let range = self.tested.range.aligned_inside(size);
        let span = budget.left() / ROUNDS;
        let mut rates = Vec::new();
        let before = self.written;
        while !budget.is_over() && (rates.len() as u32) < most {
            if is_steady_over(range.len(), self.written - before, &rates) {
                return Ok(true);
            }
            let mut random = self.random.clone();
            let writes = (0..range.len().0 / size.0 / u64::from(ROUNDS)).map(|_| {
                let place = random.random_range(0..range.len().0 / size.0);
                let extent = Extent::at(range.start + Bytes(place * size.0), size);
                Command { kind: CommandKind::Write, extent }
            });
            rates.push(self.round(step, depth, writes, Some(Instant::now() + span))?);
            self.random = SmallRng::seed_from_u64(self.random.random());
        }
        Ok(false)
    }

    /// Runs one round of writes; returns its throughput in MiB/s.
    fn round(
        &mut self,
        step: DegradationStep,
        depth: u32,
        writes: impl Iterator<Item = Command>,
        deadline: Option<Instant>,
    ) -> Result<f64, BenchError> {
        let begun = Instant::now();
        self.tested.blank = false;
        let bytes = self.tested.run(depth, writes, deadline)?.bytes;
        self.tested.flush()?;
        let wall_s = begun.elapsed().as_secs_f64();
        self.written += bytes;
        let mib_s = bytes.mib() / wall_s;
        (self.done)(DegradationRound { step, written: self.written, bytes, wall_s, mib_s })?;
        Ok(mib_s)
    }
}
