//! From a grid to its cells.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use trimtab_core::distinct;
use trimtab_core::document::sim::{Clocks, Passes};
use trimtab_core::document::sweep::CellDescription;
use trimtab_core::policy::{PolicyKind, SimPolicy};
use trimtab_core::profile::{GcPolicy, Profile, ProfileError, Sourced};
use trimtab_ftl::Workload;
use trimtab_ftl::synthetic::SyntheticOptions;

use super::cell::{Cell, TraceCell};
use super::grid::{DriveState, Grid, GridError, USUAL_SEED, USUAL_SPARE, or};
use super::trace::content_hash;
use crate::drive_profile::{LoadProfileError, load_aged};

/// The most cells of a grid.
const MOST_CELLS: usize = 1_000_000;
/// The profile of a grid that names none.
const USUAL_PROFILE: &str = "samsung-870-evo";
/// The default seed of a replay, as in `trimtab sim`.
const USUAL_REPLAY_SEED: u64 = 0;

/// Why a sweep can't start.
#[derive(Debug, thiserror::Error)]
pub enum PlanSweepError {
    /// The grid is wrong.
    #[error(transparent)]
    Grid(#[from] GridError),
    /// A trace can't be read.
    #[error("cannot read the trace {}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A profile can't be used.
    #[error(transparent)]
    Profile(#[from] LoadProfileError),
    /// A profile is impossible with a value of the grid.
    #[error("over-provisioning {value} is impossible for {profile}")]
    OverProvisioning {
        /// The profile.
        profile: String,
        /// The value.
        value: f64,
        /// Why.
        source: Box<ProfileError>,
    },
    /// Two profiles have one name.
    #[error("two of the profiles are called {name}; each needs a name of its own")]
    SameName {
        /// The name.
        name: String,
    },
    /// It was stopped.
    #[error("stopped while the traces were read")]
    Stopped,
    /// There are too many.
    #[error("the grid has {cells} cells, more than {MOST_CELLS}; use several grids")]
    TooMany {
        /// The cells.
        cells: usize,
    },
}

/// A cell, and how the grid names it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedCell {
    /// The hash of the cell.
    pub key: String,
    /// The cell.
    pub cell: Cell,
    /// How the grid names it.
    pub description: CellDescription,
}

/// The cells of a sweep, in the order of its grid: those of a trace follow one another.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepPlan {
    /// The cells.
    pub cells: Vec<PlannedCell>,
    /// A file with each trace, by the hash of its content.
    pub traces: HashMap<String, PathBuf>,
}

/// A trace of the grid.
struct Trace {
    hash: String,
    name: String,
}

/// A drive of the grid.
struct Drive {
    profile: Arc<Profile>,
    state: DriveState,
}

impl SweepPlan {
    /// The cells of `grid`. Reads all its traces once, for the hash of their content, and its profiles. `goes_on` is called
    /// again and again meanwhile, and ends the work by returning false.
    ///
    /// # Errors
    /// [`PlanSweepError`]: whatever is missing is found before any work.
    pub fn of(grid: &Grid, goes_on: &mut dyn FnMut() -> bool) -> Result<Self, PlanSweepError> {
        // All files are opened before the first is read, which may take long.
        for path in &grid.traces {
            let failed = |source| PlanSweepError::Trace { path: path.clone(), source };
            let file = File::open(path).map_err(failed)?;
            if file.metadata().map_err(failed)?.is_dir() {
                return Err(failed(io::ErrorKind::IsADirectory.into()));
            }
        }
        let drives = drives(grid)?;
        let cells = grid.traces.len() * drives.len() * policies(grid).len();
        let cells = cells * or(&grid.think_scale, 1.0).len() + grid.workloads.len() * synthetic(grid).len();
        let cells = cells.saturating_mul(grid.seeds.len().max(1));
        if cells > MOST_CELLS {
            return Err(PlanSweepError::TooMany { cells });
        }
        let mut plan = Self { cells: Vec::with_capacity(cells), traces: HashMap::new() };
        let names = names(&grid.traces);
        for (path, name) in grid.traces.iter().zip(names) {
            let failed = |source| PlanSweepError::Trace { path: path.clone(), source };
            let hash = content_hash(path, goes_on).map_err(failed)?.ok_or(PlanSweepError::Stopped)?;
            if plan.traces.contains_key(&hash) {
                // Given twice: its cells would be the same.
                continue;
            }
            plan.traces.insert(hash.clone(), path.clone());
            plan.add_trace(grid, &Trace { hash, name }, &drives);
        }
        for workload in distinct(grid.workloads.iter().copied()) {
            plan.add_workload(grid, workload);
        }
        Ok(plan)
    }

