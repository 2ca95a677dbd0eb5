//! Sweeps: the policies of every trace and drive beside each other, and those that no other one beats.

mod front;
mod panel;

use trimtab_core::document::sweep::SweepDocument;
use trimtab_core::shell::command_line;

use crate::html::{Section, escape, page};

pub use front::{Point, front, groups};

/// A whole HTML page about `document`, which needs no other file.
pub fn html(document: &SweepDocument) -> String {
    page(&[section(document)])
}

/// The section of `document`: a small chart for each trace, drive and option, with the Pareto front among its
/// policies, and the cells that failed.
pub fn section(document: &SweepDocument) -> Section {
    let groups = groups(document);
    let panels: String = groups.iter().map(panel::figure).collect();
    let failed: String = document
        .rows
        .iter()
        .filter_map(|row| Some(format!("<li>{}: {}</li>\n", escape(&row.key), escape(row.error.as_ref()?))))
        .collect();
    let failed =
        if failed.is_empty() { failed } else { format!("<h2>Failed cells</h2>\n<ul>\n{failed}</ul>\n") };
    let body = format!(
        "<p class=\"soft\">{} of {} cells. All times are <strong>model time</strong>; bars are 95 % confidence intervals \
         over seeds. A policy is on the Pareto front (joined by the line) if no other one erases less without more waits; \
         the bound ideal, which no machine can use, is left out of it.</p>\n\
         <div class=\"charts\">\n{panels}</div>\n{failed}<h2>Method</h2>\n<pre>{}</pre>\n",
        document.rows.len(),
        document.cells,
        escape(&command_line(&document.command)),
    );
    Section { title: "Sweep: erases and waits of every policy".to_owned(), body }
}
