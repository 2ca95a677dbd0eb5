//! Reads that go before programs and erases, on a drive that cleans beside them.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::profile::{Profile, Sourced, Suspend};
use trimtab_core::{Bytes, Extent, Nanos, Rate};
use trimtab_ftl::{ClosedLoop, Command, Device, Op, Totals};

const PAGE: u64 = 4096;
const SIZE: u64 = 64 << 20;
const OVERHEAD: Nanos = Nanos(1_000);
const READ: Nanos = Nanos(50_000);
const ERASE: Nanos = Nanos(3_000_000);
const TRANSFER: Nanos = Nanos(10_240);
const LINK: Nanos = Nanos(1_000);
const LATENCY: Nanos = Nanos(20_000);
/// Commands in flight beside the read.
const DEPTH: u32 = 8;

fn profile(suspends: bool) -> Profile {
    let sourced = |value| Sourced { value, source: "a test".to_owned() };
    let mut profile = Profile::named("nvme-tlc").unwrap();
    let geometry = &mut profile.geometry;
    geometry.program_unit.value = Bytes(16 << 10);
    geometry.erase_block.value = Bytes(1 << 20);
    geometry.over_provisioning.value = 0.15;
    geometry.channels.value = 4;
    geometry.dies_per_channel.value = 2;
    let timing = &mut profile.timing;
    timing.read.value = READ;
    timing.program.value = Nanos(640_000);
    timing.erase.value = ERASE;
    timing.channel_rate.value = Rate(400_000_000);
    timing.link_read_rate.value = Rate(4_096_000_000);
    timing.command_overhead.value = OVERHEAD;
    timing.write_buffer.value = Bytes(1 << 20);
    profile.suspend = suspends.then(|| Suspend { latency: sourced(LATENCY), resume: sourced(Nanos(5_000)) });
    profile
}

/// Random writes as fast as the drive takes them, and a read after every `writes` of them: how long each read
/// took, the drive's totals, and when all was done.
fn reads_beside_writes(profile: &Profile, writes: usize) -> (Vec<Nanos>, Totals, Nanos) {
    let mut device = Device::new(profile, Bytes(SIZE)).unwrap();
    device.precondition();
    let mut host = ClosedLoop::new(DEPTH);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut random = || Extent::at(Bytes(rng.random_range(0..SIZE / PAGE) * PAGE), Bytes(PAGE));
    let mut reads = Vec::new();
    for number in 0..60_000 {
        host.submit(&mut device, Command { op: Op::Write, extent: random() });
        if (number + 1) % writes == 0 {
            let read = host.submit(&mut device, Command { op: Op::Read, extent: random() });
            reads.push(read.done - read.arrival);
        }
    }
    host.submit(&mut device, Command { op: Op::Flush, extent: Extent::at(Bytes::ZERO, Bytes::ZERO) });
    device.ftl().assert_sound();
    reads.sort_unstable();
    (reads, device.ftl().totals(), host.now())
}

#[test]
fn the_longest_read_beside_cleaning_is_bounded_by_the_latency_and_a_read() {
    let (plain, totals, _) = reads_beside_writes(&profile(false), 200);
    let (suspending, same, _) = reads_beside_writes(&profile(true), 200);
    assert_eq!(totals, same, "what the drive does is the same");
    assert!(totals.copied > 10_000, "it cleans");
    let p99 = |reads: &[Nanos]| reads[reads.len() * 99 / 100];
    // One read at a time, behind the commands that the controller has in hand.
    let bound = OVERHEAD * u64::from(DEPTH + 1) + LATENCY + READ + TRANSFER + LINK;
    assert!(*suspending.last().unwrap() <= bound, "{} of {bound}", suspending.last().unwrap());
    assert!(p99(&suspending) >= LATENCY + READ + TRANSFER + LINK, "most dies are busy");
    assert!(p99(&plain) > ERASE, "{}", p99(&plain));
}

#[test]
fn a_drive_without_reads_is_the_same_to_the_nanosecond() {
    let run = |suspends| reads_beside_writes(&profile(suspends), usize::MAX);
    assert_eq!(run(false), run(true));
}
