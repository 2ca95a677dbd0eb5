//! Starts to manage file systems when they are mounted, and stops when they are unmounted.

use std::rc::Rc;
use std::time::Duration;

use trimtab_core::error::chain;
use trimtab_doctor::verdict_on;
use trimtab_linux::generation::SealError;
use trimtab_linux::stack::StackError;
use trimtab_linux::tracefs::{FreeCoverage, Frees, TracefsError};
use trimtab_linux::trim;

use super::Service;
use crate::pause::{Pause, Pauses};
use crate::service::backoff::Backoff;
use crate::service::config::ServicePolicy;
use crate::service::early_seal::EarlySeal;
use crate::service::log::{Field, LogEvent};
use crate::service::managed::{Examination, ManagedFileSystem};
use crate::service::mounts::MountedFileSystem;
use crate::service::passing::{New, Unmounted};
use crate::service::persistence::{PersistenceError, restore, save, seal, seal_after_unmount};
use crate::service::storage::{Storage, decide};
use crate::service::timeout::{LAST_TIMEOUT, NoAnswer, SingleCall, within};

/// The time until storage that could not be examined is examined again; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// How often the storage of file systems that take no discards is examined again.
pub(super) const BLOCKED_INTERVAL: Duration = Duration::from_secs(600);
/// The same, after one did not answer.
const ANSWER_INTERVAL: Duration = Duration::from_secs(10);
/// How long after an unmount or a seal the last free events may arrive.
const LAST_EVENTS: Duration = Duration::from_millis(15);

/// Why the frees of a file system can't be tracked.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrackingError {
    /// The kernel reports no frees at all.
    #[error(transparent)]
    Unavailable(Rc<TracefsError>),
    /// The kernel can't report those of this file system.
    #[error(transparent)]
    Follow(#[from] TracefsError),
}

impl Service {
    /// Schedules another look at the mounts.
    pub(super) fn schedule_retry(&mut self) {
        self.mount_retry = Some(Backoff::after(self.mount_retry, FIRST_PAUSE, self.now()));
    }

    /// Applies a new configuration to all mounts, and warns of configured mount points that are not in use.
    pub(super) fn apply_configuration(&mut self) -> Result<(), StackError> {
        self.update_mounts()?;
        for mount in self.config.not_mounted(&self.context.machine)? {
            self.log.warning(
                LogEvent::NotMounted,
                "configured, but no file system on a block device is mounted there yet",
                &[("mount", &mount.display())],
            );
        }
        Ok(())
    }

    /// Manages exactly the file systems that are mounted now, but for new ones.
    pub(super) fn update_mounts(&mut self) -> Result<(), StackError> {
        let now = self.now();
        let all = MountedFileSystem::all(&self.context.machine)?;
        self.remove_unmounted(&all, now);
        let mut before = std::mem::take(&mut self.file_systems);
        let mut new = std::mem::take(&mut self.new);
        for found in all {
            let known = before.iter().position(|managed| found.continues(&managed.found));
            let known = known.map(|index| before.swap_remove(index)).or_else(|| self.take_back(&found));
            let (managed, early, was_followed) = match known {
                Some(mut managed) if !managed.is_unknown() => {
                    let was_followed = managed.wants_frees();
                    if !managed.change(found, &self.config, now) {
                        self.file_systems.push(managed);
                        continue;
                    }
                    (managed, None, was_followed)
                }
                Some(unknown) => {
                    let (trimmed, last_trim) = (unknown.trimmed(), unknown.last_trim());
                    let mut managed = self.examine(found, unknown.examination, now);
                    managed.restore_totals(trimmed, last_trim);
                    (managed, unknown.early, false)
                }
                None => {
                    let at = new.iter().position(|new| found.continues(&new.found));
                    let new = match at.map(|at| new.swap_remove(at)) {
                        Some(mut new) => {
                            new.change(found, &self.config);
                            new
                        }
                        None if self.is_started => New::start(&self.context, found, &self.config, now),
                        None => {
                            let managed = self.examine(found, SingleCall::default(), now);
                            self.manage(managed, None, false, now);
                            continue;
                        }
                    };
                    if new.due > now {
                        self.new.push(new);
                        continue;
                    }
                    (self.examine(new.found, SingleCall::default(), now), Some(new.seal), false)
                }
            };
            self.manage(managed, early, was_followed, now);
        }
        if self.file_systems.iter().any(ManagedFileSystem::is_unknown) {
            self.schedule_retry();
        } else {
            self.mount_retry = None;
        }
        Ok(())
    }

