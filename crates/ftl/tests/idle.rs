//! Cleaning while the drive idles, on a profile of round figures.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::profile::{GcPolicy, Idle, Profile, Sourced};
use trimtab_core::{Bytes, Extent, Nanos, Pages, Rate};
use trimtab_ftl::{ClosedLoop, Command, Device, Op};

const PAGE: u64 = 4096;
const SIZE: Bytes = Bytes(64 << 20);
const ERASE_BLOCK: u64 = 1 << 20;
const PROGRAM: Nanos = Nanos(640_000);
const ERASE: Nanos = Nanos(2_000_000);
const AFTER: Nanos = Nanos(10_000_000);
/// Erased blocks that the drive cleans up to: 8 beside the 3 that garbage collection leaves.
const RESERVE: f64 = 0.125;
const TARGET: u32 = 11;
/// Time enough to clean all of the drive.
const LONG: Nanos = Nanos(60_000_000_000);

/// 8 dies on 4 channels, 16 KiB programmed in 640 us each: 204.8 MB/s.
fn profile(policy: GcPolicy, reserve: Option<f64>) -> Profile {
    let mut profile = Profile::named("nvme-tlc").unwrap();
    let geometry = &mut profile.geometry;
    geometry.program_unit.value = Bytes(16 << 10);
    geometry.erase_block.value = Bytes(ERASE_BLOCK);
    geometry.over_provisioning.value = 26.0 / 64.0;
    geometry.reserve_blocks.value = 2;
    geometry.channels.value = 4;
    geometry.dies_per_channel.value = 2;
    let timing = &mut profile.timing;
    timing.read.value = Nanos(50_000);
    timing.program.value = PROGRAM;
    timing.erase.value = ERASE;
    timing.channel_rate.value = Rate(400_000_000);
    timing.link_write_rate.value = Rate(4_096_000_000);
    timing.write_buffer.value = Bytes(256 << 10);
    profile.gc.policy.value = policy;
    let sourced = |reserve| Sourced { value: reserve, source: "a test".to_owned() };
    profile.idle = reserve.map(|reserve| Idle {
        after: Sourced { value: AFTER, source: "a test".to_owned() },
        reserve: sourced(reserve),
    });
    profile
}

struct Drive {
    device: Device,
    now: Nanos,
    rng: Xoshiro256PlusPlus,
}

impl Drive {
    fn new(policy: GcPolicy, reserve: Option<f64>) -> Self {
        let device = Device::new(&profile(policy, reserve), SIZE).unwrap();
        Self { device, now: Nanos::ZERO, rng: Xoshiro256PlusPlus::seed_from_u64(1) }
    }

    /// Sends a command at `arrival`; returns how long it took.
    fn submit(&mut self, arrival: Nanos, op: Op, start: u64, length: u64) -> Nanos {
        let done =
            self.device.submit(arrival, Command { op, extent: Extent::at(Bytes(start), Bytes(length)) });
        self.now = self.now.max(done);
        done - arrival
    }

    fn flush(&mut self) {
        self.submit(self.now, Op::Flush, 0, 0);
    }

    fn write_in_order(&mut self, start: u64, length: u64) {
        for start in (start..start + length).step_by(64 << 10) {
            self.submit(self.now, Op::Write, start, 64 << 10);
        }
        self.flush();
    }

    /// Writes this many pages at random, one after the other.
    fn write_at_random(&mut self, count: u64) {
        for _ in 0..count {
            let page = self.rng.random_range(0..SIZE.0 / PAGE);
            self.submit(self.now, Op::Write, page * PAGE, PAGE);
        }
        self.flush();
    }

    fn wear(&mut self) {
        self.write_in_order(0, SIZE.0);
        self.write_at_random(2 * SIZE.0 / PAGE);
    }

    /// Writes this many erase blocks, as fast as it can; returns how long that took.
    fn burst(&mut self, blocks: u64) -> Nanos {
        let began = self.now;
        self.write_in_order(0, blocks * ERASE_BLOCK);
        self.now - began
    }

    /// Waits, and lets the drive know by a read of a page.
    fn pause(&mut self, span: Nanos) {
        self.submit(self.now + span, Op::Read, 0, PAGE);
    }

