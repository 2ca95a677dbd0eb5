//! Hosts of published measurements before the bare flash model, by the protocol of their documents.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use trimtab_core::Pages;
use trimtab_core::profile::GcPolicy;
use trimtab_ftl::{Ftl, FtlConfig, GeometryError, Untimed};

/// Seeds all draws.
const SEED: u64 = 1;
/// Pages of an erase block; with more, amplification changes by less than a part in a thousand.
const PAGES_PER_BLOCK: u32 = 256;
/// Ranks of a Zipf distribution whose weights are added one by one.
const SINGLE_RANKS: u32 = 1000;
/// Parts of the sum of all weights whose places are found before any draw.
const SEARCHES: usize = 1 << 16;

/// The shape of a drive. Only the ratio of `user` to `flash` counts, so that both may be in any unit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// The capacity that the host can address.
    pub user: f64,
    /// The flash that data can be in.
    pub flash: f64,
    /// The erase blocks of `flash`; reserve and open ones come on top.
    pub blocks: u32,
    /// How garbage collection picks its victim.
    pub gc: GcPolicy,
}

/// The writes of a host, after it has written all that it uses once in order.
#[derive(Debug, Clone, Copy)]
pub(super) enum Host {
    /// All in order, over and over.
    Sequential,
    /// Pieces of this number of pages, drawn uniformly.
    Uniform { pages: u32 },
    /// Pages of a part of all, which is drawn at random; the others are never written again.
    Part(f64),
    /// A fraction of the writes to a fraction of the pages, which is drawn at random.
    TwoZones { writes: f64, space: f64 },
    /// Pages by a Zipf distribution, over ranks that are dealt at random. The real drive has `real_pages`; each
    /// page of the model stands for the ranks of a group of those.
    Zipf { exponent: f64, real_pages: f64 },
    /// Several zones at once, each in order. A zone that is full gives way to one drawn at random.
    Zones {
        /// The zones written at once.
        active: u32,
        /// The size of a zone, in the unit of [`Shape::user`].
        zone: f64,
        /// Whether a zone is discarded before it is written.
        discards: bool,
        /// Whether the zones take turns; else each write goes to one of them at random.
        turns: bool,
    },
    /// A flash cache: small objects in pages drawn uniformly from a part of the space, large ones in order through
    /// the rest.
    Cache {
        /// The part of the space for small objects.
        small: f64,
        /// Their part of the writes.
        writes: f64,
        /// Whether the two have placement handles of their own.
        handles: bool,
    },
    /// Threads, each in order through its own part, that discard the next block's worth before they write it.
    Threads {
        /// How many.
        count: u32,
        /// Whether the last is as many times as fast as the first as there are threads; else all are alike.
        uneven: bool,
    },
}

/// A host before a drive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Simulation {
    /// The drive.
    pub shape: Shape,
    /// The part of it that the host uses.
    pub used: f64,
    /// The host.
    pub host: Host,
    /// How often the host writes what it uses, after the first time.
    pub rounds: f64,
    /// The part of those writes that pass before the measurement begins.
    pub skipped: f64,
}

impl Simulation {
    /// Returns the pages programmed for each page that the host wrote while it was measured.
    ///
    /// # Errors
    /// A shape that can't work.
    pub fn amplification(&self) -> Result<f64, GeometryError> {
        let mut ftl = Ftl::new(&self.config())?;
        let used = (ftl.config().logical.0 as f64 * self.used).round() as u32;
        let mut host = self.host(used, &mut ftl);
        let filled = ftl.totals().host;
        let end = filled + (f64::from(used) * self.rounds) as u64;
        let start = filled + (f64::from(used) * self.rounds * self.skipped) as u64;
        while ftl.totals().host < start {
            host(&mut ftl);
        }
        let before = ftl.totals();
        while ftl.totals().host < end {
            host(&mut ftl);
        }
        Ok(ftl.totals().since(&before).waf())
    }

    /// The shape of the flash model.
    fn config(&self) -> FtlConfig {
        let Shape { user, flash, blocks, gc } = self.shape;
        let pages = f64::from(blocks) * f64::from(PAGES_PER_BLOCK);
        let mut config = FtlConfig {
            logical: Pages((pages * user / flash).round() as u64),
            map_entries: None,
            blocks,
            pages_per_block: PAGES_PER_BLOCK,
            reserve_blocks: 1,
            streams: if matches!(self.host, Host::Cache { handles: true, .. }) { 2 } else { 1 },
            policy: gc,
            seed: SEED,
        };
        config.blocks += config.set_aside();
        config
    }

