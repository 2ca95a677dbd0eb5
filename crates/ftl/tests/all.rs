//! A drive with everything that a profile can have.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::profile::{Aging, Idle, MapCache, Profile, Slc, Sourced, Suspend, Wear};
use trimtab_core::{Bytes, Extent, Nanos, Pages};
use trimtab_ftl::{ClosedLoop, Command, Device, Op};

const PAGE: u64 = 4096;
const SIZE: u64 = 256 << 20;

fn sourced<T>(value: T) -> Sourced<T> {
    Sourced { value, source: "a test".to_owned() }
}

fn profile() -> Profile {
    let mut profile = Profile::named("nvme-tlc").unwrap();
    profile.geometry.erase_block.value = Bytes(1 << 20);
    profile.geometry.over_provisioning.value = 0.15;
    profile.idle = Some(Idle { after: sourced(Nanos(1_000_000)), reserve: sourced(0.05) });
    profile.slc = Some(Slc {
        bits_per_cell: sourced(3),
        program: sourced(Nanos(100_000)),
        static_size: sourced(0.01),
        dynamic_size: sourced(0.1),
    });
    profile.map_cache = Some(MapCache { share: sourced(0.1), entry: sourced(Bytes(8)) });
    profile.suspend = Some(Suspend { latency: sourced(Nanos(20_000)), resume: sourced(Nanos(5_000)) });
    profile.aging = Some(Aging { random_writes: sourced(1.0) });
    profile.wear = Some(Wear {
        endurance: Some(sourced(60)),
        variation: Some(sourced(0.5)),
        bad_blocks: Some(sourced(0.02)),
        level_at: Some(sourced(8)),
    });
    let discard = &mut profile.discard;
    discard.per_mapped_gib = Some(sourced(Nanos(1_000_000)));
    discard.lazy_share = Some(sourced(0.2));
    discard.queue_depth = Some(sourced(4));
    discard.ranges_per_command = Some(sourced(256));
    profile
}

#[test]
fn a_page_takes_at_most_nine_bytes_with_everything_on() {
    let device = Device::new(&profile(), Bytes(SIZE)).unwrap();
    assert!(device.bytes_per_page() <= 9.0, "{}", device.bytes_per_page());
    assert!(device.bytes_per_page() > device.ftl().bytes_per_page(), "the map's cache counts");
}

#[test]
fn a_drive_with_everything_on_keeps_all_data_and_repeats_to_the_nanosecond() {
    let run = || {
        let (mut device, mut host) = (Device::new(&profile(), Bytes(SIZE)).unwrap(), ClosedLoop::new(16));
        device.precondition();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(8);
        let mut naive = vec![true; (SIZE / PAGE) as usize];
        for step in 0..20_000 {
            let most = [1, 16, 600][rng.random_range(0..3)];
            let (page, count) = (rng.random_range(0..SIZE / PAGE - most), rng.random_range(1..=most));
            let extent = Extent::at(Bytes(page * PAGE), Bytes(count * PAGE));
            let op = [Op::Write, Op::Write, Op::Read, Op::Discard, Op::Flush][rng.random_range(0..5)];
            if let Op::Write | Op::Discard = op {
                naive[page as usize..][..count as usize].fill(op == Op::Write);
            }
            if op == Op::Discard && step % 2 == 0 {
                let half = Bytes(count / 2 * PAGE);
                let extents = [Extent::at(extent.start, half), Extent::new(extent.start + half, extent.end)];
                device.discard_extents(host.now(), &extents);
            } else {
                host.submit(&mut device, Command { op, extent });
            }
        }
        device.ftl().assert_sound();
        let mapped: Vec<_> = (0..SIZE / PAGE).map(|page| device.is_mapped(Pages(page))).collect();
        assert!(mapped == naive, "the pages with data are those written and not discarded");
        (device.counters(), device.latency(Op::Read), host.now())
    };
    assert_eq!(run(), run());
}
