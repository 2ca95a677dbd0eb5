//! A comparison on a terminal.

use std::iter::once;

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell as Drawn, CellAlignment, Color, Table};
use trimtab_core::document::CompareDocument;

use super::grid::{self, Tone};
use super::section::{alarms, title};
use super::summary::{FileSystem, Summary};
use crate::number::printable;

/// Columns of a terminal that the text keeps to.
const WIDTH: usize = 80;
const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[1;31m";
const RESET: &str = "\x1b[0m";

/// The table and the advice for a terminal of 80 columns or more; `colour` adds escape codes.
pub fn text(document: &CompareDocument, colour: bool) -> String {
    let summary = Summary::of(document);
    let paint = |code: &str, text: String| if colour { format!("{code}{text}{RESET}") } else { text };
    let title = format!("{}, medians in {}", title(document), summary.clock.name());
    let mut blocks = vec![paint(BOLD, wrapped(&title))];
    if summary.file_systems.is_empty() {
        blocks.push("No run finished: there is nothing to compare.".to_owned());
    }
    for fs in &summary.file_systems {
        blocks.push(format!(
            "{}\n{}\n{}",
            paint(BOLD, printable(&fs.fs)),
            table(fs, colour),
            wrapped(&grid::spread_note(fs))
        ));
        blocks.push(paint(BOLD, wrapped(&fs.advice)));
    }
    blocks.extend(alarms(document, &summary).into_iter().map(|alarm| paint(RED, wrapped(&alarm))));
    blocks.join("\n\n") + "\n"
}

fn table(fs: &FileSystem, colour: bool) -> Table {
    let columns = grid::columns(fs);
    let mut table = Table::new();
    table.load_style(NOTHING).force_no_tty();
    if colour {
        table.enforce_styling();
    }
    table.set_header(
        columns.iter().map(|column| Drawn::new(column.head.join("\n")).add_attribute(Attribute::Bold)),
    );
    for row in 0..fs.rows.len() {
        table.add_row(columns.iter().map(|column| {
            let cell = &column.cells[row];
            let drawn = Drawn::new(&cell.text);
            match cell.tone {
                Tone::Plain => drawn,
                Tone::Better => drawn.fg(Color::Green),
                Tone::Worse => drawn.fg(Color::Red),
            }
        }));
    }
    for (place, column) in table.column_iter_mut().enumerate() {
        let (alignment, gap) = if place == 0 { (CellAlignment::Left, 0) } else { (CellAlignment::Right, 1) };
        column.set_cell_alignment(alignment);
        column.set_padding((gap, 0));
    }
    table
}

/// `text` in lines of at most [`WIDTH`] columns, broken at its spaces.
fn wrapped(text: &str) -> String {
    let text = printable(text);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().chain(once(' ')).chain(word.chars()).count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}
