//! The tables of one drive.

use trimtab_core::document::BenchDocument;
use trimtab_core::document::bench::{
    Cliff, DegradationRound, DegradationStep, Estimate, Fit, InterferenceCell, Latency, Reading, Verify,
};

use super::figures::{Degradation, alone, ratio};
use super::sweep::{Kind, cells, mark};
use super::words::condition;
use crate::number::{bytes, count, latency, significant, times};
use crate::table::{Cell, Column, Table, Tone};

/// The cells of one kind.
pub fn sweep(document: &BenchDocument, kind: Kind) -> Table {
    let cells = cells(document, kind);
    let time = |head: &str, of: fn(&Latency) -> f64| {
        Column::new(head, cells.iter().map(|cell| Cell::plain(latency(of(&cell.latency)))))
    };
    let mut columns = vec![
        Column::new("size", cells.iter().map(|cell| Cell::plain(cell.size.to_string()))),
        Column::new("n", cells.iter().map(|cell| Cell::plain(count(cell.latency.n as f64)))),
        time("p50", |latency| latency.p50_us),
        Column::new(
            "p99",
            cells.iter().map(|cell| match cell.latency.n {
                0..100 => Cell::nothing(),
                _ => Cell::plain(latency(cell.latency.p99_us)),
            }),
        ),
        time("max", |latency| latency.max_us),
        Column::new("commands/s", cells.iter().map(|cell| Cell::plain(significant(cell.commands_s)))),
        Column::new("MiB/s", cells.iter().map(|cell| Cell::plain(significant(cell.mib_s)))),
    ];
    if cells.iter().any(|cell| !mark(cell.passage).is_empty()) {
        let marks = cells.iter().map(|cell| Cell::toned(mark(cell.passage), Tone::Worse));
        columns.push(Column::new("kernel", marks));
    }
    Table(columns)
}

/// The results of each reading.
pub fn readings(verify: &Verify) -> Table {
    let figure = |head: &str, of: &dyn Fn(&Reading) -> u64, bad| {
        let cell = |n| match n {
            0 => Cell::plain("0"),
            n => Cell::toned(count(n as f64), if bad { Tone::Worse } else { Tone::Plain }),
        };
        Column::new(head, verify.readings.iter().map(|reading| cell(of(reading))))
    };
    let when = |reading: &Reading| format!("{} ({})", reading.when, latency(reading.after_wall_s * 1e6));
    Table(vec![
        Column::new("read", verify.readings.iter().map(|reading| Cell::plain(when(reading)))),
        figure("zero", &|reading| reading.zero, false),
        figure("unchanged", &|reading| reading.unchanged, false),
        figure("misplaced", &|reading| reading.misplaced, true),
        figure("changed", &|reading| reading.changed, false),
        figure("unstable", &|reading| reading.unstable, true),
    ])
}

/// The foreground's latencies, alone first.
pub fn interference(document: &BenchDocument) -> Table {
    let mut cells: Vec<&InterferenceCell> = document.interference.iter().collect();
    cells.sort_by(|a, b| {
        let rates = a.foreground_rate_s.total_cmp(&b.foreground_rate_s);
        let discards = || a.discard_size.cmp(&b.discard_size);
        rates.then_with(discards).then_with(|| a.discard_rate_s.total_cmp(&b.discard_rate_s))
    });
    let rows =
        || cells.iter().flat_map(|cell| [(*cell, "reads", &cell.reads), (*cell, "writes", &cell.writes)]);
    let to_alone = |cell: &InterferenceCell, what: &str, figures: &Latency| {
        let alone = alone(document, cell).filter(|_| cell.discard_size.is_some())?;
        let base = if what == "reads" { &alone.reads } else { &alone.writes };
        ratio(p99(figures)?, p99(base)?)
    };
    let beside = |cell: &InterferenceCell, what: &str| {
        Cell::plain(if what == "reads" { condition(cell) } else { String::new() })
    };
    let added = |cell: &InterferenceCell, what: &str| match cell.added_ms_per_gib.filter(|_| what == "reads")
    {
        Some(ms) if ms > 0.0 => Cell::plain(latency(ms * 1e3)),
        Some(_) => Cell::plain("none"),
        None => Cell::plain(""),
    };
    let time = |head: &str, of: fn(&Latency) -> Option<f64>| {
        Column::new(
            head,
            rows().map(|(_, _, figures)| Cell::plain(of(figures).map_or_else(String::new, latency))),
        )
    };
    Table(vec![
        Column::new("\nbeside discards", rows().map(|(cell, what, _)| beside(cell, what))),
        Column::new("fore-\nground", rows().map(|(_, what, _)| Cell::plain(what))),
        time("\np50", |latency| Some(latency.p50_us)),
        time("\np99", p99),
        time("\np99.9", |latency| (latency.n >= 1000).then_some(latency.p999_us)),
        Column::new(
            "p99 to\nalone",
            rows().map(|(cell, what, figures)| slower(to_alone(cell, what, figures))),
        ),
        Column::new("added\nper GiB", rows().map(|(cell, what, _)| added(cell, what))),
    ])
}

