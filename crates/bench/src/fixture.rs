//! Documents of drives whose costs are known, for tests.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use trimtab_core::document::Environment;
use trimtab_core::document::bench::{
    BENCH_SCHEMA, BenchDevice, BenchDocument, BenchPlan, DegradationRound, DegradationStep, Granularity,
    InterferenceCell, Latency, LatencyBucket, LatencyHistogram, Passage, Pattern, Queueing, SweepCell,
    Verify,
};
use trimtab_core::erase::{Engine, Operation};
use trimtab_core::profile::{DiscardedReads, Profile};
use trimtab_core::{Bytes, Extent};

/// The results of a bench.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) model: String,
    pub(super) size: Bytes,
    pub(super) command_us: f64,
    pub(super) per_gib_ms: f64,
    pub(super) granularity: Option<Bytes>,
    pub(super) queued: bool,
    pub(super) reads: DiscardedReads,
    pub(super) ignored_every: Option<u32>,
    pub(super) command_limit: Bytes,
    pub(super) fill_mib_s: f64,
    pub(super) steady_mib_s: f64,
    pub(super) fresh_mib_s: f64,
    pub(super) read_us: f64,
    pub(super) seed: u64,
}

impl Default for Measured {
    fn default() -> Self {
        Self {
            model: "A drive".to_owned(),
            size: Bytes(4 << 30),
            command_us: 10_000.0,
            per_gib_ms: 50.0,
            granularity: Some(Bytes(512)),
            queued: false,
            reads: DiscardedReads::Zeros,
            ignored_every: None,
            command_limit: Bytes(2 << 30),
            fill_mib_s: 130.0,
            steady_mib_s: 10.0,
            fresh_mib_s: 100.0,
            read_us: 120.0,
            seed: 0,
        }
    }
}

impl Measured {
    /// A bench of a drive that is as `profile` says.
    pub(super) fn of(profile: &Profile, seed: u64) -> Self {
        let Profile { discard, timing, .. } = profile;
        let ranges = Bytes::GIB.0 as f64 / discard.range_limit.value.0 as f64;
        let range_s = discard.range.value.seconds();
        Self {
            model: profile.model.clone(),
            command_us: (discard.command.value.seconds() + range_s) * 1e6,
            per_gib_ms: (discard.per_gib.value.seconds() + range_s * ranges) * 1e3,
            granularity: Some(discard.honoured_granularity.value),
            queued: discard.queued.value,
            reads: discard.reads.value,
            ignored_every: discard.ignored_every.as_ref().map(|every| every.value),
            command_limit: discard.command_limit.value,
            fill_mib_s: timing.link_write_rate.value.0 as f64 / Bytes::MIB.0 as f64,
            seed,
            ..Self::default()
        }
    }
}

