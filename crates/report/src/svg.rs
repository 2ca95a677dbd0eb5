//! The few SVG elements that charts are drawn with. Classes carry the colours.

use crate::html::escape;

/// A place, or a width and a height, in user units: right and down.
pub type Point = (f64, f64);

/// The part of a text that stands at its position.
#[derive(Clone, Copy)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// Elements, in the order they are drawn.
#[derive(Default)]
pub struct Drawing(String);

impl Drawing {
    pub fn line(&mut self, class: &str, (x1, y1): Point, (x2, y2): Point) {
        self.0 += &format!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"
        );
    }

    pub fn text(&mut self, class: &str, (x, y): Point, anchor: Anchor, text: &str) {
        let (anchor, text) = (anchor.name(), escape(text));
        self.0 += &format!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n"
        );
    }

    /// Text that is read from below, about its middle.
    pub fn upward_text(&mut self, (x, y): Point, text: &str) {
        let text = escape(text);
        self.0 += &format!(
            "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" text-anchor=\"middle\">{text}</text>\n"
        );
    }

    /// A bar whose `note` shows under the pointer.
    pub fn bar(&mut self, class: &str, (x, y): Point, (width, height): Point, note: &str) {
        let note = escape(note);
        self.0 += &format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\">\
             <title>{note}</title></rect>\n"
        );
    }

    /// A line through `points`.
    pub fn path(&mut self, class: &str, points: &[Point]) {
        let points = joined(points);
        self.0 += &format!("<polyline class=\"{class}\" points=\"{points}\"/>\n");
    }

    /// A dot at every place of `points`.
    pub fn dots(&mut self, class: &str, points: &[Point]) {
        if !points.is_empty() {
            let dots: String = points.iter().map(|(x, y)| format!("M{x:.1} {y:.1}h0")).collect();
            self.0 += &format!("<path class=\"dots {class}\" d=\"{dots}\"/>\n");
        }
    }

    /// Draws the area that `corners` enclose; its `note`, if there is one, shows under the pointer.
    pub fn area(&mut self, class: &str, corners: &[Point], note: &str) {
        let corners = joined(corners);
        let title = if note.is_empty() { String::new() } else { format!("<title>{}</title>", escape(note)) };
        self.0 += &format!("<polygon class=\"{class}\" points=\"{corners}\">{title}</polygon>\n");
    }

    /// Puts what `other` holds over this.
    pub fn append(&mut self, other: Self) {
        self.0 += &other.0;
    }

    /// The whole as an image of its own, `scale` pixels a unit, with the style sheet it is drawn by.
    pub fn standalone(self, (width, height): Point, scale: f64, style: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\">\n<style>{style}</style>\n{}</svg>\n",
            width * scale,
            height * scale,
            self.0
        )
    }

    /// The whole as an element that fills the width it is given, with `words` for those who don't
    /// see it.
    pub fn finish(self, (width, height): Point, words: &str) -> String {
        let words = escape(words);
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{words}\">\n{}</svg>\n",
            self.0
        )
    }
}

fn joined(points: &[Point]) -> String {
    points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}
