//! Lines with bands over two axes, as SVG: on a page, or as an image of its own.

use crate::axis::Axis;
use crate::html::{CHART_STYLE, PAGE_STYLE, escape};
use crate::svg::{Anchor, Drawing, Point};

/// Lines over two axes, told apart by colour, marker and dashes.
pub struct Plot {
    pub title: String,
    pub x: Scale,
    pub y: Scale,
    pub lines: Vec<Line>,
    /// The curve that was fitted to the first line; empty where there is none.
    pub fit: Vec<Point>,
    /// Spans of the x axis where something changes.
    pub cliffs: Vec<(f64, f64)>,
}

/// An axis and how it is labelled.
pub struct Scale {
    /// Its quantity, with unit and clock.
    pub name: String,
    pub axis: Axis,
    /// The values to name along it.
    pub ticks: Vec<f64>,
    pub label: fn(f64) -> String,
}

/// A line of measured points.
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    pub points: Vec<Sample>,
}

/// A point of a line.
pub struct Sample {
    pub x: f64,
    pub y: f64,
    /// The upper edge of the band above the line; `y` where there is none.
    pub top: f64,
    /// The text that shows under the pointer.
    pub note: String,
}

// All lengths are in user units of the view box; a character of a name is at most about 8.4 wide.
const WIDTH: f64 = 560.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = WIDTH - 10.0;
const PLOT_HEIGHT: f64 = 250.0;
const BELOW: f64 = 46.0;
const ROW: f64 = 18.0;
const CHARACTER: f64 = 8.4;
/// The colours that lines take in turn; the next round is dashed.
const COLOURS: usize = 6;
/// The space between cliffs from which each has its own label.
const LABEL_GAP: f64 = 40.0;
/// Pixels a unit of an image of its own.
const PIXELS: f64 = 2.5;

impl Plot {
    /// The plot as an HTML figure; empty where it has no points.
    pub fn figure(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let (drawing, height) = self.draw(8.0);
        format!(
            "<figure>\n<figcaption>{}</figcaption>\n{}</figure>\n",
            escape(&self.title),
            drawing.finish((WIDTH, height), &self.words())
        )
    }

    /// The plot in words: what it shows, and where each line begins and ends.
    fn words(&self) -> String {
        let at = |point: &Sample| format!("{} at {}", (self.y.label)(point.y), (self.x.label)(point.x));
        let line = |line: &Line| {
            let (first, last) = (line.points.first()?, line.points.last()?);
            Some(format!("; {} from {} to {}", line.name, at(first), at(last)))
        };
        let lines: String = self.lines.iter().filter_map(line).collect();
        format!("{}: {} by {}{lines}", self.title, self.y.name, self.x.name)
    }

    /// The plot as an SVG image of its own, in the page's light colours.
    pub fn image(&self) -> String {
        const TITLE: f64 = 34.0;
        let (drawing, height) = self.draw(TITLE);
        let mut image = Drawing::default();
        image.area("ground", &[(0.0, 0.0), (WIDTH, 0.0), (WIDTH, height), (0.0, height)], "");
        image.text("title", (WIDTH / 2.0, 22.0), Anchor::Middle, &self.title);
        image.append(drawing);
        image.standalone((WIDTH, height), PIXELS, &light(CHART_STYLE))
    }

