use super::random::Random;
use super::{Cell, Cost, cliffs, cost};
use crate::document::bench::{Cliff, Estimate, LatencyBucket, LatencyHistogram};
use crate::units::Bytes;

/// The largest size of a full sweep.
const LARGEST: Bytes = Bytes(2 << 30);

/// How a measured curve differs from the drive's own.
#[derive(Clone, Copy)]
struct Machine {
    /// The relative deviation of single samples.
    samples: f64,
    /// The relative deviation that all samples of a cell share.
    cells: f64,
    /// The share of cells that are off by 10 %.
    off: f64,
}

const QUIET: Machine = Machine { samples: 0.02, cells: 0.01, off: 0.0 };
const SHARED: Machine = Machine { samples: 0.1, cells: 0.02, off: 0.05 };

/// Powers of two up to `largest`.
fn sizes(largest: Bytes) -> impl Iterator<Item = Bytes> {
    (9..).map(|power| Bytes(1 << power)).take_while(move |size| *size <= largest)
}

/// A curve as `machine` measures it: 1 000 samples of small sizes, three of the largest, one sample
/// of a hundred five times too slow.
fn measured(
    machine: Machine,
    largest: Bytes,
    seed: u64,
    cost_us: impl Fn(Bytes) -> f64,
) -> Vec<(Bytes, LatencyHistogram)> {
    let mut random = Random(seed);
    sizes(largest)
        .map(|size| {
            let is_off = random.uniform() < machine.off;
            let sign = if random.uniform() < 0.5 { 1.0 } else { -1.0 };
            let shared =
                (machine.cells * random.normal()).exp() * if is_off { 1.0 + 0.1 * sign } else { 1.0 };
            let count = (6 * Bytes::GIB.0 / size.0).clamp(3, 1000);
            let mut samples: Vec<_> = (0..count)
                .map(|_| {
                    let slow = if random.uniform() < 0.01 { 5.0 } else { 1.0 };
                    cost_us(size) * shared * (machine.samples * random.normal()).exp() * slow
                })
                .collect();
            samples.sort_by(f64::total_cmp);
            let buckets = samples.iter().map(|us| LatencyBucket { ns: (us * 1e3) as u64, count: 1 });
            (size, LatencyHistogram(buckets.collect()))
        })
        .collect()
}

fn cells(curve: &[(Bytes, LatencyHistogram)]) -> Vec<Cell<'_>> {
    curve.iter().map(|(size, latencies)| Cell { size: *size, commands: 1.0, latencies }).collect()
}

fn is_near(estimate: Estimate, truth: f64) -> bool {
    (estimate.value / truth - 1.0).abs() < 0.1
}

fn holds(estimate: Estimate, truth: f64) -> bool {
    (estimate.low..=estimate.high).contains(&truth)
}

/// The time of a discard on an ATA drive: a range names at most 65 535 sectors.
fn ata(command_us: f64, range_us: f64, per_gib_ms: f64) -> impl Fn(Bytes) -> f64 {
    move |size| command_us + range_us * size.0.div_ceil(33_553_920) as f64 + per_gib_ms * 1e3 * size.gib()
}

/// Command and per-GiB cost of drives as a host sees them.
const DRIVES: [(f64, f64, f64); 5] = [
    (10_000.0, 100.0, 50.0),
    (10_000.0, 100.0, 300.0),
    (80.0, 5.0, 20.0),
    (30.0, 0.0, 2.0),
    (83_000.0, 100.0, 500.0),
];

fn fits(machine: Machine, largest: Bytes, drive: (f64, f64, f64), seeds: u64) -> Vec<Cost> {
    let (command, range, per_gib) = drive;
    let curve = |seed| measured(machine, largest, seed, ata(command, range, per_gib));
    (0..seeds).map(|seed| cost(&cells(&curve(seed))).unwrap()).collect()
}

/// The part of `runs` for which `is` holds.
fn share<T>(runs: &[T], is: impl Fn(&T) -> bool) -> f64 {
    runs.iter().filter(|run| is(run)).count() as f64 / runs.len() as f64
}

/// The cliffs that `seeds` runs find on a curve.
fn found(machine: Machine, seeds: u64, cost_us: impl Fn(Bytes) -> f64) -> Vec<Vec<Cliff>> {
    (0..seeds).map(|seed| cliffs(&cells(&measured(machine, LARGEST, seed, &cost_us)))).collect()
}

#[test]
fn both_costs_are_found_within_a_tenth() {
    for drive in DRIVES {
        let (command, range, per_gib) = drive;
        let truth = (command + range, per_gib + range * 32.0 / 1e3);
        let is_near = |fit: &Cost| is_near(fit.command_us, truth.0) && is_near(fit.per_gib_ms, truth.1);
        assert!(fits(QUIET, LARGEST, drive, 50).iter().all(is_near), "{drive:?}");
        assert!(share(&fits(SHARED, LARGEST, drive, 100), is_near) >= 0.98, "{drive:?}");
    }
}

#[test]
fn intervals_hold_the_truth() {
    for machine in [QUIET, SHARED] {
        let runs = fits(machine, LARGEST, (10_000.0, 0.0, 50.0), 200);
        let (command, per_gib) = (
            share(&runs, |fit| holds(fit.command_us, 10_000.0)),
            share(&runs, |fit| holds(fit.per_gib_ms, 50.0)),
        );
        assert!(command > 0.88 && per_gib > 0.88, "{command} {per_gib}");
        assert!(share(&runs, |fit| fit.per_gib_ms.high < 60.0 && fit.per_gib_ms.low > 40.0) > 0.9);
    }
}

