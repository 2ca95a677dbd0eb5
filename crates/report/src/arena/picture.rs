//! The picture of the arena: a map of all cells, coloured by the foreground's wait.

use super::standing::{Loss, Standing, standings};
use crate::html::{CHART_STYLE, escape};
use crate::number::times;
use crate::plot::light;
use crate::svg::{Anchor, Drawing, Point};
use trimtab_core::distinct;
use trimtab_core::document::arena::ArenaDocument;

// All lengths are in user units of the view box.
const LEFT: f64 = 128.0;
const TOP: f64 = 64.0;
const ROW: f64 = 26.0;
const GAP: f64 = 6.0;
/// The width of one think time in a column of profiles.
const STEP: f64 = 30.0;
const BELOW: f64 = 44.0;
/// Pixels a unit of an image of its own.
const PIXELS: f64 = 1.0;

/// The ratio that a map shows.
struct Map {
    title: &'static str,
    ratio: fn(&Standing) -> Option<f64>,
}

const MAPS: [Map; 2] = [
    Map { title: "Foreground wait with smart over the best other policy's", ratio: |it| Some(it.wait) },
    Map { title: "Foreground wait with smart over the bound's (ideal)", ratio: |it| it.wait_over_ideal },
];

/// The shades, each with the largest ratio that it stands for.
const SHADES: [(f64, &str, &str); 6] = [
    (0.90, "cell much-better", "0.90 or less"),
    (0.98, "cell better", "to 0.98"),
    (1.02, "cell even", "to 1.02"),
    (1.10, "cell worse", "to 1.10"),
    (1.30, "cell much-worse", "to 1.30"),
    (f64::INFINITY, "cell worst", "more"),
];

/// The two maps as HTML figures; empty if there are no cells.
pub fn figures(standings: &[Standing]) -> String {
    let figure = |map: &Map| {
        let (drawing, size) = draw(map, standings);
        let words = format!("{}, by trace, profile and think time", map.title);
        format!(
            "<figure>\n<figcaption>{}</figcaption>\n{}</figure>\n",
            escape(map.title),
            drawing.finish(size, &words)
        )
    };
    if standings.is_empty() { String::new() } else { MAPS.iter().map(figure).collect() }
}

/// The maps of waits over the best other policy's and over ideal's, as SVG images of their own in the page's light colours.
pub fn images(document: &ArenaDocument) -> [String; 2] {
    let standings = standings(document);
    MAPS.each_ref().map(|map| {
        let (drawing, (width, height)) = draw(map, &standings);
        let mut image = Drawing::default();
        image.area("ground", &[(0.0, 0.0), (width, 0.0), (width, height), (0.0, height)], "");
        image.text("title", (GAP, 20.0), Anchor::Start, map.title);
        image.append(drawing);
        image.standalone((width, height), PIXELS, &light(CHART_STYLE))
    })
}

/// One map, and its size.
fn draw(map: &Map, standings: &[Standing]) -> (Drawing, Point) {
    let mut drawing = Drawing::default();
    let rows = distinct(standings.iter().map(|it| (it.cell.set.as_str(), it.cell.trace.as_str())));
    let profiles = distinct(standings.iter().map(|it| it.cell.profile.as_str()));
    let mut scales = distinct(standings.iter().map(|it| it.cell.think_scale));
    scales.sort_by(f64::total_cmp);
    let column = STEP * scales.len() as f64 + GAP;
    // A name has the width of its column, and there is room for a set's name between its rows.
    let width = LEFT + column.max(96.0) * profiles.len() as f64 + GAP;
    let column = column.max(96.0);
    let left = |place: usize| LEFT + column * place as f64;
    for (place, profile) in profiles.iter().enumerate() {
        let middle = left(place) + STEP * scales.len() as f64 / 2.0;
        drawing.text("small", (middle, TOP - 22.0), Anchor::Middle, profile);
        for (step, scale) in scales.iter().enumerate() {
            let x = left(place) + STEP * (step as f64 + 0.5);
            drawing.text("axis small", (x, TOP - 7.0), Anchor::Middle, &format!("{scale}×"));
        }
    }
    drawing.text("axis small", (LEFT - 8.0, TOP - 7.0), Anchor::End, "think time");
    let mut y = TOP;
    let mut set = "";
    for row in &rows {
        if row.0 != set {
            set = row.0;
            drawing.text("small strong", (GAP, y + 14.0), Anchor::Start, &format!("{set} set"));
            y += 20.0;
        }
        drawing.text("small", (LEFT - 8.0, y + ROW / 2.0 + 4.0), Anchor::End, row.1);
        let cells = standings.iter().filter(|it| (it.cell.set.as_str(), it.cell.trace.as_str()) == *row);
        for standing in cells {
            let place = profiles.iter().position(|it| *it == standing.cell.profile);
            let step = scales.iter().position(|it| *it == standing.cell.think_scale);
            if let (Some(place), Some(step), Some(ratio)) = (place, step, (map.ratio)(standing)) {
                draw_cell(&mut drawing, (left(place) + STEP * step as f64, y), ratio, standing);
            }
        }
        y += ROW;
    }
    draw_legend(&mut drawing, y + 12.0);
    (drawing, (width, y + BELOW))
}

