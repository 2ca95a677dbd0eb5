//! One or two sentences of advice from the figures of a drive.
//!
//! The best policies for a workload are those under which the drive holds the host up least: for
//! the shortest time one or more reads, writes and flushes are under way. Among those that are no slower,
//! beyond [`SAME`], the ones with the fewest erases win, all of them: what differs by no more is not called
//! better. A second sentence says what a slower policy saves in erases, or how far the bound is. Where
//! policies discarded next to nothing, nothing can be told of them.

use std::cmp::Ordering;

use trimtab_core::units::Bytes;

use super::row::Row;
use crate::number::{bytes, count, percent, seconds, times};

/// Figures that differ by less, as a part of the larger, count as equal: a replay's erases lie within 3 % of
/// those of the drive that was recorded.
const SAME: f64 = 0.05;
/// So many erases more or less are no difference either: a drive has half a dozen blocks open or in
/// reserve, and how far it got with them when the trace ended is chance.
const HANDFUL: f64 = 10.0;
/// Below this many discards, which name less than this part of the drive, nothing can be told.
const FEW: (f64, f64) = (10.0, 0.01);

/// A figure that policies are compared by.
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

    /// Returns the `rows` whose figure equals the least.
    fn least<'a>(&self, rows: &[&'a Row]) -> Vec<&'a Row> {
        let Some(least) = self.first(rows) else { return Vec::new() };
        rows.iter().copied().filter(|row| !self.differs(row, least)).collect()
    }

    /// Whether `a` has less of it than `b`, beyond the noise.
    fn is_less(&self, a: &Row, b: &Row) -> bool {
        self.differs(a, b) && self.compare(a, b) == Ordering::Less
    }

    /// The one of `rows` that has least of it.
    fn first<'a>(&self, rows: &[&'a Row]) -> Option<&'a Row> {
        rows.iter().copied().min_by(|a, b| self.compare(a, b))
    }

    /// The one of `rows` that has most of it.
    fn most<'a>(&self, rows: &[&'a Row]) -> Option<&'a Row> {
        rows.iter().copied().max_by(|a, b| self.compare(a, b))
    }

    /// How far the rows lie apart in it.
    fn spread(&self, rows: &[&Row]) -> f64 {
        self.first(rows).zip(self.most(rows)).map_or(0.0, |(least, most)| self.difference(least, most))
    }
}

/// The advice for the drive of a profile.
pub fn sentences(profile: &str, size: Bytes, rows: &[Row]) -> String {
    let policies: Vec<&Row> = rows.iter().filter(|row| !row.is_ideal()).collect();
    let ideal = rows.iter().find(|row| row.is_ideal());
    if let [] | [_] = policies.as_slice() {
        let only = rows.first().map(|row| policies.first().map_or(row, |policy| *policy).policy.label());
        let only = only.unwrap_or_default();
        return format!(
            "On {profile}, only {only} was replayed: there is no other policy to compare it with."
        );
    }
    if let Some(too_few) = too_few(&policies, size) {
        return format!("On {profile}, policies can't be told apart: {too_few}.");
    }
    let widest = WAITED.spread(&policies).max(ERASES.spread(&policies));
    let wanted = ERASES.least(&WAITED.least(&policies));
    let others: Vec<&Row> =
        policies.iter().copied().filter(|row| !wanted.iter().any(|it| std::ptr::eq(*it, *row))).collect();
    let Some(best) = WAITED.first(&wanted) else { return String::new() };
    let first = if widest <= SAME {
        format!(
            "On {profile}, no policy stands out: the time that the host waits and erases, but for a handful, \
             differ by no more than {:.1} %.",
            widest * 100.0
        )
    } else {
        let names: Vec<_> = wanted.iter().map(|row| row.policy.label()).collect();
        let equal = if names.len() > 1 { ", equal within 5 %" } else { "" };
        format!(
            "On {profile}, this workload is best with policy {}{equal}: {}.",
            either(&names),
            reason(best, &others)
        )
    };
    let second = saves_erases(best, &others).or_else(|| ideal.map(|ideal| to_bound(ideal, &wanted)));
    second.map_or(first.clone(), |second| format!("{first} {second}"))
}

