//! Drives beside their data sheets: the one that `trimtab compare` emulates by default, and one with a cache.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::profile::Profile;
use trimtab_core::{Bytes, Extent, Nanos};
use trimtab_ftl::{ClosedLoop, Command, Device, Op};

/// As large as `trimtab compare` makes it.
const SIZE: Bytes = Bytes(512 << 20);
const PAGE: u64 = 4096;
const LARGE: u64 = 128 << 10;

/// How many of these commands of `length` bytes are done in a second at this queue depth. The first
/// completion starts the clock, so that work the drive had left over does not count.
fn a_second(device: &mut Device, depth: u32, op: Op, length: u64, starts: &[u64]) -> f64 {
    let mut host = ClosedLoop::new(depth);
    let mut submit = |start: &u64| {
        host.submit(device, Command { op, extent: Extent::at(Bytes(*start), Bytes(length)) }).done
    };
    let (first, rest) = starts.split_first().unwrap();
    let begun = submit(first);
    let done = rest.iter().map(submit).max().unwrap();
    rest.len() as f64 / (done - begun).seconds()
}

#[test]
fn samsung_870_evo_meets_its_data_sheet() {
    let mut device = Device::new(&Profile::named("samsung-870-evo").unwrap(), SIZE).unwrap();
    let in_order: Vec<_> = (0..SIZE.0).step_by(LARGE as usize).collect();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let at_random: Vec<_> = (0..20_000).map(|_| rng.random_range(0..SIZE.0 / PAGE) * PAGE).collect();
    let megabytes = LARGE as f64 / 1e6;
    let figures = [
        ("MB/s written in order", 530.0, megabytes * a_second(&mut device, 32, Op::Write, LARGE, &in_order)),
        ("MB/s read in order", 560.0, megabytes * a_second(&mut device, 32, Op::Read, LARGE, &in_order)),
        ("random reads/s, depth 1", 13_000.0, a_second(&mut device, 1, Op::Read, PAGE, &at_random)),
        ("random reads/s, depth 32", 98_000.0, a_second(&mut device, 32, Op::Read, PAGE, &at_random)),
    ];
    for (what, stated, modelled) in figures {
        assert!((modelled / stated - 1.0).abs() <= 0.03, "{modelled} {what}; the data sheet says {stated}");
    }
}

/// The bytes that a drive writes in order faster than `slow` MB/s from now on, a large command at a time,
/// and the MB/s before and after; until it has written `length`.
fn knee(device: &mut Device, from: Nanos, slow: f64, length: Bytes) -> (Bytes, f64, f64) {
    let mut host = ClosedLoop::new(32);
    let step = Bytes::MIB.0;
    let mut ends = vec![from];
    for start in (0..length.0).step_by(step as usize) {
        let extent = Extent::at(Bytes(start), Bytes(step));
        let arrival = *ends.last().unwrap();
        let written = device.submit(arrival, Command { op: Op::Write, extent });
        ends.push(written);
    }
    host.submit(device, Command { op: Op::Flush, extent: Extent::new(Bytes::ZERO, Bytes::ZERO) });
    // The write buffer hides single commands: 16 of them at a time.
    let rate = |ends: &[Nanos]| {
        let (first, last) = (ends[0], ends[ends.len() - 1]);
        (ends.len() - 1) as f64 * step as f64 / 1e6 / (last - first).seconds()
    };
    let fast = (0..ends.len() - 16).take_while(|at| rate(&ends[*at..=at + 16]) > slow).count();
    (Bytes(fast as u64 * step), rate(&ends[..=fast]), rate(&ends[fast + 16..]))
}

