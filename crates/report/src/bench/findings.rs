//! The findings of a bench in sentences, and the warnings to read first.

use trimtab_core::document::BenchDocument;
use trimtab_core::document::bench::{Cliff, Estimate, Fit, InterferenceCell, SweepCell, Verify};
use trimtab_core::profile::DiscardedReads;

use super::figures::{Degradation, alone, ratio};
use super::sweep::{cells, main_kind};
use super::words::{condition, granularity, ignored, reads, sentence, unstable};
use crate::number::{bytes, count, latency, percent, times};

/// Lost, wrong and returned data, ignored discards, and a run that ended early; loudest first.
pub fn alarms(document: &BenchDocument) -> Vec<String> {
    let mut alarms = Vec::new();
    if let Some(verify) = &document.verify {
        alarms.extend(data_alarms(verify));
    }
    if let Some(reason) = &document.stopped {
        let missing = match document.missing.len() {
            0 => String::new(),
            1 => " One part of the plan is missing.".to_owned(),
            n => format!(" {n} parts of the plan are missing."),
        };
        alarms.push(format!("STOPPED EARLY: {}.{missing}", reason.trim().trim_end_matches('.')));
    }
    alarms
}

fn data_alarms(verify: &Verify) -> Vec<String> {
    let mut alarms = Vec::new();
    let after = verify.power_cycle.as_ref();
    let lost = verify.lost_outside + after.map_or(0, |cycle| cycle.lost_outside);
    if lost > 0 {
        alarms.push(format!(
            "DATA LOSS: {} outside every discard did not read back as written.",
            sectors(lost)
        ));
    }
    let misplaced = verify.readings.iter().map(|reading| reading.misplaced).max().unwrap_or(0);
    if misplaced > 0 {
        alarms.push(format!(
            "WRONG DATA: {} read as what was written to another address, which no drive may do.",
            sectors(misplaced)
        ));
    }
    let unstable = unstable(verify);
    if unstable > 0 {
        alarms.push(format!("UNSTABLE DATA: {} read otherwise when read again.", sectors(unstable)));
    }
    if let Some(cycle) = after.filter(|cycle| cycle.returned > 0) {
        alarms.push(format!("DATA CAME BACK: {} after the power cycle.", sectors(cycle.returned)));
    }
    if verify.areas > 0 && verify.reads.is_none() {
        alarms.push(format!("NO DISCARD WAS SEEN TO WORK. {}", sentence(&ignored(verify))));
    } else if !verify.ignored.is_empty() {
        alarms.push(format!("DISCARDS IGNORED: {}.", ignored(verify)));
    }
    alarms
}

fn sectors(n: u64) -> String {
    if n == 1 { "1 logical block".to_owned() } else { format!("{} logical blocks", count(n as f64)) }
}

/// Returns the findings, most important first; empty where nothing was measured.
pub fn findings(document: &BenchDocument) -> Vec<String> {
    let mut findings = Vec::new();
    match &document.fit {
        Some(fit) if fit.residual > UNFIT => findings.extend(range_of_times(document)),
        Some(fit) => {
            findings.push(cost(fit));
            findings.extend(cliffs(&fit.cliffs));
        }
        None => findings.extend(range_of_times(document)),
    }
    findings.extend(document.verify.as_ref().map(working));
    findings.extend(beside_others(document));
    findings.extend(Degradation::of(document).and_then(slowing));
    findings.extend(document.background.iter().flat_map(super::background::sentences));
    findings
}

/// Where half of the sizes lie farther from the fitted line than this, it says nothing.
const UNFIT: f64 = 0.2;

fn cost(fit: &Fit) -> String {
    let [command, gib] =
        [(fit.command_us, latency as fn(f64) -> String), (fit.per_gib_ms, |ms| latency(ms * 1e3))].map(
            |(estimate, print)| {
                (told(&estimate).then(|| print(estimate.value)), print(estimate.high.max(0.0)))
            },
        );
    let cost = match (command, gib) {
        ((Some(command), _), (Some(gib), _)) => format!("A discard costs {command} plus {gib} a GiB"),
        ((Some(command), _), (None, most)) => {
            format!("A discard costs {command} whatever its size, at most {most} a GiB")
        }
        ((None, most), (Some(gib), _)) => format!("A discard costs {gib} a GiB and at most {most} a command"),
        ((None, most), (None, gib)) => {
            format!("A discard costs at most {most} plus {gib} a GiB: the noise hides how much")
        }
    };
    let pays = fit.pays_from_bytes.map(|size| format!(" It pays from {} on.", bytes(size.value)));
    format!("{cost} (wall time).{}", pays.unwrap_or_default())
}

