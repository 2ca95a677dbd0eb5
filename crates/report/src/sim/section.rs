//! A simulation as a section of a page.

use trimtab_core::document::DriveDescription;
use trimtab_core::document::SimDocument;
use trimtab_core::document::sim::{DiscardsFrom, Passes, SimRun};
use trimtab_core::shell::command_line;

use super::charts::details;
use super::grid;
use super::panel::panel;
use super::summary::{Drive, Summary, runs_on};
use crate::html::{Section, escape};
use crate::number::{bytes, count, seconds, significant};

/// The section of `document`: what each drive wants, the picture of why, tables, and how it was done.
pub fn section(document: &SimDocument) -> Section {
    let summary = Summary::of(document);
    let mut body = format!(
        "<p class=\"soft\">Started {}. Latencies are in <strong>model time</strong>.</p>\n",
        escape(&document.started)
    );
    for alarm in alarms(document, &summary) {
        body += &format!("<p class=\"alarm\">{}</p>\n", escape(&alarm));
    }
    if summary.drives.is_empty() {
        body += "<p>No replay finished: there is nothing to compare.</p>\n";
    } else {
        let sentences =
            summary.drives.iter().flat_map(|drive| [Some(&drive.advice), drive.advice_for_one_copy.as_ref()]);
        let advice = sentences.flatten().map(|sentence| format!("<li>{}</li>\n", escape(sentence)));
        body += &format!("<ul class=\"advice\">\n{}</ul>\n", advice.collect::<String>());
        let panels = summary.drives.iter().map(|drive| panel(document, drive));
        body += &format!("<div class=\"charts\">\n{}</div>\n", panels.collect::<String>());
    }
    let notes = document.notes.iter().map(|note| format!("<li>{}</li>\n", escape(note)));
    body += &format!("<ul>\n{}</ul>\n", notes.collect::<String>());
    for drive in &summary.drives {
        body += &format!(
            "<h2>{}</h2>\n{}<p class=\"soft\">{}</p>\n<div class=\"charts\">\n{}</div>\n{}",
            escape(&drive.profile),
            grid::table(drive).html(),
            escape(&wear(document, &drive.profile)),
            details(document, drive),
            every_figure(document, drive),
        );
    }
    body += &method(document);
    Section { title: title(document), body }
}

/// Returns the title, in one line.
pub fn title(document: &SimDocument) -> String {
    let size = document.drives.first().map_or(document.trace.size, |drive| drive.size);
    let passes = match document.replay.passes {
        Passes::Count(1) => String::new(),
        Passes::Count(count) => format!(", {count} times"),
        Passes::UntilSteady(_) => ", until steady".to_owned(),
    };
    let used = if document.replay.preconditioned { "used" } else { "new" };
    let thinks = match document.replay.clocks.think_scale {
        1.0 => String::new(),
        scale => format!(", think times × {scale}"),
    };
    format!(
        "sim: {} of {} on a {used} drive of {size}{passes}{thinks}",
        document.trace.device, document.trace.path
    )
}

/// Warnings to read before trusting the figures.
pub fn alarms(document: &SimDocument, summary: &Summary) -> Vec<String> {
    let mut alarms = Vec::new();
    if let Some(reason) = &document.stopped {
        alarms.push(format!("STOPPED EARLY: {}.", reason.trim().trim_end_matches('.')));
    }
    if !summary.missing.is_empty() && !document.runs.is_empty() {
        alarms.push(format!("REPLAYS MISSING: {}.", summary.missing.join("; ")));
    }
    if !summary.unsteady.is_empty() {
        alarms.push(format!("NOT STEADY: {}.", summary.unsteady.join("; ")));
    }
    alarms
}

/// How erases spread over the blocks of a drive, by policy, and of how many passes the figures are means.
pub fn wear(document: &SimDocument, profile: &str) -> String {
    let several = runs_on(document, profile).filter(|run| run.outcome.passes > 1).map(|run| {
        let steady = match run.steady {
            Some(true) => " (the last ones steady)",
            Some(false) => " (not steady yet)",
            None => "",
        };
        format!("{} over {} passes{steady}", run.policy.label(), run.outcome.passes)
    });
    let several: Vec<_> = several.collect();
    let passes = match several.as_slice() {
        [] => String::new(),
        several => format!(" Counts and times are means of a pass: {}.", several.join("; ")),
    };
    let spreads = runs_on(document, profile).map(|run| {
        let spread = run.outcome.erase_spread;
        format!(
            "{} {} to {}, mean {}, deviation {}",
            run.policy.label(),
            spread.min,
            spread.max,
            significant(spread.mean),
            significant(spread.deviation)
        )
    });
    let copies = copies(document, profile).map(|copies| format!(" {copies}")).unwrap_or_default();
    format!("Erases of a block: {}.{copies}{passes}", spreads.collect::<Vec<_>>().join("; "))
}

