//! The arena on a terminal.

use std::fmt::Write;

use trimtab_core::document::arena::ArenaDocument;

use super::standing::{Loss, Standing, standings};
use super::summary::{Group, groups};
use super::{MOST_ERASES, MOST_READ_P99, MOST_WAIT, MOST_WAIT_OVER_IDEAL};
use crate::number::times;
use crate::table::{Cell, Column, Table, Tone};

/// The table of think times, and at most `most` losing cells with their reasons, the worst first.
pub fn text(document: &ArenaDocument, most: usize) -> String {
    let standings = standings(document);
    if standings.is_empty() {
        return "No cell has smart and another policy: there is nothing to compare.\n".to_owned();
    }
    let mut text = format!("{}\n\n{}\n", table(&groups(&standings)).terminal(false), bars());
    let worst = losing(&standings);
    if !worst.is_empty() {
        let _ = writeln!(text, "\nLosing cells: {}, the worst first", worst.len());
    }
    for standing in worst.iter().take(most) {
        let _ = writeln!(text, "{}\n    {}", line(standing), standing.reason);
    }
    text
}

/// The bars, in one sentence.
pub fn bars() -> String {
    format!(
        "Bars: wait {MOST_WAIT} x the best other policy's in each cell and {MOST_WAIT_OVER_IDEAL} x ideal's in the \
         geometric mean, erases {MOST_ERASES} x the fewest, read p99 {MOST_READ_P99} x none's or the best other's."
    )
}

/// The losing cells, the worst first.
pub fn losing(standings: &[Standing]) -> Vec<&Standing> {
    let mut losing: Vec<_> = standings.iter().filter(|it| !it.is_won()).collect();
    losing.sort_by(|a, b| b.excess().total_cmp(&a.excess()));
    losing
}

/// The figures of one cell, in one line.
fn line(standing: &Standing) -> String {
    let cell = &standing.cell;
    let mark = |loss: Loss| if standing.losses.contains(&loss) { "!" } else { "" };
    format!(
        "{} {} {} think {}: wait {}{} {}'s, {} ideal's; erases {}{}; read p99 {}{}",
        cell.set,
        cell.trace,
        cell.profile,
        cell.think_scale,
        times(standing.wait),
        mark(Loss::Wait),
        standing.best,
        standing.wait_over_ideal.map_or("–".to_owned(), times),
        times(standing.erases),
        mark(Loss::Erases),
        times(standing.read_p99),
        mark(Loss::ReadP99),
    )
}

/// One row a group.
pub fn table(groups: &[Group]) -> Table {
    let column = |head: &str, cell: &dyn Fn(&Group) -> Cell| Column::new(head, groups.iter().map(cell));
    let bar = |value: f64, most: f64| {
        Cell::toned(times(value), if value > most { Tone::Worse } else { Tone::Plain })
    };
    let count =
        |count: usize| Cell::toned(count.to_string(), if count > 0 { Tone::Worse } else { Tone::Plain });
    let think = |group: &Group| group.think_scale.map_or("all".to_owned(), |scale| scale.to_string());
    Table(vec![
        column("set", &|group| Cell::plain(&group.set)),
        column("think\ntime", &|group| Cell::plain(think(group))),
        column("cells", &|group| Cell::plain(group.cells.to_string())),
        column("wait over\nbest other", &|group| bar(group.wait, MOST_WAIT)),
        column("worst\ncell", &|group| bar(group.worst_wait, MOST_WAIT)),
        column("wait over\nideal", &|group| {
            group.wait_over_ideal.map_or_else(Cell::nothing, |wait| bar(wait, MOST_WAIT_OVER_IDEAL))
        }),
        column("lose by\nwait", &|group| count(group.losses[0])),
        column("by\nerases", &|group| count(group.losses[1])),
        column("by read\np99", &|group| count(group.losses[2])),
        column("by\nany", &|group| count(group.lost)),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::standing::tests::{document, run};
    use super::*;

    #[test]
    fn losing_cells_come_with_their_reason() {
        let runs = vec![
            run("mail", 0.0, "none", [1000, 100, 100]),
            run("mail", 0.0, "smart", [1500, 100, 100]),
            run("mail", 0.0, "ideal", [500, 100, 100]),
            run("logs", 0.0, "none", [1000, 100, 100]),
            run("logs", 0.0, "smart", [900, 300, 100]),
        ];
        let text = text(&document(runs), 1);
        assert!(
            text.contains(
                "Losing cells: 2, the worst first\nverdict logs nvme-tlc think 0: wait 0.90× none's"
            )
        );
        assert!(
            text.contains("erases 3.0×!; read p99 1.00×\n    fewer erases for longer waits: with none, the foreground waits 1.11×"),
            "{text}"
        );
        assert!(!text.contains("mail"), "only one was asked for: {text}");
    }

    #[test]
    fn empty_result_says_so() {
        assert!(text(&document(Vec::new()), 10).starts_with("No cell"));
    }
}
