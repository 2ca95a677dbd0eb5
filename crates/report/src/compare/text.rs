//! A comparison on a terminal.

use trimtab_core::document::CompareDocument;

use super::alarms::{alarms, verified};
use super::situation::Situation;
use super::summary::{FileSystem, Summary};
use super::{grid, words};
use crate::terminal::{BOLD, RED, hanging, paint, wrapped};

/// The tables and the advice for a terminal of 80 columns or more; `colour` adds escape codes.
pub fn text(document: &CompareDocument, colour: bool) -> String {
    let summary = Summary::of(document);
    let mut head = vec![
        paint(colour, BOLD, wrapped(&words::title(document))),
        hanging("Workload: ", &document.workload.summary),
        hanging("Clock:    ", &words::clock(document)),
    ];
    head.extend(words::space(document).map(|space| hanging("Space:    ", &space)));
    head.extend(words::writers(document).map(|writers| hanging("Writers:  ", &writers)));
    head.extend(words::service(document).map(|service| hanging("Service:  ", &service)));
    let mut blocks = vec![head.join("\n")];
    if summary.file_systems.is_empty() {
        blocks.push("No run finished: there is nothing to compare.".to_owned());
    }
    for fs in &summary.file_systems {
        blocks.extend(fs.situations.iter().map(|situation| table(document, fs, situation, colour)));
        let advice = fs.advice.iter().map(|sentence| paint(colour, BOLD, wrapped(sentence)));
        blocks.push(advice.collect::<Vec<_>>().join("\n"));
    }
    if !summary.file_systems.is_empty() {
        let legend = [words::one_writer(document), Some(words::legend(document)), verified(document)];
        blocks.push(legend.into_iter().flatten().map(|line| wrapped(&line)).collect::<Vec<_>>().join("\n"));
    }
    blocks.extend(alarms(document, &summary).into_iter().map(|alarm| paint(colour, RED, wrapped(&alarm))));
    blocks.join("\n\n") + "\n"
}

fn table(document: &CompareDocument, fs: &FileSystem, situation: &Situation, colour: bool) -> String {
    let mut lines =
        vec![paint(colour, BOLD, wrapped(&fs.heading(situation))), grid::terminal(situation, colour)];
    lines.extend(grid::notes(situation, &document.clock).iter().map(|note| wrapped(note)));
    lines.join("\n")
}
