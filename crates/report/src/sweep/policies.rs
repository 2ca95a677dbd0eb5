//! The chart of a trace and drive: erases against waits, one mark a policy.

use trimtab_core::policy::SimPolicy;

use super::front::{Group, Point, front};
use super::panel::{Panel, Quantity};
use crate::chart::policy_class;
use crate::number::{count, seconds};
use crate::table::{Cell, Column, Table};

/// The chart of a group as an HTML figure; empty if it has no points.
pub fn figure(group: &Group) -> String {
    let points = &group.points;
    if points.is_empty() {
        return String::new();
    }
    let largest = |of: fn(&Point) -> f64| points.iter().map(of).fold(0.0, f64::max);
    let waits = Quantity { label: "host waits (s, model time)", largest: largest(|it| it.waited_s[2]) };
    let erases = Quantity { label: "erases", largest: largest(|it| it.erases[2]).max(1.0) };
    let mut panel = Panel::new(&waits, &erases);
    let best = front(points);
    panel.line("line fit", best.iter().map(|it| (it.waited_s[0], it.erases[0])));
    let choices: Vec<_> = points.iter().filter_map(|it| it.policy.real()).collect();
    let class = |policy: SimPolicy| {
        policy.real().map_or_else(|| policy.to_string(), |choice| policy_class(choice, &choices))
    };
    for point in points {
        let name = point.policy.label();
        let note = format!("{name}: {} erases, waits {}", count(point.erases[0]), seconds(point.waited_s[0]));
        panel.mark(&class(point.policy), point.waited_s, point.erases, &note);
        panel.name(&class(point.policy), &name);
    }
    let best: Vec<_> = best.iter().map(|it| it.policy.label()).collect();
    let column = |head: &str, of: &dyn Fn(&Point) -> String| {
        Column::new(head, points.iter().map(|point| Cell::plain(of(point))))
    };
    let figures = Table(vec![
        column("Policy", &|it| it.policy.label()),
        column("Erases", &|it| count(it.erases[0])),
        column("Host waits", &|it| seconds(it.waited_s[0])),
    ]);
    panel.figure(&group.title, &format!("On the Pareto front: {}", best.join(", ")), &figures)
}
