//! A whole drive in model time, on a profile of round figures.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::profile::{GcPolicy, Profile, Sourced, Wear};
use trimtab_core::{Bytes, Extent, Nanos, Pages, Rate};
use trimtab_ftl::{ClosedLoop, Command, Device, Op};

const PAGE: Bytes = Bytes(4096);
const SIZE: Bytes = Bytes(64 << 20);
const MILLISECOND: Nanos = Nanos(1_000_000);

/// 8 dies on 4 channels, 16 KiB programmed in 640 us each: 204.8 MB/s. The link is no limit.
fn profile() -> Profile {
    let mut profile = Profile::named("nvme-tlc").unwrap();
    let geometry = &mut profile.geometry;
    geometry.mapping_page.value = PAGE;
    geometry.program_unit.value = Bytes(16 << 10);
    geometry.erase_block.value = Bytes(1 << 20);
    geometry.over_provisioning.value = 0.25;
    geometry.reserve_blocks.value = 2;
    geometry.channels.value = 4;
    geometry.dies_per_channel.value = 2;
    let timing = &mut profile.timing;
    timing.read.value = Nanos(50_000);
    timing.program.value = Nanos(640_000);
    timing.erase.value = Nanos(2_000_000);
    timing.channel_rate.value = Rate(400_000_000);
    timing.link_read_rate.value = Rate(4_096_000_000);
    timing.link_write_rate.value = Rate(4_096_000_000);
    timing.command_overhead.value = Nanos(1_000);
    timing.flush.value = Nanos(100_000);
    timing.write_buffer.value = Bytes(256 << 10);
    profile.gc.policy.value = GcPolicy::Greedy;
    let discard = &mut profile.discard;
    discard.command.value = MILLISECOND;
    discard.range.value = Nanos(10_000);
    discard.per_gib.value = Nanos(1_024_000_000);
    discard.range_limit.value = Bytes(32 << 20);
    discard.honoured_granularity.value = Bytes(64 << 10);
    discard.queued.value = false;
    discard.journal_per_range.value = Bytes(16);
    profile
}

fn device(profile: &Profile) -> Device {
    Device::new(profile, SIZE).unwrap()
}

fn command(op: Op, start: u64, length: u64) -> Command {
    Command { op, extent: Extent::at(Bytes(start), Bytes(length)) }
}

const FLUSH: Command = Command { op: Op::Flush, extent: Extent { start: Bytes::ZERO, end: Bytes::ZERO } };

/// Writes the whole drive in order, 128 KiB a command, and flushes; returns the MB/s.
fn write_in_order(host: &mut ClosedLoop, device: &mut Device) -> f64 {
    let started = host.now();
    for start in (0..SIZE.0).step_by(128 << 10) {
        host.submit(device, command(Op::Write, start, 128 << 10));
    }
    host.submit(device, FLUSH);
    SIZE.0 as f64 / 1e6 / (host.now() - started).seconds()
}

/// Writes as many random pages as the drive has, and flushes; returns the MB/s.
fn write_at_random(host: &mut ClosedLoop, device: &mut Device, seed: u64) -> f64 {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let started = host.now();
    let pages = SIZE.0 / PAGE.0;
    let commands: Vec<_> =
        (0..pages).map(|_| command(Op::Write, rng.random_range(0..pages) * PAGE.0, PAGE.0)).collect();
    commands.chunks(64).for_each(|batch| host.submit_each(device, batch));
    host.submit(device, FLUSH);
    SIZE.0 as f64 / 1e6 / (host.now() - started).seconds()
}

#[test]
fn a_new_drive_writes_at_the_speed_of_its_dies() {
    let rate = write_in_order(&mut ClosedLoop::new(32), &mut device(&profile()));
    assert!((195.0..=204.8).contains(&rate), "{rate} MB/s");
}

#[test]
fn a_slow_link_or_a_slow_channel_is_the_limit() {
    let mut slow_link = profile();
    slow_link.timing.link_write_rate.value = Rate(100_000_000);
    let rate = write_in_order(&mut ClosedLoop::new(32), &mut device(&slow_link));
    assert!((97.0..=100.0).contains(&rate), "{rate} MB/s");
    let mut slow_channels = profile();
    slow_channels.timing.channel_rate.value = Rate(25_000_000);
    let rate = write_in_order(&mut ClosedLoop::new(32), &mut device(&slow_channels));
    assert!((95.0..=100.0).contains(&rate), "{rate} MB/s");
}

