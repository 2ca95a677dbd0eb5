//! The table of a file system, as columns of cells that the terminal and the page both draw.

use super::summary::{FileSystem, Row};
use crate::number::{count, seconds, significant, times};
use crate::spread::Spread;
use trimtab_core::units::Bytes;

/// A column: two lines of heading, and one cell a policy.
pub struct Column {
    pub head: [&'static str; 2],
    pub cells: Vec<Cell>,
}

impl Column {
    /// The heading in one line.
    pub fn title(&self) -> String {
        match self.head {
            ["", line] => line.to_owned(),
            [first, line] => {
                first.strip_suffix('-').map_or(format!("{first} {line}"), |part| format!("{part}{line}"))
            }
        }
    }
}

/// A cell of the table.
pub struct Cell {
    pub text: String,
    /// The smallest and the largest sample, where they differ in print.
    pub range: Option<String>,
    pub tone: Tone,
}

/// What a cell says of its policy, beside `none`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Better,
    Worse,
}

/// Takes a figure from a row.
type Get = fn(&Row) -> Option<Spread>;

/// A figure of the table.
struct Figure {
    head: [&'static str; 2],
    of: Get,
    print: fn(f64) -> String,
    /// Whether a column shows it in multiples of `none`'s, and if so whether more is better.
    ratio: Option<bool>,
}

const DELETE: Figure =
    Figure { head: ["delete", "time"], of: |row| row.delete_s, print: seconds, ratio: Some(false) };
const WAIT: Figure = Figure { head: ["", "time"], of: |row| row.wait_s, print: seconds, ratio: Some(false) };
const REST: [Figure; 6] = [
    Figure { head: ["write", "MiB/s"], of: |row| row.write_mib_s, print: significant, ratio: Some(true) },
    Figure { head: ["trim", "time"], of: |row| row.trim_s, print: seconds, ratio: None },
    Figure { head: ["", "erases"], of: |row| row.erases, print: count, ratio: Some(false) },
    Figure { head: ["", "WAF"], of: |row| row.waf, print: |waf| format!("{waf:.2}"), ratio: None },
    Figure { head: ["dis-", "cards"], of: |row| row.discards, print: count, ratio: None },
    Figure { head: ["mean", "size"], of: |row| row.discard_bytes, print: size, ratio: None },
];

fn size(bytes: f64) -> String {
    let (scale, unit) = match bytes {
        ..1024.0 => (Bytes(1), "B"),
        ..1_048_576.0 => (Bytes::KIB, "KiB"),
        ..1_073_741_824.0 => (Bytes::MIB, "MiB"),
        _ => (Bytes::GIB, "GiB"),
    };
    format!("{} {unit}", significant(bytes / scale.0 as f64))
}

/// The columns that have something to show for `fs`.
pub fn columns(fs: &FileSystem) -> Vec<Column> {
    let time = if fs.rows.iter().any(|row| row.delete_s.is_some()) { DELETE } else { WAIT };
    let policies = fs.rows.iter().map(|row| plain(row.policy.to_string())).collect();
    let mut columns = vec![Column { head: ["", "policy"], cells: policies }];
    for figure in [time].into_iter().chain(REST) {
        if fs.rows.iter().all(|row| (figure.of)(row).is_none()) {
            continue;
        }
        columns
            .push(Column { head: figure.head, cells: fs.rows.iter().map(|row| figure.cell(row)).collect() });
        if let (Some(more_is_better), Some(base)) = (figure.ratio, fs.baseline().and_then(figure.of)) {
            let cell = |row| ratio((figure.of)(row), base, more_is_better);
            columns.push(Column { head: ["vs", "none"], cells: fs.rows.iter().map(cell).collect() });
        }
    }
    let data = |row: &Row| match row.verified {
        true => plain("ok".to_owned()),
        false => Cell { text: "BAD".to_owned(), range: None, tone: Tone::Worse },
    };
    columns.push(Column { head: ["", "data"], cells: fs.rows.iter().map(data).collect() });
    columns
}

impl Figure {
    fn cell(&self, row: &Row) -> Cell {
        let Some(spread) = (self.of)(row) else { return plain("–".to_owned()) };
        let [min, median, max] = [spread.min, spread.median, spread.max].map(self.print);
        let range = (min != max).then(|| format!("{min} to {max}"));
        Cell { text: median, range, tone: Tone::Plain }
    }
}

fn ratio(spread: Option<Spread>, base: Spread, more_is_better: bool) -> Cell {
    let Some((spread, ratio)) = spread.and_then(|spread| Some((spread, spread.ratio(base)?))) else {
        return plain("–".to_owned());
    };
    let tone = match (spread.differs(base), (ratio > 1.0) == more_is_better) {
        (false, _) => Tone::Plain,
        (true, true) => Tone::Better,
        (true, false) => Tone::Worse,
    };
    Cell { text: times(ratio), range: None, tone }
}

fn plain(text: String) -> Cell {
    Cell { text, range: None, tone: Tone::Plain }
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
