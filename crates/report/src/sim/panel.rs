//! The picture of a drive: what each policy costs and brings, and why, in one figure.

use trimtab_core::document::SimDocument;
use trimtab_core::document::sim::SimRun;

use super::row::Row;
use super::summary::{Drive, runs_on};
use crate::axis::{Axis, tick_label};
use crate::html::escape;
use crate::number::{compact, count, latency, percent, seconds};
use crate::spread::Spread;
use crate::svg::{Anchor, Drawing, Point};

// All lengths are in user units of the view box.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = WIDTH - 12.0;
const BARS_TOP: f64 = 48.0;
const BARS_BASE: f64 = 158.0;
const LINES_TOP: f64 = 204.0;
const LINES_BASE: f64 = 350.0;
const CHARACTER: f64 = 7.6;
/// The part of a bar's place that it fills, up to the widest bar.
const FILLED: f64 = 0.82;
const WIDEST: f64 = 48.0;
/// The last of the ways that lines look when one is over another: thinner, then dashed.
const MOST_OVER: usize = 3;

/// How far a label may reach beyond the bars of its figure, which is less than half of the way to the next ones.
const OUTSIDE: f64 = 7.0;

/// A figure of the bars.
struct Measure {
    name: &'static str,
    of: fn(&Row) -> Option<f64>,
    /// Prints a value with its unit.
    print: fn(f64) -> String,
    /// Whether values are seconds. Those share one unit, which the title names, so that their labels have room.
    is_time: bool,
}

const MEASURES: [Measure; 4] = [
    Measure { name: "erases", of: |row| Some(row.erases), print: count, is_time: false },
    Measure { name: "WAF", of: |row| row.waf, print: |waf| format!("{waf:.2}"), is_time: false },
    Measure { name: "write p99", of: |row| row.write_p99_s, print: |s| latency(s * 1e6), is_time: true },
    Measure { name: "host waits", of: |row| Some(row.waited_s), print: seconds, is_time: true },
];

/// The unit of a figure whose largest value is `s` seconds: its length in seconds, and its name.
fn unit_of_time(s: f64) -> (f64, &'static str) {
    match s {
        ..1e-3 => (1e-6, "µs"),
        ..1.0 => (1e-3, "ms"),
        _ => (1.0, "s"),
    }
}

/// The figure of `drive`: bars of what policies cost, above what the drive had in reserve over time.
pub fn panel(document: &SimDocument, drive: &Drive) -> String {
    let mut drawing = Drawing::default();
    let width = WIDTH / MEASURES.len() as f64;
    for (place, measure) in MEASURES.iter().enumerate() {
        draw_bars(
            &mut drawing,
            drive,
            measure,
            (width * place as f64 + 8.0, width * (place + 1) as f64 - 8.0),
        );
    }
    let runs: Vec<_> = runs_on(document, &drive.profile).collect();
    draw_reserve(&mut drawing, drive, &runs);
    let name = |row: &Row| {
        format!("<span><i class=\"swatch {}\"></i>{}</span>", row.class, escape(&row.policy.label()))
    };
    let policy = |row: &Row| {
        let figure =
            |measure: &Measure| Some(format!("{} {}", measure.name, (measure.print)((measure.of)(row)?)));
        let figures: Vec<_> = MEASURES.iter().filter_map(figure).collect();
        format!("; {}: {}", row.policy.label(), figures.join(", "))
    };
    let policies: String = drive.rows.iter().map(policy).collect();
    let words = format!("What each policy costs and brings, {}{policies}", drive.profile);
    format!(
        "<figure>\n<figcaption>{}</figcaption>\n<div class=\"legend\">{}</div>\n{}</figure>\n",
        escape(&drive.profile),
        drive.rows.iter().map(name).collect::<String>(),
        drawing.finish((WIDTH, HEIGHT), &words),
    )
}

