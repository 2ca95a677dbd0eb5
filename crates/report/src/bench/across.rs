//! Several drives beside each other.

use std::collections::BTreeSet;

use trimtab_core::document::BenchDocument;
use trimtab_core::document::bench::{BenchDevice, Estimate, InterferenceCell, Latency, SweepCell, Verify};
use trimtab_core::profile::DiscardedReads;
use trimtab_core::units::Bytes;

use super::charts;
use super::figures::{Degradation, alone, ratio};
use super::summary::Summary;
use super::sweep::{Kind, cells, main_kind};
use super::tables::slower;
use super::words::{condition, letter, reads, unstable, when};
use crate::html::{Section, escape};
use crate::number::{bytes, latency, percent, significant, times};
use crate::table::{Cell, Column, Table, Tone};
use crate::terminal::{BOLD, RED, WIDTH, hanging, paint, wrapped};

/// Two or more benches beside each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison<'a> {
    documents: Vec<&'a BenchDocument>,
    /// The names of the files that they are from; empty if they are from none.
    files: Vec<String>,
}

/// Medians within this part of each other are taken for equal.
const ALIKE: f64 = 0.05;

/// Takes the reads or the writes of a cell.
type Foreground = fn(&InterferenceCell) -> &Latency;

/// The rows of a table: a name, and a cell a drive.
type Rows = Vec<(String, Vec<Cell>)>;

impl<'a> Comparison<'a> {
    /// The comparison of these documents; none of fewer than two.
    pub fn of(documents: impl IntoIterator<Item = &'a BenchDocument>) -> Option<Self> {
        let documents: Vec<_> = documents.into_iter().collect();
        (documents.len() > 1).then_some(Self { documents, files: Vec::new() })
    }

    /// The comparison with the names of the files that the documents are from, in their order.
    pub fn from_files(self, files: Vec<String>) -> Self {
        Self { files, ..self }
    }

    /// The comparison for a terminal of 80 columns or more; `colour` adds escape codes.
    pub fn text(&self, colour: bool) -> String {
        let bold = |text: &str| paint(colour, BOLD, wrapped(text));
        let mut head = vec![bold(&self.title())];
        head.extend(self.named().iter().map(|name| hanging("", name)));
        head.extend(self.alarms().iter().map(|alarm| paint(colour, RED, wrapped(alarm))));
        head.extend(self.findings().iter().map(|finding| hanging("- ", finding)));
        let mut blocks = vec![head.join("\n")];
        for (name, rows) in self.parts() {
            blocks.push(format!("{}\n{}", bold(&name), self.tables(&rows, colour).join("\n\n")));
        }
        blocks.join("\n\n") + "\n"
    }

    /// The comparison as a section of a page.
    pub fn section(&self) -> Section {
        let items = |lines: Vec<String>| -> String {
            lines.iter().map(|line| format!("<li>{}</li>\n", escape(line))).collect()
        };
        let alarms: String =
            self.alarms().iter().map(|alarm| format!("<p class=\"alarm\">{}</p>\n", escape(alarm))).collect();
        let all: Vec<_> = (0..self.documents.len()).collect();
        let tables: String = self
            .parts()
            .iter()
            .map(|(name, rows)| format!("<h2>{}</h2>\n{}", escape(name), self.table(rows, &all).html()))
            .collect();
        let chart = charts::latency(&self.documents).map(|plot| plot.figure()).unwrap_or_default();
        let body = format!(
            "<p class=\"soft\">All times and rates are in <strong>wall time</strong>.</p>\n\
             <ul>\n{}</ul>\n{alarms}<ul class=\"advice\">\n{}</ul>\n<div class=\"charts one\">\n{chart}</div>\n{tables}",
            items(self.named()),
            items(self.findings()),
        );
        Section { title: self.title(), body }
    }

    fn title(&self) -> String {
        let results = self.documents.len();
        let is_first = |place: &usize| {
            let (before, from) = self.documents.split_at(*place);
            let device = &from[0].device;
            // Without a serial number, two drives of a model can't be told apart.
            let is_known = |other: &BenchDevice| !device.serial.is_empty() || other.path == device.path;
            !before.iter().any(|other| other.device.is_same(device) && is_known(&other.device))
        };
        let what = match (0..results).filter(is_first).count() {
            1 => format!("{results} results of one drive"),
            drives if drives < results => format!("{results} results of {drives} drives"),
            _ => format!("{results} drives"),
        };
        format!("bench: {what} beside each other, in wall time")
    }

