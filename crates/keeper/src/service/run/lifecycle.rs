//! File systems come into the service's care and leave it.

use std::time::Duration;

use trimtab_core::error::chain;
use trimtab_doctor::verdict_on;
use trimtab_linux::stack::StackError;
use trimtab_linux::tracefs::FreeCoverage;
use trimtab_linux::trim;

use super::{Retry, Service};
use crate::service::log::{Field, LogEvent};
use crate::service::managed::ManagedFileSystem;
use crate::service::mounts::Found;
use crate::service::patience::{NO_ANSWER, in_time};
use crate::service::persistence::{restore, save, seal, seal_after_unmount};
use crate::service::storage::Storage;

/// How long it is until what couldn't be told is looked at again: twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// How long after a file system is gone what it freed last can be heard.
const LAST_EVENTS: Duration = Duration::from_millis(15);
/// Why nothing is known of one that is gone.
const INCOMPLETE: &str = "not all of what it freed last was heard";

impl Service {
    /// Has what is mounted looked at again in a while.
    pub(super) fn schedule_retry(&mut self) {
        let pause = self.mount_retry.map_or(FIRST_PAUSE, |again| again.pause);
        let at = self.now() + pause;
        self.mount_retry = Some(Retry { at, pause: (pause * 2).min(LONGEST_PAUSE) });
    }

    /// Tends what is mounted now as a new configuration says, and warns of what that names in vain.
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

    /// Tends what is mounted now, and nothing else.
    pub(super) fn update_mounts(&mut self) -> Result<(), StackError> {
        let now = self.now();
        let all = Found::all(&self.context.machine)?;
        self.remove_unmounted(&all, now);
        let mut before = std::mem::take(&mut self.file_systems);
        for found in all {
            let known = before.iter().position(|managed| found.continues(&managed.found));
            let known = known.map(|place| before.swap_remove(place));
            let (managed, was_followed) = match known {
                Some(mut managed) if !managed.is_unknown() => {
                    let was_followed = managed.wants_frees();
                    if !managed.change(found, &self.config, now) {
                        self.file_systems.push(managed);
                        continue;
                    }
                    (managed, was_followed)
                }
                unknown => {
                    let mut asked = unknown.map(|managed| managed.asked).unwrap_or_default();
                    let target = found.mount.target.clone();
                    // What it lies on may be changing just now.
                    let storage = match asked.ask(move || verdict_on(&target)) {
                        Some(Ok(judged)) => judged.into(),
                        Some(Err(error)) => Storage::unknown(chain(&error)),
                        None => Storage::unknown(NO_ANSWER.to_owned()),
                    };
                    let mut managed =
                        ManagedFileSystem::new(&self.context, found, storage, &self.config, now);
                    managed.asked = asked;
                    (managed, false)
                }
            };
            let managed = self.follow(managed, was_followed, now);
            self.log_managed(&managed);
            self.file_systems.push(managed);
        }
        match self.file_systems.iter().any(ManagedFileSystem::is_unknown) {
            true => self.schedule_retry(),
            false => self.mount_retry = None,
        }
        Ok(())
    }

    /// Keeps what is known of file systems that were unmounted: all are mounted that `all` has.
    fn remove_unmounted(&mut self, all: &[Found], now: Duration) {
        let is_here = |managed: &ManagedFileSystem| all.iter().any(|found| found.continues(&managed.found));
        let (here, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.file_systems).into_iter().partition(is_here);
        self.file_systems = here;
        if gone.is_empty() {
            return;
        }
        let known = self.file_systems.len();
        self.file_systems.extend(gone);
        let seal = |gone: &ManagedFileSystem| {
            gone.wants_frees().then(|| seal_after_unmount(&self.context, gone)).flatten()
        };
        let seals: Vec<_> = self.file_systems[known..].iter().map(seal).collect();
        if seals.iter().any(Option::is_some) {
            std::thread::sleep(LAST_EVENTS);
            self.read_at = Some(Duration::ZERO);
            self.listen();
        }
        for (gone, seal) in self.file_systems.split_off(known).into_iter().zip(seals) {
            let mount = gone.found.mount.target.display();
            let kept = match seal {
                None => Ok(()),
                Some(_) if !gone.wants_frees() => Err(INCOMPLETE.to_owned()),
                Some(seal) => save(&self.context, seal, &gone, now),
            };
            if let Ok(frees) = &mut self.frees {
                match kept {
                    Ok(()) => frees.forget(gone.found.number()),
                    // It may live on unseen, as after umount --lazy: what it frees until it is seen again is
                    // missed.
                    Err(_) => _ = frees.leave_out(&gone.found.mount),
                }
            }
            if let Err(reason) = kept {
                let fields: [Field; 2] = [("mount", &mount), ("reason", &reason)];
                self.log.info(LogEvent::StateNotSaved, "state not saved", &fields);
            }
            self.log.info(LogEvent::Unmounted, "unmounted", &[("mount", &mount)]);
        }
    }

