//! Sweeps: in this process, or cell by cell for workers elsewhere.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::{Deserialize, Serialize};
use trimtab_core::Bytes;
use trimtab_core::document::sweep::columns;
use trimtab_host::environment::available_memory;
use trimtab_host::{CGROUPS, PROCFS};
use trimtab_sim::sweep::{
    Cell, CellFile, CellResult, Grid, Shard, Store, Stored, SweepOptions, SweepPlan, Traces, VERSION,
    content_hash, document, parquet, sweep,
};

use crate::errors::{Error, raised};
use crate::signals::Signals;
use crate::table::Table;

/// The most memory that a worker's trace may take, and the share that it may take of the available memory: a machine has several
/// workers.
const MOST_TRACE_MEMORY: Bytes = Bytes(4 << 30);
const TRACE_SHARE: u64 = 8;
/// The traces that this process has read.
static TRACES: LazyLock<Traces> = LazyLock::new(Traces::default);

/// The cells of a grid: its traces and profiles are read and checked.
#[pyclass(frozen, module = "trimtab")]
pub struct Plan {
    plan: SweepPlan,
    directory: PathBuf,
    results: Mutex<HashMap<String, CellResult>>,
}

/// The place in the plan of a cell without results, its key, the hash of its trace, and the file of that.
type Missing = (usize, String, Option<String>, Option<PathBuf>);

/// All that a worker needs to compute a cell.
#[derive(Serialize, Deserialize)]
struct Task {
    version: String,
    cell: Cell,
}

#[pymethods]
impl Plan {
    /// Plans the grid in `json`; results are kept in `directory`.
    #[new]
    fn new(py: Python<'_>, json: &str, directory: PathBuf) -> PyResult<Self> {
        let grid = Grid::from_json(json, "the grid").map_err(|error| raised(&error))?;
        Self::planned(py, &grid, "the grid", directory)
    }

    /// Plans the grid in the TOML file `path`.
    #[staticmethod]
    fn of_file(py: Python<'_>, path: PathBuf, directory: PathBuf) -> PyResult<Self> {
        let grid = Grid::read(&path).map_err(|error| raised(&error))?;
        Self::planned(py, &grid, &path.display().to_string(), directory)
    }

    /// Computes what is missing in this process, on all processors.
    #[pyo3(signature = (shard=None, jobs=None))]
    fn run(&self, py: Python<'_>, shard: Option<&str>, jobs: Option<usize>) -> PyResult<Table> {
        let shard = shard.map(str::parse::<Shard>).transpose().map_err(|error| raised(&error))?;
        let options = SweepOptions {
            directory: self.directory.clone(),
            shard,
            workers: jobs.map(|jobs| jobs.max(1)),
            command: vec!["trimtab.sweep".to_owned()],
        };
        let mut signals = Signals::default();
        let interrupt = signals.interrupt.clone();
        let outcome = py.detach(|| sweep(&self.plan, &options, &interrupt, &mut signals));
        if let Some(error) = signals.raised() {
            return Err(error);
        }
        Ok(Table::new(columns(&outcome.map_err(|error| raised(&error))?.rows)))
    }

