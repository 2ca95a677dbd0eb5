//! The latency sweep: how long commands take by operation, pattern, depth and size.

use std::time::{Duration, Instant};

use rand::{SeedableRng, rngs::SmallRng, seq::index};
use trimtab_core::document::KernelCounters;
use trimtab_core::document::bench::{Passage, Pattern, SweepCell};
use trimtab_core::erase::Operation;
use trimtab_core::{Bytes, Extent};

use super::budget::Budget;
use super::device_under_test::{DeviceUnderTest, Measured};
use super::error::BenchError;
use super::plan::Cell;
use super::target::{Command, CommandKind};

/// How many commands of a cell are enough once they took [`LONG_ENOUGH`], and how many always are.
const ENOUGH: u64 = 1000;
const SAMPLES: u64 = 10_000;

/// How long the commands of a cell take together where time allows: a shorter moment may be one in
/// which the machine did something else.
const LONG_ENOUGH: Duration = Duration::from_secs(1);

/// The most commands that are prepared at once.
const BATCH: u64 = 1000;

/// The part of all the time that is left that may go into laying down the data of the least
/// commands of a cell.
const OVERDRAFT: f64 = 0.25;

/// The least commands of a cell: enough for a median, and for the queue to be full most of the time.
fn wanted(depth: u64) -> u64 {
    (3 * depth).max(5)
}

/// The part of a cell's time that goes into laying data down, at most.
const PREPARATION: f64 = 0.5;

/// The outcome of a cell.
pub(crate) enum Outcome {
    Measured(Box<SweepCell>),
    /// Laying down what the first commands need takes longer than there is.
    TooLong,
}

/// Measures a cell in about the time of `share`. Where that doesn't allow as many commands as it
/// keeps in flight, it takes more, up to `limit`.
pub(crate) fn measure(
    tested: &mut DeviceUnderTest,
    cell: &Cell,
    share: Budget,
    limit: Budget,
    seed: u64,
) -> Result<Outcome, BenchError> {
    let mut places = Places::new(tested, cell, seed);
    let least = match u64::from(cell.depth) {
        depth if places.preparation(tested, wanted(depth)) > limit.left().mul_f64(OVERDRAFT) => depth,
        depth => wanted(depth).min(places.count),
    };
    if limit.is_over() || places.preparation(tested, least) > limit.left() {
        return Ok(Outcome::TooLong);
    }
    let mut all: Option<Measured> = None;
    let mut kernel = Some(KernelCounters::default());
    loop {
        let (done, took) = all.as_ref().map_or((0, Duration::ZERO), |all| (all.latencies.count(), all.wall));
        let affordable = places.affordable(tested, share.left().mul_f64(PREPARATION));
        if all.is_some() && (share.is_over() || affordable < least || enough(done, took)) {
            break;
        }
        let extents = places.take(affordable.min(BATCH).max(least).min(places.count));
        places.prepare(tested, &extents)?;
        let before = tested.target.counters();
        let end = share.deadline().max(Instant::now() + Duration::from_millis(100));
        let kind = CommandKind::Erase(cell.operation);
        let commands = extents.iter().map(|&extent| Command { kind, extent });
        let measured = tested.run(cell.depth, commands, Some(end))?;
        tested.blank &= cell.operation == Operation::Discard;
        kernel = kernel.zip(before.zip(tested.target.counters())).map(|(mut sum, (before, after))| {
            sum.merge(&after.since(&before));
            sum
        });
        match &mut all {
            None => all = Some(measured),
            Some(all) => all.add(&measured),
        }
    }
    let all = all.expect("the first batch is always run");
    Ok(Outcome::Measured(Box::new(summary(cell, &all, kernel))))
}

/// Whether `done` commands that took so long together are enough.
fn enough(done: u64, took: Duration) -> bool {
    done >= SAMPLES || (done >= ENOUGH && took >= LONG_ENOUGH)
}

fn summary(cell: &Cell, all: &Measured, kernel: Option<KernelCounters>) -> SweepCell {
    let n = all.latencies.count();
    let seconds = all.wall.as_secs_f64();
    SweepCell {
        operation: cell.operation,
        pattern: cell.pattern,
        depth: cell.depth,
        engine: all.engine,
        size: cell.size,
        latency: all.latencies.summary(),
        wall_s: seconds,
        commands_s: n as f64 / seconds,
        mib_s: all.bytes.mib() / seconds,
        kernel,
        passage: kernel.map_or(Passage::Unknown, |kernel| passage(cell.operation, n, all.bytes, &kernel)),
    }
}

