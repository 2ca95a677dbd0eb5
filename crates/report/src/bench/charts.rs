//! The charts of one drive, and the latency chart of several.

use std::collections::BTreeSet;

use trimtab_core::document::BenchDocument;
use trimtab_core::document::bench::{DegradationStep, Fit, InterferenceCell, Latency, SweepCell};
use trimtab_core::units::Bytes;

use super::sweep::{Kind, cells, kinds, main_kind};
use super::tables::step;
use super::words::{condition, labels, short as per_second};
use crate::axis::{Axis, tick_label};
use crate::number::{bytes, latency as time, significant};
use crate::plot::{Line, Plot, Sample, Scale};
use crate::spread::Spread;

/// All charts of `document`.
pub fn all(document: &BenchDocument) -> String {
    latencies(document) + &interference(document) + &degradation(document)
}

/// The latency chart of these documents by the kind of commands most of them have: with a line a
/// pattern and the fit where there is one document, else with a line a document; none without a
/// finished cell.
pub fn latency(documents: &[&BenchDocument]) -> Option<Plot> {
    let kind = main_kind(documents)?;
    let plot = match documents {
        [document] => by_pattern(document, kind),
        several => {
            let lines = several
                .iter()
                .zip(labels(several))
                .map(|(document, name)| Line { name, points: samples(&cells(document, kind)) });
            let title = format!("Latency by size: {}", kind.name());
            plot(title, lines.filter(|line| !line.points.is_empty()).collect(), None)
        }
    };
    Some(plot)
}

/// Latency by pattern, by depth and by operation, each beside the plainest kind.
fn latencies(document: &BenchDocument) -> String {
    let Some(main) = main_kind(&[document]) else { return String::new() };
    let others = |same: fn(Kind, Kind) -> bool| -> Vec<Kind> {
        kinds(document).into_iter().filter(|kind| same(*kind, main)).collect()
    };
    let beside = |kinds: Vec<Kind>, what: &str, name: fn(Kind) -> String| match kinds.len() {
        0..2 => String::new(),
        _ => plot(format!("Latency by size: {what}"), lines(document, &kinds, name), None).figure(),
    };
    let depths = others(|kind, main| (kind.operation, kind.pattern) == (main.operation, main.pattern));
    let operations = others(|kind, main| (kind.pattern, kind.depth) == (main.pattern, main.depth));
    by_pattern(document, main).figure()
        + &beside(depths, &format!("{}, {}", main.operation.name(), main.pattern.name()), |kind| {
            format!("depth {}", kind.depth)
        })
        + &beside(operations, &format!("{}, depth {}", main.pattern.name(), main.depth), |kind| {
            kind.operation.name().to_owned()
        })
}

fn by_pattern(document: &BenchDocument, main: Kind) -> Plot {
    let patterns: Vec<_> = kinds(document)
        .into_iter()
        .filter(|kind| (kind.operation, kind.depth) == (main.operation, main.depth))
        .collect();
    let title = format!("Latency by size: {}, depth {}", main.operation.name(), main.depth);
    plot(title, lines(document, &patterns, |kind| kind.pattern.name().to_owned()), document.fit.as_ref())
}

fn lines(document: &BenchDocument, kinds: &[Kind], name: fn(Kind) -> String) -> Vec<Line> {
    let line = |kind: &Kind| Line { name: name(*kind), points: samples(&cells(document, *kind)) };
    kinds.iter().map(line).collect()
}

fn samples(cells: &[&SweepCell]) -> Vec<Sample> {
    let sample = |cell: &&SweepCell| {
        let Latency { n, p50_us, p99_us, .. } = cell.latency;
        let note = format!("{}: p50 {}, p99 {}, n {n}", cell.size, time(p50_us), time(p99_us));
        Sample { x: cell.size.0 as f64, y: p50_us, top: p99_us.max(p50_us), note }
    };
    cells.iter().map(sample).collect()
}

/// The latencies of a sweep, with what was fitted to them.
fn plot(title: String, lines: Vec<Line>, fit: Option<&Fit>) -> Plot {
    let plot = by_size(title, "size of a command", "p50, band to p99, wall time", lines);
    let sizes = || plot.lines.iter().flat_map(|line| &line.points).map(|point| point.x);
    let (Some(fit), Some(first), Some(last)) =
        (fit, sizes().min_by(f64::total_cmp), sizes().max_by(f64::total_cmp))
    else {
        return plot;
    };
    let steps = ((last / first).log2() * 4.0).ceil() as u32;
    let size = |step| first * 2_f64.powf(f64::from(step) / 4.0).min(last / first);
    let cost = |size: f64| fit.command_us.value + fit.per_gib_ms.value * 1e3 * size / f64::from(1 << 30);
    let curve = (0..=steps).map(|step| (size(step), cost(size(step)))).filter(|(_, us)| *us > 0.0).collect();
    let inside = |(from, to): &(f64, f64)| first <= *from && *to <= last;
    let cliffs =
        fit.cliffs.iter().map(|cliff| (cliff.from.0 as f64, cliff.to.0 as f64)).filter(inside).collect();
    Plot { fit: curve, cliffs, ..plot }
}

