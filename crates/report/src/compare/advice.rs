//! Short advice from the figures of a file system: a sentence for each situation.
//!
//! The best policy is the one with which a user waits least. Of those that are equal in that, policies that
//! slow the reads of others much more than another one are left out, then the one with the fewest
//! erases wins, then the simplest. Figures within the noise of
//! the situation are equal. A policy that did not keep its data is never advised, and one that discarded
//! nothing is the same as `none`, whatever its figures are.

use trimtab_core::policy::PolicyKind;
use trimtab_core::units::Bytes;

use super::situation::{Row, Situation};
use super::words::{listed, multiple, time};
use crate::number::percent;
use crate::spread::Spread;

/// A time to delete is named where it is this part of what a policy adds to the wait.
const MOST_OF_IT: f64 = 0.5;
/// Below this write amplification, a drive had no need to copy.
const COPIES_NOTHING: f64 = 1.01;
/// The advice where runs overlap.
const MORE_RUNS: &str = "only more --runs can tell which waits are shorter";

/// The advice for the file system `fs` and the `writers`, such as `with 8 writers`; situations with the same advice share
/// a sentence.
pub fn advice(fs: &str, writers: Option<&str>, situations: &[Situation]) -> Vec<String> {
    let mut sentences: Vec<(Vec<String>, String)> = Vec::new();
    for situation in situations {
        let lead = situation.words.clone();
        let rest = Judge { situation }.sentence();
        match sentences.last_mut() {
            Some((leads, last)) if *last == rest => leads.extend(lead),
            _ => sentences.push((lead.into_iter().collect(), rest)),
        }
    }
    let sentence = |(leads, rest): (Vec<String>, String)| {
        let place = match writers {
            Some(writers) if leads.is_empty() => format!("{fs} {writers}"),
            Some(writers) => format!("{fs} {writers}, {}", listed(leads)),
            None if leads.is_empty() => fs.to_owned(),
            None => format!("{fs} {}", listed(leads)),
        };
        format!("On {place}, {rest}")
    };
    sentences.into_iter().map(sentence).collect()
}

/// Compares the policies of one situation.
struct Judge<'a> {
    situation: &'a Situation,
}

impl<'a> Judge<'a> {
    /// The sentence without its begin, which names the situation.
    fn sentence(&self) -> String {
        let rows: Vec<&Row> = self.situation.rows.iter().collect();
        let sound: Vec<&Row> =
            rows.iter().copied().filter(|row| row.verified && row.waited_s.is_some()).collect();
        let advice = match sound.as_slice() {
            [] => "no policy kept its data and was timed: there is nothing to advise.".to_owned(),
            [only] if rows.len() == 1 => format!(
                "only {} was run: run it beside {} to see what it changes.",
                only.policy,
                if only.policy.kind() == PolicyKind::None { "batched" } else { "none" }
            ),
            [only] => format!("only {} kept its data: no other can be advised.", only.policy),
            _ => self.choose(&sound),
        };
        let spoilt = rows.iter().filter(|row| !row.verified);
        let warnings = spoilt.map(|row| format!(" Never {}: it did not keep its data.", row.policy));
        advice + &warnings.collect::<String>()
    }