/// The pages that a drive programs beside those of the host, by policy; none where all of them are copies, which the
/// write amplification says.
fn copies(document: &SimDocument, profile: &str) -> Option<String> {
    let of_host = |run: &SimRun, pages: u64| {
        let ratio = pages as f64 / run.outcome.counters.host_pages as f64;
        (ratio >= 0.005 && ratio.is_finite()).then_some(ratio)
    };
    let parts = |run: &SimRun| {
        let counters = &run.outcome.counters;
        let kinds = [
            (counters.copied_pages, "copied"),
            (counters.map_pages, "of the map"),
            (counters.journal_pages, "of the journal"),
        ];
        let shown = kinds.map(|(pages, what)| Some(format!("{:.2} {what}", of_host(run, pages)?)));
        let shown: Vec<_> = shown.into_iter().flatten().collect();
        (!shown.is_empty()).then(|| format!("{} {}", run.policy.label(), shown.join(", ")))
    };
    let is_more = |run: &SimRun| {
        let counters = &run.outcome.counters;
        of_host(run, counters.map_pages.saturating_add(counters.journal_pages)).is_some()
    };
    let of_policies: Vec<_> = runs_on(document, profile).filter_map(parts).collect();
    runs_on(document, profile)
        .any(is_more)
        .then(|| format!("Pages programmed beside each of the host's: {}.", of_policies.join("; ")))
}

/// Why there is no lifetime.
const LIFE_IS_NOT_TOLD: &str =
    "A trace shorter than a day says too little to state a lifetime: compare the erases.";

/// Returns the assumptions behind the lifetimes.
pub fn lifetime_note(document: &SimDocument) -> String {
    let replay = &document.replay;
    let of_drive = |drive: &DriveDescription| {
        let cycles = runs_on(document, &drive.profile).find_map(|run| run.endurance_cycles);
        let (cycles, why) = match (cycles, replay.endurance_assumed) {
            (Some(cycles), _) => (cycles, ", as its profile says"),
            (None, true) => (replay.endurance_cycles, ", an assumption (state yours with --endurance)"),
            (None, false) => (replay.endurance_cycles, ""),
        };
        format!("{} times{why}", count(f64::from(cycles)))
    };
    let mut times: Vec<(String, Vec<&str>)> = Vec::new();
    for drive in &document.drives {
        let of_drive = of_drive(drive);
        match times.iter_mut().find(|(known, _)| *known == of_drive) {
            Some((_, drives)) => drives.push(&drive.profile),
            None => times.push((of_drive, vec![&drive.profile])),
        }
    }
    let times: Vec<_> = match times.as_slice() {
        [(times, _)] => vec![times.clone()],
        several => several.iter().map(|(times, drives)| format!("{times} ({})", drives.join(", "))).collect(),
    };
    format!(
        "Life: at the trace's rate, until every block has been erased {}, were wear even.",
        times.join("; ")
    )
}

