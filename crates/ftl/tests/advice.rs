//! For each mechanism a trace whose best policy depends on it.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::document::sim::{Clocks, ReplayOutcome};
use trimtab_core::policy::PolicyChoice;
use trimtab_core::profile::{Aging, GcPolicy, Idle, MapCache, Profile, Slc, Sourced, Suspend, Wear};
use trimtab_core::trace::{Comm, DeviceIndex, EventKind, TraceEvent};
use trimtab_core::{Bytes, Extent, Nanos, Pages};
use trimtab_ftl::replay::{Discards, Replay, ReplayOptions};
use trimtab_ftl::{Ftl, FtlConfig, Untimed};

mod common;

use common::in_memory;

const SIZE: Bytes = Bytes(256 << 20);
const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
const PAGES_PER_MIB: u64 = 256;

fn sourced<T>(value: T) -> Sourced<T> {
    Sourced { value, source: "a test".to_owned() }
}

fn profile() -> Profile {
    let mut profile = Profile::named("nvme-tlc").unwrap();
    let geometry = &mut profile.geometry;
    geometry.program_unit.value = Bytes(16 << 10);
    geometry.erase_block.value = Bytes(MIB);
    geometry.over_provisioning.value = 51.0 / 256.0;
    geometry.channels.value = 2;
    geometry.dies_per_channel.value = 2;
    profile.timing.write_buffer.value = Bytes(MIB / 4);
    profile.timing.erase.value = Nanos(2_000_000);
    profile
}

fn event(at: u64, kind: EventKind, start: u64, length: u64) -> TraceEvent {
    TraceEvent {
        at: Nanos(at),
        device: DeviceIndex(0),
        kind,
        extent: Extent::at(Bytes(start), Bytes(length)),
        latency: kind.is_request().then_some(Nanos(50_000)),
        process: Comm::default(),
        error: 0,
        fs: None,
    }
}

fn replayed(profile: &Profile, events: &[TraceEvent], preconditioned: bool, policy: &str) -> ReplayOutcome {
    let engine = policy.parse::<PolicyChoice>().unwrap().engine().expect("not smart");
    replayed_with(profile, events, preconditioned, Discards::Policy(engine))
}

fn replayed_with(
    profile: &Profile,
    events: &[TraceEvent],
    preconditioned: bool,
    discards: Discards,
) -> ReplayOutcome {
    let span = Nanos(events.last().unwrap().at.0 + 20 * SECOND);
    let device = DeviceIndex(0);
    let options = ReplayOptions {
        profile,
        size: SIZE,
        preconditioned,
        device,
        scale: None,
        span,
        clocks: Clocks::default(),
    };
    let mut replay = Replay::new(&options, discards).unwrap();
    replay.pass(&mut in_memory(events), &mut |_| true).unwrap();
    replay.outcome()
}

/// Files of 8 MiB that live for half a second, one every 20 seconds.
fn short_lived() -> Vec<TraceEvent> {
    let file = |number: u64| {
        let (at, start) = (number * 20 * SECOND, number * 8 * MIB);
        let write = move |part: u64| event(at + part * 1_000_000, EventKind::Write, start + part * MIB, MIB);
        (0..8).map(write).chain([event(at + SECOND / 2, EventKind::Free, start, 8 * MIB)])
    };
    (0..12).flat_map(file).collect()
}

#[test]
fn a_cache_makes_early_discards_of_short_lived_files_worth_more_than_late_ones() {
    let events = short_lived();
    let copied = |profile: &Profile| {
        ["none", "batched:10s", "online"]
            .map(|policy| replayed(profile, &events, false, policy).counters.copied_pages)
    };
    let mut profile = profile();
    assert_eq!(copied(&profile), [0, 0, 0], "without a cache nobody copies: all are as good");
    profile.idle = Some(Idle { after: sourced(Nanos(SECOND)), reserve: sourced(0.0) });
    profile.slc = Some(Slc {
        bits_per_cell: sourced(3),
        program: sourced(Nanos(100_000)),
        static_size: sourced(16.0 / 256.0),
        dynamic_size: sourced(0.0),
    });
    // The last file is followed by no command, before which it would be folded.
    let all = 11 * 8 * PAGES_PER_MIB;
    let [none, batched, online] = copied(&profile);
    assert_eq!(none, all, "each file is folded");
    assert!(batched >= all, "as it is before the batch: {batched}");
    assert_eq!(online, 0, "discarded in time");
}

