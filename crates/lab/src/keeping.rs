//! The smart policy in a run: the service's own keeper, between the steps of the workload.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use trimtab_core::error::chain;
use trimtab_core::policy::SmartPolicy;
use trimtab_core::{Bytes, ExtentSet};
use trimtab_drive::Drive;
use trimtab_keeper::service::Ground;
use trimtab_keeper::{MountedTrims, Series, Tender, Trims};
use trimtab_linux::block::{BlockCounters, BlockDevice, BlockError};
use trimtab_linux::stack::Machine;
use trimtab_linux::tracing::{Frees, FreesOptions};
use trimtab_linux::trim::TrimError;

use crate::doctor::{ASSUMED_ERASE_BLOCK, Plan, examine};
use crate::error::LabError;
use crate::ground::mount_of;
use crate::interrupt::Interrupt;

/// A span over which a device that has come to rest does nothing.
const GLANCE: Duration = Duration::from_millis(5);

/// How long it waits for frees whose transaction isn't on disk, and how often it asks.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// Holds what a phase frees: it is only read when the phase is over.
const BUFFER: Bytes = Bytes(16 << 20);

/// Hears what a file system frees, and tends it.
///
/// On an emulated drive trims take the model's time and pauses none, so that only what is worth its
/// time is trimmed there: nothing is ever left to an idle time that the model doesn't have.
pub struct Keeping {
    frees: Frees,
    tender: Tender<TimedTrims>,
    is_emulated: bool,
    started: Instant,
}

impl Keeping {
    /// Tends the file system mounted at `mount` on `devices` by `policy`. The clock that counts is that of
    /// `drive`, the emulated drive below, or else the wall's.
    ///
    /// # Errors
    /// What the kernel says where it can't be listened to.
    pub fn start(
        mount: &Path,
        devices: Vec<BlockDevice>,
        drive: Option<Drive>,
        policy: SmartPolicy,
    ) -> Result<Self, LabError> {
        let mut frees = Frees::start(&FreesOptions { buffer: BUFFER, ..FreesOptions::default() })?;
        frees.follow(&mount_of(mount)?)?;
        let is_emulated = drive.is_some();
        let trims = TimedTrims { mounted: MountedTrims::new(mount.to_owned(), devices), drive };
        Ok(Self { frees, tender: Tender::new(policy, trims), is_emulated, started: Instant::now() })
    }

    /// Hears what was freed; says whether anything is pending.
    ///
    /// # Errors
    /// What the kernel's events fail with, or [`LabError::FreesLost`].
    pub fn listen(&mut self) -> Result<bool, LabError> {
        let (mut events, started) = (Vec::new(), Instant::now());
        while self.frees.read(&mut events)?.is_some() && started.elapsed() < PATIENCE {
            thread::sleep(PAUSE);
        }
        if self.frees.lost() > 0 {
            return Err(LabError::FreesLost);
        }
        let now = self.now();
        events.iter().for_each(|event| self.tender.freed(now, event.extent));
        Ok(!self.tender.pending().is_empty())
    }

    /// Has the keeper look at a device at rest, and do what it means to do now.
    ///
    /// # Errors
    /// What a trim fails with, or [`LabError::Interrupted`].
    pub fn tend(&mut self, interrupt: &Interrupt) -> Result<(), LabError> {
        self.tender.turn(self.now())?;
        loop {
            interrupt.check()?;
            thread::sleep(GLANCE);
            if !self.tender.turn(self.now())? {
                return Ok(());
            }
        }
    }

    /// The wall's time, and what trims took on the clock of an emulated drive.
    fn now(&self) -> Duration {
        self.started.elapsed() + if self.is_emulated { self.tender.totals().took } else { Duration::ZERO }
    }
}

/// What the file system mounted at `mount` lies on, as the doctor sees it.
///
/// # Errors
/// Why that can't be told, in a line.
pub fn survey(mount: &Path) -> Result<Ground, String> {
    let plan = Plan {
        machine: Machine::live(),
        paths: vec![mount.to_owned()],
        canary: false,
        erase_block: ASSUMED_ERASE_BLOCK,
        invocation: Vec::new(),
    };
    let examined = examine(&plan, &Interrupt::default()).map_err(|error| chain(&error))?;
    let target = examined.document.targets.into_iter().next();
    let found = examined.stacks.into_iter().next().zip(target);
    let (stack, target) = found.ok_or_else(|| "the doctor says nothing of it".to_owned())?;
    Ok(Ground { stack, verdict: target.verdict, reason: target.reason })
}

/// FITRIM, timed by the clock of the emulated drive, if it is one.
struct TimedTrims {
    mounted: MountedTrims,
    drive: Option<Drive>,
}

impl Trims for TimedTrims {
    fn trim(&mut self, ranges: ExtentSet, minimum: Bytes) -> Series {
        // A drive that doesn't answer is reported by the phase that this is a part of.
        let clock = || Some(self.drive.as_ref()?.stats().ok()?.counters.model_ns);
        let before = clock();
        let series = self.mounted.trim(ranges, minimum);
        let model = before.zip(clock()).map(|(before, after)| Duration::from_nanos((after - before).0));
        Series { took: model.unwrap_or(series.took), ..series }
    }

    fn reaching(&mut self, extents: ExtentSet) -> Result<ExtentSet, TrimError> {
        self.mounted.reaching(extents)
    }

    fn counters(&mut self) -> Result<BlockCounters, BlockError> {
        self.mounted.counters()
    }

    fn free(&mut self) -> Bytes {
        self.mounted.free()
    }
}
