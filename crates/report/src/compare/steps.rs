//! The table of all steps of a situation, folded away.

use trimtab_core::document::{CompareDocument, Run, Step, StepKind};

use super::charts::step_names;
use super::sane::sane;
use super::situation::Situation;
use super::summary::FileSystem;
use crate::html::escape;
use crate::number::{bytes, compact, count, latency, seconds, significant};
use crate::spread::Spread;

/// A column: its heading, what it takes from the steps of one name in a run, and how that is printed.
type StepColumn = (&'static str, fn(&[&Step]) -> Option<f64>, fn(f64) -> String);

const COLUMNS: [StepColumn; 17] = [
    ("time", |steps| sum(steps, |step| sane(step.length_s)), seconds),
    ("slept in it", |steps| sum(steps, slept), seconds),
    ("written MiB", |steps| sum(steps, |step| step.is_counted().then(|| step.host_bytes.mib())), significant),
    ("MiB/s", throughput, significant),
    ("reads", |steps| sum(steps, |step| Some(step.probe?.count as f64)), erases),
    ("read p50", |steps| most(steps, |step| Some(step.probe?.p50_ns.seconds())), read),
    ("read p99", |steps| most(steps, |step| Some(step.probe?.p99_ns.seconds())), read),
    ("longest read", |steps| most(steps, |step| Some(step.probe?.max_ns.seconds())), read),
    ("discards", |steps| sum(steps, |step| step.is_counted().then_some(step.discards as f64)), erases),
    ("discarded", |steps| sum(steps, |step| step.is_counted().then_some(step.discard_bytes.0 as f64)), bytes),
    ("discards seen by the kernel", |steps| sum(steps, |step| Some(step.kernel?.discards as f64)), erases),
    ("drive busy with discards", |steps| sum(steps, |step| sane(step.discard_busy_s?)), seconds),
    ("erases", |steps| sum(steps, |step| Some(step.erases? as f64)), erases),
    ("processor: workload", |steps| sum(steps, |step| sane(step.processor?.workload_s)), seconds),
    ("processor: drive", |steps| sum(steps, |step| sane(step.processor?.drive_s?)), seconds),
    ("processor: service", |steps| sum(steps, |step| sane(step.processor?.service_s?)), seconds),
    ("processor: others", |steps| sum(steps, |step| sane(step.processor?.others_s?)), seconds),
];

/// How long a user's command slept; none of other steps.
fn slept(step: &Step) -> Option<f64> {
    sane(step.idle_s).filter(|slept| *slept > 0.0 && step.kind == StepKind::Activity)
}

fn erases(number: f64) -> String {
    if number < 1e12 { count(number) } else { compact(number) }
}

fn read(seconds: f64) -> String {
    latency(seconds * 1e6)
}

fn sum(steps: &[&Step], figure: fn(&Step) -> Option<f64>) -> Option<f64> {
    let figures: Vec<f64> = steps.iter().filter_map(|step| figure(step)).collect();
    (!figures.is_empty()).then(|| figures.iter().sum())
}

fn most(steps: &[&Step], figure: fn(&Step) -> Option<f64>) -> Option<f64> {
    steps.iter().filter_map(|step| figure(step)).max_by(f64::total_cmp)
}

fn throughput(steps: &[&Step]) -> Option<f64> {
    let rate = sum(steps, |step| Some(step.host_bytes.mib()))? / sum(steps, |step| sane(step.length_s))?;
    sane(rate).filter(|rate| *rate > 0.0)
}

/// The medians of every step of a situation; a column that has none is left out.
pub fn table(document: &CompareDocument, fs: &FileSystem, situation: &Situation) -> String {
    let runs: Vec<(String, Vec<&Run>)> = situation
        .rows
        .iter()
        .map(|row| (row.policy.to_string(), situation.runs_of(document, &fs.fs, row.policy)))
        .collect();
    let mut rows: Vec<(String, Vec<Option<String>>)> = Vec::new();
    for name in step_names(document, fs, situation) {
        for (policy, runs) in &runs {
            let named: Vec<Vec<&Step>> = runs
                .iter()
                .map(|run| run.steps.iter().filter(|step| step.name == name).collect::<Vec<_>>())
                .filter(|steps| !steps.is_empty())
                .collect();
            if named.is_empty() {
                continue;
            }
            let cell = |(_, of, print): &StepColumn| {
                let figures = named.iter().filter_map(|steps| of(steps));
                Spread::of(figures).map(|spread| print(spread.median))
            };
            let head =
                format!("<th scope=\"row\">{}</th><td>{policy}</td>", escape(&step_label(name, &named)));
            rows.push((head, COLUMNS.iter().map(cell).collect()));
        }
    }
    let known: Vec<usize> =
        (0..COLUMNS.len()).filter(|place| rows.iter().any(|(_, cells)| cells[*place].is_some())).collect();
    let heads: String = known.iter().map(|place| format!("<th>{}</th>", COLUMNS[*place].0)).collect();
    let row = |(head, cells): &(String, Vec<Option<String>>)| {
        let cells = known.iter().map(|place| cells[*place].as_deref().unwrap_or("–"));
        let cells: String = cells.map(|text| format!("<td>{}</td>", escape(text))).collect();
        format!("<tr>{head}{cells}</tr>\n")
    };
    format!(
        "<details><summary>Every step, {}</summary>\n<p class=\"soft\">Medians over the runs. Steps of the same \
         name are taken together: their times and counts added up, their slowest reads.</p>\n\
         <div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr><th>step</th><th>policy</th>{heads}</tr></thead>\n\
         <tbody>\n{}</tbody>\n</table></div></details>\n",
        escape(&fs.heading(situation)),
        rows.iter().map(row).collect::<String>(),
    )
}

/// The name of steps, with what else there is to know of them.
fn step_label(name: &str, named: &[Vec<&Step>]) -> String {
    let steps = || named.iter().flatten();
    let pause = if steps().all(|step| step.kind == StepKind::Pause) { " (pause)" } else { "" };
    match named.iter().map(Vec::len).max() {
        Some(times @ 2..) => format!("{name}{pause}, {times} times"),
        _ => format!("{name}{pause}"),
    }
}
