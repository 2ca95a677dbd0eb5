//! Uniformly random page writes in steady state, at S = 0.127 with 256 pages a block and greedy
//! cleaning: the bare mapping, and a whole device with its timing.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::Pages;
use trimtab_core::profile::GcPolicy;
use trimtab_ftl::{Ftl, FtlConfig, Untimed};

const SPARE: f64 = 0.127;
const PAGES_PER_BLOCK: u32 = 256;
const BATCH: usize = 256;

fn settled(blocks: u32) -> (Ftl, Xoshiro256PlusPlus) {
    let mut config = FtlConfig {
        logical: Pages(1),
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
    const COUNT: u64 = 1 << 20;
    let mut group = criterion.benchmark_group("mapping");
    group.sample_size(10).throughput(Throughput::Elements(COUNT));
    for (name, blocks) in [("0.9M", 4030), ("14.6M", 65_330)] {
        let (mut ftl, mut rng) = settled(blocks);
        group.bench_function(name, |bencher| bencher.iter(|| write(&mut ftl, &mut rng, COUNT)));
    }
    group.finish();
}

criterion_group!(benches, mapping);
criterion_main!(benches);
