//! The smart policy on the flash model: as few copies as with online discards, for a fraction of the
//! commands; and over days of mixed work nothing is left behind.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::document::sim::{Clocks, ReplayOutcome};
use trimtab_core::policy::{Event, Goals, Policy, PolicyChoice, SmartPolicy, TrimRequest};
use trimtab_core::profile::Profile;
use trimtab_core::trace::{Comm, DeviceIndex, EventKind, TraceEvent};
use trimtab_core::{Bytes, Extent, Nanos};
use trimtab_ftl::replay::{Discards, Replay, ReplayOptions};

mod common;

use common::in_memory;

const SIZE: Bytes = Bytes(1 << 30);
/// The unit in which space is taken and given up.
const SLOT: u64 = 256 << 10;

/// Bursts of files that are deleted and written, a minute of peace after each.
fn churn(seed: u64) -> Vec<TraceEvent> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut at = 0;
    let mut events = Vec::new();
    let mut used: Vec<u64> = (0..SIZE.0 / SLOT).collect();
    let mut free: Vec<u64> = Vec::new();
    for _ in 0..30 {
        // A quarter is deleted, in stretches of neighbours; then as much is written.
        for _ in 0..SIZE.0 / SLOT / 4 / 16 {
            let from = rng.random_range(0..used.len() - 16);
            for slot in used.drain(from..from + 16) {
                at += 1_000_000;
                events.push(event(at, EventKind::Free, of_slot(slot)));
                free.push(slot);
            }
        }
        at += 60_000_000_000;
        for _ in 0..free.len() {
            at += 2_000_000;
            let slot = free.swap_remove(rng.random_range(0..free.len()));
            events.push(event(at, EventKind::Allocate, of_slot(slot)));
            events.push(event(at, EventKind::Write, of_slot(slot)));
            used.push(slot);
        }
        used.sort_unstable();
        at += 60_000_000_000;
    }
    events
}

fn of_slot(slot: u64) -> Extent {
    Extent::at(Bytes(slot * SLOT), Bytes(SLOT))
}

fn event(at: u64, kind: EventKind, extent: Extent) -> TraceEvent {
    TraceEvent {
        at: Nanos(at),
        device: DeviceIndex(0),
        kind,
        extent,
        latency: kind.is_request().then_some(Nanos(1_000_000)),
        process: Comm::new(b"churn"),
        error: 0,
        fs: None,
    }
}

fn engine(profile: &Profile, policy: &str) -> Box<dyn Policy> {
    let engine = policy.parse::<PolicyChoice>().unwrap().engine();
    engine.unwrap_or_else(|| Box::new(SmartPolicy::of_drive(profile, SIZE)))
}

fn replayed(events: &[TraceEvent], profile: &Profile, policy: Box<dyn Policy>) -> ReplayOutcome {
    let span = Nanos(events.last().unwrap().at.0 + 1);
    let options = ReplayOptions {
        profile,
        size: SIZE,
        preconditioned: true,
        device: DeviceIndex(0),
        scale: None,
        span,
        clocks: Clocks::default(),
    };
    let mut replay = Replay::new(&options, Discards::Policy(policy)).unwrap();
    replay.pass(&mut in_memory(events), &mut |_| true).unwrap();
    replay.outcome()
}

#[test]
fn smart_saves_what_online_saves_with_fewer_commands() {
    let profile = Profile::named("micron-m500it").unwrap();
    for seed in [1, 2] {
        let events = churn(seed);
        let [none, online, smart] =
            ["none", "online", "smart"].map(|name| replayed(&events, &profile, engine(&profile, name)));
        let waf = |outcome: &ReplayOutcome| outcome.counters.waf().unwrap();
        assert!(waf(&none) > 1.1 * waf(&online), "discards matter: {} and {}", waf(&none), waf(&online));
        assert!(waf(&smart) < 1.02 * waf(&online), "{} and {}", waf(&smart), waf(&online));
        let (few, many) = (smart.counters.discards, online.counters.discards);
        assert!(few * 4 < many, "{few} and {many}");
        let held = |outcome: &ReplayOutcome| outcome.counters.discard_busy_ns.seconds();
        assert!(held(&smart) * 4.0 < held(&online), "{} and {}", held(&smart), held(&online));
    }
}

/// How many seconds the host waits for a drive of `profile` with the policy smart, which goes by `believed`.
fn waited(events: &[TraceEvent], profile: &Profile, believed: &Profile) -> f64 {
    replayed(events, profile, engine(believed, "smart")).waited_ns.seconds()
}

