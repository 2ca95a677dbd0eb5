//! The few SVG elements that charts are drawn with. Classes carry the colours.

use crate::html::escape;

/// A place, or a width and a height, in user units: right and down.
pub type Point = (f64, f64);

/// Which part of a text stands at its place.
#[derive(Clone, Copy)]
pub enum Anchor {
    Middle,
    End,
}

impl Anchor {
    const fn name(self) -> &'static str {
        match self {
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

    /// The whole as an element that fills the width it is given, with `title` for those who don't
    /// see it.
    pub fn finish(self, (width, height): Point, title: &str) -> String {
        let title = escape(title);
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\">\n{}</svg>\n",
            self.0
        )
    }
}