/// Whether a figure stands out of the noise.
fn told(estimate: &Estimate) -> bool {
    estimate.low > 0.0
}

fn cliffs(cliffs: &[Cliff]) -> Option<String> {
    let first = cliffs.first()?;
    let more = match cliffs.len() {
        1 => String::new(),
        2 => "; there is another cliff".to_owned(),
        n => format!("; there are {} more cliffs", n - 1),
    };
    Some(format!(
        "Its cost changes between {} and {}: {} where the smaller sizes foretell {}{more}.",
        first.from,
        first.to,
        latency(first.found_us.value),
        latency(first.expected_us)
    ))
}

/// The medians of the smallest and the largest size.
fn range_of_times(document: &BenchDocument) -> Option<String> {
    let kind = main_kind(&[document])?;
    let cells = cells(document, kind);
    let (first, last) = (cells.first()?, cells.last()?);
    let median = |of: &SweepCell| latency(of.latency.p50_us);
    let larger = if first.size == last.size {
        String::new()
    } else {
        format!(", one of {} takes {}", last.size, median(last))
    };
    Some(format!(
        "A {} of {} takes {}{larger} (median, {}, depth {}, wall time).",
        kind.operation.name(),
        first.size,
        median(first),
        kind.pattern.name(),
        kind.depth
    ))
}

fn working(verify: &Verify) -> String {
    let reads = reads(verify).map(|reads| {
        let shout = if verify.reads == Some(DiscardedReads::Other) { ", WHICH IS A FAULT" } else { "" };
        format!("discarded data reads as {reads}{shout}")
    });
    let ignored = (!verify.ignored.is_empty() || verify.reads.is_none()).then(|| ignored(verify));
    let parts: Vec<_> =
        [reads, ignored, Some(granularity(&verify.granularity))].into_iter().flatten().collect();
    sentence(&parts.join("; "))
}

/// How discards and other commands get in each other's way.
fn beside_others(document: &BenchDocument) -> Option<String> {
    let queueing = document.queueing.as_ref().map(|queueing| {
        let before = if queueing.queued {
            "a discard runs beside other commands"
        } else {
            "a discard waits for the commands before it"
        };
        let after = if queueing.holds_back { " and holds back those after it" } else { "" };
        format!("{before}{after}")
    });
    let beside = document.interference.iter().filter_map(|cell| {
        let alone = alone(document, cell)?;
        cell.discard_size?;
        let reads = (ratio(cell.reads.p99_us, alone.reads.p99_us)?, "reads", cell.reads.p99_us);
        let writes = (ratio(cell.writes.p99_us, alone.writes.p99_us)?, "writes", cell.writes.p99_us);
        Some((if reads.0 >= writes.0 { reads } else { writes }, cell))
    });
    // What was added must stand out of the noise.
    let slowed = |cell: &InterferenceCell| cell.added_ms_per_gib.is_some_and(|added| added > 0.0);
    let worst = beside
        .filter(|((ratio, ..), cell)| slowed(cell) && *ratio >= 1.1)
        .max_by(|((a, ..), _), ((b, ..), _)| a.total_cmp(b));
    let interference = match worst {
        Some(((ratio, what, p99), cell)) => {
            let beside = condition(cell);
            Some(format!(
                "discards of {beside} take the p99 of {what} to {} ({})",
                latency(p99),
                times(ratio)
            ))
        }
        None if document.interference.len() > 1 => {
            Some("other I/O was not slowed beyond the noise by discards".to_owned())
        }
        None => None,
    };
    let parts: Vec<_> = [queueing, interference].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| sentence(&parts.join("; ")))
}

fn slowing(figures: Degradation) -> Option<String> {
    let yet = if figures.steady { "" } else { ", not steady yet" };
    let slowed =
        figures.slowed().map(|part| format!("random writes slow to {} without discards{yet}", times(part)));
    let recovered = figures
        .recovered()
        .map(|part| format!("a full discard brings {} of the sequential speed back", percent(part)));
    let parts: Vec<_> = [slowed, recovered].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| sentence(&parts.join("; ")))
}
