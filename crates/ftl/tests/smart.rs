//! The smart policy on the flash model: as few copies as with online discards, for a fraction of the
//! commands.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::document::sim::ReplayOutcome;
use trimtab_core::policy::{PolicyChoice, SmartPolicy};
use trimtab_core::profile::Profile;
use trimtab_core::trace::{Comm, DeviceIndex, Kind, TraceEvent};
use trimtab_core::{Bytes, Extent, Nanos};
use trimtab_ftl::replay::{Discards, Replay, ReplayOptions};

mod common;

use common::Memory;

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
                events.push(event(at, Kind::Free, slot));
                free.push(slot);
            }
        }
        at += 60_000_000_000;
        for _ in 0..free.len() {
            at += 2_000_000;
            let slot = free.swap_remove(rng.random_range(0..free.len()));
            events.push(event(at, Kind::Allocate, slot));
            events.push(event(at, Kind::Write, slot));
            used.push(slot);
        }
        used.sort_unstable();
        at += 60_000_000_000;
    }
    events
}

fn event(at: u64, kind: Kind, slot: u64) -> TraceEvent {
    TraceEvent {
        at: Nanos(at),
        device: DeviceIndex(0),
        kind,
        extent: Extent::at(Bytes(slot * SLOT), Bytes(SLOT)),
        latency: kind.is_request().then_some(Nanos(1_000_000)),
        process: Comm::new(b"churn"),
        error: 0,
        fs: None,
    }
}

fn replayed(events: &[TraceEvent], profile: &Profile, policy: &str) -> ReplayOutcome {
    let span = Nanos(events.last().unwrap().at.0 + 1);
    let options = ReplayOptions {
        profile,
        size: SIZE,
        preconditioned: true,
        device: DeviceIndex(0),
        scale: None,
        span,
    };
    let smart = || Box::new(SmartPolicy::of_drive(profile, SIZE));
    let engine = policy.parse::<PolicyChoice>().unwrap().engine().unwrap_or_else(|| smart());
    let mut replay = Replay::new(&options, Discards::Policy(engine)).unwrap();
    replay.pass(&mut Memory::new(events), &mut |_| true).unwrap();
    replay.outcome()
}

#[test]
fn smart_saves_what_online_saves_with_fewer_commands() {
    let profile = Profile::named("micron-m500it").unwrap();
    for seed in [1, 2] {
        let events = churn(seed);
        let [none, online, smart] = ["none", "online", "smart"].map(|name| replayed(&events, &profile, name));
        let waf = |outcome: &ReplayOutcome| outcome.counters.waf().unwrap();
        assert!(waf(&none) > 1.1 * waf(&online), "discards matter: {} and {}", waf(&none), waf(&online));
        assert!(waf(&smart) < 1.02 * waf(&online), "{} and {}", waf(&smart), waf(&online));
        let (few, many) = (smart.counters.discards, online.counters.discards);
        assert!(few * 4 < many, "{few} and {many}");
        let held = |outcome: &ReplayOutcome| outcome.counters.discard_busy_ns.seconds();
        assert!(held(&smart) * 4.0 < held(&online), "{} and {}", held(&smart), held(&online));
    }
}
