//! A cell of a sweep: all that its results depend on, and how they are computed.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use trimtab_core::Bytes;
use trimtab_core::document::sim::{Clocks, DiscardsFrom, Passes, ReplayOutcome};
use trimtab_core::document::sweep::Figures;
use trimtab_core::error::chain;
use trimtab_core::policy::SimPolicy;
use trimtab_core::profile::Profile;
use trimtab_core::stats::EraseSpread;
use trimtab_ftl::replay::ReplayError;
use trimtab_ftl::synthetic::{SyntheticOptions, SyntheticOutcome};
use xxhash_rust::xxh3::xxh3_128;

use super::trace::SharedTrace;
use crate::simulate::{ReplayFailure, SimulateOptions, plan, replay};

/// The schema of the files of cells.
pub const CELL_SCHEMA: &str = "trimtab/sweep-cell/1";
/// The version and the sources that cells are computed by; results of others are not mixed with them.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("TRIMTAB_SOURCES"));

/// All that the results of a cell depend on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "kebab-case")]
pub enum Cell {
    /// A trace is replayed.
    Trace(Box<TraceCell>),
    /// A synthetic workload is run.
    Synthetic(SyntheticOptions),
}

/// A replay of a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceCell {
    /// The hash of the trace file's content.
    pub trace: String,
    /// The device of the trace; none for the only one that is written.
    pub device: Option<String>,
    /// The drive.
    pub profile: Arc<Profile>,
    /// The policy.
    pub policy: SimPolicy,
    /// Whether the drive was written before.
    pub preconditioned: bool,
    /// The drive's size; none for the traced device's.
    pub size: Option<Bytes>,
    /// The size that addresses are scaled to.
    pub scale_to: Option<Bytes>,
    /// How often the trace is replayed.
    pub passes: Passes,
    /// The program and erase cycles that a block lasts; none for those of the profile.
    pub endurance: Option<u32>,
    /// How the host and the policy go by time.
    pub clocks: Clocks,
    /// The seed of the drive's draws.
    pub seed: u64,
}

/// The results of a cell: the same wherever and however often they are computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CellResult {
    /// A trace was replayed.
    Replayed(Box<Replayed>),
    /// A synthetic workload was run.
    Synthetic(Box<SyntheticResult>),
    /// The cell has no results for this reason.
    Failed(String),
}

/// The results of a replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replayed {
    discards_from: DiscardsFrom,
    synthetic_frees: bool,
    steady: Option<bool>,
    lifetime_years: Option<f64>,
    drive_size: Bytes,
    outcome: ReplayOutcome,
}

/// The results of a synthetic workload, without the speed of this machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SyntheticResult {
    logical_pages: u64,
    effective_spare: f64,
    waf: f64,
    predicted_waf: Option<f64>,
    waf_windows: Vec<f64>,
    steady: bool,
    host_pages: u64,
    trimmed_pages: u64,
    flash_pages: u64,
    erases: u64,
    erase_spread: EraseSpread,
}

impl From<SyntheticOutcome> for SyntheticResult {
    fn from(outcome: SyntheticOutcome) -> Self {
        Self {
            logical_pages: outcome.logical_pages,
            effective_spare: outcome.effective_spare,
            waf: outcome.waf,
            predicted_waf: outcome.predicted_waf,
            waf_windows: outcome.waf_windows,
            steady: outcome.steady,
            host_pages: outcome.host_pages,
            trimmed_pages: outcome.trimmed_pages,
            flash_pages: outcome.flash_pages,
            erases: outcome.erases,
            erase_spread: outcome.erase_spread,
        }
    }
}

