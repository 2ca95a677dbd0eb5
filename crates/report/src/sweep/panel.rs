//! A small chart of a trace and drive: erases against waits, one mark a policy.

use trimtab_core::policy::SimPolicy;

use super::front::{Group, front};
use crate::axis::{Axis, tick_label};
use crate::chart::policy_class;
use crate::html::escape;
use crate::number::{count, seconds};
use crate::svg::{Anchor, Drawing};

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

/// The chart of a group as an HTML figure; empty if it has no points.
pub fn figure(group: &Group) -> String {
    let points = &group.points;
    let largest = |of: fn(&super::Point) -> f64| points.iter().map(of).fold(0.0, f64::max);
    let (most_erases, most_waited) = (largest(|it| it.erases[2]), largest(|it| it.waited_s[2]));
    if points.is_empty() {
        return String::new();
    }
    let (x, y) = (Axis::linear(most_waited.max(1e-9) * 1.1), Axis::linear(most_erases.max(1.0) * 1.1));
    let across = |value: f64| LEFT + x.part(value.max(0.0)) * (RIGHT - LEFT);
    let up = |value: f64| BASE - y.part(value.max(0.0)) * (BASE - TOP);
    let mut drawing = Drawing::default();
    for tick in y.ticks() {
        drawing.line("grid", (LEFT, up(tick)), (RIGHT, up(tick)));
        drawing.text("axis", (LEFT - 6.0, up(tick) + 4.0), Anchor::End, &tick_label(tick));
    }
    for tick in x.ticks() {
        drawing.line("grid", (across(tick), TOP), (across(tick), BASE));
        drawing.text("axis", (across(tick), BASE + 16.0), Anchor::Middle, &tick_label(tick));
    }
    drawing.upward_text((14.0, f64::midpoint(TOP, BASE)), "erases");
    drawing.text(
        "",
        (f64::midpoint(LEFT, RIGHT), HEIGHT - 10.0),
        Anchor::Middle,
        "host waits (s, model time)",
    );
    let best = front(points);
    let line: Vec<_> = best.iter().map(|it| (across(it.waited_s[0]), up(it.erases[0]))).collect();
    drawing.path("line fit", &line);
    let choices: Vec<_> = points.iter().filter_map(|it| it.policy.real()).collect();
    let class = |policy: SimPolicy| {
        policy.real().map_or_else(|| policy.to_string(), |choice| policy_class(choice, &choices))
    };
    let mut words = String::new();
    for point in points {
        let (h, v) = (across(point.waited_s[0]), up(point.erases[0]));
        drawing.line("whisker", (h, up(point.erases[1])), (h, up(point.erases[2])));
        drawing.line("whisker", (across(point.waited_s[1]), v), (across(point.waited_s[2]), v));
        let note = format!(
            "{}: {} erases, waits {}",
            point.policy.label(),
            count(point.erases[0]),
            seconds(point.waited_s[0])
        );
        drawing.bar(&class(point.policy), (h - MARK, v - MARK), (2.0 * MARK, 2.0 * MARK), &note);
        words += &format!("; {note}");
    }
    let name = |it: &super::Point| {
        format!("<span><i class=\"swatch {}\"></i>{}</span>", class(it.policy), escape(&it.policy.label()))
    };
    format!(
        "<figure class=\"small\">\n<figcaption>{}</figcaption>\n<div class=\"legend\">{}</div>\n<p class=\"soft\">On the \
         Pareto front: {}</p>\n{}</figure>\n",
        escape(&group.title),
        points.iter().map(name).collect::<String>(),
        escape(&best.iter().map(|it| it.policy.label()).collect::<Vec<_>>().join(", ")),
        drawing.finish((WIDTH, HEIGHT), &format!("{}{words}", group.title)),
    )
}
