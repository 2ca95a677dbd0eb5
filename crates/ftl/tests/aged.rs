//! Drives that were overwritten at random before their first command, and what the state of a drive does to
//! the fragment test. The tables of docs/model.md: `cargo test -p trimtab-ftl --test aged -- --nocapture`.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::profile::{Aging, GcPolicy, MapCache, Profile, Sourced};
use trimtab_core::{Bytes, Extent};
use trimtab_ftl::{ClosedLoop, Command, Device, Op, theory};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
const SIZE: u64 = 512 * MIB;

fn sourced<T>(value: T) -> Sourced<T> {
    Sourced { value, source: "a test".to_owned() }
}

fn profile(spare: f64, random_writes: Option<f64>) -> Profile {
    let mut profile = Profile::named("nvme-tlc").unwrap();
    profile.geometry.erase_block.value = Bytes(MIB);
    profile.geometry.reserve_blocks.value = 1;
    profile.geometry.over_provisioning.value = spare;
    profile.aging = random_writes.map(|writes| Aging { random_writes: sourced(writes) });
    profile
}

/// Write amplification of random writes of a twentieth of a drive that was just preconditioned.
fn first_random_writes(profile: &Profile) -> (f64, f64) {
    let mut device = Device::new(profile, Bytes(SIZE)).unwrap();
    device.precondition();
    device.ftl().assert_sound();
    assert_eq!(device.mapped(), Bytes(SIZE));
    assert_eq!(device.counters(), Device::new(profile, Bytes(SIZE)).unwrap().counters(), "none of it counts");
    let mut host = ClosedLoop::new(32);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(77);
    for _ in 0..SIZE / PAGE / 20 {
        let extent = Extent::at(Bytes(rng.random_range(0..SIZE / PAGE) * PAGE), Bytes(PAGE));
        host.submit(&mut device, Command { op: Op::Write, extent });
    }
    (device.counters().waf().unwrap(), device.effective_spare())
}

#[test]
fn an_aged_drive_is_in_the_steady_state_of_random_writes_at_once() {
    for spare in [0.07, 0.15, 0.28] {
        let (aged, effective) = first_random_writes(&profile(spare, Some(3.0)));
        let steady = theory::greedy(effective, 256);
        assert!((aged / steady - 1.0).abs() < 0.03, "{spare}: {aged} for {steady}");
        let (filled, _) = first_random_writes(&profile(spare, None));
        assert!(filled < 0.7 * steady, "{spare}: {filled} for {steady} on a drive that was filled in order");
    }
}

#[test]
fn aging_writes_as_often_as_the_profile_says() {
    let erased = |random_writes| {
        let mut device = Device::new(&profile(0.28, random_writes), Bytes(SIZE)).unwrap();
        device.precondition();
        let totals = device.ftl().totals();
        assert_eq!(totals.erases, device.ftl().erases().iter().map(|count| u64::from(*count)).sum::<u64>());
        totals.host
    };
    let pages = SIZE / PAGE;
    assert_eq!([None, Some(0.5), Some(3.0)].map(erased), [2 * pages, 2 * pages + pages / 2, 5 * pages]);
}

#[test]
fn an_aged_map_lies_on_the_flash() {
    let mut profile = profile(0.15, Some(1.0));
    profile.map_cache = Some(MapCache { share: sourced(0.01), entry: sourced(Bytes(64)) });
    let mut device = Device::new(&profile, Bytes(SIZE)).unwrap();
    device.precondition();
    let mut host = ClosedLoop::new(1);
    for map in 0..SIZE / PAGE / 64 {
        let extent = Extent::at(Bytes(map * 64 * PAGE), Bytes(PAGE));
        host.submit(&mut device, Command { op: Op::Read, extent });
    }
    let counters = device.counters();
    assert_eq!((counters.map_reads, counters.map_pages), (SIZE / PAGE / 64, 0));
    device.ftl().assert_sound();
}

