//! Measures the effect of discards on other I/O: a foreground at a fixed rate, alone and beside discards.
//!
//! The foreground is an open loop: each command is due at its own time, whether those before it are
//! done or not, and its latency counts from when it was due. So a device that stalls is not asked
//! less, and the wait of what could not be sent is not left out (coordinated omission; Gil Tene,
//! "How NOT to Measure Latency", 2013).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use trimtab_core::document::bench::{InterferenceCell, Latency};
use trimtab_core::erase::Operation;
use trimtab_core::{Bytes, Extent};

use super::budget::Budget;
use super::device_under_test::{DeviceUnderTest, Ended, Flight, Latencies, pieces};
use super::error::BenchError;
use super::target::{Command, CommandKind};

/// The foreground's commands.
const FOREGROUND: Bytes = Bytes(4 << 10);

/// How many commands may wait on the device; those due beyond that wait to be sent.
const IN_FLIGHT: u32 = 256;

/// The part of the time that the foreground alone keeps the device busy, about.
const BUSY: f64 = 0.2;

/// The rates it is given, in commands a second.
const RATES: std::ops::RangeInclusive<f64> = 20.0..=2000.0;

/// The sizes of the discards beside it.
const DISCARD_SIZES: [Bytes; 5] =
    [Bytes(4 << 10), Bytes(64 << 10), Bytes::MIB, Bytes(16 << 20), Bytes(256 << 20)];

/// The sizes of a quick run, ten a second.
const FEW_SIZES: [Bytes; 2] = [Bytes(64 << 10), Bytes(16 << 20)];

/// The part of the time that goes into writing what the foreground reads.
const PREPARATION: f64 = 0.2;

/// The shortest that a cell lasts.
const LEAST_SPAN: Duration = Duration::from_secs(1);

/// Their rates, a second.
const DISCARD_RATES: [f64; 3] = [1.0, 10.0, 100.0];

/// Added latency counts where it is more than this many standard errors.
const NOISE: f64 = 2.0;

/// The part of the time that discards may keep the device busy in a cell: a device that can't keep
/// up tells nothing more.
const MOST_BUSY: f64 = 0.9;

/// Discards beside the foreground: their size and how many a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Beside {
    pub(crate) size: Bytes,
    pub(crate) rate: f64,
}

impl Beside {
    /// Whether `cell` was measured beside these.
    pub(crate) fn is_of(self, cell: &InterferenceCell) -> bool {
        cell.discard_size == Some(self.size) && cell.discard_rate_s == self.rate
    }
}

/// The cells to measure: the foreground alone, then beside discards of each size and rate that the
/// range holds and the device can keep up with; `few` leaves out all but two.
pub(crate) fn plan(tested: &DeviceUnderTest, few: bool) -> Result<Vec<Option<Beside>>, BenchError> {
    let area = halves(tested.range).1;
    let mut cells = vec![None];
    for size in DISCARD_SIZES.into_iter().filter(|size| size.0 * 2 <= area.len().0) {
        let command =
            Command { kind: CommandKind::Erase(Operation::Discard), extent: Extent::at(area.start, size) };
        let cost_s = tested.run(1, std::iter::repeat_n(command, 3), None)?.latencies.median_us() / 1e6;
        let possible = DISCARD_RATES.into_iter().filter(|rate| rate * cost_s <= MOST_BUSY);
        cells.extend(possible.map(|rate| Some(Beside { size, rate })));
    }
    if few {
        let typical = |beside: Beside| beside.rate == 10.0 && FEW_SIZES.contains(&beside.size);
        cells.retain(|cell| cell.is_none_or(typical));
    }
    Ok(cells)
}

