//! A comparison as a section of a page.

use trimtab_core::document::{Clock, CompareDocument, Engine};
use trimtab_core::shell::command_line;

use super::alarms::{alarms, verified};
use super::charts::{details, waited};
use super::situation::Situation;
use super::summary::{FileSystem, Summary};
use super::{course, grid, steps, words};
use crate::html::{Section, escape};

/// The columns, colours and steps that only a page shows.
const LEGEND: &str = "Green: better than none by more than the noise; red: worse. Discards busy: how long discards \
                      kept the drive busy. FITRIM: how long the calls of batched took. Pending: freed, and waiting in \
                      the service for its discard when the run ended. The steps start and end are pauses that every \
                      run has; the others are the workload's.";

/// The section of `document`: advice, charts, tables, and how they were measured.
pub fn section(document: &CompareDocument) -> Section {
    let summary = Summary::of(document);
    let mut body = format!(
        "<p class=\"soft\">Started {}. {} All times and rates are by that clock{}.</p>\n",
        escape(&document.started),
        escape(&words::clock(document)),
        if document.runs_asked > 1 { ", and medians over the runs" } else { "" }
    );
    for alarm in alarms(document, &summary) {
        body += &format!("<p class=\"alarm\">{}</p>\n", escape(&alarm));
    }
    if summary.file_systems.is_empty() {
        body += "<p>No run finished: there is nothing to compare.</p>\n";
    } else {
        let advice = summary.file_systems.iter().flat_map(|fs| &fs.advice);
        let advice = advice.map(|sentence| format!("<li>{}</li>\n", escape(sentence)));
        body += &format!("<ul class=\"advice\">\n{}</ul>\n", advice.collect::<String>());
        let charts = summary.file_systems.iter().map(|fs| waited(document, fs));
        body += &format!("<div class=\"charts\">\n{}</div>\n", charts.collect::<String>());
        let legend = [
            words::one_writer(document),
            Some(words::legend(document)),
            Some(LEGEND.to_owned()),
            verified(document),
        ];
        body += &paragraphs(legend.into_iter().flatten());
    }
    for fs in &summary.file_systems {
        for situation in &fs.situations {
            body += &part(document, fs, situation);
        }
    }
    body += &method(document);
    Section { title: words::title(document), body }
}

/// The part of a section about one situation.
fn part(document: &CompareDocument, fs: &FileSystem, situation: &Situation) -> String {
    let pictures = course::figures(document, fs, situation);
    let courses = if pictures.is_empty() {
        String::new()
    } else {
        format!("<p>{}</p>\n<div class=\"charts\">\n{pictures}</div>\n", escape(&course::legend(situation)))
    };
    format!(
        "<h2>{}</h2>\n{}{}{courses}<div class=\"charts\">\n{}</div>\n{}",
        escape(&fs.heading(situation)),
        grid::html(situation),
        paragraphs(grid::notes(situation, &document.clock).into_iter()),
        details(document, fs, situation),
        steps::table(document, fs, situation),
    )
}

fn paragraphs(lines: impl Iterator<Item = String>) -> String {
    let text: Vec<String> = lines.map(|line| escape(&line)).collect();
    if text.is_empty() { String::new() } else { format!("<p class=\"soft\">{}</p>\n", text.join("<br>\n")) }
}

/// The workload, the drive, the machine and the command line, and how to read the figures.
fn method(document: &CompareDocument) -> String {
    let facts: String = facts(document)
        .iter()
        .map(|(name, fact)| format!("<dt>{name}</dt><dd>{}</dd>\n", escape(fact)))
        .collect();
    let profile = document.drive.as_ref().map(|drive| {
        format!(
            "<details><summary>Drive profile</summary><pre>{}</pre></details>\n",
            escape(&drive.profile_toml)
        )
    });
    let clock = match (&document.clock, &document.drive) {
        (Clock::Virtual { engine: Engine::Uml { .. }, .. }, _) => {
            "The workload, the policies and the emulated drive ran in a guest in User Mode Linux. Its clock skips idle \
             time and counts a fixed time for each system call, page fault, request and copy of the kernel: times do \
             not depend on how busy or fast this machine was. "
        }
        (Clock::Virtual { engine: Engine::Qemu, .. }, _) => {
            "The workload, the policies and the emulated drive ran in a guest whose clock counts instructions and \
             skips idle time: times do not depend on how busy this machine was. "
        }
        (Clock::Real { .. }, Some(_)) => {
            "The emulated drive kept to this machine's clock: whatever else the machine did is in the times. "
        }
        (Clock::Real { .. }, None) => {
            "The workload ran in a directory: times depend on the drive below it and on whatever else the machine \
             did, and erases and write amplification are not known. "
        }
    };
    format!(
        "<h2>How it was measured</h2>\n<dl>\n{facts}</dl>\n\
         <p>{clock}Every policy got the same activities and pauses; trims and discards ran beside them. A step \
         ends when its command and its sync have returned; what the kernel or a policy then still does in the \
         background is counted in the steps after it.</p>\n\
         <p>Small print and whiskers show the smallest and the largest run. The best policy is the one with which \
         a user waits least; among equals, one under which the p99 of others' reads is not twice as long as under \
         another, nor the longest read three times; then the one with the fewest erases, then the simplest. WAF is \
         flash pages programmed per page that the host wrote.</p>\n{}\
         <details open><summary>Command</summary><pre>{}</pre></details>\n",
        profile.unwrap_or_default(),
        escape(&command_line(&document.command)),
    )
}

fn facts(document: &CompareDocument) -> Vec<(&'static str, String)> {
    let environment = &document.environment;
    let mut facts = vec![
        ("Workload", format!("{}: {}", document.workload.name, document.workload.summary)),
        ("Seed", document.workload.seed.to_string()),
        ("Runs asked for", format!("{} of each policy", document.runs_asked)),
        ("Clock", words::clock(document)),
    ];
    facts.extend(words::space(document).map(|space| ("Space", space)));
    facts.extend(words::writers(document).map(|writers| ("Writers", writers)));
    if let Some(drive) = &document.drive {
        let of = format!("{}, {}, emulated from profile {}", drive.model, drive.size, drive.profile);
        facts.push(("Drive", of));
        facts.push(("Effective spare", format!("{:.3}", drive.effective_spare.clamp(-1.0, 1.0))));
        facts.push(("Erase block", drive.erase_block.to_string()));
        if !document.merges {
            let requests = "Each reached the drive as it was submitted (nomerges = 2).";
            facts.push(("Requests", requests.to_owned()));
        }
    }
    facts.extend(words::service(document).map(|service| ("Service", service)));
    let machine = [&environment.processor, &environment.architecture].map(String::as_str).join(", ");
    let (processors, memory) = (environment.processors, environment.memory);
    facts.push(("Machine", format!("{machine}, {processors} processors, {memory}")));
    facts.push(("Kernel", environment.kernel.clone()));
    let tools: Vec<_> = environment.tools.iter().map(|(name, version)| format!("{name} {version}")).collect();
    facts.push(("Programs", tools.join("; ")));
    facts.push(("trimtab", document.version.clone()));
    facts
}
