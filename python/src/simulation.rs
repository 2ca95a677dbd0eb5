//! One simulation.

use std::collections::HashSet;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use trimtab_core::Bytes;
use trimtab_core::document::SimDocument;
use trimtab_core::document::sim::{Clocks, Passes, PolicyClock, SimRun};
use trimtab_core::document::sweep::{Figures, figure_columns};
use trimtab_core::policy::SimPolicy;
use trimtab_core::table::Columns;
use trimtab_sim::simulate::{SimulateOptions, simulate as run};
use trimtab_sim::sweep::DriveState;

use crate::errors::{Error, raised};
use crate::profile::Drive;
use crate::signals::Signals;
use crate::table::Table;

/// The results of a simulation: a row a drive and policy.
#[pyclass(frozen, module = "trimtab")]
pub struct Simulation {
    document: SimDocument,
}

#[pymethods]
impl Simulation {
    /// Returns the rows as an Arrow stream.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        self.table().__arrow_c_stream__(py, requested_schema)
    }

    /// The rows as a table. Columns whose names end in `_ns` are nanoseconds of model time, those in `_bytes` bytes.
    #[getter]
    fn table(&self) -> Table {
        let size = |name: &str| {
            let drive = self.document.drives.iter().find(|drive| drive.profile == name);
            drive.map(|drive| drive.size)
        };
        let synthetic_frees = Some(self.document.trace.header.has_synthetic_frees());
        let figures = |run: &SimRun| Figures {
            drive_bytes: size(&run.profile),
            synthetic_frees,
            ..Figures::of_run(run)
        };
        let rows: Vec<_> = self.document.runs.iter().map(|run| (run, figures(run))).collect();
        let columns = Columns::of(&rows)
            .text("profile", |(run, _)| Some(run.profile.clone()))
            .text("policy", |(run, _)| Some(run.policy.to_string()));
        Table::new(figure_columns(columns, |(_, figures)| Some(figures)).finish())
    }

    /// Notes on the trace and its replay, each a sentence.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.document.notes.clone()
    }

    /// Returns the whole document as JSON, as `trimtab sim --json` writes it.
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string_pretty(&self.document).map_err(|error| raised(&error))
    }

    fn __len__(&self) -> usize {
        self.document.runs.len()
    }

    fn __repr__(&self) -> String {
        format!("<trimtab.Simulation of {} runs>", self.document.runs.len())
    }
}

/// Replays a trace on drives under policies. `trimtab.simulate` documents it.
#[pyfunction]
#[pyo3(signature = (trace, profiles, policies, *, size, scale_to, device, passes, until_steady, state, think_scale,
    policy_clock, seed, endurance))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub fn simulate(
    py: Python<'_>,
    trace: PathBuf,
    profiles: Vec<Drive<'_>>,
    policies: Vec<String>,
    size: Option<u64>,
    scale_to: Option<u64>,
    device: Option<String>,
    passes: u32,
    until_steady: bool,
    state: &str,
    think_scale: f64,
    policy_clock: &str,
    seed: u64,
    endurance: Option<u32>,
) -> PyResult<Simulation> {
    if !(0.0..=Clocks::MOST_THINK_SCALE).contains(&think_scale) {
        let most = Clocks::MOST_THINK_SCALE;
        return Err(Error::new_err(format!("think_scale: {think_scale} is not between 0 and {most}")));
    }
    if passes == 0 {
        return Err(Error::new_err("passes: must be 1 or more"));
    }
    if until_steady && passes != 1 {
        return Err(Error::new_err("passes: cannot be used with until_steady"));
    }
    if endurance == Some(0) {
        return Err(Error::new_err("endurance: must be 1 or more"));
    }
    if size.is_some() && scale_to.is_some() {
        return Err(Error::new_err("scale_to: cannot be used with size"));
    }
    let state = one_of("state", state, DriveState::ALL, DriveState::name)?;
    let policy_clock = one_of("policy_clock", policy_clock, PolicyClock::ALL, PolicyClock::name)?;
    let policies = policies.iter().map(|name| name.parse::<SimPolicy>().map_err(|error| raised(&error)));
    let drives = profiles.iter().map(|drive| drive.load(state == DriveState::Aged));
    let drives = drives.collect::<PyResult<Vec<_>>>()?;
    let mut names = HashSet::new();
    if let Some((twice, _)) = drives.iter().find(|(profile, _)| !names.insert(&profile.name)) {
        let message = format!("two of the drives are called {}; each needs a name of its own", twice.name);
        return Err(Error::new_err(message));
    }
    let options = SimulateOptions {
        trace,
        format: None,
        drives,
        policies: policies.collect::<PyResult<_>>()?,
        size: size.map(Bytes),
        device,
        scale_to: scale_to.map(Bytes),
        tiling: None,
        passes: Passes::new(passes, until_steady),
        preconditioned: state != DriveState::New,
        endurance,
        clocks: Clocks { think_scale, policy: policy_clock },
        seed,
        command: vec!["trimtab.simulate".to_owned()],
    };
    let mut signals = Signals::default();
    let interrupt = signals.interrupt.clone();
    let outcome = py.detach(|| run(options, &interrupt, &mut signals, &mut |_| Ok(())));
    if let Some(error) = signals.raised() {
        return Err(error);
    }
    let document = outcome.map_err(|error| raised(&error))?;
    match document.stopped {
        Some(reason) => Err(Error::new_err(reason)),
        None => Ok(Simulation { document }),
    }
}

/// Returns the value that `name` stands for.
fn one_of<T: Copy, const N: usize>(
    key: &str,
    name: &str,
    all: [T; N],
    named: fn(T) -> &'static str,
) -> PyResult<T> {
    let found = all.into_iter().find(|value| named(*value) == name);
    found.ok_or_else(|| Error::new_err(format!("{key}: {name:?} is none of {}", all.map(named).join(", "))))
}
