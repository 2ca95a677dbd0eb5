//! The pseudo-SLC cache, on a profile of round figures.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::profile::{GcPolicy, Idle, Profile, Slc, Sourced};
use trimtab_core::{Bytes, Extent, Nanos, Pages, Rate};
use trimtab_ftl::{ClosedLoop, Command, Device, Op};

const PAGE: u64 = 4096;
const BLOCK: u64 = 1 << 20;
const PAGES_PER_BLOCK: u64 = BLOCK / PAGE;
const SIZE: Bytes = Bytes(128 * BLOCK);
const PROGRAM: Nanos = Nanos(640_000);
const CACHE_PROGRAM: Nanos = Nanos(160_000);
const AFTER: Nanos = Nanos(10_000_000);
/// Time enough to fold all of the cache.
const LONG: Nanos = Nanos(60_000_000_000);

fn sourced<T>(value: T) -> Sourced<T> {
    Sourced { value, source: "a test".to_owned() }
}

/// 8 dies on 4 channels, 16 KiB programmed in 640 us each, or in 160 us in the cache, whose static and
/// dynamic parts have room for this many erase blocks.
fn profile(static_blocks: u64, dynamic_blocks: u64) -> Profile {
    let mut profile = Profile::named("nvme-tlc").unwrap();
    let geometry = &mut profile.geometry;
    geometry.program_unit.value = Bytes(16 << 10);
    geometry.erase_block.value = Bytes(BLOCK);
    geometry.over_provisioning.value = 0.25;
    geometry.reserve_blocks.value = 2;
    geometry.channels.value = 4;
    geometry.dies_per_channel.value = 2;
    let timing = &mut profile.timing;
    timing.read.value = Nanos(50_000);
    timing.program.value = PROGRAM;
    timing.erase.value = Nanos(2_000_000);
    timing.channel_rate.value = Rate(400_000_000);
    timing.link_write_rate.value = Rate(4_096_000_000);
    timing.write_buffer.value = Bytes(256 << 10);
    profile.discard.journal_per_range.value = Bytes::ZERO;
    profile.idle = Some(Idle { after: sourced(AFTER), reserve: sourced(0.0) });
    profile.slc = Some(Slc {
        bits_per_cell: sourced(3),
        program: sourced(CACHE_PROGRAM),
        static_size: sourced(static_blocks as f64 / 128.0),
        dynamic_size: sourced(dynamic_blocks as f64 / 128.0),
    });
    profile
}

struct Drive {
    device: Device,
    now: Nanos,
}

impl Drive {
    fn new(profile: &Profile) -> Self {
        Self { device: Device::new(profile, SIZE).unwrap(), now: Nanos::ZERO }
    }

    /// Sends a command as soon as the last one is done; returns how long it took.
    fn submit(&mut self, op: Op, start: u64, length: u64) -> Nanos {
        let began = self.now;
        self.now = self.device.submit(began, Command { op, extent: Extent::at(Bytes(start), Bytes(length)) });
        self.now - began
    }

    /// Writes an erase block; returns how long it takes until it is on flash.
    fn write_block(&mut self, block: u64) -> Nanos {
        self.submit(Op::Write, block * BLOCK, BLOCK) + self.submit(Op::Flush, 0, 0)
    }

    /// Writes these blocks; returns how many at first were written at the speed of the cache. All others
    /// were written at the rate of ordinary blocks.
    fn knee(&mut self, blocks: std::ops::Range<u64>) -> u64 {
        let times: Vec<_> = blocks.map(|block| self.write_block(block)).collect();
        let fast = times.iter().take_while(|time| **time < PROGRAM * 8).count();
        // 64 units on 8 dies.
        let (cached, direct) = times.split_at(fast);
        let near = |time: &Nanos, program: Nanos| {
            let units = program * 8;
            *time >= units && *time <= units + Nanos(400_000)
        };
        assert!(cached.iter().all(|time| near(time, CACHE_PROGRAM) && time == &cached[0]), "{times:?}");
        assert!(direct.iter().all(|time| near(time, PROGRAM) && time == &direct[0]), "{times:?}");
        fast as u64
    }