    /// Fills the `used` pages; returns what does the host's next write, and the discard before it.
    fn host(&self, used: u32, ftl: &mut Ftl) -> Box<dyn FnMut(&mut Ftl)> {
        let random = SmallRng::seed_from_u64(SEED);
        let part = |fraction: f64| (f64::from(used) * fraction).round() as u32;
        match self.host {
            Host::Cache { small, writes, handles } => {
                return cache(part(small)..used, writes, u32::from(handles), ftl, random);
            }
            Host::Threads { count, uneven } => return threads(used / count, count, uneven, ftl, random),
            _ => ftl.write(0, 0, used, &mut Untimed),
        }
        match self.host {
            Host::Sequential => in_order(used),
            Host::Uniform { pages } => uniform(used / pages, pages, random),
            Host::Part(fraction) => two_zones(used, part(fraction), 1.0, random),
            Host::TwoZones { writes, space } => two_zones(used, part(space), writes, random),
            Host::Zipf { exponent, real_pages } => zipf(used, exponent, real_pages, random),
            Host::Zones { active, zone, discards, turns } => {
                let length = part(zone / (self.shape.user * self.used));
                zones(used / length, length, active as usize, discards, turns, random)
            }
            Host::Cache { .. } | Host::Threads { .. } => unreachable!("returned above"),
        }
    }
}

fn write(ftl: &mut Ftl, page: u32) {
    ftl.write(0, page, 1, &mut Untimed);
}

/// All page numbers below `count`, in random order.
fn shuffled(count: u32, random: &mut SmallRng) -> Vec<u32> {
    let mut pages: Vec<u32> = (0..count).collect();
    pages.shuffle(random);
    pages
}

fn in_order(used: u32) -> Box<dyn FnMut(&mut Ftl)> {
    let mut next = 0;
    Box::new(move |ftl| {
        write(ftl, next);
        next = (next + 1) % used;
    })
}

fn uniform(pieces: u32, pages: u32, mut random: SmallRng) -> Box<dyn FnMut(&mut Ftl)> {
    Box::new(move |ftl| ftl.write(0, random.random_range(0..pieces) * pages, pages, &mut Untimed))
}

fn two_zones(used: u32, hot: u32, writes: f64, mut random: SmallRng) -> Box<dyn FnMut(&mut Ftl)> {
    let pages = shuffled(used, &mut random);
    Box::new(move |ftl| {
        let among = if random.random_bool(writes) { 0..hot } else { hot..used };
        write(ftl, pages[random.random_range(among) as usize]);
    })
}

fn zipf(used: u32, exponent: f64, real_pages: f64, mut random: SmallRng) -> Box<dyn FnMut(&mut Ftl)> {
    let pages = shuffled(used, &mut random);
    let group = real_pages / f64::from(used);
    let sums = rank_sums(exponent);
    let below: Vec<f64> =
        (1..=used).map(|place| rank_sum(&sums, (f64::from(place) * group).round(), exponent)).collect();
    let all = below.last().copied().unwrap_or_default();
    // Where the search for a draw begins: the place of each of as many equal parts of the sum.
    let starts: Vec<usize> = (0..=SEARCHES)
        .map(|part| below.partition_point(|sum| *sum < all * part as f64 / SEARCHES as f64))
        .collect();
    Box::new(move |ftl| {
        let drawn = random.random::<f64>();
        let part = (drawn * SEARCHES as f64) as usize;
        let among = &below[starts[part]..starts[part + 1]];
        let place = starts[part] + among.partition_point(|sum| *sum < drawn * all);
        write(ftl, pages[place.min(pages.len() - 1)]);
    })
}

/// The sums of the first ranks' weights, for each number of them from 0 on.
fn rank_sums(exponent: f64) -> Vec<f64> {
    let weight = |rank: u32| f64::from(rank).powf(-exponent);
    let sums = (1..=SINGLE_RANKS).scan(0.0, |sum, rank| {
        *sum += weight(rank);
        Some(*sum)
    });
    std::iter::once(0.0).chain(sums).collect()
}

/// The sum of the weights of the first `ranks` ranks: those beyond the single ones by the integral.
fn rank_sum(sums: &[f64], ranks: f64, exponent: f64) -> f64 {
    let last = sums.len() - 1;
    if ranks <= last as f64 {
        return sums[ranks as usize];
    }
    let (from, to) = (last as f64 + 0.5, ranks + 0.5);
    let beyond = if exponent == 1.0 {
        (to / from).ln()
    } else {
        (to.powf(1.0 - exponent) - from.powf(1.0 - exponent)) / (1.0 - exponent)
    };
    sums[last] + beyond
}

