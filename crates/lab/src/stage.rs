//! The stage that a workload runs on: its activities and pauses, and what each of them cost.
//! A run has a testbed (the mounted file system), a stage, a policy host beside it (a trimmer, the service, or
//! nothing), a probe, and a sampler.

pub(crate) mod clock;
mod offline;
pub(crate) mod policy_host;
pub(crate) mod probe;
mod processor;
pub(crate) mod service;
pub(crate) mod timeline;
pub(crate) mod trimmer;
mod writers;

use std::time::Duration;

use trimtab_core::document::{KernelCounters, ProcessorTime, Reads, START, Step, StepKind};
use trimtab_core::stats::DriveCounters;
use trimtab_linux::block::BlockCounters;

use self::clock::DriveClock;
use self::policy_host::PolicyHost;
use self::probe::{Sample, summary};
use self::processor::Used;
use self::writers::Turns;
use crate::error::LabError;
use crate::progress::Progress;
use crate::testbed::Testbed;
use crate::work::Work;

/// Runs the activities and pauses of a workload one after the other, and measures them.
///
/// An activity ends when its operations have returned. Work that the kernel or a policy does in the
/// background continues during the next activity, as it does on any machine.
pub struct Stage<'a> {
    work: Work,
    course: Course<'a>,
    stderr: Option<String>,
}

/// Begins and measures the steps of a stage.
enum Course<'a> {
    /// The stage itself.
    Own(Box<Recorder<'a>>),
    /// The stage of all writers: this is the stage of one of them.
    Shared(Turns),
}

/// Measures steps.
struct Recorder<'a> {
    testbed: &'a mut dyn Testbed,
    policy: PolicyHost,
    clock: DriveClock,
    idle: Duration,
    measured: Vec<Measured>,
    /// The counters at the end of the last step, from which the next step counts: work in the background
    /// between two steps counts for the later one.
    counted: Snapshot,
    progress: &'a mut dyn Progress,
    /// The works of the writers, once these have ended.
    writers: Vec<Work>,
}

/// A step, before the samples of the probe are known.
struct Measured {
    name: String,
    kind: StepKind,
    start: Duration,
    end: Duration,
    /// The part of it in which nobody waited.
    idle: Duration,
    /// How long each writer took for its part; none where there is one writer.
    writers: Vec<Duration>,
    no_space: u64,
    drive: Option<DriveCounters>,
    kernel: Option<KernelCounters>,
    processor: ProcessorTime,
}

/// All counters at one moment.
#[derive(Clone)]
struct Snapshot {
    drive: Option<DriveCounters>,
    kernel: Option<BlockCounters>,
    used: Used,
}

impl Snapshot {
    fn of(testbed: &mut dyn Testbed, policy: &PolicyHost) -> Result<Self, LabError> {
        let figures = testbed.drive()?;
        let server = figures.as_ref().map(|figures| Duration::from_nanos(figures.processor.0));
        let used = Used::now(server, policy.process());
        Ok(Self { drive: figures.map(|figures| figures.counters), kernel: testbed.kernel_counters()?, used })
    }
}

/// The parts of a stage after its workload has ended.
pub(crate) struct Ended {
    pub work: Work,
    /// The works of the writers; none where the workload is not divided.
    pub writers: Vec<Work>,
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
        let counted = Snapshot::of(testbed, &policy)?;
        let (measured, writers) = (Vec::new(), Vec::new());
        let recorder = Recorder { testbed, policy, clock, idle, measured, counted, progress, writers };
        Ok(Self { work, course: Course::Own(Box::new(recorder)), stderr: None })
    }

    /// The measurements.
    ///
    /// # Errors
    /// [`LabError::OneWriter`] on the stage of one of several writers.
    fn recorder(&mut self) -> Result<&mut Recorder<'a>, LabError> {
        match &mut self.course {
            Course::Own(recorder) => Ok(recorder),
            Course::Shared(_) => {
                Err(LabError::OneWriter { workload: "a step on the whole file system".to_owned() })
            }
        }
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
        match &self.course {
            Course::Own(_) => {
                self.step(name, StepKind::Activity, |stage| action(&mut stage.work).map(|()| Duration::ZERO))
            }
            Course::Shared(turns) => turns.activity(name, || action(&mut self.work)),
        }
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
        let clock = self.recorder()?.clock;
        self.step(name, StepKind::Activity, |stage| Ok(clock.drive(action(&mut stage.work)?)))
    }

    /// A pause of the length that the user chose. Without a length it does not happen.
    ///
    /// # Errors
    /// [`LabError::Interrupted`], or an error of a device that is gone.
    pub fn pause(&mut self, name: &str) -> Result<(), LabError> {
        match &self.course {
            Course::Own(recorder) => self.pause_for(name, recorder.idle),
            Course::Shared(turns) => turns.pause(name, None),
        }
    }

    /// A pause of `length` in drive time: nobody waits for the drive.
    ///
    /// # Errors
    /// [`LabError::Interrupted`], or an error of a device that is gone.
    pub fn pause_for(&mut self, name: &str, length: Duration) -> Result<(), LabError> {
        if let Course::Shared(turns) = &self.course {
            return turns.pause(name, Some(length));
        }
        if length.is_zero() {
            return Ok(());
        }
        self.step(name, StepKind::Pause, |stage| {
            let recorder = stage.recorder()?;
            let (clock, end) = (recorder.clock, recorder.clock.now() + length);
            recorder.policy.pause_begins();
            clock.sleep_until(end, stage.work.interrupt())?;
            Ok(length)
        })
    }

    /// A pause at the end of every run, of the same length for all policies and announced to none:
    /// it counts what an activity left to the background.
    pub(crate) fn tail(&mut self, length: Duration) -> Result<(), LabError> {
        let clock = self.recorder()?.clock;
        self.step("end", StepKind::Pause, |stage| {
            clock.sleep_until(clock.now() + length, stage.work.interrupt())?;
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
        let recorder = self.recorder()?;
        recorder.progress.step(name);
        let clock = recorder.clock;
        self.work.interrupt().check()?;
        let (start, retried) = (clock.now(), self.work.retried());
        let idle = action(self)?;
        let (end, no_space) = (clock.now(), self.work.retried() - retried);
        let recorder = self.recorder()?;
        let after = Snapshot::of(recorder.testbed, &recorder.policy)?;
        let before = std::mem::replace(&mut recorder.counted, after.clone());
        recorder.measured.push(Measured {
            name: name.to_owned(),
            kind,
            start,
            end,
            idle,
            writers: Vec::new(),
            no_space,
            drive: after.drive.zip(before.drive).map(|(after, before)| after.since(&before)),
            kernel: after.kernel.zip(before.kernel).map(|(after, before)| after.since(&before)),
            processor: after.used.since(&before.used),
        });
        Ok(())
    }

    /// Takes the stage of a run apart.
    pub(crate) fn end(self) -> Ended {
        let Course::Own(recorder) = self.course else { unreachable!("a run ends the stage that it began") };
        let Recorder { policy, measured, writers, .. } = *recorder;
        Ended { work: self.work, writers, policy, stderr: self.stderr, steps: measured }
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
            writers_s: self.writers.iter().map(Duration::as_secs_f64).collect(),
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
            processor: Some(self.processor),
            name: self.name,
        }
    }
}
