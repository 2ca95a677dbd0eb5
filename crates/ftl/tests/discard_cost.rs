//! Closed forms for the cost of discards by the data they unmap, and for the later cost of lazy ones.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::profile::{Profile, Sourced};
use trimtab_core::{Bytes, Extent, Nanos, Rate};
use trimtab_ftl::{ClosedLoop, Command, Device, Op};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
const SIZE: Bytes = Bytes(64 * MIB);
const READ: Nanos = Nanos(50_000);
const PROGRAM: Nanos = Nanos(640_000);
/// Controller and link, and the channel.
const BESIDE: Nanos = Nanos(1_000 + 1_000 + 10_240);
/// Command and range.
const AT_ONCE: Nanos = Nanos(1_010_000);
/// A MiB, and a MiB that has data.
const NAMED: Nanos = Nanos(1_000_000);
const MAPPED: Nanos = Nanos(4_000_000);

fn sourced<T>(value: T) -> Sourced<T> {
    Sourced { value, source: "a test".to_owned() }
}

/// 8 dies on 4 channels; discards of whole grains of 64 KiB cost 1 ms each MiB, and 4 ms more if it had data.
fn device(lazy_share: Option<f64>) -> Device {
    Device::new(&profile(lazy_share, None), SIZE).unwrap()
}

fn profile(lazy_share: Option<f64>, busy_share: Option<f64>) -> Profile {
    let mut profile = Profile::named("nvme-tlc").unwrap();
    let geometry = &mut profile.geometry;
    geometry.program_unit.value = Bytes(16 << 10);
    geometry.erase_block.value = Bytes(MIB);
    geometry.over_provisioning.value = 0.25;
    geometry.reserve_blocks.value = 2;
    geometry.channels.value = 4;
    geometry.dies_per_channel.value = 2;
    let timing = &mut profile.timing;
    timing.read.value = READ;
    timing.program.value = PROGRAM;
    timing.channel_rate.value = Rate(400_000_000);
    timing.link_read_rate.value = Rate(4_096_000_000);
    timing.link_write_rate.value = Rate(4_096_000_000);
    timing.command_overhead.value = Nanos(1_000);
    timing.write_buffer.value = Bytes(256 << 10);
    timing.flush.value = Nanos::ZERO;
    let discard = &mut profile.discard;
    discard.command.value = Nanos(1_000_000);
    discard.range.value = Nanos(10_000);
    discard.per_gib.value = NAMED * 1024;
    discard.per_mapped_gib = Some(sourced(MAPPED * 1024));
    discard.range_limit.value = Bytes(32 * MIB);
    discard.honoured_granularity.value = Bytes(64 << 10);
    discard.queued.value = true;
    discard.journal_per_range.value = Bytes::ZERO;
    discard.lazy_share = lazy_share.map(sourced);
    discard.busy_share = busy_share.map(sourced);
    profile
}

fn command(op: Op, start: u64, length: u64) -> Command {
    Command { op, extent: Extent::at(Bytes(start), Bytes(length)) }
}

/// Sends a command at `arrival`; returns how long it took.
fn took(device: &mut Device, arrival: Nanos, op: Op, start: u64, length: u64) -> Nanos {
    device.submit(arrival, command(op, start, length)) - arrival
}

/// Fills the drive; returns when all of it is on flash.
fn filled(device: &mut Device) -> Nanos {
    let written = device.submit(Nanos::ZERO, command(Op::Write, 0, SIZE.0));
    device.submit(written, command(Op::Flush, 0, 0))
}

#[test]
fn a_discard_costs_by_the_pages_that_have_data() {
    let mut device = device(None);
    let written = device.submit(Nanos::ZERO, command(Op::Write, 0, MIB / 4));
    let now = device.submit(written, command(Op::Flush, 0, 0));
    let cost =
        |device: &mut Device, start, length| took(device, now + Nanos(1 << 40), Op::Discard, start, length);
    let mapped = |pages: u64| Nanos(MAPPED.0 * pages / 256);
    // No whole grain; the grain in the middle of it; the rest; nothing of what is left.
    let odd = cost(&mut device, PAGE, 64 << 10);
    assert_eq!(odd, AT_ONCE + Nanos(NAMED.0 / 16), "pages outside of whole grains keep their data");
    let mut before = device.counters().discard_busy_ns;
    for (start, length, pages) in [(PAGE, 2 * (64 << 10), 16), (0, MIB, 48), (0, MIB, 0), (MIB, 2 * MIB, 0)] {
        device.submit(now + Nanos(1 << 40), command(Op::Discard, start, length));
        let after = device.counters().discard_busy_ns;
        let expected = AT_ONCE + Nanos(NAMED.0 * length / MIB) + mapped(pages);
        assert_eq!(after - before, expected, "{start} {length}");
        before = after;
    }
}

