//! Runs the policy of a file system when it is due, and retries after failures.

use std::io;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use trimtab_core::error::chain;
use trimtab_core::{Bytes, Extent};
use trimtab_linux::block::BlockDevice;
use trimtab_linux::forked;
use trimtab_linux::mount::{Mount, is_gone};
use trimtab_linux::trim::{self, TrimError};

use super::removable::{LOOK_INTERVAL, Removable};
use super::{ManagedFileSystem, Work};
use crate::free_space::{Division, FreeSpace, FreeSpaceError, Opener};
use crate::policy_driver::RunError;
use crate::service::backoff::Backoff;
use crate::service::storage::Exclusion;
use crate::service::timeout::NoAnswer;

/// The pause after a failed run; it doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// How long a file system is left alone after a trim of it was ended.
const GIVE_WAY: Duration = Duration::from_secs(3);

/// After a query of all free space, there is no other for this many times as long as it took, up to the longest pause.
const QUERY_PAUSE: u32 = 20;
const LONGEST_QUERY_PAUSE: Duration = Duration::from_secs(3600);

/// All free space, which is to be added to the pending extents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// When it is queried, or its answer is looked for.
    due: Duration,
    /// When the query began; `None` if it has not.
    begun: Option<Duration>,
    /// The pause after there was no answer.
    retry: Option<Backoff>,
    /// Whether it is wanted once more, because the query may have begun too early.
    is_outdated: bool,
}

impl Wanted {
    fn at(due: Duration) -> Self {
        Self { due, begun: None, retry: None, is_outdated: false }
    }

    /// The same, to be tried again after a pause, because there is no answer at `now`.
    fn later(self, now: Duration) -> Self {
        let retry = Backoff::after(self.retry, FIRST_PAUSE, now);
        Self { due: retry.at(), retry: Some(retry), ..self }
    }

    /// The same, to be begun anew.
    pub fn anew(self) -> Self {
        Self { begun: None, is_outdated: false, ..self }
    }
}

/// Why the free space of a file system can't be queried.
#[derive(Debug, thiserror::Error)]
pub(super) enum FreeSpaceQueryError {
    /// The file system doesn't answer.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    /// It can't be synced.
    #[error(transparent)]
    Sync(#[from] TrimError),
    /// Its free space can't be read.
    #[error(transparent)]
    Read(#[from] io::Error),
}

/// The result of a run, as far as it is logged.
#[derive(Debug)]
pub(in crate::service) enum RunOutcome {
    /// It failed with a new reason.
    Failed(RunError),
    /// The file system doesn't support discards; it is no longer managed.
    Unsupported(RunError),
    /// The file system is read-only by now. If an error made it so, nothing else says that its mount has changed.
    ReadOnly,
    /// It succeeded after a failure.
    Recovered,
    /// It succeeds or fails as before: there is nothing to log.
    Unchanged,
}

/// A failed run, and how long to wait for the next one.
#[derive(Debug)]
pub(super) struct Failure {
    pub reason: String,
    step: Step,
    retry: Backoff,
}

/// A part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The query of all free space.
    Query,
    /// The trims.
    Trim,
}

impl Failure {
    /// Returns a failure with a pause twice as long as `earlier` has.
    fn after(earlier: Option<&Self>, step: Step, reason: String, now: Duration) -> Self {
        let retry = Backoff::after(earlier.map(|earlier| earlier.retry), FIRST_PAUSE, now);
        Self { reason, step, retry }
    }

    /// Whether it is over after a run that did not fail, although that trimmed nothing. `is_pending` says whether extents are
    /// left to be trimmed.
    fn ends_without_a_trim(&self, is_pending: bool) -> bool {
        self.step == Step::Query || !is_pending
    }
}

impl ManagedFileSystem {
    /// Adds all free space to the pending extents, unless there are periodic full trims. If it was read a moment ago
    /// or can't be read now, a later run does so, and reports errors.
    pub fn add_all_free(&mut self, now: Duration) {
        if !self.wants_frees() {
            return;
        }
        match &mut self.wanted {
            Some(wanted) => wanted.is_outdated |= wanted.begun.is_some(),
            None => self.wanted = Some(Wanted::at(self.next_query.max(now).max(self.paused))),
        }
        _ = self.read_wanted(now);
    }

