//! A map that is only partly in memory, on a profile of round figures: closed forms and a naive model.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::profile::{GcPolicy, Idle, MapCache, Profile, Slc, Sourced};
use trimtab_core::stats::DriveCounters;
use trimtab_core::{Bytes, Extent, Nanos, Pages, Rate};
use trimtab_ftl::{ClosedLoop, Command, Device, Op};

const PAGE: u64 = 4096;
const SIZE: u64 = 128 << 20;
/// With entries of 64 B.
const ENTRIES: u64 = 64;
/// Pages of the map of the whole drive.
const MAP: u64 = SIZE / PAGE / ENTRIES;
const READ: Nanos = Nanos(50_000);
/// The channel's time for a page.
const TRANSFER: Nanos = Nanos(10_240);
/// The controller's and the link's time for a page.
const BESIDE: Nanos = Nanos(1_000 + 1_000);

fn sourced<T>(value: T) -> Sourced<T> {
    Sourced { value, source: "a test".to_owned() }
}

/// 8 dies on 4 channels, with memory for this many of the map's `pages` pages, whose entries have this size.
fn profile_of(cached: u64, pages: u64, entry: u64) -> Profile {
    let mut profile = Profile::named("nvme-tlc").unwrap();
    let geometry = &mut profile.geometry;
    geometry.program_unit.value = Bytes(16 << 10);
    geometry.erase_block.value = Bytes(1 << 20);
    geometry.over_provisioning.value = 0.25;
    geometry.reserve_blocks.value = 2;
    geometry.channels.value = 4;
    geometry.dies_per_channel.value = 2;
    let timing = &mut profile.timing;
    timing.read.value = READ;
    timing.program.value = Nanos(640_000);
    timing.channel_rate.value = Rate(400_000_000);
    timing.link_read_rate.value = Rate(4_096_000_000);
    timing.link_write_rate.value = Rate(4_096_000_000);
    timing.command_overhead.value = Nanos(1_000);
    timing.write_buffer.value = Bytes(256 << 10);
    profile.discard.journal_per_range.value = Bytes::ZERO;
    let share = sourced((cached as f64 - 0.5) / pages as f64);
    profile.map_cache = Some(MapCache { share, entry: sourced(Bytes(entry)) });
    profile
}

fn profile(cached: u64) -> Profile {
    profile_of(cached, MAP, PAGE / ENTRIES)
}

struct Drive {
    device: Device,
    now: Nanos,
}

impl Drive {
    fn new(profile: &Profile, size: u64) -> Self {
        Self { device: Device::new(profile, Bytes(size)).unwrap(), now: Nanos::ZERO }
    }

    /// A drive that has been written, with memory for this many pages of the map; none is there yet.
    fn used(cached: u64) -> Self {
        let mut drive = Self::new(&profile(cached), SIZE);
        drive.device.precondition();
        drive
    }

    /// Sends a command as soon as the last one is done; returns how long it took.
    fn submit(&mut self, op: Op, page: u64, count: u64) -> Nanos {
        let began = self.now;
        let extent = Extent::at(Bytes(page * PAGE), Bytes(count * PAGE));
        self.now = self.device.submit(began, Command { op, extent });
        self.now - began
    }

    /// Sends a command for each of these pages.
    fn each(&mut self, op: Op, pages: impl Iterator<Item = u64>) {
        for page in pages {
            self.submit(op, page, 1);
        }
    }

    /// Pages of the map read and written by `work`.
    fn during(&mut self, work: impl FnOnce(&mut Self)) -> [u64; 2] {
        let before = self.device.counters();
        work(self);
        let DriveCounters { map_reads, map_pages, .. } = self.device.counters().since(&before);
        [map_reads, map_pages]
    }
}

#[test]
fn random_traffic_misses_what_is_not_cached() {
    const COUNT: u64 = 100_000;
    for cached in [1, MAP / 8, MAP / 2, MAP * 15 / 16, MAP] {
        for op in [Op::Read, Op::Write] {
            let mut drive = Drive::used(cached);
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(cached);
            let mut random = |drive: &mut Drive, count: u64| {
                drive.each(op, (0..count).map(|_| rng.random_range(0..SIZE / PAGE)));
            };
            random(&mut drive, 20 * MAP);
            let [reads, writes] = drive.during(|drive| random(drive, COUNT));
            let missed = COUNT as f64 * (1.0 - cached as f64 / MAP as f64);
            // Three deviations of this many draws.
            let deviation = 3.0 * (missed * cached as f64 / MAP as f64).sqrt();
            assert!((reads as f64 - missed).abs() <= deviation, "{op:?} {cached}: {reads} for {missed}");
            // Every page of the map that leaves was changed by a write.
            assert_eq!(writes, if op == Op::Write { reads } else { 0 }, "{op:?} {cached}");
            drive.device.ftl().assert_sound();
        }
    }
}

