//! The arena as a section of a page.

use trimtab_core::document::arena::ArenaDocument;
use trimtab_core::shell::command_line;

use super::picture::figures;
use super::standing::{Standing, standings};
use super::summary::groups;
use super::text::{bars, losing, table};
use crate::html::{Section, escape};
use crate::number::times;
use crate::table::{Cell, Column, Table};

/// The section of `document`: the table of think times, the picture, the losing cells with their reasons, and
/// all cells.
pub fn section(document: &ArenaDocument) -> Section {
    let standings = standings(document);
    let all: Vec<_> = standings.iter().collect();
    let body = format!(
        "<p class=\"soft\">Started {}. All times are <strong>model time</strong>. {}</p>\n{}\
         <div class=\"charts one wider\">\n{}</div>\n<h2>Losing cells</h2>\n<div class=\"reasons\">{}</div>\
         <details class=\"reasons\"><summary>All cells</summary>\n{}</details>\n<h2>Method</h2>\n<pre>{}</pre>\n",
        escape(&document.started),
        escape(&bars()),
        table(&groups(&standings)).html(),
        figures(&standings),
        cells(&losing(&standings)).html(),
        cells(&all).html(),
        escape(&command_line(&document.command)),
    );
    Section { title: "Arena: the policy smart among the others".to_owned(), body }
}

/// One row a cell.
fn cells(standings: &[&Standing]) -> Table {
    let column = |head: &str, text: &dyn Fn(&Standing) -> String| {
        Column::new(head, standings.iter().map(|it| Cell::plain(text(it))))
    };
    Table(vec![
        column("trace", &|it| format!("{} ({})", it.cell.trace, it.cell.set)),
        column("profile", &|it| it.cell.profile.clone()),
        column("think time", &|it| it.cell.think_scale.to_string()),
        column("best other", &|it| it.best.clone()),
        column("wait over best other", &|it| times(it.wait)),
        column("wait over ideal", &|it| it.wait_over_ideal.map_or("–".to_owned(), times)),
        column("erases over fewest", &|it| times(it.erases)),
        column("read p99", &|it| times(it.read_p99)),
        column("reason", &|it| it.reason.clone()),
    ])
}
