//! Uniformly random page writes in steady state, at S = 0.127 with 256 pages a block and greedy
//! cleaning: the bare mapping, a whole device with its timing, and one with every table that a profile can have.

use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use memmap2::{Advice, MmapMut};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::profile::{Aging, GcPolicy, Idle, MapCache, Profile, Slc, Sourced, Suspend, Wear};
use trimtab_core::stats::median;
use trimtab_core::{Bytes, Extent, Nanos, Pages};
use trimtab_ftl::{ClosedLoop, Command, Device, Ftl, FtlConfig, Op, Untimed};

const SPARE: f64 = 0.127;
const PAGES_PER_BLOCK: u32 = 256;
const BATCH: usize = 256;
const PAGE: Bytes = Bytes(4096);
/// Writes measured at a time.
const COUNT: u64 = 1 << 20;
/// Rounds beside the machine's random access.
const ROUNDS: usize = 15;

fn settled(blocks: u32) -> (Ftl, Xoshiro256PlusPlus) {
    let mut config = FtlConfig {
        logical: Pages(1),
        map_entries: None,
        blocks,
        pages_per_block: PAGES_PER_BLOCK,
        reserve_blocks: 1,
        streams: 1,
        policy: GcPolicy::Greedy,
        seed: 1,
    };
    config.logical = Pages((config.data_pages().0 as f64 * (1.0 - SPARE)) as u64);
    let mut ftl = Ftl::new(&config).expect("the geometry works");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    ftl.write(0, 0, config.logical.0 as u32, &mut Untimed);
    write(&mut ftl, &mut rng, 3 * config.logical.0);
    (ftl, rng)
}

fn write(ftl: &mut Ftl, rng: &mut Xoshiro256PlusPlus, count: u64) {
    let logical = ftl.config().logical.0 as u32;
    let mut batch = [0; BATCH];
    for _ in 0..count / BATCH as u64 {
        batch.fill_with(|| rng.random_range(0..logical));
        ftl.write_each(0, &batch, &mut Untimed);
    }
}

fn mapping(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("mapping");
    group.sample_size(10).throughput(Throughput::Elements(COUNT));
    for (name, blocks) in [("0.9M", 4030), ("14.6M", 65_330)] {
        let (mut ftl, mut rng) = settled(blocks);
        group.bench_function(name, |bencher| bencher.iter(|| write(&mut ftl, &mut rng, COUNT)));
    }
    group.finish();
}

/// Adds to numbers at random places, as many places at a time as the mapping gets pages, so that cache misses overlap
/// as there.
fn access(numbers: &mut [u32], rng: &mut Xoshiro256PlusPlus) {
    let count = numbers.len() as u32;
    let mut batch = [0; BATCH];
    for _ in 0..COUNT / BATCH as u64 {
        batch.fill_with(|| rng.random_range(0..count));
        for place in batch {
            let number = &mut numbers[place as usize];
            *number = number.wrapping_add(1);
        }
    }
}

/// Prints how long a page takes that the mapping programs, the host's and those that garbage collection moves, beside
/// one random access of this machine, among as many bytes as the mapping's two tables have, on huge pages as theirs. Both
/// are medians of rounds that take turns, so that other load slows both.
fn beside_random_access(_: &mut Criterion) {
    for (name, blocks) in [("0.9M", 4030), ("14.6M", 65_330)] {
        let (mut ftl, mut rng) = settled(blocks);
        let entries = ftl.config().logical.0 + u64::from(blocks * PAGES_PER_BLOCK);
        let mut memory = MmapMut::map_anon(entries as usize * size_of::<u32>()).expect("there is memory");
        // A system without huge pages refuses the advice.
        let _ = memory.advise(Advice::HugePage);
        memory.fill(1);
        let [mut programs, mut accesses, mut pages] = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            let (begun, before) = (Instant::now(), ftl.totals());
            write(&mut ftl, &mut rng, COUNT);
            let ns = begun.elapsed().as_nanos() as f64;
            pages.push(COUNT as f64 / ns * 1e3);
            programs.push(ns / ftl.totals().since(&before).programmed() as f64);
            let begun = Instant::now();
            access(bytemuck::cast_slice_mut(&mut memory), &mut rng);
            accesses.push(begun.elapsed().as_nanos() as f64 / COUNT as f64);
        }
        let [program, access, pages] =
            [programs, accesses, pages].map(|figures| median(&figures).expect("there are rounds"));
        println!(
            "mapping/{name} beside the machine: {pages:.1} million host pages/s, {program:.1} ns a page programmed, \
             {access:.1} ns a random access: {:.2} of them\n",
            program / access
        );
    }
}