    /// The letters that stand for the drives.
    fn named(&self) -> Vec<String> {
        let name = |(place, document): (usize, &&BenchDocument)| {
            let device = &document.device;
            let file = self.files.get(place).map(|file| format!(", {file}")).unwrap_or_default();
            let (letter, when) = (letter(place), when(document));
            format!("{letter}: {} ({}, {}), measured {when}{file}", device.model, device.path, device.size)
        };
        self.documents.iter().enumerate().map(name).collect()
    }

    fn alarms(&self) -> Vec<String> {
        let of = |(place, document): (usize, &&BenchDocument)| {
            let alarms = Summary::of(document).alarms.into_iter();
            alarms.map(move |alarm| format!("{}: {alarm}", letter(place))).collect::<Vec<_>>()
        };
        self.documents.iter().enumerate().flat_map(of).collect()
    }

    /// Names the fastest drive, at the smallest and the largest size that all have.
    fn findings(&self) -> Vec<String> {
        let Some(kind) = main_kind(&self.documents) else { return Vec::new() };
        let having: Vec<_> =
            (0..self.documents.len()).filter(|place| !self.cells(*place, kind).is_empty()).collect();
        let sizes = having.iter().map(|place| self.sizes(*place, kind));
        let shared = sizes.reduce(|a, b| &a & &b).unwrap_or_default();
        if having.len() < 2 || shared.is_empty() {
            return vec!["No two drives were measured at the same sizes in the same way.".to_owned()];
        }
        let ends: BTreeSet<_> = shared.first().into_iter().chain(shared.last()).copied().collect();
        let mut findings: Vec<_> = ends.into_iter().map(|size| self.fastest(&having, kind, size)).collect();
        let without: Vec<_> =
            (0..self.documents.len()).filter(|place| !having.contains(place)).map(letter).collect();
        if !without.is_empty() {
            findings.push(format!("Without such a measurement: {}.", without.join(", ")));
        }
        findings
    }

    fn fastest(&self, having: &[usize], kind: Kind, size: Bytes) -> String {
        let median = |place: &usize| {
            let cell = self.cell(*place, kind, size);
            (cell.map_or(f64::INFINITY, |cell| cell.latency.p50_us), *place)
        };
        let mut medians: Vec<_> = having.iter().map(median).collect();
        medians.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (best, first) = medians[0];
        let (worst, last) = medians[medians.len() - 1];
        let what =
            format!("{} of {size} ({}, depth {})", kind.operation.name(), kind.pattern.name(), kind.depth);
        if worst <= best * (1.0 + ALIKE) {
            return format!("A {what} takes equally long in all of them: {}.", latency(best));
        }
        format!(
            "A {what} is fastest on {} with {} and slowest on {} with {} ({}).",
            letter(first),
            latency(best),
            letter(last),
            latency(worst),
            ratio(worst, best).map_or_else(|| "∞×".to_owned(), times)
        )
    }

    /// The tables, by name; only those with something in them.
    fn parts(&self) -> Vec<(String, Rows)> {
        let mut parts = Vec::new();
        if let Some(kind) = main_kind(&self.documents) {
            parts.push((format!("Median latency: {}; multiples of A's", kind.name()), self.latencies(kind)));
        }
        parts.push(("What discards do".to_owned(), self.facts()));
        parts.push((
            "Interference: p99, and its multiple of the same drive's alone".to_owned(),
            self.interference(),
        ));
        parts.push(("Degradation and recovery".to_owned(), self.degradation()));
        parts.retain(|(_, rows)| !rows.is_empty());
        parts
    }

    /// Tables of the first drive and as many others beside it as a terminal has columns for; drives
    /// that have none of the figures are left out.
    fn tables(&self, rows: &Rows, colour: bool) -> Vec<String> {
        let has = |place: &usize| rows.iter().any(|(_, cells)| cells[*place].text != Cell::nothing().text);
        let others: Vec<_> = (1..self.documents.len()).filter(has).collect();
        let drawn = |beside: &[usize], colour| self.table(rows, &[&[0], beside].concat()).terminal(colour);
        let fits = |beside: &[usize]| drawn(beside, false).lines().all(|line| line.chars().count() <= WIDTH);
        let mut rest = others.as_slice();
        let mut tables = Vec::new();
        while !rest.is_empty() {
            let most = (2..=rest.len()).take_while(|count| fits(&rest[..*count])).last().unwrap_or(1);
            tables.push(drawn(&rest[..most], colour));
            rest = &rest[most..];
        }
        tables
    }

