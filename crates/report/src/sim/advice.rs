//! One sentence of advice from the figures of a drive.
//!
//! The policy that the workload wants is the one under which the drive holds the host up least: for
//! the shortest time one or more of its requests are under way. Among those that are no slower, beyond [`SAME`], the one with the fewest erases
//! wins, then the one that was asked for first.

use super::summary::Row;
use crate::number::{percent, seconds, times};

/// What differs by less, as a part of the larger, is taken for equal.
const SAME: f64 = 0.05;

/// How much less `b` is than `a`, or `a` than `b`, as a part of the larger; zero where both are zero.
fn difference(a: f64, b: f64) -> f64 {
    let larger = a.max(b);
    if larger > 0.0 { (a - b).abs() / larger } else { 0.0 }
}

fn differ(a: f64, b: f64) -> bool {
    difference(a, b) > SAME
}

/// Those of `rows` whose figure is the least, or the same.
fn least<'a>(rows: &[&'a Row], figure: fn(&Row) -> f64) -> Vec<&'a Row> {
    let least = rows.iter().map(|row| figure(row)).fold(f64::INFINITY, f64::min);
    rows.iter().copied().filter(|row| !differ(figure(row), least)).collect()
}

/// The advice for the drive of a profile.
pub fn sentence(profile: &str, rows: &[Row]) -> String {
    let all: Vec<&Row> = rows.iter().collect();
    let [first, rest @ ..] = all.as_slice() else { return String::new() };
    if rest.is_empty() {
        return format!(
            "On {profile}, only {} was replayed: there is nothing to compare it with.",
            first.policy
        );
    }
    let spread = |figure: fn(&Row) -> f64| {
        let figures = rows.iter().map(figure);
        difference(figures.clone().fold(f64::INFINITY, f64::min), figures.fold(0.0, f64::max))
    };
    let widest = spread(|row| row.waited_s).max(spread(|row| row.erases));
    if widest <= SAME {
        return format!(
            "On {profile}, no policy stands out: erases and the time that the host waits differ by no more than \
             {:.1} %.",
            widest * 100.0
        );
    }
    let best = least(&least(&all, |row| row.waited_s), |row| row.erases)[0];
    let reference = all.iter().copied().find(|row| row.is_none()).unwrap_or(first);
    let mut clauses = Vec::new();
    if !std::ptr::eq(best, reference) {
        clauses.push(format!("against {}, {}", reference.policy, against(best, reference)));
    }
    let others = all.iter().filter(|row| !std::ptr::eq(**row, best) && !std::ptr::eq(**row, reference));
    clauses.extend(others.map(|row| format!("with {}, {}", row.policy, against(row, reference))));
    format!("On {profile}, this workload wants {}: {}.", best.policy, clauses.join("; "))
}

/// How `row` does against `reference`.
fn against(row: &Row, reference: &Row) -> String {
    let mut phrases = Vec::new();
    if differ(row.erases, reference.erases) {
        phrases.push(match row.erases / reference.erases {
            ratio @ ..1.0 => format!("{} fewer erases", percent(1.0 - ratio)),
            ratio @ 1.0..2.0 => format!("{} more erases", percent(ratio - 1.0)),
            ratio => format!("{} the erases", times(ratio)),
        });
        if let (Some(waf), Some(other)) = (row.waf, reference.waf) {
            phrases.push(format!("a WAF of {waf:.2} instead of {other:.2}"));
        }
    }
    if differ(row.waited_s, reference.waited_s) {
        phrases.push(format!("the host waits {} as long", times(row.waited_s / reference.waited_s)));
    }
    if let (Some(p99), Some(other)) = (row.write_p99_s, reference.write_p99_s)
        && differ(p99, other)
    {
        phrases.push(format!("a write p99 of {} instead of {}", seconds(p99), seconds(other)));
    }
    if let (Some(p99), Some(other)) = (row.read_p99_s, reference.read_p99_s)
        && differ(p99, other)
    {
        phrases.push(format!("a read p99 of {} instead of {}", seconds(p99), seconds(other)));
    }
    let Some(last) = phrases.pop() else { return "no figure changes by more than 5 %".to_owned() };
    if phrases.is_empty() { last } else { format!("{} and {last}", phrases.join(", ")) }
}