/// The large write of the fragment test, as `trimtab compare` runs it: MB/s, and write amplification.
fn large_write(profile: &Profile, discards: bool) -> (f64, f64) {
    const SIZE: u64 = 2048 * MIB;
    const CHUNK: u64 = 64 << 10;
    const FILES: u64 = 256;
    let large = SIZE / MIB * 9 / 10;
    let chunks = SIZE * 8 / 10 / (FILES * CHUNK);
    let mut device = Device::new(profile, Bytes(SIZE)).unwrap();
    device.precondition();
    let mut host = ClosedLoop::new(32);
    let mut send = |op, start, length| {
        host.submit(&mut device, Command { op, extent: Extent::at(Bytes(start), Bytes(length)) });
    };
    (0..large).for_each(|at| send(Op::Write, at * MIB, MIB));
    if discards {
        send(Op::Discard, 0, large * MIB);
    }
    let place = |file, chunk| (chunk * FILES + file) * CHUNK;
    for file in 0..FILES {
        (0..chunks).for_each(|chunk| send(Op::Write, place(file, chunk), CHUNK));
    }
    send(Op::Flush, 0, 0);
    if discards {
        for turn in 0..FILES {
            (0..chunks).for_each(|chunk| send(Op::Discard, place(turn * 91 % FILES, chunk), CHUNK));
        }
    }
    send(Op::Flush, 0, 0);
    let (began, before) = (host.now(), device.counters());
    for at in 0..large {
        host.submit(&mut device, Command { op: Op::Write, extent: Extent::at(Bytes(at * MIB), Bytes(MIB)) });
    }
    let flush = Command { op: Op::Flush, extent: Extent::new(Bytes::ZERO, Bytes::ZERO) };
    host.submit(&mut device, flush);
    let took = (host.now() - began).seconds();
    ((large * MIB) as f64 / 1e6 / took, device.counters().since(&before).waf().unwrap())
}

/// How much faster `online` writes the large file than `none` on a Micron M500IT with these changes.
fn factor(name: &str, change: impl FnOnce(&mut Profile)) -> f64 {
    let mut profile = Profile::named("micron-m500it").unwrap();
    change(&mut profile);
    let ((none, waf), (online, waf_online)) = (large_write(&profile, false), large_write(&profile, true));
    println!("| {name} | {none:.1} | {waf:.2} | {online:.1} | {waf_online:.2} | {:.1} |", online / none);
    online / none
}

#[test]
fn cleaning_in_turn_with_little_spare_explains_a_factor_of_thirty_and_nothing_else_alone() {
    let aged = |profile: &mut Profile| profile.aging = Some(Aging { random_writes: sourced(3.0) });
    let spare = |over: f64| move |profile: &mut Profile| profile.geometry.over_provisioning.value = over;
    let gc = |policy| move |profile: &mut Profile| profile.gc.policy.value = policy;
    let plain = factor("as the profile says", |_| {});
    let alone = [
        factor("aged: three random overwrites first", aged),
        factor("map cache of 0.1 %", |profile| {
            profile.map_cache = Some(MapCache { share: sourced(0.001), entry: sourced(Bytes(4)) });
        }),
        factor("erase blocks of 32 MiB, one in reserve", |profile| {
            profile.geometry.erase_block.value = Bytes(32 * MIB);
            profile.geometry.reserve_blocks.value = 1;
        }),
        factor("`cost-benefit`", gc(GcPolicy::CostBenefit)),
        factor("`d-choices:2`", gc(GcPolicy::DChoices(2))),
        factor("`fifo`", gc(GcPolicy::Fifo)),
        factor("over-provisioning 2 %", spare(0.02)),
        factor("over-provisioning 1.4 %", spare(0.014)),
    ];
    let both = factor("`fifo`, over-provisioning 2 %", |profile| {
        gc(GcPolicy::Fifo)(profile);
        spare(0.02)(profile);
    });
    let thirty = factor("`fifo`, over-provisioning 1.4 %", |profile| {
        gc(GcPolicy::Fifo)(profile);
        spare(0.014)(profile);
    });
    assert!((2.0..4.0).contains(&plain), "{plain}");
    assert!(alone.iter().all(|factor| *factor < 15.0), "{alone:?}");
    assert!(alone[0] < 1.1 * plain && alone[1] < 1.1 * plain, "neither age nor map: {alone:?}");
    assert!(both > 18.0 && thirty > 25.0, "{both} {thirty}");
}
