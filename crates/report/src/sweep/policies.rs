//! The chart of a trace and drive: erases against waits, one mark a policy.

use trimtab_core::policy::{PolicyKind, SimPolicy};

use super::front::{Group, Point, front, near_front};
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
    let waits = Quantity::of("host waits (s, model time)", points.iter().map(|it| it.waited_s));
    let erases = Quantity::of("erases", points.iter().map(|it| it.erases));
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
    panel.figure(&group.title, &words(group), &table(group))
}

/// The means of each policy.
pub fn table(group: &Group) -> Table {
    let column = |head: &str, of: &dyn Fn(&Point) -> String| {
        Column::new(head, group.points.iter().map(|point| Cell::plain(of(point))))
    };
    Table(vec![
        column("Policy", &|it| it.policy.label()),
        column("Erases", &|it| count(it.erases[0])),
        column("Host waits", &|it| seconds(it.waited_s[0])),
    ])
}

/// The policies on the front, those that are as good, and those that had nothing to show.
pub fn words(group: &Group) -> String {
    let points = &group.points;
    let names = |points: &[&Point]| points.iter().map(|it| it.policy.label()).collect::<Vec<_>>().join(", ");
    let mut text = format!("On the Pareto front: {}.", names(&front(points)));
    let near = near_front(points);
    if !near.is_empty() {
        text += &format!(" Within 5 % of it: {}.", names(&near));
    }
    let is_idle =
        |it: &&Point| it.discards == 0.0 && it.policy.real().is_some() && !it.policy.is(PolicyKind::None);
    let idle: Vec<_> = points.iter().filter(is_idle).collect();
    if !idle.is_empty() {
        text += &format!(" Never discarded anything: {}.", names(&idle));
    }
    let is_like_none = |it: &&Point| {
        let none = points.iter().find(|point| point.policy.is(PolicyKind::None));
        let same = |none: &Point| none.erases == it.erases && none.waited_s == it.waited_s;
        it.discards > 0.0 && none.is_some_and(same)
    };
    let alike: Vec<_> = points.iter().filter(is_like_none).collect();
    if !alike.is_empty() {
        text += &format!(" Discarded, with the figures of none: {}.", names(&alike));
    }
    if group.has_synthetic_frees {
        text += " The frees of this trace are synthetic.";
    }
    text
}