    fn free(&self) -> u32 {
        self.device.ftl().free_blocks()
    }
}

/// Where the last block written to has been filled, so that the next burst opens blocks as a new drive.
fn fill_up(drive: &mut Drive) {
    let pages = ERASE_BLOCK / PAGE;
    while !(drive.device.counters().host_pages).is_multiple_of(pages) {
        drive.write_at_random(1);
    }
}

#[test]
fn a_burst_after_idle_time_is_as_fast_as_on_a_new_drive() {
    for policy in [GcPolicy::Greedy, GcPolicy::Fifo, GcPolicy::DChoices(4), GcPolicy::CostBenefit] {
        let burst = u64::from(TARGET - 3);
        let new = Drive::new(policy, Some(RESERVE)).burst(burst);
        let mut idle = Drive::new(policy, Some(RESERVE));
        idle.wear();
        fill_up(&mut idle);
        assert!(idle.free() < TARGET);
        idle.pause(LONG);
        assert_eq!(idle.free(), TARGET, "{policy}");
        let erases = idle.device.counters().erases;
        assert_eq!(idle.burst(burst), new, "{policy}");
        assert_eq!(idle.device.counters().erases, erases, "nothing is cleaned in the burst");

        let mut busy = Drive::new(policy, None);
        busy.wear();
        fill_up(&mut busy);
        busy.pause(LONG);
        assert!(busy.burst(burst) > new + ERASE, "{policy}: cleaning in the foreground takes its time");
        idle.device.ftl().assert_sound();
    }
}

#[test]
fn idle_cleaning_never_saves_erases() {
    for policy in [GcPolicy::Greedy, GcPolicy::Fifo, GcPolicy::CostBenefit] {
        let run = |reserve| {
            let mut drive = Drive::new(policy, reserve);
            drive.wear();
            let written = drive.device.counters();
            for _ in 0..40 {
                drive.pause(LONG);
                drive.write_at_random(1500);
            }
            drive.device.ftl().assert_sound();
            drive.device.counters().since(&written)
        };
        let (off, on) = (run(None), run(Some(RESERVE)));
        assert!(on.erases > off.erases && on.copied_pages > off.copied_pages, "{policy}: {on:?} {off:?}");
        assert_eq!(on.host_pages, off.host_pages);
    }
}

#[test]
fn a_drive_that_never_idles_behaves_as_one_without_idle_cleaning() {
    let run = |reserve| {
        let device = Device::new(&profile(GcPolicy::Greedy, reserve), SIZE).unwrap();
        let (mut device, mut host) = (device, ClosedLoop::new(8));
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let ops = [Op::Read, Op::Write, Op::Write, Op::Write, Op::Write, Op::Discard, Op::Flush];
        let commands: Vec<_> = (0..60_000)
            .map(|_| {
                let page = rng.random_range(0..SIZE.0 / PAGE - 3);
                let extent = Extent::at(Bytes(page * PAGE), Bytes(rng.random_range(0..4) * PAGE));
                Command { op: ops[rng.random_range(0..ops.len())], extent }
            })
            .collect();
        commands.chunks(100).for_each(|batch| host.submit_each(&mut device, batch));
        device.ftl().assert_sound();
        (
            device.counters(),
            host.now(),
            [Op::Read, Op::Write, Op::Discard, Op::Flush].map(|op| device.latency(op)),
        )
    };
    assert_eq!(run(None), run(Some(RESERVE)));
}

#[test]
fn a_command_waits_for_no_more_than_the_operation_that_its_die_has_begun() {
    let read = |drive: &mut Drive, at: Nanos, page: u64| drive.submit(at, Op::Read, page * PAGE, PAGE);
    let (transfer, mut waited) = (Nanos(10_240), Nanos::ZERO);
    for step in 0..400_u64 {
        let mut drive = Drive::new(GcPolicy::Greedy, Some(RESERVE));
        drive.wear();
        // All that was buffered is on flash, and no die is busy.
        let page = (0..).find(|page| drive.device.is_mapped(Pages(*page))).unwrap();
        let quiet = drive.now + AFTER;
        let alone = read(&mut drive, quiet, page);
        let began = drive.now + AFTER;
        // A command comes 37 us later each time, into reads, programs and erases.
        let took = read(&mut drive, began + Nanos(37_000) * step, page);
        let longest = ERASE.max(PROGRAM + transfer * 4);
        assert!(took <= alone + longest + transfer * 4, "{step}: {took} after {alone}");
        waited = waited.max(took - alone);
    }
    assert!(waited > PROGRAM, "it does wait for what has begun: {waited}");
}

