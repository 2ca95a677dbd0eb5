//! The figures of a situation: medians over the runs of each policy on one file system, with one length of
//! the workload's pauses.

use serde::Serialize;
use trimtab_core::document::{Clock, CompareDocument, Engine, Run, Step, StepKind};
use trimtab_core::policy::{PolicyChoice, PolicyKind};
use trimtab_core::units::Bytes;

use super::noise::Noise;
use super::sane::sane;
use super::{reads, words};
use crate::spread::Spread;

/// The policies on one file system with one length of the pauses.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Situation {
    /// Seconds of drive time that each of the workload's pauses lasts.
    pub idle_s: f64,
    /// The situation in words: `with a pause of 1 min`; none for a workload that names no pauses.
    pub words: Option<String>,
    /// The differences that count as equal.
    pub noise: Noise,
    /// One row a policy that ran, in the order they first ran.
    pub rows: Vec<Row>,
}

/// One policy in one situation; every figure is over its runs. Times are drive time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The policy.
    pub policy: PolicyChoice,
    /// Finished runs.
    pub runs: usize,
    /// Whether the files of every run read back as they were written.
    pub verified: bool,
    /// Whether it neither trimmed nor discarded anything, so that any difference from `none` is
    /// chance.
    #[serde(rename = "idle")]
    pub did_nothing: bool,
    /// Operations of all runs that found no space at first, and were tried again.
    pub no_space: u64,
    /// Seconds that somebody waited: all activities together.
    pub waited_s: Option<Spread>,
    /// Seconds that one of several writers waited: over the writers of all runs; none where there is one writer.
    pub writer_waited_s: Option<Spread>,
    /// Seconds waited in activities that the processor of a guest limited: it was busy for nearly all of the time. None
    /// where that is not known.
    pub processor_bound_s: Option<Spread>,
    /// Seconds of the activities that delete.
    pub delete_s: Option<Spread>,
    /// MiB/s of the activity that shows what missing discards cost.
    pub write_mib_s: Option<Spread>,
    /// Seconds of a read by others: the p99 of the probe's reads in all activities or in all
    /// pauses, whichever is larger.
    pub read_p99_s: Option<Spread>,
    /// Seconds of the longest read by others.
    pub read_max_s: Option<Spread>,
    /// Seconds of FITRIM altogether; none without one.
    pub trim_s: Option<Spread>,
    /// Erase-block erases.
    pub erases: Option<Spread>,
    /// Write amplification of the whole run.
    pub waf: Option<Spread>,
    /// Discard commands; none where nothing counted them.
    pub discards: Option<Spread>,
    /// Mean bytes of a discard; none without discards.
    pub discard_bytes: Option<Spread>,
    /// Seconds that discards kept the drive busy.
    pub discard_busy_s: Option<Spread>,
    /// Bytes that the drive still held at the end and the file system no longer used.
    pub stale_bytes: Option<Spread>,
    /// Bytes that waited for a discard in the service at the end.
    pub pending_bytes: Option<Spread>,
}

impl Situation {
    /// The figures of the runs on `fs` with pauses of `idle_s` seconds.
    pub fn of(document: &CompareDocument, fs: &str, idle_s: f64) -> Self {
        let ran: Vec<&Run> = document
            .runs
            .iter()
            .filter(|run| run.fs == fs && run.idle_s.total_cmp(&idle_s).is_eq())
            .collect();
        let mut policies: Vec<PolicyChoice> = Vec::new();
        for run in &ran {
            if !policies.contains(&run.policy) {
                policies.push(run.policy);
            }
        }
        let row = |policy: PolicyChoice| {
            let runs: Vec<&Run> = ran.iter().copied().filter(|run| run.policy == policy).collect();
            Row::of(document, policy, &runs)
        };
        let rows: Vec<Row> = policies.into_iter().map(row).collect();
        let sleeps = ran
            .iter()
            .flat_map(|run| &run.steps)
            .any(|step| step.kind == StepKind::Activity && step.idle_s > 0.0);
        let fewest = rows.iter().map(|row| row.runs).min().unwrap_or(0);
        Self {
            idle_s,
            words: words::pauses(document, &ran, idle_s),
            noise: Noise::of(&document.clock, fewest, repeated(&rows), sleeps),
            rows,
        }
    }

    /// The row of the policy that all others are set against.
    pub fn baseline(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.policy.kind() == PolicyKind::None)
    }

    /// Whether `row` is only another run of the baseline: `batched` that never trimmed.
    pub fn is_as_none(&self, row: &Row) -> bool {
        row.did_nothing && row.policy.kind() == PolicyKind::Batched && self.baseline().is_some()
    }

    /// The runs of a policy in it.
    pub fn runs_of<'a>(&self, document: &'a CompareDocument, fs: &str, policy: PolicyChoice) -> Vec<&'a Run> {
        let here =
            |run: &&Run| run.fs == fs && run.policy == policy && run.idle_s.total_cmp(&self.idle_s).is_eq();
        document.runs.iter().filter(here).collect()
    }
}