    /// Takes back a file system that had been unmounted, but never ended: somebody still used it.
    fn take_back(&mut self, found: &MountedFileSystem) -> Option<ManagedFileSystem> {
        let at = self.unmounted.iter().position(|left| found.continues(&left.managed.found))?;
        Some(self.unmounted.swap_remove(at).managed)
    }

    /// Examines the storage below a file system.
    fn examine(
        &self,
        found: MountedFileSystem,
        mut examination: Examination,
        now: Duration,
    ) -> ManagedFileSystem {
        let storage = match self.examination_of(&found, &mut examination) {
            Ok(Ok(storage)) => storage,
            Ok(Err(error)) => Storage::unknown(chain(&error)),
            Err(NoAnswer) => Storage::unknown(NoAnswer.to_string()),
        };
        let mut managed = ManagedFileSystem::new(&self.context, found, storage, &self.config, now);
        managed.examination = examination;
        managed
    }

    /// Returns the result of `examination`, which it starts unless it runs.
    fn examination_of(
        &self,
        found: &MountedFileSystem,
        examination: &mut Examination,
    ) -> Result<Result<Storage, StackError>, NoAnswer> {
        let (asked, config, sysfs) = (found.clone(), self.config.clone(), self.context.machine.sysfs());
        examination.run(move || {
            let storage = Storage::from(verdict_on(asked.mount.clone())?);
            let settings = config.settings(&asked.targets, storage.disk().as_deref());
            if let (ServicePolicy::Smart, None) = decide(&asked, &storage, &settings) {
                Frees::read_ahead(&sysfs, &asked.mount);
            }
            Ok(storage)
        })
    }

    /// Returns when [`Self::examine_blocked`] is due, or nothing if no file system is blocked.
    pub(super) fn next_examination(&self) -> Option<Duration> {
        self.file_systems.iter().any(ManagedFileSystem::is_blocked).then_some(self.examine_at)
    }

    /// Examines again, if that is due, the storage of the file systems that take no discards.
    pub(super) fn examine_blocked(&mut self) {
        let now = self.now();
        if self.next_examination().is_none_or(|due| due > now) {
            return;
        }
        self.examine_at = now + BLOCKED_INTERVAL;
        for mut managed in std::mem::take(&mut self.file_systems) {
            if managed.is_blocked() {
                let mut examination = std::mem::take(&mut managed.examination);
                let examined = self.examination_of(&managed.found, &mut examination);
                managed.examination = examination;
                match examined {
                    Ok(Ok(storage)) => {
                        if managed.apply_storage(storage, &self.config, now) {
                            self.manage(managed, None, false, now);
                            continue;
                        }
                    }
                    Ok(Err(_)) | Err(NoAnswer) => self.examine_at = now + ANSWER_INTERVAL,
                }
            }
            self.file_systems.push(managed);
        }
        // One whose drive does not answer now is examined again with the mounts.
        if self.mount_retry.is_none() && self.file_systems.iter().any(ManagedFileSystem::is_unknown) {
            self.schedule_retry();
        }
    }

    fn manage(
        &mut self,
        managed: ManagedFileSystem,
        early: Option<EarlySeal>,
        was_followed: bool,
        now: Duration,
    ) {
        let mut managed = managed;
        self.apply_pauses(std::slice::from_mut(&mut managed), now);
        let managed = self.follow(managed, early, was_followed, now);
        self.log_managed(&managed);
        self.file_systems.push(managed);
    }

    /// Applies the pauses to `file_systems`.
    pub(super) fn apply_pauses(&self, file_systems: &mut [ManagedFileSystem], now: Duration) {
        let pauses = Pauses::of(&self.context.run).read();
        for managed in file_systems {
            let pause = Pause::longest(&pauses, &managed.found.targets);
            let left = pause.map_or(Duration::ZERO, Pause::rest);
            managed.pause(now + self.scaled(left), now, pause.map(Pause::resumption).unwrap_or_default());
        }
    }

