//! The table of a situation, and the notes below it.

use trimtab_core::document::Clock;

use super::noise::Noise;
use super::situation::{Row, Situation};
use super::words::{listed, multiple};
use crate::chart::policy_class;
use crate::number::{compact, count, percent};
use crate::spread::Spread;
use crate::table::{Cell, Column, Table, Tone};
use crate::terminal::WIDTH;

/// Takes a figure from a row.
type Get = fn(&Row) -> Option<Spread>;

/// A column of the table.
struct Figure {
    head: &'static str,
    of: Get,
    print: fn(f64) -> String,
    /// How a cell is set against `none`'s, if it is.
    judge: Option<Judge>,
    /// Whether only a page shows it.
    only_page: bool,
}

/// Says whether the first figure is worse than the second, beyond noise.
type Judge = fn(&Noise, Spread, Spread) -> bool;

const MIB: f64 = 1_048_576.0;

const fn figure(head: &'static str, of: Get, print: fn(f64) -> String) -> Figure {
    Figure { head, of, print, judge: None, only_page: false }
}

impl Figure {
    const fn worse(self, judge: Judge) -> Self {
        Self { judge: Some(judge), ..self }
    }

    const fn only_page(self) -> Self {
        Self { only_page: true, ..self }
    }
}

fn ms(seconds: f64) -> String {
    compact(seconds * 1e3)
}

fn mib(bytes: f64) -> String {
    compact(bytes / MIB)
}

const WAITED: Figure = figure("waited\ns", |row| row.waited_s, compact).worse(Noise::takes_longer);
const FIGURES: [Figure; 13] = [
    figure("delete\ns", |row| row.delete_s, compact).worse(Noise::takes_longer),
    figure("write\nMiB/s", |row| row.write_mib_s, compact).worse(|noise, a, b| noise.is_less(a, b, 0.0)),
    figure("reads\np99 ms", |row| row.read_p99_s, ms).worse(Noise::p99_is_much_longer),
    figure("reads\nmax ms", |row| row.read_max_s, ms).worse(Noise::longest_is_much_longer),
    figure("\nerases", |row| row.erases, erases).worse(Noise::has_more_erases),
    figure("\nWAF", |row| row.waf, |waf| format!("{:.2}", waf.min(9999.0)))
        .worse(|noise, a, b| noise.is_less(b, a, 0.0)),
    figure("dis-\ncards", |row| row.discards, erases),
    figure("mean\nMiB", |row| row.discard_bytes, mib),
    figure("stale\nMiB", |row| row.stale_bytes, mib),
    figure("discards\nbusy s", |row| row.discard_busy_s, compact).only_page(),
    figure("FITRIM\ns", |row| row.trim_s, compact).only_page(),
    figure("pending\nMiB", |row| row.pending_bytes, mib),
    figure("\nruns", |row| Spread::of([row.runs as f64]), count).only_page(),
];

fn erases(number: f64) -> String {
    if number < 1e7 { count(number) } else { compact(number) }
}