    fn pause(&mut self, span: Nanos) {
        self.now += span;
        self.submit(Op::Flush, 0, 0);
    }

    fn folded(&self) -> u64 {
        self.device.ftl().totals().folded
    }
}

#[test]
fn writes_slow_down_exactly_where_a_static_cache_is_full() {
    for size in [1, 5, 20] {
        let mut drive = Drive::new(&profile(size, 0));
        assert_eq!(drive.knee(0..40), size);
        assert_eq!(drive.folded(), 0, "nothing is folded while the host writes");
        drive.device.ftl().assert_sound();
    }
}

#[test]
fn a_pause_that_is_long_enough_empties_the_cache() {
    let mut drive = Drive::new(&profile(10, 0));
    assert_eq!(drive.knee(0..20), 10);
    drive.pause(LONG);
    assert_eq!(drive.folded(), 10 * PAGES_PER_BLOCK);
    // Three blocks of flash for each of the cache.
    assert_eq!(drive.device.counters().erases, 10 * 3);
    assert_eq!(drive.device.counters().copied_pages, drive.folded());
    assert_eq!(drive.knee(20..40), 10);
    drive.pause(AFTER + Nanos(1));
    assert_eq!(drive.folded(), 10 * PAGES_PER_BLOCK, "no block is folded in no time");
    assert_eq!(drive.knee(40..50), 0);
    // A block takes 8 rounds of a program on all dies, its reads and 3 erases, some 12 ms.
    drive.pause(AFTER + Nanos(40_000_000));
    let blocks = drive.folded() / PAGES_PER_BLOCK - 10;
    assert!((2..=4).contains(&blocks), "{blocks}");
    drive.device.ftl().assert_sound();
}

#[test]
fn discards_before_folding_save_exactly_their_pages() {
    for discarded in [0, 1, 3, 10] {
        let mut drive = Drive::new(&profile(10, 0));
        drive.knee(0..10);
        // Half of each block.
        for block in 0..discarded {
            drive.submit(Op::Discard, block * BLOCK, BLOCK / 2);
        }
        drive.pause(LONG);
        assert_eq!(drive.folded(), (10 * 2 - discarded) * PAGES_PER_BLOCK / 2);
        assert_eq!(drive.device.counters().erases, 10 * 3, "the cache is erased in any case");
        assert_eq!(drive.device.mapped(), Bytes((10 * 2 - discarded) * BLOCK / 2));

        let mut late = Drive::new(&profile(10, 0));
        late.knee(0..10);
        late.pause(LONG);
        for block in 0..discarded {
            late.submit(Op::Discard, block * BLOCK, BLOCK / 2);
        }
        late.pause(LONG);
        assert_eq!(late.folded(), 10 * PAGES_PER_BLOCK, "later they save nothing");
    }
}

#[test]
fn a_full_cache_without_valid_data_is_erased_and_used_again() {
    let mut drive = Drive::new(&profile(4, 0));
    assert_eq!(drive.knee(0..8), 4);
    drive.submit(Op::Discard, 0, 4 * BLOCK);
    for block in 8..12 {
        let time = drive.write_block(block);
        assert!(time < PROGRAM * 8 + Nanos(3 * 2_000_000), "at the cache's speed after three erases: {time}");
    }
    assert_eq!((drive.folded(), drive.device.counters().erases), (0, 4 * 3));
    drive.device.ftl().assert_sound();
}