    /// Returns the cells that have no results, or failed before.
    fn missing(&self) -> PyResult<Vec<Missing>> {
        let store = Store::open(&self.directory).map_err(|error| raised(&error))?;
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut missing, mut seen) = (Vec::new(), std::collections::HashSet::new());
        let cells = self.plan.cells.iter().enumerate();
        for (place, planned) in cells.filter(|(_, planned)| seen.insert(planned.key.as_str())) {
            match store.read(&planned.key)? {
                Stored::Done(result) if !matches!(*result, CellResult::Failed(_)) => {
                    results.insert(planned.key.clone(), *result);
                }
                Stored::Done(_) | Stored::Damaged | Stored::Missing => {
                    let hash = planned.cell.trace().map(str::to_owned);
                    let path = hash.as_ref().and_then(|hash| self.plan.traces.get(hash)).cloned();
                    missing.push((place, planned.key.clone(), hash, path));
                }
            }
        }
        Ok(missing)
    }

    /// Returns the task of the cell at `place` in the plan, for `run_cell`.
    fn task(&self, place: usize) -> PyResult<String> {
        let planned = self.plan.cells.get(place);
        let planned = planned.ok_or_else(|| Error::new_err(format!("the plan has no cell {place}")))?;
        let task = Task { version: VERSION.to_owned(), cell: planned.cell.clone() };
        serde_json::to_string(&task).map_err(|error| Error::new_err(error.to_string()))
    }

    /// Keeps the results of a cell, as `run_cell` returned them.
    fn store(&self, key: &str, bytes: &[u8]) -> PyResult<()> {
        let result = CellFile::decode(key, bytes).ok_or_else(|| {
            Error::new_err(format!("the results of cell {key} are damaged or of another version"))
        })?;
        let store = Store::open(&self.directory).map_err(|error| raised(&error))?;
        store.write(key, bytes).map_err(|error| raised(&error))?;
        self.results.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), result);
        Ok(())
    }

    /// Writes `sweep.parquet`, and returns the table of the cells that have results.
    fn table(&self) -> PyResult<Table> {
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let columns = columns(&document(&self.plan, &results, &[], None).rows);
        let bytes = parquet(&columns).map_err(|error| raised(&error))?;
        let path = self.directory.join("sweep.parquet");
        let output = trimtab_host::file::Output::open(&path).map_err(|error| raised(&error))?;
        output.replace(&bytes).map_err(|error| raised(&error))?;
        Ok(Table::new(columns))
    }

    fn __len__(&self) -> usize {
        self.plan.cells.len()
    }
}

impl Plan {
    fn planned(py: Python<'_>, grid: &Grid, origin: &str, directory: PathBuf) -> PyResult<Self> {
        grid.check(origin).map_err(|error| raised(&error))?;
        let mut signals = Signals::default();
        let plan = py.detach(|| SweepPlan::of(grid, &mut || signals.goes_on()));
        if let Some(error) = signals.raised() {
            return Err(error);
        }
        let plan = plan.map_err(|error| raised(&error))?;
        Ok(Self { plan, directory, results: Mutex::default() })
    }
}

/// Computes one cell, with its trace at `path`, and returns the content of its file. Errors name the trace `shown`.
/// The process keeps the last trace that it read in memory.
#[pyfunction]
#[pyo3(signature = (task, path=None, shown=None))]
pub fn run_cell<'py>(
    py: Python<'py>,
    task: &str,
    path: Option<PathBuf>,
    shown: Option<&str>,
) -> PyResult<Bound<'py, PyBytes>> {
    let version: serde_json::Value =
        serde_json::from_str(task).map_err(|error| Error::new_err(format!("this is no task: {error}")))?;
    let version = version.get("version").and_then(serde_json::Value::as_str).unwrap_or("an unknown one");
    if version != VERSION {
        return Err(Error::new_err(format!(
            "version mismatch: the client has trimtab {version}, this worker has {VERSION}"
        )));
    }
    let task: Task = serde_json::from_str(task).map_err(|error| Error::new_err(error.to_string()))?;
    let result = py.detach(|| run_task(&task, path.as_deref()));
    let result = match (result, &path, shown) {
        (CellResult::Failed(reason), Some(path), Some(shown)) => {
            CellResult::Failed(reason.replace(&path.display().to_string(), shown))
        }
        (result, _, _) => result,
    };
    Ok(PyBytes::new(py, &CellFile::encode(&task.cell, result)))
}

fn run_task(task: &Task, path: Option<&Path>) -> CellResult {
    let stopped = || CellResult::Failed("stopped".to_owned());
    let (Some(hash), Some(path)) = (task.cell.trace(), path) else {
        return task.cell.run(None, &|_| true).unwrap_or_else(stopped);
    };
    TRACES.keep_only(hash);
    let available = available_memory(Path::new(PROCFS), Path::new(CGROUPS)).unwrap_or_default();
    let memory = MOST_TRACE_MEMORY.min(Bytes(available.0 / TRACE_SHARE));
    match TRACES.get(hash, path, memory, &mut |_| true) {
        Some(Ok(trace)) => task.cell.run(Some(&trace), &|_| true).unwrap_or_else(stopped),
        Some(Err(reason)) => {
            TRACES.forget(hash);
            CellResult::Failed(reason)
        }
        None => stopped(),
    }
}

/// Returns the hash of a trace file's content, by which sweeps name it.
#[pyfunction]
pub fn trace_hash(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    let hash = py.detach(|| content_hash(&path, &mut || true));
    hash.map(Option::unwrap_or_default)
        .map_err(|error| Error::new_err(format!("cannot read the trace {}: {error}", path.display())))
}
