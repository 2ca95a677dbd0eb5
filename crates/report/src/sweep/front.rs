//! The policies of a trace and drive, and the Pareto front among them.

use std::collections::BTreeMap;

use trimtab_core::document::sweep::{CellDescription, Figures, MeanInterval, SweepDocument, SweepRow};
use trimtab_core::policy::SimPolicy;

/// The cells that differ in their policy and seed alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The trace, drive and options.
    pub title: String,
    /// Whether the trace's frees were synthesised.
    pub has_synthetic_frees: bool,
    /// One point a policy: means over the seeds.
    pub points: Vec<Point>,
}

/// A policy: its mean erases and the host's mean wait in a pass, each with its interval where there are several seeds.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The policy.
    pub policy: SimPolicy,
    /// Erases of a pass: mean, and the ends of the interval.
    pub erases: [f64; 3],
    /// Seconds that the host waited in a pass: mean, and the ends of the interval.
    pub waited_s: [f64; 3],
    /// Discards of a pass.
    pub discards: f64,
}

/// The groups of replays in `document`, in the order of the grid. Synthetic workloads have no policy, and are in none.
pub fn groups(document: &SweepDocument) -> Vec<Group> {
    let mut order = Vec::new();
    let mut rows: BTreeMap<String, Vec<&SweepRow>> = BTreeMap::new();
    for row in document.rows.iter().filter(|row| row.figures.is_some()) {
        let Some(title) = title(&row.cell) else { continue };
        // Titles are rounded.
        let group = CellDescription { seed: 0, policy: None, ..row.cell.clone() };
        let group = serde_json::to_string(&group).expect("a description is plain data");
        if !rows.contains_key(&group) {
            order.push((group.clone(), title));
        }
        rows.entry(group).or_default().push(row);
    }
    let group = |(group, title): (String, String)| {
        let rows = &rows[&group];
        let is_synthetic =
            |row: &&SweepRow| row.figures.as_ref().and_then(|it| it.synthetic_frees) == Some(true);
        Group { title, has_synthetic_frees: rows.iter().any(is_synthetic), points: points(rows) }
    };
    order.into_iter().map(group).collect()
}

fn title(cell: &CellDescription) -> Option<String> {
    let (trace, profile) = (cell.trace.as_ref()?, cell.profile.as_ref()?);
    // Without the last digits that a product with 100 adds.
    let percents = (cell.over_provisioning.unwrap_or_default() * 1e6).round() / 1e4;
    let state = cell.state.as_deref().unwrap_or_default();
    Some(format!(
        "{trace} on {profile}, {state}, OP {percents} %, think time {}×",
        cell.think_scale.unwrap_or(1.0)
    ))
}

/// The name of a cell: its trace, drive, options and policy, or its workload.
pub(super) fn name(cell: &CellDescription) -> String {
    match (title(cell), cell.policy) {
        (Some(title), Some(policy)) => format!("{title}, {policy}"),
        (Some(title), None) => title,
        (None, _) => cell.workload.clone().unwrap_or_default(),
    }
}

fn points(rows: &[&SweepRow]) -> Vec<Point> {
    let mut policies: Vec<SimPolicy> = Vec::new();
    for policy in rows.iter().filter_map(|row| row.cell.policy) {
        if !policies.contains(&policy) {
            policies.push(policy);
        }
    }
    let point = |policy: SimPolicy| {
        let of: Vec<_> = rows.iter().filter(|row| row.cell.policy == Some(policy)).collect();
        let figures: Vec<_> = of.iter().filter_map(|row| row.figures.as_ref()).collect();
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
        let erases = mean(figures.iter().map(|it| it.per_pass(it.erases)).collect());
        let discards = mean(figures.iter().map(|it| it.per_pass(it.discards)).collect());
        let waited = |it: &&Figures| it.waited_ns.map(|ns| it.per_pass(ns) / 1e9);
        let waited = mean(figures.iter().filter_map(waited).collect());
        let intervals = of.first().and_then(|row| row.intervals);
        let ends = |interval: Option<MeanInterval>, mean: f64, unit: f64| {
            interval.map_or([mean; 3], |it| [mean, it.low / unit, it.high / unit])
        };
        Point {
            policy,
            erases: ends(intervals.and_then(|it| it.erases), erases, 1.0),
            waited_s: ends(intervals.and_then(|it| it.waited_ns), waited, 1e9),
            discards,
        }
    };
    policies.into_iter().map(point).filter(|point| point.waited_s[0].is_finite()).collect()
}

/// The points that no other one beats: none has as few erases and as short waits, and less of one of them. The
/// bound is no policy, and is left out. In the order of their erases.
pub fn front(points: &[Point]) -> Vec<&Point> {
    let beats = |a: &Point, b: &Point| {
        let (x, y) = ((a.erases[0], a.waited_s[0]), (b.erases[0], b.waited_s[0]));
        x.0 <= y.0 && x.1 <= y.1 && x != y
    };
    let real: Vec<_> = points.iter().filter(|point| point.policy != SimPolicy::Ideal).collect();
    let mut front: Vec<_> =
        real.iter().copied().filter(|it| !real.iter().any(|other| beats(other, it))).collect();
    front.sort_by(|a, b| a.erases[0].total_cmp(&b.erases[0]));
    front
}

/// The points that are not on the front, but need at most 5 % more erases and waits than one on it.
pub fn near_front(points: &[Point]) -> Vec<&Point> {
    let front = front(points);
    let is_near = |it: &Point| {
        let (erases, waits) = (it.erases[0], it.waited_s[0]);
        front.iter().any(|best| erases <= best.erases[0] * 1.05 && waits <= best.waited_s[0] * 1.05)
    };
    let others = points.iter().filter(|it| it.policy != SimPolicy::Ideal && !front.contains(it));
    others.filter(|it| is_near(it)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_has_what_nothing_beats() {
        let point = |policy: &str, erases: f64, waited: f64| Point {
            policy: policy.parse().unwrap(),
            erases: [erases; 3],
            waited_s: [waited; 3],
            discards: 0.0,
        };
        let points = [
            point("none", 100.0, 5.0),
            point("online", 50.0, 9.0),
            point("smart", 60.0, 4.0),
            point("batched", 60.0, 4.5),
            point("ideal", 40.0, 1.0),
        ];
        let names: Vec<_> = front(&points).iter().map(|it| it.policy.to_string()).collect();
        assert_eq!(names, ["online", "smart"]);
        assert!(near_front(&points).is_empty(), "12 % more waits are not near");
        let near = [point("smart", 60.0, 4.0), point("online", 62.0, 4.2), point("none", 64.0, 4.0)];
        let names: Vec<_> = near_front(&near).iter().map(|it| it.policy.to_string()).collect();
        assert_eq!(names, ["online"]);
    }
}
