//! Tables, as columns of cells that the terminal and the page both draw.

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell as Drawn, CellAlignment, Color};

use crate::html::escape;
use crate::number::printable;

/// A table; all columns are equally long.
pub struct Table(pub Vec<Column>);

/// A column: a heading, and one cell a row.
#[derive(Clone)]
pub struct Column {
    /// The heading in the lines that a terminal breaks it into, each word's part with its hyphen.
    pub head: String,
    pub cells: Vec<Cell>,
}

/// A cell of a table.
#[derive(Clone)]
pub struct Cell {
    pub text: String,
    /// The smallest and the largest sample, where they differ in print.
    pub range: Option<String>,
    pub tone: Tone,
    /// The series of the charts whose colour stands before it.
    pub swatch: Option<String>,
}

/// How a cell compares with its reference.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Better,
    Worse,
}

impl Column {
    pub fn new(head: impl Into<String>, cells: impl IntoIterator<Item = Cell>) -> Self {
        Self { head: head.into(), cells: cells.into_iter().collect() }
    }

    /// The heading in one line.
    fn title(&self) -> String {
        let lines = self.head.trim_start();
        lines.replace("-\n", "").replace('\n', " ")
    }
}

impl Cell {
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), range: None, tone: Tone::Plain, swatch: None }
    }

    pub fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { tone, ..Self::plain(text) }
    }

    /// The cell that stands where there is no figure.
    pub fn nothing() -> Self {
        Self::plain("–")
    }
}

impl Table {
    /// The table with spaces between its columns; `colour` adds escape codes.
    pub fn terminal(&self, colour: bool) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).force_no_tty();
        if colour {
            table.enforce_styling();
        }
        let head = |column: &Column| Drawn::new(&column.head).add_attribute(Attribute::Bold);
        table.set_header(self.0.iter().map(head));
        for row in 0..self.rows() {
            table.add_row(self.0.iter().map(|column| {
                let cell = &column.cells[row];
                let drawn = Drawn::new(printable(&cell.text));
                match cell.tone {
                    Tone::Plain => drawn,
                    Tone::Better => drawn.fg(Color::Green),
                    Tone::Worse => drawn.fg(Color::Red),
                }
            }));
        }
        for (place, column) in table.column_iter_mut().enumerate() {
            let (alignment, gap) =
                if place == 0 { (CellAlignment::Left, 0) } else { (CellAlignment::Right, 1) };
            column.set_cell_alignment(alignment);
            column.set_padding((gap, 0));
        }
        table.to_string()
    }

    /// The table as HTML, in a frame of its own that scrolls where it is wider than the page.
    pub fn html(&self) -> String {
        let head: String =
            self.0.iter().map(|column| format!("<th>{}</th>", escape(&column.title()))).collect();
        let row = |row| {
            let cells = self.0.iter().enumerate().map(|(place, column)| draw(&column.cells[row], place == 0));
            format!("<tr>{}</tr>\n", cells.collect::<String>())
        };
        let rows: String = (0..self.rows()).map(row).collect();
        format!(
            "<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr>{head}</tr></thead>\n\
             <tbody>\n{rows}</tbody>\n</table></div>\n"
        )
    }

    fn rows(&self) -> usize {
        self.0.first().map_or(0, |column| column.cells.len())
    }
}

fn draw(cell: &Cell, first: bool) -> String {
    let swatch = cell.swatch.as_ref().map(|class| format!("<i class=\"swatch {class}\"></i>"));
    let range = cell.range.as_ref().map(|range| format!("<small>{}</small>", escape(range)));
    let class = match cell.tone {
        Tone::Plain => "",
        Tone::Better => " class=\"better\"",
        Tone::Worse => " class=\"worse\"",
    };
    let element = if first { "th scope=\"row\"" } else { "td" };
    let [swatch, range] = [swatch, range].map(Option::unwrap_or_default);
    format!("<{element}{class}>{swatch}{}{range}</{}>", escape(&cell.text), &element[..2])
}
