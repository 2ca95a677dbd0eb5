//! A simulation in figures: its drives, the advice for each, and the replays to warn of.

use serde::Serialize;
use trimtab_core::document::SimDocument;
use trimtab_core::document::sim::{Passes, SimRun};

use super::advice;
use super::row::{Row, relate};

/// How the advice for a trace alone begins.
const ONE_COPY: &str = "With one copy, on a drive of the traced device's size:";

/// A simulation in figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// One entry a drive with a finished replay, in the order they were asked for.
    pub drives: Vec<Drive>,
    /// The replays that were not finished: `nvme-tlc online`.
    pub missing: Vec<String>,
    /// The replays whose write amplification did not get steady.
    pub unsteady: Vec<String>,
}

/// The policies on one drive.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Drive {
    /// Its profile.
    pub profile: String,
    /// One row a finished policy, in the order they were asked for.
    pub rows: Vec<Row>,
    /// The policy that suits the workload on this drive, and why, in one or two sentences.
    pub advice: String,
    /// The same where one copy of the trace writes alone; `None` if only one was replayed.
    pub advice_for_one_copy: Option<String>,
}

impl Summary {
    /// The figures of `document`.
    pub fn of(document: &SimDocument) -> Self {
        let alone = document.one_copy.as_deref().map(Self::of);
        let drives = document.drives.iter().map(|drive| {
            let mut rows: Vec<_> =
                runs_on(document, &drive.profile).map(|run| Row::of(run, &document.policies)).collect();
            relate(&mut rows);
            let advice = advice::sentences(&drive.profile, drive.size, &rows);
            let same =
                alone.iter().flat_map(|alone| &alone.drives).find(|same| same.profile == drive.profile);
            let advice_for_one_copy = same.map(|same| format!("{ONE_COPY} {}", same.advice));
            Drive { profile: drive.profile.clone(), advice, advice_for_one_copy, rows }
        });
        let pairs =
            document.drives.iter().flat_map(|drive| document.policies.iter().map(move |it| (drive, it)));
        let missing = pairs
            .filter(|(drive, policy)| !runs_on(document, &drive.profile).any(|run| run.policy == **policy))
            .map(|(drive, policy)| format!("{} {policy}", drive.profile));
        let most = match document.replay.passes {
            Passes::UntilSteady(most) => most,
            Passes::Count(count) => count,
        };
        let unsteady = document.runs.iter().filter(|run| run.steady == Some(false));
        Self {
            drives: drives.filter(|drive| !drive.rows.is_empty()).collect(),
            missing: missing.collect(),
            unsteady: unsteady
                .map(|run| format!("{} {} (after {most} passes)", run.profile, run.policy))
                .collect(),
        }
    }
}

/// The finished replays on the drive of a profile.
pub fn runs_on<'a>(document: &'a SimDocument, profile: &'a str) -> impl Iterator<Item = &'a SimRun> {
    document.runs.iter().filter(move |run| run.profile == profile)
}