    fn table(&self, rows: &Rows, places: &[usize]) -> Table {
        let names = rows.iter().map(|(name, _)| Cell::plain(name.as_str()));
        let drive =
            |place: &usize| Column::new(letter(*place), rows.iter().map(|(_, cells)| cells[*place].clone()));
        Table([Column::new("", names)].into_iter().chain(places.iter().map(drive)).collect())
    }

    fn latencies(&self, kind: Kind) -> Rows {
        let sizes: BTreeSet<_> =
            (0..self.documents.len()).flat_map(|place| self.sizes(place, kind)).collect();
        let median = |place, size| Some(self.cell(place, kind, size)?.latency.p50_us);
        let row = |size: &Bytes| (size.to_string(), self.against_first(|place| median(place, *size)));
        sizes.iter().map(row).collect()
    }

    fn facts(&self) -> Rows {
        let estimate = |estimate: &Estimate, print: fn(f64) -> String| {
            let [value, low, high] =
                [estimate.value, estimate.low, estimate.high].map(|figure| print(figure.max(0.0)));
            Cell { range: Some(format!("{low} to {high}")), ..Cell::plain(value) }
        };
        let yes = |yes: bool| if yes { "yes" } else { "no" };
        let mut rows = Vec::new();
        let mut add = |name: &str, of: &dyn Fn(&BenchDocument) -> Option<Cell>| {
            let cells: Vec<_> = self.documents.iter().map(|document| of(document)).collect();
            if cells.iter().any(Option::is_some) {
                rows.push((
                    name.to_owned(),
                    cells.into_iter().map(|cell| cell.unwrap_or_else(Cell::nothing)).collect(),
                ));
            }
        };
        add("a command costs", &|document| Some(estimate(&document.fit.as_ref()?.command_us, latency)));
        add("each GiB costs", &|document| {
            Some(estimate(&document.fit.as_ref()?.per_gib_ms, |ms| latency(ms * 1e3)))
        });
        add("pays from", &|document| Some(estimate(&document.fit.as_ref()?.pays_from_bytes?, bytes)));
        add("cliffs", &|document| Some(Cell::plain(document.fit.as_ref()?.cliffs.len().to_string())));
        add("reads as", &|document| reads_as(document.verify.as_ref()?));
        add("discards ignored", &|document| {
            let verify = document.verify.as_ref()?;
            Some(match verify.ignored.len() {
                _ if verify.areas == 0 => Cell::nothing(),
                _ if verify.reads.is_none() => Cell::toned("all, it seems", Tone::Worse),
                0 => Cell::plain("none"),
                n => Cell::toned(format!("{n} of {}", verify.areas), Tone::Worse),
            })
        });
        add("data lost outside", &|document| {
            Some(match document.verify.as_ref()?.lost_outside {
                0 => Cell::plain("none"),
                n => Cell::toned(format!("{n} BLOCKS"), Tone::Worse),
            })
        });
        add("granularity", &|document| Some(granularity(document.verify.as_ref()?)));
        add("advertised", &|document| Some(Cell::plain(document.device.discard_granularity.to_string())));
        add("queued", &|document| Some(Cell::plain(yes(document.queueing.as_ref()?.queued))));
        add("holds others back", &|document| Some(Cell::plain(yes(document.queueing.as_ref()?.holds_back))));
        rows
    }

