//! A comparison as a section of a page.

use trimtab_core::document::{CompareDocument, Phase};

use super::charts::{details, overview, phase_names};
use super::grid;
use super::summary::{Clock, FileSystem, Summary};
use crate::html::{Section, escape};
use crate::number::{count, seconds, significant};
use crate::spread::Spread;

/// The section of `document`: advice, charts, tables, and how they were measured.
pub fn section(document: &CompareDocument) -> Section {
    let summary = Summary::of(document);
    let mut body = format!(
        "<p class=\"soft\">Started {}. All times and rates are medians in <strong>{}</strong>.</p>\n",
        escape(&document.started),
        summary.clock.name()
    );
    for alarm in alarms(document, &summary) {
        body += &format!("<p class=\"alarm\">{}</p>\n", escape(&alarm));
    }
    if summary.file_systems.is_empty() {
        body += "<p>No run finished: there is nothing to compare.</p>\n";
    } else {
        let advice = summary.file_systems.iter().map(|fs| format!("<li>{}</li>\n", escape(&fs.advice)));
        body += &format!("<ul class=\"advice\">\n{}</ul>\n", advice.collect::<String>());
        body += &format!("<div class=\"charts\">\n{}</div>\n", overview(&summary));
    }
    for fs in &summary.file_systems {
        body += &format!(
            "<h2>{}</h2>\n{}<p class=\"soft\">{}</p>\n<div class=\"charts\">\n{}</div>\n{}",
            escape(&fs.fs),
            grid::table(fs).html(),
            escape(&grid::spread_note(fs)),
            details(document, fs, summary.clock),
            phase_table(document, fs, summary.clock),
        );
    }
    body += &method(document, summary.clock);
    Section { title: title(document), body }
}

/// What was compared, in one line.
pub fn title(document: &CompareDocument) -> String {
    let place = match &document.drive {
        Some(drive) => format!("an emulated {} ({})", drive.profile, drive.size),
        None => "a directory of this machine".to_owned(),
    };
    format!("compare: {} on {place}", document.workload.name)
}

/// What the reader must know before trusting the figures: lost data, counters that disagree, and
/// runs that are missing.
pub fn alarms(document: &CompareDocument, summary: &Summary) -> Vec<String> {
    let mut alarms = Vec::new();
    if !summary.unverified.is_empty() {
        let runs = summary.unverified.join("; ");
        alarms.push(format!("DATA NOT VERIFIED: files did not read back as written in {runs}."));
    }
    if !summary.miscounted.is_empty() {
        let runs = summary.miscounted.join("; ");
        alarms.push(format!(
            "COUNTERS DISAGREE: the drive and the kernel counted different discards in {runs}."
        ));
    }
    if let Some(reason) = &document.stopped {
        let reason = reason.trim().trim_end_matches('.');
        alarms.push(format!("STOPPED EARLY: {reason}. File systems and policies not begun are not shown."));
    }
    if !summary.incomplete.is_empty() {
        alarms.push(format!("RUNS MISSING: {}.", summary.incomplete.join("; ")));
    }
    alarms
}

/// A column of the phase table: its heading, what it takes from a phase, and how that is printed.
type PhaseColumn<'a> = (&'static str, &'a dyn Fn(&Phase) -> Option<f64>, fn(f64) -> String);