#[test]
fn crucial_p1_meets_its_data_sheet_and_its_published_cache() {
    const SIZE: Bytes = Bytes(2 << 30);
    let profile = Profile::named("crucial-p1").unwrap();
    let near = |what: &str, stated: f64, modelled: f64, off: f64| {
        assert!((modelled / stated - 1.0).abs() <= off, "{modelled} {what}; published: {stated}");
    };
    let mut device = Device::new(&profile, SIZE).unwrap();
    let (cache, fast, slow) = knee(&mut device, Nanos::ZERO, 800.0, Bytes(SIZE.0 / 4));
    near("of the drive cached", 0.14, cache.0 as f64 / SIZE.0 as f64, 0.06);
    near("MB/s into the cache", 1700.0, fast, 0.03);
    near("MB/s behind the cache", 150.0, slow, 0.03);

    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut device = Device::new(&profile, SIZE).unwrap();
    let in_order: Vec<_> = (0..SIZE.0 / 10).step_by(LARGE as usize).collect();
    let at_random: Vec<_> = (0..20_000).map(|_| rng.random_range(0..SIZE.0 / 10 / PAGE) * PAGE).collect();
    a_second(&mut device, 32, Op::Write, LARGE, &in_order);
    let reads = a_second(&mut device, 32, Op::Read, LARGE, &in_order) * LARGE as f64 / 1e6;
    near("MB/s read in order", 2000.0, reads, 0.03);
    near("random reads/s", 170_000.0, a_second(&mut device, 64, Op::Read, PAGE, &at_random), 0.03);
    let few = &at_random[..16_000];
    near("random writes/s", 240_000.0, a_second(&mut device, 64, Op::Write, PAGE, few), 0.05);
}

#[test]
fn crucial_p1_has_its_cache_again_after_idle_time_and_none_without() {
    const SIZE: Bytes = Bytes(2 << 30);
    const PAUSE: Nanos = Nanos(60_000_000_000);
    let mut device = Device::new(&Profile::named("crucial-p1").unwrap(), SIZE).unwrap();
    let (first, ..) = knee(&mut device, Nanos::ZERO, 800.0, Bytes(SIZE.0 / 4));
    let done = device.counters().model_ns;
    let (none, ..) = knee(&mut device, done, 800.0, Bytes(SIZE.0 / 4));
    assert!(none.0 * 20 < first.0, "{none} of {first} without a pause");
    let done = device.counters().model_ns;
    let (again, ..) = knee(&mut device, done + PAUSE, 800.0, Bytes(SIZE.0 / 4));
    assert!(again.0 * 20 >= first.0 * 19, "{again} of {first} after a pause");
}

#[test]
fn samsung_980_meets_its_data_sheet_within_its_host_memory_buffer_and_reads_slower_beyond() {
    const SIZE: Bytes = Bytes(2 << 30);
    let profile = Profile::named("samsung-980").unwrap();
    let near = |what: &str, stated: f64, modelled: f64, off: f64| {
        assert!((modelled / stated - 1.0).abs() <= off, "{modelled} {what}; published: {stated}");
    };
    let mut device = Device::new(&profile, SIZE).unwrap();
    let (cache, fast, slow) = knee(&mut device, Nanos::ZERO, 1500.0, Bytes(SIZE.0 / 4));
    near("of the drive cached", 0.16, cache.0 as f64 / SIZE.0 as f64, 0.06);
    near("MB/s into the cache", 3000.0, fast, 0.03);
    near("MB/s behind the cache", 500.0, slow, 0.03);

    let share = profile.map_cache.as_ref().unwrap().share.value;
    let span = (SIZE.0 as f64 * share * 0.9) as u64;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut at_random = |span: u64, count: usize| -> Vec<u64> {
        (0..count).map(|_| rng.random_range(0..span / PAGE) * PAGE).collect()
    };
    let mut device = Device::new(&profile, SIZE).unwrap();
    let in_order: Vec<_> = (0..SIZE.0).step_by(LARGE as usize).collect();
    a_second(&mut device, 32, Op::Write, LARGE, &in_order);
    let reads = a_second(&mut device, 32, Op::Read, LARGE, &in_order) * LARGE as f64 / 1e6;
    near("MB/s read in order", 3500.0, reads, 0.03);
    // Brings the map of the span into memory.
    a_second(&mut device, 1, Op::Read, PAGE, &at_random(span, 10_000));
    let within = a_second(&mut device, 1, Op::Read, PAGE, &at_random(span, 20_000));
    near("random reads/s, depth 1", 17_000.0, within, 0.03);
    let beyond = a_second(&mut device, 1, Op::Read, PAGE, &at_random(SIZE.0, 20_000));
    // All but the share in memory wait for two reads.
    near("random reads/s beyond the buffer", within / (2.0 - share), beyond, 0.06);

    let mut device = Device::new(&profile, SIZE).unwrap();
    let writes = a_second(&mut device, 64, Op::Write, PAGE, &at_random(span, 16_000));
    near("random writes/s", 480_000.0, writes, 0.05);
}

