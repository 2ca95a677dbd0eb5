//! Bar charts as SVG. Colours come from the page's style sheet by the class of a series, so that
//! they follow light, dark and print.

use std::fmt::Write;

use crate::html::escape;
use crate::number::significant;
use crate::spread::Spread;

/// Groups of bars beside each other, with whiskers from the smallest to the largest sample.
pub struct BarChart {
    pub title: String,
    /// What the groups are.
    pub x: String,
    /// What the bars measure, with its unit and clock.
    pub y: String,
    /// The groups' names.
    pub groups: Vec<String>,
    pub series: Vec<Series>,
}

/// One bar in every group.
pub struct Series {
    /// Its name in the legend, and its class in the style sheet.
    pub name: &'static str,
    /// One value a group.
    pub values: Vec<Option<Spread>>,
}

// All lengths are in user units of the view box; a character of the labels is about 7 wide.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 306.0;
const LEFT: f64 = 76.0;
const TOP: f64 = 16.0;
const RIGHT: f64 = WIDTH - 6.0;
const BASE: f64 = HEIGHT - 60.0;
const CHARACTER: f64 = 7.2;
/// The part of a group's width that its bars fill, up to the widest bar.
const FILLED: f64 = 0.84;
const WIDEST: f64 = 56.0;

impl BarChart {
    /// The chart as an HTML figure; empty where there is no value above zero.
    pub fn figure(&self) -> String {
        let Some(axis) = Axis::of(self.series.iter().flat_map(|series| series.values.iter().flatten()))
        else {
            return String::new();
        };
        let title = escape(&self.title);
        let legend: String = self
            .series
            .iter()
            .map(|series| format!("<span><i class=\"swatch {0}\"></i>{0}</span>", series.name))
            .collect();
        format!(
            "<figure>\n<figcaption>{title}</figcaption>\n<div class=\"legend\">{legend}</div>\n\
             <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n{}{}{}</svg>\n</figure>\n",
            self.scale(&axis),
            self.group_names(),
            self.bars(&axis),
        )
    }

    fn scale(&self, axis: &Axis) -> String {
        let mut svg = String::new();
        for tick in axis.ticks() {
            let y = axis.place(tick);
            put(
                &mut svg,
                format_args!(
                    "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
                ),
            );
            let (x, y, label) = (LEFT - 6.0, y + 4.0, axis.label(tick));
            put(
                &mut svg,
                format_args!(
                    "<text class=\"axis\" x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{label}</text>"
                ),
            );
        }
        let (middle, scale) = (f64::midpoint(TOP, BASE), if axis.log { ", log scale" } else { "" });
        put(
            &mut svg,
            format_args!(
                "<text transform=\"translate(14 {middle}) rotate(-90)\" text-anchor=\"middle\">{}{scale}</text>",
                escape(&self.y)
            ),
        );
        let (x, y) = (f64::midpoint(LEFT, RIGHT), HEIGHT - 8.0);
        put(
            &mut svg,
            format_args!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{}</text>", escape(&self.x)),
        );
        put(
            &mut svg,
            format_args!("<line class=\"base\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{BASE}\" y2=\"{BASE}\"/>"),
        );
        svg
    }

    /// The names below the groups, in two lines where they are long, and left out where they are
    /// too many.
    fn group_names(&self) -> String {
        let mut svg = String::new();
        let step = self.group_width();
        let longest = self.groups.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let crowded = step < 5.0 * CHARACTER;
        let every = if crowded { (longest as f64 * CHARACTER / step).ceil() as usize } else { 1 };
        let fits = (step * every as f64 / CHARACTER) as usize;
        for (group, name) in self.groups.iter().enumerate().step_by(every) {
            let x = LEFT + step * (group as f64 + 0.5);
            for (line, part) in two_lines(name, fits).iter().enumerate() {
                let (y, part) = (BASE + 16.0 + 14.0 * line as f64, escape(part));
                put(
                    &mut svg,
                    format_args!(
                        "<text class=\"axis\" x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{part}</text>"
                    ),
                );
            }
        }
        svg
    }

    fn bars(&self, axis: &Axis) -> String {
        let mut svg = String::new();
        let step = self.group_width();
        let width = (step * FILLED / self.series.len() as f64).min(WIDEST);
        let margin = (step - width * self.series.len() as f64) / 2.0;
        let labels = || self.series.iter().flat_map(|series| series.values.iter().flatten());
        let longest = labels().map(|value| significant(value.median).chars().count()).max().unwrap_or(0);
        let labelled = longest as f64 * CHARACTER <= width;
        for (place, series) in self.series.iter().enumerate() {
            for (group, value) in series.values.iter().enumerate() {
                let Some(value) = value else { continue };
                let x = LEFT + step * group as f64 + margin + width * place as f64;
                let (y, low, high) = (axis.place(value.median), axis.place(value.min), axis.place(value.max));
                let [median, min, max] = [value.median, value.min, value.max].map(significant);
                put(
                    &mut svg,
                    format_args!(
                        "<rect class=\"{0}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{1:.1}\" height=\"{2:.1}\"><title>{3}, {0}: {median} ({min} to {max})</title></rect>",
                        series.name,
                        width * 0.92,
                        BASE - y,
                        escape(&self.groups[group])
                    ),
                );
                let middle = x + width * 0.46;
                if low - high > 1.0 {
                    put(
                        &mut svg,
                        format_args!(
                            "<line class=\"whisker\" x1=\"{middle:.1}\" x2=\"{middle:.1}\" y1=\"{high:.1}\" y2=\"{low:.1}\"/>"
                        ),
                    );
                }
                if labelled {
                    let y = high.min(y) - 4.0;
                    put(
                        &mut svg,
                        format_args!(
                            "<text class=\"value\" x=\"{middle:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{median}</text>"
                        ),
                    );
                }
            }
        }
        svg
    }

