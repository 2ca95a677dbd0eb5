//! Discards that a drive works on at once, and several extents in one command: closed forms and naive models.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::document::sim::Clocks;
use trimtab_core::policy::PolicyChoice;
use trimtab_core::profile::{Profile, Sourced};
use trimtab_core::trace::{Comm, DeviceIndex, EventKind, TraceEvent};
use trimtab_core::{Bytes, Extent, Nanos, Pages};
use trimtab_ftl::replay::{Discards, Replay, ReplayOptions};
use trimtab_ftl::{Command, Device, Op};

mod common;

use common::in_memory;

const PAGE: u64 = 4096;
const SIZE: Bytes = Bytes(64 << 20);
const OVERHEAD: Nanos = Nanos(1_000);
const COMMAND: Nanos = Nanos(100_000);
const RANGE: Nanos = Nanos(7_000);
/// The time of a page in a discard.
const NAMED: Nanos = Nanos(1_000);
const ONE: Nanos = Nanos(COMMAND.0 + RANGE.0 + NAMED.0);

fn sourced<T>(value: T) -> Sourced<T> {
    Sourced { value, source: "a test".to_owned() }
}

fn profile(depth: Option<u32>, ranges: Option<u32>) -> Profile {
    let mut profile = Profile::named("nvme-tlc").unwrap();
    profile.geometry.erase_block.value = Bytes(1 << 20);
    profile.geometry.over_provisioning.value = 0.25;
    profile.timing.command_overhead.value = OVERHEAD;
    let discard = &mut profile.discard;
    discard.command.value = COMMAND;
    discard.range.value = RANGE;
    discard.per_gib.value = NAMED * ((1 << 30) / PAGE);
    discard.range_limit.value = Bytes(1 << 20);
    discard.journal_per_range.value = Bytes(512);
    discard.queue_depth = depth.map(sourced);
    discard.ranges_per_command = ranges.map(sourced);
    profile
}

fn page(number: u64) -> Extent {
    Extent::at(Bytes(number * PAGE), Bytes(PAGE))
}

#[test]
fn discards_that_come_together_end_in_rounds_of_the_queue_depth() {
    for depth in [None, Some(1), Some(2), Some(7), Some(64)] {
        let mut device = Device::new(&profile(depth, None), SIZE).unwrap();
        let ends: Vec<_> = (0..40)
            .map(|at| device.submit(Nanos(5), Command { op: Op::Discard, extent: page(at) }))
            .collect();
        for (at, end) in (0..).zip(ends) {
            let depth = u64::from(depth.unwrap_or(1));
            // Each comes to the drive when the controller has dealt with those before; with one at a time that
            // is hidden.
            let (round, place) = (at / depth, at % depth);
            let expected = Nanos(5) + OVERHEAD * place + ONE * (round + 1);
            assert_eq!(end, expected, "number {at} of depth {depth}");
        }
        assert_eq!(device.counters().discard_busy_ns, ONE * 40);
    }
}

#[test]
fn discards_wait_as_in_a_naive_queue() {
    for depth in [1, 3, 16] {
        let mut device = Device::new(&profile(Some(depth), None), SIZE).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(depth.into());
        let (mut now, mut begun, mut ends) = (Nanos::ZERO, Nanos::ZERO, Vec::<Nanos>::new());
        for number in 0..5_000 {
            now += Nanos(rng.random_range(0..2 * ONE.0 / u64::from(depth)));
            let count = rng.random_range(1..16);
            let extent = Extent::at(Bytes(rng.random_range(0..1000) * PAGE), Bytes(count * PAGE));
            // It begins when all but as many as the drive works on beside it are done.
            begun = begun.max(now) + OVERHEAD;
            ends.sort_unstable();
            let waits = ends.len().checked_sub(depth as usize).map_or(Nanos::ZERO, |at| ends[at]);
            let cost = COMMAND + RANGE + NAMED * count;
            let end = (begun - OVERHEAD).max(waits) + cost;
            ends.push(end);
            let done = device.submit(now, Command { op: Op::Discard, extent });
            assert_eq!(done, end, "number {number} of depth {depth}");
        }
    }
}