/// Why nothing can be told of policies that discarded next to nothing.
fn too_few(policies: &[&Row], size: Bytes) -> Option<String> {
    let most = |of: fn(&Row) -> f64| policies.iter().map(|row| of(row)).fold(0.0, f64::max);
    let (discards, discarded) = (most(|row| row.discards), most(|row| row.discard_bytes));
    let times = match discards {
        1.0 => "once".to_owned(),
        discards => format!("{} times", count(discards)),
    };
    (discards < FEW.0 && discarded < FEW.1 * size.0 as f64)
        .then(|| format!("no policy discards more than {times} ({})", bytes(discarded)))
}

/// Names as alternatives: `a, b or c`.
fn either(names: &[String]) -> String {
    match names {
        [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        names => names.concat(),
    }
}

/// The gains of the wanted policies: against `none`, or where that is one of them, against the worst.
fn reason(best: &Row, others: &[&Row]) -> String {
    let none = others.iter().copied().find(|row| row.is_none());
    if let Some(none) = none {
        return format!("against none, {}", against(best, none));
    }
    let slowest = WAITED.most(others).filter(|row| WAITED.differs(row, best));
    let Some(worst) = slowest.or_else(|| ERASES.most(others)) else { return String::new() };
    format!("with {}, {}", worst.policy.label(), against(worst, best))
}

/// The policy that spares most erases for longer waits than the best one's, if there is one.
fn saves_erases(best: &Row, others: &[&Row]) -> Option<String> {
    let saving = others.iter().copied().filter(|row| ERASES.is_less(row, best));
    let row = saving.min_by(|a, b| ERASES.compare(a, b))?;
    Some(format!(
        "{} is the other choice: against {}, {}.",
        row.policy.label(),
        best.policy.label(),
        against(row, best)
    ))
}

/// How far the bound is from the first of the policies that are wanted, which are equal.
fn to_bound(ideal: &Row, wanted: &[&Row]) -> String {
    let Some(best) = wanted.first() else { return String::new() };
    if !WAITED.differs(ideal, best) && !ERASES.differs(ideal, best) {
        return "Discards without any cost would do no better: ideal is within 5 % of that.".to_owned();
    }
    format!("The ideal bound has {} than {}.", against(ideal, best), best.policy.label())
}

/// How `row` does against `other`, in what differs beyond the noise.
fn against(row: &Row, other: &Row) -> String {
    let mut phrases = Vec::new();
    if WAITED.differs(row, other) {
        phrases.push(match row.waited_s / other.waited_s {
            ratio @ ..1.0 => format!("{} shorter waits", percent(1.0 - ratio)),
            ratio @ 1.0..2.0 => format!("{} longer waits", percent(ratio - 1.0)),
            ratio if ratio.is_finite() => format!("waits {} as long", times(ratio)),
            _ => format!("waits of {} instead of none", seconds(row.waited_s)),
        });
    }
    if ERASES.differs(row, other) {
        phrases.push(match row.erases / other.erases {
            ratio @ ..1.0 => format!("{} fewer erases", percent(1.0 - ratio)),
            ratio @ 1.0..2.0 => format!("{} more erases", percent(ratio - 1.0)),
            ratio if ratio.is_finite() => format!("{} the erases", times(ratio)),
            _ => format!("{} erases instead of none", count(row.erases)),
        });
    }
    if phrases.is_empty() { "waits and erases within 5 %".to_owned() } else { phrases.join(" and ") }
}

#[cfg(test)]
mod tests {
    use trimtab_core::policy::{PolicyKind, SimPolicy};

    use super::*;

    fn row(policy: SimPolicy, erases: f64, waited_s: f64, discards: f64) -> Row {
        Row {
            policy,
            erases,
            relative_erases: None,
            waf: None,
            lifetime_years: None,
            bad_blocks: 0,
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

    /// The advice for policies with these erases and seconds of waits, which discard 500 times.
    fn advice(rows: &[(&str, f64, f64)]) -> String {
        let rows = rows.iter().map(|(name, erases, waited_s)| {
            let policy: SimPolicy = name.parse().unwrap();
            let discards = if policy.real().is_none() || policy.is(PolicyKind::None) { 0.0 } else { 500.0 };
            row(policy, *erases, *waited_s, discards)
        });
        sentences("disk", Bytes::GIB, &rows.collect::<Vec<_>>())
    }

    #[test]
    fn only_differences_beyond_noise_decide() {
        for (rows, expected) in [
            (
                &[("none", 100.0, 1.0), ("online", 50.0, 1.0)][..],
                "On disk, this workload is best with policy online: against none, 50 % fewer erases.",
            ),
            (
                &[("none", 11.0, 1.0), ("online", 1.0, 1.0)],
                "On disk, no policy stands out: the time that the host waits and erases, but for a handful, differ by \
                 no more than 0.0 %.",
            ),
            (
                &[("none", 1.0, 1.0), ("online", 12.0, 1.0)],
                "On disk, this workload is best with policy none: with online, 12× the erases.",
            ),
            (
                &[("none", 1000.0, 1.0), ("online", 960.0, 1.0)],
                "On disk, no policy stands out: the time that the host waits and erases, but for a handful, differ by \
                 no more than 4.0 %.",
            ),
            (
                &[("none", 11.0, 2.0), ("online", 1.0, 1.0)],
                "On disk, this workload is best with policy online: against none, 50 % shorter waits.",
            ),
            (
                &[("none", 100.0, 1.0), ("online", 100.0, 32.0), ("batched", 103.0, 1.04)],
                "On disk, this workload is best with policy none or batched, equal within 5 %: with online, waits 32× as long.",
            ),
            (
                &[
                    ("none", 900.0, 2.0),
                    ("online", 500.0, 1.0),
                    ("batched", 510.0, 1.0),
                    ("smart", 500.0, 1.0),
                ],
                "On disk, this workload is best with policy online, batched or smart, equal within 5 %: against none, 50 % shorter \
                 waits and 44 % fewer erases.",
            ),
            (
                &[("online", 100.0, 0.0), ("batched", 0.0, 1.0)],
                "On disk, this workload is best with policy online: with batched, waits of 1.00 s instead of none and 100 % fewer \
                 erases. batched is the other choice: against online, waits of 1.00 s instead of none and 100 % fewer \
                 erases.",
            ),
        ] {
            assert_eq!(advice(rows), expected);
        }
    }

    #[test]
    fn a_second_sentence_names_the_other_choice_or_the_bound() {
        for (rows, end) in [
            (
                &[("none", 900.0, 1.0), ("online", 300.0, 9.0), ("ideal", 100.0, 1.0)][..],
                ". online is the other choice: against none, waits 9.0× as long and 67 % fewer erases.",
            ),
            (
                &[("none", 900.0, 1.0), ("online", 300.0, 1.0), ("ideal", 100.0, 0.9)],
                ". The ideal bound has 10 % shorter waits and 67 % fewer erases than online.",
            ),
            (
                &[("none", 900.0, 1.0), ("online", 300.0, 1.0), ("ideal", 298.0, 0.99)],
                ". Discards without any cost would do no better: ideal is within 5 % of that.",
            ),
            (
                &[("none", 900.0, 1.0), ("online", 899.0, 1.0), ("ideal", 100.0, 1.0)],
                " 0.0 %. The ideal bound has 89 % fewer erases than none.",
            ),
        ] {
            let advice = advice(rows);
            assert!(advice.ends_with(end), "{advice}");
            assert!(!advice.contains("best with policy ideal"), "the bound is no policy: {advice}");
        }
        let alone = advice(&[("none", 900.0, 1.0), ("ideal", 1.0, 0.1)]);
        assert_eq!(alone, "On disk, only none was replayed: there is no other policy to compare it with.");
    }

    #[test]
    fn few_discards_give_no_advice() {
        let advice = |discards, discard_bytes| {
            let none = row(PolicyKind::None.into(), 100.0, 9.0, 0.0);
            let batched = Row { discard_bytes, ..row(PolicyKind::Batched.into(), 50.0, 1.0, discards) };
            sentences("disk", Bytes::GIB, &[none, batched])
        };
        let untold = "On disk, policies can't be told apart: no policy discards more than";
        assert_eq!(advice(1.0, 4096.0), format!("{untold} once (4.00 KiB)."));
        assert_eq!(advice(9.0, 4096.0), format!("{untold} 9 times (4.00 KiB)."));
        assert!(
            advice(1.0, Bytes::GIB.0 as f64).contains("best with policy batched"),
            "one discard of the whole drive"
        );
        assert!(advice(10.0, 4096.0).contains("best with policy batched"));
    }
}
