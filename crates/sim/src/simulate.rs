//! Replays a recorded workload on modelled drives under each discard policy.

mod plan;
mod replay;
mod tiles;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use trimtab_core::Bytes;
use trimtab_core::document::sim::{Clocks, Passes, SIM_SCHEMA, SimDocument, SimRun, Tiling};
use trimtab_core::error::chain;
use trimtab_core::policy::SimPolicy;
use trimtab_core::profile::Profile;
use trimtab_ftl::replay::TraceSurvey;
use trimtab_host::PROCFS;
use trimtab_host::environment::{EnvironmentError, environment};
use trimtab_trace::{Columns, Format, TraceError, TraceReader};

pub use plan::PlanError;
pub(crate) use plan::{Plan, memory, plan};
pub(crate) use replay::{ReplayFailure, replay};
use trimtab_core::interrupt::{Interrupt, Interrupted};

/// The program and erase cycles that a block is assumed to last if none are stated.
pub const ASSUMED_ENDURANCE: u32 = 3000;
/// How often progress is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The options of a simulation.
#[derive(Debug, Clone)]
pub struct SimulateOptions {
    /// The trace.
    pub trace: PathBuf,
    /// Its format; none to detect it from the file.
    pub format: Option<Format>,
    /// The drives, each with its profile as text.
    pub drives: Vec<(Profile, String)>,
    /// The policies; if empty, all that this trace has the events for.
    pub policies: Vec<SimPolicy>,
    /// The drives' size; none for the traced device's.
    pub size: Option<Bytes>,
    /// The device of the trace; none for the only one that is written.
    pub device: Option<String>,
    /// Scale addresses to drives of this size.
    pub scale_to: Option<Bytes>,
    /// Replay copies of the trace side by side; none for one.
    pub tiling: Option<Tiling>,
    /// How often the trace is replayed.
    pub passes: Passes,
    /// Whether the drives were written before.
    pub preconditioned: bool,
    /// The program and erase cycles that a block lasts; none for those of each profile, or [`ASSUMED_ENDURANCE`]
    /// where it has none.
    pub endurance: Option<u32>,
    /// How the host and the policies go by time.
    pub clocks: Clocks,
    /// The seed of the drives' draws: where an aged drive was written, how long blocks last, and the victims of
    /// garbage collection that draws them.
    pub seed: u64,
    /// The command line, for the document.
    pub command: Vec<String>,
}

/// Why a simulation did not start or could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The trace can't be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The options do not suit this trace.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The machine can't be examined.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The user asked to stop before anything was replayed.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// The document could not be saved.
    #[error("cannot save the results")]
    Save(#[from] io::Error),
}

/// Receives the progress of a simulation; the calls must return at once.
pub trait SimulateProgress {
    /// The trace is being read for the first time: `events` events so far.
    fn surveying(&mut self, events: u64);
    /// `done` of `replays` replays have ended, and `replayed` of all `events` events are replayed. If passes
    /// repeat until the drive is steady, `events` is the lowest possible number.
    fn replaying(&mut self, done: usize, replays: usize, replayed: u64, events: u64);
}

/// One replay to do.
struct Job<'a> {
    place: usize,
    profile: &'a Profile,
    policy: SimPolicy,
}

/// Replays the trace on every drive under every policy, as many at a time as there are processors,
/// and returns the document. `save` is called with the document so far before the first replay and
/// after each.
///
/// A replay that fails or is interrupted ends the simulation: the document then says so in `stopped`
/// and holds the replays that were finished.
///
/// # Errors
/// Errors before the first replay starts, and those of `save`.
pub fn simulate(
    options: SimulateOptions,
    interrupt: &Interrupt,
    progress: &mut dyn SimulateProgress,
    save: &mut dyn FnMut(&SimDocument) -> io::Result<()>,
) -> Result<SimDocument, SimulateError> {
    let one_copy = one_copy(&options, interrupt, progress)?;
    let mut source = open(&options)?;
    let mut events = 0;
    let survey = TraceSurvey::of(source.as_mut(), &mut |read| {
        events += read;
        progress.surveying(events);
        !interrupt.is_set()
    })?;
    interrupt.check()?;
    let plan = plan(&options, source.header(), &survey)?;
    drop(source);
    let mut document = SimDocument {
        schema: SIM_SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: options.command.clone(),
        started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        environment: environment(Path::new(PROCFS))?,
        trace: plan.trace.clone(),
        replay: plan.description.clone(),
        drives: plan.drives.clone(),
        policies: plan.policies.clone(),
        notes: plan.notes.clone(),
        runs: Vec::new(),
        one_copy,
        stopped: Some(Interrupted.to_string()),
    };
    save(&document)?;
    let failure = run_all(&options, &plan, events, interrupt, progress, &mut |runs| {
        document.runs = runs;
        save(&document)
    })?;
    document.stopped = failure;
    save(&document)?;
    Ok(document)
}