    /// Stops managing the file systems that are not in `all` any more. Their state is saved a moment later.
    fn remove_unmounted(&mut self, all: &[MountedFileSystem], now: Duration) {
        let is_mounted =
            |managed: &ManagedFileSystem| all.iter().any(|found| found.continues(&managed.found));
        let (mounted, unmounted): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.file_systems).into_iter().partition(is_mounted);
        self.file_systems = mounted;
        for managed in unmounted {
            managed.end_trim();
            self.log.info(
                LogEvent::Unmounted,
                "unmounted",
                &[("mount", &managed.found.mount.target.display())],
            );
            self.unmounted.push(Unmounted::new(managed, now));
        }
        let is_replaced = |left: &mut Unmounted| all.iter().any(|found| left.is_replaced_by(found));
        for Unmounted { managed, .. } in self.unmounted.extract_if(.., is_replaced).collect::<Vec<_>>() {
            let saved = if managed.wants_frees() { Err(PersistenceError::Remounted) } else { Ok(false) };
            self.finish(&managed, saved);
        }
    }

    /// Saves the state of the file systems that were unmounted a moment ago.
    pub(super) fn save_unmounted(&mut self) {
        let now = self.now();
        for mut unmounted in
            self.unmounted.extract_if(.., |unmounted| unmounted.due <= now).collect::<Vec<_>>()
        {
            let seal = match unmounted.managed.wants_frees() {
                true => seal_after_unmount(&self.context, &unmounted.managed),
                false => None,
            };
            let saved = match seal {
                None => Ok(false),
                // As after umount --lazy: somebody still uses it.
                Some(Ok(Err(SealError::Unclean { .. }))) if unmounted.wait(now) => {
                    self.unmounted.push(unmounted);
                    continue;
                }
                Some(Err(no_answer)) => Err(no_answer.into()),
                Some(Ok(seal)) => save(&self.context, seal, &unmounted.managed, now),
            };
            self.finish(&unmounted.managed, saved);
        }
    }

    /// Forgets a file system that was unmounted. `saved` says whether its state was saved; false if it has none.
    fn finish(&mut self, managed: &ManagedFileSystem, saved: Result<bool, PersistenceError>) {
        if let Ok(frees) = &mut self.frees {
            match saved {
                Ok(_) => frees.forget(managed.found.number()),
                // It may still be in use, as after umount --lazy. Its frees until the service sees it
                // again are not tracked.
                Err(PersistenceError::Remounted) => {}
                Err(_) => _ = frees.leave_out(&managed.found.mount),
            }
        }
        self.save_costs(managed);
        let mount = managed.found.mount.target.display();
        match saved {
            Ok(true) => self.log.info(LogEvent::StateSaved, "state saved", &[("mount", &mount)]),
            Ok(false) => {}
            Err(error) => {
                let fields: [Field; 2] = [("mount", &mount), ("reason", &chain(&error))];
                self.log.info(LogEvent::StateNotSaved, "state not saved", &fields);
            }
        }
    }

    /// Saves what was learned of the drive of a file system.
    fn save_costs(&self, managed: &ManagedFileSystem) {
        if let Err(error) = managed.save_costs() {
            let fields: [Field; 2] =
                [("mount", &managed.found.mount.target.display()), ("reason", &chain(&error))];
            self.log.warning(LogEvent::StateNotSaved, "costs of discards not saved", &fields);
        }
    }

    /// Saves the state of all file systems.
    pub(super) fn save_all(&mut self) {
        // At shutdown, the service is told to end just after the last unmount.
        if let Ok(all) = MountedFileSystem::all(&self.context.machine) {
            self.remove_unmounted(&all, self.now());
        }
        std::thread::sleep(LAST_EVENTS);
        self.read_at = Some(Duration::ZERO);
        self.read_frees();
        let now = self.now();
        self.unmounted.iter_mut().for_each(|unmounted| unmounted.due = now);
        self.save_unmounted();
        self.file_systems.iter().for_each(|managed| self.save_costs(managed));
        let sync = |managed: &ManagedFileSystem| {
            let (target, devices) = (managed.found.mount.target.clone(), managed.devices());
            let [device] = devices.as_slice() else { return true };
            let device = device.clone();
            managed.wants_frees()
                && !managed.is_late()
                && within(LAST_TIMEOUT, move || trim::sync_by_device(&target, &device)).is_ok()
        };
        // Syncs all before sealing any: a sync may write to another file system that this one lies on.
        let answers: Vec<_> = self.file_systems.iter().map(sync).collect();
        let seal = |(managed, answers): (&ManagedFileSystem, bool)| {
            if answers { seal(&self.context, managed, LAST_TIMEOUT) } else { Err(NoAnswer) }
        };
        let seals: Vec<_> = self.file_systems.iter().zip(answers).map(seal).collect();
        // Receives the events of all frees before the seals. Later frees change the file system, which
        // invalidates its seal.
        std::thread::sleep(LAST_EVENTS);
        self.read_at = Some(Duration::ZERO);
        self.read_frees();
        let now = self.now();
        let managed = self.file_systems.iter().zip(seals).filter(|(managed, _)| managed.wants_frees());
        for (managed, seal) in managed {
            let saved = seal.map_err(PersistenceError::from);
            if let Err(error) = saved.and_then(|seal| save(&self.context, seal, managed, now)) {
                let fields: [Field; 2] =
                    [("mount", &managed.found.mount.target.display()), ("reason", &chain(&error))];
                self.log.warning(LogEvent::StateNotSaved, "state not saved", &fields);
            }
        }
    }

    /// Tracks the frees of the file system if its policy needs them, and disables their events if not.
    pub(super) fn follow(
        &mut self,
        mut managed: ManagedFileSystem,
        early: Option<EarlySeal>,
        was_followed: bool,
        now: Duration,
    ) -> ManagedFileSystem {
        if managed.is_unknown() {
            managed.early = early;
            return managed;
        }
        let mount = managed.found.mount.clone();
        let followed = match (&mut self.frees, managed.wants_frees()) {
            (Ok(frees), true) if !was_followed => frees.follow(&mount).map_err(TrackingError::from),
            (Ok(frees), false) => {
                // If its events can't be disabled, they are ignored.
                _ = frees.leave_out(&mount);
                return managed;
            }
            (Err(error), true) => Err(TrackingError::Unavailable(Rc::clone(error))),
            _ => return managed,
        };
        if let Err(TrackingError::Follow(error @ TracefsError::NoAnswer { .. })) = &followed {
            managed.forget_storage(chain(error), now);
            managed.early = early;
            return managed;
        }
        match followed {
            Ok(coverage) => self.restore_pending(&mut managed, early, coverage, now),
            Err(error) => self.fall_back_to_full_trims(&mut managed, &error, now),
        }
        managed
    }

    /// Trims all free space of the file system periodically, because its frees can't be tracked.
    pub(super) fn fall_back_to_full_trims(
        &self,
        managed: &mut ManagedFileSystem,
        error: &TrackingError,
        now: Duration,
    ) {
        let fields: [Field; 2] =
            [("mount", &managed.found.mount.target.display()), ("reason", &chain(error))];
        self.log.warning(
            LogEvent::FreesUnavailable,
            "free events unavailable; trimming all free space once a week",
            &fields,
        );
        managed.disable_frees(now);
    }

    /// Restores the saved pending extents, or takes all free space as pending.
    fn restore_pending(
        &self,
        managed: &mut ManagedFileSystem,
        early: Option<EarlySeal>,
        coverage: FreeCoverage,
        now: Duration,
    ) {
        match restore(&self.context, managed, early, coverage, now) {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                let fields: [Field; 2] =
                    [("mount", &managed.found.mount.target.display()), ("reason", &chain(&error))];
                self.log.info(
                    LogEvent::StateNotRestored,
                    "saved state not used; taking all free space as pending",
                    &fields,
                );
            }
        }
        managed.add_all_free(now);
    }

    /// Logs how the service treats a file system from now on.
    fn log_managed(&self, managed: &ManagedFileSystem) {
        let mount = managed.found.mount.target.display();
        match (managed.off(), managed.steered()) {
            (Some(reason), _) => {
                let fields: [Field; 2] = [("mount", &mount), ("reason", &chain(reason))];
                self.log.info(LogEvent::NotManaged, "not managed", &fields);
            }
            (None, Some(knobs)) => {
                let fields: [Field; 2] = [("mount", &mount), ("knobs", &knobs)];
                self.log.info(LogEvent::Steered, "steered", &fields);
            }
            (None, None) => {
                let fields: [Field; 3] =
                    [("mount", &mount), ("fs", &managed.found.mount.fstype), ("policy", &managed.policy())];
                self.log.info(LogEvent::Managed, "managed", &fields);
            }
        }
    }
}