/// A plot of latency by size over both logarithms; points at zero are left out.
pub fn by_size(title: String, x: &str, y: &str, mut lines: Vec<Line>) -> Plot {
    for line in &mut lines {
        line.points.retain(|point| point.x > 0.0 && point.y > 0.0);
    }
    let points = || lines.iter().flat_map(|line| &line.points);
    let least = |of: fn(&Sample) -> f64| points().map(of).min_by(f64::total_cmp).unwrap_or(1.0);
    let most = |of: fn(&Sample) -> f64| points().map(of).max_by(f64::total_cmp).unwrap_or(1.0);
    let across = Axis::sizes(least(|point| point.x), most(|point| point.x));
    let up = Axis::log(least(|point| point.y), most(|point| point.top));
    Plot {
        title,
        x: Scale { name: x.to_owned(), ticks: across.size_ticks(), axis: across, label: size_label },
        y: Scale { name: y.to_owned(), ticks: up.ticks(), axis: up, label: |us| short(&time(us)) },
        lines,
        fit: Vec::new(),
        cliffs: Vec::new(),
    }
}

fn size_label(size: f64) -> String {
    short(&bytes(size))
}

/// A figure and its unit without the figure's trailing zeros: `1 ms` for `1.00 ms`.
fn short(text: &str) -> String {
    match text.split_once(' ') {
        Some((figure, unit)) if figure.contains('.') => {
            format!("{} {unit}", figure.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text.to_owned(),
    }
}

/// The foreground's latency by the size of the discards beside it: a line a rate, and one alone.
fn interference(document: &BenchDocument) -> String {
    let reads = beside(document, "Reads", |cell| &cell.reads);
    let writes = beside(document, "Writes", |cell| &cell.writes);
    reads + &writes
}

fn beside(document: &BenchDocument, what: &str, of: fn(&InterferenceCell) -> &Latency) -> String {
    let cells = &document.interference;
    let sample = |cell: &InterferenceCell, size: Bytes| {
        let Latency { p50_us, p99_us, p999_us, .. } = *of(cell);
        let figures = format!("p50 {}, p99 {}, p99.9 {}", time(p50_us), time(p99_us), time(p999_us));
        let note = format!("{}: {figures}", condition(cell));
        Sample { x: size.0 as f64, y: p99_us, top: p999_us.max(p99_us), note }
    };
    let mut sizes: Vec<_> = cells.iter().filter_map(|cell| cell.discard_size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let alone = cells.iter().filter(|cell| cell.discard_size.is_none());
    let mut lines: Vec<_> = alone
        .map(|cell| Line {
            name: format!("alone, {}/s", per_second(cell.foreground_rate_s)),
            points: sizes.iter().map(|size| sample(cell, *size)).collect(),
        })
        .collect();
    let mut rates: Vec<_> =
        cells.iter().filter(|cell| cell.discard_size.is_some()).map(|cell| cell.discard_rate_s).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    for rate in rates {
        let mut points: Vec<_> = cells
            .iter()
            .filter(|cell| cell.discard_rate_s == rate)
            .filter_map(|cell| Some(sample(cell, cell.discard_size?)))
            .collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        lines.push(Line { name: format!("{} discards/s", per_second(rate)), points });
    }
    by_size(
        format!("{what} of 4 KiB beside discards"),
        "size of a discard",
        "p99, band to p99.9, wall time",
        lines,
    )
    .figure()
}

/// Throughput against what was written since the last discard of everything.
fn degradation(document: &BenchDocument) -> String {
    let rounds = &document.degradation;
    let steps: BTreeSet<DegradationStep> = rounds.iter().map(|round| round.step).collect();
    let line = |wanted: DegradationStep| Line {
        name: step(wanted).to_owned(),
        points: rounds
            .iter()
            .filter(|round| round.step == wanted && round.mib_s > 0.0)
            .map(|round| Sample {
                x: round.written.gib(),
                y: round.mib_s,
                top: round.mib_s,
                note: format!("after {}: {} MiB/s", round.written, significant(round.mib_s)),
            })
            .collect(),
    };
    let lines: Vec<_> = steps.into_iter().map(line).collect();
    let points = || lines.iter().flat_map(|line| &line.points);
    let speeds: Vec<_> = points().filter_map(|point| Spread::of([point.y])).collect();
    let Some(y) = Axis::of(speeds.iter()) else { return String::new() };
    let x = Axis::linear(points().map(|point| point.x).fold(0.0, f64::max).max(f64::MIN_POSITIVE));
    Plot {
        title: "Throughput of writes since everything was discarded".to_owned(),
        fit: Vec::new(),
        cliffs: Vec::new(),
        x: Scale { name: "written since then, GiB".to_owned(), ticks: x.ticks(), axis: x, label: tick_label },
        y: Scale { name: "MiB/s, wall time".to_owned(), ticks: y.ticks(), axis: y, label: tick_label },
        lines,
    }
    .figure()
}