#[test]
fn a_lone_read_takes_the_sum_of_its_parts() {
    let (mut device, mut host) = (device(&profile()), ClosedLoop::new(1));
    host.submit(&mut device, command(Op::Write, 0, 8192));
    host.submit(&mut device, FLUSH);
    let time = |completion: trimtab_ftl::Completion| completion.done - completion.arrival;
    let one = time(host.submit(&mut device, command(Op::Read, 0, 4096)));
    assert_eq!(one, Nanos(1_000 + 50_000 + 10_240 + 1_000), "overhead, cells, channel, link");
    let two = time(host.submit(&mut device, command(Op::Read, 0, 8192)));
    assert_eq!(two, one + Nanos(10_240), "one read of the cells serves a whole program unit");
    let nothing = time(host.submit(&mut device, command(Op::Read, 1 << 20, 4096)));
    assert_eq!(nothing, Nanos(1_000 + 1_000), "what has no data costs no flash");
}

#[test]
fn random_reads_keep_the_dies_busy() {
    let (mut device, mut host) = (device(&profile()), ClosedLoop::new(32));
    write_in_order(&mut host, &mut device);
    let (started, mut rng) = (host.now(), Xoshiro256PlusPlus::seed_from_u64(1));
    for _ in 0..20_000 {
        host.submit(&mut device, command(Op::Read, rng.random_range(0..SIZE.0 / 4096) * 4096, 4096));
    }
    let rate = 20_000.0 / (host.now() - started).seconds();
    let dies = 8.0 / 50e-6;
    assert!(rate < dies && rate > 0.8 * dies, "{rate} reads/s of {dies}");
}

#[test]
fn a_drive_without_discards_slows_down_and_discards_mend_it() {
    let (mut device, mut host) = (device(&profile()), ClosedLoop::new(32));
    let new = write_in_order(&mut host, &mut device);
    write_at_random(&mut host, &mut device, 1);
    let before = device.counters();
    let worn = write_at_random(&mut host, &mut device, 2);
    let waf = device.counters().since(&before).waf().unwrap();
    assert!(waf > 1.5, "{waf}");
    assert!(worn < 1.1 * new / waf, "copies take their time: {worn} MB/s of {new} at a WAF of {waf}");
    assert!(worn > 0.5 * new / waf, "but not more than that: {worn} MB/s of {new} at a WAF of {waf}");
    host.submit(&mut device, command(Op::Discard, 0, SIZE.0));
    host.submit(&mut device, FLUSH);
    let mended = write_in_order(&mut host, &mut device);
    let with_erases = new * 5.12 / (5.12 + 2.0);
    assert!(mended > 0.97 * with_erases, "only erases are left: {mended} MB/s after {new}");
    device.ftl().assert_sound();
}

#[test]
fn a_discard_that_is_not_queued_stops_the_drive() {
    let mut device = device(&profile());
    let written = device.submit(Nanos::ZERO, command(Op::Write, 0, 1 << 20));
    let discarded = device.submit(Nanos::ZERO, command(Op::Discard, 0, 64 << 10));
    let cost = Nanos(1_000_000 + 10_000 + 62_500);
    assert_eq!(discarded, written + cost, "it waits for the write, and its cost includes the overhead");
    let read = device.submit(Nanos::ZERO, command(Op::Read, 0, 4096));
    assert!(read > discarded, "and holds the read back");
    assert_eq!(device.counters().discard_busy_ns, cost);
}

#[test]
fn queued_discards_wait_for_each_other_only() {
    let mut queued = profile();
    queued.discard.queued.value = true;
    let mut device = device(&queued);
    let first = device.submit(Nanos::ZERO, command(Op::Discard, 0, 64 << 10));
    let second = device.submit(Nanos::ZERO, command(Op::Discard, 0, 64 << 10));
    let read = device.submit(Nanos::ZERO, command(Op::Read, 0, 4096));
    assert!(read < first, "a read doesn't wait");
    assert_eq!(second, first + Nanos(1_000_000 + 10_000 + 62_500));
}

#[test]
fn only_whole_grains_are_unmapped_but_all_is_paid_for() {
    let (mut device, mut host) = (device(&profile()), ClosedLoop::new(1));
    host.submit(&mut device, command(Op::Write, 0, 256 << 10));
    let cases = [(0, 60 << 10, 0..0), (4096, 64 << 10, 0..0), (4096, 128 << 10, 16..32)];
    for (start, length, unmapped) in cases {
        let busy = device.counters().discard_busy_ns;
        host.submit(&mut device, command(Op::Discard, start, length));
        assert!(device.counters().discard_busy_ns > busy + MILLISECOND, "ignored ones cost time too");
        for page in 0..64 {
            assert_eq!(device.is_mapped(Pages(page)), !unmapped.contains(&page), "{start} {length} {page}");
        }
    }
    let counters = device.counters();
    assert_eq!((counters.discards, counters.discard_bytes), (3, Bytes(252 << 10)));
    assert_eq!(counters.discard_sizes.total(), 3);
}