#[test]
fn a_dynamic_cache_has_three_erased_blocks_for_each_of_its_own() {
    // A new drive has 164 erased blocks. Garbage collection needs 3 of them.
    for (most, holds) in [(5, 5), (40, 40)] {
        let mut drive = Drive::new(&profile(0, most));
        assert_eq!(drive.knee(0..45), holds);
        drive.device.ftl().assert_sound();
    }
    // With 80 blocks of data 84 are left.
    let mut drive = Drive::new(&profile(0, 40));
    assert_eq!(drive.knee(0..45), 40);
    drive.pause(LONG);
    assert_eq!(drive.knee(45..80), 35);
    drive.pause(LONG);
    assert_eq!(drive.device.ftl().free_blocks(), 84);
    // Of which 3 are kept, and 81 are 27 of the cache.
    assert_eq!(drive.knee(80..80 + 27), 27);
    assert!(drive.write_block(80 + 27) > PROGRAM * 8, "a fuller drive caches less");
    drive.device.ftl().assert_sound();
}

#[test]
fn a_drive_without_erased_blocks_folds_its_dynamic_cache_while_the_host_waits() {
    let mut drive = Drive::new(&profile(0, 40));
    let times: Vec<_> = (0..100).map(|block| drive.write_block(block)).collect();
    // Of 164 blocks the cache takes 3 for each of its own, and garbage collection keeps 3.
    let direct = 164 - 3 * 40 - 3;
    let (cached, rest) = times.split_at(40);
    let (direct, folding) = rest.split_at(direct);
    assert!(cached.iter().all(|time| time == &cached[0]) && direct.iter().all(|time| time == &direct[0]));
    assert!(cached[0] < PROGRAM * 8 && direct[0] < PROGRAM * 9, "{} {}", cached[0], direct[0]);
    // One group gives three blocks: one for its own data, and two for the host's.
    let (long, short): (Vec<_>, Vec<_>) = folding.chunks(2).map(|pair| (pair[0], pair.get(1))).unzip();
    assert!(long.iter().all(|time| *time > PROGRAM * 16), "{folding:?}");
    assert!(short.into_iter().flatten().all(|time| time == &direct[0]), "{folding:?}");
    assert_eq!(drive.folded(), long.len() as u64 * PAGES_PER_BLOCK);
    drive.device.ftl().assert_sound();
}

#[test]
fn a_pause_empties_the_cache_of_a_full_drive_whatever_group_is_the_oldest() {
    // Static groups come first, and there is room for their pages only when a dynamic one has given its blocks back.
    for (fixed, dynamic, spare) in [(1, 20, 0.08), (2, 20, 0.08), (1, 8, 0.1), (3, 30, 0.12)] {
        let mut profile = profile(fixed, dynamic);
        profile.geometry.over_provisioning.value = spare;
        let mut drive = Drive::new(&profile);
        drive.device.precondition();
        for burst in 0..20 {
            drive.pause(LONG);
            // In another place each time, so that nothing in the cache is overwritten.
            let blocks = (0..24).map(|block| (burst * 24 + block) % 128);
            let times: Vec<_> = blocks.map(|block| drive.write_block(block)).collect();
            let is_cached = times[0] < PROGRAM * 8;
            assert!(is_cached, "burst {burst} with {fixed} and {dynamic} of {spare}: {times:?}");
        }
        drive.device.ftl().assert_sound();
    }
}

#[test]
fn discards_give_a_full_drive_its_dynamic_cache_back() {
    let mut drive = Drive::new(&profile(0, 20));
    drive.device.precondition();
    let fast = |drive: &mut Drive| (0..20).filter(|block| drive.write_block(*block) < PROGRAM * 8).count();
    assert!(fast(&mut drive) < 12, "what is spare is not enough for it");
    drive.pause(LONG);
    drive.submit(Op::Discard, 32 * BLOCK, 96 * BLOCK);
    // Each needs up to 3 erases before.
    let times: Vec<_> = (0..20).map(|block| drive.write_block(block)).collect();
    assert!(times.iter().all(|time| *time < CACHE_PROGRAM * 8 + Nanos(3 * 2_000_000 + 400_000)), "{times:?}");
    assert_eq!(drive.device.mapped(), Bytes(32 * BLOCK));
    drive.device.ftl().assert_sound();
}

