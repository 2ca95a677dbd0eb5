//! File systems come into the service's care and leave it.

use std::time::Duration;

use trimtab_core::error::chain;
use trimtab_doctor::verdict_on;
use trimtab_linux::stack::StackError;
use trimtab_linux::tracefs::FreeCoverage;
use trimtab_linux::trim;

use super::{Again, Service};
use crate::service::keep::{restore, save, seal, seal_gone};
use crate::service::log::{Field, LogEvent};
use crate::service::mounts::Found;
use crate::service::patience::{NO_ANSWER, in_time};
use crate::service::storage::Storage;
use crate::service::tended::Tended;

/// How long it is until what couldn't be told is looked at again: twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// How long after a file system is gone what it freed last can be heard.
const LAST_WORDS: Duration = Duration::from_millis(15);
/// Why nothing is known of one that is gone.
const MISSED: &str = "not all of what it freed last was heard";

impl Service {
    /// Has what is mounted looked at again in a while.
    pub(super) fn try_again(&mut self) {
        let pause = self.look_again.map_or(FIRST_PAUSE, |again| again.pause);
        let at = self.now() + pause;
        self.look_again = Some(Again { at, pause: (pause * 2).min(LONGEST_PAUSE) });
    }

    /// Tends what is mounted now as a new configuration says, and warns of what that names in vain.
    pub(super) fn take_up_configuration(&mut self) -> Result<(), StackError> {
        self.look_at_mounts()?;
        for mount in self.config.not_mounted(&self.site.machine)? {
            self.log.warning(
                LogEvent::NotMounted,
                "configured, but no file system on a block device is mounted there yet",
                &[("mount", &mount.display())],
            );
        }
        Ok(())
    }

    /// Tends what is mounted now, and nothing else.
    pub(super) fn look_at_mounts(&mut self) -> Result<(), StackError> {
        let now = self.now();
        let all = Found::all(&self.site.machine)?;
        self.part_with_gone(&all, now);
        let mut before = std::mem::take(&mut self.tended);
        for found in all {
            let known = before.iter().position(|tended| found.continues(&tended.found));
            let known = known.map(|place| before.swap_remove(place));
            let (tended, was_followed) = match known {
                Some(mut tended) if !tended.is_unknown() => {
                    let was_followed = tended.wants_frees();
                    if !tended.change(found, &self.config, now) {
                        self.tended.push(tended);
                        continue;
                    }
                    (tended, was_followed)
                }
                unknown => {
                    let mut asked = unknown.map(|tended| tended.asked).unwrap_or_default();
                    let target = found.mount.target.clone();
                    // What it lies on may be changing just now.
                    let storage = match asked.ask(move || verdict_on(&target)) {
                        Some(Ok(judged)) => judged.into(),
                        Some(Err(error)) => Storage::unknown(chain(&error)),
                        None => Storage::unknown(NO_ANSWER.to_owned()),
                    };
                    let mut tended = Tended::new(&self.site, found, storage, &self.config, now);
                    tended.asked = asked;
                    (tended, false)
                }
            };
            let tended = self.follow(tended, was_followed, now);
            self.tell(&tended);
            self.tended.push(tended);
        }
        match self.tended.iter().any(Tended::is_unknown) {
            true => self.try_again(),
            false => self.look_again = None,
        }
        Ok(())
    }

