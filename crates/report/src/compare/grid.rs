//! The table of a file system.

use super::summary::{FileSystem, Row};
use crate::number::{bytes, count, seconds, significant, times};
use crate::spread::Spread;
use crate::table::{Cell, Column, Table, Tone};

/// Takes a figure from a row.
type Get = fn(&Row) -> Option<Spread>;

/// A figure of the table.
struct Figure {
    head: &'static str,
    of: Get,
    print: fn(f64) -> String,
    /// Whether a column shows it in multiples of `none`'s, and if so whether more is better.
    ratio: Option<bool>,
}

const DELETE: Figure =
    Figure { head: "delete\ntime", of: |row| row.delete_s, print: seconds, ratio: Some(false) };
const WAIT: Figure = Figure { head: "\ntime", of: |row| row.wait_s, print: seconds, ratio: Some(false) };
const REST: [Figure; 6] = [
    Figure { head: "write\nMiB/s", of: |row| row.write_mib_s, print: significant, ratio: Some(true) },
    Figure { head: "trim\ntime", of: |row| row.trim_s, print: seconds, ratio: None },
    Figure { head: "\nerases", of: |row| row.erases, print: count, ratio: Some(false) },
    Figure { head: "\nWAF", of: |row| row.waf, print: |waf| format!("{waf:.2}"), ratio: None },
    Figure { head: "dis-\ncards", of: |row| row.discards, print: count, ratio: None },
    Figure { head: "mean\nsize", of: |row| row.discard_bytes, print: bytes, ratio: None },
];

/// The table of `fs`, with the columns that have something to show.
pub fn table(fs: &FileSystem) -> Table {
    let time = if fs.rows.iter().any(|row| row.delete_s.is_some()) { DELETE } else { WAIT };
    let policy =
        |row: &Row| Cell { swatch: Some(row.policy.to_string()), ..Cell::plain(row.policy.to_string()) };
    let mut columns = vec![Column::new("\npolicy", fs.rows.iter().map(policy))];
    for figure in [time].into_iter().chain(REST) {
        if fs.rows.iter().all(|row| (figure.of)(row).is_none()) {
            continue;
        }
        columns.push(Column::new(figure.head, fs.rows.iter().map(|row| figure.cell(row))));
        if let (Some(more_is_better), Some(base)) = (figure.ratio, fs.baseline().and_then(figure.of)) {
            let cell = |row| ratio((figure.of)(row), base, more_is_better);
            columns.push(Column::new("vs\nnone", fs.rows.iter().map(cell)));
        }
    }
    let data = |row: &Row| match row.verified {
        true => Cell::plain("ok"),
        false => Cell::toned("BAD", Tone::Worse),
    };
    columns.push(Column::new("\ndata", fs.rows.iter().map(data)));
    Table(columns)
}

impl Figure {
    fn cell(&self, row: &Row) -> Cell {
        let Some(spread) = (self.of)(row) else { return Cell::nothing() };
        let [min, median, max] = [spread.min, spread.median, spread.max].map(self.print);
        let range = (min != max).then(|| format!("{min} to {max}"));
        Cell { range, ..Cell::plain(median) }
    }
}

fn ratio(spread: Option<Spread>, base: Spread, more_is_better: bool) -> Cell {
    let Some((spread, ratio)) = spread.and_then(|spread| Some((spread, spread.ratio(base)?))) else {
        return Cell::nothing();
    };
    let tone = match (spread.differs(base), (ratio > 1.0) == more_is_better) {
        (false, _) => Tone::Plain,
        (true, true) => Tone::Better,
        (true, false) => Tone::Worse,
    };
    Cell::toned(times(ratio), tone)
}

/// How many runs the medians are of, and how far the runs of one policy lie apart.
pub fn spread_note(fs: &FileSystem) -> String {
    let runs = || fs.rows.iter().map(|row| row.runs);
    let (fewest, most) = (runs().min().unwrap_or(0), runs().max().unwrap_or(0));
    if most <= 1 {
        return "One run a policy: the spread is not known.".to_owned();
    }
    let of = if fewest == most { most.to_string() } else { format!("{fewest} to {most}") };
    let figures: [(&str, Get); 4] = [
        ("time", |row| row.wait_s),
        ("delete", |row| row.delete_s),
        ("write", |row| row.write_mib_s),
        ("erases", |row| row.erases),
    ];
    let spreads: Vec<_> = figures
        .iter()
        .filter_map(|(name, of)| {
            let widest = fs.rows.iter().filter_map(of).map(Spread::half_range).max_by(f64::total_cmp)?;
            Some(format!("{name} ±{:.1} %", widest * 100.0))
        })
        .collect();
    format!("Medians of {of} runs; widest spread of a policy: {}.", spreads.join(", "))
}