    /// Whether it has no point at all.
    pub fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.points.is_empty())
    }

    /// The drawing from `top` down, and its height.
    fn draw(&self, top: f64) -> (Drawing, f64) {
        let mut drawing = Drawing::default();
        let top = self.draw_legend(&mut drawing, top) + 6.0;
        let field = Field { plot: self, top, base: top + PLOT_HEIGHT };
        field.draw_cliffs(&mut drawing);
        field.draw_scales(&mut drawing);
        for (place, line) in self.lines.iter().enumerate() {
            field.draw_band(&mut drawing, place, line);
        }
        if !self.fit.is_empty() {
            let points: Vec<_> = self.fit.iter().map(|point| field.at(*point)).collect();
            drawing.path("line fit", &points);
        }
        for (place, line) in self.lines.iter().enumerate() {
            field.draw_line(&mut drawing, place, line);
        }
        (drawing, field.base + BELOW)
    }

    /// The names of the lines from `top` down, as many a row as there is space for; returns where
    /// the last row ends.
    fn draw_legend(&self, drawing: &mut Drawing, top: f64) -> f64 {
        const KEY: f64 = 30.0;
        let fit = (!self.fit.is_empty()).then_some(("fit", None));
        let names = self.lines.iter().enumerate().map(|(place, line)| (line.name.as_str(), Some(place)));
        let (mut x, mut y) = (LEFT, top + 8.0);
        for (name, place) in names.chain(fit) {
            let width = KEY + (name.chars().count() + 1) as f64 * CHARACTER;
            if x + width > RIGHT && x > LEFT {
                (x, y) = (LEFT, y + ROW);
            }
            let class = place.map_or("line fit".to_owned(), line_class);
            drawing.path(&class, &[(x, y), (x + KEY - 6.0, y)]);
            if let Some(place) = place {
                drawing.area(&mark_class(place), &marker(place, (x + (KEY - 6.0) / 2.0, y)), "");
            }
            drawing.text("", (x + KEY, y + 4.5), Anchor::Start, name);
            x += width;
        }
        y + ROW / 2.0
    }
}

/// The part of a drawing that the lines are in.
struct Field<'a> {
    plot: &'a Plot,
    top: f64,
    base: f64,
}

impl Field<'_> {
    /// Where a point of the plot stands on the drawing.
    fn at(&self, (x, y): Point) -> Point {
        (self.across(x), self.base - self.plot.y.axis.part(y) * PLOT_HEIGHT)
    }

    fn across(&self, x: f64) -> f64 {
        LEFT + self.plot.x.axis.part(x) * (RIGHT - LEFT)
    }

    fn draw_scales(&self, drawing: &mut Drawing) {
        let (x, y) = (&self.plot.x, &self.plot.y);
        for tick in &y.ticks {
            let height = self.base - y.axis.part(*tick) * PLOT_HEIGHT;
            drawing.line("grid", (LEFT, height), (RIGHT, height));
            drawing.text("axis", (LEFT - 6.0, height + 4.0), Anchor::End, &(y.label)(*tick));
        }
        for tick in &x.ticks {
            let place = self.across(*tick);
            drawing.line("grid", (place, self.top), (place, self.base));
        }
        let labels: Vec<_> = x.ticks.iter().map(|tick| (self.across(*tick), (x.label)(*tick))).collect();
        for (place, label) in labels.iter().step_by(thinned(&labels)) {
            drawing.text("axis", (*place, self.base + 16.0), Anchor::Middle, label);
        }
        let log = |scale: &Scale| if scale.axis.log { ", log scale" } else { "" };
        let middle = f64::midpoint(self.top, self.base);
        drawing.upward_text((14.0, middle), &format!("{}{}", y.name, log(y)));
        let name = format!("{}{}", x.name, log(x));
        drawing.text("", (f64::midpoint(LEFT, RIGHT), self.base + 36.0), Anchor::Middle, &name);
        drawing.line("base", (LEFT, self.base), (RIGHT, self.base));
    }

    fn draw_cliffs(&self, drawing: &mut Drawing) {
        let mut labelled = f64::NEG_INFINITY;
        for (from, to) in &self.plot.cliffs {
            let (left, right) = (self.across(*from), self.across(*to));
            let corners = [(left, self.top), (right, self.top), (right, self.base), (left, self.base)];
            drawing.area("cliff", &corners, "a change of slope, or a jump");
            let middle = f64::midpoint(left, right);
            if middle - labelled > LABEL_GAP {
                drawing.text("warning", (middle, self.top + 12.0), Anchor::Middle, "cliff");
                labelled = middle;
            }
        }
    }

    fn draw_band(&self, drawing: &mut Drawing, place: usize, line: &Line) {
        if line.points.iter().all(|point| point.top <= point.y) {
            return;
        }
        let upper = line.points.iter().map(|point| self.at((point.x, point.top)));
        let lower = line.points.iter().rev().map(|point| self.at((point.x, point.y)));
        let corners: Vec<_> = upper.chain(lower).collect();
        drawing.area(&format!("band {}", colour(place)), &corners, "");
    }

    fn draw_line(&self, drawing: &mut Drawing, place: usize, line: &Line) {
        let points: Vec<_> = line.points.iter().map(|point| self.at((point.x, point.y))).collect();
        drawing.path(&line_class(place), &points);
        for (point, at) in line.points.iter().zip(points) {
            drawing.area(&mark_class(place), &marker(place, at), &point.note);
        }
    }
}