/// Replays the trace alone, if several copies of it are asked for: how many write at once changes which policy is best. None if
/// its device is too small for one of the drives.
fn one_copy(
    options: &SimulateOptions,
    interrupt: &Interrupt,
    progress: &mut dyn SimulateProgress,
) -> Result<Option<Box<SimDocument>>, SimulateError> {
    if options.tiling.is_none_or(|tiling| tiling.copies == 1) {
        return Ok(None);
    }
    let alone = SimulateOptions { tiling: None, ..options.clone() };
    match simulate(alone, interrupt, progress, &mut |_| Ok(())) {
        Ok(document) => Ok(Some(Box::new(document))),
        Err(SimulateError::Plan(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn open(options: &SimulateOptions) -> Result<Box<dyn TraceReader + Send>, TraceError> {
    trimtab_trace::open(&options.trace, options.format, Columns::Replay)
}

/// Does all replays, and hands what is finished, in order, to `finished`. Returns why not all were.
fn run_all(
    options: &SimulateOptions,
    plan: &Plan,
    events: u64,
    interrupt: &Interrupt,
    progress: &mut dyn SimulateProgress,
    finished: &mut dyn FnMut(Vec<SimRun>) -> io::Result<()>,
) -> io::Result<Option<String>> {
    let pairs =
        options.drives.iter().flat_map(|(profile, _)| plan.policies.iter().map(move |it| (profile, *it)));
    let jobs = pairs.enumerate().map(|(place, (profile, policy))| Job { place, profile, policy });
    let replays = options.drives.len() * plan.policies.len();
    let copies = u64::from(options.tiling.map_or(1, |tiling| tiling.copies));
    let all_events = events * copies * u64::from(plan.least_passes()) * replays as u64;
    let (jobs, replayed, failed) = (Mutex::new(jobs), AtomicU64::new(0), AtomicBool::new(false));
    let goes_on = || !interrupt.is_set() && !failed.load(Ordering::Relaxed);
    let (sender, receiver) = mpsc::channel();
    let mut runs: Vec<Option<SimRun>> = vec![None; replays];
    let mut failure = None;
    thread::scope(|scope| {
        for _ in 0..plan.workers.min(replays) {
            let (sender, jobs, replayed, goes_on) = (sender.clone(), &jobs, &replayed, &goes_on);
            scope.spawn(move || {
                let next = || jobs.lock().ok()?.next();
                while let Some(job) = next().filter(|_| goes_on()) {
                    let started = Instant::now();
                    let run =
                        replay(options, plan, job.profile, job.policy, &|| open(options), &mut |read| {
                            replayed.fetch_add(read, Ordering::Relaxed);
                            goes_on()
                        });
                    let run = run.map(|finished| SimRun {
                        profile: job.profile.name.clone(),
                        policy: job.policy,
                        discards_from: finished.discards_from,
                        steady: finished.steady,
                        lifetime_years: finished.lifetime_years,
                        endurance_cycles: finished.endurance_cycles,
                        wall_s: started.elapsed().as_secs_f64(),
                        outcome: finished.outcome,
                    });
                    if sender.send((job.place, run)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        loop {
            let kept = match receiver.recv_timeout(PROGRESS_INTERVAL) {
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => Ok(()),
                Ok((place, Ok(run))) => {
                    runs[place] = Some(run);
                    finished(runs.iter().flatten().cloned().collect())
                }
                Ok((_, Err(error))) => {
                    failed.store(true, Ordering::Relaxed);
                    failure.get_or_insert_with(|| chain(&error));
                    Ok(())
                }
            };
            if kept.is_err() {
                failed.store(true, Ordering::Relaxed);
                return kept;
            }
            let done = runs.iter().flatten().count();
            progress.replaying(done, replays, replayed.load(Ordering::Relaxed), all_events);
        }
    })?;
    let interrupted = interrupt.is_set() && runs.iter().any(Option::is_none);
    Ok(if interrupted { Some(Interrupted.to_string()) } else { failure })
}