/// The kernel's handling of `n` commands of together `bytes`, by its counters. It counts
/// everything but discards as writes.
fn passage(operation: Operation, n: u64, bytes: Bytes, kernel: &KernelCounters) -> Passage {
    let (sent, sent_bytes) = match operation {
        Operation::Discard => (kernel.discards, kernel.discard_bytes),
        Operation::Zeroout | Operation::Secure => (kernel.writes, kernel.write_bytes),
    };
    match sent {
        0 => Passage::Uncounted,
        sent if sent < n || sent_bytes < bytes => Passage::Shrunk,
        sent if sent > n => Passage::Split,
        _ => Passage::Whole,
    }
}

/// Where the commands of a cell go.
struct Places {
    pattern: Pattern,
    size: Bytes,
    /// Where the first lies.
    base: Bytes,
    /// How many there are side by side.
    count: u64,
    /// The next, for patterns that take them in turn.
    next: u64,
    random: SmallRng,
}

impl Places {
    fn new(tested: &DeviceUnderTest, cell: &Cell, seed: u64) -> Self {
        let block = tested.target.logical_block();
        let shift = if cell.pattern == Pattern::Unaligned { block } else { Bytes::ZERO };
        let room = |start: Bytes| tested.range.end.saturating_sub(start + shift).0 / cell.size.0;
        let aligned = Bytes(tested.range.start.0.next_multiple_of(cell.size.0));
        let holds_depth = room(aligned) >= u64::from(cell.depth);
        let start = if holds_depth { aligned } else { tested.range.start };
        Self {
            pattern: cell.pattern,
            size: cell.size,
            base: start + shift,
            count: room(start),
            next: 0,
            random: SmallRng::seed_from_u64(seed ^ cell.size.0),
        }
    }

    /// How long laying down the data of `commands` takes.
    fn preparation(&self, tested: &DeviceUnderTest, commands: u64) -> Duration {
        let bytes = if self.pattern.needs_data() { commands * self.size.0 } else { 0 };
        Duration::from_secs_f64(bytes as f64 / tested.write_rate)
    }

    /// How many commands' data can be laid down in `time`.
    fn affordable(&self, tested: &DeviceUnderTest, time: Duration) -> u64 {
        let bytes = time.as_secs_f64() * tested.write_rate;
        if self.pattern.needs_data() { (bytes / self.size.0 as f64) as u64 } else { BATCH }
    }

    /// The next `count` of them.
    fn take(&mut self, count: u64) -> Vec<Extent> {
        let at = |place: u64| Extent::at(Bytes(self.base.0 + place * self.size.0), self.size);
        if self.pattern == Pattern::Random {
            let chosen = index::sample(&mut self.random, self.count as usize, count as usize);
            return chosen.into_iter().map(|place| at(place as u64)).collect();
        }
        if self.next + count > self.count {
            self.next = 0;
        }
        let extents = (self.next..self.next + count).map(at).collect();
        self.next += count;
        extents
    }

    /// Brings the places of a batch into the state that the pattern asks for.
    fn prepare(&self, tested: &mut DeviceUnderTest, extents: &[Extent]) -> Result<(), BenchError> {
        let (Some(first), Some(last)) = (extents.first(), extents.last()) else { return Ok(()) };
        let whole = Extent::new(first.start, last.end.max(first.start));
        match self.pattern {
            Pattern::Sequential | Pattern::Unaligned => tested.fill(&[whole])?,
            Pattern::Random => tested.fill(extents)?,
            Pattern::Discarded => tested.discard(whole)?,
            Pattern::Unwritten if !tested.blank => tested.discard(tested.range)?,
            Pattern::Unwritten => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_counters_show_how_commands_were_passed_on() {
        let kernel = |discards, bytes| KernelCounters {
            discards,
            discard_bytes: Bytes(bytes),
            writes: 4,
            write_bytes: Bytes(4096),
        };
        let of = |discards, bytes| passage(Operation::Discard, 4, Bytes(4096), &kernel(discards, bytes));
        assert_eq!(of(4, 4096), Passage::Whole);
        assert_eq!(of(8, 4096), Passage::Split);
        assert_eq!(of(3, 4096), Passage::Shrunk);
        assert_eq!(of(8, 2048), Passage::Shrunk);
        assert_eq!(of(0, 0), Passage::Uncounted);
        assert_eq!(passage(Operation::Zeroout, 4, Bytes(4096), &kernel(0, 0)), Passage::Whole);
    }
}