#[test]
fn wrong_costs_of_discards_are_soon_corrected() {
    let events = churn(3);
    let profile = Profile::named("micron-m500it").unwrap();
    let exact = waited(&events, &profile, &profile);
    for factor in [0.1, 10.0] {
        let mut believed = profile.clone();
        let costs = &mut believed.discard;
        for cost in [&mut costs.command, &mut costs.range, &mut costs.per_gib] {
            cost.value = Nanos::from_seconds(cost.value.seconds() * factor);
        }
        let wait = waited(&events, &profile, &believed);
        assert!(wait < 1.1 * exact, "costs {factor} times those of the drive: {wait} s, exact {exact} s");
    }
    let other = Profile::named("nvme-tlc").unwrap();
    let wait = waited(&events, &profile, &other);
    assert!(wait < 1.1 * exact, "the profile of another kind: {wait} s, exact {exact} s");
}

const MINUTE: u64 = 60_000_000_000;
const DAY: Nanos = Nanos(24 * 60 * MINUTE);
/// The unit in which files of mixed sizes take space.
const GRAIN: u64 = 16 << 10;

/// A file system whose files come and go.
struct Files {
    rng: Xoshiro256PlusPlus,
    at: u64,
    free: Vec<bool>,
    used: usize,
    /// Where space was taken last: the next is looked for from there on.
    next: usize,
    /// The grains of each file.
    files: Vec<Vec<usize>>,
    events: Vec<TraceEvent>,
}

impl Files {
    fn new(seed: u64) -> Self {
        let grains = (SIZE.0 / GRAIN) as usize;
        let mut files = Self {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            at: 0,
            free: vec![true; grains],
            used: 0,
            next: 0,
            files: Vec::new(),
            events: Vec::new(),
        };
        while files.used() < 0.7 {
            files.create();
            files.at += 250_000_000;
        }
        files
    }

    fn used(&self) -> f64 {
        self.used as f64 / self.free.len() as f64
    }

    /// Files from 16 KiB to 4 MiB, small ones more often.
    fn create(&mut self) {
        let length = 1 << self.rng.random_range(0..9_u32);
        let mut grains = Vec::new();
        while grains.len() < length {
            if std::mem::take(&mut self.free[self.next]) {
                grains.push(self.next);
            }
            self.next = (self.next + 1) % self.free.len();
        }
        self.used += grains.len();
        for kind in [EventKind::Allocate, EventKind::Write] {
            self.tell(kind, &grains);
        }
        self.files.push(grains);
    }

    fn delete(&mut self) {
        let file = self.rng.random_range(0..self.files.len());
        let grains = self.files.swap_remove(file);
        grains.iter().for_each(|grain| self.free[*grain] = true);
        self.used -= grains.len();
        self.tell(EventKind::Free, &grains);
    }

    fn tell(&mut self, kind: EventKind, grains: &[usize]) {
        for run in grains.chunk_by(|one, next| one + 1 == *next) {
            let extent = Extent::at(Bytes(run[0] as u64 * GRAIN), Bytes(run.len() as u64 * GRAIN));
            self.events.push(event(self.at, kind, extent));
        }
    }

    /// Works for some minutes: in every `pause` a file is deleted or created, while this many reads go on.
    fn work(&mut self, minutes: u64, pause: u64, reads: u64) {
        let end = self.at + minutes * MINUTE;
        while self.at < end {
            // Mostly as many as there were; now and then many more go than come.
            let used = self.used();
            if used > 0.6 && self.rng.random_bool(0.55) || used > 0.8 {
                self.delete();
            } else {
                self.create();
            }
            self.at += pause;
            for read in 0..reads {
                let grain = self.rng.random_range(0..self.free.len() as u64);
                let extent = Extent::at(Bytes(grain * GRAIN), Bytes(4096));
                let at = self.at - pause + pause / reads * (read + 1);
                self.events.push(event(at, EventKind::Read, extent));
            }
        }
    }

    /// Bursts by day with pauses of a quarter of an hour, two hours without any pause in the afternoon, and a
    /// file now and then by night.
    fn day(&mut self) {
        for hour in 0..24 {
            match hour {
                8..=13 | 16..=18 => (0..3).for_each(|_| {
                    self.work(5, 250_000_000, 0);
                    self.at += 15 * MINUTE;
                }),
                14 | 15 => self.work(60, 250_000_000, 5),
                _ => self.work(60, 10 * MINUTE, 0),
            }
        }
    }
}

