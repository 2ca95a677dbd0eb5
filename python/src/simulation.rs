//! Profiles, one simulation, and fits of discard costs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use trimtab_core::Bytes;
use trimtab_core::document::SimDocument;
use trimtab_core::document::bench::LatencyHistogram;
use trimtab_core::document::sim::{Clocks, Passes};
use trimtab_core::document::sweep::{Figures, figure_columns};
use trimtab_core::fit::{Cell, cost};
use trimtab_core::policy::SimPolicy;
use trimtab_core::profile::{Profile as DriveProfile, builtin};
use trimtab_core::table::Columns;
use trimtab_lab::drive_profile::load_aged;
use trimtab_lab::simulate::{SimulateOptions, simulate as run};

use crate::errors::{Error, raised};
use crate::signals::Signals;
use crate::table::Table;

/// A drive profile: how a drive behaves.
///
/// `name` is a built-in profile, or a file that ends in `.toml`.
#[pyclass(frozen, module = "trimtab")]
pub struct Profile {
    profile: DriveProfile,
    text: String,
}

#[pymethods]
impl Profile {
    #[new]
    #[pyo3(signature = (name, *, aged=false))]
    fn new(name: &str, aged: bool) -> PyResult<Self> {
        let (profile, text) = load_aged(name, aged).map_err(|error| raised(&error))?;
        Ok(Self { profile, text })
    }

    /// Reads a profile from the text of a TOML file.
    #[staticmethod]
    fn parse(text: &str) -> PyResult<Self> {
        let profile = DriveProfile::parse(text, "the profile").map_err(|error| raised(&error))?;
        Ok(Self { profile, text: text.to_owned() })
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.profile.name
    }

    /// The drive that it describes.
    #[getter]
    fn model(&self) -> &str {
        &self.profile.model
    }

    /// Over-provisioning, (physical - logical) / logical: 0.07 is 7 %.
    #[getter]
    fn over_provisioning(&self) -> f64 {
        self.profile.geometry.over_provisioning.value
    }

    /// Its text, in TOML.
    #[getter]
    fn toml(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("<trimtab.Profile {}>", self.profile.name)
    }
}

/// Returns the names of the built-in profiles.
#[pyfunction]
pub fn profiles() -> PyResult<Vec<String>> {
    let profiles = builtin().map_err(|error| raised(&error))?;
    Ok(profiles.into_iter().map(|profile| profile.name).collect())
}

/// A profile by name or file, or one that was loaded.
#[derive(FromPyObject)]
pub enum Drive<'py> {
    Loaded(PyRef<'py, Profile>),
    Named(String),
}

/// The results of a simulation: a row a drive and policy.
#[pyclass(frozen, module = "trimtab")]
pub struct Simulation {
    document: SimDocument,
}

impl Simulation {
    fn as_table(&self) -> Table {
        let rows: Vec<_> = self.document.runs.iter().map(|run| (run, Figures::of_run(run))).collect();
        let size = |name: &str| {
            let drive = self.document.drives.iter().find(|drive| drive.profile == name);
            drive.map(|drive| drive.size)
        };
        let rows: Vec<_> = rows
            .into_iter()
            .map(|(run, figures)| (run, Figures { drive_bytes: size(&run.profile), ..figures }))
            .collect();
        let columns = Columns::of(&rows)
            .text("profile", |(run, _)| Some(run.profile.clone()))
            .text("policy", |(run, _)| Some(run.policy.to_string()));
        Table::new(figure_columns(columns, |(_, figures)| Some(figures)).finish())
    }
}

#[pymethods]
impl Simulation {
    /// Returns the rows as an Arrow stream.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        slf: &Bound<'py, Self>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let table = Bound::new(slf.py(), slf.get().as_table())?;
        let stream = table.call_method1("__arrow_c_stream__", (requested_schema,))?;
        Ok(stream.cast_into::<PyCapsule>()?)
    }

    /// The rows as a table.
    #[getter]
    fn table(&self) -> Table {
        self.as_table()
    }

    /// Notes on the trace and its replay, each a sentence.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.document.notes.clone()
    }

    /// Returns the whole document as JSON, as `trimtab sim --json` writes it.
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string_pretty(&self.document).map_err(|error| Error::new_err(error.to_string()))
    }

    fn __len__(&self) -> usize {
        self.document.runs.len()
    }
}

