//! Erases over the trace and discards by size, on one drive.

use trimtab_core::document::SimDocument;
use trimtab_core::document::sim::SimRun;
use trimtab_core::units::Bytes;

use super::row::{Row, per_pass};
use super::summary::{Drive, runs_on};
use crate::chart::{BarChart, Series};
use crate::spread::Spread;

/// The charts of `drive`.
pub fn details(document: &SimDocument, drive: &Drive) -> String {
    let tenths =
        runs_on(document, &drive.profile).map(|run| run.outcome.erases_by_phase.len()).max().unwrap_or(0);
    let erases = BarChart {
        may_be_log: true,
        title: format!("Erases over the trace, {}", drive.profile),
        x: "tenth of the trace's time".to_owned(),
        y: "block erases".to_owned(),
        groups: (1..=tenths).map(|tenth| tenth.to_string()).collect(),
        series: series(document, drive, |run| {
            run.outcome.erases_by_phase.iter().map(|erases| *erases as f64).collect()
        }),
    };
    erases.figure() + &discard_sizes(document, drive)
}

fn discard_sizes(document: &SimDocument, drive: &Drive) -> String {
    let sizes = || {
        let buckets =
            runs_on(document, &drive.profile).flat_map(|run| run.outcome.counters.discard_sizes.buckets());
        buckets.map(|bucket| bucket.from_bytes)
    };
    let (Some(first), Some(last)) = (sizes().min(), sizes().max()) else { return String::new() };
    let buckets: Vec<Bytes> = (first.0.ilog2()..=last.0.ilog2()).map(|power| Bytes(1 << power)).collect();
    let counted = |run: &SimRun, size: Bytes| {
        let found = run.outcome.counters.discard_sizes.buckets().find(|bucket| bucket.from_bytes == size);
        found.map_or(0.0, |bucket| bucket.count as f64)
    };
    BarChart {
        may_be_log: true,
        title: format!("Discards by size, {}", drive.profile),
        x: "size of a discard, each step twice the one before (log scale)".to_owned(),
        y: "discards".to_owned(),
        groups: buckets.iter().map(Bytes::to_string).collect(),
        series: series(document, drive, |run| buckets.iter().map(|size| counted(run, *size)).collect()),
    }
    .figure()
}

/// One series a policy: means of a pass.
fn series(document: &SimDocument, drive: &Drive, values: impl Fn(&SimRun) -> Vec<f64>) -> Vec<Series> {
    let pairs = drive.rows.iter().zip(runs_on(document, &drive.profile));
    let of = |(row, run): (&Row, &SimRun)| Series {
        name: row.policy.label(),
        class: row.class.clone(),
        values: values(run).into_iter().map(|value| Spread::of([per_pass(run, value)])).collect(),
    };
    pairs.map(of).collect()
}