    /// The advice where there is a choice between `sound`.
    fn choose(&self, sound: &[&'a Row]) -> String {
        let none = sound.iter().copied().find(|row| row.policy.kind() == PolicyKind::None);
        let (idle, acting): (Vec<&Row>, Vec<&Row>) =
            sound.iter().copied().partition(|row| row.did_nothing && none.is_some());
        if acting.iter().all(|row| row.did_nothing || row.policy.kind() == PolicyKind::None) {
            return "no policy discarded anything: all are the same as none.".to_owned();
        }
        let least = unbeaten(&acting, |a, b| self.waits_less(a, b));
        let mut kind: Vec<&Row> = least.clone();
        kind.retain(|row| least.iter().all(|other| self.slower_reads(row, other).is_none()));
        if kind.is_empty() {
            kind = least;
        }
        let equal = unbeaten(&kind, |a, b| self.erases_less(a, b));
        let best = *equal.iter().min_by_key(|row| complexity(row)).unwrap_or(&acting[0]);
        let reference = none.unwrap_or(best);
        let others: Vec<&Row> = acting
            .iter()
            .copied()
            .filter(|row| row.policy != best.policy && row.policy != reference.policy)
            .collect();
        let same = |row: &&Row| self.losses(row, best, best).is_empty() && self.gains(row, best).is_empty();
        if best.policy == reference.policy && others.iter().all(same) {
            let idle = sentence_end(self.idle_clause(&idle));
            let why = if others.iter().any(|row| self.waits_overlap(row, best)) {
                format!("their runs overlap, so that {MORE_RUNS}")
            } else {
                "all count as equal".to_owned()
            };
            return format!("no policy stands out: {why}{idle}{}", stale_note(none));
        }
        let mut clauses = Vec::new();
        if best.policy != reference.policy {
            clauses.push(self.merits(best, reference));
        }
        let (as_good, other): (Vec<&Row>, Vec<&Row>) =
            others.into_iter().partition(|row| equal.iter().any(|equal| equal.policy == row.policy));
        clauses.extend(as_good_clause(&as_good, best.policy == reference.policy));
        clauses.extend(other.iter().filter_map(|row| self.drawback(row, best, reference)));
        clauses.extend(self.idle_clause(&idle));
        let clauses = sentence_end(Some(clauses.join("; ")).filter(|text| !text.is_empty()));
        let note = if best.policy == reference.policy { stale_note(none) } else { String::new() };
        format!("{} is best{}{note}", best.policy, clauses.replacen(';', ":", 1))
    }

    fn waits_less(&self, a: &Row, b: &Row) -> bool {
        let noise = &self.situation.noise;
        a.waited_s.zip(b.waited_s).is_some_and(|(a, b)| noise.takes_longer(b, a))
    }

    /// Whether the medians of the waits differ, but not all of their runs.
    fn waits_overlap(&self, a: &Row, b: &Row) -> bool {
        let noise = &self.situation.noise;
        a.waited_s.zip(b.waited_s).is_some_and(|(a, b)| noise.overlaps(a, b))
    }

    fn erases_less(&self, a: &Row, b: &Row) -> bool {
        let noise = &self.situation.noise;
        a.erases.zip(b.erases).is_some_and(|(a, b)| noise.has_more_erases(b, a))
    }

    /// The latencies of the probe's reads under `slow` and `fast` and the statistic that they are, if those under `slow`
    /// are much longer.
    fn slower_reads(&self, slow: &Row, fast: &Row) -> Option<(&'static str, String, String)> {
        let noise = &self.situation.noise;
        let p99 = slow.read_p99_s.zip(fast.read_p99_s).filter(|(a, b)| noise.p99_is_much_longer(*a, *b));
        let longest =
            slow.read_max_s.zip(fast.read_max_s).filter(|(a, b)| noise.longest_is_much_longer(*a, *b));
        let p99 = p99.map(|both| ("the p99 of others' reads is", both));
        let (what, (slow, fast)) =
            p99.or_else(|| longest.map(|both| ("the longest read of others takes", both)))?;
        Some((what, time(slow.median, 1e-6), time(fast.median, 1e-6)))
    }

    /// The gains of `best` beside `reference`, and its costs.
    fn merits(&self, best: &Row, reference: &Row) -> String {
        let (mut gains, losses) = (self.gains(best, reference), self.losses(best, reference, reference));
        if !self.waits_less(best, reference) && !self.waits_less(reference, best) {
            let with = reference.policy;
            let waits = if self.waits_overlap(best, reference) {
                format!("its runs and those of {with} overlap, so that {MORE_RUNS}")
            } else {
                format!("you wait as long as with {with}")
            };
            gains.insert(0, waits);
        }
        let mut text = listed(gains);
        if !losses.is_empty() {
            text += &format!("{}{}", if text.is_empty() { "" } else { ", but " }, listed(losses));
        }
        match best.trim_s {
            Some(trims) => {
                let resolution = self.situation.noise.resolution_s;
                format!("{text}; its trims take {}", time(trims.median, resolution))
            }
            None => text,
        }
    }

    /// The reasons against `row`; none where it is only less good than `best`.
    fn drawback(&self, row: &Row, best: &Row, reference: &Row) -> Option<String> {
        let losses = self.losses(row, reference, best);
        if losses.is_empty() {
            return (best.policy == reference.policy).then(|| format!("{} is no better", row.policy));
        }
        let text = format!("with {} {}", row.policy, listed(losses));
        let fewer = self.erases_less(row, reference) && best.policy == reference.policy;
        let saving = if fewer { self.fewer_erases(row, reference) } else { None };
        Some(text + &saving.map_or(String::new(), |saving| format!(", though {saving}")))
    }

    /// The figures that are better under `row` than under `other`.
    fn gains(&self, row: &Row, other: &Row) -> Vec<String> {
        let mut gains = Vec::new();
        if self.waits_less(row, other) {
            gains.extend(self.wait(row, other));
        }
        if self.erases_less(row, other) {
            gains.extend(self.fewer_erases(row, other));
        }
        let reads = self.slower_reads(other, row);
        gains.extend(reads.map(|(what, slow, fast)| format!("{what} {fast} instead of {slow}")));
        gains
    }

    /// The figures that are worse under `row` than under `other`; its reads are only worse where they are
    /// slower than those under `reads` too.
    fn losses(&self, row: &Row, other: &Row, reads: &Row) -> Vec<String> {
        let mut losses = Vec::new();
        if self.waits_less(other, row) {
            let why = self.deletes(row, other).map_or(String::new(), |why| format!(" ({why})"));
            losses.extend(self.wait(row, other).map(|wait| wait + &why));
        }
        if self.slower_reads(row, reads).is_some() {
            let reads = self.slower_reads(row, other);
            losses.extend(reads.map(|(what, slow, fast)| format!("{what} {slow} instead of {fast}")));
        }
        if self.erases_less(other, row) {
            losses.extend(self.fewer_erases(row, other));
        }
        losses
    }

    fn wait(&self, row: &Row, other: &Row) -> Option<String> {
        let (a, b, noise) = (row.waited_s?, other.waited_s?, self.situation.noise);
        let with = other.policy;
        Some(match noise.ratio(a, b) {
            None => {
                let print = |spread: Spread| time(spread.median, noise.resolution_s);
                format!("you wait {} instead of {}", print(a), print(b))
            }
            Some(ratio @ ..1.0) => format!("you wait {} less than with {with}", percent(1.0 - ratio)),
            Some(ratio @ 1.0..2.0) => format!("you wait {} longer than with {with}", percent(ratio - 1.0)),
            Some(ratio) => format!("you wait {} as long as with {with}", multiple(ratio)),
        })
    }

    /// How long deletes take, where that is most of what `row` adds to the wait.
    fn deletes(&self, row: &Row, other: &Row) -> Option<String> {
        let (a, b, noise) = (row.delete_s?, other.delete_s?, self.situation.noise);
        let added = row.waited_s?.median - other.waited_s?.median;
        let print = |spread: Spread| time(spread.median, noise.resolution_s);
        let most = noise.takes_longer(a, b) && a.median - b.median >= MOST_OF_IT * added;
        most.then(|| format!("deletes take {} instead of {}", print(a), print(b)))
    }

    fn fewer_erases(&self, row: &Row, other: &Row) -> Option<String> {
        let (a, b) = (row.erases?.median, other.erases?.median);
        Some(match a / b {
            ratio @ ..1.0 => format!("the drive erases {} fewer blocks", percent(1.0 - ratio)),
            ratio @ 1.0..2.0 => format!("the drive erases {} more blocks", percent(ratio - 1.0)),
            ratio if ratio.is_finite() => format!("the drive erases {} the blocks", multiple(ratio)),
            _ => format!("the drive erases {a:.0} blocks instead of none"),
        })
    }

    /// Names the policies that discarded nothing.
    fn idle_clause(&self, idle: &[&Row]) -> Option<String> {
        let names: Vec<String> = idle.iter().map(|row| row.policy.to_string()).collect();
        let verb = if names.len() == 1 { "discards" } else { "discard" };
        (!names.is_empty()).then(|| format!("{} {verb} nothing", listed(names)))
    }
}

/// Says that a run was too short to show what stale data costs: the drive of `none` copied hardly anything, and holds some.
fn stale_note(none: Option<&Row>) -> String {
    let copied_nothing = |row: &&Row| row.waf.is_some_and(|waf| waf.median < COPIES_NOTHING);
    let stale = none.filter(copied_nothing).and_then(|row| row.stale_bytes);
    let stale = stale.map(|stale| Bytes(stale.median as u64)).filter(|stale| *stale >= Bytes::MIB);
    stale.map_or(String::new(), |stale| {
        format!(
            " In this run the drive of none copied hardly anything; the {stale} that it holds as stale data can cost \
             later. A workload that writes more shows how much."
        )
    })
}

/// The rows that no other row is better than.
fn unbeaten<'a>(rows: &[&'a Row], better: impl Fn(&Row, &Row) -> bool) -> Vec<&'a Row> {
    let beaten = |row: &Row| rows.iter().any(|other| better(other, row));
    rows.iter().copied().filter(|row| !beaten(row)).collect()
}

/// The order among equals: from what a system does by itself, seldom and at once, to what needs a service.
fn complexity(row: &Row) -> usize {
    use PolicyKind::{Async, Batched, None, Online, Smart};
    let order = [None, Batched, Async, Online, Smart];
    order.iter().position(|kind| *kind == row.policy.kind()).unwrap_or(order.len())
}

/// Names the policies that equal the best one, and in which figures: in others, such as short reads, they may
/// differ.
fn as_good_clause(rows: &[&Row], as_none: bool) -> Option<String> {
    let names: Vec<String> = rows.iter().map(|row| row.policy.to_string()).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    let equal = match (as_none, rows.iter().all(|row| row.erases.is_some())) {
        (true, _) => "no better",
        (false, true) => "equal in waits and erases",
        (false, false) => "equal in waits",
    };
    (!names.is_empty()).then(|| format!("{} {verb} {equal}", listed(names)))
}

/// `clause` as the end of a sentence, behind a semicolon.
fn sentence_end(clause: Option<String>) -> String {
    clause.map_or(".".to_owned(), |clause| format!("; {clause}."))
}