    /// Keeps what is known of file systems that were unmounted: all are mounted that `all` has.
    fn part_with_gone(&mut self, all: &[Found], now: Duration) {
        let is_here = |tended: &Tended| all.iter().any(|found| found.continues(&tended.found));
        let (here, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.tended).into_iter().partition(is_here);
        self.tended = here;
        if gone.is_empty() {
            return;
        }
        let known = self.tended.len();
        self.tended.extend(gone);
        let seal = |gone: &Tended| gone.wants_frees().then(|| seal_gone(&self.site, gone)).flatten();
        let seals: Vec<_> = self.tended[known..].iter().map(seal).collect();
        if seals.iter().any(Option::is_some) {
            std::thread::sleep(LAST_WORDS);
            self.read_at = Some(Duration::ZERO);
            self.listen();
        }
        for (gone, seal) in self.tended.split_off(known).into_iter().zip(seals) {
            let mount = gone.found.mount.target.display();
            let kept = match seal {
                None => Ok(()),
                Some(_) if !gone.wants_frees() => Err(MISSED.to_owned()),
                Some(seal) => save(&self.site, seal, &gone, now),
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
    pub(super) fn keep_all(&mut self) {
        // When the machine is shut down, this is told to end just after the last unmount.
        if let Ok(all) = Found::all(&self.site.machine) {
            self.part_with_gone(&all, self.now());
        }
        let answers = |tended: &Tended| {
            let target = tended.found.mount.target.clone();
            tended.wants_frees() && in_time(move || trim::sync(&target)).is_some()
        };
        // What one has in memory may be written to another that it lies on, which is sealed after that.
        let answers: Vec<_> = self.tended.iter().map(answers).collect();
        let sealed = |(tended, answers): (&Tended, bool)| answers.then(|| seal(&self.site, tended)).flatten();
        let seals: Vec<_> = self.tended.iter().zip(answers).map(sealed).collect();
        // What was freed before a seal is heard now. What is freed after it is written, and the seal doesn't hold.
        std::thread::sleep(LAST_WORDS);
        self.read_at = Some(Duration::ZERO);
        self.listen();
        let now = self.now();
        let tended = self.tended.iter().zip(seals).filter(|(tended, _)| tended.wants_frees());
        for (tended, seal) in tended {
            let kept = seal.ok_or_else(|| NO_ANSWER.to_owned());
            if let Err(reason) = kept.and_then(|seal| save(&self.site, seal, tended, now)) {
                let fields: [Field; 2] =
                    [("mount", &tended.found.mount.target.display()), ("reason", &reason)];
                self.log.warning(LogEvent::StateNotSaved, "state not saved", &fields);
            }
        }
    }

    /// Hears what the file system frees if that is wanted, and is not woken by it if not.
    pub(super) fn follow(&mut self, mut tended: Tended, was_followed: bool, now: Duration) -> Tended {
        let mount = tended.found.mount.clone();
        let followed = match (&mut self.frees, tended.wants_frees()) {
            (Ok(frees), true) if !was_followed => frees.follow(&mount).map_err(|error| chain(&error)),
            (Ok(frees), false) => {
                // Where it can't be left out, it is heard and passed over.
                _ = frees.leave_out(&mount);
                return tended;
            }
            (Err(reason), true) => Err(reason.clone()),
            _ => return tended,
        };
        match followed.and_then(|heard| self.begin_with(&mut tended, heard, now)) {
            Ok(()) => {}
            Err(reason) => self.give_up_hearing(&mut tended, &reason, now),
        }
        tended
    }

    /// Trims all that is free from time to time, for this reason.
    pub(super) fn give_up_hearing(&self, tended: &mut Tended, reason: &str, now: Duration) {
        let fields: [Field; 2] = [("mount", &tended.found.mount.target.display()), ("reason", &reason)];
        self.log.warning(
            LogEvent::FreesUnavailable,
            "free events unavailable; trimming all free space once a week",
            &fields,
        );
        tended.go_without_frees(now);
    }

    /// Begins with what is known to be pending; with all that is free where nothing is known.
    fn begin_with(&self, tended: &mut Tended, heard: FreeCoverage, now: Duration) -> Result<(), String> {
        match restore(&self.site, tended, heard, now) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(reason) => {
                let fields: [Field; 2] =
                    [("mount", &tended.found.mount.target.display()), ("reason", &reason)];
                self.log.info(
                    LogEvent::StateNotRestored,
                    "saved state not used; taking all free space as pending",
                    &fields,
                );
            }
        }
        tended.take_all_for_pending(now)
    }

    /// Logs how a file system is tended from now on.
    fn tell(&self, tended: &Tended) {
        let mount = tended.found.mount.target.display();
        match (tended.off(), tended.steered()) {
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
                    [("mount", &mount), ("fs", &tended.found.mount.fstype), ("policy", &tended.policy())];
                self.log.info(LogEvent::Managed, "managed", &fields);
            }
        }
    }
}
