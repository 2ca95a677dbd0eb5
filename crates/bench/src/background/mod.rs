//! Work that a drive does by itself: in the cache that takes a burst of writes, while it idles, and after a discard
//! has returned.
//!
//! A drive that was all discarded is written in sequence: where the rate drops for good, the **cache** is full. Then
//! the full drive pauses for longer and longer, and a burst after each pause shows how much of the cache the drive
//! has emptied meanwhile. A drive without a cache is overwritten at random until that is steady, and random bursts
//! after pauses show how many erased blocks it has **cleaned** in them. At last, reads after a single large discard
//! show how long and how much the drive **works on it** after it has returned.

mod bursts;
mod lazy;
mod recovery;

use std::time::Duration;

use trimtab_core::document::background::{Background, BurstState, CacheFit, Recovery};
use trimtab_core::stats::is_steady_over;
use trimtab_core::{Bytes, Extent};

use super::budget::Budget;
use super::device_under_test::DeviceUnderTest;
use super::error::BenchError;
use bursts::{Slowdown, Until, Writer, drop_in};

/// The parts of the time that writing the range once may take, and that aging and reads after discards may.
const FILL: f64 = 0.3;
const AGING: f64 = 0.5;
const LAZY: f64 = 0.2;

/// How long a drive that was all discarded is left alone before it is written.
const SETTLE: Duration = Duration::from_secs(1);

/// A cache is emptied in this many times the time in which as much is written without it.
const SETTLED: f64 = 4.0;

/// Random writes are compared in parts of the range to see whether they are steady.
const AGING_ROUNDS: u64 = 16;

/// The part of the range that a random burst writes at most: more than drives keep erased.
const LONGEST_BURST: u64 = 4;

/// The first pause of an aged drive lasts as long as it writes this part of the range, twice.
const FIRST_PAUSE: f64 = 1.0 / 16.0;

/// The outcome of the measurement.
pub(crate) enum Outcome {
    /// The findings.
    Measured(Box<Background>),
    /// Writing the range takes this long, which is more than there is time for.
    TooLong(Duration),
}

/// Measures all of it in about the time of `budget`; `tell` hears what is being done.
pub(crate) fn measure(
    tested: &mut DeviceUnderTest,
    budget: Budget,
    seed: u64,
    tell: &mut dyn FnMut(&str),
) -> Result<Outcome, BenchError> {
    let fill = Duration::from_secs_f64(tested.range.len().0 as f64 / tested.write_rate);
    if fill > budget.left().mul_f64(FILL) {
        return Ok(Outcome::TooLong(fill));
    }
    let mut run = Run { tested, budget, found: Background::default() };
    tell("writes to the empty drive");
    let Some(drop) = run.empty()? else { return Ok(Outcome::TooLong(fill)) };
    match drop {
        Some(drop) => {
            tell("writes after pauses of the full drive");
            run.full(&drop)?;
        }
        None => {
            tell("random writes after pauses of the aged drive");
            run.aged(seed)?;
        }
    }
    tell("reads after discards");
    let share = budget.share(LAZY, 1.0);
    run.found.after_discards = lazy::measure(run.tested, share, seed)?;
    run.found.lazy = lazy::fit(&run.found.after_discards);
    run.found.busy_share = lazy::busy_share(&run.found.after_discards);
    Ok(Outcome::Measured(Box::new(run.found)))
}

struct Run<'a, 'b> {
    tested: &'a mut DeviceUnderTest<'b>,
    budget: Budget,
    found: Background,
}

impl Run<'_, '_> {
    /// Writes the whole drive, just discarded, in sequence. Returns where that slowed, if it did; `None` if time was up
    /// before the end.
    fn empty(&mut self) -> Result<Option<Option<Slowdown>>, BenchError> {
        self.tested.discard(self.tested.range)?;
        let mut writer = Writer::sequential(self.tested)?;
        let until = Until { bytes: self.tested.range.len(), drop: None };
        let burst = writer.burst(self.tested, BurstState::Empty, SETTLE, &until, self.budget)?;
        let written: Bytes = burst.rounds.iter().map(|round| round.bytes).sum();
        let drop = drop_in(&burst.rounds);
        self.found.bursts.push(burst);
        Ok((written >= writer.whole()).then_some(drop))
    }

