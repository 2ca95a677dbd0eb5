//! The bar charts of a comparison.

use trimtab_core::document::{CompareDocument, Run, Step};
use trimtab_core::stats::SizeHistogram;
use trimtab_core::units::Bytes;

use super::situation::{Row, Situation};
use super::summary::FileSystem;
use super::words;
use crate::chart::{BarChart, Series, policy_class};
use crate::spread::Spread;

/// The time waited on `fs`: a group a situation, a bar a policy.
pub fn waited(document: &CompareDocument, fs: &FileSystem) -> String {
    let policies = words::policies(document);
    let value = |situation: &Situation, policy| {
        let row = situation.rows.iter().find(|row| row.policy == policy)?;
        row.waited_s.filter(|_| !situation.is_as_none(row))
    };
    let ran = policies
        .iter()
        .filter(|policy| fs.situations.iter().any(|situation| value(situation, **policy).is_some()));
    let series = ran.map(|policy| Series {
        name: policy.to_string(),
        class: policy_class(*policy, &policies),
        values: fs.situations.iter().map(|situation| value(situation, *policy)).collect(),
    });
    let name = |situation: &Situation| situation.words.clone().unwrap_or_else(|| fs.fs.clone());
    let has_pauses = fs.situations.iter().any(|situation| situation.words.is_some());
    let left_out =
        fs.situations.iter().any(|situation| situation.rows.iter().any(|row| situation.is_as_none(row)));
    let note = if left_out { "; no bar: the policy trimmed nothing, as none" } else { "" };
    BarChart {
        may_be_log: false,
        title: format!("Time waited, {}: less is better{note}", fs.fs),
        x: if has_pauses { "pauses of the workload" } else { "file system" }.to_owned(),
        y: "all activities, s".to_owned(),
        groups: fs.situations.iter().map(name).collect(),
        series: series.collect(),
    }
    .figure()
}

/// Discards by size and erases by step, in one situation.
pub fn details(document: &CompareDocument, fs: &FileSystem, situation: &Situation) -> String {
    discard_sizes(document, fs, situation) + &erases_by_step(document, fs, situation)
}

fn erases_by_step(document: &CompareDocument, fs: &FileSystem, situation: &Situation) -> String {
    let names = step_names(document, fs, situation);
    let in_step = |run: &Run, name: &str| {
        let steps = run.steps.iter().filter(|step| step.name == name);
        let erases: Vec<f64> = steps.filter_map(|step| Some(step.erases? as f64)).collect();
        (!erases.is_empty()).then(|| erases.iter().sum::<f64>())
    };
    BarChart {
        may_be_log: false,
        title: format!("Erases by step, {}", fs.heading(situation)),
        x: "activity or pause".to_owned(),
        y: "block erases".to_owned(),
        groups: names.iter().map(|name| (*name).to_owned()).collect(),
        series: series(document, fs, situation, |runs| {
            names.iter().map(|name| Spread::of(runs.iter().filter_map(|run| in_step(run, name)))).collect()
        }),
    }
    .figure()
}

/// The names of the steps in a situation, in the order they first ran.
pub fn step_names<'a>(document: &'a CompareDocument, fs: &FileSystem, situation: &Situation) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for row in &situation.rows {
        let runs = situation.runs_of(document, &fs.fs, row.policy);
        for step in runs.into_iter().flat_map(|run: &'a Run| &run.steps) {
            if !names.contains(&step.name.as_str()) {
                names.push(&step.name);
            }
        }
    }
    names
}

fn discard_sizes(document: &CompareDocument, fs: &FileSystem, situation: &Situation) -> String {
    let steps = situation
        .rows
        .iter()
        .flat_map(|row| situation.runs_of(document, &fs.fs, row.policy))
        .flat_map(|run| &run.steps);
    let mut sizes: Vec<Bytes> =
        steps.flat_map(|step| step.discard_histogram.buckets().map(|bucket| bucket.from_bytes)).collect();
    sizes.sort_unstable();
    let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else { return String::new() };
    let buckets: Vec<Bytes> = (first.0.ilog2()..=last.0.ilog2()).map(|power| Bytes(1 << power)).collect();
    let in_bucket = |histogram: &SizeHistogram, size| {
        let buckets = histogram.buckets().filter(|bucket| bucket.from_bytes == size);
        buckets.map(|bucket| bucket.count as f64).sum::<f64>()
    };
    let in_run = |run: &Run, size| {
        run.steps.iter().map(|step: &Step| in_bucket(&step.discard_histogram, size)).sum::<f64>()
    };
    BarChart {
        may_be_log: true,
        title: format!("Discards by size, {}", fs.heading(situation)),
        x: "size of a discard, each step twice the one before (log scale)".to_owned(),
        y: "discards in a run".to_owned(),
        groups: buckets.iter().map(Bytes::to_string).collect(),
        series: series(document, fs, situation, |runs| {
            buckets.iter().map(|size| Spread::of(runs.iter().map(|run| in_run(run, *size)))).collect()
        }),
    }
    .figure()
}

/// One series a policy with at least one value above zero, with the values that its runs have.
fn series(
    document: &CompareDocument,
    fs: &FileSystem,
    situation: &Situation,
    values: impl Fn(&[&Run]) -> Vec<Option<Spread>>,
) -> Vec<Series> {
    let policies = words::policies(document);
    let of = |row: &Row| Series {
        name: row.policy.to_string(),
        class: policy_class(row.policy, &policies),
        values: values(&situation.runs_of(document, &fs.fs, row.policy)),
    };
    let shown = situation.rows.iter().filter(|row| !situation.is_as_none(row)).map(of);
    shown.filter(|series| series.values.iter().flatten().any(|value| value.max > 0.0)).collect()
}