/// A cell: its ratio by shade and as percents more or less, and a dot if it loses by erases or reads.
fn draw_cell(drawing: &mut Drawing, (x, y): Point, ratio: f64, standing: &Standing) {
    let cell = &standing.cell;
    let note = format!(
        "{}, {}, think time {}×: wait {} that of {}, {} that of ideal; erases {}, read p99 {}. {}",
        cell.trace,
        cell.profile,
        cell.think_scale,
        times(standing.wait),
        standing.best,
        standing.wait_over_ideal.map_or("–".to_owned(), times),
        times(standing.erases),
        times(standing.read_p99),
        standing.reason,
    );
    drawing.bar(shade(ratio), (x, y), (STEP - 1.0, ROW - 1.0), note.trim());
    drawing.text("percent", (x + STEP / 2.0, y + ROW / 2.0 + 3.5), Anchor::Middle, &percents(ratio));
    if standing.losses.iter().any(|loss| *loss != Loss::Wait) {
        drawing.area("dot", &[(x, y), (x + 7.0, y), (x, y + 7.0)], "");
    }
}

fn shade(ratio: f64) -> &'static str {
    SHADES.iter().find(|(most, ..)| ratio <= *most).map_or("cell worst", |(_, class, _)| class)
}

/// A ratio as percents more or less than 1, or as a multiple from 2 on.
fn percents(ratio: f64) -> String {
    match ratio {
        2.0.. => times(ratio),
        _ => format!("{:+.0}", (ratio - 1.0) * 100.0).replace("-0", "0").replace("+0", "0").replace('-', "−"),
    }
}

fn draw_legend(drawing: &mut Drawing, y: f64) {
    let mut x = LEFT;
    for (_, class, name) in SHADES {
        drawing.bar(class, (x, y), (18.0, 14.0), name);
        drawing.text("small", (x + 23.0, y + 11.0), Anchor::Start, name);
        x += 100.0;
    }
    drawing.area("dot", &[(x, y), (x + 10.0, y), (x, y + 10.0)], "");
    drawing.text("small", (x + 14.0, y + 11.0), Anchor::Start, "loses by erases or read p99; figures are %");
}

#[cfg(test)]
mod tests {
    use super::super::standing::tests::{document, run};
    use super::*;

    #[test]
    fn figures_of_cells_are_percents() {
        let texts = [0.5, 0.996, 1.0, 1.004, 1.17, 1.994, 2.0, 31.0].map(percents);
        assert_eq!(texts, ["−50", "0", "0", "0", "+17", "+99", "2.0×", "31×"]);
        assert_eq!(
            [0.9, 0.98, 1.02, 1.021, f64::INFINITY].map(shade),
            ["cell much-better", "cell better", "cell even", "cell worse", "cell worst"]
        );
    }

    #[test]
    fn every_cell_is_drawn_once_on_each_map() {
        let mut runs = Vec::new();
        for (trace, scale) in [("mail", 0.0), ("mail", 1.0), ("<logs>", 1.0)] {
            runs.push(run(trace, scale, "none", [1000, 100, 100]));
            runs.push(run(trace, scale, "smart", [1500, 200, 100]));
        }
        let document = document(runs);
        let [image, over_ideal] = images(&document);
        assert_eq!(image.matches("class=\"percent\"").count(), 3);
        assert!(image.contains("&lt;logs&gt;") && !image.contains("<logs>"));
        let both = figures(&standings(&document));
        assert_eq!(both.matches("class=\"percent\"").count(), 3, "the bound was not replayed");
        assert_eq!(over_ideal.matches("class=\"percent\"").count(), 0);
        assert!(
            over_ideal.contains("over the bound&#39;s (ideal)")
                || over_ideal.contains("over the bound's (ideal)")
        );
        assert_eq!(figures(&[]), "");
    }
}