    /// Finds out how the cache of a full drive empties. It begins in the middle of the range: at its start, writes
    /// may replace data that are still in the cache, whose room a drive can use again at once.
    fn full(&mut self, drop: &Slowdown) -> Result<(), BenchError> {
        let mut writer = Writer::sequential(self.tested)?;
        writer.start_in_the_middle();
        let until = Until { bytes: self.tested.range.len(), drop: Some(*drop) };
        // What the drive holds in its cache is emptied once, then the room that a full drive has for it is used up.
        let emptied = SETTLED * drop.fast_bytes / Bytes::MIB.0 as f64 / drop.slow_mib_s();
        let settle = (SETTLE + Duration::from_secs_f64(emptied)).min(self.budget.left().mul_f64(0.25));
        for pause in [settle, Duration::ZERO] {
            let filling = writer.burst(self.tested, BurstState::Full, pause, &until, self.budget)?;
            self.found.bursts.push(filling);
        }
        let refill = self.pauses(&mut writer, BurstState::Full, &until)?;
        self.found.cache = Some(CacheFit {
            empty: Bytes(drop.fast_bytes as u64),
            fast_mib_s: drop.fast_mib_s(),
            slow_mib_s: drop.slow_mib_s(),
            refill,
        });
        Ok(())
    }

    /// Overwrites the drive at random until that is steady, and finds out what it cleans in pauses.
    fn aged(&mut self, seed: u64) -> Result<(), BenchError> {
        let mut writer = Writer::random(self.tested, seed)?;
        let rate = self.age(&mut writer)?;
        let longest = self.budget.left().mul_f64(0.25);
        let pause = 2.0 * FIRST_PAUSE * self.tested.range.len().mib() / rate;
        let pause = Duration::from_secs_f64(pause).max(SETTLE).min(longest);
        let bytes = Bytes(self.tested.range.len().0 / LONGEST_BURST);
        let until = Until { bytes, drop: None };
        let burst = writer.burst(self.tested, BurstState::Aged, pause, &until, self.budget)?;
        let drop = drop_in(&burst.rounds);
        self.found.bursts.push(burst);
        if let Some(drop) = drop {
            let until = Until { bytes, drop: Some(drop) };
            self.found.cleaning = self.pauses(&mut writer, BurstState::Aged, &until)?;
        }
        Ok(())
    }

    /// Writes at random until that is steady or half of the time is up; returns the last rate in MiB/s.
    fn age(&mut self, writer: &mut Writer) -> Result<f64, BenchError> {
        let budget = self.budget.share(AGING, 1.0);
        let range = self.tested.range.len();
        let (mut rates, mut written) = (Vec::new(), Bytes::ZERO);
        loop {
            let round = writer.write(self.tested, Bytes(range.0 / AGING_ROUNDS))?;
            written += round.bytes;
            rates.push(round.bytes.mib() / round.wall_s);
            if budget.is_over() || is_steady_over(range, written, &rates) {
                return Ok(rates[rates.len() - 1]);
            }
        }
    }

    /// Writes bursts after pauses, and returns what the pauses give back.
    fn pauses(
        &mut self,
        writer: &mut Writer,
        state: BurstState,
        until: &Until,
    ) -> Result<Option<Recovery>, BenchError> {
        let Self { tested, budget, found } = self;
        let least = Bytes(writer.round().0 / 2);
        let mut burst = |pause: Duration| {
            let burst = writer.burst(tested, state, pause, until, *budget)?;
            let fast = until.drop.map_or(0.0, |drop| drop.fast_part(&burst.rounds));
            found.bursts.push(burst);
            Ok(fast)
        };
        let points = recovery::measure(&mut burst, least, *budget)?;
        // A cache is emptied into cells that are written no faster than without it.
        let fastest = until.drop.filter(|_| state == BurstState::Full).map(|drop| drop.slow_mib_s());
        Ok(recovery::fit(&points, fastest.map(|mib_s| mib_s * Bytes::MIB.0 as f64)))
    }
}

/// The two halves of a range, both of whole MiB.
pub(super) fn halves(range: Extent) -> (Extent, Extent) {
    let range = range.aligned_inside(Bytes::MIB);
    let middle = range.start + Bytes(range.len().0 / 2 / Bytes::MIB.0 * Bytes::MIB.0);
    (Extent::new(range.start, middle), Extent::new(middle, range.end))
}

#[cfg(test)]
mod tests;