/// The table for a terminal, in parts of at most [`WIDTH`] columns that all begin with the policy.
pub fn terminal(situation: &Situation, colour: bool) -> String {
    let narrow = |columns: &[Column]| {
        let table = Table(columns.to_vec()).terminal(false);
        table.lines().all(|line| line.chars().count() <= WIDTH)
    };
    let mut columns = columns(situation, false).into_iter();
    let Some(policy) = columns.next() else { return String::new() };
    let mut parts = vec![vec![policy.clone()]];
    for column in columns {
        let mut wider = parts.pop().unwrap_or_default();
        wider.push(column);
        if narrow(&wider) || wider.len() <= 2 {
            parts.push(wider);
        } else if let Some(column) = wider.pop() {
            parts.extend([wider, vec![policy.clone(), column]]);
        }
    }
    let drawn: Vec<_> = parts.into_iter().map(|part| Table(part).terminal(colour)).collect();
    drawn.join("\n\n").lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// The table for a page, with columns that a terminal has no space for.
pub fn html(situation: &Situation) -> String {
    Table(columns(situation, true)).html()
}

/// The columns that have something to show.
fn columns(situation: &Situation, page: bool) -> Vec<Column> {
    let rows = &situation.rows;
    let policies: Vec<_> = rows.iter().map(|row| row.policy).collect();
    let name = |row: &Row| Cell {
        swatch: Some(policy_class(row.policy, &policies)),
        ..Cell::plain(row.policy.to_string())
    };
    let mut columns = vec![Column::new("\npolicy", rows.iter().map(name))];
    for figure in [WAITED].into_iter().chain(FIGURES) {
        // Where the drive knows what is stale, that covers what is pending.
        let is_covered =
            figure.head.starts_with("pending") && rows.iter().any(|row| row.stale_bytes.is_some());
        if ((figure.only_page || is_covered) && !page) || rows.iter().all(|row| (figure.of)(row).is_none()) {
            continue;
        }
        let is_waited = figure.head == WAITED.head;
        columns.push(Column::new(figure.head, rows.iter().map(|row| figure.cell(situation, row, is_waited))));
        if is_waited && situation.baseline().is_some() && rows.len() > 1 {
            columns.push(Column::new("vs\nnone", rows.iter().map(|row| ratio(situation, row))));
        }
    }
    if rows.iter().any(|row| !row.verified) || page {
        let data = |row: &Row| if row.verified { Cell::plain("ok") } else { Cell::toned("BAD", Tone::Worse) };
        columns.push(Column::new("\ndata", rows.iter().map(data)));
    }
    columns
}

impl Figure {
    fn cell(&self, situation: &Situation, row: &Row, is_waited: bool) -> Cell {
        if situation.is_as_none(row) {
            // A second run of none: its figures would only show how well none repeats.
            let is_count = (self.of)(row).is_some_and(|spread| spread.max == 0.0);
            return match (is_waited, is_count) {
                (true, _) => Cell::plain("= none"),
                (false, true) if self.judge.is_none() => Cell::plain("0"),
                _ => Cell::plain(""),
            };
        }
        let Some(spread) = (self.of)(row) else { return Cell::nothing() };
        let [min, median, max] = [spread.min, spread.median, spread.max].map(self.print);
        let range = (min != max).then(|| format!("{min} to {max}"));
        Cell { range, ..Cell::toned(median, self.tone(situation, row, spread)) }
    }

    /// Whether the figure is better or worse than `none`'s, beyond noise.
    fn tone(&self, situation: &Situation, row: &Row, spread: Spread) -> Tone {
        let base = situation.baseline().filter(|_| !row.did_nothing).and_then(self.of);
        let (Some(base), Some(is_worse)) = (base, self.judge) else { return Tone::Plain };
        match (is_worse(&situation.noise, spread, base), is_worse(&situation.noise, base, spread)) {
            (true, _) => Tone::Worse,
            (_, true) => Tone::Better,
            _ => Tone::Plain,
        }
    }
}

/// The wait of `row` in multiples of the wait with `none`.
fn ratio(situation: &Situation, row: &Row) -> Cell {
    let base = situation.baseline().and_then(|row| row.waited_s);
    let (Some(waited), Some(base)) = (row.waited_s, base) else { return Cell::nothing() };
    if situation.is_as_none(row) {
        return Cell::plain("");
    }
    match situation.noise.ratio(waited, base) {
        Some(ratio) => Cell::toned(multiple(ratio), WAITED.tone(situation, row, waited)),
        None => Cell::nothing(),
    }
}

/// The part of a policy's wait above which a note names the processor as its limit.
const BOUND_PART: f64 = 0.1;

/// How many runs the medians are of, how far the runs of one policy lie apart, and which policies
/// did nothing.
pub fn notes(situation: &Situation, clock: &Clock) -> Vec<String> {
    let mut notes = vec![spread_note(situation, clock)];
    let names = |wanted: &dyn Fn(&Row) -> bool| -> Vec<String> {
        situation.rows.iter().filter(|row| wanted(row)).map(|row| row.policy.to_string()).collect()
    };
    let as_none = names(&|row| situation.is_as_none(row));
    if !as_none.is_empty() {
        notes.push(format!("{} trimmed nothing. It is the same as none.", listed(as_none)));
    }
    let idle = names(&|row| row.did_nothing && !situation.is_as_none(row));
    if !idle.is_empty() {
        notes.push(format!("{} discarded nothing.", listed(idle)));
    }
    let writers = situation.rows.iter().filter_map(|row| {
        let waited = row.writer_waited_s?;
        Some(format!("{} {} to {}", row.policy, compact(waited.min), compact(waited.max)))
    });
    let writers: Vec<String> = writers.collect();
    if !writers.is_empty() {
        notes.push(format!("Seconds that a single writer waited: {}.", writers.join(", ")));
    }
    let bound = situation.rows.iter().filter_map(|row| {
        let (bound, waited) = (row.processor_bound_s?.median, row.waited_s?.median);
        (bound > BOUND_PART * waited).then(|| format!("{} {}", row.policy, percent(bound / waited)))
    });
    let bound: Vec<String> = bound.collect();
    if !bound.is_empty() {
        notes.push(format!(
            "The guest's processor was busy nearly all the time in steps that are this part of the wait: {}. There the \
             processor is the limit, and not the drive.",
            bound.join(", ")
        ));
    }
    let refused = situation.rows.iter().filter(|row| row.no_space > 0);
    notes.extend(refused.map(|row| {
        let times = if row.no_space == 1 { "once".to_owned() } else { format!("{} times", row.no_space) };
        format!(
            "{}: \"no space left\" {times} while a trim held free space. The workload tried again; a program \
             that does not would have failed.",
            row.policy
        )
    }));
    let short =
        |row: &Row| row.waited_s.is_some_and(|waited| situation.noise.ratio(waited, waited).is_none());
    if situation.rows.iter().any(short) {
        notes.push(format!(
            "Waits below {} are too short for a ratio.",
            super::words::span(10.0 * situation.noise.resolution_s)
        ));
    }
    notes
}

fn spread_note(situation: &Situation, clock: &Clock) -> String {
    let runs = || situation.rows.iter().map(|row| row.runs);
    let (fewest, most) = (runs().min().unwrap_or(0), runs().max().unwrap_or(0));
    let equal = format!("differences below {} count as equal", percent(situation.noise.part));
    if most <= 1 {
        return match clock {
            Clock::Virtual { .. } => format!("One run of each policy, in virtual time: {equal}."),
            Clock::Real { .. } => {
                format!("One run of each policy: its spread is not known; {equal}, and reads decide nothing.")
            }
        };
    }
    let of = if fewest == most { most.to_string() } else { format!("{fewest} to {most}") };
    let figures: [(&str, Get); 3] =
        [("waited", |row| row.waited_s), ("write", |row| row.write_mib_s), ("erases", |row| row.erases)];
    let spreads = figures.iter().filter_map(|(name, of)| {
        let spreads = situation.rows.iter().filter_map(of).map(Spread::half_range);
        let widest = spreads.max_by(f64::total_cmp)?;
        Some(if widest > 1.0 {
            format!("{name} more than ±100 %")
        } else {
            format!("{name} ±{:.1} %", widest * 100.0)
        })
    });
    let spreads: Vec<_> = spreads.collect();
    let widest = if spreads.is_empty() {
        String::new()
    } else {
        format!("; widest spread of a policy: {}", spreads.join(", "))
    };
    format!("Medians of {of} runs{widest}; {equal}.")
}
