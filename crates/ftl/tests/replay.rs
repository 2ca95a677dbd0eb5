//! The replay held to a naive one, and to what its words promise.

use proptest::prelude::{Strategy, prop, prop_assert_eq, prop_oneof, proptest};
use trimtab_core::document::sim::ReplayOutcome;
use trimtab_core::policy::{PolicyChoice, SmartPolicy};
use trimtab_core::profile::Profile;
use trimtab_core::trace::{Comm, DeviceIndex, Kind, TraceEvent};
use trimtab_core::{Bytes, Extent, Nanos};
use trimtab_ftl::replay::{Discards, Replay, ReplayError, ReplayOptions, Scale, Survey};
use trimtab_ftl::{Command, Device, Op};

mod common;

use common::Memory;

const PAGE: u64 = 4096;
const PAGES: u64 = 2048;

fn pages(from: u64, count: u64) -> Extent {
    Extent::at(Bytes(from * PAGE), Bytes(count * PAGE))
}

fn event(at: u64, kind: Kind, extent: Extent) -> TraceEvent {
    TraceEvent {
        at: Nanos(at),
        device: DeviceIndex(0),
        kind,
        extent,
        latency: kind.is_request().then_some(Nanos(50_000)),
        process: Comm::default(),
        error: 0,
        fs: None,
    }
}

/// A small drive of 2048 pages, whose queued discards cost time.
fn profile() -> Profile {
    let mut profile = Profile::named("nvme-tlc").unwrap();
    let geometry = &mut profile.geometry;
    geometry.program_unit.value = Bytes(4 * PAGE);
    geometry.erase_block.value = Bytes(32 * PAGE);
    geometry.over_provisioning.value = 0.2;
    geometry.channels.value = 2;
    geometry.dies_per_channel.value = 2;
    profile.discard.journal_per_range.value = Bytes(1024);
    profile
}

fn options(profile: &Profile, span: Nanos) -> ReplayOptions<'_> {
    ReplayOptions {
        profile,
        size: Bytes(PAGES * PAGE),
        preconditioned: true,
        device: DeviceIndex(0),
        scale: None,
        span,
    }
}

fn policy(name: &str) -> Discards {
    let smart = || Box::new(SmartPolicy::of_drive(&profile(), Bytes(PAGES * PAGE)));
    Discards::Policy(name.parse::<PolicyChoice>().unwrap().engine().unwrap_or_else(|| smart()))
}

fn replayed(events: &[TraceEvent], discards: Discards, passes: u32) -> ReplayOutcome {
    let span = Survey::of(&mut Memory::new(events), &mut |_| true).unwrap().span;
    let profile = profile();
    let mut replay = Replay::new(&options(&profile, span), discards).unwrap();
    (0..passes).for_each(|_| replay.pass(&mut Memory::new(events), &mut |_| true).unwrap());
    replay.outcome()
}

fn events() -> impl Strategy<Value = Vec<TraceEvent>> {
    let kind = prop_oneof![
        8 => prop::sample::select(vec![Kind::Write, Kind::Free]),
        2 => prop::sample::select(Kind::ALL.to_vec()),
    ];
    let step =
        (0..400_000u64, kind, 0..PAGES, 1..64u64, prop::option::weighted(0.9, 0..900_000u64), 0..40u16);
    prop::collection::vec(step, 1..300).prop_map(|steps| {
        let mut at = 0;
        let made = |(think, kind, from, count, latency, error): (u64, Kind, u64, u64, Option<u64>, u16)| {
            at += think;
            let extent = if kind == Kind::Flush { pages(0, 0) } else { pages(from, count.min(PAGES - from)) };
            TraceEvent { latency: latency.map(Nanos), error: error / 39, ..event(at, kind, extent) }
        };
        steps.into_iter().map(made).collect()
    })
}

/// What a policy sends, from a bitmap of what is free: the commands, in order.
fn naive(events: &[TraceEvent], discards: &str, passes: u32) -> Vec<Command> {
    let mut pending = vec![false; PAGES as usize];
    let mut commands = Vec::new();
    let range = |extent: Extent| (extent.start.0 / PAGE) as usize..(extent.end.0 / PAGE) as usize;
    for pass in 0..passes {
        for event in events.iter().filter(|event| event.error == 0) {
            let extent = event.extent;
            let mut send = |op| commands.push(Command { op, extent });
            match event.kind {
                Kind::Read => send(Op::Read),
                Kind::Flush => send(Op::Flush),
                Kind::Write | Kind::WriteZeroes => {
                    send(Op::Write);
                    pending[range(extent)].fill(false);
                }
                Kind::Discard | Kind::SecureErase if discards == "trace" => send(Op::Discard),
                Kind::Discard | Kind::SecureErase => {}
                Kind::Allocate => pending[range(extent)].fill(false),
                Kind::Free if discards == "online" => send(Op::Discard),
                Kind::Free => pending[range(extent)].fill(true),
                Kind::Unused if pass == 0 => pending[range(extent)].fill(true),
                Kind::Unused => {}
            }
        }
        if discards == "batched" {
            let free: Vec<_> = (0..PAGES).filter(|page| pending[*page as usize]).collect();
            for run in free.chunk_by(|left, right| left + 1 == *right) {
                commands.push(Command { op: Op::Discard, extent: pages(run[0], run.len() as u64) });
            }
            pending.fill(false);
        }
    }
    commands
}

