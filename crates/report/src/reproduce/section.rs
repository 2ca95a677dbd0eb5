//! A reproduction as sections of a page: an overview, and one for each published document.

use std::iter;

use trimtab_core::document::ReproduceDocument;
use trimtab_core::document::reproduce::{Claim, Experiment, Figure, Order, Source, Verdict};
use trimtab_core::shell::command_line;

use super::charts::pair;
use super::tally::{Summary, Tally};
use super::words::{
    LEGEND, clock, holds, least, measured, measured_figure, order_ratio, quantity, ratio, runs, tally,
    verdict,
};
use crate::html::{Section, escape};
use crate::table::{Cell, Column, Table, Tone};

/// The overview, and a section for each published document.
pub fn sections(document: &ReproduceDocument) -> Vec<Section> {
    let mut sections = vec![overview(document)];
    for experiment in &document.experiments {
        sections.extend(experiment.sources.iter().map(|source| section(document, experiment, source)));
    }
    sections
}

fn overview(document: &ReproduceDocument) -> Section {
    let summary = Summary::of(document);
    let mut body = format!("<p class=\"soft\">Started {}.</p>\n", escape(&document.started));
    if let Some(reason) = &document.stopped {
        body += &format!("<p class=\"alarm\">Not complete: {}</p>\n", escape(reason));
    }
    let sentences = [tally(&summary.claims, "claims"), tally(&summary.directional, "claims of a direction")];
    let items: String = sentences.iter().map(|sentence| format!("<li>{}</li>\n", escape(sentence))).collect();
    body += &format!("<ul class=\"advice\">\n{items}</ul>\n{}", verdicts(document).html());
    let shared = "A claim that stands in two documents is in the row and in the section of each.";
    body += &format!("<p class=\"soft\">{}</p>\n<p class=\"soft\">{shared}</p>\n", escape(LEGEND));
    let environment = &document.environment;
    body += &format!(
        "<dl><dt>Machine</dt><dd>{}, {} processors, kernel {}</dd><dt>trimtab</dt><dd>{}</dd></dl>\n\
         <details open><summary>Command</summary><pre>{}</pre></details>\n",
        escape(&environment.processor),
        environment.processors,
        escape(&environment.kernel),
        escape(&document.version),
        escape(&command_line(&document.command)),
    );
    Section { title: "Published experiments, beside ours".to_owned(), body }
}

/// The verdicts by document.
fn verdicts(document: &ReproduceDocument) -> Table {
    let of = |source: &Source, experiment: &Experiment| {
        let here = |claim: &&Claim| claim.places.iter().any(|place| place.source == source.key);
        Tally::of(experiment.claims.iter().filter(here))
    };
    let rows: Vec<_> = document
        .experiments
        .iter()
        .flat_map(|experiment| experiment.sources.iter().map(move |source| (source, experiment)))
        .map(|(source, experiment)| (source, experiment, of(source, experiment)))
        .collect();
    let counts = |head: &str, of: fn(&Tally) -> usize| {
        Column::new(head, rows.iter().map(|(_, _, tally)| Cell::plain(of(tally).to_string())))
    };
    Table(vec![
        Column::new("Document", rows.iter().map(|(source, ..)| Cell::plain(source.key.clone()))),
        Column::new("Experiment", rows.iter().map(|(_, experiment, _)| Cell::plain(experiment.name.clone()))),
        counts("Confirmed", |tally| tally.confirmed),
        counts("In direction", |tally| tally.direction),
        counts("Not, shown why", |tally| tally.explained),
        counts("Not confirmed", |tally| tally.not_confirmed),
        counts("Not measured", |tally| tally.not_measured),
        counts("From the model, not counted", |tally| tally.fitted),
    ])
}

