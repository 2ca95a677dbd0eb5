//! The chart of a synthetic workload: write amplification against over-provisioning, one line for each order of cleaning
//! and number of streams.

use trimtab_core::document::sweep::{SweepDocument, SweepRow};

use super::panel::{Mean, Panel, Quantity};
use crate::number::significant;
use crate::table::{Cell, Column, Table};

/// The colours of lines; more than these take turns.
const CLASSES: [&str; 6] = ["s1", "s2", "s3", "s4", "s5", "s6"];

/// A line of the chart.
struct Series {
    name: String,
    /// Over-provisioning in percent, and the write amplification.
    points: Vec<(f64, Mean)>,
}

/// The charts of the workloads in `document`, in the order of the grid; empty if it has none.
pub fn figures(document: &SweepDocument) -> String {
    workloads(document).iter().map(|(workload, rows)| figure(workload, rows)).collect()
}

/// The workloads in `document`, each with the table of its means.
pub fn tables(document: &SweepDocument) -> Vec<(&str, Table)> {
    workloads(document).into_iter().map(|(workload, rows)| (workload, table(&series(&rows)))).collect()
}

fn workloads(document: &SweepDocument) -> Vec<(&str, Vec<&SweepRow>)> {
    let mut workloads: Vec<(&str, Vec<&SweepRow>)> = Vec::new();
    for row in &document.rows {
        let Some(workload) = row.cell.workload.as_deref() else { continue };
        match workloads.iter_mut().find(|(known, _)| *known == workload) {
            Some((_, rows)) => rows.push(row),
            None => workloads.push((workload, vec![row])),
        }
    }
    workloads
}

fn figure(workload: &str, rows: &[&SweepRow]) -> String {
    let all = series(rows);
    let points = || all.iter().flat_map(|series| &series.points);
    if points().next().is_none() {
        return String::new();
    }
    let across = Quantity::of("over-provisioning (%)", points().map(|(percents, _)| [*percents; 3]));
    let up = Quantity::of("write amplification", points().map(|(_, waf)| *waf));
    let mut panel = Panel::new(&across, &up);
    for (series, class) in all.iter().zip(CLASSES.iter().cycle()) {
        panel.name(class, &series.name);
        panel.line(&format!("line {class}"), series.points.iter().map(|(percents, waf)| (*percents, waf[0])));
        for (percents, waf) in &series.points {
            let note = format!(
                "{}: write amplification {} at {} % over-provisioning",
                series.name,
                significant(waf[0]),
                significant(*percents)
            );
            panel.mark(class, [*percents; 3], *waf, &note);
        }
    }
    panel.figure(workload, "", &table(&all))
}

fn table(all: &[Series]) -> Table {
    let column = |head: &str, of: &dyn Fn(&Series, f64, f64) -> String| {
        let cells = all.iter().flat_map(|series| {
            series.points.iter().map(move |(percents, waf)| Cell::plain(of(series, *percents, waf[0])))
        });
        Column::new(head, cells)
    };
    Table(vec![
        column("Cleaning", &|series, _, _| series.name.clone()),
        column("Over-provisioning, %", &|_, percents, _| significant(percents)),
        column("Write amplification", &|_, _, waf| significant(waf)),
    ])
}

/// The lines, each with its points from left to right: means over the seeds.
fn series(rows: &[&SweepRow]) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for row in rows {
        let Some(waf) = row.figures.as_ref().and_then(|figures| figures.waf) else { continue };
        let cell = &row.cell;
        let name = match cell.streams {
            Some(streams) if streams != 1 => {
                format!("{}, {streams} streams", cell.gc.as_deref().unwrap_or_default())
            }
            _ => cell.gc.clone().unwrap_or_default(),
        };
        let percents = cell.over_provisioning.unwrap_or_default() * 100.0;
        let mean = match row.intervals.and_then(|intervals| intervals.waf) {
            Some(interval) => [f64::midpoint(interval.low, interval.high), interval.low, interval.high],
            None => [waf; 3],
        };
        let place = all.iter().position(|series| series.name == name).unwrap_or_else(|| {
            all.push(Series { name, points: Vec::new() });
            all.len() - 1
        });
        // The other seeds have the same mean.
        if all[place].points.iter().all(|(known, _)| *known != percents) {
            all[place].points.push((percents, mean));
        }
    }
    for series in &mut all {
        series.points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    }
    all
}