/// A random mix of commands, in bursts with pauses of all lengths, that reads and discards everything too.
fn mix(profile: &Profile, seed: u64) -> (Device, Vec<bool>) {
    let mut device = Device::new(profile, SIZE).unwrap();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let pages = SIZE.0 / PAGE;
    let mut naive = vec![true; pages as usize];
    device.precondition();
    device.ftl().assert_sound();
    let mut now = Nanos::ZERO;
    for step in 0..6000 {
        let most = [4, 64, 1024][rng.random_range(0..3)];
        let start = rng.random_range(0..pages - most);
        let count = rng.random_range(1..=most);
        let op = [Op::Write, Op::Write, Op::Write, Op::Read, Op::Discard, Op::Flush][rng.random_range(0..6)];
        let extent = Extent::at(Bytes(start * PAGE), Bytes(count * PAGE));
        let honoured = device.honoured(extent);
        let done = device.submit(now, Command { op, extent });
        match op {
            Op::Write => naive[start as usize..][..count as usize].fill(true),
            Op::Discard => {
                naive[(honoured.start.0 / PAGE) as usize..(honoured.end.0 / PAGE) as usize].fill(false);
            }
            Op::Read | Op::Flush => {}
        }
        let pause = [Nanos::ZERO, Nanos::ZERO, Nanos(12_000_000), Nanos(100_000_000)][rng.random_range(0..4)];
        now = done + pause;
        if step % 100 == 0 {
            device.ftl().assert_sound();
        }
    }
    (device, naive)
}

#[test]
fn a_cache_keeps_all_data() {
    let policies = [GcPolicy::Greedy, GcPolicy::Fifo, GcPolicy::DChoices(3), GcPolicy::CostBenefit];
    for (seed, policy) in (1..).zip(policies) {
        for (fixed, dynamic, reserve, reserve_blocks) in
            [(6, 0, 0.0, 1), (0, 12, 0.1, 1), (3, 6, 0.05, 2), (0, 42, 0.2, 1)]
        {
            let mut profile = profile(fixed, dynamic);
            profile.gc.policy.value = policy;
            profile.geometry.reserve_blocks.value = reserve_blocks;
            profile.idle.as_mut().unwrap().reserve.value = reserve;
            let (device, naive) = mix(&profile, seed);
            let mapped: Vec<_> = (0..SIZE.0 / PAGE).map(|page| device.is_mapped(Pages(page))).collect();
            assert!(mapped == naive, "{policy}: the pages with data are those written and not discarded");
            assert!(device.ftl().totals().folded > 0, "{policy}");
            device.ftl().assert_sound();
        }
    }
}

#[test]
fn a_drive_with_little_to_spare_keeps_all_data_in_its_cache() {
    for (fixed, dynamic) in [(5, 0), (0, 5), (2, 30)] {
        let mut profile = profile(fixed, dynamic);
        profile.geometry.reserve_blocks.value = 1;
        profile.geometry.over_provisioning.value = 1.0 / 128.0;
        let (device, naive) = mix(&profile, 9);
        let mapped: Vec<_> = (0..SIZE.0 / PAGE).map(|page| device.is_mapped(Pages(page))).collect();
        assert!(mapped == naive);
        device.ftl().assert_sound();
    }
}

#[test]
fn batches_and_runs_repeat_to_the_nanosecond_with_a_cache() {
    let run = |batch: usize| {
        let (mut device, mut host) = (Device::new(&profile(2, 4), SIZE).unwrap(), ClosedLoop::new(32));
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let ops = [Op::Read, Op::Write, Op::Write, Op::Write, Op::Write, Op::Discard, Op::Flush];
        let commands: Vec<_> = (0..40_000)
            .map(|_| {
                let (page, count) = (rng.random_range(0..SIZE.0 / PAGE - 3), rng.random_range(0..4));
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
