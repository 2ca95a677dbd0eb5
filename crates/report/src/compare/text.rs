//! A comparison on a terminal.

use trimtab_core::document::CompareDocument;

use super::grid;
use super::section::{alarms, title};
use super::summary::Summary;
use crate::number::printable;
use crate::terminal::{BOLD, RED, paint, wrapped};

/// The table and the advice for a terminal of 80 columns or more; `colour` adds escape codes.
pub fn text(document: &CompareDocument, colour: bool) -> String {
    let summary = Summary::of(document);
    let title = format!("{}, medians in {}", title(document), summary.clock.name());
    let mut blocks = vec![paint(colour, BOLD, wrapped(&title))];
    if summary.file_systems.is_empty() {
        blocks.push("No run finished: there is nothing to compare.".to_owned());
    }
    for fs in &summary.file_systems {
        blocks.push(format!(
            "{}\n{}\n{}",
            paint(colour, BOLD, printable(&fs.fs)),
            grid::table(fs).terminal(colour),
            wrapped(&grid::spread_note(fs))
        ));
        blocks.push(paint(colour, BOLD, wrapped(&fs.advice)));
    }
    blocks.extend(alarms(document, &summary).into_iter().map(|alarm| paint(colour, RED, wrapped(&alarm))));
    blocks.join("\n\n") + "\n"
}
