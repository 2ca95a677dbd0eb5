//! The stage that a workload runs on: its activities and pauses, and what each of them cost.
//! A run has a testbed (the mounted file system), a stage, a policy host beside it (a trimmer, the service, or
//! nothing), a probe, and a sampler.

pub(crate) mod clock;
mod offline;
pub(crate) mod policy_host;
pub(crate) mod probe;
pub(crate) mod service;
pub(crate) mod timeline;
pub(crate) mod trimmer;

use std::time::Duration;

use trimtab_core::document::{KernelCounters, Reads, START, Step, StepKind};
use trimtab_core::stats::DriveCounters;
use trimtab_linux::block::BlockCounters;

use self::clock::DriveClock;
use self::policy_host::PolicyHost;
use self::probe::{Sample, summary};
use crate::error::LabError;
use crate::progress::Progress;
use crate::testbed::Testbed;
use crate::work::Work;

/// Runs the activities and pauses of a workload one after the other, and measures them.
///
/// An activity ends when its operations have returned. Work that the kernel or a policy does in the
/// background continues during the next activity, as it does on any machine.
pub struct Stage<'a> {
    testbed: &'a mut dyn Testbed,
    work: Work,
    policy: PolicyHost,
    clock: DriveClock,
    idle: Duration,
    measured: Vec<Measured>,
    /// The counters at the end of the last step, from which the next step counts: work in the background
    /// between two steps counts for the later one.
    counted: Snapshot,
    stderr: Option<String>,
    progress: &'a mut dyn Progress,
}

/// A step, before the samples of the probe are known.
struct Measured {
    name: String,
    kind: StepKind,
    start: Duration,
    end: Duration,
    /// The part of it in which nobody waited.
    idle: Duration,
    no_space: u64,
    drive: Option<DriveCounters>,
    kernel: Option<KernelCounters>,
}

/// All counters at one moment.
#[derive(Clone)]
struct Snapshot {
    drive: Option<DriveCounters>,
    kernel: Option<BlockCounters>,
}

impl Snapshot {
    fn of(testbed: &mut dyn Testbed) -> Result<Self, LabError> {
        let drive = testbed.drive()?.map(|figures| figures.counters);
        Ok(Self { drive, kernel: testbed.kernel_counters()? })
    }
}

/// The parts of a stage after its workload has ended.
pub(crate) struct Ended {
    pub work: Work,
    pub policy: PolicyHost,
    /// The last line that the user's command wrote to standard error.
    pub stderr: Option<String>,
    steps: Vec<Measured>,
}

impl<'a> Stage<'a> {
    /// A stage on `testbed` whose named pauses last `idle` of drive time.
    ///
    /// # Errors
    /// An error of a device that is gone.
    pub(crate) fn new(
        testbed: &'a mut dyn Testbed,
        work: Work,
        policy: PolicyHost,
        clock: DriveClock,
        idle: Duration,
        progress: &'a mut dyn Progress,
    ) -> Result<Self, LabError> {
        let counted = Snapshot::of(testbed)?;
        Ok(Self { testbed, work, policy, clock, idle, measured: Vec::new(), counted, stderr: None, progress })
    }

    /// The file operations, for use between two steps.
    pub fn work(&mut self) -> &mut Work {
        &mut self.work
    }

    /// Keeps `line`, the last one that the user's command wrote to standard error.
    pub fn keep_stderr(&mut self, line: Option<String>) {
        self.stderr = line;
    }

    /// Does `action`, which somebody waits for, as the activity `name`.
    ///
    /// # Errors
    /// The errors of `action`, or of a device that is gone.
    pub fn activity(
        &mut self,
        name: &str,
        action: impl FnOnce(&mut Work) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        self.step(name, StepKind::Activity, |stage| action(&mut stage.work).map(|()| Duration::ZERO))
    }

    /// Does `action` as the activity `name`; it returns the wall time in which it slept, which nobody waits
    /// for.
    ///
    /// # Errors
    /// The errors of `action`, or of a device that is gone.
    pub fn activity_with_sleeps(
        &mut self,
        name: &str,
        action: impl FnOnce(&mut Work) -> Result<Duration, LabError>,
    ) -> Result<(), LabError> {
        self.step(name, StepKind::Activity, |stage| Ok(stage.clock.drive(action(&mut stage.work)?)))
    }