fn profile() -> Profile {
    let mut profile = Profile::named("nvme-tlc").expect("it is built in");
    let geometry = &mut profile.geometry;
    geometry.mapping_page.value = PAGE;
    geometry.program_unit.value = Bytes(4 * PAGE.0);
    geometry.erase_block.value = Bytes(u64::from(PAGES_PER_BLOCK) * PAGE.0);
    geometry.reserve_blocks.value = 1;
    geometry.over_provisioning.value = SPARE / (1.0 - SPARE);
    profile
}

fn sourced<T>(value: T) -> Sourced<T> {
    Sourced { value, source: "a benchmark".to_owned() }
}

/// Has every table that a profile can have.
fn profile_with_everything() -> Profile {
    let mut profile = profile();
    profile.geometry.over_provisioning.value *= 1.1;
    profile.idle = Some(Idle { after: sourced(Nanos(1_000_000)), reserve: sourced(0.05) });
    profile.slc = Some(Slc {
        bits_per_cell: sourced(3),
        program: sourced(Nanos(100_000)),
        static_size: sourced(0.01),
        dynamic_size: sourced(0.1),
    });
    profile.map_cache = Some(MapCache { share: sourced(0.1), entry: sourced(Bytes(4)) });
    profile.suspend = Some(Suspend { latency: sourced(Nanos(20_000)), resume: sourced(Nanos(5_000)) });
    profile.wear = Some(Wear {
        endurance: Some(sourced(1_000_000)),
        variation: Some(sourced(0.1)),
        bad_blocks: Some(sourced(0.02)),
        level_at: Some(sourced(32)),
    });
    profile.aging = Some(Aging { random_writes: sourced(1.0) });
    let discard = &mut profile.discard;
    discard.per_mapped_gib = Some(sourced(Nanos(1_000_000)));
    discard.lazy_share = Some(sourced(0.2));
    discard.queue_depth = Some(sourced(4));
    discard.ranges_per_command = Some(sourced(256));
    profile
}

/// A device of `logical` pages, written twice in order and three times at random, with its host.
fn settled_device(profile: &Profile, logical: u64) -> (Device, ClosedLoop, Xoshiro256PlusPlus) {
    let mut device = Device::new(profile, Bytes(logical * PAGE.0)).expect("the geometry works");
    let mut host = ClosedLoop::new(profile.timing.queue_depth.value);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    device.precondition();
    submit(&mut device, &mut host, &mut rng, 3 * logical);
    (device, host, rng)
}

fn submit(device: &mut Device, host: &mut ClosedLoop, rng: &mut Xoshiro256PlusPlus, count: u64) {
    let pages = device.size().0 / PAGE.0;
    let mut batch = [Command { op: Op::Write, extent: Extent::at(Bytes::ZERO, PAGE) }; BATCH];
    for _ in 0..count / BATCH as u64 {
        for command in &mut batch {
            command.extent = Extent::at(Bytes(rng.random_range(0..pages) * PAGE.0), PAGE);
        }
        host.submit_each(device, &batch);
    }
}

fn device(criterion: &mut Criterion) {
    measure_device(criterion, "device", &profile());
    measure_device(criterion, "everything", &profile_with_everything());
}

fn measure_device(criterion: &mut Criterion, name: &str, profile: &Profile) {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10).throughput(Throughput::Elements(COUNT));
    for (name, logical) in [("0.9M", 900_000), ("14.6M", 14_600_000)] {
        let (mut device, mut host, mut rng) = settled_device(profile, logical);
        group
            .bench_function(name, |bencher| bencher.iter(|| submit(&mut device, &mut host, &mut rng, COUNT)));
    }
    group.finish();
}

criterion_group!(benches, mapping, beside_random_access, device);
criterion_main!(benches);