proptest! {
    /// The commands of a naive replay, sent one by one to another drive, do what the replay does. With
    /// free discards that take no time none is overtaken by a write.
    #[test]
    fn a_replay_is_its_commands(events in events(), passes in 1..4u32) {
        for discards in ["trace", "none", "online", "batched"] {
            let engine = if discards == "trace" { Discards::Trace } else { policy(discards) };
            let mut profile = profile();
            profile.discard.command.value = Nanos::ZERO;
            profile.discard.range.value = Nanos::ZERO;
            profile.discard.per_gib.value = Nanos::ZERO;
            profile.timing.command_overhead.value = Nanos::ZERO;
            let span = Survey::of(&mut Memory::new(&events), &mut |_| true).unwrap().span;
            let mut replay = Replay::new(&options(&profile, span), engine).unwrap();
            (0..passes).for_each(|_| replay.pass(&mut Memory::new(&events), &mut |_| true).unwrap());
            let outcome = replay.outcome();

            let mut device = Device::new(&profile, Bytes(PAGES * PAGE)).unwrap();
            device.precondition();
            let mut done = Nanos::ZERO;
            for command in naive(&events, discards, passes) {
                done = device.submit(done, command);
            }
            let expected = device.counters();
            let model_ns = outcome.counters.model_ns;
            prop_assert_eq!(&outcome.counters, &trimtab_core::stats::DriveCounters { model_ns, ..expected });
            prop_assert_eq!(outcome.failed, u64::from(passes) * events.iter().filter(|e| e.error != 0).count() as u64);
            prop_assert_eq!(outcome.events, u64::from(passes) * events.len() as u64);
            prop_assert_eq!(outcome.erases_by_phase.iter().sum::<u64>(), outcome.counters.erases);
            let spread = outcome.erase_spread.mean * f64::from(outcome.erase_blocks);
            prop_assert_eq!(spread.round() as u64, outcome.counters.erases);
            prop_assert_eq!(outcome.waf_passes.len(), passes as usize);
        }
    }
}

#[test]
fn think_times_are_kept_and_a_slow_drive_slows_the_trace_down() {
    let second = 1_000_000_000;
    let reads: Vec<_> = (0..5).map(|n| event(n * second, Kind::Read, pages(n, 1))).collect();
    let mut slow = profile();
    slow.timing.read.value = Nanos(2 * second);
    let mut replay = Replay::new(&options(&slow, Nanos(5 * second)), Discards::Trace).unwrap();
    replay.pass(&mut Memory::new(&reads), &mut |_| true).unwrap();
    let outcome = replay.outcome();
    let thought = 4 * (second - 50_000);
    let model = outcome.counters.model_ns.0;
    assert_eq!(model, outcome.waited_ns.0 + thought, "reads and think times follow one another");
    assert!(outcome.waited_ns > Nanos(10 * second) && outcome.trace_ns == Nanos(5 * second));
}

#[test]
fn what_is_written_again_is_not_trimmed() {
    let events = [
        event(0, Kind::Unused, pages(1000, 10)),
        event(10, Kind::Free, pages(0, 100)),
        event(20, Kind::Write, pages(40, 20)),
        event(30, Kind::Allocate, pages(90, 10)),
        event(200_000, Kind::Discard, pages(500, 1)),
    ];
    let batched = replayed(&events, policy("batched"), 1);
    assert_eq!((batched.counters.discards, batched.counters.discard_bytes), (3, Bytes(80 * PAGE)));
    assert_eq!(batched.pending, Bytes::ZERO);
    let online = replayed(&events, policy("online"), 1);
    assert_eq!((online.counters.discards, online.counters.discard_bytes), (1, Bytes(100 * PAGE)));
    let none = replayed(&events, policy("none"), 1);
    assert_eq!((none.counters.discards, none.pending), (0, Bytes(80 * PAGE)));
    let own = replayed(&events, Discards::Trace, 1);
    assert_eq!((own.counters.discards, own.counters.discard_bytes), (1, Bytes(PAGE)));
}