#[test]
fn extents_of_one_command_cost_a_range_each_and_unmap_as_apart() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
    let mut together = Device::new(&profile(None, Some(256)), SIZE).unwrap();
    let mut apart = Device::new(&profile(None, None), SIZE).unwrap();
    together.precondition();
    apart.precondition();
    let mut now = Nanos::ZERO;
    for count in [1, 2, 9, 256] {
        let extents: Vec<_> = (0..count)
            .map(|_| {
                // Not in whole pages, and up to three ranges long.
                let start = rng.random_range(0..SIZE.0 / 512 - 6000) * 512;
                Extent::at(Bytes(start), Bytes(rng.random_range(0..6000) * 512))
            })
            .collect();
        now += Nanos(1_000_000_000);
        let before = together.counters();
        let done = together.discard_extents(now, &extents);
        let counted = together.counters().since(&before);
        let length: Bytes = extents.iter().map(|extent| extent.len()).sum();
        let ranges: u64 = extents.iter().map(|extent| extent.len().0.div_ceil(1 << 20)).sum();
        let named = (NAMED.0 as f64 * length.0 as f64 / PAGE as f64).round() as u64;
        let cost = COMMAND + RANGE * ranges + Nanos(named);
        assert!((done - now).0.abs_diff(cost.0) <= 1, "{} for {cost}", done - now);
        assert_eq!((counted.discards, counted.discard_bytes), (1, length));
        extents.iter().for_each(|extent| {
            apart.submit(now, Command { op: Op::Discard, extent: *extent });
        });
        let mapped = |device: &Device| {
            (0..SIZE.0 / PAGE).map(|page| device.is_mapped(Pages(page))).collect::<Vec<_>>()
        };
        assert!(mapped(&together) == mapped(&apart));
        assert_eq!(together.counters().journal_pages, apart.counters().journal_pages);
        together.ftl().assert_sound();
    }
}

/// Replays the discards that a host sends for pages freed at the same time, no two of them adjacent.
fn online(frees: u64, ranges: Option<u32>, limit: u64) -> (u64, Nanos) {
    let free = |number: u64| TraceEvent {
        at: Nanos(1_000_000_000),
        device: DeviceIndex(0),
        kind: EventKind::Free,
        extent: page(number * 2),
        latency: None,
        process: Comm::default(),
        error: 0,
        fs: None,
    };
    let events: Vec<_> = (0..frees).map(free).collect();
    let mut profile = profile(None, ranges);
    profile.discard.command_limit.value = Bytes(limit * PAGE);
    let engine = "online".parse::<PolicyChoice>().unwrap().engine().unwrap();
    let (device, span) = (DeviceIndex(0), Nanos(10_000_000_000));
    let options = ReplayOptions {
        profile: &profile,
        size: SIZE,
        preconditioned: true,
        device,
        scale: None,
        span,
        clocks: Clocks::default(),
    };
    let mut replay = Replay::new(&options, Discards::Policy(engine)).unwrap();
    replay.pass(&mut in_memory(&events), &mut |_| true).unwrap();
    let outcome = replay.outcome();
    assert_eq!((outcome.pending, outcome.counters.discard_bytes), (Bytes::ZERO, Bytes(frees * PAGE)));
    (outcome.counters.discards, outcome.counters.discard_busy_ns)
}

#[test]
fn a_host_merges_the_discards_that_wait() {
    for frees in [1, 2, 256, 257, 1000] {
        let each = RANGE + NAMED;
        assert_eq!(online(frees, None, 1 << 20), (frees, ONE * frees));
        // The first finds nothing to wait for, and goes alone.
        let merged = 1 + (frees - 1).div_ceil(256);
        assert_eq!(online(frees, Some(256), 1 << 20), (merged, COMMAND * merged + each * frees), "{frees}");
        let short = 1 + (frees - 1).div_ceil(10);
        assert_eq!(online(frees, Some(256), 10), (short, COMMAND * short + each * frees), "{frees}");
    }
}
