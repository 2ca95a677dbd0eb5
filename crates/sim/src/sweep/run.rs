//! Computes the cells that are missing.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use trimtab_core::Bytes;
use trimtab_core::document::sweep::{SWEEP_SCHEMA, SweepDocument, columns};
use trimtab_core::interrupt::{Interrupt, Interrupted};
use trimtab_host::environment::{EnvironmentError, available_memory, processors};
use trimtab_host::file::{Output, OutputError};
use trimtab_host::{CGROUPS, PROCFS};

use super::cell::{CellResult, VERSION};
use super::memory::Memory;
use super::plan::{PlannedCell, SweepPlan};
use super::shard::Shard;
use super::store::{CellFile, Store, Stored};
use super::table::{parquet, row, set_intervals};
use super::trace::Traces;

/// How often progress is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// The share of the available memory that one trace may take, and that the flash models may take together.
const TRACE_SHARE: u64 = 4;
const MODELS_SHARE: u64 = 2;

/// The options of a sweep.
#[derive(Debug, Clone)]
pub struct SweepOptions {
    /// The directory of the results.
    pub directory: PathBuf,
    /// The part to compute; none for all.
    pub shard: Option<Shard>,
    /// Cells at a time; none for one a processor.
    pub workers: Option<usize>,
    /// The command line, for the document.
    pub command: Vec<String>,
}

/// Why a sweep did not start or could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// A result can't be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A result can't be read.
    #[error("cannot read the results in {}", directory.display())]
    Read {
        /// The directory.
        directory: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The table can't be encoded.
    #[error("cannot write the table")]
    Table(#[from] parquet::errors::ParquetError),
    /// The machine can't be examined.
    #[error(transparent)]
    Machine(#[from] EnvironmentError),
}

/// How far a sweep is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SweepState {
    /// Cells to compute, with equal ones counted once.
    pub cells: usize,
    /// Of these, the ones that an earlier sweep had computed.
    pub found: usize,
    /// Of these, the ones whose file was damaged.
    pub damaged: usize,
    /// The ones that were computed now.
    pub computed: usize,
    /// Of these, the ones that failed.
    pub failed: usize,
    /// Events replayed so far.
    pub events: u64,
    /// The time left, in wall time; none while that is unknown.
    pub left: Option<Duration>,
}

/// Receives the progress of a sweep; the call must return at once.
pub trait SweepProgress {
    /// The sweep is as far as `state` says.
    fn at(&mut self, state: &SweepState);
}

/// A message of a worker.
type Report = (usize, CellResult, Result<(), OutputError>);

/// Computes the cells of `plan` that are in the shard and have no results in the directory, as many at a time as
/// there are processors and memory for, and returns the document. A cell that fails is recorded with its error, and
/// is tried again by the next sweep. Every finished cell has its file at once, so an interrupt loses nothing but the
/// cells in flight. The table is written as `sweep.parquet` once the directory has all cells of the grid; without a
/// shard, also when the sweep was interrupted. The document of a shard has its own cells, with intervals over the seeds among these.
///
/// # Errors
/// [`SweepError`].
pub fn sweep(
    plan: &SweepPlan,
    options: &SweepOptions,
    interrupt: &Interrupt,
    progress: &mut dyn SweepProgress,
) -> Result<SweepDocument, SweepError> {
    let store = Store::open(&options.directory)?;
    let table = Output::open(&options.directory.join("sweep.parquet"))?;
    let wanted = distinct(plan, options.shard);
    let mut results = HashMap::new();
    let mut state = SweepState {
        cells: wanted.len(),
        found: 0,
        damaged: 0,
        computed: 0,
        failed: 0,
        events: 0,
        left: None,
    };
    let mut missing = Vec::new();
    for cell in wanted {
        match read(&store, options, &cell.key)? {
            Stored::Done(result) if !matches!(*result, CellResult::Failed(_)) => {
                state.found += 1;
                results.insert(cell.key.clone(), *result);
                continue;
            }
            Stored::Damaged => state.damaged += 1,
            Stored::Done(_) | Stored::Missing => {}
        }
        missing.push(cell);
    }
    progress.at(&state);
    let workers = options.workers.unwrap_or_else(processors);
    let work = Work::new(plan, &missing, available_memory(Path::new(PROCFS), Path::new(CGROUPS))?, interrupt);
    let started = Instant::now();
    let (sender, receiver) = mpsc::channel();
    let failure = thread::scope(|scope| {
        for _ in 0..workers.min(missing.len()) {
            let (sender, work, store) = (sender.clone(), &work, &store);
            scope.spawn(move || work.run(store, &sender));
        }
        drop(sender);
        let mut failure = None;
        loop {
            match receiver.recv_timeout(PROGRESS_INTERVAL) {
                Err(RecvTimeoutError::Disconnected) => return failure,
                Err(RecvTimeoutError::Timeout) => {}
                Ok((place, result, written)) => {
                    state.computed += 1;
                    state.failed += usize::from(matches!(result, CellResult::Failed(_)));
                    results.insert(missing[place].key.clone(), result);
                    if let Err(error) = written {
                        work.stopped.store(true, Ordering::Relaxed);
                        failure.get_or_insert(error);
                    }
                }
            }
            state.events = work.events.load(Ordering::Relaxed);
            let left = (missing.len() - state.computed) as u32;
            state.left = (state.computed > 0).then(|| started.elapsed() / state.computed as u32 * left);
            progress.at(&state);
        }
    });
    if let Some(error) = failure {
        return Err(error.into());
    }
    let stopped = (state.found + state.computed < state.cells).then(|| Interrupted.to_string());
    // The others' cells are part of the table if they are there by now.
    if options.shard.is_some() {
        for cell in distinct(plan, None) {
            if !results.contains_key(&cell.key)
                && let Stored::Done(result) = read(&store, options, &cell.key)?
            {
                results.insert(cell.key.clone(), *result);
            }
        }
    }
    let mut document = document(plan, &results, &options.command, stopped);
    if options.shard.is_none() || document.rows.len() == plan.cells.len() {
        table.replace(&parquet(&columns(&document.rows))?)?;
    }
    if let Some(shard) = options.shard {
        let places: HashSet<_> = distinct(plan, Some(shard)).iter().map(|cell| cell.key.clone()).collect();
        document.rows.retain(|row| places.contains(&row.key));
        // Which of the others' cells were there is chance.
        set_intervals(&mut document.rows);
    }
    Ok(document)
}

/// The document of the cells that have results.
pub fn document(
    plan: &SweepPlan,
    results: &HashMap<String, CellResult>,
    command: &[String],
    stopped: Option<String>,
) -> SweepDocument {
    let rows = plan.cells.iter().filter_map(|cell| Some(row(cell, results.get(&cell.key)?)));
    let mut rows: Vec<_> = rows.collect();
    set_intervals(&mut rows);
    SweepDocument {
        schema: SWEEP_SCHEMA.to_owned(),
        version: VERSION.to_owned(),
        command: command.to_vec(),
        cells: plan.cells.len(),
        rows,
        stopped,
    }
}

/// The cells in the shard, equal ones once.
fn distinct(plan: &SweepPlan, shard: Option<Shard>) -> Vec<&PlannedCell> {
    let mut seen = HashSet::new();
    let cells = plan.cells.iter().filter(|cell| seen.insert(cell.key.as_str()));
    let in_shard = |place| shard.is_none_or(|shard| shard.has(place));
    cells.enumerate().filter(|(place, _)| in_shard(*place)).map(|(_, cell)| cell).collect()
}

fn read(store: &Store, options: &SweepOptions, key: &str) -> Result<Stored, SweepError> {
    store.read(key).map_err(|source| SweepError::Read { directory: options.directory.clone(), source })
}

/// The cells to compute, and what the workers share.
struct Work<'a> {
    plan: &'a SweepPlan,
    cells: &'a [&'a PlannedCell],
    next: AtomicUsize,
    traces: Traces,
    /// Cells of each trace that are not finished.
    left: HashMap<&'a str, AtomicUsize>,
    trace_memory: Bytes,
    memory: Memory,
    events: AtomicU64,
    stopped: AtomicBool,
    interrupt: &'a Interrupt,
}

