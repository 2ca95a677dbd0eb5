//! A bench as a section of a page.

use trimtab_core::document::BenchDocument;
use trimtab_core::document::bench::Fit;
use trimtab_core::shell::command_line;

use super::charts;
use super::figures::Degradation;
use super::summary::Summary;
use super::sweep::{cells, kinds};
use super::words::sentence;
use super::{background, tables, words};
use crate::html::{Section, escape};
use crate::number::percent;

/// The section of `document`: what was found, charts, tables, and how it was measured.
pub fn section(document: &BenchDocument) -> Section {
    let summary = Summary::of(document);
    let mut body = format!("<p class=\"soft\">{}</p>\n", escape(&about(document)));
    for alarm in &summary.alarms {
        body += &format!("<p class=\"alarm\">{}</p>\n", escape(alarm));
    }
    if summary.findings.is_empty() {
        body += "<p>Nothing was measured to the end.</p>\n";
    } else {
        body += &list("advice", &summary.findings);
    }
    body += &format!("<div class=\"charts\">\n{}</div>\n", charts::all(document));
    if let Some(fit) = &document.fit {
        body += &format!("<h2>Cost of a discard</h2>\n{}", tables::fit(fit).html());
        if !fit.cliffs.is_empty() {
            body += &tables::cliffs(fit).html();
        }
        body += &list("", &fit_notes(fit));
    }
    if let Some(verify) = &document.verify {
        body += "<h2>Does it work?</h2>\n";
        body += &list("", &words::verify(verify));
        body += &folded("What was read, in logical blocks", &tables::readings(verify).html());
    }
    if let Some(queueing) = &document.queueing {
        body += &format!("<h2>Queueing</h2>\n{}", list("", &words::queueing(queueing)));
    }
    if !document.interference.is_empty() {
        body += &format!("<h2>{}</h2>\n", words::interference_title(document));
        body += &folded("Every condition", &tables::interference(document).html());
    }
    if let Some(figures) = Degradation::of(document) {
        body += &format!("<h2>Degradation and recovery</h2>\n{}", tables::degradation(figures).html());
        body += &folded("Every round", &tables::rounds(&document.degradation).html());
    }
    if let Some(bursts) = document.background.as_ref().and_then(background::bursts) {
        body += &format!("<h2>{}</h2>\n{}", background::TITLE, bursts.html());
    }
    if !document.sweeps.is_empty() {
        body += "<h2>Latency by size</h2>\n";
    }
    for kind in kinds(document) {
        let engine = cells(document, kind)[0].engine.name();
        body += &folded(&format!("{} ({engine})", kind.name()), &tables::sweep(document, kind).html());
    }
    if !document.missing.is_empty() {
        let lines: Vec<_> =
            document.missing.iter().map(|part| format!("{}: {}", part.what, part.why)).collect();
        body += &format!("<h2>Missing</h2>\n{}", list("", &lines));
    }
    Section { title: title(document), body: body + &method(document) }
}

/// Returns the title, in one line.
pub fn title(document: &BenchDocument) -> String {
    let device = &document.device;
    format!("bench: {} ({}, {})", device.model, device.path, device.size)
}

/// When it was measured, and the clock.
pub fn about(document: &BenchDocument) -> String {
    format!("Started {}. All times and rates are in wall time.", document.started)
}

/// The notes beside the fitted figures.
pub fn fit_notes(fit: &Fit) -> Vec<String> {
    let distance = format!(
        "Half of the measured sizes lie within {} of command + size × cost of a GiB.",
        percent(fit.residual.max(0.01))
    );
    let mut notes = vec![distance];
    if !fit.pays_note.is_empty() {
        notes.push(sentence(&fit.pays_note));
    }
    if let Some(at_once) = fit.at_once {
        notes.push(format!("It works on {at_once} discards at once."));
    }
    notes
}

fn list(class: &str, lines: &[String]) -> String {
    let items: String = lines.iter().map(|line| format!("<li>{}</li>\n", escape(line))).collect();
    format!("<ul class=\"{class}\">\n{items}</ul>\n")
}

fn folded(name: &str, inside: &str) -> String {
    format!("<details><summary>{}</summary>\n{inside}</details>\n", escape(name))
}

/// The device, the plan, the machine and the command line.
fn method(document: &BenchDocument) -> String {
    let (device, plan, environment) = (&document.device, &document.plan, &document.environment);
    let known = |text: &str| if text.is_empty() { "not known".to_owned() } else { text.to_owned() };
    let tools: Vec<_> = environment.tools.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let parts: Vec<_> = plan.parts.iter().map(|part| part.name()).collect();
    let facts = [
        ("Device", format!("{}, {}, {}", device.model, device.path, device.size)),
        ("Firmware", known(&device.firmware)),
        ("Serial", known(&device.serial)),
        ("Blocks", format!("{} logical, {} physical", device.logical_block, device.physical_block)),
        (
            "Discard limits",
            format!(
                "granularity {}, alignment {}, at most {} a command by the kernel and {} by the device",
                device.discard_granularity,
                device.discard_alignment,
                device.discard_max,
                device.discard_max_hardware
            ),
        ),
        ("Scheduler", format!("{}, {} requests", known(&device.scheduler), device.queue_requests)),
        ("Range", format!("{} from {}", plan.range.len(), plan.range.start)),
        ("Parts", parts.join(", ")),
        ("Seed", plan.seed.to_string()),
        (
            "Machine",
            format!(
                "{}, {}, {} processors, {}",
                environment.processor, environment.architecture, environment.processors, environment.memory
            ),
        ),
        ("Kernel", environment.kernel.clone()),
        ("Programs", tools.join("; ")),
        ("trimtab", document.version.clone()),
    ];
    let facts: String = facts
        .iter()
        .filter(|(_, fact)| !fact.is_empty())
        .map(|(name, fact)| format!("<dt>{name}</dt><dd>{}</dd>\n", escape(fact)))
        .collect();
    format!(
        "<h2>How it was measured</h2>\n<dl>\n{facts}</dl>\n\
         <p>Lines are medians (p50), the bands above them reach up to p99. The foreground of the interference runs \
         is sent at a fixed rate, and each command counts from when it was due. The kernel marks commands that it \
         sent as several (split), as fewer or shorter ones (shrunk), or did not count.</p>\n\
         <details open><summary>Command</summary><pre>{}</pre></details>\n",
        escape(&command_line(&document.command)),
    )
}