/// The most that was pending at a time.
#[derive(Debug, Clone, Copy, Default)]
struct Most {
    bytes: Bytes,
    extents: usize,
    age: Duration,
}

/// The smart policy, watched: the most that was pending in each day.
struct Watched {
    policy: SmartPolicy,
    days: Arc<Mutex<Vec<Most>>>,
}

impl Policy for Watched {
    fn on_event(&mut self, at: Duration, event: &Event) -> Vec<TrimRequest> {
        let requests = self.policy.on_event(at, event);
        let day = (at.as_nanos() / u128::from(DAY.0)) as usize;
        let mut days = self.days.lock().unwrap();
        if days.len() <= day {
            days.resize(day + 1, Most::default());
        }
        let (pending, most) = (self.policy.pending(), &mut days[day]);
        most.bytes = most.bytes.max(pending.len());
        most.extents = most.extents.max(pending.count());
        if *event == Event::Wake {
            let age = pending.oldest().map_or(Duration::ZERO, |since| at - since);
            most.age = most.age.max(age);
        }
        requests
    }

    fn takes_refusals(&self) -> bool {
        self.policy.takes_refusals()
    }

    fn next_wake(&self) -> Option<Duration> {
        self.policy.next_wake()
    }
}

/// The least of its flash that holds nothing of use, on the second day.
fn least_reserve(outcome: &ReplayOutcome) -> f64 {
    let second = outcome.reserve.iter().filter(|point| point.trace_ns >= DAY);
    second.map(|point| point.free_share).fold(1.0, f64::min)
}

#[test]
fn mixed_work_of_two_days_leaves_no_overdue_extents() {
    let mut files = Files::new(1);
    (0..2).for_each(|_| files.day());
    for name in ["micron-m500it", "ocz-agility-3"] {
        let profile = Profile::named(name).unwrap();
        let days = Arc::new(Mutex::new(Vec::new()));
        let policy = SmartPolicy::of_drive(&profile, SIZE);
        let smart = replayed(&files.events, &profile, Box::new(Watched { policy, days: days.clone() }));
        let [none, online] =
            ["none", "online"].map(|name| replayed(&files.events, &profile, engine(&profile, name)));
        let days = days.lock().unwrap();
        let [first, second] = days[..] else { panic!("there are two days: {days:?}") };
        for most in [first, second] {
            assert!(most.age <= Goals::default().max_age, "{name}: {most:?}");
        }
        // At most a file or two are pending at a time, and the largest have 4 MiB.
        let most = 1.1 * first.bytes.0 as f64 + f64::from(4 << 20);
        assert!(second.bytes.0 as f64 <= most, "{name}: {first:?}, then {second:?}");
        assert_eq!(smart.pending, Bytes::ZERO, "{name}: a quiet night is enough");
        // The drive gets into the state that online discards keep it from neither in what it has in reserve nor in
        // what it has to clean for that, though its commands are long and two hours have no pause.
        let [none_low, low, online_low] = [&none, &smart, &online].map(least_reserve);
        assert!(low > 0.75 * online_low, "{name}: {low}, online {online_low}, none {none_low}");
        let erases = |outcome: &ReplayOutcome| outcome.counters.erases as f64;
        let (extra, avoided) = (erases(&smart) - erases(&online), erases(&none) - erases(&online));
        assert!(extra < 0.1 * avoided, "{name}: {extra} more than online, and none {avoided} more");
        let [stalls, least] = [&smart, &online].map(|outcome| outcome.writes.p99_ns.seconds());
        assert!(stalls < 1.2 * least, "{name}: {stalls} s and {least} s");
    }
}

#[test]
fn smart_trims_initially_unused_space() {
    let profile = Profile::named("micron-m500it").unwrap();
    let unused = Extent::at(Bytes::ZERO, Bytes(SIZE.0 / 2));
    let events = [
        event(0, EventKind::Unused, unused),
        event(MINUTE, EventKind::Write, of_slot(4000)),
        event(2 * MINUTE, EventKind::Flush, Extent::at(Bytes::ZERO, Bytes::ZERO)),
    ];
    let [smart, online] = ["smart", "online"].map(|name| replayed(&events, &profile, engine(&profile, name)));
    assert_eq!((smart.counters.discard_bytes, smart.pending), (unused.len(), Bytes::ZERO));
    assert_eq!((online.counters.discard_bytes, online.pending), (Bytes::ZERO, unused.len()));
}