/// Writes the area that the foreground reads and overwrites: the first half of the range, or what
/// of it can be written in a part of the time.
pub(crate) fn prepare(tested: &mut DeviceUnderTest, budget: Budget) -> Result<Extent, BenchError> {
    let half = halves(tested.range).0;
    let affordable = tested.write_rate * budget.left().as_secs_f64() * PREPARATION;
    let length = Bytes((affordable as u64 / Bytes::MIB.0).max(8) * Bytes::MIB.0);
    let area = Extent::at(half.start, length.min(half.len()));
    tested.fill(&[area])?;
    Ok(area)
}

/// The rate at which the foreground alone keeps the device busy for [`BUSY`] of the time, in
/// commands a second.
pub(crate) fn foreground_rate(tested: &DeviceUnderTest, area: Extent, seed: u64) -> Result<f64, BenchError> {
    let mut foreground = Foreground::new(area, seed);
    let commands = (0..100).map(|_| foreground.next());
    let measured = tested.run(1, commands, Some(Instant::now() + Duration::from_secs(1)))?;
    let latency = measured.wall.as_secs_f64() / measured.latencies.count().max(1) as f64;
    Ok((BUSY / latency).clamp(*RATES.start(), *RATES.end()).round())
}

/// Measures the foreground at `rate` a second, alone or beside discards, in about the time of
/// `budget`; `alone` is what it was alone.
pub(crate) fn measure(
    tested: &mut DeviceUnderTest,
    area: Extent,
    rate: f64,
    beside: Option<Beside>,
    alone: Option<&InterferenceCell>,
    budget: Budget,
    seed: u64,
) -> Result<InterferenceCell, BenchError> {
    let mut foreground = Foreground::new(area, seed);
    let mut discards = match beside {
        Some(beside) => Discards::prepare(tested, beside, budget)?,
        None => Discards::none(),
    };
    let span = discards.span().min(budget.left()).max(LEAST_SPAN);
    let begun = tested.target.now();
    let end = begun + span;
    let mut flight = Flight::new(tested, IN_FLIGHT)?;
    let mut ends = Ends::default();
    let mut foreground_due = begun;
    let mut discard_due = begun;
    let step = Duration::from_secs_f64(1.0 / rate);
    loop {
        let now = tested.target.now();
        let due = foreground_due.min(discards.due(discard_due));
        if due >= end && flight.is_empty() {
            break;
        }
        if due < end && due <= now && !flight.is_full() {
            if due == foreground_due {
                let command = foreground.next();
                ends.due.insert(flight.send(command)?, (due, command.kind));
                foreground_due += step;
            } else {
                flight.send(discards.next())?;
                discard_due += discards.step;
            }
            continue;
        }
        let until = if due < end && !flight.is_full() { due } else { now + Duration::from_millis(100) };
        if let Some(ended) = flight.next_until(until)? {
            ends.record(&ended);
        }
        tested.interrupt.check()?;
    }
    let reads = ends.reads.summary();
    let writes = ends.writes.summary();
    let discarded = Bytes(discards.sent * beside.map_or(0, |beside| beside.size.0));
    let added_ms_per_gib = alone.filter(|_| discarded > Bytes::ZERO).and_then(|alone| {
        let [of_reads, of_writes] =
            [(&reads, &alone.reads), (&writes, &alone.writes)].map(|(beside, alone)| added_us(beside, alone));
        let (added, error) = (of_reads.0 + of_writes.0, of_reads.1.hypot(of_writes.1));
        (added.abs() > NOISE * error).then(|| added / 1e3 / discarded.gib())
    });
    Ok(InterferenceCell {
        discard_size: beside.map(|beside| beside.size),
        discard_rate_s: beside.map_or(0.0, |beside| beside.rate),
        discards: discards.sent,
        wall_s: (tested.target.now() - begun).as_secs_f64(),
        foreground_rate_s: rate,
        reads,
        writes,
        added_ms_per_gib,
    })
}