/// Random writes of 4 KiB a second in the steady state, at this queue depth.
fn random_writes(profile: &Profile, size: Bytes, depth: u32) -> f64 {
    let mut device = Device::new(profile, size).unwrap();
    device.precondition();
    let mut host = ClosedLoop::new(depth);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let pages = size.0 / PAGE;
    let mut write = |count: u64| {
        let mut batch = || -> Vec<_> {
            let extent = |_| Extent::at(Bytes(rng.random_range(0..pages) * PAGE), Bytes(PAGE));
            (0..256).map(extent).map(|extent| Command { op: Op::Write, extent }).collect()
        };
        (0..count / 256).for_each(|_| host.submit_each(&mut device, &batch()));
        host.now()
    };
    let begun = write(2 * pages);
    pages as f64 / (write(pages) - begun).seconds()
}

/// Figures of the drive of a profile without a cache, 2 GiB of it.
fn figures(name: &str, depth: u32) -> [(&'static str, f64); 5] {
    const SIZE: Bytes = Bytes(2 << 30);
    let profile = Profile::named(name).unwrap();
    let mut device = Device::new(&profile, SIZE).unwrap();
    let in_order: Vec<_> = (0..SIZE.0).step_by(LARGE as usize).collect();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let at_random: Vec<_> = (0..20_000).map(|_| rng.random_range(0..SIZE.0 / PAGE) * PAGE).collect();
    let megabytes = LARGE as f64 / 1e6;
    let large = depth.min(32);
    [
        ("MB/s written in order", megabytes * a_second(&mut device, large, Op::Write, LARGE, &in_order)),
        ("MB/s read in order", megabytes * a_second(&mut device, large, Op::Read, LARGE, &in_order)),
        ("random reads/s, depth 1", a_second(&mut device, 1, Op::Read, PAGE, &at_random)),
        ("random reads/s", a_second(&mut device, depth, Op::Read, PAGE, &at_random)),
        ("random writes/s in the steady state", random_writes(&profile, SIZE, depth)),
    ]
}

#[test]
fn drives_without_a_cache_meet_their_published_figures() {
    // None where nothing is published.
    for (name, depth, published) in [
        (
            "intel-p4500",
            256,
            [Some(1800.0), Some(3200.0), Some(1e6 / 115.0), Some(645_000.0), Some(62_500.0)],
        ),
        ("samsung-eufs-31", 32, [Some(1200.0), Some(2100.0), None, Some(100_000.0), None]),
        ("sandisk-extreme-a2", 1, [Some(36.3), Some(43.73), Some(1794.0), Some(1794.0), Some(903.0)]),
    ] {
        for ((what, modelled), published) in figures(name, depth).into_iter().zip(published) {
            let is_near = published.is_none_or(|published| f64::abs(modelled / published - 1.0) <= 0.03);
            assert!(is_near, "{name}: {modelled} {what}; published: {published:?}");
        }
    }
}

#[test]
fn a_usb_bridge_changes_neither_the_flash_of_its_drive_nor_the_time_of_its_ranges() {
    let [bridged, drive] = ["usb-uas-sata", "samsung-870-evo"].map(|name| Profile::named(name).unwrap());
    assert_eq!((&bridged.geometry, &bridged.gc), (&drive.geometry, &drive.gc));
    assert_eq!(bridged.timing.program, drive.timing.program);
    assert_eq!(
        [&bridged.discard.range, &bridged.discard.per_gib],
        [&drive.discard.range, &drive.discard.per_gib]
    );
}