/// All figures of a drive's replays, folded away.
fn every_figure(document: &SimDocument, drive: &Drive) -> String {
    let rows = runs_on(document, &drive.profile).map(|run| {
        let outcome = &run.outcome;
        let latency = |of: &trimtab_core::stats::LatencySummary| match of.count {
            0 => "–".to_owned(),
            _ => [of.p50_ns, of.p90_ns, of.p99_ns, of.p999_ns, of.max_ns]
                .map(|ns| crate::number::latency(ns.0 as f64 / 1e3))
                .join(" / "),
        };
        let from = match run.discards_from {
            DiscardsFrom::Trace => "the trace",
            DiscardsFrom::Frees => "what was freed",
            DiscardsFrom::Ideal => "none are needed",
        };
        let cells = [
            from.to_owned(),
            outcome.passes.to_string(),
            count(outcome.events as f64),
            count(outcome.failed as f64),
            count(outcome.counters.host_pages as f64),
            count(outcome.counters.copied_pages as f64),
            count(outcome.counters.journal_pages as f64),
            count(outcome.counters.map_pages as f64),
            count(outcome.counters.map_reads as f64),
            seconds(outcome.counters.model_ns.seconds()),
            latency(&outcome.reads),
            latency(&outcome.writes),
            latency(&outcome.discards),
            latency(&outcome.flushes),
            bytes(outcome.pending.0 as f64),
        ];
        let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
        format!("<tr><th scope=\"row\">{}</th>{cells}</tr>\n", run.policy.label())
    });
    let heads = [
        "policy",
        "discards from",
        "passes",
        "events",
        "failed ones left out",
        "host pages",
        "copied pages",
        "journal pages",
        "map pages written",
        "map pages read",
        "model time",
        "reads",
        "writes",
        "discards",
        "flushes",
        "free, not discarded at the end",
    ];
    let head: String = heads.iter().map(|name| format!("<th>{name}</th>")).collect();
    format!(
        "<details><summary>Every figure of {}</summary>\n<p class=\"soft\">Latencies are p50 / p90 / p99 / p99.9 \
         / longest.</p>\n<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{}\
         </tbody>\n</table></div></details>\n",
        escape(&drive.profile),
        rows.collect::<String>(),
    )
}

/// The trace, the drives, the machine and the command line, and how to read the figures.
fn method(document: &SimDocument) -> String {
    let (trace, environment) = (&document.trace, &document.environment);
    let kinds = trace.kinds.iter().map(|total| {
        let bytes = bytes(total.bytes.0 as f64);
        format!("{} {} ({bytes})", count(total.count as f64), total.kind)
    });
    let mut facts = vec![
        ("Trace", format!("{}, from {}", trace.path, trace.header.origin)),
        ("Device", format!("{}, {}", trace.device, trace.size)),
        ("Events", kinds.collect::<Vec<_>>().join(", ")),
        ("A pass", format!("{} of the trace's time", seconds(trace.span_ns.seconds()))),
    ];
    for drive in &document.drives {
        facts.push((
            "Drive",
            format!(
                "{}: {}, {}, effective spare {:.3}, erase block {}",
                drive.profile, drive.model, drive.size, drive.effective_spare, drive.erase_block
            ),
        ));
    }
    facts.push(("Simulated on", format!("{}, {} processors", environment.processor, environment.processors)));
    facts.push(("trimtab", document.version.clone()));
    let facts: String =
        facts.iter().map(|(name, fact)| format!("<dt>{name}</dt><dd>{}</dd>\n", escape(fact))).collect();
    let life = if document.trace.tells_life() {
        escape(&lifetime_note(document))
    } else {
        LIFE_IS_NOT_TOLD.to_owned()
    };
    let profiles = document.drives.iter().map(|drive| {
        format!(
            "<details><summary>Drive profile {}</summary><pre>{}</pre></details>\n",
            escape(&drive.profile),
            escape(&drive.profile_toml)
        )
    });
    format!(
        "<h2>How it was simulated</h2>\n<dl>\n{facts}</dl>\n\
         <p>The trace's requests were replayed on a model of each drive with the think times between them: a \
         slower drive slows the trace down. Policies go by the trace's time. WAF is flash pages programmed per page \
         the host wrote. {life}</p>\n\
         <p>The host waits while one of its reads, writes or flushes is under way. A trace doesn't tell which \
         discards somebody waited for, and which a worker of the kernel sent in the background; so those of every \
         policy, and the trace's own, go beside the requests and count only as far as a request waits for them at \
         the drive. What waits inside the kernel, such as a journal for its discards, is not in a trace.</p>\n\
         <p>The best policy is the one under which the host waits least; among those within 5 %, the one with \
         the fewest erases. What differs by no more than 5 %, or by ten erases, counts as equal. The ideal bound \
         is no policy: there the drive knows of every free at once, at no cost. A policy can seem better than it \
         by chance in which blocks the drive collects, or on a busy drive whose SLC cache grows with its erased \
         flash: there discards make more writes go through the cache, which costs more erases.</p>\n{}\
         <details open><summary>Command</summary><pre>{}</pre></details>\n",
        profiles.collect::<String>(),
        escape(&command_line(&document.command)),
    )
}
