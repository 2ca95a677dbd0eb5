//! A sweep on a terminal.

use trimtab_core::document::sweep::SweepDocument;

use super::{failed, groups, policies, workloads};
use crate::number::printable;
use crate::terminal::{BOLD, RED, hanging, paint, wrapped};

/// The tables of every trace and drive, or workload, for a terminal of 80 columns or more; `colour` adds escape codes.
pub fn text(document: &SweepDocument, colour: bool) -> String {
    let finished = document.rows.iter().filter(|row| row.figures.is_some()).count();
    let head = format!("sweep: {finished} of {} cells have results, in model time", document.cells);
    let mut blocks = vec![paint(colour, BOLD, head)];
    for group in groups(document) {
        let (table, words) = (policies::table(&group).terminal(colour), policies::words(&group));
        blocks.push(format!("{}\n{table}\n{}", titled(colour, &group.title), wrapped(&words)));
    }
    for (workload, table) in workloads::tables(document) {
        blocks.push(format!("{}\n{}", titled(colour, workload), table.terminal(colour)));
    }
    let failed: Vec<_> = failed(document)
        .into_iter()
        .map(|(cells, reason)| hanging("- ", &printable(&format!("failed: {cells}: {reason}"))))
        .collect();
    if !failed.is_empty() {
        blocks.push(failed.join("\n"));
    }
    if let Some(reason) = &document.stopped {
        blocks.push(paint(colour, RED, wrapped(&format!("Not complete: {reason}"))));
    }
    blocks.join("\n\n") + "\n"
}

fn titled(colour: bool, title: &str) -> String {
    paint(colour, BOLD, wrapped(&printable(title)))
}