/// Bursts of 16 MiB over the same part of a full drive, a minute apart.
fn bursts() -> Vec<TraceEvent> {
    let burst = |number: u64| {
        let write = move |part: u64| {
            // Pages in an order that leaves no block wholly invalid.
            let page = (number * 7919 + part * 6151) % (SIZE.0 / 4096);
            event(number * 60 * SECOND + part * 20_000, EventKind::Write, page * 4096, 4096)
        };
        (0..4096).map(write)
    };
    (0..24).flat_map(burst).collect()
}

#[test]
fn idle_cleaning_takes_the_stalls_of_bursts_from_a_drive_without_discards() {
    let events = bursts();
    let mut profile = profile();
    let busy = replayed(&profile, &events, true, "none");
    profile.idle = Some(Idle { after: sourced(Nanos(SECOND / 10)), reserve: sourced(0.08) });
    let idle = replayed(&profile, &events, true, "none");
    assert!(busy.counters.copied_pages > 0, "the drive has to clean");
    let worst = |outcome: &ReplayOutcome| outcome.waited_ns.seconds();
    assert!(worst(&idle) < 0.8 * worst(&busy), "{} s for {} s", worst(&idle), worst(&busy));
    assert!(idle.counters.erases >= busy.counters.erases, "which is paid for in erases");
}

#[test]
fn lazy_discards_return_at_once_and_are_felt_by_reads() {
    // All is freed, and read from elsewhere while the batch is processed.
    let mut events = vec![event(0, EventKind::Free, 0, 128 * MIB)];
    let read =
        |number: u64| event(10 * SECOND + number * 200_000, EventKind::Read, 200 * MIB + number * 4096, 4096);
    events.extend((0..2000).map(read));
    let mut profile = profile();
    profile.discard.per_mapped_gib = Some(sourced(Nanos(4 * SECOND)));
    let eager = replayed(&profile, &events, true, "batched:10s");
    profile.discard.lazy_share = Some(sourced(0.5));
    let lazy = replayed(&profile, &events, true, "batched:10s");
    assert!(lazy.counters.discard_busy_ns.0 * 10 < eager.counters.discard_busy_ns.0, "it seems free");
    let slower = lazy.reads.p50_ns.seconds() / eager.reads.p50_ns.seconds();
    assert!(slower > 1.5, "but reads take {slower} times as long");
}

#[test]
fn discards_that_take_a_share_of_the_dies_are_felt_by_reads_as_a_large_batch() {
    // Half of the drive is freed, and read from elsewhere while the batch is discarded.
    let mut events = vec![event(0, EventKind::Free, 0, 128 * MIB)];
    let read =
        |number: u64| event(10 * SECOND + number * 200_000, EventKind::Read, 200 * MIB + number * 4096, 4096);
    events.extend((0..2000).map(read));
    let median = |profile: &Profile| {
        ["none", "batched:10s"].map(|policy| replayed(profile, &events, true, policy).reads.p50_ns.seconds())
    };
    let mut profile = profile();
    profile.discard.per_gib.value = Nanos(4 * SECOND);
    let [none, batched] = median(&profile);
    assert_eq!(none, batched, "discards harm nobody, however many come at once");
    profile.discard.busy_share = Some(sourced(0.5));
    let [none, batched] = median(&profile);
    assert!(batched > 1.5 * none, "a batch has to be paced: reads take {batched} s, {none} s without it");
}

#[test]
fn a_map_on_the_flash_makes_scattered_discards_cost_more_than_those_in_order() {
    // Pieces of 64 KiB, freed in an order that has nothing to do with their places.
    const PIECES: u64 = 4096;
    let free = |number: u64| {
        let piece = number * 1597 % PIECES;
        event(number * 2_000_000, EventKind::Free, piece * MIB / 16, MIB / 16)
    };
    let events: Vec<_> = (0..PIECES).map(free).collect();
    let own_pages = |profile: &Profile| {
        ["online", "batched:10s"].map(|policy| {
            let counters = replayed(profile, &events, true, policy).counters;
            counters.map_pages + counters.journal_pages
        })
    };
    let mut profile = profile();
    let [online, batched] = own_pages(&profile);
    assert!(online <= 16 && batched <= online, "{online} and {batched}: nobody cares");
    // A page of the map is for 256 KiB.
    profile.map_cache = Some(MapCache { share: sourced(16.0 / 1024.0), entry: sourced(Bytes(64)) });
    let [online, batched] = own_pages(&profile);
    assert!(online > PIECES * 9 / 10, "each piece has another page of the map: {online}");
    assert!(batched <= 1024 + 16, "a batch has each page of the map once: {batched}");
}

