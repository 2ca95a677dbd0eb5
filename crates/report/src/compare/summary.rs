//! The figures of a comparison: medians over the runs of each policy on each file system.

use serde::Serialize;
use trimtab_core::document::{CompareDocument, Phase, Run, TRIM_PHASE};
use trimtab_core::policy::PolicyKind;
use trimtab_core::units::Bytes;

use super::advice;
use crate::spread::Spread;

/// The clock that times and rates were taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// The emulated drive's own time.
    Model,
    /// This machine's time.
    Wall,
}

impl Clock {
    /// Its name in text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Model => "model time",
            Self::Wall => "wall time",
        }
    }

    /// The seconds a phase took on it.
    pub fn seconds(self, phase: &Phase) -> Option<f64> {
        match self {
            Self::Model => phase.model_s,
            Self::Wall => Some(phase.wall_s),
        }
    }
}

/// A comparison in figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The clock of all times and rates in it.
    pub clock: Clock,
    /// One entry a file system, in the order they first ran.
    pub file_systems: Vec<FileSystem>,
    /// The runs whose files did not read back as they were written: `ext4 online, run 2`.
    pub unverified: Vec<String>,
    /// The runs in which the drive and the kernel counted different discards.
    pub miscounted: Vec<String>,
    /// The policies with fewer runs than were asked for: `xfs online: 1 of 3 runs`.
    pub incomplete: Vec<String>,
}

/// The policies on one file system.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileSystem {
    /// Its name.
    pub fs: String,
    /// One row a policy that ran, in the order of [`PolicyKind::ALL`].
    pub rows: Vec<Row>,
    /// Which policy suits best, and why.
    pub advice: String,
}

/// One policy on one file system; every figure is over its runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The policy.
    pub policy: PolicyKind,
    /// Finished runs.
    pub runs: usize,
    /// Whether the files of every run read back as they were written.
    pub verified: bool,
    /// Seconds that a user waits for: the delete and write phases together, or all phases but the
    /// policy's own trims where the workload names neither.
    pub wait_s: Option<Spread>,
    /// Seconds of the workload's delete phases together.
    pub delete_s: Option<Spread>,
    /// Seconds of the policy's own trims, for which the workload pauses; none without such trims.
    pub trim_s: Option<Spread>,
    /// MiB/s of the workload's write phase.
    pub write_mib_s: Option<Spread>,
    /// Erase-block erases of all phases.
    pub erases: Option<Spread>,
    /// Write amplification over all phases.
    pub waf: Option<Spread>,
    /// Discard commands of all phases; none where nothing counted them.
    pub discards: Option<Spread>,
    /// Mean bytes of a discard; none without discards.
    pub discard_bytes: Option<Spread>,
}

impl Summary {
    /// The figures of `document`.
    pub fn of(document: &CompareDocument) -> Self {
        let clock = if document.drive.is_some() { Clock::Model } else { Clock::Wall };
        let mut names: Vec<&str> = Vec::new();
        for run in &document.runs {
            if !names.contains(&run.fs.as_str()) {
                names.push(&run.fs);
            }
        }
        let file_systems: Vec<_> = names.iter().map(|fs| FileSystem::of(document, fs, clock)).collect();
        let incomplete = file_systems
            .iter()
            .flat_map(|fs| fs.rows.iter().map(move |row| (&fs.fs, row)))
            .filter(|(_, row)| row.runs < document.runs_asked as usize)
            .map(|(fs, row)| format!("{fs} {}: {} of {} runs", row.policy, row.runs, document.runs_asked))
            .collect();
        let named = |wanted: fn(&Run) -> bool| -> Vec<String> {
            let runs = document.runs.iter().filter(|run| wanted(run));
            runs.map(|run| format!("{} {}, run {}", run.fs, run.policy, run.run)).collect()
        };
        let unverified = named(|run| !run.verified);
        let miscounted = named(|run| run.counters_agree() == Some(false));
        Self { clock, file_systems, unverified, miscounted, incomplete }
    }
}

impl FileSystem {
    fn of(document: &CompareDocument, fs: &str, clock: Clock) -> Self {
        let rows: Vec<_> = PolicyKind::ALL
            .into_iter()
            .filter_map(|policy| Row::of(document, &runs_of(document, fs, policy), clock))
            .collect();
        Self { fs: fs.to_owned(), advice: advice::sentence(fs, &rows), rows }
    }

    /// The row of the policy that all others are set against.
    pub fn baseline(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.policy == PolicyKind::None)
    }
}

impl Row {
    fn of(document: &CompareDocument, runs: &[&Run], clock: Clock) -> Option<Self> {
        let over =
            |figure: &dyn Fn(&Run) -> Option<f64>| Spread::of(runs.iter().filter_map(|run| figure(run)));
        let workload = &document.workload;
        let time = |run: &Run, wanted: &dyn Fn(&str) -> bool| {
            let mut phases = run.phases.iter().filter(|phase| wanted(&phase.name)).peekable();
            phases.peek()?;
            phases.map(|phase| clock.seconds(phase)).sum::<Option<f64>>()
        };
        let deletes = |name: &str| workload.delete_phases.iter().any(|phase| phase == name);
        let writes = |name: &str| workload.write_phase.as_deref() == Some(name);
        let names_none = workload.delete_phases.is_empty() && workload.write_phase.is_none();
        let waits = |name: &str| if names_none { name != TRIM_PHASE } else { deletes(name) || writes(name) };
        let discards = |run: &Run| run.phases.iter().map(|phase| phase.discards as f64).sum::<f64>();
        let discarded = |run: &Run| run.phases.iter().map(|phase| phase.discard_bytes.0 as f64).sum::<f64>();
        let erases = |run: &Run| run.phases.iter().map(|phase| phase.erases.map(|count| count as f64)).sum();
        Some(Self {
            policy: runs.first()?.policy,
            runs: runs.len(),
            verified: runs.iter().all(|run| run.verified),
            wait_s: over(&|run| time(run, &waits)),
            delete_s: over(&|run| time(run, &deletes)),
            trim_s: over(&|run| time(run, &|name| name == TRIM_PHASE)),
            write_mib_s: over(&|run| run.phases.iter().find(|phase| writes(&phase.name))?.throughput_mib_s),
            erases: over(&erases),
            waf: over(&waf),
            discards: over(&|run| run.phases.iter().all(Phase::is_counted).then(|| discards(run))),
            discard_bytes: over(&|run| {
                let commands = discards(run);
                (commands > 0.0).then(|| discarded(run) / commands)
            }),
        })
    }
}

/// The runs of one policy on one file system.
pub fn runs_of<'a>(document: &'a CompareDocument, fs: &str, policy: PolicyKind) -> Vec<&'a Run> {
    document.runs.iter().filter(|run| run.fs == fs && run.policy == policy).collect()
}

/// Write amplification over the phases that have one, each counted by what the host wrote in it.
fn waf(run: &Run) -> Option<f64> {
    let known = || run.phases.iter().filter_map(|phase| Some((phase.waf?, phase.host_bytes)));
    let host: f64 = known().map(|(_, Bytes(bytes))| bytes as f64).sum();
    let flash: f64 = known().map(|(waf, Bytes(bytes))| waf * bytes as f64).sum();
    (host > 0.0).then(|| flash / host)
}