    /// Adds all free space to the pending extents if that is wanted and due.
    fn read_wanted(&mut self, now: Duration) -> Result<(), FreeSpaceQueryError> {
        let Some(mut wanted) = self.wanted.filter(|wanted| wanted.due <= now) else { return Ok(()) };
        if !self.wants_frees() {
            self.wanted = None;
            return Ok(());
        }
        let begun = *wanted.begun.get_or_insert(now);
        let started = Instant::now();
        let free = self.query_all_free();
        let end = now + started.elapsed();
        let Work::On { driver, .. } = &mut self.work else { return Ok(()) };
        match free {
            Ok(free) => {
                let pause = end.saturating_sub(begun).saturating_mul(QUERY_PAUSE);
                self.next_query = end + pause.min(LONGEST_QUERY_PAUSE);
                self.wanted = wanted.is_outdated.then(|| Wanted::at(self.next_query));
                free.into_iter().for_each(|extent| driver.freed(now, extent));
                Ok(())
            }
            Err(error) => {
                let later = wanted.later(end);
                // The query goes on beside the service, or it failed.
                let goes_on = matches!(error, FreeSpaceQueryError::NoAnswer(_));
                self.wanted = Some(if goes_on { later } else { later.anew() });
                // The service is about to see that it was unmounted.
                let is_over = matches!(&error, FreeSpaceQueryError::Read(source) if is_gone(source));
                if goes_on || is_over { Ok(()) } else { Err(error) }
            }
        }
    }

    /// Whether free space is missing from the pending extents because it has not been read.
    pub fn lacks_free_space(&self) -> bool {
        self.wanted.is_some()
    }

    /// Says why it has not been read.
    pub(super) fn unread(&self) -> Option<String> {
        self.wanted.map(|wanted| match wanted.begun {
            Some(_) => format!("its free space has not been read yet: {NoAnswer}"),
            None => "its free space is read again soon".to_owned(),
        })
    }

    /// Returns all space that may be free, or that an earlier query found which still ran.
    fn query_all_free(&mut self) -> Result<Vec<Extent>, FreeSpaceQueryError> {
        let (mount, devices) =
            (self.found.mount.clone(), self.storage.devices(&self.context.machine.sysfs()));
        self.free_space.run(move || {
            // Frees that are not committed yet are not visible yet, and their events may have been lost.
            if let [device] = devices.as_slice() {
                trim::sync_by_device(&mount.target, device)?;
            }
            Ok(in_process(|| all_free(&mount, &devices))?)
        })?
    }

    /// Returns when the next run is due; `None` if nothing is pending.
    pub fn next_run(&self) -> Option<Duration> {
        let Work::On { driver, full_trim } = &self.work else { return None };
        if self.lease.is_some() {
            return None;
        }
        let full_trim = full_trim.map(|full_trim| full_trim.next());
        let wanted = self.wanted.map(|wanted| wanted.due);
        let next = driver
            .next_run()
            .into_iter()
            .chain(full_trim)
            .chain(wanted)
            .min()?
            .max(self.held)
            .max(self.paused);
        Some(self.failure.as_ref().map_or(next, |failure| next.max(failure.retry.at())))
    }

    /// Runs what is due.
    pub fn run(&mut self, now: Duration) -> RunOutcome {
        if self.removable.as_mut().is_some_and(|removable| !removable.is_in_use(now)) {
            self.held = now + LOOK_INTERVAL;
            return RunOutcome::Unchanged;
        }
        let outcome = self.run_due(now);
        self.removable.iter_mut().for_each(Removable::leave_out_own);
        outcome
    }

