//! A trace from memory before a whole device with its timing: events a second on one core, under each
//! policy. Three in five events are writes of 4 KiB at random, one is a read and one a free.

use std::convert::Infallible;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::policy::PolicyKind;
use trimtab_core::profile::Profile;
use trimtab_core::trace::{Comm, DeviceIndex, Kind, TraceEvent, TraceHeader, TraceSource};
use trimtab_core::{Bytes, Extent, Nanos};
use trimtab_ftl::replay::{Discards, Replay, ReplayOptions};

const SIZE: Bytes = Bytes(2 << 30);
const PAGE: Bytes = Bytes(4096);
const EVENTS: u64 = 1 << 20;
/// Time from one event to the next.
const STEP: u64 = 20_000;

/// Events from memory, some thousand at a time, as a file hands them out.
struct Memory<'a> {
    header: TraceHeader,
    batches: std::slice::Chunks<'a, TraceEvent>,
}

impl TraceSource for Memory<'_> {
    type Error = Infallible;
    fn header(&self) -> &TraceHeader {
        &self.header
    }
    fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<(), Infallible> {
        batch.clear();
        batch.extend_from_slice(self.batches.next().unwrap_or_default());
        Ok(())
    }
}

fn events() -> Vec<TraceEvent> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let event = |n: u64| {
        let kind = [Kind::Write, Kind::Write, Kind::Write, Kind::Read, Kind::Free][n as usize % 5];
        TraceEvent {
            at: Nanos(n * STEP),
            device: DeviceIndex(0),
            kind,
            extent: Extent::at(Bytes(rng.random_range(0..SIZE.0 / PAGE.0) * PAGE.0), PAGE),
            latency: kind.is_request().then_some(Nanos(80_000)),
            process: Comm::default(),
            error: 0,
            fs: None,
        }
    };
    (0..EVENTS).map(event).collect()
}

fn replay(criterion: &mut Criterion) {
    let profile = Profile::named("nvme-tlc").expect("it is built in");
    let options = ReplayOptions {
        profile: &profile,
        size: SIZE,
        preconditioned: true,
        device: DeviceIndex(0),
        scale: None,
        span: Nanos(EVENTS * STEP),
    };
    let events = events();
    let mut group = criterion.benchmark_group("replay");
    group.sample_size(10).throughput(Throughput::Elements(EVENTS));
    for kind in [PolicyKind::None, PolicyKind::Online, PolicyKind::Batched] {
        let new = || {
            let policy = kind.engine().expect("it has one");
            Replay::new(&options, Discards::Policy(policy)).expect("the geometry works")
        };
        let run = |mut replay: Replay| {
            let mut source = Memory { header: TraceHeader::new("memory"), batches: events.chunks(8192) };
            replay.pass(&mut source, &mut |_| true).expect("all extents are inside");
            replay
        };
        group.bench_function(kind.name(), |bencher| bencher.iter_batched(new, run, BatchSize::PerIteration));
    }
    group.finish();
}

criterion_group!(benches, replay);
criterion_main!(benches);