/// How far the waits of policies that did nothing at all lie apart, as a part of the longest.
fn repeated(rows: &[Row]) -> f64 {
    let none = rows.iter().filter(|row| {
        row.policy.kind() == PolicyKind::None || (row.did_nothing && row.policy.kind() == PolicyKind::Batched)
    });
    let waits: Vec<f64> = none.filter_map(|row| Some(row.waited_s?.median)).collect();
    let longest = waits.iter().copied().fold(0.0, f64::max);
    let shortest = waits.iter().copied().fold(longest, f64::min);
    if longest > 0.0 { (longest - shortest) / longest } else { 0.0 }
}

impl Row {
    fn of(document: &CompareDocument, policy: PolicyChoice, runs: &[&Run]) -> Self {
        let over = |figure: &dyn Fn(&Run) -> Option<f64>| {
            Spread::of(runs.iter().filter_map(|run| figure(run)).filter_map(sane))
        };
        let workload = &document.workload;
        let deletes = |step: &Step| workload.delete_steps.contains(&step.name);
        let writes = |step: &Step| workload.write_step.as_ref() == Some(&step.name);
        let bytes = |of: fn(&Run) -> Option<Bytes>| over(&|run: &Run| Some(of(run)?.0 as f64));
        Self {
            policy,
            runs: runs.len(),
            verified: runs.iter().all(|run| run.verified),
            no_space: runs
                .iter()
                .flat_map(|run| &run.steps)
                .fold(0, |sum, step| sum.saturating_add(step.no_space)),
            did_nothing: policy.kind() != PolicyKind::None && runs.iter().all(|run| is_idle(run)),
            waited_s: over(&|run| time(run, &|step| step.kind == StepKind::Activity)),
            writer_waited_s: Spread::of(runs.iter().flat_map(|run| run.writers_waited_s()).filter_map(sane)),
            processor_bound_s: over(&|run| match document.clock {
                Clock::Virtual { engine: Engine::Qemu, .. } => processor_bound(run),
                Clock::Virtual { .. } | Clock::Real { .. } => None,
            }),
            delete_s: over(&|run| time(run, &deletes)),
            write_mib_s: over(&|run| {
                let written = total(run, &|step| writes(step).then(|| step.host_bytes.mib()))?;
                Some(written / time(run, &writes)?).filter(|rate| rate.is_normal())
            }),
            read_p99_s: over(&reads::p99_s),
            read_max_s: over(&reads::longest_s),
            trim_s: over(&|run| {
                let trims = run.trims.iter().map(|trim| sane(trim.length_s));
                trims.sum::<Option<f64>>().filter(|_| !run.trims.is_empty())
            }),
            erases: over(&|run| all(run, &|step| Some(step.erases? as f64))),
            waf: over(&|run| {
                let host = all(run, &|step| Some(step.host_pages? as f64)).filter(|pages| *pages > 0.0)?;
                Some(all(run, &|step| Some(step.programmed_pages? as f64))? / host)
            }),
            discards: over(&discards),
            discard_bytes: over(&|run| {
                let commands = discards(run).filter(|commands| *commands > 0.0)?;
                Some(all(run, &|step| Some(step.discard_bytes.0 as f64))? / commands)
            }),
            discard_busy_s: over(&|run| all(run, &|step| sane(step.discard_busy_s?))),
            stale_bytes: bytes(|run| run.stale),
            pending_bytes: bytes(|run| run.pending),
        }
    }
}

/// The part of a step in which a guest's only processor is busy, from which on the processor limits the step.
const BUSY: f64 = 0.9;
/// Steps shorter than this are not judged: processor time is counted in ticks of 10 ms.
const JUDGED_S: f64 = 0.2;

/// The seconds that somebody waited in steps that the processor limited; none where processor time is not known.
fn processor_bound(run: &Run) -> Option<f64> {
    let bound = |step: &Step| {
        let busy = sane(step.processor?.all_s()?)?;
        Some(if step.length_s >= JUDGED_S && busy >= BUSY * step.length_s { step.waited_s() } else { 0.0 })
    };
    all(run, &bound)
}

/// Whether nothing was trimmed or discarded in `run`, as far as is known; unknown is no.
fn is_idle(run: &Run) -> bool {
    let counted = discards(run);
    let never_trims = run.policy.kind() == PolicyKind::Batched && counted.is_none();
    run.trims.is_empty() && (counted == Some(0.0) || never_trims)
}

/// The discards of a run; none where nothing counted them.
fn discards(run: &Run) -> Option<f64> {
    all(run, &|step| step.is_counted().then_some(step.discards as f64))
}

/// The seconds that somebody waited in the steps that are `wanted`; none where there is none.
fn time(run: &Run, wanted: &dyn Fn(&Step) -> bool) -> Option<f64> {
    let mut steps = run.steps.iter().filter(|step| wanted(step)).peekable();
    steps.peek()?;
    steps.map(|step| sane(step.waited_s())).sum()
}

/// The sum of the figures that steps have; none where no step has one.
fn total(run: &Run, figure: &dyn Fn(&Step) -> Option<f64>) -> Option<f64> {
    let mut figures = run.steps.iter().filter_map(figure).peekable();
    figures.peek()?;
    Some(figures.sum())
}

/// The sum of a figure that every step has; none where one lacks it, or there is no step.
fn all(run: &Run, figure: &dyn Fn(&Step) -> Option<f64>) -> Option<f64> {
    run.steps.iter().map(figure).sum::<Option<f64>>().filter(|_| !run.steps.is_empty())
}
