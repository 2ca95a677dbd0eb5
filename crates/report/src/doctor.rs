//! Renders doctor's results for a terminal: a picture of each stack, and the findings below it.

use std::path::Path;

use trimtab_core::Bytes;
use trimtab_core::device::Limits;
use trimtab_core::document::DoctorDocument;
use trimtab_core::document::doctor::{Canary, Layer, Target};
use trimtab_core::verdict::{Finding, Passes, Severity, Verdict};

use crate::number::printable;
use crate::terminal::{BOLD, GREEN, RED, YELLOW, hanging, paint, wrapped};

/// Renders the pictures and findings of a document; `colour` adds escape codes.
pub fn text(document: &DoctorDocument, colour: bool) -> String {
    let mut parts: Vec<_> = document.targets.iter().map(|target| self::target(target, colour)).collect();
    if parts.len() > 1 {
        parts.insert(0, summary(&document.targets, colour));
    }
    if !document.findings.is_empty() {
        parts.push(format!(
            "{}\n{}",
            paint(colour, BOLD, "This machine".to_owned()),
            findings(&document.findings, colour)
        ));
    }
    if !document.left_out.is_empty() {
        let lines: Vec<_> = document.left_out.iter().map(|what| hanging("- ", what) + "\n").collect();
        parts.push(format!("{}\n{}", paint(colour, BOLD, "Left out".to_owned()), lines.concat()));
    }
    parts.join("\n")
}

/// Returns one line a target: its verdict, and how much there is to mend.
fn summary(targets: &[Target], colour: bool) -> String {
    let width = |of: &dyn Fn(&Target) -> usize| targets.iter().map(of).max().unwrap_or(0);
    let fs = |target: &Target| target.fs.clone().unwrap_or_else(|| "–".to_owned());
    let place_width = width(&|target| printable(&place(target)).chars().count());
    let fs_width = width(&|target| fs(target).chars().count());
    let line = |target: &Target| {
        let (word, code) = verdict(target);
        let findings =
            match target.findings.iter().filter(|finding| finding.severity != Severity::Note).count() {
                0 => String::new(),
                1 => "; 1 thing to mend".to_owned(),
                several => format!("; {several} things to mend"),
            };
        let place = printable(&place(target));
        let word = paint(colour, code, word.to_owned());
        format!("{place:place_width$}  {:fs_width$}  {word}{findings}\n", fs(target))
    };
    targets.iter().map(line).collect()
}

/// Returns the verdict in words, and its colour.
fn verdict(target: &Target) -> (&'static str, &'static str) {
    let is_harmless = target.findings.iter().all(|finding| finding.severity == Severity::Note);
    match target.verdict {
        Verdict::Blocked if is_harmless => ("no discards get through, and none are missed", BOLD),
        Verdict::Reaches => ("discards reach the bottom", GREEN),
        Verdict::Blocked => ("discards are BLOCKED", RED),
        Verdict::Partial => ("only some discards reach the bottom", YELLOW),
        Verdict::Unknown => ("could not tell", YELLOW),
    }
}

fn target(target: &Target, colour: bool) -> String {
    let (word, code) = verdict(target);
    let mut text = format!(
        "{}: {}\n{}\n\n",
        paint(colour, BOLD, printable(&place(target))),
        paint(colour, code, word.to_owned()),
        wrapped(&format!("{}.", target.reason)),
    );
    let names: Vec<_> =
        target.layers.iter().map(|layer| indent(&target.layers, layer) + &printable(&layer.name)).collect();
    let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let name_width = width(&mut names.iter().map(|name| name.chars().count()));
    let kind_width = width(&mut target.layers.iter().map(|layer| layer.kind.chars().count()));
    for (layer, name) in target.layers.iter().zip(&names) {
        let (mark, code) = mark(layer.passes);
        let lead = format!("  {mark} {name:name_width$}  {:kind_width$}  ", layer.kind);
        let line = hanging(&lead, &words(layer));
        // The mark is coloured last: its escape codes take no columns.
        text += &line.replacen(mark, &paint(colour, code, mark.to_owned()), 1);
        text.push('\n');
    }
    text.extend(target.canary.as_ref().map(canary));
    if !target.findings.is_empty() {
        text.push('\n');
        text += &findings(&target.findings, colour);
    }
    text
}