    fn run_due(&mut self, now: Duration) -> RunOutcome {
        let queried = self.query_if_due(now);
        let step = if queried.is_err() { Step::Query } else { Step::Trim };
        match queried.and_then(|()| self.trim_if_due(now)) {
            Ok(has_trimmed) => {
                self.is_frozen &= !has_trimmed;
                self.end_full_trim(now);
                if has_trimmed {
                    self.statistics.last_trim = Some(SystemTime::now());
                }
                let (is_unread, is_pending) = (self.lacks_free_space(), self.pending().next().is_some());
                // What failed works again, or nothing is left that could fail.
                let is_over = |failure: &mut Failure| {
                    (has_trimmed && failure.step == Step::Trim)
                        || (!is_unread && failure.ends_without_a_trim(is_pending))
                };
                self.failure.take_if(is_over).map_or(RunOutcome::Unchanged, |_| RunOutcome::Recovered)
            }
            Err(RunError::Trim(error)) if self.is_read_only(&error) => {
                self.held = now + GIVE_WAY;
                RunOutcome::ReadOnly
            }
            // Nothing failed: somebody needs the file system for something else, or it is gone.
            Err(RunError::Trim(error)) if error.is_no_failure() => {
                self.held = now + GIVE_WAY;
                self.is_frozen = matches!(error, TrimError::Frozen { .. });
                RunOutcome::Unchanged
            }
            Err(error @ RunError::Trim(TrimError::Unsupported { .. })) => {
                self.count_failure(&error);
                if let Work::On { driver, .. } = &self.work {
                    self.statistics.add(driver.totals());
                }
                self.learned = self.learned();
                self.refused = now;
                self.work = Work::Off(Exclusion::Unsupported.into());
                RunOutcome::Unsupported(error)
            }
            Err(error) => {
                self.count_failure(&error);
                let earlier = self.failure.take();
                let failure = Failure::after(earlier.as_ref(), step, chain(&error), now);
                let is_new = earlier.is_none_or(|earlier| earlier.reason != failure.reason);
                self.failure = Some(failure);
                if is_new { RunOutcome::Failed(error) } else { RunOutcome::Unchanged }
            }
        }
    }

    /// Returns whether a trim failed because the file system is read-only by now.
    fn is_read_only(&self, error: &TrimError) -> bool {
        let TrimError::Trim { source, .. } = error else { return false };
        source.raw_os_error() == Some(Errno::ROFS.raw_os_error())
            && rustix::fs::statvfs(&self.found.mount.target)
                .is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
    }

    /// Remembers that a full trim has ended, if one was under way and nothing of it is left.
    fn end_full_trim(&mut self, now: Duration) {
        if let Work::On { driver, full_trim: Some(full_trim) } = &mut self.work
            && driver.policy().is_settled()
            && full_trim.end(now, SystemTime::now())
        {
            self.identify();
            let Some(id) = &self.id else { return };
            // If that fails, it is trimmed again sooner than necessary.
            _ = self.context.write_states(|store| {
                store.stamp(id);
                Ok(())
            });
        }
    }

    fn count_failure(&mut self, error: &RunError) {
        *self.statistics.failures.entry(failure_label(error)).or_default() += 1;
    }

    /// Queries all free space if a full trim begins or it is wanted.
    fn query_if_due(&mut self, now: Duration) -> Result<(), RunError> {
        let mount = self.found.mount.target.clone();
        let failed = |error| match error {
            FreeSpaceQueryError::NoAnswer(NoAnswer) => TrimError::NoAnswer { mount },
            FreeSpaceQueryError::Sync(error) => error,
            FreeSpaceQueryError::Read(source) => TrimError::of_query(&mount, source),
        };
        if let Work::On { full_trim: Some(full_trim), .. } = &mut self.work
            && full_trim.is_due(now, SystemTime::now())
        {
            let free = self.query_all_free().map_err(failed)?;
            let Work::On { driver, full_trim: Some(full_trim) } = &mut self.work else { return Ok(()) };
            free.into_iter().for_each(|extent| driver.freed(now, extent));
            full_trim.begin(now);
        } else {
            self.read_wanted(now).map_err(failed)?;
        }
        Ok(())
    }