fn zones(
    count: u32,
    length: u32,
    active: usize,
    discards: bool,
    turns: bool,
    mut random: SmallRng,
) -> Box<dyn FnMut(&mut Ftl)> {
    // The zone that each place writes, if it has one yet, and how many of its pages are written.
    let mut open: Vec<(Option<u32>, u32)> = vec![(None, length); active];
    let mut turn = 0;
    Box::new(move |ftl| {
        turn = if turns { (turn + 1) % active } else { random.random_range(0..active) };
        if open[turn].1 == length {
            let drawn = loop {
                let drawn = random.random_range(0..count);
                if open.iter().all(|(zone, _)| *zone != Some(drawn)) {
                    break drawn;
                }
            };
            open[turn] = (Some(drawn), 0);
            if discards {
                ftl.discard(drawn * length, length);
            }
        }
        let (zone, written) = &mut open[turn];
        write(ftl, zone.unwrap_or_default() * length + *written);
        *written += 1;
    })
}

/// The small objects are below `large`.
fn cache(
    large: std::ops::Range<u32>,
    writes: f64,
    handle: u32,
    ftl: &mut Ftl,
    mut random: SmallRng,
) -> Box<dyn FnMut(&mut Ftl)> {
    ftl.write(0, 0, large.start, &mut Untimed);
    ftl.write(handle, large.start, large.end - large.start, &mut Untimed);
    let mut next = large.start;
    Box::new(move |ftl| {
        if random.random_bool(writes) {
            write(ftl, random.random_range(0..large.start));
        } else {
            ftl.write(handle, next, 1, &mut Untimed);
            next = if next + 1 == large.end { large.start } else { next + 1 };
        }
    })
}

fn threads(
    span: u32,
    count: u32,
    uneven: bool,
    ftl: &mut Ftl,
    mut random: SmallRng,
) -> Box<dyn FnMut(&mut Ftl)> {
    ftl.write(0, 0, span * count, &mut Untimed);
    let mut places = vec![0_u32; count as usize];
    // Thread n has n turns of a round, or one.
    let turns: Vec<u32> =
        (0..count).flat_map(|thread| vec![thread; if uneven { thread as usize + 1 } else { 1 }]).collect();
    Box::new(move |ftl| {
        let thread = turns[random.random_range(0..turns.len())];
        let place = &mut places[thread as usize];
        if place.is_multiple_of(PAGES_PER_BLOCK) {
            ftl.discard(thread * span + *place, PAGES_PER_BLOCK.min(span - *place));
        }
        write(ftl, thread * span + *place);
        *place = (*place + 1) % span;
    })
}

#[cfg(test)]
mod tests {
    use trimtab_ftl::theory;

    use super::*;

    fn simulation(used: f64, host: Host) -> Simulation {
        let shape = Shape { user: 0.8, flash: 1.0, blocks: 256, gc: GcPolicy::Greedy };
        Simulation { shape, used, host, rounds: 6.0, skipped: 0.6 }
    }

    fn amplification(used: f64, host: Host) -> f64 {
        simulation(used, host).amplification().unwrap()
    }

    #[test]
    fn random_writes_amplify_as_the_closed_form_says() {
        for used in [0.5, 1.0] {
            let truth = theory::greedy(1.0 - 0.8 * used, PAGES_PER_BLOCK);
            let measured = amplification(used, Host::Uniform { pages: 1 });
            assert!((measured / truth - 1.0).abs() < 0.02, "{measured} is not {truth}");
        }
    }

    #[test]
    fn data_that_die_in_order_cost_no_copies() {
        let threads = Host::Threads { count: 4, uneven: false };
        for host in [Host::Sequential, threads] {
            assert!(amplification(1.0, host) < 1.001, "{host:?}");
        }
    }

    #[test]
    fn part_of_all_pages_is_all_of_them() {
        let all = amplification(1.0, Host::Uniform { pages: 1 });
        assert!((amplification(1.0, Host::Part(1.0)) / all - 1.0).abs() < 0.02);
    }

    #[test]
    fn handles_keep_a_cache_from_copying_what_it_writes_in_order() {
        let cache = |handles| amplification(1.0, Host::Cache { small: 0.04, writes: 0.7, handles });
        assert!(cache(true) < 1.02 && cache(false) > 1.2);
    }

    #[test]
    fn sum_of_ranks_is_that_of_single_ones() {
        for exponent in [0.2, 0.8, 1.0] {
            let sums = rank_sums(exponent);
            let single: f64 = (1..=20_000).map(|rank| f64::from(rank).powf(-exponent)).sum();
            assert!((rank_sum(&sums, 20_000.0, exponent) / single - 1.0).abs() < 1e-6);
            assert_eq!(rank_sum(&sums, 1.0, exponent), 1.0);
        }
    }
}
