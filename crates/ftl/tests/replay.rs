//! The replay held to a naive one, and to what its words promise.

use proptest::prelude::{Strategy, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::document::sim::{Clocks, ReplayOutcome};
use trimtab_core::policy::{PolicyChoice, SmartPolicy};
use trimtab_core::profile::Profile;
use trimtab_core::trace::{Comm, DeviceIndex, EventKind, TraceEvent};
use trimtab_core::{Bytes, Extent, Nanos};
use trimtab_ftl::replay::{Discards, Replay, ReplayError, ReplayOptions, Scale, TraceSurvey};
use trimtab_ftl::{Command, Device, Op};

mod common;

use common::in_memory;

const PAGE: u64 = 4096;
const PAGES: u64 = 2048;

fn pages(from: u64, count: u64) -> Extent {
    Extent::at(Bytes(from * PAGE), Bytes(count * PAGE))
}

fn event(at: u64, kind: EventKind, extent: Extent) -> TraceEvent {
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
        clocks: Clocks::default(),
    }
}

fn policy(name: &str) -> Discards {
    let smart = || Box::new(SmartPolicy::of_drive(&profile(), Bytes(PAGES * PAGE)));
    Discards::Policy(name.parse::<PolicyChoice>().unwrap().engine().unwrap_or_else(|| smart()))
}

fn replayed(events: &[TraceEvent], discards: Discards, passes: u32) -> ReplayOutcome {
    let span = TraceSurvey::of(&mut in_memory(events), &mut |_| true).unwrap().span;
    let profile = profile();
    let mut replay = Replay::new(&options(&profile, span), discards).unwrap();
    (0..passes).for_each(|_| replay.pass(&mut in_memory(events), &mut |_| true).unwrap());
    replay.outcome()
}

/// Returns the results of one pass of `span` on a drive of this profile.
fn passed(profile: &Profile, events: &[TraceEvent], span: u64, discards: Discards) -> ReplayOutcome {
    let mut replay = Replay::new(&options(profile, Nanos(span)), discards).unwrap();
    replay.pass(&mut in_memory(events), &mut |_| true).unwrap();
    replay.outcome()
}

fn events() -> impl Strategy<Value = Vec<TraceEvent>> {
    let kind = prop_oneof![
        8 => prop::sample::select(vec![EventKind::Write, EventKind::Free]),
        2 => prop::sample::select(EventKind::ALL.to_vec()),
    ];
    let step =
        (0..400_000u64, kind, 0..PAGES, 1..64u64, prop::option::weighted(0.9, 0..900_000u64), 0..40u16);
    prop::collection::vec(step, 1..300).prop_map(|steps| {
        let mut at = 0;
        let made =
            |(think, kind, from, count, latency, error): (u64, EventKind, u64, u64, Option<u64>, u16)| {
                at += think;
                let extent =
                    if kind == EventKind::Flush { pages(0, 0) } else { pages(from, count.min(PAGES - from)) };
                TraceEvent { latency: latency.map(Nanos), error: error / 39, ..event(at, kind, extent) }
            };
        steps.into_iter().map(made).collect()
    })
}