/// Returns the time that all commands of `beside` took more than they would have `alone`, in microseconds,
/// and its standard error.
fn added_us(beside: &Latency, alone: &Latency) -> (f64, f64) {
    let variance_of_mean = |of: &Latency| {
        let squares = of
            .histogram
            .0
            .iter()
            .map(|bucket| (bucket.ns as f64 / 1e3 - of.mean_us).powi(2) * bucket.count as f64);
        squares.sum::<f64>() / (of.n.max(1) as f64).powi(2)
    };
    let n = beside.n as f64;
    let error = (variance_of_mean(beside) + variance_of_mean(alone)).sqrt();
    (n * (beside.mean_us - alone.mean_us), n * error)
}

/// The ends of the foreground's commands.
struct Ends {
    /// When each command in flight was due, and what it does.
    due: HashMap<u64, (Instant, CommandKind)>,
    reads: Latencies,
    writes: Latencies,
}

impl Default for Ends {
    fn default() -> Self {
        Self { due: HashMap::new(), reads: Latencies::new(), writes: Latencies::new() }
    }
}

impl Ends {
    /// Records the end of a command, unless it was a discard.
    fn record(&mut self, ended: &Ended) {
        let Some((due, kind)) = self.due.remove(&ended.tag) else { return };
        let latencies = if kind == CommandKind::Read { &mut self.reads } else { &mut self.writes };
        latencies.record(ended.at.saturating_duration_since(due));
    }
}

/// Random reads and writes in turn, over the first half of the range.
struct Foreground {
    area: Extent,
    random: SmallRng,
    read: bool,
}

impl Foreground {
    fn new(area: Extent, seed: u64) -> Self {
        Self { area, random: SmallRng::seed_from_u64(seed), read: false }
    }

    fn next(&mut self) -> Command {
        self.read = !self.read;
        let place = self.random.random_range(0..self.area.len().0 / FOREGROUND.0);
        let extent = Extent::at(self.area.start + Bytes(place * FOREGROUND.0), FOREGROUND);
        Command { kind: if self.read { CommandKind::Read } else { CommandKind::Write }, extent }
    }
}

/// The two halves of a range, both of whole MiB.
fn halves(range: Extent) -> (Extent, Extent) {
    let range = range.aligned_inside(Bytes::MIB);
    let middle = range.start + Bytes(range.len().0 / 2 / Bytes::MIB.0 * Bytes::MIB.0);
    (Extent::new(range.start, middle), Extent::new(middle, range.end))
}

/// Discards in the second half of the range, one after the other; each finds data.
struct Discards {
    places: Vec<Extent>,
    step: Duration,
    sent: u64,
}

impl Discards {
    fn none() -> Self {
        Self { places: Vec::new(), step: Duration::ZERO, sent: 0 }
    }

    /// Lays data down for as many as half of the budget allows, and for one at least.
    fn prepare(tested: &mut DeviceUnderTest, beside: Beside, budget: Budget) -> Result<Self, BenchError> {
        let Beside { size, rate } = beside;
        let wanted = (rate * budget.left().as_secs_f64()).ceil().max(1.0);
        let mut places: Vec<_> =
            pieces(halves(tested.range).1, size).filter(|place| place.len() == size).collect();
        let affordable = tested.write_rate * budget.left().as_secs_f64() / 2.0 / size.0 as f64;
        places.truncate(wanted.min(affordable).max(1.0) as usize);
        tested.fill(&places)?;
        Ok(Self { places, step: Duration::from_secs_f64(1.0 / rate), sent: 0 })
    }

    /// How long they last; for ever where there are none.
    fn span(&self) -> Duration {
        if self.places.is_empty() { Duration::MAX } else { self.step * self.places.len() as u32 }
    }

    /// When the next is due, by the schedule's word; never where there is none left.
    fn due(&self, scheduled: Instant) -> Instant {
        let left = (self.sent as usize) < self.places.len();
        if left { scheduled } else { scheduled + Duration::from_secs(1 << 30) }
    }

    fn next(&mut self) -> Command {
        let extent = self.places[self.sent as usize];
        self.sent += 1;
        Command { kind: CommandKind::Erase(Operation::Discard), extent }
    }
}
