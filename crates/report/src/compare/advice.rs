//! One sentence of advice from the figures of a file system.
//!
//! The best policy is the one with which a user waits least, for the delete and the write after it
//! together. Among those that are no slower than it beyond noise, the one with the fewest erases
//! wins, then the one that writes fastest, then the one whose trims hold the drive for the least time,
//! then the simplest. A policy that did not keep its data is never advised.

use std::cmp::Ordering;

use trimtab_core::policy::PolicyKind;

use super::summary::Row;
use crate::number::{percent, seconds, times};
use crate::spread::Spread;

/// A figure that policies are judged by.
struct Measure {
    of: fn(&Row) -> Option<Spread>,
    more_is_better: bool,
    /// What a policy does whose figure is this multiple of another's; the word goes before a gain.
    phrase: fn(f64, &str) -> String,
}

const DELETE: Measure = Measure {
    of: |row| row.delete_s,
    more_is_better: false,
    phrase: |ratio, _| format!("takes {} the delete time", times(ratio)),
};
const WRITE: Measure = Measure {
    of: |row| row.write_mib_s,
    more_is_better: true,
    phrase: |ratio, only| format!("writes {only}{} as fast afterwards", times(ratio)),
};
const WAIT: Measure = Measure {
    of: |row| row.wait_s,
    more_is_better: false,
    phrase: |ratio, _| format!("takes {} the time", times(ratio)),
};
const ERASES: Measure = Measure {
    of: |row| row.erases,
    more_is_better: false,
    phrase: |ratio, only| match ratio {
        ..1.0 => format!("needs {only}{} fewer erases", percent(1.0 - ratio)),
        1.0..2.0 => format!("needs {} more erases", percent(ratio - 1.0)),
        _ => format!("needs {} the erases", times(ratio)),
    },
};

const TRIMS: Measure = Measure {
    of: |row| row.trim_s,
    more_is_better: false,
    phrase: |ratio, _| format!("takes {} the time for its trims", times(ratio)),
};

impl Measure {
    /// Less where `row` is better than `other` and greater where it is worse; equal where no
    /// difference is known or it is within noise.
    fn judge(&self, row: &Row, other: &Row) -> Ordering {
        match ((self.of)(row), (self.of)(other)) {
            (Some(a), Some(b)) if a.differs(b) => {
                let order = a.median.total_cmp(&b.median);
                if self.more_is_better { order.reverse() } else { order }
            }
            _ => Ordering::Equal,
        }
    }

    /// Those of `rows` that none of them is better than.
    fn unbeaten<'a>(&self, rows: &[&'a Row]) -> Vec<&'a Row> {
        let unbeaten = |row: &&&Row| rows.iter().all(|other| self.judge(row, other).is_le());
        rows.iter().filter(unbeaten).copied().collect()
    }

    /// What `row` does against `reference`, unless that is unknown.
    fn compare(&self, row: &Row, reference: &Row, only: &str) -> Option<String> {
        let (a, b) = ((self.of)(row)?, (self.of)(reference)?);
        let phrase = (self.phrase)(a.ratio(b)?, only);
        Some(if a.differs(b) { phrase } else { format!("{phrase} (within noise)") })
    }

    /// What makes `row` worse than `best`, told against `reference`; none where it isn't worse.
    fn loss(&self, row: &Row, best: &Row, reference: &Row) -> Option<String> {
        let only = if self.judge(row, reference).is_lt() { "only " } else { "" };
        self.judge(row, best).is_gt().then(|| self.compare(row, reference, only))?
    }

    /// What makes `row` better than `best`, told against `reference`; none where it isn't better.
    fn gain(&self, row: &Row, best: &Row, reference: &Row) -> Option<String> {
        self.judge(row, best).is_lt().then(|| self.compare(row, reference, ""))?
    }
}

/// The advice for the file system `fs`.
pub fn sentence(fs: &str, rows: &[Row]) -> String {
    let has = |measure: &Measure| rows.iter().any(|row| (measure.of)(row).is_some());
    let mut measures: Vec<Measure> = [DELETE, WRITE].into_iter().filter(has).collect();
    if measures.is_empty() {
        measures.push(WAIT);
    }
    let sound: Vec<&Row> = rows.iter().filter(|row| row.verified && row.wait_s.is_some()).collect();
    match sound.as_slice() {
        [] => format!("On {fs}, no policy kept its data and ran every phase: there is nothing to advise."),
        [only] if rows.len() > 1 => {
            format!(
                "On {fs}, only {} kept its data and ran every phase: no other can be advised.",
                only.policy
            )
        }
        [only] => format!(
            "On {fs}, only {} was run: run it beside {} to see the trade-off.",
            only.policy,
            if only.policy == PolicyKind::None { "batched" } else { "none" }
        ),
        _ => {
            let spoilt = rows.iter().filter(|row| !row.verified);
            let warnings = spoilt.map(|row| format!(" Never {}: it did not keep its data.", row.policy));
            choose(fs, &sound, &measures) + &warnings.collect::<String>()
        }
    }
}

/// The advice where there is a choice between `rows`.
fn choose(fs: &str, rows: &[&Row], measures: &[Measure]) -> String {
    let best = TRIMS.unbeaten(&WRITE.unbeaten(&ERASES.unbeaten(&WAIT.unbeaten(rows))))[0];
    let judged: Vec<&Measure> = measures.iter().chain([&ERASES]).collect();
    if rows.iter().all(|row| judged.iter().all(|measure| measure.judge(row, best).is_eq())) {
        return format!("On {fs}, no policy stands out: all differences are within noise.");
    }
    let reference = rows.iter().copied().find(|row| row.policy == PolicyKind::None).unwrap_or(best);
    let mut clauses = Vec::new();
    if best.policy != reference.policy {
        let gains = judged.iter().filter_map(|m| m.compare(best, reference, "")).collect();
        clauses.push(format!("against {} it {}", reference.policy, listed(gains)));
    }
    if let Some(trims) = best.trim_s {
        clauses.push(format!("its trims take {} in pauses", seconds(trims.median)));
    }
    for other in rows {
        if ![best.policy, reference.policy].contains(&other.policy) {
            clauses.push(drawback(other, best, reference, &judged));
        }
    }
    let certainty = if rows.iter().all(|row| row.runs == 1) { ", as far as one run tells" } else { "" };
    format!("On {fs}, {} is the best trade-off{certainty}: {}.", best.policy, clauses.join("; "))
}

/// What speaks against `row`, and for it, beside `best`; in multiples of `reference`.
fn drawback(row: &Row, best: &Row, reference: &Row, judged: &[&Measure]) -> String {
    let mut gains: Vec<_> = judged.iter().filter_map(|measure| measure.gain(row, best, reference)).collect();
    let mut losses: Vec<_> = judged.iter().filter_map(|measure| measure.loss(row, best, reference)).collect();
    // The reference may have no trims at all.
    gains.extend(TRIMS.gain(row, best, best));
    losses.extend(TRIMS.loss(row, best, best));
    match (gains.is_empty(), losses.is_empty()) {
        (true, true) => format!("{} does as well", row.policy),
        (true, false) => format!("{} {}", row.policy, listed(losses)),
        (false, true) => format!("though {} {}", row.policy, listed(gains)),
        (false, false) => format!("{} {} but {}", row.policy, listed(gains), listed(losses)),
    }
}

/// `a, b and c`.
fn listed(mut phrases: Vec<String>) -> String {
    let Some(last) = phrases.pop() else { return String::new() };
    if phrases.is_empty() { last } else { format!("{} and {last}", phrases.join(", ")) }
}