/// Returns the commands of a policy in order, from a bitmap of the free space.
fn naive(events: &[TraceEvent], discards: &str, passes: u32) -> Vec<Command> {
    let mut pending = vec![false; PAGES as usize];
    let mut commands = Vec::new();
    let range = |extent: Extent| (extent.start.0 / PAGE) as usize..(extent.end.0 / PAGE) as usize;
    for pass in 0..passes {
        for event in events.iter().filter(|event| event.error == 0) {
            let extent = event.extent;
            let mut send = |op| commands.push(Command { op, extent });
            match event.kind {
                EventKind::Read => send(Op::Read),
                EventKind::Flush => send(Op::Flush),
                EventKind::Write | EventKind::WriteZeroes => {
                    send(Op::Write);
                    pending[range(extent)].fill(false);
                }
                EventKind::Discard | EventKind::SecureErase if discards == "trace" => send(Op::Discard),
                EventKind::Discard | EventKind::SecureErase => {}
                EventKind::Allocate => pending[range(extent)].fill(false),
                EventKind::Free if discards == "online" => send(Op::Discard),
                EventKind::Free => pending[range(extent)].fill(true),
                EventKind::Unused if pass == 0 => pending[range(extent)].fill(true),
                EventKind::Unused => {}
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
    fn replay_equals_its_commands(events in events(), passes in 1..4u32) {
        for discards in ["trace", "none", "online", "batched"] {
            let engine = if discards == "trace" { Discards::Trace } else { policy(discards) };
            let mut profile = profile();
            profile.discard.command.value = Nanos::ZERO;
            profile.discard.range.value = Nanos::ZERO;
            profile.discard.per_gib.value = Nanos::ZERO;
            profile.timing.command_overhead.value = Nanos::ZERO;
            let span = TraceSurvey::of(&mut in_memory(&events), &mut |_| true).unwrap().span;
            let mut replay = Replay::new(&options(&profile, span), engine).unwrap();
            (0..passes).for_each(|_| replay.pass(&mut in_memory(&events), &mut |_| true).unwrap());
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

/// Sectors that are in use, and pages that a drive needs to keep for that, by a naive count.
fn naive_needed(events: &[TraceEvent]) -> u64 {
    // What the drive was full of before counts as in use; where a page is free it is forgotten.
    let mut used = vec![true; (PAGES * PAGE / 512) as usize];
    let mut mapped = vec![true; PAGES as usize];
    for event in events.iter().filter(|event| event.error == 0 && !event.extent.is_empty()) {
        let (start, end) = (event.extent.start.0, event.extent.end.0);
        let sectors = start / 512..end.div_ceil(512);
        let touched = start / PAGE..end.div_ceil(PAGE);
        match event.kind {
            EventKind::Read | EventKind::Flush => {}
            EventKind::Write | EventKind::WriteZeroes => {
                sectors.for_each(|sector| used[sector as usize] = true);
                touched.for_each(|page| mapped[page as usize] = true);
            }
            EventKind::Allocate => sectors.for_each(|sector| used[sector as usize] = true),
            EventKind::Free | EventKind::Unused | EventKind::Discard | EventKind::SecureErase => {
                sectors.for_each(|sector| used[sector as usize] = false);
                let is_free = |page: &u64| {
                    (page * PAGE / 512..(page + 1) * PAGE / 512).all(|sector| !used[sector as usize])
                };
                touched.filter(is_free).for_each(|page| mapped[page as usize] = false);
            }
        }
    }
    mapped.iter().filter(|mapped| **mapped).count() as u64
}

/// Pages of flash that hold data of use at the end, by the share that does not.
fn mapped_at_end(outcome: &ReplayOutcome, profile: &Profile) -> u64 {
    let share = 1.0 - outcome.reserve.last().unwrap().free_share;
    let pages = profile.geometry.erase_block.value.0 / PAGE * u64::from(outcome.erase_blocks);
    (share * pages as f64).round() as u64
}

/// The events, each request when the one before is done.
fn one_by_one(events: &[TraceEvent]) -> Vec<TraceEvent> {
    let (mut late, mut done) = (Nanos::ZERO, Nanos::ZERO);
    let place = |event: &TraceEvent| {
        late = late.max(done.saturating_sub(event.at));
        let (at, latency) = (event.at + late, event.latency.unwrap_or(Nanos(50_000)));
        if event.kind.is_request() {
            done = at + latency;
        }
        TraceEvent { at, latency: Some(latency), ..*event }
    };
    events.iter().map(place).collect()
}

/// A drive whose blocks are never collected, as it has many more than a trace writes.
fn roomy() -> Profile {
    let mut profile = profile();
    profile.geometry.over_provisioning.value = 10.0;
    profile.discard.journal_per_range.value = Bytes::ZERO;
    profile
}

proptest! {
    /// The bound keeps the pages that are needed and no other, to the sector, and no policy keeps fewer.
    #[test]
    fn bound_maps_only_the_needed_sectors(
        events in events(), odd in prop::collection::vec((0..8u64, 0..8u64), 300),
    ) {
        let parts = events.iter().zip(odd).map(|(event, (from, to))| {
            let Extent { start, end } = event.extent;
            let (from, to) = (Bytes(start.0 + from * 512), Bytes(end.0.saturating_sub(to * 512)));
            let extent = if event.extent.is_empty() { event.extent } else { Extent::new(from, to.max(from)) };
            TraceEvent { extent, ..*event }
        });
        let events: Vec<_> = parts.collect();
        let profile = profile();
        let bound = replayed(&events, Discards::Ideal, 1);
        prop_assert_eq!(mapped_at_end(&bound, &profile), naive_needed(&events));
        prop_assert_eq!((bound.counters.discards, bound.pending), (0, Bytes::ZERO));
        for name in ["trace", "none", "online", "batched", "batched:1ms", "smart"] {
            let engine = if name == "trace" { Discards::Trace } else { policy(name) };
            let kept = mapped_at_end(&replayed(&events, engine, 1), &profile);
            prop_assert!(kept >= mapped_at_end(&bound, &profile), "{}: {}", name, kept);
        }
    }

    /// Where no block is collected and requests come one by one, nobody waits less than with the bound:
    /// discards only hold requests up, and reads of what is free cost the most where it is still kept. Chance
    /// has no part in it then: with collections that is which blocks are picked, with overlapping requests
    /// whether a pause of one falls into the wait of another.
    #[test]
    fn no_policy_waits_less_than_the_bound(events in events(), queued in prop::bool::ANY) {
        let events = one_by_one(&events);
        let mut profile = roomy();
        profile.discard.queued.value = queued;
        let span = TraceSurvey::of(&mut in_memory(&events), &mut |_| true).unwrap().span;
        let waited = |discards| {
            let outcome = passed(&profile, &events, span.0, discards);
            assert_eq!(outcome.counters.copied_pages, 0, "no block is collected");
            outcome.waited_ns
        };
        let bound = waited(Discards::Ideal);
        for name in ["trace", "none", "online", "batched", "batched:1ms", "smart"] {
            let engine = if name == "trace" { Discards::Trace } else { policy(name) };
            let waited = waited(engine);
            prop_assert!(bound <= waited, "{}: {} and {}", name, waited.0, bound.0);
        }
    }
}

/// A discard that takes long, beside which the host writes, thinks and writes.
fn beside_a_long_discard(at: u64) -> Vec<TraceEvent> {
    let mut events = vec![
        event(0, EventKind::Write, pages(0, 1)),
        event(at, EventKind::Discard, pages(100, 1)),
        event(1_000_000, EventKind::Write, pages(1, 1)),
        event(900_000_000, EventKind::Write, pages(2, 1)),
    ];
    events.sort_by_key(|event| event.at);
    events
}

#[test]
fn recorded_discards_are_waited_for_only_by_requests_in_their_way() {
    let mut profile = profile();
    profile.discard.command.value = Nanos(100_000_000);
    let waited = |events: &[TraceEvent], queued: bool| {
        let mut profile = profile.clone();
        profile.discard.queued.value = queued;
        let outcome = passed(&profile, events, 1_000_000_000, Discards::Trace);
        assert_eq!(outcome.counters.discards, u64::from(events.len() == 4));
        outcome.waited_ns
    };
    let writes: Vec<_> =
        beside_a_long_discard(0).into_iter().filter(|it| it.kind == EventKind::Write).collect();
    let alone = waited(&writes, false);
    assert!(alone < Nanos(1_000_000), "{alone:?}");
    // Queued discards hold nobody up, and one in a pause holds nobody up either.
    assert_eq!(waited(&beside_a_long_discard(500_000), true), alone);
    assert_eq!(waited(&beside_a_long_discard(2_000_000), false), alone);
    // The write that comes half a millisecond after it waits for the rest of it.
    let met = waited(&beside_a_long_discard(500_000), false).saturating_sub(alone);
    assert!(met > Nanos(99_000_000) && met < Nanos(100_000_000), "{met:?}");
}

#[test]
fn recorded_discard_costs_as_much_as_that_of_a_policy() {
    let mut profile = profile();
    profile.discard.queued.value = false;
    profile.discard.command.value = Nanos(20_000_000);
    // Files are deleted and others written. In the recording, each was discarded a moment after.
    let (mut frees, mut recorded) = (Vec::new(), Vec::new());
    for n in 0..50 {
        let at = n * 30_000_000;
        let write = event(at + 3_000_000, EventKind::Write, pages(1000 + n, 1));
        frees.extend([event(at, EventKind::Free, pages(4 * n, 2)), write]);
        recorded.extend([event(at, EventKind::Discard, pages(4 * n, 2)), write]);
    }
    let outcome = |events: &[TraceEvent], discards| passed(&profile, events, 2_000_000_000, discards);
    let (own, online) = (outcome(&recorded, Discards::Trace), outcome(&frees, policy("online")));
    assert_eq!((own.counters.discards, online.counters.discards), (50, 50));
    assert_eq!(own.waited_ns, online.waited_ns);
    assert!(own.waited_ns > Nanos(50 * 10_000_000), "each write meets a discard: {:?}", own.waited_ns);
}

#[test]
fn late_discards_of_a_slow_drive_keep_data_written_since() {
    let mut profile = profile();
    profile.discard.queued.value = false;
    profile.discard.command.value = Nanos(500_000_000);
    let events = [
        event(0, EventKind::Discard, pages(0, 10)),
        event(100_000, EventKind::Discard, pages(10, 10)),
        event(200_000, EventKind::Discard, pages(20, 10)),
        event(300_000, EventKind::Write, pages(10, 4)),
        event(400_000, EventKind::Write, pages(20, 10)),
    ];
    let outcome = passed(&profile, &events, 1_000_000, Discards::Trace);
    assert_eq!((outcome.counters.discards, outcome.counters.discard_bytes), (3, Bytes(30 * PAGE)));
    assert!(outcome.counters.discard_busy_ns >= Nanos(1_500_000_000), "all of their time is spent");
    assert_eq!(mapped_at_end(&outcome, &profile), PAGES - 16);
}

#[test]
fn bound_takes_no_time_and_saves_the_most_copies() {
    // Most is written at random, again and again; a tenth was never used, and one is deleted at once.
    let tenth = PAGES / 10;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut write = |n: u64| event(n * 100_000, EventKind::Write, pages(rng.random_range(0..8 * tenth), 1));
    let mut events = vec![
        event(0, EventKind::Unused, pages(8 * tenth, tenth)),
        event(1, EventKind::Free, pages(9 * tenth, tenth)),
    ];
    events.extend((0..20_000).map(&mut write));
    let bound = replayed(&events, Discards::Ideal, 1);
    let waf = |outcome: &ReplayOutcome| outcome.counters.waf().unwrap();
    let wafs = ["batched:100ms", "online", "none"].map(|name| waf(&replayed(&events, policy(name), 1)));
    assert!(waf(&bound) < wafs[0] && wafs.is_sorted_by(|less, more| less < more), "{} {wafs:?}", waf(&bound));
    assert_eq!((bound.counters.discards, bound.counters.discard_busy_ns), (0, Nanos::ZERO));
    assert_eq!((bound.counters.journal_pages, bound.pending), (0, Bytes::ZERO));
}

#[test]
fn think_times_are_kept_and_a_slow_drive_slows_the_trace_down() {
    let second = 1_000_000_000;
    let reads: Vec<_> = (0..5).map(|n| event(n * second, EventKind::Read, pages(n, 1))).collect();
    let mut slow = profile();
    slow.timing.read.value = Nanos(2 * second);
    let outcome = passed(&slow, &reads, 5 * second, Discards::Trace);
    let thought = 4 * (second - 50_000);
    let model = outcome.counters.model_ns.0;
    assert_eq!(model, outcome.waited_ns.0 + thought, "reads and think times follow one another");
    assert!(outcome.waited_ns > Nanos(10 * second) && outcome.trace_ns == Nanos(5 * second));
}

#[test]
fn rewritten_extents_are_not_trimmed() {
    let events = [
        event(0, EventKind::Unused, pages(1000, 10)),
        event(10, EventKind::Free, pages(0, 100)),
        event(20, EventKind::Write, pages(40, 20)),
        event(30, EventKind::Allocate, pages(90, 10)),
        event(200_000, EventKind::Discard, pages(500, 1)),
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
fn timer_follows_the_time_of_the_trace() {
    let hour = 3_600_000_000_000;
    let events = [
        event(hour / 2, EventKind::Free, pages(0, 1)),
        event(hour * 3 / 2, EventKind::Free, pages(10, 1)),
        event(hour * 5 / 2, EventKind::Free, pages(20, 1)),
        event(hour * 11 / 4, EventKind::Write, pages(20, 1)),
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
    let mut events: Vec<_> = (0..50).map(|n| event(0, EventKind::Free, pages(2 * n, 1))).collect();
    events
        .extend((0..100).map(|n| event(1_000_000 * (n + 1) + 500_000, EventKind::Write, pages(1000 + n, 1))));
    let span = Nanos(200_000_000);
    let mut replay = Replay::new(&options(&profile, span), policy("batched:1ms")).unwrap();
    replay.pass(&mut in_memory(&events), &mut |_| true).unwrap();
    let outcome = replay.outcome();
    assert_eq!(outcome.counters.discards, 50);
    assert!(outcome.writes.max_ns < Nanos(11_000_000), "{:?}", outcome.writes);
    assert!(outcome.writes.max_ns > Nanos(5_000_000), "{:?}", outcome.writes);
}

#[test]
fn long_trim_is_split_into_commands_that_the_drive_takes() {
    let mut profile = profile();
    profile.discard.command_limit.value = Bytes(30 * PAGE);
    profile.discard.advertised_granularity.value = Bytes(4 * PAGE);
    let events = [event(0, EventKind::Free, pages(0, 100)), event(0, EventKind::Free, pages(200, 3))];
    let mut replay = Replay::new(&options(&profile, Nanos(1)), policy("batched")).unwrap();
    replay.pass(&mut in_memory(&events), &mut |_| true).unwrap();
    let outcome = replay.outcome();
    assert_eq!((outcome.counters.discards, outcome.counters.discard_bytes), (4, Bytes(100 * PAGE)));
    assert_eq!(outcome.pending, Bytes(3 * PAGE), "a trim leaves what is shorter than the granularity");
}

#[test]
fn an_extent_past_the_end_is_refused_with_its_row() {
    let events = [event(0, EventKind::Write, pages(0, 1)), event(1, EventKind::Write, pages(PAGES - 1, 2))];
    let profile = profile();
    let mut replay = Replay::new(&options(&profile, Nanos(9)), Discards::Trace).unwrap();
    let error = replay.pass(&mut in_memory(&events), &mut |_| true).unwrap_err();
    assert!(matches!(error, ReplayError::PastEnd { row: 2, .. }), "{error}");

    let failed = TraceEvent { error: 5, ..events[1] };
    let mut replay = Replay::new(&options(&profile, Nanos(9)), Discards::Trace).unwrap();
    replay.pass(&mut in_memory(&[events[0], failed]), &mut |_| true).unwrap();
    assert_eq!((replay.outcome().failed, replay.outcome().counters.host_pages), (1, 1));

    let scale = Scale { from: Bytes((PAGES + 1) * PAGE), to: Bytes(PAGES * PAGE) };
    let scaled = ReplayOptions { scale: Some(scale), ..options(&profile, Nanos(9)) };
    let mut replay = Replay::new(&scaled, Discards::Trace).unwrap();
    replay.pass(&mut in_memory(&events), &mut |_| true).unwrap();
    assert_eq!(replay.outcome().counters.host_pages, 3);
}

#[test]
fn other_devices_are_ignored_and_watchers_end_the_replay() {
    let mut events =
        vec![event(0, EventKind::Write, pages(0, 1)), event(0, EventKind::Write, pages(PAGES + 9, 1))];
    events[1].device = DeviceIndex(1);
    assert_eq!(replayed(&events, Discards::Trace, 1).events, 1);
    let profile = profile();
    let mut replay = Replay::new(&options(&profile, Nanos(9)), Discards::Trace).unwrap();
    let error = replay.pass(&mut in_memory(&events), &mut |_| false).unwrap_err();
    assert!(matches!(error, ReplayError::Stopped), "{error}");
}

#[test]
fn a_long_replay_has_no_more_points_than_a_short_one() {
    let events: Vec<_> = (0..2000).map(|n| event(n * 1000, EventKind::Write, pages(n % PAGES, 1))).collect();
    for passes in [1, 2, 9] {
        let reserve = replayed(&events, policy("none"), passes).reserve;
        assert!((150..=400).contains(&reserve.len()), "{passes}: {}", reserve.len());
        assert!(reserve.is_sorted_by_key(|point| point.trace_ns));
    }
}
