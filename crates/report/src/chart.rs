//! Bar charts as SVG. Colours come from the page's style sheet by the class of a series, so that
//! they follow light, dark and print.

use trimtab_core::policy::PolicyChoice;

use crate::axis::{Axis, tick_label};
use crate::html::escape;
use crate::number::significant;
use crate::spread::Spread;
use crate::svg::{Anchor, Drawing};

/// Groups of bars beside each other, with whiskers from the smallest to the largest sample.
pub struct BarChart {
    pub title: String,
    /// The label of the groups.
    pub x: String,
    /// The quantity of the bars, with its unit and clock.
    pub y: String,
    /// The groups' names.
    pub groups: Vec<String>,
    pub series: Vec<Series>,
    /// Whether its axis may be logarithmic where the values lie far apart.
    pub may_be_log: bool,
}

/// One bar in every group.
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its class in the style sheet.
    pub class: String,
    /// One value a group.
    pub values: Vec<Option<Spread>>,
}

/// The class of a policy's colour among `policies`: its name's, and other ones for those that
/// share the name.
pub fn policy_class(policy: PolicyChoice, policies: &[PolicyChoice]) -> String {
    const OTHERS: [&str; 4] = ["s4", "s3", "s5", "s2"];
    let before = policies.iter().take_while(|other| **other != policy);
    match before.filter(|other| other.kind() == policy.kind()).count() {
        0 => policy.kind().name().to_owned(),
        place => OTHERS[(place - 1) % OTHERS.len()].to_owned(),
    }
}

// All lengths are in user units of the view box; a character of the labels is at most about 8 wide.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 306.0;
const LEFT: f64 = 66.0;
const TOP: f64 = 16.0;
const RIGHT: f64 = WIDTH - 6.0;
const BASE: f64 = HEIGHT - 60.0;
const CHARACTER: f64 = 8.0;
/// The part of a group's width that its bars fill, up to the widest bar.
const FILLED: f64 = 0.84;
const WIDEST: f64 = 56.0;

impl BarChart {
    /// The chart as an HTML figure; empty where there is no value above zero.
    pub fn figure(&self) -> String {
        let Some(mut axis) = Axis::of(self.values()) else { return String::new() };
        if !self.may_be_log {
            let largest = self.values().map(|value| value.max).fold(0.0, f64::max);
            axis = Axis::linear(largest * 1.08);
        }
        let mut drawing = Drawing::default();
        self.draw_scale(&mut drawing, &axis);
        self.draw_names(&mut drawing);
        self.draw_bars(&mut drawing, &axis);
        let name = |series: &Series| {
            format!("<span><i class=\"swatch {}\"></i>{}</span>", series.class, escape(&series.name))
        };
        format!(
            "<figure>\n<figcaption>{}</figcaption>\n<div class=\"legend\">{}</div>\n{}</figure>\n",
            escape(&self.title),
            self.series.iter().map(name).collect::<String>(),
            drawing.finish((WIDTH, HEIGHT), &self.words()),
        )
    }

    /// The chart in words: what it shows, and its lowest and highest bars.
    fn words(&self) -> String {
        let bars = self.series.iter().flat_map(|series| {
            let named = series.values.iter().zip(&self.groups);
            named.filter_map(|(value, group)| Some((value.as_ref()?.median, group, &series.name)))
        });
        let bars: Vec<_> = bars.collect();
        let end = |bar: Option<&(f64, &String, &String)>, what: &str| {
            bar.map_or(String::new(), |(value, group, series)| {
                format!(", {what} {} ({series}, {group})", significant(*value))
            })
        };
        let lowest = end(bars.iter().min_by(|a, b| a.0.total_cmp(&b.0)), "lowest");
        let highest = end(bars.iter().max_by(|a, b| a.0.total_cmp(&b.0)), "highest");
        format!("{}: {} by {}{lowest}{highest}", self.title, self.y, self.x)
    }

    fn draw_scale(&self, drawing: &mut Drawing, axis: &Axis) {
        for tick in axis.ticks() {
            let y = height_of(axis, tick);
            drawing.line("grid", (LEFT, y), (RIGHT, y));
            drawing.text("axis", (LEFT - 6.0, y + 4.0), Anchor::End, &tick_label(tick));
        }
        let scale = if axis.log { ", log scale" } else { "" };
        drawing.upward_text((14.0, f64::midpoint(TOP, BASE)), &format!("{}{scale}", self.y));
        drawing.text("", (f64::midpoint(LEFT, RIGHT), HEIGHT - 8.0), Anchor::Middle, &self.x);
        drawing.line("base", (LEFT, BASE), (RIGHT, BASE));
    }