#[test]
fn a_timer_goes_by_the_time_of_the_trace() {
    let hour = 3_600_000_000_000;
    let events = [
        event(hour / 2, Kind::Free, pages(0, 1)),
        event(hour * 3 / 2, Kind::Free, pages(10, 1)),
        event(hour * 5 / 2, Kind::Free, pages(20, 1)),
        event(hour * 11 / 4, Kind::Write, pages(20, 1)),
    ];
    assert_eq!(replayed(&events, policy("batched:1h"), 1).counters.discards, 2);
    assert_eq!(replayed(&events[..1], policy("batched:1h"), 1).counters.discards, 0);
    assert_eq!(
        replayed(&events[..1], policy("batched:1h"), 2).counters.discards,
        1,
        "hours go on over passes"
    );
    assert_eq!(replayed(&events, policy("batched"), 1).counters.discards, 2);
}

#[test]
fn a_write_waits_for_one_discard_of_a_trim_at_most() {
    let mut profile = profile();
    profile.discard.queued.value = false;
    profile.discard.command.value = Nanos(10_000_000);
    let mut events: Vec<_> = (0..50).map(|n| event(0, Kind::Free, pages(2 * n, 1))).collect();
    events.extend((0..100).map(|n| event(1_000_000 * (n + 1) + 500_000, Kind::Write, pages(1000 + n, 1))));
    let span = Nanos(200_000_000);
    let mut replay = Replay::new(&options(&profile, span), policy("batched:1ms")).unwrap();
    replay.pass(&mut Memory::new(&events), &mut |_| true).unwrap();
    let outcome = replay.outcome();
    assert_eq!(outcome.counters.discards, 50);
    assert!(outcome.writes.max_ns < Nanos(11_000_000), "{:?}", outcome.writes);
    assert!(outcome.writes.max_ns > Nanos(5_000_000), "{:?}", outcome.writes);
}

#[test]
fn a_long_trim_goes_in_commands_that_the_drive_takes() {
    let mut profile = profile();
    profile.discard.command_limit.value = Bytes(30 * PAGE);
    profile.discard.advertised_granularity.value = Bytes(4 * PAGE);
    let events = [event(0, Kind::Free, pages(0, 100)), event(0, Kind::Free, pages(200, 3))];
    let mut replay = Replay::new(&options(&profile, Nanos(1)), policy("batched")).unwrap();
    replay.pass(&mut Memory::new(&events), &mut |_| true).unwrap();
    let outcome = replay.outcome();
    assert_eq!((outcome.counters.discards, outcome.counters.discard_bytes), (4, Bytes(100 * PAGE)));
    assert_eq!(outcome.pending, Bytes(3 * PAGE), "a trim leaves what is shorter than the granularity");
}

#[test]
fn an_extent_past_the_end_is_refused_with_its_row() {
    let events = [event(0, Kind::Write, pages(0, 1)), event(1, Kind::Write, pages(PAGES - 1, 2))];
    let profile = profile();
    let mut replay = Replay::new(&options(&profile, Nanos(9)), Discards::Trace).unwrap();
    let error = replay.pass(&mut Memory::new(&events), &mut |_| true).unwrap_err();
    assert!(matches!(error, ReplayError::PastEnd { row: 2, .. }), "{error}");

    let scale = Scale { from: Bytes((PAGES + 1) * PAGE), to: Bytes(PAGES * PAGE) };
    let scaled = ReplayOptions { scale: Some(scale), ..options(&profile, Nanos(9)) };
    let mut replay = Replay::new(&scaled, Discards::Trace).unwrap();
    replay.pass(&mut Memory::new(&events), &mut |_| true).unwrap();
    assert_eq!(replay.outcome().counters.host_pages, 3);
}

#[test]
fn other_devices_are_none_of_its_business_and_watchers_end_it() {
    let mut events = vec![event(0, Kind::Write, pages(0, 1)), event(0, Kind::Write, pages(PAGES + 9, 1))];
    events[1].device = DeviceIndex(1);
    assert_eq!(replayed(&events, Discards::Trace, 1).events, 1);
    let profile = profile();
    let mut replay = Replay::new(&options(&profile, Nanos(9)), Discards::Trace).unwrap();
    let error = replay.pass(&mut Memory::new(&events), &mut |_| false).unwrap_err();
    assert!(matches!(error, ReplayError::Stopped), "{error}");
}

#[test]
fn a_long_replay_has_no_more_points_than_a_short_one() {
    let events: Vec<_> = (0..2000).map(|n| event(n * 1000, Kind::Write, pages(n % PAGES, 1))).collect();
    for passes in [1, 2, 9] {
        let reserve = replayed(&events, policy("none"), passes).reserve;
        assert!((150..=400).contains(&reserve.len()), "{passes}: {}", reserve.len());
        assert!(reserve.is_sorted_by_key(|point| point.trace_ns));
    }
}