impl<'a> Work<'a> {
    fn new(
        plan: &'a SweepPlan,
        cells: &'a [&'a PlannedCell],
        available: Bytes,
        interrupt: &'a Interrupt,
    ) -> Self {
        let mut left: HashMap<_, AtomicUsize> = HashMap::new();
        for trace in cells.iter().filter_map(|cell| cell.cell.trace()) {
            *left.entry(trace).or_default().get_mut() += 1;
        }
        Self {
            plan,
            cells,
            next: AtomicUsize::new(0),
            traces: Traces::default(),
            left,
            trace_memory: Bytes(available.0 / TRACE_SHARE),
            memory: Memory::new(Bytes(available.0 / MODELS_SHARE)),
            events: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            interrupt,
        }
    }

    fn goes_on(&self) -> bool {
        !self.interrupt.is_set() && !self.stopped.load(Ordering::Relaxed)
    }

    /// Computes one cell after the other, and writes their files, until there are no more.
    fn run(&self, store: &Store, sender: &Sender<Report>) {
        while self.goes_on() {
            let place = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(planned) = self.cells.get(place) else { return };
            let Some(result) = self.compute(planned) else { return };
            let written = store.write(&planned.key, &CellFile::encode(&planned.cell, result.clone()));
            if sender.send((place, result, written)).is_err() {
                return;
            }
        }
    }

    /// The results of a cell; `None` if the sweep is to stop.
    fn compute(&self, planned: &PlannedCell) -> Option<CellResult> {
        let watch = |events| {
            self.events.fetch_add(events, Ordering::Relaxed);
            self.goes_on()
        };
        let Some(hash) = planned.cell.trace() else {
            let _taken = self.memory.take(planned.cell.memory(None).unwrap_or_default());
            return planned.cell.run(None, &watch);
        };
        let path = self.plan.traces.get(hash).map_or(Path::new(""), PathBuf::as_path);
        let result = match self.traces.get(hash, path, self.trace_memory, &mut |_| self.goes_on())? {
            Ok(trace) => {
                let needed = planned.cell.memory(Some(&trace)).unwrap_or_default();
                let _taken = self.memory.take(needed);
                planned.cell.run(Some(&trace), &watch)
            }
            Err(reason) => Some(CellResult::Failed(reason)),
        };
        if let Some(left) = self.left.get(hash)
            && left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            self.traces.forget(hash);
        }
        result
    }
}