    /// The effect of the same discards on two or more drives, each against itself alone.
    fn interference(&self) -> Rows {
        let all = self.documents.iter().flat_map(|document| &document.interference);
        let mut conditions: Vec<_> = all.map(|cell| (cell.discard_size, cell.discard_rate_s)).collect();
        conditions.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        conditions.dedup();
        let mut rows = Vec::new();
        for wanted in conditions {
            let find = |document: &&'a BenchDocument| {
                let mut cells = document.interference.iter();
                Some((*document, cells.find(|cell| (cell.discard_size, cell.discard_rate_s) == wanted)?))
            };
            let found: Vec<_> = self.documents.iter().map(find).collect();
            let mut having = found.iter().flatten();
            let (Some((_, cell)), Some(_)) = (having.next(), having.next()) else { continue };
            let figures: [(&str, Foreground); 2] =
                [("reads", |cell| &cell.reads), ("writes", |cell| &cell.writes)];
            for (what, of) in figures {
                let draw = |found: &Option<(&BenchDocument, &InterferenceCell)>| match found {
                    Some((document, cell)) => against_alone(document, cell, of),
                    None => Cell::nothing(),
                };
                rows.push((format!("{what}, {}", condition(cell)), found.iter().map(draw).collect()));
            }
        }
        rows
    }

    fn degradation(&self) -> Rows {
        let figures: Vec<_> = self.documents.iter().map(|document| Degradation::of(document)).collect();
        type Row = (&'static str, fn(Degradation) -> Option<f64>, fn(f64) -> String);
        let rows: [Row; 7] = [
            ("sequential MiB/s", |figures| figures.fill_mib_s, significant),
            ("again after discard", |figures| figures.refill_mib_s, significant),
            ("brought back", Degradation::recovered, percent),
            ("random MiB/s", |figures| figures.fresh_mib_s, significant),
            ("steady MiB/s", |figures| figures.steady_mib_s.filter(|_| figures.steady), significant),
            ("not steady yet", |figures| figures.steady_mib_s.filter(|_| !figures.steady), significant),
            ("slows to", Degradation::slowed, times),
        ];
        let row = |(name, of, print): &Row| {
            let value = |figures: &Option<Degradation>| figures.and_then(of).map(print);
            let values: Vec<_> = figures.iter().map(value).collect();
            values.iter().any(Option::is_some).then(|| {
                let cells = values.into_iter().map(|value| value.map_or_else(Cell::nothing, Cell::plain));
                ((*name).to_owned(), cells.collect())
            })
        };
        rows.iter().filter_map(row).collect()
    }

    /// Latencies in microseconds, a cell a drive, each with its multiple of the first drive's.
    fn against_first(&self, of: impl Fn(usize) -> Option<f64>) -> Vec<Cell> {
        let first = of(0);
        let cell = |place| match (of(place), first) {
            (None, _) => Cell::nothing(),
            (Some(us), Some(base)) if place > 0 && base > 0.0 => {
                let tone = match us / base {
                    ratio if ratio > 1.0 + ALIKE => Tone::Worse,
                    ratio if ratio < 1.0 - ALIKE => Tone::Better,
                    _ => Tone::Plain,
                };
                Cell::toned(format!("{} {:>6}", latency(us), times(us / base)), tone)
            }
            (Some(us), _) => Cell::plain(latency(us)),
        };
        (0..self.documents.len()).map(cell).collect()
    }

    fn cells(&self, place: usize, kind: Kind) -> Vec<&'a SweepCell> {
        cells(self.documents[place], kind)
    }

    fn cell(&self, place: usize, kind: Kind, size: Bytes) -> Option<&'a SweepCell> {
        self.cells(place, kind).into_iter().find(|cell| cell.size == size)
    }

    fn sizes(&self, place: usize, kind: Kind) -> BTreeSet<Bytes> {
        self.cells(place, kind).iter().map(|cell| cell.size).collect()
    }
}

/// The p99 of a foreground, and its multiple of what it is alone.
fn against_alone(document: &BenchDocument, cell: &InterferenceCell, of: Foreground) -> Cell {
    let p99 = |cell| of(cell).p99_us;
    let alone = alone(document, cell).filter(|_| cell.discard_size.is_some());
    match alone.and_then(|alone| ratio(p99(cell), p99(alone))) {
        Some(ratio) => {
            Cell { text: format!("{} {:>6}", latency(p99(cell)), times(ratio)), ..slower(Some(ratio)) }
        }
        None => Cell::plain(latency(p99(cell))),
    }
}

/// The data that discarded ranges read as, short enough for two drives on a line.
fn reads_as(verify: &Verify) -> Option<Cell> {
    Some(match verify.reads? {
        DiscardedReads::Garbage if unstable(verify) > 0 => Cell::toned("unstable data", Tone::Worse),
        DiscardedReads::Garbage => Cell::plain("other data"),
        _ => Cell::plain(reads(verify)?),
    })
}

fn granularity(verify: &Verify) -> Cell {
    match verify.granularity.honoured {
        None => Cell::nothing(),
        Some(honoured) if honoured > verify.granularity.advertised => {
            Cell::toned(honoured.to_string(), Tone::Worse)
        }
        Some(honoured) => Cell::plain(honoured.to_string()),
    }
}