/// The document of a whole run: powers of two from a sector to 2 GiB over data, with noise of 3 %
/// between samples and 2 % between cells and rounds.
pub(super) fn document(measured: &Measured) -> BenchDocument {
    let mut random = SmallRng::seed_from_u64(measured.seed);
    let mut noisy = move |value: f64, share: f64| {
        let sum: f64 = (0..12).map(|_| random.random::<f64>()).sum();
        value * (1.0 + share * (sum - 6.0))
    };
    let sizes: Vec<_> = (9..=31).map(|power| Bytes(1 << power)).collect();
    let sweeps = sizes
        .iter()
        .map(|size| {
            let truth = measured.command_us + measured.per_gib_ms * 1e3 * size.gib();
            let cell = noisy(truth, 0.02);
            let samples: Vec<_> =
                (0..(4 * Bytes::GIB.0 / size.0).min(100)).map(|_| noisy(cell, 0.03)).collect();
            SweepCell {
                operation: Operation::Discard,
                pattern: Pattern::Sequential,
                depth: 1,
                engine: Engine::IoUring,
                size: *size,
                latency: latency(samples),
                wall_s: 1.0,
                commands_s: 1e6 / cell,
                mib_s: size.mib() * 1e6 / cell,
                kernel: None,
                passage: Passage::Whole,
            }
        })
        .collect();
    let mut rounds = |step, mib_s: f64| -> Vec<_> {
        let round =
            |mib_s| DegradationRound { step, written: Bytes::GIB, bytes: Bytes::GIB, wall_s: 1.0, mib_s };
        (0..8).map(|_| round(noisy(mib_s, 0.02))).collect()
    };
    let degradation = [
        rounds(DegradationStep::Fill, measured.fill_mib_s),
        rounds(DegradationStep::Overwrite, measured.steady_mib_s),
        rounds(DegradationStep::Fresh, measured.fresh_mib_s),
    ]
    .concat();
    BenchDocument {
        schema: BENCH_SCHEMA.to_owned(),
        version: "0.1.0".to_owned(),
        command: vec!["trimtab".to_owned(), "bench".to_owned()],
        started: "2026-11-21T12:00:00Z".to_owned(),
        environment: Environment {
            kernel: "6.18.0".to_owned(),
            architecture: "x86_64".to_owned(),
            processor: "a processor".to_owned(),
            processors: 2,
            memory: Bytes::GIB,
            tools: Vec::new(),
        },
        device: BenchDevice {
            path: "/dev/sdx".to_owned(),
            model: measured.model.clone(),
            firmware: "1.0".to_owned(),
            serial: "S1".to_owned(),
            size: measured.size,
            logical_block: Bytes(512),
            physical_block: Bytes(4096),
            rotational: false,
            scheduler: "none".to_owned(),
            queue_requests: 32,
            discard_granularity: Bytes(512),
            discard_alignment: Bytes::ZERO,
            discard_max: measured.command_limit,
            discard_max_hardware: measured.command_limit,
            write_zeroes_max: Bytes::ZERO,
        },
        plan: BenchPlan {
            range: Extent::at(Bytes::ZERO, measured.size),
            parts: Vec::new(),
            sizes,
            patterns: vec![Pattern::Sequential],
            depths: vec![1],
            operations: vec![Operation::Discard],
            budget_wall_s: 60.0,
            verify_delay_wall_s: 1.0,
            seed: 1,
        },
        sweeps,
        verify: Some(verify(measured)),
        queueing: Some(queueing(measured)),
        interference: vec![alone(measured)],
        degradation,
        background: None,
        fit: None,
        missing: Vec::new(),
        stopped: None,
    }
}

fn latency(mut samples_us: Vec<f64>) -> Latency {
    samples_us.sort_by(f64::total_cmp);
    let buckets = samples_us.iter().map(|us| LatencyBucket { ns: (us * 1e3) as u64, count: 1 });
    Latency::of(LatencyHistogram(buckets.collect()))
}

fn verify(measured: &Measured) -> Verify {
    Verify {
        areas: 40,
        area_size: Bytes::MIB,
        readings: Vec::new(),
        ignored: Vec::new(),
        ignored_every: measured.ignored_every,
        lost_outside: 0,
        reads: Some(measured.reads),
        granularity: Granularity {
            advertised: Bytes(512),
            honoured: measured.granularity,
            alignment: Bytes::ZERO,
            reason: None,
            probes: Vec::new(),
        },
        power_cycle: None,
    }
}

fn queueing(measured: &Measured) -> Queueing {
    Queueing {
        repeats: 9,
        discard_size: Bytes::MIB,
        alone_us: measured.command_us,
        reads_us: 1000.0,
        behind_us: measured.command_us,
        read_after_us: measured.read_us,
        read_alone_us: measured.read_us,
        queued: measured.queued,
        holds_back: !measured.queued,
    }
}

fn alone(measured: &Measured) -> InterferenceCell {
    InterferenceCell {
        discard_size: None,
        discard_rate_s: 0.0,
        discards: 0,
        wall_s: 1.0,
        foreground_rate_s: 200.0,
        reads: latency(vec![measured.read_us; 100]),
        writes: latency(vec![measured.read_us; 100]),
        added_ms_per_gib: None,
    }
}
