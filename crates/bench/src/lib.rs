//! Measures a device's discards: how long they take, whether they work, their effect on other I/O, and their
//! gain.

mod background;
mod budget;
mod confined;
mod degradation;
mod device_under_test;
pub mod error;
pub mod fit;
#[cfg(test)]
mod fixture;
mod interference;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod model;
pub mod plan;
pub mod profile;
mod queueing;
mod run;
mod sweep;
pub mod target;
pub mod verify;

use std::io;
use std::num::NonZeroU64;
use std::path::Path;
use std::time::{Duration, SystemTime};

use trimtab_core::document::bench::{BENCH_SCHEMA, BenchDevice, BenchDocument, BenchPlan, Part};
use trimtab_core::error::chain;
use trimtab_linux::PROCFS;
use trimtab_linux::environment::{EnvironmentError, environment};

use self::budget::Budget;
use self::confined::Confined;
use self::device_under_test::DeviceUnderTest;
use self::error::BenchError;
use self::plan::PlanError;
use self::run::Run;
use self::target::Target;
use trimtab_core::interrupt::{Interrupt, Interrupted};

/// The options of a bench.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// The device.
    pub device: BenchDevice,
    /// The plan of its measurements.
    pub plan: BenchPlan,
    /// The command line, for the document.
    pub command: Vec<String>,
    /// An earlier run to go on with; its plan goes before `plan`, but for the time budget.
    pub resumed: Option<BenchDocument>,
}

/// Why a bench did not start or could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum BenchStartError {
    /// The plan doesn't suit the device.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The earlier run was on another device.
    #[error(
        "the earlier run was on another device: {} {:?} of {}, and this is {} {:?} of {}",
        earlier.model, earlier.serial, earlier.size, device.model, device.serial, device.size
    )]
    OtherDevice {
        /// The earlier run's device.
        earlier: Box<BenchDevice>,
        /// This one.
        device: Box<BenchDevice>,
    },
    /// Nothing of the earlier run is missing.
    #[error("the earlier run of {device} is complete; leave --resume out to measure again")]
    Complete {
        /// The device's path.
        device: String,
    },
    /// The machine can't be looked at.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The document could not be saved.
    #[error("cannot save the results")]
    Save(#[from] io::Error),
}

/// Is told how far a bench is; every call is short and cheap.
pub trait BenchProgress {
    /// `what` is being measured now, and all the rest takes about `left`.
    fn at(&mut self, what: &str, left: Duration);
}

/// Measures `target` as the plan says and returns the document. `save` is called with the document
/// so far before the first command and after each cell.
///
/// A device that fails, or an interrupt, ends the bench: the document then says so in `stopped`,
/// holds what was measured before, and lists what is missing.
///
/// # Errors
/// Errors before the first command, and those of `save`.
pub fn bench(
    target: &dyn Target,
    options: BenchOptions,
    interrupt: &Interrupt,
    progress: &mut dyn BenchProgress,
    save: &mut dyn FnMut(&BenchDocument) -> io::Result<()>,
) -> Result<BenchDocument, BenchStartError> {
    let document = begin(options)?;
    save(&document)?;
    // The kernel may otherwise wake this thread 50 us late; without it, it is only less precise.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let budget = Budget::new(Duration::from_secs_f64(document.plan.budget_wall_s));
    let target = Confined::new(target, document.plan.range);
    let tested = DeviceUnderTest::new(&target, document.plan.range, interrupt);
    let mut run = Run { tested, document, budget, progress, to_do: Vec::new(), left_out: Vec::new(), save };
    let stopped = match run.all() {
        Ok(()) => None,
        Err(BenchError::Save(error)) => return Err(error.into()),
        Err(_) if interrupt.is_set() => Some(Interrupted.to_string()),
        Err(error) => Some(chain(&error)),
    };
    run.list_missing(stopped.as_deref());
    let mut document = run.document;
    document.fit = fit::fit(&document);
    document.stopped = stopped;
    save(&document)?;
    Ok(document)
}

impl BenchOptions {
    /// The plan that will be carried out: the earlier run's where there is one.
    ///
    /// # Errors
    /// [`BenchStartError::OtherDevice`] or [`BenchStartError::Plan`].
    pub fn check(&self) -> Result<BenchPlan, BenchStartError> {
        let plan = match &self.resumed {
            None => self.plan.clone(),
            Some(earlier) if earlier.device.is_same(&self.device) => {
                BenchPlan { budget_wall_s: self.plan.budget_wall_s, ..earlier.plan.clone() }
            }
            Some(earlier) => {
                let (earlier, device) = (Box::new(earlier.device.clone()), Box::new(self.device.clone()));
                return Err(BenchStartError::OtherDevice { earlier, device });
            }
        };
        plan::check(&plan, &self.device)?;
        Ok(plan)
    }
}

/// The document of a run that has just begun, or goes on.
fn begin(options: BenchOptions) -> Result<BenchDocument, BenchStartError> {
    let plan = options.check()?;
    let BenchOptions { device, command, resumed, .. } = options;
    let stopped = Some(Interrupted.to_string());
    Ok(match resumed {
        Some(earlier) if earlier.stopped.is_none() && !earlier.missing.iter().any(run::is_resumable) => {
            return Err(BenchStartError::Complete { device: device.path });
        }
        Some(mut earlier) => {
            // A run to its end that was cut short, or never steady, is made anew.
            if earlier.missing.iter().any(|missing| missing.what.starts_with(Part::Degradation.name())) {
                earlier.degradation.clear();
            }
            BenchDocument { plan, device, command, stopped, missing: Vec::new(), ..earlier }
        }
        None => BenchDocument {
            schema: BENCH_SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command,
            started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            environment: environment(Path::new(PROCFS))?,
            device,
            plan,
            sweeps: Vec::new(),
            verify: None,
            queueing: None,
            interference: Vec::new(),
            degradation: Vec::new(),
            background: None,
            fit: None,
            missing: Vec::new(),
            stopped,
        },
    })
}