#[test]
fn commands_of_several_ranges_make_online_discards_nearly_as_cheap_as_a_batch() {
    // 64 deletes of 128 pieces each, which are never neighbours.
    let free = |number: u64| {
        let place = number * 2 * (MIB / 64);
        event(number / 128 * SECOND / 4, EventKind::Free, place, MIB / 64)
    };
    let events: Vec<_> = (0..64 * 128).map(free).collect();
    let busy = |profile: &Profile| {
        ["online", "batched:30s"]
            .map(|policy| replayed(profile, &events, true, policy).counters.discard_busy_ns.seconds())
    };
    let mut profile = profile();
    let [online, batched] = busy(&profile);
    assert!((online / batched - 1.0).abs() < 0.01, "{online} s and {batched} s: one command each");
    profile.discard.ranges_per_command = Some(sourced(256));
    let [merged, batched] = busy(&profile);
    assert!(merged * 8.0 < online, "{merged} s for {online} s");
    // Each delete is at least one command.
    assert!(merged < 1.5 * batched, "{merged} s for {batched} s");
}

#[test]
fn an_aged_drive_shows_at_once_what_discards_are_worth() {
    // Half of the drive is free, and some MiB of the rest are written over after the batch.
    let place = |number: u64| (number * 7919) % (128 * MIB / 4096) * 4096;
    let write =
        |number: u64| event(20 * SECOND + number * 50_000, EventKind::Write, 128 * MIB + place(number), 4096);
    let events: Vec<_> =
        [event(0, EventKind::Free, 0, 128 * MIB)].into_iter().chain((0..6000).map(write)).collect();
    let copied = |profile: &Profile| {
        ["none", "batched:10s"].map(|policy| replayed(profile, &events, true, policy).counters.copied_pages)
    };
    let mut profile = profile();
    assert_eq!(copied(&profile), [0, 0], "a drive that was filled in order lives on its spare");
    profile.aging = Some(Aging { random_writes: sourced(3.0) });
    let [none, batched] = copied(&profile);
    assert!(none > 2 * batched && none > 6000, "none copies {none}, batched {batched}");
}

#[test]
fn reads_that_go_first_hide_the_cleaning_that_discards_would_save() {
    // Half of the drive is free; after the batch, small writes over the rest, and reads beside them.
    let place = |number: u64| 128 * MIB + (number * 7919) % (128 * MIB / 4096) * 4096;
    let pair = |number: u64| {
        let at = 20 * SECOND + number * 250_000;
        let write = event(at, EventKind::Write, place(number), 4096);
        [write, event(at + 125_000, EventKind::Read, place(number + 5000), 4096)]
    };
    let events: Vec<_> =
        [event(0, EventKind::Free, 0, 128 * MIB)].into_iter().chain((0..30_000).flat_map(pair)).collect();
    let slow = |profile: &Profile| {
        ["none", "batched:10s"].map(|policy| replayed(profile, &events, true, policy).reads.p999_ns.seconds())
    };
    let mut profile = profile();
    profile.aging = Some(Aging { random_writes: sourced(3.0) });
    let [none, batched] = slow(&profile);
    assert!(none > 3.0 * batched, "reads wait for cleaning: {none} s, {batched} s with discards");
    profile.suspend = Some(Suspend { latency: sourced(Nanos(20_000)), resume: sourced(Nanos(5_000)) });
    let [none, batched] = slow(&profile);
    assert!(none < 1.1 * batched, "reads do not: {none} s, {batched} s with discards");
}