#[test]
fn every_third_discard_is_ignored_but_paid_for() {
    let mut liar = profile();
    liar.discard.ignored_every = Some(Sourced { value: 3, source: "a test".to_owned() });
    let (mut device, mut host) = (device(&liar), ClosedLoop::new(1));
    host.submit(&mut device, command(Op::Write, 0, 512 << 10));
    for grain in 0..8 {
        let busy = device.counters().discard_busy_ns;
        host.submit(&mut device, command(Op::Discard, grain * (64 << 10), 64 << 10));
        assert!(device.counters().discard_busy_ns > busy + MILLISECOND);
        assert_eq!(device.is_mapped(Pages(grain * 16)), matches!(grain, 2 | 5), "discard {grain}");
    }
    assert_eq!(device.counters().discards, 8);
    device.ftl().assert_sound();
}

#[test]
fn journal_of_honoured_ranges_wears_the_flash() {
    let mut wordy = profile();
    wordy.discard.journal_per_range.value = Bytes(1024);
    let (mut device, mut host) = (device(&wordy), ClosedLoop::new(1));
    let mut discard = |length| {
        host.submit(&mut device, command(Op::Discard, 0, length));
        device.counters().journal_pages
    };
    assert_eq!((0..8).map(|_| discard(4096)).max(), Some(0), "an ignored discard writes none");
    let pages: Vec<_> = (0..4).map(|_| discard(64 << 10)).collect();
    assert_eq!(pages, [0, 0, 0, 1], "four entries of 1 KiB fill a page");
    assert_eq!([discard(SIZE.0), discard(SIZE.0)], [1, 2], "64 MiB are two ranges of 32 MiB");
    device.ftl().assert_sound();
}

#[test]
fn a_flush_waits_for_the_flash() {
    let (mut device, mut host) = (device(&profile()), ClosedLoop::new(8));
    let written = host.submit(&mut device, command(Op::Write, 0, 16 << 10));
    assert!(written.done < Nanos(640_000), "a write is done when it is buffered");
    let flushed = host.submit(&mut device, FLUSH);
    assert_eq!(flushed.arrival, written.done);
    assert!(flushed.done > Nanos(640_000 + 100_000), "a flush when it is programmed");
    assert_eq!(host.now(), flushed.done);
}

#[test]
fn latencies_are_those_of_the_commands() {
    let (mut device, mut host) = (device(&profile()), ClosedLoop::new(32));
    write_in_order(&mut host, &mut device);
    write_at_random(&mut host, &mut device, 1);
    let l = device.latency(Op::Write);
    assert_eq!(l.count, device.counters().writes);
    let rising = [Nanos(1), l.min_ns, l.p50_ns, l.p90_ns, l.p99_ns, l.p999_ns, l.max_ns];
    assert!(rising.is_sorted(), "{l:?}");
    assert_eq!(device.latency(Op::Flush).count, 2);
    assert_eq!(device.latency(Op::Discard).count, 0);
}

#[test]
fn batches_and_runs_repeat_to_the_nanosecond() {
    let run = |batch: usize| {
        let (mut device, mut host) = (device(&profile()), ClosedLoop::new(32));
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let ops = [Op::Read, Op::Write, Op::Write, Op::Write, Op::Write, Op::Discard, Op::Flush];
        let commands: Vec<_> = (0..40_000)
            .map(|_| {
                let (start, length) = (rng.random_range(0..SIZE.0 / 4096 - 3), rng.random_range(0..4));
                command(ops[rng.random_range(0..ops.len())], start * 4096, length * 4096)
            })
            .collect();
        commands.chunks(batch).for_each(|batch| host.submit_each(&mut device, batch));
        device.ftl().assert_sound();
        (device.counters(), device.latency(Op::Read), host.now())
    };
    assert_eq!(run(1), run(100));
}

#[test]
fn a_drive_that_cannot_work_is_refused_with_the_reason() {
    let refusal = |profile: &Profile, size| Device::new(profile, size).err().unwrap().to_string();
    let mut half_bad = profile();
    let bad_blocks = Some(Sourced { value: 0.5, source: "a test".to_owned() });
    half_bad.wear = Some(Wear { bad_blocks, ..Wear::default() });
    assert_eq!(
        refusal(&half_bad, SIZE),
        "a drive like this can't work: of its 44 erase blocks of 256 pages, 4 are set aside (reserve, and blocks \
         being written), which leaves 10240 pages for 16384 pages and one to spare; take more over-provisioning or \
         fewer bad blocks"
    );
    assert_eq!(
        refusal(&profile(), Bytes(7 << 20)),
        "a drive of 7 MiB has only 9 erase blocks of 1 MiB, where 10 are the least; take a larger size"
    );
    assert_eq!(
        refusal(&profile(), Bytes(4097)),
        "a size of 4 KiB is not a whole number of 4 KiB mapping pages"
    );
    let mut greedy = profile();
    greedy.geometry.reserve_blocks.value = 0;
    assert_eq!(refusal(&greedy, SIZE), "the number of reserve blocks must be 1 or more");
    assert!(refusal(&profile(), Bytes(1 << 60)).contains("are more than the 4294967295 pages"));
}