/// Replays a trace on drives under discard policies, as `trimtab sim` does, on all processors.
///
/// Sizes are bytes, times of the results are nanoseconds of model time. The GIL is released meanwhile, and Ctrl-C
/// stops it.
#[pyfunction]
#[pyo3(signature = (trace, profile, policy, *, size=None, scale_to=None, device=None, passes=1, until_steady=false,
    state="used", think_scale=1.0, seed=0, endurance=None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub fn simulate(
    py: Python<'_>,
    trace: PathBuf,
    profile: Vec<Drive<'_>>,
    policy: Vec<String>,
    size: Option<u64>,
    scale_to: Option<u64>,
    device: Option<String>,
    passes: u32,
    until_steady: bool,
    state: &str,
    think_scale: f64,
    seed: u64,
    endurance: Option<u32>,
) -> PyResult<Simulation> {
    if !(0.0..=Clocks::MOST_THINK_SCALE).contains(&think_scale) {
        return Err(Error::new_err(format!("think_scale {think_scale} is not between 0 and {}", Clocks::MOST_THINK_SCALE)));
    }
    if passes == 0 {
        return Err(Error::new_err("passes must be 1 or more"));
    }
    if !["new", "used", "aged"].contains(&state) {
        return Err(Error::new_err(format!("state {state:?} is none of new, used, aged")));
    }
    let load = |drive: &Drive<'_>| match drive {
        Drive::Loaded(profile) => Ok((profile.profile.clone(), profile.text.clone())),
        Drive::Named(name) => load_aged(name, state == "aged").map_err(|error| raised(&error)),
    };
    let policies = policy.iter().map(|name| name.parse::<SimPolicy>().map_err(|error| raised(&error)));
    let options = SimulateOptions {
        trace,
        format: None,
        drives: profile.iter().map(load).collect::<PyResult<_>>()?,
        policies: policies.collect::<PyResult<_>>()?,
        size: size.map(Bytes),
        device,
        scale_to: scale_to.map(Bytes),
        passes: if until_steady { Passes::UntilSteady(100) } else { Passes::Count(passes) },
        preconditioned: state != "new",
        endurance,
        clocks: Clocks { think_scale, ..Clocks::default() },
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

/// Fits the cost of a discard to measured ones: `sizes` in bytes, `latencies` in seconds, one a discard.
///
/// Returns `command_us` and `per_gib_ms`, each with its value and 95 % interval as (value, low, high), the median
/// relative distance `residual`, and how many sizes (`cells`) there were. None of fewer than three sizes.
#[pyfunction]
pub fn fit_discards(sizes: Vec<u64>, latencies: Vec<f64>) -> PyResult<Option<BTreeMap<&'static str, Py<PyAny>>>> {
    if sizes.len() != latencies.len() {
        return Err(Error::new_err(format!(
            "{} sizes and {} latencies: each discard needs both",
            sizes.len(),
            latencies.len()
        )));
    }
    let mut by_size: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (size, latency) in sizes.into_iter().zip(latencies) {
        if !(latency.is_finite() && latency >= 0.0) {
            return Err(Error::new_err(format!("the latency {latency} is no time in seconds")));
        }
        by_size.entry(size).or_default().push(latency);
    }
    let histograms: Vec<_> = by_size
        .into_iter()
        .map(|(size, latencies)| (size, LatencyHistogram::of_seconds(&latencies)))
        .collect();
    let cells: Vec<_> = histograms
        .iter()
        .map(|(size, latencies)| Cell { size: Bytes(*size), commands: 1.0, latencies })
        .collect();
    let Some(cost) = cost(&cells) else { return Ok(None) };
    Python::attach(|py| {
        let estimate = |it: trimtab_core::document::bench::Estimate| {
            Ok::<_, PyErr>((it.value, it.low, it.high).into_pyobject(py)?.into_any().unbind())
        };
        Ok(Some(BTreeMap::from([
            ("command_us", estimate(cost.command_us)?),
            ("per_gib_ms", estimate(cost.per_gib_ms)?),
            ("residual", cost.residual.into_pyobject(py)?.into_any().unbind()),
            ("cells", cost.cells.into_pyobject(py)?.into_any().unbind()),
        ])))
    })
}