/// Returns the requested path, and the examined target if that differs.
fn place(Target { asked, target, fs, .. }: &Target) -> String {
    match fs.as_deref() {
        _ if Path::new(target).ends_with(asked.trim_start_matches("./")) => target.clone(),
        None | Some("swap") => format!("{asked} is {target}"),
        Some(_) => format!("{asked} is on {target}"),
    }
}

fn mark(passes: Passes) -> (&'static str, &'static str) {
    match passes {
        Passes::Yes => ("✓", GREEN),
        Passes::Reshaped => ("~", YELLOW),
        Passes::No => ("✗", RED),
        Passes::Unknown => ("?", YELLOW),
    }
}

/// Returns two spaces for each layer above if the stack branches; none otherwise.
fn indent(layers: &[Layer], layer: &Layer) -> String {
    let is_below = |upper: &&Layer, name: &str| upper.on.iter().any(|below| below == name);
    let mut depth = 0;
    let mut name = layer.name.as_str();
    // A captured tree may contain a cycle; no walk up is longer than the stack.
    for _ in layers {
        let Some(upper) = layers.iter().find(|upper| is_below(upper, name)) else { break };
        depth += usize::from(upper.on.len() > 1);
        name = &upper.name;
    }
    "  ".repeat(depth)
}

fn words(layer: &Layer) -> String {
    let label = layer.label.as_ref().map(|label| format!("{label}: ")).unwrap_or_default();
    let limits = layer.limits.filter(|limits| limits.max > Bytes::ZERO).map(limits).unwrap_or_default();
    format!("{label}{}{limits}", layer.reason)
}

fn limits(limits: Limits) -> String {
    let ranges =
        limits.segments.filter(|count| *count > 1).map(|count| format!(", {count} ranges a command"));
    format!(" ({} to {} a command{})", limits.granularity, limits.max, ranges.unwrap_or_default())
}

fn canary(canary: &Canary) -> String {
    let sent = match canary.sent_bytes {
        Bytes::ZERO => String::new(),
        sent => format!("{sent} written, deleted and trimmed: "),
    };
    let mut text = format!("\n{}\n", wrapped(&format!("Canary: {sent}{}.", canary.reason)));
    let width = canary.seen.iter().map(|seen| seen.layer.chars().count()).max().unwrap_or(0);
    for seen in &canary.seen {
        let plural = if seen.commands == 1 { "" } else { "s" };
        let returned =
            seen.returned.map(|bytes| format!("; {bytes} of storage came back")).unwrap_or_default();
        text += &format!(
            "  {:width$}  {} in {} discard{plural}{returned}\n",
            seen.layer, seen.bytes, seen.commands
        );
    }
    text
}

fn findings(findings: &[Finding], colour: bool) -> String {
    let blocks: Vec<_> =
        findings.iter().enumerate().map(|(at, finding)| block(at + 1, finding, colour)).collect();
    blocks.concat()
}

fn block(number: usize, finding: &Finding, colour: bool) -> String {
    let (word, code) = match finding.severity {
        Severity::Critical => ("CRITICAL", RED),
        Severity::Warning => ("warning", YELLOW),
        Severity::Note => ("note", BOLD),
    };
    let head = hanging(&format!("{number}. "), &format!("{word} [{}] {}", finding.id, finding.message));
    let mut text = head.replacen(word, &paint(colour, code, word.to_owned()), 1) + "\n";
    text += &(hanging("   Why:   ", &finding.why) + "\n");
    for (at, line) in finding.fix.iter().flat_map(|fix| fix.lines()).enumerate() {
        // A command is meant for pasting: it stays in one line.
        text += &format!("   {}{}\n", if at == 0 { "Fix:   " } else { "       " }, printable(line));
    }
    text.extend(finding.cost.as_ref().map(|cost| hanging("   Cost:  ", cost) + "\n"));
    text += &format!("   Check: {}\n", printable(&finding.check));
    text
}
