//! How many events of a trace are replayed in a second of processor time, with timing: from our own
//! file, from memory (the model alone), and how many the file's reader alone hands out. `cargo bench -p
//! trimtab-lab --bench replay -- [MILLIONS OF EVENTS] [GiB OF THE DRIVE]`.

use std::error::Error;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rustix::time::{ClockId, clock_gettime};
use trimtab_core::document::sim::Clocks;
use trimtab_core::policy::{PolicyChoice, PolicyKind, SmartPolicy};
use trimtab_core::profile::Profile;
use trimtab_core::trace::{
    Comm, DeviceIndex, EventKind, InMemory, TraceDevice, TraceEvent, TraceHeader, TraceSource,
};
use trimtab_core::{Bytes, Extent, Nanos};
use trimtab_ftl::replay::{Discards, Replay, ReplayOptions};
use trimtab_trace::{Columns, TraceFile, TraceWriter};

const ROUNDS: usize = 5;
/// Events that a file returns at a time.
const BATCH: usize = 4096;
/// Time from one event to the next.
const STEP: u64 = 20_000;

fn main() {
    let numbers: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let [millions, gib] =
        [(0, 20), (1, 2)].map(|(place, usual)| numbers.get(place).copied().unwrap_or(usual));
    let size = Bytes(gib << 30);
    let dir = tempfile::tempdir().expect("a directory for the files");
    for (name, event) in [("random 4 KiB", random as Shape), ("files of 128 KiB", files)] {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let events: Vec<_> = (0..millions * 1_000_000).map(|number| event(&mut rng, number, size)).collect();
        let path = dir.path().join(name);
        let device = TraceDevice { name: "nvme0n1".to_owned(), size, ..TraceDevice::default() };
        let header = TraceHeader { devices: vec![device], has_frees: true, ..TraceHeader::new("record") };
        let mut writer = TraceWriter::create(&path, header).expect("the file can be made");
        events.chunks(BATCH).for_each(|events| writer.write(events).expect("there is room"));
        writer.finish().expect("there is room");
        let file = || TraceFile::open(&path).expect("it was just written").with_columns(Columns::Replay);
        let of_memory = TraceHeader::new("memory");
        let memory = || InMemory::new(&of_memory, &events, BATCH);

        println!(
            "{name}, {millions} million events, {gib} GiB: million events a processor second, median of {ROUNDS}"
        );
        println!("  {:<8} {:5.1}", "reader", median(events.len(), || read(&mut file())));
        for kind in [PolicyKind::None, PolicyKind::Online, PolicyKind::Batched, PolicyKind::Smart] {
            let from_file = median(events.len(), || replay(kind, size, events.len(), &mut file()));
            let from_memory = median(events.len(), || replay(kind, size, events.len(), &mut memory()));
            println!("  {:<8} {from_file:5.2}   from memory {from_memory:5.2}", kind.name());
        }
    }
}

type Shape = fn(&mut Xoshiro256PlusPlus, u64, Bytes) -> TraceEvent;

/// Pages anywhere: three in five events are writes, one is a read and one a free.
fn random(rng: &mut Xoshiro256PlusPlus, number: u64, size: Bytes) -> TraceEvent {
    let kind = [EventKind::Write, EventKind::Write, EventKind::Write, EventKind::Read, EventKind::Free]
        [number as usize % 5];
    event(number, kind, Bytes(rng.random_range(0..size.0 >> 12) << 12), Bytes(4 * 1024))
}

/// A file system that writes, reads and deletes files of 128 KiB anywhere, and writes 4 KiB of its
/// journal, in a ring of 64 MiB, for each of these.
fn files(rng: &mut Xoshiro256PlusPlus, number: u64, size: Bytes) -> TraceEvent {
    let kind =
        [EventKind::Write, EventKind::Write, EventKind::Read, EventKind::Free][(number / 2) as usize % 4];
    if number.is_multiple_of(2) {
        return event(number, EventKind::Write, Bytes((number / 2 % (1 << 14)) << 12), Bytes(4 * 1024));
    }
    event(number, kind, Bytes(rng.random_range(1 << 9..size.0 >> 17) << 17), Bytes(128 * 1024))
}

fn event(number: u64, kind: EventKind, start: Bytes, length: Bytes) -> TraceEvent {
    TraceEvent {
        at: Nanos(number * STEP),
        device: DeviceIndex(0),
        kind,
        extent: Extent::at(start, length),
        latency: kind.is_request().then_some(Nanos(80_000 + start.0 % 4096)),
        process: Comm::new(b"fio"),
        error: 0,
        fs: None,
    }
}

fn read(file: &mut TraceFile) -> f64 {
    let begin = processor_seconds();
    let mut batch = Vec::new();
    loop {
        file.next_batch(&mut batch).expect("the trace is sound");
        if batch.is_empty() {
            return processor_seconds() - begin;
        }
    }
}

fn replay<S>(kind: PolicyKind, size: Bytes, events: usize, source: &mut S) -> f64
where
    S: TraceSource<Error: Error + 'static>,
{
    let profile = Profile::named("nvme-tlc").expect("it is built in");
    let options = ReplayOptions {
        profile: &profile,
        size,
        preconditioned: true,
        device: DeviceIndex(0),
        scale: None,
        span: Nanos(events as u64 * STEP),
        clocks: Clocks::default(),
    };
    let smart = || Box::new(SmartPolicy::of_drive(&profile, size));
    let policy = PolicyChoice::from(kind).engine().unwrap_or_else(|| smart());
    let mut replay = Replay::new(&options, Discards::Policy(policy)).expect("the geometry works");
    let begin = processor_seconds();
    replay.pass(source, &mut |_| true).expect("all extents are inside");
    processor_seconds() - begin
}

/// Processor time of this thread so far, in seconds.
fn processor_seconds() -> f64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// The median of rounds that take these seconds each, in million events a second.
fn median(events: usize, round: impl FnMut() -> f64) -> f64 {
    let mut seconds: Vec<_> = std::iter::repeat_with(round).take(ROUNDS).collect();
    seconds.sort_by(f64::total_cmp);
    events as f64 / seconds[ROUNDS / 2] / 1e6
}