#[test]
fn cleaning_goes_on_where_a_command_came_between_and_keeps_all_data() {
    for policy in [GcPolicy::Greedy, GcPolicy::Fifo, GcPolicy::DChoices(3), GcPolicy::CostBenefit] {
        let mut drive = Drive::new(policy, Some(RESERVE));
        let mut naive = vec![true; (SIZE.0 / PAGE) as usize];
        drive.wear();
        let mut reached = 0;
        for step in 0..3000_u64 {
            // Some 2 ms of work at a time, a command in the middle of it.
            let arrival = drive.now + AFTER + Nanos(drive.rng.random_range(0..4_000_000));
            let page = drive.rng.random_range(0..SIZE.0 / PAGE - 8);
            let discarded = step % 3 == 0;
            let op = if discarded { Op::Discard } else { Op::Write };
            drive
                .device
                .submit(arrival, Command { op, extent: Extent::at(Bytes(page * PAGE), Bytes(4 * PAGE)) });
            drive.now = arrival + Nanos(1_000_000);
            let honoured = drive.device.honoured(Extent::at(Bytes(page * PAGE), Bytes(4 * PAGE)));
            match op {
                Op::Discard => {
                    naive[(honoured.start.0 / PAGE) as usize..(honoured.end.0 / PAGE) as usize].fill(false)
                }
                _ => naive[page as usize..][..4].fill(true),
            }
            reached += u32::from(drive.free() >= TARGET);
            if step % 50 == 0 {
                drive.device.ftl().assert_sound();
            }
        }
        let mapped: Vec<_> = (0..SIZE.0 / PAGE).map(|page| drive.device.is_mapped(Pages(page))).collect();
        assert!(mapped == naive, "{policy}: the pages with data are those written and not discarded");
        assert!(reached > 100, "{policy}: the reserve was reached {reached} times");
        drive.device.ftl().assert_sound();
    }
}

#[test]
fn a_reserve_that_invalid_pages_cannot_give_ends_the_cleaning() {
    for policy in [GcPolicy::Greedy, GcPolicy::Fifo, GcPolicy::DChoices(2), GcPolicy::CostBenefit] {
        let mut profile = profile(policy, Some(0.4));
        profile.timing.program.value = Nanos::ZERO;
        profile.timing.read.value = Nanos::ZERO;
        profile.timing.erase.value = Nanos::ZERO;
        profile.timing.channel_rate.value = Rate(0);
        let mut drive = Drive::new(policy, None);
        drive.device = Device::new(&profile, SIZE).unwrap();
        drive.wear();
        drive.pause(Nanos(u64::MAX / 2));
        // 94 blocks, 64 of them full of data; what open ones have of it may be the size of one each.
        assert!((24..=30).contains(&drive.free()), "{policy}: {}", drive.free());
        drive.device.ftl().assert_sound();
    }
}

#[test]
fn a_burst_amid_cleaning_finishes_the_block_that_is_half_cleaned() {
    for policy in [GcPolicy::Greedy, GcPolicy::Fifo, GcPolicy::DChoices(3), GcPolicy::CostBenefit] {
        let mut profile = profile(policy, Some(0.08));
        // 70 blocks: 64 are full of data, and 3 are set aside.
        profile.geometry.over_provisioning.value = 3.0 / 64.0;
        profile.geometry.reserve_blocks.value = 1;
        let mut drive = Drive::new(policy, None);
        drive.device = Device::new(&profile, SIZE).unwrap();
        drive.wear();
        for _ in 0..400 {
            let work = Nanos(drive.rng.random_range(0..40_000_000));
            drive.pause(AFTER + work);
            let count = drive.rng.random_range(1..600);
            drive.write_at_random(count);
            assert!(drive.free() >= 1, "{policy}: what is half cleaned takes a block at most");
        }
        assert_eq!(drive.device.mapped(), SIZE, "{policy}");
        drive.device.ftl().assert_sound();
    }
}