#[test]
fn wear_levelling_moves_deleted_data_again_and_again_unless_they_are_discarded() {
    // The first half of the drive is free from the start, the second half is written over in order.
    let round = |number: u64| {
        let write = move |part: u64| {
            event((20 + number) * SECOND + part * 4_000_000, EventKind::Write, (128 + part) * MIB, MIB)
        };
        (0..128).map(write)
    };
    let events: Vec<_> =
        [event(0, EventKind::Free, 0, 128 * MIB)].into_iter().chain((0..60).flat_map(round)).collect();
    let copied = |profile: &Profile| {
        ["none", "batched:10s"].map(|policy| replayed(profile, &events, true, policy).counters.copied_pages)
    };
    let mut profile = profile();
    assert_eq!(copied(&profile), [0, 0], "what is deleted rests below the rest: discards bring nothing");
    profile.wear = Some(Wear { level_at: Some(sourced(8)), ..Wear::default() });
    let [none, batched] = copied(&profile);
    assert!(none > 128 * PAGES_PER_MIB && batched == 0, "none copies {none} pages, batched {batched}");
}

#[test]
fn bad_blocks_take_spare_that_discards_give_back() {
    // Half of the drive is deleted, and pages of the rest are written over three times at random.
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
    let half = 128 * PAGES_PER_MIB;
    let writes = (0..3 * half).map(|number| {
        let page = half + rng.random_range(0..half);
        event(20 * SECOND + number * 1_000_000, EventKind::Write, page * 4096, 4096)
    });
    let events: Vec<_> = [event(0, EventKind::Free, 0, 128 * MIB)].into_iter().chain(writes).collect();
    let copied = |profile: &Profile| {
        ["none", "batched:10s"].map(|policy| replayed(profile, &events, true, policy).counters.copied_pages)
    };
    let mut profile = profile();
    let [none, batched] = copied(&profile);
    profile.wear = Some(Wear { bad_blocks: Some(sourced(0.12)), ..Wear::default() });
    let [none_with_bad, batched_with_bad] = copied(&profile);
    assert!(none_with_bad > 4 * none, "none copies {none_with_bad} pages, {none} without bad blocks");
    assert!(
        batched_with_bad < 2 * batched,
        "batched copies {batched_with_bad} pages, {batched} without bad blocks"
    );
}

#[test]
fn discards_that_cost_by_their_data_make_online_as_cheap_as_a_batch_for_files_that_are_mostly_empty() {
    // Each second a file of 64 MiB takes the same place; 2 MiB of it are written, each time others, and is deleted.
    let file = |number: u64| {
        let at = number * SECOND;
        let write = event(at, EventKind::Write, number % 32 * 2 * MIB, 2 * MIB);
        [write, event(at + SECOND / 2, EventKind::Free, 0, 64 * MIB)]
    };
    let events: Vec<_> = (0..64).flat_map(file).collect();
    let busy = |profile: &Profile| {
        ["online", "batched:30s"]
            .map(|policy| replayed(profile, &events, false, policy).counters.discard_busy_ns.seconds())
    };
    let mut profile = profile();
    profile.discard.per_gib.value = Nanos(SECOND);
    let [online, batched] = busy(&profile);
    assert!(online > 15.0 * batched, "all that is named costs: {online} s, {batched} s in batches");
    profile.discard.per_gib.value = Nanos::ZERO;
    profile.discard.per_mapped_gib = Some(sourced(Nanos(SECOND)));
    let [online, batched] = busy(&profile);
    assert!(online < 1.2 * batched, "what was written costs: {online} s, {batched} s in batches");
}

#[test]
fn drives_that_work_on_several_discards_favour_a_file_system_that_sends_them_together() {
    // A delete of 64 pieces, which are never neighbours, once a second: freed for the policies, and discarded at once
    // by the file system.
    let piece = |number: u64| {
        let (at, place) = (number / 64 * SECOND, number * 2 * (MIB / 16));
        [EventKind::Free, EventKind::Discard].map(|kind| event(at, kind, place, MIB / 16))
    };
    let events: Vec<_> = (0..20 * 64).flat_map(piece).collect();
    let seconds = |profile: &Profile| {
        let together = replayed_with(profile, &events, false, Discards::Trace).discards.max_ns.seconds();
        // Policies send one after the other.
        let online = replayed(profile, &events, false, "online").counters.discard_busy_ns.seconds() / 20.0;
        (together, online)
    };
    let mut profile = profile();
    let (together, online) = seconds(&profile);
    assert!((together / online - 1.0).abs() < 0.1, "a delete takes {together} s, {online} s online");
    profile.discard.queue_depth = Some(sourced(16));
    let (together, same) = seconds(&profile);
    assert!(together * 10.0 < online, "a delete takes {together} s where {online} s were");
    assert!((same / online - 1.0).abs() < 0.01, "online takes {same} s");
}

