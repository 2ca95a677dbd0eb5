//! Runs a workload under a policy and records what each phase cost.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use trimtab_core::Bytes;
use trimtab_core::document::{KernelCounters, Phase, Run, TRIM_PHASE};
use trimtab_core::policy::{Event, Policy, PolicyChoice, PolicyKind};
use trimtab_core::stats::DriveCounters;

use crate::error::LabError;
use crate::ground::{Ground, Snapshot};
use crate::interrupt::Interrupt;
use crate::keeping::Keeping;
use crate::progress::Progress;
use crate::work::Work;
use crate::workload::Workload;

/// How many files are written before the workload starts, to outlive it untouched.
const WITNESSES: u32 = 16;
/// The size of each.
const WITNESS_SIZE: Bytes = Bytes::MIB;

/// What decides about discards in a run.
enum Discards {
    /// A policy that goes by the workload's pauses, or has nothing to do.
    Policy(Box<dyn Policy>),
    /// The file system, on a schedule of its own.
    FileSystem,
    /// The service's keeper, where the workload pauses or turns to something else.
    Keeper(Box<Keeping>),
}

/// Records the phases of one run.
pub struct Recorder<'a> {
    ground: &'a mut dyn Ground,
    discards: Discards,
    work: Work,
    phases: Vec<(&'static str, Totals)>,
    last_phase: Option<&'static str>,
    started: Instant,
    progress: &'a mut dyn Progress,
}

/// Runs `workload` on `ground` under `policy`, verifies the data, and returns what each phase
/// cost. `run` is which repetition this is, from 1.
///
/// # Errors
/// Whatever stops the workload; [`LabError::Damaged`] or [`LabError::Unreadable`] if live data
/// doesn't read back.
pub fn record(
    workload: &dyn Workload,
    policy: PolicyKind,
    run: u32,
    ground: &mut dyn Ground,
    interrupt: &Interrupt,
    progress: &mut dyn Progress,
) -> Result<Run, LabError> {
    let description = workload.description();
    let (dir, room) = (ground.dir().to_owned(), ground.room());
    let work = Work::new(dir, room, description.seed, interrupt.clone());
    let discards = match policy {
        PolicyKind::Smart => Discards::Keeper(Box::new(ground.keep()?)),
        policy => PolicyChoice::from(policy).engine().map_or(Discards::FileSystem, Discards::Policy),
    };
    let mut recorder = Recorder {
        ground,
        discards,
        work,
        phases: Vec::new(),
        last_phase: None,
        started: Instant::now(),
        progress,
    };
    recorder.write_witnesses()?;
    workload.run(&mut recorder)?;
    recorder.tell_policy(&Event::End)?;
    recorder.verify()?;
    Ok(Run {
        fs: recorder.ground.file_system().to_owned(),
        policy,
        workload: description.name,
        run,
        phases: recorder.phases.into_iter().map(|(name, totals)| totals.into_phase(name)).collect(),
        verified: true,
    })
}

