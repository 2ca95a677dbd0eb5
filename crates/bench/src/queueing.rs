//! Whether a discard waits for the commands in flight before it.
//!
//! ATA TRIM before SATA 3.1 isn't queued: it begins when every command before it is done, and no
//! other begins before its end. Both can be seen, but only the first is the drive's alone: a layer
//! above it that hands over one discard at a time, as the loop driver does, holds back what comes
//! after a discard as well. So a discard counts as queued unless it waits for the reads before it.

use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use trimtab_core::document::bench::Queueing;
use trimtab_core::erase::{Engine, Operation};
use trimtab_core::stats::median;
use trimtab_core::{Bytes, Extent};

use super::budget::Budget;
use super::device_under_test::{DeviceUnderTest, Flight};
use super::error::BenchError;
use super::target::{Command, CommandKind};

/// The bytes of each discard: far above the granularity of most drives, and quickly written.
const DISCARD: Bytes = Bytes(64 << 10);

/// Where all this happens: the first whole MiB of the range, up to this much.
const AREA: Bytes = Bytes(64 << 20);

/// How long a thread gets to send a discard before a read is sent after it.
const HANDING_OVER: Duration = Duration::from_micros(500);

/// How often each is measured.
const REPEATS: std::ops::RangeInclusive<usize> = 5..=30;

/// The bytes of the reads that are in flight before a discard: small ones of one address, which a
/// drive reads one after the other from the same die, and large ones, which take the link.
const READS: [Bytes; 2] = [Bytes(4 << 10), Bytes(256 << 10)];

/// How many reads are in flight, at most.
const MOST_READS: u32 = 48;

/// The reads take at least this part of the discard's own time where their figures are to count.
const LONG_ENOUGH: f64 = 0.25;

/// A discard waits where at least this part of the time of the reads before it is added to its own.
const WAITS: f64 = 0.5;

/// A discard holds a read back that takes longer after it by this part of the discard's own time.
const HOLDS: f64 = 0.25;

/// The medians of one kind of reads, in microseconds, and of the part of the reads' time that each
/// discard waited.
struct Medians {
    alone: f64,
    reads: f64,
    behind: f64,
    waited: f64,
}

/// Measures whether discards wait, and whether they hold back what comes after them, on a device
/// whose queue holds this many requests; zero where it has none.
pub(crate) fn measure(
    tested: &mut DeviceUnderTest,
    queue_requests: u32,
    budget: Budget,
    seed: u64,
) -> Result<Queueing, BenchError> {
    // More than half of the queue, and the discard might get in before the reads.
    let count = if queue_requests == 0 { MOST_READS } else { (queue_requests / 2).clamp(1, MOST_READS) };
    let mut random = SmallRng::seed_from_u64(seed);
    let area = Extent::at(tested.range.start, AREA.min(tested.range.len())).aligned_inside(Bytes::MIB);
    tested.fill(&[area])?;
    let mut probe = Probe { tested, area, random: &mut random };
    let mut repeats = u32::MAX;
    let mut kinds = Vec::new();
    for (index, size) in READS.into_iter().enumerate() {
        let share = budget.share(1.0, (READS.len() + 1 - index) as f64);
        let rounds = probe.rounds(share, |probe| probe.behind(count, size))?;
        repeats = repeats.min(rounds.len() as u32);
        let [alone, reads, behind] = medians(&rounds);
        // Each discard is set against the reads before it and no others, so that one slow round of
        // a busy machine changes one figure.
        let waited = rounds.iter().map(|[alone, reads, behind]| {
            (behind.as_secs_f64() - alone.as_secs_f64()) / reads.as_secs_f64().max(f64::MIN_POSITIVE)
        });
        let waited = median(&waited.collect::<Vec<_>>()).unwrap_or_default();
        kinds.push(Medians { alone, reads, behind, waited });
    }
    let rounds = probe.rounds(budget, Probe::after)?;
    let [read_alone_us, read_after_us] = medians(&rounds);
    let counts = |kind: &&Medians| kind.reads >= LONG_ENOUGH * kind.alone;
    let least = kinds.iter().filter(counts).min_by(|a, b| a.waited.total_cmp(&b.waited));
    let longest = || kinds.iter().max_by(|a, b| a.reads.total_cmp(&b.reads));
    let least = least.or_else(longest).expect("there are two");
    Ok(Queueing {
        repeats: repeats.min(rounds.len() as u32),
        discard_size: DISCARD,
        alone_us: least.alone,
        reads_us: least.reads,
        behind_us: least.behind,
        read_after_us,
        read_alone_us,
        queued: least.waited < WAITS,
        holds_back: read_after_us - read_alone_us > HOLDS * least.alone,
    })
}