/// Write amplification of a drive with these streams, if logs are discarded when they are done with, or not. Logs go round and
/// round in a third of the space, and are done with at once; beside them, 3 % as many pages elsewhere are overwritten at random.
fn amplification(streams: u32, are_discarded: bool) -> f64 {
    const LOG: u32 = 128;
    let mut config = FtlConfig {
        logical: Pages(1),
        map_entries: None,
        blocks: 1024,
        pages_per_block: 64,
        reserve_blocks: 1,
        streams,
        policy: GcPolicy::Greedy,
        seed: 1,
    };
    let logical = (config.data_pages().0 as f64 * 0.92) as u32;
    config.logical = Pages(logical.into());
    let mut ftl = Ftl::new(&config).unwrap();
    ftl.write(0, 0, logical, &mut Untimed);
    let places = logical / 3 / LOG;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut round = |ftl: &mut Ftl| {
        for place in 0..places {
            let first = place * LOG;
            for page in first..first + LOG {
                ftl.write(streams - 1, page, 1, &mut Untimed);
                if rng.random_bool(0.03) {
                    ftl.write(0, rng.random_range(places * LOG..logical), 1, &mut Untimed);
                }
            }
            if are_discarded {
                ftl.discard(first, LOG);
            }
        }
    };
    (0..10).for_each(|_| round(&mut ftl));
    let before = ftl.totals();
    (0..10).for_each(|_| round(&mut ftl));
    ftl.totals().since(&before).waf()
}

#[test]
fn streams_take_from_discards_what_they_are_worth_to_logs() {
    let [together, apart] =
        [1, 2].map(|streams| [false, true].map(|discard| amplification(streams, discard)));
    let [none, online] = together;
    assert!(none > 1.7 * online, "discards nearly halve what is programmed: {none} and {online}");
    let [none, online] = apart;
    assert!(none < 1.15 * online, "blocks of logs are free by themselves: {none} and {online}");
}

#[test]
fn discards_enlarge_a_cache_that_a_busy_drive_folds() {
    // Writes of all sizes anywhere, a discard for three of them, and a pause of a second after each thousand.
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
    let request = |number: u64| {
        let kind = if rng.random_bool(0.75) { EventKind::Write } else { EventKind::Discard };
        let length = [4096, 4096, 16_384, 65_536, 819_200][rng.random_range(0..5)];
        let start = rng.random_range(0..(SIZE.0 - length) / 4096) * 4096;
        event(20 * SECOND + number * 10_000 + number / 1000 * SECOND, kind, start, length)
    };
    let events: Vec<_> = (0..8000).map(request).collect();
    // How long ideal waits, and how much it erases, in multiples of none's.
    let ideal_over_none = |profile: &Profile| {
        let none = replayed(profile, &events, true, "none");
        let ideal = replayed_with(profile, &events, true, Discards::Ideal);
        let erases = |outcome: &ReplayOutcome| outcome.counters.erases as f64;
        (ideal.waited_ns.seconds() / none.waited_ns.seconds(), erases(&ideal) / erases(&none))
    };
    let mut profile = profile();
    profile.geometry.over_provisioning.value = 0.3;
    profile.geometry.erase_block.value = Bytes(MIB / 4);
    profile.idle = Some(Idle { after: sourced(Nanos(100_000_000)), reserve: sourced(0.03) });
    let (waits, erases) = ideal_over_none(&profile);
    assert!(waits < 0.97 && erases < 0.97, "without a cache: {waits} times the waits, {erases} the erases");
    profile.slc = Some(Slc {
        bits_per_cell: sourced(3),
        program: sourced(Nanos(174_000)),
        static_size: sourced(0.0),
        dynamic_size: sourced(0.15),
    });
    let (waits, erases) = ideal_over_none(&profile);
    assert!(waits > 1.03 && erases > 1.1, "with one: {waits} times the waits, {erases} the erases");
}