    /// Keeps what is known of all file systems.
    pub(super) fn save_all(&mut self) {
        // When the machine is shut down, this is told to end just after the last unmount.
        if let Ok(all) = Found::all(&self.context.machine) {
            self.remove_unmounted(&all, self.now());
        }
        let answers = |managed: &ManagedFileSystem| {
            let target = managed.found.mount.target.clone();
            managed.wants_frees() && in_time(move || trim::sync(&target)).is_some()
        };
        // What one has in memory may be written to another that it lies on, which is sealed after that.
        let answers: Vec<_> = self.file_systems.iter().map(answers).collect();
        let sealed = |(managed, answers): (&ManagedFileSystem, bool)| {
            answers.then(|| seal(&self.context, managed)).flatten()
        };
        let seals: Vec<_> = self.file_systems.iter().zip(answers).map(sealed).collect();
        // What was freed before a seal is heard now. What is freed after it is written, and the seal doesn't hold.
        std::thread::sleep(LAST_EVENTS);
        self.read_at = Some(Duration::ZERO);
        self.listen();
        let now = self.now();
        let managed = self.file_systems.iter().zip(seals).filter(|(managed, _)| managed.wants_frees());
        for (managed, seal) in managed {
            let kept = seal.ok_or_else(|| NO_ANSWER.to_owned());
            if let Err(reason) = kept.and_then(|seal| save(&self.context, seal, managed, now)) {
                let fields: [Field; 2] =
                    [("mount", &managed.found.mount.target.display()), ("reason", &reason)];
                self.log.warning(LogEvent::StateNotSaved, "state not saved", &fields);
            }
        }
    }

    /// Hears what the file system frees if that is wanted, and is not woken by it if not.
    pub(super) fn follow(
        &mut self,
        mut managed: ManagedFileSystem,
        was_followed: bool,
        now: Duration,
    ) -> ManagedFileSystem {
        let mount = managed.found.mount.clone();
        let followed = match (&mut self.frees, managed.wants_frees()) {
            (Ok(frees), true) if !was_followed => frees.follow(&mount).map_err(|error| chain(&error)),
            (Ok(frees), false) => {
                // Where it can't be left out, it is heard and passed over.
                _ = frees.leave_out(&mount);
                return managed;
            }
            (Err(reason), true) => Err(reason.clone()),
            _ => return managed,
        };
        match followed.and_then(|heard| self.restore_pending(&mut managed, heard, now)) {
            Ok(()) => {}
            Err(reason) => self.fall_back_to_full_trims(&mut managed, &reason, now),
        }
        managed
    }

    /// Trims all that is free from time to time, for this reason.
    pub(super) fn fall_back_to_full_trims(
        &self,
        managed: &mut ManagedFileSystem,
        reason: &str,
        now: Duration,
    ) {
        let fields: [Field; 2] = [("mount", &managed.found.mount.target.display()), ("reason", &reason)];
        self.log.warning(
            LogEvent::FreesUnavailable,
            "free events unavailable; trimming all free space once a week",
            &fields,
        );
        managed.disable_frees(now);
    }

    /// Begins with what is known to be pending; with all that is free where nothing is known.
    fn restore_pending(
        &self,
        managed: &mut ManagedFileSystem,
        heard: FreeCoverage,
        now: Duration,
    ) -> Result<(), String> {
        match restore(&self.context, managed, heard, now) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(reason) => {
                let fields: [Field; 2] =
                    [("mount", &managed.found.mount.target.display()), ("reason", &reason)];
                self.log.info(
                    LogEvent::StateNotRestored,
                    "saved state not used; taking all free space as pending",
                    &fields,
                );
            }
        }
        managed.add_all_free(now)
    }

    /// Logs how a file system is tended from now on.
    fn log_managed(&self, managed: &ManagedFileSystem) {
        let mount = managed.found.mount.target.display();
        match (managed.off(), managed.steered()) {
            (Some(reason), _) => {
                let fields: [Field; 2] = [("mount", &mount), ("reason", &reason)];
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