/// The median of each figure over all rounds, in microseconds.
fn medians<const N: usize>(rounds: &[[Duration; N]]) -> [f64; N] {
    std::array::from_fn(|figure| {
        let of: Vec<_> = rounds.iter().map(|round| round[figure].as_secs_f64() * 1e6).collect();
        median(&of).unwrap_or_default()
    })
}

/// A written area, and single measurements on it.
struct Probe<'a, 'b> {
    tested: &'a mut DeviceUnderTest<'b>,
    area: Extent,
    random: &'a mut SmallRng,
}

impl Probe<'_, '_> {
    /// Repeats a measurement as often as the budget and [`REPEATS`] allow.
    fn rounds<const N: usize>(
        &mut self,
        budget: Budget,
        mut measure: impl FnMut(&mut Self) -> Result<[Duration; N], BenchError>,
    ) -> Result<Vec<[Duration; N]>, BenchError> {
        let mut rounds = Vec::new();
        while rounds.len() < *REPEATS.start() || (rounds.len() < *REPEATS.end() && !budget.is_over()) {
            rounds.push(measure(self)?);
        }
        Ok(rounds)
    }

    /// A discard alone; then, for a discard right after reads, how long the last of them takes from
    /// when the discard was sent, and how long the discard takes.
    fn behind(&mut self, count: u32, size: Bytes) -> Result<[Duration; 3], BenchError> {
        let discard = self.discard();
        let reads = self.reads(count, size);
        let mut flight = Flight::new(self.tested, count + 1)?;
        let alone = flight.latency_of(discard)?;
        // What the drive does after a discard, such as writing its journal, is not the reads' time.
        self.tested.flush()?;
        reads.iter().try_for_each(|read| flight.send(*read).map(drop))?;
        let sent = self.tested.target.now();
        let discard_tag = flight.send(discard)?;
        let (mut last_read, mut behind) = (Duration::ZERO, Duration::ZERO);
        while !flight.is_empty() {
            let ended = flight.next()?;
            if ended.tag == discard_tag {
                behind = ended.latency;
            } else {
                last_read = last_read.max(ended.at.saturating_duration_since(sent));
            }
        }
        drop(flight);
        self.tested.fill(&[discard.extent])?;
        Ok([alone, last_read, behind])
    }

    /// A read alone, and one right after a discard.
    fn after(&mut self) -> Result<[Duration; 2], BenchError> {
        let discard = self.discard();
        let read = self.reads(1, Bytes(4 << 10))[0];
        let mut flight = Flight::new(self.tested, 2)?;
        let alone = flight.latency_of(read)?;
        flight.send(discard)?;
        if flight.engine(discard.kind) == Engine::Threads {
            std::thread::sleep(HANDING_OVER);
        }
        let after = flight.latency_of(read)?;
        drop(flight);
        self.tested.fill(&[discard.extent])?;
        Ok([alone, after])
    }

    /// A discard in the first half of the area.
    fn discard(&mut self) -> Command {
        let places = self.area.len().0 / 2 / DISCARD.0;
        let place = self.random.random_range(0..places);
        let extent = Extent::at(self.area.start + Bytes(place * DISCARD.0), DISCARD);
        Command { kind: CommandKind::Erase(Operation::Discard), extent }
    }

    /// Reads in its second half: small ones of the same place, large ones of different ones.
    fn reads(&mut self, count: u32, size: Bytes) -> Vec<Command> {
        let half = Bytes(self.area.len().0 / 2);
        let places = half.0 / size.0;
        let first = self.random.random_range(0..places);
        let step = u64::from(size != READS[0]);
        let read = |n: u32| {
            let place = (first + step * u64::from(n)) % places;
            let start = self.area.start + half + Bytes(place * size.0);
            Command { kind: CommandKind::Read, extent: Extent::at(start, size) }
        };
        (0..count).map(read).collect()
    }
}