    /// A pause of the length that the user chose. Without a length it does not happen.
    ///
    /// # Errors
    /// [`LabError::Interrupted`], or an error of a device that is gone.
    pub fn pause(&mut self, name: &str) -> Result<(), LabError> {
        self.pause_for(name, self.idle)
    }

    /// A pause of `length` in drive time: nobody waits for the drive.
    ///
    /// # Errors
    /// [`LabError::Interrupted`], or an error of a device that is gone.
    pub fn pause_for(&mut self, name: &str, length: Duration) -> Result<(), LabError> {
        if length.is_zero() {
            return Ok(());
        }
        self.step(name, StepKind::Pause, |stage| {
            let end = stage.clock.now() + length;
            stage.policy.pause_begins();
            stage.clock.sleep_until(end, stage.work.interrupt())?;
            Ok(length)
        })
    }

    /// A pause at the end of every run, of the same length for all policies and announced to none:
    /// it counts what an activity left to the background.
    pub(crate) fn tail(&mut self, length: Duration) -> Result<(), LabError> {
        self.step("end", StepKind::Pause, |stage| {
            let end = stage.clock.now() + length;
            stage.clock.sleep_until(end, stage.work.interrupt())?;
            Ok(length)
        })
    }

    /// Does `action`, which returns for how long of its drive time nobody waited, as a step.
    fn step(
        &mut self,
        name: &str,
        kind: StepKind,
        action: impl FnOnce(&mut Self) -> Result<Duration, LabError>,
    ) -> Result<(), LabError> {
        self.progress.step(name);
        self.work.interrupt().check()?;
        let (start, retried) = (self.clock.now(), self.work.retried());
        let idle = action(self)?;
        let end = self.clock.now();
        let after = Snapshot::of(self.testbed)?;
        let before = std::mem::replace(&mut self.counted, after.clone());
        self.measured.push(Measured {
            name: name.to_owned(),
            kind,
            start,
            end,
            idle,
            no_space: self.work.retried() - retried,
            drive: after.drive.zip(before.drive).map(|(after, before)| after.since(&before)),
            kernel: after.kernel.zip(before.kernel).map(|(after, before)| after.since(&before)),
        });
        Ok(())
    }

    pub(crate) fn end(self) -> Ended {
        Ended { work: self.work, policy: self.policy, stderr: self.stderr, steps: self.measured }
    }
}

impl Ended {
    /// The latencies of `samples` over all activities, and over all pauses but the first one.
    pub fn reads(&self, samples: &[Sample]) -> Reads {
        let over = |kind| {
            let steps = self.steps.iter().filter(move |step| step.kind == kind && step.name != START);
            let spans: Vec<_> = steps.map(|step| step.start..step.end).collect();
            summary(samples, &spans)
        };
        Reads { activities: over(StepKind::Activity), pauses: over(StepKind::Pause) }
    }

    /// The steps, with the samples of the probe that were due in each.
    pub fn steps(&mut self, samples: &[Sample]) -> Vec<Step> {
        std::mem::take(&mut self.steps).into_iter().map(|step| step.document(samples)).collect()
    }
}

impl Measured {
    fn document(self, samples: &[Sample]) -> Step {
        let drive = self.drive.as_ref();
        let kernel = self.kernel.unwrap_or_default();
        Step {
            probe: summary(samples, &[self.start..self.end]),
            kind: self.kind,
            start_s: self.start.as_secs_f64(),
            length_s: (self.end - self.start).as_secs_f64(),
            idle_s: self.idle.min(self.end - self.start).as_secs_f64(),
            no_space: self.no_space,
            host_bytes: drive.map_or(kernel.write_bytes, |drive| drive.write_bytes),
            discards: drive.map_or(kernel.discards, |drive| drive.discards),
            discard_bytes: drive.map_or(kernel.discard_bytes, |drive| drive.discard_bytes),
            discard_histogram: drive.map(|drive| drive.discard_sizes.clone()).unwrap_or_default(),
            kernel: self.kernel,
            erases: drive.map(|drive| drive.erases),
            host_pages: drive.map(|drive| drive.host_pages),
            programmed_pages: drive.map(DriveCounters::programmed_pages),
            discard_busy_s: drive.map(|drive| drive.discard_busy_ns.seconds()),
            name: self.name,
        }
    }
}