#[test]
fn map_pages_are_part_of_write_amplification() {
    let mut drive = Drive::used(1);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    drive.each(Op::Write, (0..10_000).map(|_| rng.random_range(0..SIZE / PAGE)));
    let counters = drive.device.counters();
    let DriveCounters { host_pages, map_pages, copied_pages, .. } = counters;
    assert_eq!(counters.programmed_pages(), host_pages + map_pages + copied_pages);
    assert!(map_pages > host_pages * 99 / 100 && counters.waf().unwrap() > 1.99, "{counters:?}");
}

#[test]
fn sequential_traffic_misses_once_a_page_of_the_map() {
    for (count, written) in [(1, 1), (16, 1), (ENTRIES, 0), (4 * ENTRIES, 0)] {
        let mut drive = Drive::used(8);
        let pass = |drive: &mut Drive, op| {
            drive.during(|drive| {
                for at in 0..SIZE / PAGE / count {
                    drive.submit(op, at * count, count);
                }
            })
        };
        assert_eq!(pass(&mut drive, Op::Read), [MAP, 0]);
        // Nothing has to be read of pages whose entries all change; the last ones stay in memory.
        assert_eq!(pass(&mut drive, Op::Write), [MAP * written, MAP - 8], "{count}");
        assert_eq!(pass(&mut drive, Op::Read), [MAP, 8], "{count}");
        drive.device.ftl().assert_sound();
    }
}

#[test]
fn a_discard_writes_the_pages_of_the_map_that_it_covers() {
    const GIB: u64 = (1 << 30) / PAGE;
    for filled in [true, false] {
        // An entry of 4 B: a page of the map is for 4 MiB.
        let mut drive = Drive::new(&profile_of(16, 512, 4), 2 << 30);
        if filled {
            drive.device.precondition();
        }
        let known = u64::from(filled);
        let others = |drive: &mut Drive| drive.each(Op::Read, (16..32).map(|map| map * 1024));
        let discarded = drive.during(|drive| _ = drive.submit(Op::Discard, GIB, GIB));
        assert_eq!(discarded, [0, 256 - 16]);
        assert_eq!(drive.during(others), [16 * known, 16], "the rest of 256 leaves the memory");
        // From the middle of a page of the map to the middle of another.
        assert_eq!(drive.during(|drive| _ = drive.submit(Op::Discard, 512, 4 * 1024)), [2 * known, 0]);
        assert_eq!(drive.during(others), [16 * known, 5], "which leave the memory for them");
        drive.device.ftl().assert_sound();
    }
}

#[test]
fn a_miss_takes_a_read_more_and_a_write_does_not_wait_for_it() {
    let mut drive = Drive::used(2);
    let hit = BESIDE + READ + TRANSFER;
    let pause = Nanos(100_000_000);
    let mut submit = |op, page| {
        drive.now += pause;
        drive.submit(op, page, 1)
    };
    assert_eq!(submit(Op::Read, 0), hit + READ + TRANSFER);
    assert_eq!(submit(Op::Read, 1), hit);
    assert_eq!(submit(Op::Read, ENTRIES), hit + READ + TRANSFER);
    assert_eq!(submit(Op::Read, 0), hit);
    assert_eq!(submit(Op::Read, 2 * ENTRIES), hit + READ + TRANSFER);
    assert_eq!(submit(Op::Read, 0), hit, "what was used last stays");
    assert_eq!(submit(Op::Read, ENTRIES), hit + READ + TRANSFER);
    assert_eq!(submit(Op::Write, 7 * ENTRIES), BESIDE, "it is in the buffer");
    assert_eq!(submit(Op::Write, 7 * ENTRIES), BESIDE);
}