    /// Runs the policy if it is due. Returns whether it trimmed.
    fn trim_if_due(&mut self, now: Duration) -> Result<bool, RunError> {
        let Work::On { driver, .. } = &mut self.work else { return Ok(false) };
        if driver.next_run().is_none_or(|next| next > now) {
            return Ok(false);
        }
        driver.run(now)
    }
}

/// Returns the extents that `work` finds, in a process of its own: on a drive that hangs, a thread of this process would keep it
/// from ending.
fn in_process(work: impl FnOnce() -> io::Result<Vec<Extent>>) -> io::Result<Vec<Extent>> {
    let numbers = |extent: Extent| [extent.start, extent.end].into_iter().flat_map(|at| at.0.to_le_bytes());
    // An error passes by its number.
    let by_number = |error| if is_gone(&error) { Errno::NOENT.into() } else { error };
    let bytes =
        forked::attempt(None, || Ok(work().map_err(by_number)?.into_iter().flat_map(numbers).collect()))?;
    let (numbers, _) = bytes.as_chunks::<8>();
    let (pairs, _) = numbers.as_chunks::<2>();
    let number = |bytes: [u8; 8]| Bytes(u64::from_le_bytes(bytes));
    Ok(pairs.iter().map(|[start, end]| Extent::new(number(*start), number(*end))).collect())
}

/// Returns all space of a file system that may be free, in trim addresses.
fn all_free(mount: &Mount, devices: &[BlockDevice]) -> io::Result<Vec<Extent>> {
    let opener = Opener { mount: &mount.target, devices };
    if mount.fstype == "btrfs" {
        let chunks = trimtab_linux::btrfs::chunks(opener.open()?)?;
        return Ok(chunks.into_iter().map(|chunk| chunk.extent).collect());
    }
    match FreeSpace::read(opener, &Division::Unknown) {
        Ok(free) => Ok(free.extents().to_vec()),
        Err(FreeSpaceError::Unsupported) => {
            let size = rustix::fs::fstatvfs(opener.open()?)?;
            Ok(vec![Extent::at(Bytes::ZERO, Bytes(size.f_blocks * size.f_frsize))])
        }
        Err(FreeSpaceError::Read(source)) => Err(source),
    }
}

/// All reasons that [`failure_label`] returns.
pub(in crate::service) const REFUSALS: [&str; 9] =
    ["unsupported", "io_error", "no_answer", "read_only", "busy", "denied", "full", "other", "no_device"];

/// Returns the metric label for why a run failed.
fn failure_label(error: &RunError) -> &'static str {
    match error {
        RunError::Trim(TrimError::Unsupported { .. }) => "unsupported",
        RunError::Trim(TrimError::Failed { .. }) => "io_error",
        RunError::Trim(TrimError::NoAnswer { .. }) => "no_answer",
        RunError::Trim(TrimError::Trim { source, .. }) => {
            match source.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::IO) => "io_error",
                Some(Errno::ROFS) => "read_only",
                Some(Errno::BUSY) => "busy",
                Some(Errno::PERM | Errno::ACCESS) => "denied",
                _ => "other",
            }
        }
        RunError::Trim(TrimError::Full { .. }) => "full",
        RunError::Trim(_) => "other",
        RunError::Block(_) => "no_device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn query_that_failed_is_begun_anew_after_longer_and_longer_pauses() {
        let mut wanted = Wanted::at(SECOND);
        for pause in [1, 2, 4] {
            wanted.begun = Some(wanted.due);
            wanted.is_outdated = true;
            let end = wanted.due + SECOND;
            let going_on = wanted.later(end);
            assert_eq!(going_on.begun, Some(wanted.due));
            assert!(going_on.is_outdated, "it does not show what was freed since it began");
            wanted = going_on.anew();
            assert_eq!(wanted.due, end + SECOND * pause);
            assert!(wanted.begun.is_none() && !wanted.is_outdated);
        }
    }

    #[test]
    fn failure_of_a_query_ends_when_it_succeeds_and_that_of_a_trim_with_a_trim() {
        let failed = |step| Failure::after(None, step, String::new(), SECOND);
        assert!(failed(Step::Query).ends_without_a_trim(true));
        assert!(!failed(Step::Trim).ends_without_a_trim(true));
        assert!(failed(Step::Trim).ends_without_a_trim(false));
    }
}