fn section(document: &ReproduceDocument, experiment: &Experiment, source: &Source) -> Section {
    let place = |claim: &Claim| {
        claim.places.iter().find(|place| place.source == source.key).map(|place| place.paragraph.clone())
    };
    let claims: Vec<_> = experiment.claims.iter().filter_map(|claim| Some((claim, place(claim)?))).collect();
    let mut facts: Vec<(&str, &str)> = vec![
        ("Its hardware", &source.hardware),
        ("Its kernel", &source.kernel),
        ("Test", &experiment.summary),
    ];
    let (runs, command) = (runs(document, experiment), format!("trimtab reproduce {}", experiment.name));
    facts.extend([("Clock here", runs.as_str()), ("Repeat it", &command)]);
    facts.extend(experiment.replaced.iter().map(|sentence| ("Replaced", sentence.as_str())));
    let facts = facts.into_iter().map(|(name, fact)| (name, escape(fact)));
    let facts: String = iter::once(("Document", document_line(source)))
        .chain(facts)
        .map(|(name, fact)| format!("<dt>{name}</dt><dd>{fact}</dd>\n"))
        .collect();
    let charts: String =
        experiment.charts.iter().filter(|chart| chart.source == source.key).map(pair).collect();
    let list: String = claims.iter().map(|(claim, place)| describe(claim, place)).collect();
    let sum = tally(&Tally::of(claims.iter().map(|(claim, _)| *claim)), "claims");
    let body = format!("<p>{}</p>\n<dl>\n{facts}</dl>\n{charts}<h2>Claims</h2>\n{list}", escape(&sum));
    Section { title: format!("{} ({})", source.title, source.key), body }
}

fn document_line(source: &Source) -> String {
    let line = escape(&format!("{}, {}, {}", source.author, source.date, source.place));
    let link = |url: &String| format!("{line}: <a href=\"{0}\">{0}</a>", escape(url));
    source.url.as_ref().map_or_else(|| line.clone(), link)
}

fn describe(claim: &Claim, place: &str) -> String {
    let (word, class) = verdict(claim);
    let reason = claim.reason.as_ref().map_or_else(String::new, |reason| {
        let shown = if claim.verdict == Verdict::NotConfirmed && !reason.shown_by.is_empty() {
            orders(&reason.shown_by).html()
        } else {
            String::new()
        };
        format!("<p>{}</p>\n{shown}", escape(&reason.text))
    });
    let figures = if claim.figures.is_empty() { String::new() } else { figures(&claim.figures).html() };
    let orders = if claim.orders.is_empty() { String::new() } else { orders(&claim.orders).html() };
    format!(
        "<article class=\"claim {class}\">\n<p class=\"soft\"><strong>{}</strong> · {}</p>\n<p>{}</p>\n\
         {figures}{orders}{reason}</article>\n",
        escape(word),
        escape(place),
        escape(&claim.says),
    )
}

fn figures(figures: &[Figure]) -> Table {
    let column = |head: &str, of: &dyn Fn(&Figure) -> String| {
        Column::new(head, figures.iter().map(|figure| Cell::plain(of(figure))))
    };
    Table(vec![
        column("Figure", &|figure| figure.name.clone()),
        column("Published", &|figure| quantity(figure.published, &figure.unit)),
        column("Measured", &measured_figure),
        column("Ratio or deviation", &ratio),
        column("Clock", &|figure| clock(figure.clock).to_owned()),
        column("Fitted", &|figure| figure.fitted.clone().unwrap_or_else(|| "no".to_owned())),
    ])
}

fn orders(orders: &[Order]) -> Table {
    let column = |head: &str, of: &dyn Fn(&Order) -> String| {
        Column::new(head, orders.iter().map(|order| Cell::plain(of(order))))
    };
    let tone = |order: &Order| match order.holds() {
        Some(true) => Tone::Better,
        Some(false) => Tone::Worse,
        None => Tone::Plain,
    };
    Table(vec![
        column("To be larger", &|order| order.name.clone()),
        column("The one", &|order| measured(order.larger, &order.unit)),
        column("The other", &|order| measured(order.smaller, &order.unit)),
        column("Ratio", &order_ratio),
        column("Has to be", &least),
        column("Follows from", &|order| order.follows.clone().unwrap_or_else(|| "–".to_owned())),
        Column::new("", orders.iter().map(|order| Cell::toned(holds(order), tone(order)))),
    ])
}