    /// The names below the groups, in two lines where they are long, and only every this many where
    /// the groups are narrow.
    fn draw_names(&self, drawing: &mut Drawing) {
        let step = self.group_width();
        let longest = self.groups.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let narrow = step < 5.0 * CHARACTER;
        let every = if narrow { ((longest + 1) as f64 * CHARACTER / step).ceil() as usize } else { 1 };
        let fits = (step * every as f64 / CHARACTER) as usize;
        for (group, name) in self.groups.iter().enumerate().step_by(every) {
            let x = LEFT + step * (group as f64 + 0.5);
            for (line, part) in two_lines(name, fits).iter().enumerate() {
                drawing.text("axis", (x, BASE + 16.0 + 14.0 * line as f64), Anchor::Middle, part);
            }
        }
    }

    fn draw_bars(&self, drawing: &mut Drawing, axis: &Axis) {
        let step = self.group_width();
        let width = (step * FILLED / self.series.len() as f64).min(WIDEST);
        let margin = (step - width * self.series.len() as f64) / 2.0;
        let longest = self.values().map(|value| significant(value.median).chars().count()).max().unwrap_or(0);
        let labelled = longest as f64 * CHARACTER <= width;
        // "all activities, s" becomes "4.85 s, all activities".
        let unit = self.y.rsplit_once(", ").map(|(what, unit)| format!("{unit}, {what}"));
        let unit = unit.unwrap_or_else(|| self.y.clone());
        for (place, series) in self.series.iter().enumerate() {
            for (group, value) in series.values.iter().enumerate() {
                let Some(value) = value else { continue };
                let [median, min, max] = [value.median, value.min, value.max].map(significant);
                let [y, low, high] = [value.median, value.min, value.max].map(|value| height_of(axis, value));
                let x = LEFT + step * group as f64 + margin + width * place as f64;
                let range = if min == max { String::new() } else { format!(" ({min} to {max})") };
                let note = format!("{}, {}: {median}{range} {unit}", self.groups[group], series.name);
                drawing.bar(&series.class, (x, y), (width * 0.92, BASE - y), &note);
                let middle = x + width * 0.46;
                if low - high > 1.0 {
                    drawing.line("whisker", (middle, high), (middle, low));
                }
                if labelled {
                    drawing.text("value", (middle, high - 4.0), Anchor::Middle, &median);
                }
            }
        }
    }

    fn values(&self) -> impl Iterator<Item = &Spread> {
        self.series.iter().flat_map(|series| series.values.iter().flatten())
    }

    fn group_width(&self) -> f64 {
        (RIGHT - LEFT) / self.groups.len() as f64
    }
}

/// How far down the drawing `value` stands.
fn height_of(axis: &Axis, value: f64) -> f64 {
    BASE - axis.part(value) * (BASE - TOP)
}

/// `name` in at most two lines of `fits` characters, broken where it has a space or a hyphen.
fn two_lines(name: &str, fits: usize) -> Vec<String> {
    let shortened = |text: &str| {
        if text.chars().count() <= fits {
            text.to_owned()
        } else {
            text.chars().take(fits - 1).chain(['…']).collect()
        }
    };
    if name.chars().count() <= fits {
        return vec![name.to_owned()];
    }
    let mut breaks = name.char_indices().filter(|(_, c)| " -_".contains(*c)).map(|(at, c)| at + c.len_utf8());
    match breaks.rfind(|at| name[..*at].trim_end().chars().count() <= fits) {
        Some(at) => vec![name[..at].trim_end().to_owned(), shortened(&name[at..])],
        None => vec![shortened(name)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_of_one_name_have_colours_of_their_own() {
        let policies = ["none", "batched", "batched:1h"].map(|name| name.parse().unwrap());
        let classes = policies.map(|policy| policy_class(policy, &policies));
        assert_eq!(classes, ["none", "batched", "s4"]);
    }

    #[test]
    fn long_names_take_two_lines() {
        assert_eq!(two_lines("delete", 8), ["delete"]);
        assert_eq!(two_lines("sync-after-delete", 11), ["sync-after-", "delete"]);
        assert_eq!(two_lines("extraordinarily", 8), ["extraor…"]);
        assert_eq!(two_lines("été-extraordinaire", 6), ["été-", "extra…"]);
    }
}