/// One of how many `labels`, each about its place, can stand in a row without touching.
fn thinned(labels: &[(f64, String)]) -> usize {
    let half = |label: &str| label.chars().count() as f64 * CHARACTER / 2.0;
    let apart = |every: usize| {
        let shown: Vec<_> = labels.iter().step_by(every).collect();
        shown.windows(2).all(|pair| pair[0].0 + half(&pair[0].1) < pair[1].0 - half(&pair[1].1))
    };
    (1..=labels.len()).find(|every| apart(*every)).unwrap_or(1)
}

fn colour(place: usize) -> String {
    format!("s{}", place % COLOURS + 1)
}

fn line_class(place: usize) -> String {
    let dashes = if place / COLOURS % 2 == 1 { " second" } else { "" };
    format!("line {}{dashes}", colour(place))
}

fn mark_class(place: usize) -> String {
    format!("mark {}", colour(place))
}

/// The corners of the marker of a line about a point: each line has a shape of its own.
fn marker(place: usize, (x, y): Point) -> Vec<Point> {
    const SIZE: f64 = 4.5;
    // Corners, the direction of the first in eighths of a turn, and the part of the corners that
    // are drawn in, as a star's are.
    let (corners, turned, inner) = match place % COLOURS {
        0 => (16, 0.0, 1.0),
        1 => (4, 1.0, 1.0),
        2 => (3, -2.0, 1.0),
        3 => (4, 0.0, 1.0),
        4 => (3, 2.0, 1.0),
        _ => (8, 0.0, 0.4),
    };
    let corner = |n: u32| {
        let angle = std::f64::consts::TAU * (f64::from(n) / f64::from(corners) + turned / 8.0);
        let radius = if n % 2 == 1 { SIZE * inner } else { SIZE };
        (x + radius * angle.cos(), y + radius * angle.sin())
    };
    (0..corners).map(corner).collect()
}

/// `style` with the page's light colours in place of their names.
pub fn light(style: &str) -> String {
    let mut parts = style.split("var(");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once(')').unwrap_or((part, ""));
        let value = PAGE_STYLE.split_once(&format!("{name}: ")).map(|(_, after)| after);
        out += value.and_then(|after| after.split(';').next()).unwrap_or("black");
        out += rest;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_of_its_own_names_every_colour() {
        let style = light(CHART_STYLE);
        assert!(!style.contains("var(") && !style.contains("black"), "{style}");
        assert!(style.contains("svg text { fill: #1b1f24;"), "{style}");
    }

    #[test]
    fn labels_never_touch() {
        let labels = |gap: f64| -> Vec<_> {
            (0..9_i32).map(|place| (f64::from(place) * gap, "128 KiB".to_owned())).collect()
        };
        assert_eq!([60.0, 58.0, 29.0, 10.0].map(|gap| thinned(&labels(gap))), [1, 2, 3, 6]);
        assert_eq!(thinned(&[]), 1);
    }

    #[test]
    fn every_line_has_its_own_look() {
        let looks: std::collections::BTreeSet<_> = (0..2 * COLOURS)
            .map(|place| (line_class(place), format!("{:?}", marker(place, (0.0, 0.0)))))
            .collect();
        assert_eq!(looks.len(), 2 * COLOURS);
        let shapes: std::collections::BTreeSet<_> =
            (0..COLOURS).map(|place| format!("{:?}", marker(place, (0.0, 0.0)))).collect();
        assert_eq!(shapes.len(), COLOURS);
    }
}