/// One bar a policy, between `left` and `right`.
fn draw_bars(drawing: &mut Drawing, drive: &Drive, measure: &Measure, (left, right): Point) {
    let &Measure { name, of, print, is_time } = measure;
    let spreads: Vec<_> = drive.rows.iter().filter_map(|row| Spread::of(of(row))).collect();
    let axis = Axis::of(spreads.iter());
    let largest = drive.rows.iter().filter_map(of).fold(0.0, f64::max);
    let unit = is_time.then(|| unit_of_time(largest));
    let scale = axis.as_ref().is_some_and(|axis| axis.log).then_some("log");
    let notes: Vec<_> = unit.map(|(_, name)| name).into_iter().chain(scale).collect();
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join(", ")) };
    drawing.text("", (f64::midpoint(left, right), 16.0), Anchor::Middle, &format!("{name}{notes}"));
    drawing.line("base", (left, BARS_BASE), (right, BARS_BASE));
    let step = (right - left) / drive.rows.len() as f64;
    let width = (step * FILLED).min(WIDEST);
    let top_of =
        |value| BARS_BASE - axis.as_ref().map_or(0.0, |axis| axis.part(value)) * (BARS_BASE - BARS_TOP);
    let mut labels = Drawing::default();
    for (place, row) in drive.rows.iter().enumerate() {
        let middle = left + step * (place as f64 + 0.5);
        let Some(value) = of(row) else { continue };
        let top = top_of(value);
        drawing.bar(
            &row.class,
            (middle - width / 2.0, top),
            (width, BARS_BASE - top),
            &format!("{}: {name} {}", row.policy.label(), print(value)),
        );
        let label = unit.map_or_else(|| print(value), |(length, _)| compact(value / length));
        // Labels take turns in two rows above the highest bar, so that each has the room of two bars.
        let half = label.chars().count() as f64 * CHARACTER / 2.0;
        if half <= step {
            let lift = if place % 2 == 1 { 17.0 } else { 4.0 };
            let middle = middle.max(left - OUTSIDE + half).min(right + OUTSIDE - half);
            labels.text("value", (middle, top_of(largest) - lift), Anchor::Middle, &label);
        }
    }
    // A label may reach over its neighbours, so that no bar comes after it.
    drawing.append(labels);
}

/// The share of the flash without data of use, one line a policy, over the trace's time.
fn draw_reserve(drawing: &mut Drawing, drive: &Drive, runs: &[&SimRun]) {
    let points = || runs.iter().flat_map(|run| &run.outcome.reserve);
    let span = points().map(|point| point.trace_ns.seconds()).fold(0.0, f64::max);
    let most = points().map(|point| point.free_share).fold(0.0, f64::max);
    if span <= 0.0 || most <= 0.0 {
        return;
    }
    let (unit, name) = match span {
        ..180.0 => (1.0, "s"),
        ..10_800.0 => (60.0, "min"),
        ..259_200.0 => (3600.0, "h"),
        _ => (86_400.0, "days"),
    };
    let (x, y) = (Axis::linear(span / unit), Axis::linear(most * 1.08));
    let across = |s: f64| LEFT + x.part(s / unit) * (RIGHT - LEFT);
    let up = |share: f64| LINES_BASE - y.part(share) * (LINES_BASE - LINES_TOP);
    drawing.text(
        "",
        (LEFT, LINES_TOP - 12.0),
        Anchor::Start,
        "flash without data of use: the drive's reserve",
    );
    for tick in y.ticks() {
        drawing.line("grid", (LEFT, up(tick)), (RIGHT, up(tick)));
        drawing.text("axis", (LEFT - 6.0, up(tick) + 4.0), Anchor::End, &percent(tick));
    }
    for tick in x.ticks() {
        drawing.text("axis", (across(tick * unit), LINES_BASE + 16.0), Anchor::Middle, &tick_label(tick));
    }
    drawing.line("base", (LEFT, LINES_BASE), (RIGHT, LINES_BASE));
    let label = format!("time in the trace ({name})");
    drawing.text("", (f64::midpoint(LEFT, RIGHT), LINES_BASE + 38.0), Anchor::Middle, &label);
    for (place, (row, run)) in drive.rows.iter().zip(runs).enumerate() {
        let line: Vec<_> = run
            .outcome
            .reserve
            .iter()
            .map(|point| (across(point.trace_ns.seconds()), up(point.free_share)))
            .collect();
        // Lines that meet show at the sides of those above them.
        drawing.path(&format!("line {} over{}", row.class, place.min(MOST_OVER)), &line);
    }
}