/// The medians of every phase, folded away; a column that has none is left out.
fn phase_table(document: &CompareDocument, fs: &FileSystem, clock: Clock) -> String {
    let columns: [PhaseColumn; 8] = [
        ("time", &|phase| clock.seconds(phase), seconds),
        ("written MiB", &|phase| phase.is_counted().then(|| phase.host_bytes.mib()), significant),
        ("MiB/s", &|phase| phase.throughput_mib_s, significant),
        ("discards", &|phase| phase.is_counted().then_some(phase.discards as f64), count),
        ("discarded MiB", &|phase| phase.is_counted().then(|| phase.discard_bytes.mib()), significant),
        ("discards seen by the kernel", &|phase| Some(phase.kernel?.discards as f64), count),
        ("erases", &|phase| Some(phase.erases? as f64), count),
        ("WAF", &|phase| phase.waf, |waf| format!("{waf:.2}")),
    ];
    let ran = || document.runs.iter().filter(|run| run.fs == fs.fs);
    let known: Vec<_> = columns
        .into_iter()
        .filter(|(_, of, _)| ran().flat_map(|run| &run.phases).any(|phase| of(phase).is_some()))
        .collect();
    let head: String = known.iter().map(|(name, ..)| format!("<th>{name}</th>")).collect();
    let mut rows = String::new();
    for name in phase_names(document, fs) {
        for policy in fs.rows.iter().map(|row| row.policy) {
            let phases = || {
                let runs = ran().filter(|run| run.policy == policy);
                runs.flat_map(|run| &run.phases).filter(|phase| phase.name == name)
            };
            let cell = |(_, of, print): &PhaseColumn| {
                let text = Spread::of(phases().filter_map(of)).map(|spread| print(spread.median));
                format!("<td>{}</td>", text.as_deref().unwrap_or("–"))
            };
            let cells: String = known.iter().map(cell).collect();
            rows += &format!("<tr><th scope=\"row\">{}</th><td>{policy}</td>{cells}</tr>\n", escape(name));
        }
    }
    format!(
        "<details><summary>Every phase on {}</summary>\n<div class=\"wide\"><table>\n\
         <thead><tr><th>phase</th><th>policy</th>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n\
         </table></div></details>\n",
        escape(&fs.fs)
    )
}

/// The workload, the drive, the machine and the command line, and how to read the figures.
fn method(document: &CompareDocument, clock: Clock) -> String {
    let environment = &document.environment;
    let mut facts = vec![
        ("Workload", format!("{}: {}", document.workload.name, document.workload.summary)),
        ("Seed", document.workload.seed.to_string()),
        ("Runs asked for", format!("{} of each policy", document.runs_asked)),
    ];
    if let Some(drive) = &document.drive {
        facts.push((
            "Drive",
            format!("{}, {}, emulated from profile {}", drive.model, drive.size, drive.profile),
        ));
        facts.push(("Effective spare", format!("{:.3}", drive.effective_spare)));
        facts.push(("Erase block", drive.erase_block.to_string()));
    }
    let machine = [&environment.processor, &environment.architecture].map(String::as_str).join(", ");
    facts.push((
        "Machine",
        format!("{machine}, {} processors, {}", environment.processors, environment.memory),
    ));
    facts.push(("Kernel", environment.kernel.clone()));
    let tools: Vec<_> = environment.tools.iter().map(|(name, version)| format!("{name} {version}")).collect();
    facts.push(("Programs", tools.join("; ")));
    facts.push(("trimtab", document.version.clone()));
    let facts: String =
        facts.iter().map(|(name, fact)| format!("<dt>{name}</dt><dd>{}</dd>\n", escape(fact))).collect();
    let profile = document.drive.as_ref().map(|drive| {
        format!(
            "<details><summary>Drive profile</summary><pre>{}</pre></details>\n",
            escape(&drive.profile_toml)
        )
    });
    let clock_note = match clock {
        Clock::Model => {
            "Model time is the emulated drive's own clock: it does not depend on how busy this machine was, \
             and leaves out what the machine's processors did. WAF is flash pages programmed per page the host \
             wrote."
        }
        Clock::Wall => {
            "Wall time was taken on a real directory: it depends on the drive below it and on whatever else \
             the machine did. Erases and write amplification are not known there."
        }
    };
    format!(
        "<h2>How it was measured</h2>\n<dl>\n{facts}</dl>\n<p>{clock_note}</p>\n\
         <p>Figures are medians over the runs; small print and whiskers show the smallest and the largest. \
         A difference counts only where the runs' ranges do not overlap and the medians are more than 5 % apart. \
         The best trade-off is the policy with which a user waits least, for the delete and the write after \
         it together, or for the whole workload without trims where it has no such phases; among equals, the \
         one with the fewest erases.</p>\n{}\
         <details open><summary>Command</summary><pre>{}</pre></details>\n",
        profile.unwrap_or_default(),
        escape(&document.command.join(" ")),
    )
}