/// The 99th percentile; none where so few commands have none but the longest.
fn p99(latency: &Latency) -> Option<f64> {
    (latency.n >= 100).then_some(latency.p99_us)
}

/// A multiple of what something takes alone.
pub fn slower(ratio: Option<f64>) -> Cell {
    match ratio {
        None => Cell::plain(""),
        Some(ratio) => Cell::toned(times(ratio), if ratio > 2.0 { Tone::Worse } else { Tone::Plain }),
    }
}

/// The speeds of the degradation run.
pub fn degradation(figures: Degradation) -> Table {
    let last = if figures.steady {
        "random 4 KiB, steady without discards"
    } else {
        "random 4 KiB, at the end, not steady yet"
    };
    let rows = [
        ("sequential, after a discard of everything", figures.fill_mib_s),
        ("random 4 KiB, after a discard of everything", figures.fresh_mib_s),
        (last, figures.steady_mib_s),
        ("sequential, after everything was discarded again", figures.refill_mib_s),
    ];
    let known = || rows.iter().filter_map(|(name, rate)| Some((*name, (*rate)?)));
    Table(vec![
        Column::new("writes", known().map(|(name, _)| Cell::plain(name))),
        Column::new("MiB/s", known().map(|(_, rate)| Cell::plain(significant(rate)))),
    ])
}

/// Every round of the degradation run.
pub fn rounds(rounds: &[DegradationRound]) -> Table {
    let column = |head: &str, of: fn(&DegradationRound) -> String| {
        Column::new(head, rounds.iter().map(|round| Cell::plain(of(round))))
    };
    Table(vec![
        column("step", |round| step(round.step).to_owned()),
        column("written since the discard", |round| bytes(round.written.0 as f64)),
        column("in this round", |round| bytes(round.bytes.0 as f64)),
        column("time", |round| latency(round.wall_s * 1e6)),
        column("MiB/s", |round| significant(round.mib_s)),
    ])
}

/// The writes of a step of the degradation run.
pub fn step(step: DegradationStep) -> &'static str {
    match step {
        DegradationStep::Fill => "sequential",
        DegradationStep::Overwrite => "random",
        DegradationStep::Refill => "sequential, discarded again",
        DegradationStep::Fresh => "random, just discarded",
    }
}

/// The fitted figures with their intervals.
pub fn fit(fit: &Fit) -> Table {
    let time = |us: f64| latency(us.max(0.0));
    let rows: Vec<_> = [
        Some(("a command", fit.command_us, time as fn(f64) -> String)),
        Some(("each GiB", fit.per_gib_ms, |ms| latency(ms.max(0.0) * 1e3))),
        fit.per_mapped_gib_ms
            .map(|ms| ("of that for data", ms, (|ms: f64| latency(ms.max(0.0) * 1e3)) as fn(f64) -> String)),
        fit.pays_from_bytes
            .map(|size| ("pays from", size, (|size| bytes(size.max(0.0))) as fn(f64) -> String)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let column = |head: &str, of: fn(&Estimate) -> f64| {
        Column::new(head, rows.iter().map(|(_, estimate, print)| Cell::plain(print(of(estimate)))))
    };
    Table(vec![
        Column::new("a discard", rows.iter().map(|(name, ..)| Cell::plain(*name))),
        column("value", |estimate| estimate.value),
        column("95 % from", |estimate| estimate.low),
        column("to", |estimate| estimate.high),
    ])
}

/// The cliffs of the cost.
pub fn cliffs(fit: &Fit) -> Table {
    let column = |head: &str, of: fn(&Cliff) -> String| {
        Column::new(head, fit.cliffs.iter().map(|cliff| Cell::plain(of(cliff))))
    };
    Table(vec![
        column("cliff from", |cliff| cliff.from.to_string()),
        column("to", |cliff| cliff.to.to_string()),
        column("foretold", |cliff| latency(cliff.expected_us)),
        column("found", |cliff| latency(cliff.found_us.value)),
        column("a GiB below", |cliff| latency(cliff.before_ms_per_gib * 1e3)),
        column("above", |cliff| latency(cliff.after_ms_per_gib * 1e3)),
    ])
}
