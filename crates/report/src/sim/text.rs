//! A simulation on a terminal.

use trimtab_core::document::SimDocument;

use super::grid;
use super::section::{alarms, lifetime_note, title, wear};
use super::summary::Summary;
use crate::number::printable;
use crate::terminal::{BOLD, RED, hanging, paint, wrapped};

/// The tables and the advice for a terminal of 80 columns or more; `colour` adds escape codes.
pub fn text(document: &SimDocument, colour: bool) -> String {
    let summary = Summary::of(document);
    let mut head = vec![paint(colour, BOLD, wrapped(&format!("{}, in model time", title(document))))];
    head.extend(document.notes.iter().map(|note| hanging("- ", note)));
    let mut blocks = vec![head.join("\n")];
    if summary.drives.is_empty() {
        blocks.push("No replay finished: there is nothing to compare.".to_owned());
    }
    for drive in &summary.drives {
        blocks.push(format!(
            "{}\n{}\n{}",
            paint(colour, BOLD, printable(&drive.profile)),
            grid::table(drive).terminal(colour),
            wrapped(&wear(document, &drive.profile)),
        ));
        let advice = [Some(&drive.advice), drive.advice_for_one_copy.as_ref()].into_iter().flatten();
        let advice: Vec<_> = advice.map(|sentence| paint(colour, BOLD, wrapped(sentence))).collect();
        blocks.push(advice.join("\n"));
    }
    if document.trace.tells_life() {
        blocks.push(wrapped(&lifetime_note(document)));
    }
    blocks.extend(alarms(document, &summary).into_iter().map(|alarm| paint(colour, RED, wrapped(&alarm))));
    blocks.join("\n\n") + "\n"
}
