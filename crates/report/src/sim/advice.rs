//! One sentence of advice from the figures of a drive.
//!
//! The policy that the workload wants is the one under which the drive holds the host up least: for
//! the shortest time one or more of its requests are under way. Among those that are no slower, beyond
//! [`SAME`], the one with the fewest erases wins, then the one that was asked for first. Where policies
//! discarded next to nothing, nothing can be told of them.

use std::cmp::Ordering;

use trimtab_core::units::Bytes;

use super::summary::Row;
use crate::number::{bytes, count, percent, seconds, times};

/// What differs by less, as a part of the larger, is taken for equal.
const SAME: f64 = 0.05;
/// So many erases more or less are no difference either: a drive has half a dozen blocks open or in
/// reserve, and how far it got with them when the trace ended is chance.
const HANDFUL: f64 = 10.0;
/// Below this many discards, which name less than this part of the drive, nothing can be told.
const FEW: (f64, f64) = (10.0, 0.01);

/// What policies are told apart by.
struct Figure {
    of: fn(&Row) -> f64,
    /// A difference up to this is none.
    noise: f64,
}

const WAITED: Figure = Figure { of: |row| row.waited_s, noise: 0.0 };
const ERASES: Figure = Figure { of: |row| row.erases, noise: HANDFUL };

impl Figure {
    /// How much less one row has of it than another, as a part of the larger.
    fn difference(&self, a: &Row, b: &Row) -> f64 {
        let (a, b) = ((self.of)(a), (self.of)(b));
        if (a - b).abs() <= self.noise { 0.0 } else { (a - b).abs() / a.max(b) }
    }

    fn differs(&self, a: &Row, b: &Row) -> bool {
        self.difference(a, b) > SAME
    }

    fn compare(&self, a: &Row, b: &Row) -> Ordering {
        (self.of)(a).total_cmp(&(self.of)(b))
    }

    /// Those of `rows` that have least of it, or no more.
    fn least<'a>(&self, rows: &[&'a Row]) -> Vec<&'a Row> {
        let Some(least) = rows.iter().min_by(|a, b| self.compare(a, b)) else { return Vec::new() };
        rows.iter().copied().filter(|row| !self.differs(row, least)).collect()
    }

    /// How far the rows lie apart in it.
    fn spread(&self, rows: &[Row]) -> f64 {
        let least = rows.iter().min_by(|a, b| self.compare(a, b));
        let most = rows.iter().max_by(|a, b| self.compare(a, b));
        least.zip(most).map_or(0.0, |(least, most)| self.difference(least, most))
    }
}

fn differ(a: f64, b: f64) -> bool {
    (a - b).abs() > SAME * a.max(b)
}

/// The advice for the drive of a profile.
pub fn sentence(profile: &str, size: Bytes, rows: &[Row]) -> String {
    let all: Vec<&Row> = rows.iter().collect();
    let [first, rest @ ..] = all.as_slice() else { return String::new() };
    if rest.is_empty() {
        return format!(
            "On {profile}, only {} was replayed: there is nothing to compare it with.",
            first.policy
        );
    }
    let most = |of: fn(&Row) -> f64| rows.iter().map(of).fold(0.0, f64::max);
    let (discards, discarded) = (most(|row| row.discards), most(|row| row.discard_bytes));
    if discards < FEW.0 && discarded < FEW.1 * size.0 as f64 {
        return format!(
            "On {profile}, policies can't be told apart: no policy discards more than {} ({}).",
            match discards {
                1.0 => "once".to_owned(),
                discards => format!("{} times", count(discards)),
            },
            bytes(discarded)
        );
    }
    let widest = WAITED.spread(rows).max(ERASES.spread(rows));
    if widest <= SAME {
        return format!(
            "On {profile}, no policy stands out: the time that the host waits and erases, but for a handful, \
             differ by no more than {:.1} %.",
            widest * 100.0
        );
    }
    let best = ERASES.least(&WAITED.least(&all))[0];
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
    if ERASES.differs(row, reference) {
        phrases.push(match row.erases / reference.erases {
            ratio @ ..1.0 => format!("{} fewer erases", percent(1.0 - ratio)),
            ratio @ 1.0..2.0 => format!("{} more erases", percent(ratio - 1.0)),
            ratio => format!("{} the erases", times(ratio)),
        });
        if let (Some(waf), Some(other)) = (row.waf, reference.waf) {
            phrases.push(format!("a WAF of {waf:.2} instead of {other:.2}"));
        }
    }
    if WAITED.differs(row, reference) {
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

#[cfg(test)]
mod tests {
    use trimtab_core::policy::PolicyKind;

    use super::*;

    fn row(kind: PolicyKind, erases: f64, waited_s: f64, discards: f64) -> Row {
        Row {
            policy: kind.into(),
            erases,
            waf: None,
            lifetime_years: None,
            write_p99_s: None,
            read_p99_s: None,
            waited_s,
            discards,
            discard_bytes: discards * 4096.0,
            discard_busy_s: 0.0,
            least_reserve: None,
            class: String::new(),
        }
    }

    fn advice(none: (f64, f64), online: (f64, f64, f64)) -> String {
        let rows = [
            row(PolicyKind::None, none.0, none.1, 0.0),
            row(PolicyKind::Online, online.0, online.1, online.2),
        ];
        sentence("disk", Bytes::GIB, &rows)
    }

    #[test]
    fn only_what_differs_beyond_noise_is_wanted() {
        for (none, online, begin) in [
            (
                (100.0, 1.0),
                (50.0, 1.0, 500.0),
                "On disk, this workload wants online: against none, 50 % fewer",
            ),
            ((11.0, 1.0), (1.0, 1.0, 500.0), "On disk, no policy stands out"),
            (
                (1.0, 1.0),
                (12.0, 1.0, 500.0),
                "On disk, this workload wants none: with online, 12× the erases",
            ),
            ((1000.0, 1.0), (960.0, 1.0, 500.0), "On disk, no policy stands out"),
            ((0.0, 0.0), (0.0, 0.0, 500.0), "On disk, no policy stands out"),
            ((11.0, 2.0), (1.0, 1.0, 500.0), "On disk, this workload wants online: against none, the host"),
            (
                (100.0, 9.0),
                (50.0, 1.0, 1.0),
                "On disk, policies can't be told apart: no policy discards more than once",
            ),
            (
                (100.0, 9.0),
                (50.0, 1.0, 9.0),
                "On disk, policies can't be told apart: no policy discards more than 9",
            ),
        ] {
            let advice = advice(none, online);
            assert!(advice.starts_with(begin), "{advice}");
        }
        let mut whole = [row(PolicyKind::None, 100.0, 1.0, 0.0), row(PolicyKind::Batched, 50.0, 1.0, 1.0)];
        whole[1].discard_bytes = Bytes::GIB.0 as f64;
        assert!(
            sentence("disk", Bytes::GIB, &whole).contains("wants batched"),
            "one discard of the whole drive"
        );
    }
}
