//! A comparison in figures: its file systems, the advice for each, and the runs to warn of.

use serde::Serialize;
use trimtab_core::document::{Clock, CompareDocument, Run, Step};

use super::situation::Situation;
use super::{advice, words};

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

/// One file system.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileSystem {
    /// Its name.
    pub fs: String,
    /// One entry a length of the pauses, in the order they first ran.
    pub situations: Vec<Situation>,
    /// One sentence for each situation: the policy that suits it and its cost.
    pub advice: Vec<String>,
}

impl Summary {
    /// The figures of `document`.
    pub fn of(document: &CompareDocument) -> Self {
        let mut names: Vec<&str> = Vec::new();
        for run in &document.runs {
            if !names.contains(&run.fs.as_str()) {
                names.push(&run.fs);
            }
        }
        let file_systems: Vec<_> = names.iter().map(|fs| FileSystem::of(document, fs)).collect();
        let named = |wanted: fn(&Run) -> bool| -> Vec<String> {
            let runs = document.runs.iter().filter(|run| wanted(run));
            let name = |run: &Run| format!("{}, run {}", run_name(document, run), run.run);
            runs.map(name).collect()
        };
        Self {
            clock: document.clock.clone(),
            incomplete: incomplete(document, &file_systems),
            file_systems,
            unverified: named(|run| !run.verified),
            miscounted: named(|run| run.counters_agree() == Some(false) && miscounts(run)),
        }
    }
}

/// Whether the drive's and the kernel's counts of discards lie further apart than they can by being
/// read one after the other, while discards go on, at the begin and end of every step.
fn miscounts(run: &Run) -> bool {
    let sum = |of: &dyn Fn(&Step) -> Option<u64>| -> f64 {
        run.steps.iter().filter_map(of).map(|count| count as f64).sum()
    };
    let (drive, kernel) = (sum(&|step| Some(step.discards)), sum(&|step| Some(step.kernel?.discards)));
    let apart = (drive - kernel).abs();
    apart > 2.0 * run.steps.len() as f64 && apart > 0.01 * drive.max(kernel)
}

fn run_name(document: &CompareDocument, run: &Run) -> String {
    let pauses = words::pauses(document, &[run], run.idle_s);
    format!("{} {}{}", run.fs, run.policy, pauses.map_or(String::new(), |words| format!(" {words}")))
}

fn incomplete(document: &CompareDocument, file_systems: &[FileSystem]) -> Vec<String> {
    let mut incomplete = Vec::new();
    for fs in file_systems {
        for situation in &fs.situations {
            let words = situation.words.as_ref().map_or(String::new(), |words| format!(" {words}"));
            for row in situation.rows.iter().filter(|row| row.runs < document.runs_asked as usize) {
                let (runs, asked) = (row.runs, document.runs_asked);
                incomplete.push(format!("{} {}{words}: {runs} of {asked} runs", fs.fs, row.policy));
            }
        }
    }
    incomplete
}

impl FileSystem {
    fn of(document: &CompareDocument, fs: &str) -> Self {
        let mut lengths: Vec<f64> = Vec::new();
        for run in document.runs.iter().filter(|run| run.fs == fs) {
            if !lengths.iter().any(|length| length.total_cmp(&run.idle_s).is_eq()) {
                lengths.push(run.idle_s);
            }
        }
        let situations: Vec<_> =
            lengths.into_iter().map(|idle_s| Situation::of(document, fs, idle_s)).collect();
        Self {
            fs: fs.to_owned(),
            advice: advice::advice(fs, words::with_writers(document).as_deref(), &situations),
            situations,
        }
    }

    /// The heading of a situation on it.
    pub fn heading(&self, situation: &Situation) -> String {
        match &situation.words {
            Some(words) => format!("{} {words}", self.fs),
            None => self.fs.clone(),
        }
    }
}