    fn add_trace(&mut self, grid: &Grid, trace: &Trace, drives: &[Drive]) {
        let passes = Passes::new(grid.passes.unwrap_or(1), grid.until_steady);
        for drive in drives {
            for think_scale in or(&grid.think_scale, 1.0) {
                for policy in policies(grid) {
                    for seed in or(&grid.seeds, USUAL_REPLAY_SEED) {
                        let cell = TraceCell {
                            trace: trace.hash.clone(),
                            device: grid.device.clone(),
                            profile: drive.profile.clone(),
                            policy,
                            preconditioned: drive.state != DriveState::New,
                            size: grid.size,
                            scale_to: grid.scale_to,
                            passes,
                            endurance: grid.endurance,
                            clocks: Clocks { think_scale, policy: grid.policy_clock },
                            seed,
                        };
                        let description = CellDescription {
                            trace: Some(trace.name.clone()),
                            trace_hash: Some(trace.hash.clone()),
                            profile: Some(drive.profile.name.clone()),
                            policy: Some(policy),
                            over_provisioning: Some(drive.profile.geometry.over_provisioning.value),
                            think_scale: Some(think_scale),
                            policy_clock: Some(grid.policy_clock),
                            state: Some(drive.state.name().to_owned()),
                            seed,
                            ..CellDescription::default()
                        };
                        self.add(Cell::Trace(Box::new(cell)), description);
                    }
                }
            }
        }
    }

    fn add_workload(&mut self, grid: &Grid, workload: Workload) {
        for (spare, gc, streams) in synthetic(grid) {
            for seed in or(&grid.seeds, USUAL_SEED) {
                let options = SyntheticOptions { gc, streams, seed, ..grid.synthetic(workload, spare) };
                let description = CellDescription {
                    workload: Some(workload.to_string()),
                    gc: Some(gc.to_string()),
                    streams: Some(streams),
                    over_provisioning: Some(spare / (1.0 - spare)),
                    seed,
                    ..CellDescription::default()
                };
                self.add(Cell::Synthetic(options), description);
            }
        }
    }

    fn add(&mut self, cell: Cell, description: CellDescription) {
        self.cells.push(PlannedCell { key: cell.key(), cell, description });
    }
}

fn policies(grid: &Grid) -> Vec<SimPolicy> {
    let kinds = [PolicyKind::None, PolicyKind::Online, PolicyKind::Batched, PolicyKind::Smart];
    let mut all: Vec<_> = kinds.map(SimPolicy::from).into();
    all.push(SimPolicy::Ideal);
    if grid.policies.is_empty() { all } else { distinct(grid.policies.iter().copied()) }
}

/// The combinations of spare factor, garbage collector and streams.
fn synthetic(grid: &Grid) -> Vec<(f64, GcPolicy, u32)> {
    let mut all = Vec::new();
    for spare in or(&grid.spare, USUAL_SPARE) {
        for gc in or(&grid.gc, GcPolicy::Greedy) {
            all.extend(or(&grid.streams, 1).into_iter().map(|streams| (spare, gc, streams)));
        }
    }
    all
}

/// Every profile in every state with every over-provisioning.
fn drives(grid: &Grid) -> Result<Vec<Drive>, PlanSweepError> {
    if grid.traces.is_empty() {
        return Ok(Vec::new());
    }
    let usual = [USUAL_PROFILE.to_owned()];
    let profiles = if grid.profiles.is_empty() { &usual[..] } else { &grid.profiles };
    let (mut drives, mut names) = (Vec::new(), Vec::new());
    for name in profiles {
        for (place, state) in or(&grid.states, DriveState::Used).into_iter().enumerate() {
            let (profile, _) = load_aged(name, state == DriveState::Aged)?;
            if place == 0 {
                if names.contains(&profile.name) {
                    return Err(PlanSweepError::SameName { name: profile.name });
                }
                names.push(profile.name.clone());
            }
            if grid.over_provisioning.is_empty() {
                drives.push(Drive { profile: Arc::new(profile), state });
                continue;
            }
            for value in distinct(grid.over_provisioning.iter().copied()) {
                drives.push(Drive { profile: Arc::new(provisioned(&profile, value)?), state });
            }
        }
    }
    Ok(drives)
}

/// The profile with another over-provisioning.
fn provisioned(profile: &Profile, value: f64) -> Result<Profile, PlanSweepError> {
    let mut profile = profile.clone();
    profile.geometry.over_provisioning = Sourced { value, source: "swept".to_owned() };
    let failed = |source| PlanSweepError::OverProvisioning {
        profile: profile.name.clone(),
        value,
        source: Box::new(source),
    };
    profile.check(&profile.name).map_err(failed)?;
    Ok(profile)
}

/// The names of the traces: those of their files, or the whole paths where two files have one name.
fn names(paths: &[PathBuf]) -> Vec<String> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_alone = |path: &Path| paths.iter().filter(|other| name(other) == name(path)).count() == 1;
    let shown = |path: &PathBuf| if is_alone(path) { name(path) } else { path.display().to_string() };
    paths.iter().map(shown).collect()
}