#[test]
fn a_lazy_discard_returns_at_once_and_slows_reads_until_its_work_is_done() {
    for share in [0.5, 0.2, 0.75] {
        let mut device = device(Some(share));
        let now = filled(&mut device);
        let other = |step: u64| 8 * MIB + step * (64 << 10);
        let slow = Nanos((READ.0 as f64 / (1.0 - share)).round() as u64);
        let alone = took(&mut device, now, Op::Read, other(0), PAGE);
        assert_eq!(alone, BESIDE + READ);

        let began = now + Nanos(1_000_000);
        let done = device.submit(began, command(Op::Discard, 0, 2 * MIB));
        assert_eq!(done, began + AT_ONCE, "the work comes later");
        let end = done + Nanos(((NAMED + MAPPED).0 as f64 * 2.0 / share).round() as u64);
        // The cells are read after the controller's 1 us.
        let mut read =
            |at: Nanos, step| took(&mut device, at - Nanos(1_000), Op::Read, other(step), PAGE) - BESIDE;
        assert_eq!(read(done - Nanos(500_000), 1), READ, "while the command runs, its work has not begun");
        let partly = READ.0 as f64 * 0.4 + READ.0 as f64 * 0.6 / (1.0 - share);
        assert!(read(done - Nanos(20_000), 2).0.abs_diff(partly.round() as u64) <= 1);
        assert_eq!(read(done + Nanos(1_000_000), 3), slow);
        assert_eq!(read(end - Nanos(1_000_000), 4), slow);
        let lost = 10_000.0 * share;
        let expected = READ + Nanos(lost.round() as u64);
        assert!(
            read(end - Nanos(10_000), 5).0.abs_diff(expected.0) <= 1,
            "of 10 us the work takes its share"
        );
        assert_eq!(read(end, 6), READ);
    }
}

#[test]
fn a_discard_that_takes_a_share_of_the_dies_slows_reads_until_it_returns() {
    for share in [0.5, 0.2, 0.75] {
        let mut device = Device::new(&profile(None, Some(share)), SIZE).unwrap();
        let now = filled(&mut device);
        let slow = Nanos((READ.0 as f64 / (1.0 - share)).round() as u64);
        let began = now + Nanos(1_000_000);
        let done = device.submit(began, command(Op::Discard, 0, 2 * MIB));
        assert_eq!(done, began + AT_ONCE + (NAMED + MAPPED) * 2, "it takes as long as without the share");
        let mut read = |at: Nanos, step: u64| {
            let start = 8 * MIB + step * (64 << 10);
            took(&mut device, at - Nanos(1_000), Op::Read, start, PAGE) - BESIDE
        };
        assert_eq!(read(began + Nanos(10_000), 1), slow);
        assert_eq!(read(done - Nanos(1_000_000), 2), slow);
        let lost = READ + Nanos((10_000.0 * share).round() as u64);
        assert!(
            read(done - Nanos(10_000), 3).0.abs_diff(lost.0) <= 1,
            "of 10 us the discard takes its share"
        );
        assert_eq!(read(done + Nanos(1), 4), READ);
    }
}

#[test]
fn work_of_lazy_discards_adds_up() {
    let mut device = device(Some(0.5));
    let now = filled(&mut device);
    let read = |device: &mut Device, at: Nanos| took(device, at, Op::Read, 32 * MIB, PAGE) - BESIDE;
    let mut done = now;
    for number in 0..4 {
        done = device.submit(done, command(Op::Discard, number * MIB, MIB));
    }
    // 5 ms of work each, at a half of every die, from the end of the first on.
    let end = now + AT_ONCE + Nanos(4 * 10_000_000);
    assert_eq!(done, now + AT_ONCE * 4);
    assert_eq!(read(&mut device, end - Nanos(200_000)), READ * 2);
    assert_eq!(read(&mut device, end), READ);
    // Nothing is left to unmap: 1 ms of work.
    let done = device.submit(end + Nanos(1_000_000), command(Op::Discard, 0, MIB));
    assert_eq!(read(&mut device, done + Nanos(1_800_000)), READ * 2);
    assert_eq!(read(&mut device, done + Nanos(2_000_000)), READ);
}

#[test]
fn concurrent_reads_and_writes_keep_the_rest_of_the_dies() {
    for share in [0.25, 0.6] {
        let run = |discards: bool| {
            let (mut device, mut host) = (device(Some(share)), ClosedLoop::new(32));
            host.submit(&mut device, command(Op::Write, 0, SIZE.0));
            host.submit(&mut device, command(Op::Flush, 0, 0));
            if discards {
                // 160 ms of work and more.
                host.submit(&mut device, command(Op::Discard, 0, 32 * MIB));
                host.submit(&mut device, command(Op::Flush, 0, 0));
            }
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
            let began = host.now();
            for _ in 0..8_000 {
                let page = rng.random_range(32 * MIB / PAGE..SIZE.0 / PAGE);
                host.submit(&mut device, command(Op::Read, page * PAGE, PAGE));
            }
            host.submit(&mut device, command(Op::Flush, 0, 0));
            let reads = host.now() - began;
            host.submit(&mut device, command(Op::Write, 0, 4 * MIB));
            host.submit(&mut device, command(Op::Flush, 0, 0));
            (reads.seconds(), (host.now() - began - reads).seconds())
        };
        let (alone, beside) = (run(false), run(true));
        for (alone, beside) in [(alone.0, beside.0), (alone.1, beside.1)] {
            let slower = beside / alone * (1.0 - share);
            assert!((0.98..=1.0).contains(&slower), "{beside} s for {alone} s at {share}");
        }
    }
}