#[test]
fn sizes_that_end_too_early_leave_the_cost_per_gib_open() {
    let runs = fits(SHARED, Bytes::MIB, (10_000.0, 0.0, 50.0), 100);
    assert!(share(&runs, |fit| fit.per_gib_ms.low == 0.0) > 0.9);
    assert!(share(&runs, |fit| holds(fit.per_gib_ms, 50.0)) > 0.9);
    assert!(runs.iter().all(|fit| is_near(fit.command_us, 10_000.0)));
}

#[test]
fn disturbed_cells_move_the_fit_little() {
    let mut curve = measured(QUIET, LARGEST, 1, ata(10_000.0, 100.0, 50.0));
    for disturbed in [3, 12, 20] {
        curve[disturbed].1.0.iter_mut().for_each(|bucket| bucket.ns *= 5);
    }
    let fit = cost(&cells(&curve)).unwrap();
    assert!(is_near(fit.command_us, 10_100.0) && is_near(fit.per_gib_ms, 53.2), "{fit:?}");
    assert!(cliffs(&cells(&curve)).is_empty());
}

#[test]
fn commands_split_by_the_kernel_count_one_by_one() {
    let commands = |size: Bytes| size.0.div_ceil(2 << 20) as f64;
    let curve = measured(QUIET, LARGEST, 1, |size| 10_000.0 * commands(size) + 50_000.0 * size.gib());
    let split: Vec<_> =
        cells(&curve).into_iter().map(|cell| Cell { commands: commands(cell.size), ..cell }).collect();
    assert!(is_near(cost(&split).unwrap().command_us, 10_000.0));
    let found = cliffs(&split);
    assert!(
        found.iter().any(|cliff| cliff.from <= Bytes(2 << 20) && cliff.to >= Bytes(2 << 20)),
        "{found:?}"
    );
}

#[test]
fn a_straight_curve_has_no_cliffs() {
    let mut runs = Vec::new();
    for (command, range, per_gib) in DRIVES {
        runs.extend(found(QUIET, 80, ata(command, range, per_gib)));
        runs.extend(found(SHARED, 80, ata(command, range, per_gib)));
    }
    let cut = share(&runs, |cliffs| !cliffs.is_empty());
    assert!(cut < 0.02, "{cut}");
}

#[test]
fn jumps_are_found_where_they_are() {
    let plain = ata(10_000.0, 0.0, 50.0);
    let jumping =
        |by: f64| found(QUIET, 100, |size| plain(size) * if size < Bytes(65_536) { 1.0 } else { by });
    let small = share(&jumping(1.04), |cliffs| !cliffs.is_empty());
    assert!(small > 0.5, "{small}");
    let large = share(&jumping(1.2), |cliffs| match cliffs.as_slice() {
        [cliff] => {
            cliff.to == Bytes(65_536) && is_near(cliff.found_us, 12_000.0) && cliff.expected_us < 10_400.0
        }
        _ => false,
    });
    assert!(large > 0.95, "{large}");
}

#[test]
fn every_kind_of_cliff_is_found() {
    let ignores_below_4k = |size: Bytes| if size < Bytes(4096) { 40.0 } else { 10_000.0 + 5e4 * size.gib() };
    let steeper_from_32m = |size: Bytes| 100.0 + 2e4 * size.gib() + 2e5 * (size.gib() - 0.03125).max(0.0);
    let worse_between = |size: Bytes| {
        let between = (32_768..1 << 20).contains(&size.0);
        if between { 2_000.0 } else { 1_000.0 + 2e4 * size.gib() }
    };
    let places = |cost_us: &dyn Fn(Bytes) -> f64| -> Vec<Vec<u64>> {
        let runs = found(SHARED, 40, cost_us);
        runs.iter().map(|cliffs| cliffs.iter().map(|cliff| cliff.to.0).collect()).collect()
    };
    let ignored = share(&places(&ignores_below_4k), |places| places == &[4096]);
    let worse = share(&places(&worse_between), |places| places == &[32_768, 1 << 20]);
    let steeper = share(
        &places(&steeper_from_32m),
        |places| matches!(places[..], [place] if (32 << 20..=128 << 20).contains(&place)),
    );
    assert!(ignored > 0.9 && worse > 0.9 && steeper > 0.9, "{ignored} {worse} {steeper}");
}

#[test]
fn too_few_sizes_give_nothing() {
    let curve = measured(QUIET, Bytes(1024), 0, |_| 10.0);
    assert_eq!((cost(&cells(&curve)), cliffs(&cells(&curve))), (None, Vec::new()));
    assert_eq!((cost(&[]), cliffs(&[])), (None, Vec::new()));
    let empty = LatencyHistogram::default();
    let nothing = sizes(LARGEST).map(|size| Cell { size, commands: 1.0, latencies: &empty });
    assert_eq!(cost(&nothing.collect::<Vec<_>>()), None);
}

#[test]
fn the_same_cells_give_the_same_figures() {
    let curve = measured(SHARED, LARGEST, 7, ata(80.0, 5.0, 20.0));
    assert_eq!(cost(&cells(&curve)), cost(&cells(&curve)));
}