impl Recorder<'_> {
    /// What the workload works with between phases.
    pub fn work(&mut self) -> &mut Work {
        &mut self.work
    }

    /// Does `action` as part of the phase `name`, adding to what that phase cost before. The
    /// phase ends when the device has nothing left to do for it.
    ///
    /// # Errors
    /// What `action` fails with.
    pub fn phase(
        &mut self,
        name: &'static str,
        action: impl FnOnce(&mut Work) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        if self.last_phase.replace(name) != Some(name) {
            self.let_keep()?;
        }
        self.progress.phase(name);
        self.measure(name, |_, work| action(work))
    }

    /// Lets the keeper do what it means to do where the workload turns to something else.
    fn let_keep(&mut self) -> Result<(), LabError> {
        let Discards::Keeper(keeping) = &mut self.discards else { return Ok(()) };
        if !keeping.listen()? {
            return Ok(());
        }
        self.progress.phase(TRIM_PHASE);
        let before = self.ground.snapshot()?;
        keeping.tend(self.work.interrupt())?;
        self.add(TRIM_PHASE, &before)
    }

    /// The workload names a pause: nobody waits for the drive now.
    ///
    /// # Errors
    /// What a trim of the policy's fails with.
    pub fn pause(&mut self) -> Result<(), LabError> {
        self.let_keep()?;
        self.tell_policy(&Event::Pause)
    }

    fn measure(
        &mut self,
        name: &'static str,
        action: impl FnOnce(&mut dyn Ground, &mut Work) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        let before = self.ground.snapshot()?;
        action(self.ground, &mut self.work)?;
        self.add(name, &before)
    }

    /// Adds to a phase what was done since `before`, once the device has nothing left to do.
    fn add(&mut self, name: &'static str, before: &Snapshot) -> Result<(), LabError> {
        let quiet_since = self.ground.settle(self.work.interrupt())?;
        let after = Snapshot { at: quiet_since - self.work.take_idle(), ..self.ground.snapshot()? };
        let known = self.phases.iter().position(|(known, _)| *known == name);
        let at = known.unwrap_or(self.phases.len());
        if known.is_none() {
            self.phases.push((name, Totals::default()));
        }
        self.phases[at].1.add(before, &after);
        Ok(())
    }

    /// Hands an event to the policy and carries out what it asks for. A file system that discards
    /// on a schedule of its own gets the idle time that it waits for instead; the keeper is told nothing.
    fn tell_policy(&mut self, event: &Event) -> Result<(), LabError> {
        match &mut self.discards {
            Discards::Policy(engine) => {
                for request in engine.on_event(self.started.elapsed(), event) {
                    self.progress.phase(TRIM_PHASE);
                    self.measure(TRIM_PHASE, |ground, _| ground.trim(&request))?;
                }
                Ok(())
            }
            Discards::FileSystem => {
                self.progress.waiting("the file system's delayed discards, up to four minutes");
                self.measure(TRIM_PHASE, |ground, work| ground.idle(work.interrupt()))
            }
            Discards::Keeper(_) => Ok(()),
        }
    }

    fn write_witnesses(&mut self) -> Result<(), LabError> {
        let dir = PathBuf::from("witness");
        self.work.make_dir(&dir)?;
        for file in 0..WITNESSES {
            self.work.write(&dir.join(file.to_string()), WITNESS_SIZE)?;
        }
        self.work.sync()
    }

    fn verify(&mut self) -> Result<(), LabError> {
        self.progress.phase("verify");
        self.work.sync()?;
        self.work.verify()?;
        if self.ground.remount()? {
            self.work.verify()?;
        }
        Ok(())
    }
}

/// What a phase cost so far; a phase may be entered more than once.
#[derive(Default)]
struct Totals {
    wall: Duration,
    drive: Option<DriveCounters>,
    kernel: Option<KernelCounters>,
}

impl Totals {
    fn add(&mut self, before: &Snapshot, after: &Snapshot) {
        self.wall += after.at - before.at;
        if let (Some(before), Some(after)) = (&before.drive, &after.drive) {
            self.drive.get_or_insert_default().merge(&after.since(before));
        }
        if let (Some(before), Some(after)) = (&before.kernel, &after.kernel) {
            self.kernel.get_or_insert_default().merge(&after.since(before));
        }
    }

    fn into_phase(self, name: &str) -> Phase {
        let model_s = self.drive.as_ref().map(|drive| drive.model_ns.seconds());
        let wall_s = self.wall.as_secs_f64();
        let kernel = self.kernel.unwrap_or_default();
        let drive = self.drive.as_ref();
        let host_bytes = drive.map_or(kernel.write_bytes, |drive| drive.write_bytes);
        let throughput = host_bytes.mib() / model_s.unwrap_or(wall_s);
        Phase {
            name: name.to_owned(),
            model_s,
            wall_s,
            host_bytes,
            throughput_mib_s: Some(throughput).filter(|rate| rate.is_normal()),
            discards: drive.map_or(kernel.discards, |drive| drive.discards),
            discard_bytes: drive.map_or(kernel.discard_bytes, |drive| drive.discard_bytes),
            discard_histogram: drive.map(|drive| drive.discard_sizes.clone()).unwrap_or_default(),
            kernel: self.kernel,
            erases: drive.map(|drive| drive.erases),
            waf: drive.and_then(DriveCounters::waf),
            discard_busy_model_s: drive.map(|drive| drive.discard_busy_ns.seconds()),
        }
    }
}
