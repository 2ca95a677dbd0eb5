//! A reproduction on a terminal.

use trimtab_core::document::ReproduceDocument;
use trimtab_core::document::reproduce::{Claim, Experiment, Figure, Order, Verdict};

use super::tally::Summary;
use super::words::{
    LEGEND, least, measured, measured_figure, order_ratio, quantity, ratio, runs, tally, verdict,
};
use crate::terminal::{BOLD, GREEN, RED, YELLOW, hanging, paint, wrapped};

/// The verdicts for a terminal of 80 columns or more; `colour` adds escape codes.
pub fn text(document: &ReproduceDocument, colour: bool) -> String {
    let mut blocks = Vec::new();
    for experiment in &document.experiments {
        blocks.push(head(document, experiment, colour));
        blocks.extend(experiment.claims.iter().map(|claim| describe(claim, colour)));
    }
    if document.experiments.is_empty() {
        blocks.push("Nothing was measured.".to_owned());
    }
    let summary = Summary::of(document);
    blocks.push(wrapped(LEGEND));
    let sentences = [tally(&summary.claims, "claims"), tally(&summary.directional, "claims of a direction")];
    blocks.extend(sentences.map(|sentence| paint(colour, BOLD, wrapped(&sentence))));
    if let Some(reason) = &document.stopped {
        blocks.push(paint(colour, RED, wrapped(&format!("Not complete: {reason}"))));
    }
    blocks.join("\n\n") + "\n"
}

fn head(document: &ReproduceDocument, experiment: &Experiment, colour: bool) -> String {
    let mut lines = vec![paint(colour, BOLD, wrapped(&format!("reproduce {}", experiment.name)))];
    lines.push(hanging("Test:     ", &experiment.summary));
    for source in &experiment.sources {
        let of = format!("{}, {}, {}", source.author, source.title, source.date);
        lines.push(hanging("Document: ", &format!("{of}; on {}; Linux {}", source.hardware, source.kernel)));
        lines.extend(source.url.iter().map(|url| format!("          {url}")));
    }
    lines.push(hanging("Here:     ", &runs(document, experiment)));
    lines.extend(experiment.replaced.iter().map(|sentence| hanging("- ", sentence)));
    lines.join("\n")
}

fn describe(claim: &Claim, colour: bool) -> String {
    let (word, _) = verdict(claim);
    let code = match claim.verdict {
        Verdict::Confirmed | Verdict::Direction => GREEN,
        Verdict::NotConfirmed if claim.is_accounted_for() => YELLOW,
        Verdict::NotConfirmed => RED,
        Verdict::NotMeasured | Verdict::Fitted => BOLD,
    };
    let place = claim.places.first().map(|place| place.paragraph.as_str()).unwrap_or_default();
    let mut lines = vec![wrapped(place)];
    lines.push(hanging("  ", &claim.says));
    lines.extend(claim.figures.iter().map(|figure| hanging("    ", &figure_line(figure))));
    lines.extend(claim.orders.iter().map(|order| hanging("    ", &order_line(order))));
    lines.push(paint(colour, code, format!("  {word}")));
    if let Some(reason) = &claim.reason {
        lines.push(hanging("  ", &reason.text));
        if claim.verdict == Verdict::NotConfirmed {
            lines.extend(reason.shown_by.iter().map(|order| hanging("    ", &order_line(order))));
        }
    }
    lines.join("\n")
}

fn figure_line(figure: &Figure) -> String {
    let Figure { name, unit, published, .. } = figure;
    let fitted = figure.fitted.as_ref().map_or_else(String::new, |part| format!("; fitted: {part}"));
    format!(
        "{name}: published {}, measured {} ({}){fitted}",
        quantity(*published, unit),
        measured_figure(figure),
        ratio(figure)
    )
}

fn order_line(order: &Order) -> String {
    let Order { name, unit, larger, smaller, .. } = order;
    let [larger, smaller] = [larger, smaller].map(|value| measured(*value, unit));
    let follows = order.follows.as_ref().map_or_else(String::new, |part| format!("; follows from {part}"));
    format!("{name}: {larger} and {smaller} ({}, has to be {}){follows}", order_ratio(order), least(order))
}