#[test]
fn a_program_waits_for_its_page_of_the_map() {
    let written_after_read_of = |page| {
        let mut drive = Drive::new(&profile(1), SIZE);
        drive.submit(Op::Write, 0, SIZE / PAGE / 2);
        drive.submit(Op::Read, page, 1);
        drive.now += Nanos(1_000_000_000);
        drive.submit(Op::Write, 1, 1) + drive.submit(Op::Flush, 0, 0)
    };
    let (known, missed) = (written_after_read_of(0), written_after_read_of(ENTRIES));
    // The read begins when the write does, before its page has crossed the link.
    assert_eq!(missed, known + READ + TRANSFER - Nanos(1_000));
}

/// The pages in memory as a plain list, the one used last at its end.
struct Naive {
    cached: Vec<(u64, bool)>,
    room: usize,
    written: Vec<bool>,
    counts: [u64; 2],
}

impl Naive {
    fn access(&mut self, page: u64, count: u64, changes: bool) {
        if count == 0 {
            return;
        }
        for map in page / ENTRIES..=(page + count - 1) / ENTRIES {
            let all = page <= map * ENTRIES && (map + 1) * ENTRIES <= page + count;
            let found = self.cached.iter().position(|(cached, _)| *cached == map);
            let changed = found.map(|at| self.cached.remove(at).1);
            if found.is_none() {
                if self.cached.len() == self.room {
                    let (old, changed) = self.cached.remove(0);
                    if changed {
                        self.counts[1] += 1;
                        self.written[old as usize] = true;
                    }
                }
                self.counts[0] += u64::from(self.written[map as usize] && !(changes && all));
            }
            self.cached.push((map, changes || changed.unwrap_or_default()));
        }
    }
}

#[test]
fn a_mix_of_commands_uses_the_map_as_a_naive_model_does() {
    for (seed, cached) in [(1, 1), (2, 7), (3, 60), (4, MAP)] {
        // Nothing is moved as long as flash is left.
        let mut profile = profile(cached);
        profile.geometry.over_provisioning.value = 10.0;
        profile.discard.honoured_granularity.value = Bytes(2 * PAGE);
        let mut drive = Drive::new(&profile, SIZE);
        let mut naive = Naive {
            cached: Vec::new(),
            room: cached as usize,
            written: vec![false; MAP as usize],
            counts: [0; 2],
        };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        for step in 0..8000 {
            let most = [1, 8, 300][rng.random_range(0..3)];
            let (page, count) = (rng.random_range(0..SIZE / PAGE - most), rng.random_range(0..=most));
            let op = [Op::Write, Op::Read, Op::Discard, Op::Flush][rng.random_range(0..4)];
            drive.submit(op, page, count);
            match op {
                Op::Write => naive.access(page, count, true),
                Op::Read => naive.access(page, count, false),
                Op::Discard => {
                    let (first, end) = (page.div_ceil(2) * 2, (page + count) / 2 * 2);
                    naive.access(first, end.saturating_sub(first), true);
                }
                Op::Flush => {}
            }
            let DriveCounters { map_reads, map_pages, .. } = drive.device.counters();
            assert_eq!([map_reads, map_pages], naive.counts, "step {step} with {cached} cached");
        }
        assert_eq!(drive.device.counters().copied_pages, 0);
        drive.device.ftl().assert_sound();
    }
}

#[test]
fn pages_of_the_map_whose_data_were_moved_are_written_when_they_leave() {
    let mut profile = profile(1);
    profile.idle = Some(Idle { after: sourced(Nanos(1_000_000)), reserve: sourced(0.1) });
    let mut drive = Drive::new(&profile, SIZE);
    drive.device.precondition();
    // A page of each of the first pages of the map, so that idle cleaning moves the rest of their blocks.
    let read_all = |drive: &mut Drive| drive.each(Op::Read, (0..MAP).map(|map| map * ENTRIES));
    assert_eq!(drive.during(read_all), [MAP, 0], "nothing was moved");
    drive.each(Op::Write, (0..SIZE / PAGE).step_by(2));
    drive.submit(Op::Read, 0, 1);
    drive.submit(Op::Read, ENTRIES, 1);
    let before = drive.device.counters();
    drive.now += Nanos(60_000_000_000);
    drive.submit(Op::Flush, 0, 0);
    let moved = drive.device.counters().since(&before).copied_pages;
    assert!(moved > 0, "the drive has cleaned");
    let [reads, writes] = drive.during(read_all);
    assert!(reads >= MAP - 1 && writes > 0 && writes <= moved, "{reads} read, {writes} written");
    let [_, last] = drive.during(read_all);
    assert!(last <= 1, "but for the last that had not left");
    assert_eq!(drive.during(read_all), [MAP, 0]);
    drive.device.ftl().assert_sound();
}

