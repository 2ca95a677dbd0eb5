//! The charts of a published document, redrawn from its numbers, and ours.

use trimtab_core::Bytes;
use trimtab_core::document::reproduce::{Chart, ChartData, ChartPair, SizeSeries};

use crate::bench::by_size;
use crate::chart::{BarChart, Series};
use crate::html::escape;
use crate::number::{bytes, latency};
use crate::plot::{Line, Sample};
use crate::spread::Spread;

/// Classes of the bars' colours, in turn.
const COLOURS: [&str; 6] = ["s1", "s2", "s3", "s4", "s5", "s6"];

/// A published chart and ours: in one, where both are curves by size, else side by side.
pub fn pair(pair: &ChartPair) -> String {
    if let Some(chart) = &pair.published
        && let ChartData::BySize { series: theirs } = &chart.data
        && let ChartData::BySize { series: ours } = &pair.measured.data
        && [theirs, ours].iter().all(|series| series.iter().any(|line| !line.points.is_empty()))
    {
        let figure = curves(&pair.measured.title, &chart.quantity, &together(theirs, ours));
        let source = escape(&chart.title);
        return format!(
            "<div class=\"charts\">\n{figure}</div>\n<p class=\"soft\">Published: {source}.</p>\n"
        );
    }
    let published = match &pair.published {
        Some(chart) => draw(chart, "published"),
        None => format!(
            "<figure>\n<figcaption>{} (published)</figcaption>\n<p class=\"soft\">The text of the document holds no numbers \
             of this chart.</p></figure>\n",
            escape(&pair.measured.title)
        ),
    };
    format!("<div class=\"charts\">\n{published}{}</div>\n", draw(&pair.measured, "measured here"))
}

fn draw(chart: &Chart, origin: &str) -> String {
    let title = format!("{} ({origin})", chart.title);
    let figure = match &chart.data {
        ChartData::Bars { groups, series } => {
            let bars = series.iter().zip(COLOURS.iter().cycle()).map(|(series, class)| Series {
                name: series.name.clone(),
                class: (*class).to_owned(),
                values: series.values.iter().map(|value| Spread::of([(*value)?])).collect(),
            });
            let chart = BarChart {
                title: title.clone(),
                x: String::new(),
                y: chart.quantity.clone(),
                groups: groups.clone(),
                series: bars.collect(),
                may_be_log: true,
            };
            chart.figure()
        }
        ChartData::BySize { series } => curves(&title, &chart.quantity, series),
    };
    if figure.is_empty() {
        return format!(
            "<figure>\n<figcaption>{}</figcaption>\n<p class=\"soft\">Not measured.</p></figure>\n",
            escape(&title)
        );
    }
    figure
}

/// The published curves and ours, each with its origin in its name.
fn together(published: &[SizeSeries], measured: &[SizeSeries]) -> Vec<SizeSeries> {
    let of = |series: &SizeSeries, origin: &str| SizeSeries {
        name: format!("{}, {origin}", series.name),
        points: series.points.clone(),
    };
    let published = published.iter().map(|series| of(series, "published"));
    published.chain(measured.iter().map(|series| of(series, "measured here (model time)"))).collect()
}

fn curves(title: &str, quantity: &str, series: &[SizeSeries]) -> String {
    let sample = |(size, us): &(Bytes, f64)| Sample {
        x: size.0 as f64,
        y: *us,
        top: *us,
        note: format!("{}: {}", bytes(size.0 as f64), latency(*us)),
    };
    let lines = series
        .iter()
        .map(|line| Line { name: line.name.clone(), points: line.points.iter().map(sample).collect() });
    by_size(title.to_owned(), "size of a discard", quantity, lines.collect()).figure()
}
