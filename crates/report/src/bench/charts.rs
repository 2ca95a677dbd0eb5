//! The charts of one drive, and the latency chart of several.

use std::collections::BTreeSet;

use trimtab_core::document::BenchDocument;
use trimtab_core::document::bench::{DegradationStep, Fit, InterferenceCell, Latency, SweepCell};

use super::across::label;
use super::sweep::{Kind, cells, kinds, main_kind};
use super::tables::step;
use super::words::condition;
use crate::axis::{Axis, tick_label};
use crate::chart::{BarChart, Series};
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
            let lines = several.iter().enumerate().map(|(place, document)| Line {
                name: label(place, document),
                points: samples(&cells(document, kind)),
            });
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
    let shows = |cell: &&&SweepCell| cell.size.0 > 0 && cell.latency.p50_us > 0.0;
    cells.iter().filter(shows).map(sample).collect()
}

/// A plot of latency by size over both logarithms.
fn plot(title: String, lines: Vec<Line>, fit: Option<&Fit>) -> Plot {
    let points = || lines.iter().flat_map(|line| &line.points);
    let least = |of: fn(&Sample) -> f64| points().map(of).min_by(f64::total_cmp).unwrap_or(1.0);
    let most = |of: fn(&Sample) -> f64| points().map(of).max_by(f64::total_cmp).unwrap_or(1.0);
    let (first, last) = (least(|point| point.x), most(|point| point.x));
    let x = Axis::sizes(first, last);
    let y = Axis::log(least(|point| point.y), most(|point| point.top));
    let curve = |fit: &Fit| {
        let steps = ((last / first).log2() * 4.0).ceil() as u32;
        let size = |step| first * 2_f64.powf(f64::from(step) / 4.0).min(last / first);
        let cost = |size: f64| fit.command_us.value + fit.per_gib_ms.value * 1e3 * size / f64::from(1 << 30);
        (0..=steps).map(|step| (size(step), cost(size(step)))).filter(|(_, us)| *us > 0.0).collect()
    };
    let inside = |(from, to): &(f64, f64)| first <= *from && *to <= last;
    let cliffs = fit.iter().flat_map(|fit| &fit.cliffs).map(|cliff| (cliff.from.0 as f64, cliff.to.0 as f64));
    Plot {
        title,
        fit: fit.map(curve).unwrap_or_default(),
        cliffs: cliffs.filter(inside).collect(),
        x: Scale { name: "size of a command".to_owned(), ticks: x.size_ticks(), axis: x, label: size_label },
        y: Scale {
            name: "p50, band to p99, wall time".to_owned(),
            ticks: y.ticks(),
            axis: y,
            label: |us| short(&time(us)),
        },
        lines,
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

/// The foreground's latency, alone and beside discards.
fn interference(document: &BenchDocument) -> String {
    let bars = |what: &str, of: fn(&InterferenceCell) -> &Latency| {
        let series = |name: &str, class: &str, figure: fn(&Latency) -> f64| Series {
            name: name.to_owned(),
            class: class.to_owned(),
            values: document.interference.iter().map(|cell| Spread::of([figure(of(cell)) / 1e3])).collect(),
        };
        BarChart {
            title: format!("{what} beside discards"),
            x: "size and rate of the discards".to_owned(),
            y: "latency (wall time, ms)".to_owned(),
            groups: document.interference.iter().map(condition).collect(),
            series: vec![
                series("p50", "s1", |latency| latency.p50_us),
                series("p99", "s2", |latency| latency.p99_us),
                series("p99.9", "s4", |latency| latency.p999_us),
            ],
        }
        .figure()
    };
    bars("Reads of 4 KiB", |cell| &cell.reads) + &bars("Writes of 4 KiB", |cell| &cell.writes)
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
