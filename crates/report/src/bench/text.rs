//! A bench on a terminal.

use trimtab_core::document::BenchDocument;

use super::figures::Degradation;
use super::section::{about, fit_notes, title};
use super::summary::Summary;
use super::sweep::{cells, kinds};
use super::{background, tables, words};
use crate::table::Table;
use crate::terminal::{BOLD, RED, hanging, paint, wrapped};

/// Returns the findings and the tables, for a terminal of 80 columns or more; `colour` adds escape
/// codes.
pub fn text(document: &BenchDocument, colour: bool) -> String {
    let summary = Summary::of(document);
    let bold = |text: &str| paint(colour, BOLD, wrapped(text));
    let table = |table: Table| table.terminal(colour);
    let mut head = vec![bold(&title(document))];
    head.extend(summary.alarms.iter().map(|alarm| paint(colour, RED, wrapped(alarm))));
    head.extend(listed(&summary.findings));
    if summary.findings.is_empty() {
        head.push("Nothing was measured to the end.".to_owned());
    }
    head.push(wrapped(&about(document)));
    let mut blocks = vec![head.join("\n")];
    for kind in kinds(document) {
        let engine = cells(document, kind)[0].engine.name();
        let name = format!("{} ({engine}), latency in wall time", kind.name());
        blocks.push(format!("{}\n{}", bold(&name), table(tables::sweep(document, kind))));
    }
    if let Some(verify) = &document.verify {
        let lines = listed(&words::verify(verify)).join("\n");
        blocks.push(format!("{}\n{lines}\n{}", bold("Does it work?"), table(tables::readings(verify))));
    }
    if let Some(queueing) = &document.queueing {
        let lines = listed(&words::queueing(queueing)).join("\n");
        blocks.push(format!("{}\n{lines}", bold("Queueing")));
    }
    if !document.interference.is_empty() {
        let name = format!("{}, latency in wall time", words::interference_title(document));
        blocks.push(format!("{}\n{}", bold(&name), table(tables::interference(document))));
    }
    if let Some(figures) = Degradation::of(document) {
        let name = "Degradation and recovery, in wall time";
        blocks.push(format!("{}\n{}", bold(name), table(tables::degradation(figures))));
    }
    if let Some(bursts) = document.background.as_ref().and_then(background::bursts) {
        blocks.push(format!("{}\n{}", bold(background::TITLE), table(bursts)));
    }
    if let Some(fit) = &document.fit {
        let mut parts = vec![bold("Fit, in wall time"), table(tables::fit(fit))];
        if !fit.cliffs.is_empty() {
            parts.push(table(tables::cliffs(fit)));
        }
        parts.extend(listed(&fit_notes(fit)));
        blocks.push(parts.join("\n"));
    }
    if !document.missing.is_empty() {
        let lines: Vec<_> =
            document.missing.iter().map(|part| format!("{}: {}", part.what, part.why)).collect();
        blocks.push(format!("{}\n{}", paint(colour, RED, "Missing".to_owned()), listed(&lines).join("\n")));
    }
    blocks.join("\n\n") + "\n"
}

fn listed(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| hanging("- ", line)).collect()
}