impl CellResult {
    /// The figures for the table; none of a cell that failed.
    pub fn figures(&self) -> Option<Figures> {
        match self {
            Self::Replayed(replayed) => {
                let Replayed { outcome, discards_from, steady, lifetime_years, .. } = &**replayed;
                let figures = Figures::of_replay(outcome, *discards_from, *steady, *lifetime_years);
                Some(Figures {
                    drive_bytes: Some(replayed.drive_size),
                    synthetic_frees: Some(replayed.synthetic_frees),
                    ..figures
                })
            }
            Self::Synthetic(result) => Some(Figures {
                steady: Some(result.steady),
                erases: result.erases,
                waf: Some(result.waf),
                predicted_waf: result.predicted_waf,
                host_pages: result.host_pages,
                copied_pages: result.flash_pages.saturating_sub(result.host_pages),
                discards: result.trimmed_pages,
                ..Figures::default()
            }),
            Self::Failed(_) => None,
        }
    }
}

impl Cell {
    /// The hash of this cell, its version and the schema of its file: cells with the same hash have the same
    /// results.
    pub fn key(&self) -> String {
        let cell = serde_json::to_string(self).expect("a cell is plain data");
        format!("{:032x}", xxh3_128(format!("{CELL_SCHEMA}\n{VERSION}\n{cell}").as_bytes()))
    }

    /// The hash of the trace that it replays; `None` if it replays none.
    pub fn trace(&self) -> Option<&str> {
        match self {
            Self::Trace(cell) => Some(&cell.trace),
            Self::Synthetic(_) => None,
        }
    }

    /// The most memory that its flash model takes, with the trace if it replays one; `None` if no such model can be made.
    pub fn memory(&self, trace: Option<&SharedTrace>) -> Option<Bytes> {
        match self {
            Self::Trace(cell) => {
                let trace = trace?;
                let planned = plan(&cell.options(&trace.path), &trace.header, &trace.survey).ok()?;
                crate::simulate::memory(&cell.profile, planned.size).ok()
            }
            Self::Synthetic(options) => Some(options.memory()),
        }
    }

    /// Computes its results, of `trace` if it replays one. A reason that lies in the cell itself is a result; nothing
    /// is returned if `watch`, which is called with the number of events of each batch, returned false.
    pub fn run(&self, trace: Option<&SharedTrace>, watch: &dyn Fn(u64) -> bool) -> Option<CellResult> {
        match (self, trace) {
            (Self::Trace(cell), Some(trace)) => cell.run(trace, watch),
            (Self::Trace(_), None) => Some(CellResult::Failed("its trace was not given".to_owned())),
            (Self::Synthetic(options), _) => match options.run_while(&|| watch(0)) {
                Ok(outcome) => outcome.map(|outcome| CellResult::Synthetic(Box::new(outcome.into()))),
                Err(error) => Some(CellResult::Failed(chain(&error))),
            },
        }
    }
}

impl TraceCell {
    fn options(&self, path: &Path) -> SimulateOptions {
        SimulateOptions {
            trace: path.to_owned(),
            format: None,
            drives: vec![(Profile::clone(&self.profile), String::new())],
            policies: vec![self.policy],
            size: self.size,
            device: self.device.clone(),
            scale_to: self.scale_to,
            tiling: None,
            passes: self.passes,
            preconditioned: self.preconditioned,
            endurance: self.endurance,
            clocks: self.clocks,
            seed: self.seed,
            command: Vec::new(),
        }
    }

    fn run(&self, trace: &SharedTrace, watch: &dyn Fn(u64) -> bool) -> Option<CellResult> {
        let options = self.options(&trace.path);
        let plan = match plan(&options, &trace.header, &trace.survey) {
            Ok(plan) => plan,
            Err(error) => return Some(CellResult::Failed(chain(&error))),
        };
        let open = || trace.source();
        let finished =
            replay(&options, &plan, &self.profile, self.policy, &open, &mut |events| watch(events));
        match finished {
            Ok(finished) => Some(CellResult::Replayed(Box::new(Replayed {
                discards_from: finished.discards_from,
                synthetic_frees: trace.header.has_synthetic_frees(),
                steady: finished.steady,
                lifetime_years: finished.lifetime_years,
                drive_size: plan.size,
                outcome: finished.outcome,
            }))),
            Err(ReplayFailure::Replay(ReplayError::Stopped)) => None,
            Err(error) => Some(CellResult::Failed(chain(&error))),
        }
    }
}
