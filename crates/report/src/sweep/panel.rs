//! A small chart: what stands at which place of two axes.

use crate::axis::{Axis, tick_label};
use crate::html::escape;
use crate::svg::{Anchor, Drawing, Point};
use crate::table::Table;

// All lengths are in user units of the view box.
// Small enough for the screen of a telephone.
const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = WIDTH - 14.0;
const TOP: f64 = 14.0;
const BASE: f64 = HEIGHT - 52.0;
/// Half the side of a mark.
const MARK: f64 = 5.0;

/// A mean, and the ends of its interval.
pub type Mean = [f64; 3];

/// A quantity below the chart or beside it: its name, and its range.
pub struct Quantity<'a> {
    pub label: &'a str,
    pub smallest: f64,
    pub largest: f64,
}

impl<'a> Quantity<'a> {
    /// The quantity that has these means.
    pub fn of(label: &'a str, means: impl Iterator<Item = Mean>) -> Self {
        let range = means.fold((f64::MAX, 0.0), |(smallest, largest): (f64, f64), [_, low, high]| {
            (smallest.min(low), largest.max(high))
        });
        Self { label, smallest: range.0.max(0.0), largest: range.1 }
    }
}

/// The chart while it is drawn.
pub struct Panel {
    across: Axis,
    up: Axis,
    drawing: Drawing,
    legend: String,
    words: String,
}

impl Panel {
    /// A chart without marks.
    pub fn new(across: &Quantity, up: &Quantity) -> Self {
        let axis = |quantity: &Quantity| Axis::range(quantity.smallest, quantity.largest.max(1e-9));
        let mut panel = Self {
            across: axis(across),
            up: axis(up),
            drawing: Drawing::default(),
            legend: String::new(),
            words: String::new(),
        };
        for tick in panel.up.ticks() {
            let y = panel.height(tick);
            panel.drawing.line("grid", (LEFT, y), (RIGHT, y));
            panel.drawing.text("axis", (LEFT - 6.0, y + 4.0), Anchor::End, &tick_label(tick));
        }
        for tick in panel.across.ticks() {
            let x = panel.breadth(tick);
            panel.drawing.line("grid", (x, TOP), (x, BASE));
            panel.drawing.text("axis", (x, BASE + 16.0), Anchor::Middle, &tick_label(tick));
        }
        panel.drawing.upward_text((14.0, f64::midpoint(TOP, BASE)), up.label);
        let below = (f64::midpoint(LEFT, RIGHT), HEIGHT - 10.0);
        panel.drawing.text("", below, Anchor::Middle, across.label);
        panel
    }

    fn breadth(&self, across: f64) -> f64 {
        LEFT + self.across.part(across).max(0.0) * (RIGHT - LEFT)
    }

    fn height(&self, up: f64) -> f64 {
        BASE - self.up.part(up).max(0.0) * (BASE - TOP)
    }

    fn place(&self, across: f64, up: f64) -> Point {
        (self.breadth(across), self.height(up))
    }

    /// Draws a line through these places.
    pub fn line(&mut self, class: &str, places: impl Iterator<Item = Point>) {
        let points: Vec<_> = places.map(|(across, up)| self.place(across, up)).collect();
        self.drawing.path(class, &points);
    }

    /// Draws a mark with its intervals; `note` shows under the pointer.
    pub fn mark(&mut self, class: &str, across: Mean, up: Mean, note: &str) {
        let (x, y) = self.place(across[0], up[0]);
        let (low, high) = (self.place(across[1], up[1]), self.place(across[2], up[2]));
        self.drawing.line("whisker", (x, low.1), (x, high.1));
        self.drawing.line("whisker", (low.0, y), (high.0, y));
        self.drawing.bar(class, (x - MARK, y - MARK), (2.0 * MARK, 2.0 * MARK), note);
        self.words += &format!("; {note}");
    }

    /// Names what a class of marks stands for.
    pub fn name(&mut self, class: &str, name: &str) {
        self.legend += &format!("<span><i class=\"swatch {class}\"></i>{}</span>", escape(name));
    }

    /// The chart as an HTML figure, with a line of text above it that may be empty, and with its figures.
    pub fn figure(self, title: &str, text: &str, figures: &Table) -> String {
        let text =
            if text.is_empty() { String::new() } else { format!("<p class=\"soft\">{}</p>\n", escape(text)) };
        format!(
            "<figure class=\"small\">\n<figcaption>{}</figcaption>\n<div class=\"legend\">{}</div>\n{text}{}\
             <details><summary>Figures</summary>{}</details></figure>\n",
            escape(title),
            self.legend,
            self.drawing.finish((WIDTH, HEIGHT), &format!("{title}{}", self.words)),
            figures.html(),
        )
    }
}