/// A random mix of commands on a drive with all that can be beside the map.
fn mix(profile: &Profile, seed: u64) {
    let mut device = Device::new(profile, Bytes(SIZE)).unwrap();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let pages = SIZE / PAGE;
    let mut naive = vec![true; pages as usize];
    device.precondition();
    assert_eq!(device.mapped(), Bytes(SIZE));
    let mut now = Nanos::ZERO;
    for step in 0..5000 {
        let most = [4, 64, 1024][rng.random_range(0..3)];
        let start = rng.random_range(0..pages - most);
        let count = rng.random_range(1..=most);
        let op = [Op::Write, Op::Write, Op::Write, Op::Read, Op::Discard, Op::Flush][rng.random_range(0..6)];
        let extent = Extent::at(Bytes(start * PAGE), Bytes(count * PAGE));
        let done = device.submit(now, Command { op, extent });
        if let Op::Write | Op::Discard = op {
            naive[start as usize..][..count as usize].fill(op == Op::Write);
        }
        now = done + [Nanos::ZERO, Nanos::ZERO, Nanos(12_000_000)][rng.random_range(0..3)];
        if step % 100 == 0 {
            device.ftl().assert_sound();
        }
    }
    let mapped: Vec<_> = (0..pages).map(|page| device.is_mapped(Pages(page))).collect();
    assert!(mapped == naive, "the pages with data are those written and not discarded");
    assert_eq!(device.mapped().0, PAGE * naive.iter().filter(|mapped| **mapped).count() as u64);
    assert!(device.counters().map_pages > 0);
    device.ftl().assert_sound();
}

#[test]
fn a_map_on_the_flash_keeps_all_data() {
    let policies = [GcPolicy::Greedy, GcPolicy::Fifo, GcPolicy::DChoices(3), GcPolicy::CostBenefit];
    for (seed, policy) in (1..).zip(policies) {
        for (spare, reserve_blocks) in [(0.25, 2), (0.08, 1)] {
            let mut profile = profile(5);
            profile.gc.policy.value = policy;
            profile.geometry.reserve_blocks.value = reserve_blocks;
            profile.geometry.over_provisioning.value = spare;
            profile.discard.lazy_share = (seed % 2 == 0).then(|| sourced(0.3));
            mix(&profile, seed);
            profile.idle = Some(Idle { after: sourced(Nanos(10_000_000)), reserve: sourced(spare / 2.0) });
            profile.slc = Some(Slc {
                bits_per_cell: sourced(3),
                program: sourced(Nanos(160_000)),
                static_size: sourced(0.02),
                dynamic_size: sourced(0.05),
            });
            mix(&profile, seed);
        }
    }
}

#[test]
fn a_map_without_space_is_refused() {
    let mut profile = profile(1);
    // Beside 128 blocks of data there is one more, and the map takes two.
    profile.geometry.over_provisioning.value = 1.0 / 128.0;
    let refused = |profile: &Profile| Device::new(profile, Bytes(SIZE)).err().map(|error| error.to_string());
    let message = refused(&profile).unwrap();
    assert!(message.contains("for 33280 pages and one to spare"), "{message}");
    profile.map_cache = None;
    assert_eq!(refused(&profile), None);
}

#[test]
fn batches_and_runs_repeat_to_the_nanosecond_with_a_map_cache() {
    let run = |batch: usize| {
        let mut device = Device::new(&profile(9), Bytes(SIZE)).unwrap();
        let mut host = ClosedLoop::new(32);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let ops = [Op::Read, Op::Write, Op::Write, Op::Write, Op::Write, Op::Discard, Op::Flush];
        let commands: Vec<_> = (0..40_000)
            .map(|_| {
                let (page, count) = (rng.random_range(0..SIZE / PAGE - 3), rng.random_range(0..4));
                let extent = Extent::at(Bytes(page * PAGE), Bytes(count * PAGE));
                Command { op: ops[rng.random_range(0..ops.len())], extent }
            })
            .collect();
        commands.chunks(batch).for_each(|batch| host.submit_each(&mut device, batch));
        device.ftl().assert_sound();
        (device.counters(), device.latency(Op::Read), host.now())
    };
    assert_eq!(run(1), run(100));
}