    fn group_width(&self) -> f64 {
        (RIGHT - LEFT) / self.groups.len() as f64
    }
}

/// Writes one element on a line of its own.
fn put(svg: &mut String, element: std::fmt::Arguments) {
    writeln!(svg, "{element}").expect("a String takes all text");
}

/// `name` in at most two lines of `fits` characters, broken where it has a space or a hyphen.
fn two_lines(name: &str, fits: usize) -> Vec<String> {
    let shortened = |text: &str| match text.chars().count() <= fits {
        true => text.to_owned(),
        false => text.chars().take(fits - 1).chain(['…']).collect(),
    };
    if name.chars().count() <= fits {
        return vec![name.to_owned()];
    }
    let mut breaks =
        name.char_indices().filter(|(_, c)| " -_/".contains(*c)).map(|(at, c)| at + c.len_utf8());
    match breaks.rfind(|at| name[..*at].trim_end().chars().count() <= fits) {
        Some(at) => vec![name[..at].trim_end().to_owned(), shortened(&name[at..])],
        None => vec![shortened(name)],
    }
}

/// The value axis: logarithmic where the values span more than [`Axis::LINEAR_SPAN`].
struct Axis {
    log: bool,
    low: f64,
    high: f64,
}

impl Axis {
    /// The largest span, from the smallest value above zero to the largest, shown on a linear axis.
    const LINEAR_SPAN: f64 = 50.0;
    /// The largest span of a logarithmic axis; smaller values stand at its foot.
    const LOG_SPAN: f64 = 1e7;

    /// The axis for these values; none where no value is above zero.
    fn of<'a>(values: impl Iterator<Item = &'a Spread>) -> Option<Self> {
        let ends: Vec<_> = values.filter(|value| value.median > 0.0).collect();
        let largest = ends.iter().map(|value| value.max).max_by(f64::total_cmp)?;
        let smallest = ends.iter().map(|value| value.median).min_by(f64::total_cmp)?;
        let log = largest > Self::LINEAR_SPAN * smallest;
        Some(if log {
            let low = (smallest / 2.0).max(largest / Self::LOG_SPAN);
            Self { log, low, high: largest * (largest / low).powf(0.08) }
        } else {
            Self { log, low: 0.0, high: largest * 1.08 }
        })
    }

    /// How high up the chart `value` stands.
    fn place(&self, value: f64) -> f64 {
        let part = match self.log {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => value / self.high,
        };
        BASE - part * (BASE - TOP)
    }

    fn ticks(&self) -> Vec<f64> {
        if !self.log {
            let rough = self.high / 6.0;
            let decade = 10_f64.powf(rough.log10().floor());
            let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * decade).into_iter().find(|step| *step >= rough);
            let step = step.unwrap_or(rough);
            return (0..=(self.high / step) as u32).map(|n| f64::from(n) * step).collect();
        }
        let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let within: &[f64] = if self.high / self.low < 1e3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        decades
            .flat_map(|power| within.iter().map(move |n| n * 10_f64.powi(power)))
            .filter(|tick| (self.low..=self.high).contains(tick))
            .collect()
    }

    fn label(&self, tick: f64) -> String {
        let text = significant(tick);
        match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(value: f64) -> Spread {
        Spread { median: value, min: value, max: value }
    }

    fn axis(values: &[f64]) -> Option<Axis> {
        Axis::of(values.iter().map(|value| exact(*value)).collect::<Vec<_>>().iter())
    }

    #[test]
    fn a_wide_range_gets_a_log_axis_that_holds_every_value() {
        for values in [vec![1.0, 49.0], vec![0.1, 10_000.0], vec![3.0, 151.0], vec![7.0], vec![0.0, 2.0]] {
            let axis = axis(&values).unwrap();
            assert_eq!(axis.log, values.len() > 1 && values[1] > 50.0 * values[0] && values[0] > 0.0);
            assert!(values.iter().all(|value| (TOP..=BASE).contains(&axis.place(*value))), "{values:?}");
            assert!((3..=9).contains(&axis.ticks().len()), "{values:?}: {:?}", axis.ticks());
        }
        assert!(axis(&[0.0]).is_none());
        assert!(axis(&[]).is_none());
    }

    #[test]
    fn long_names_take_two_lines() {
        assert_eq!(two_lines("delete", 8), ["delete"]);
        assert_eq!(two_lines("sync-after-delete", 11), ["sync-after-", "delete"]);
        assert_eq!(two_lines("extraordinarily", 8), ["extraor…"]);
        assert_eq!(two_lines("été-extraordinaire", 6), ["été-", "extra…"]);
    }
}
