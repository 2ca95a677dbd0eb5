//! Runs the policy of a file system when it is due, and retries after failures.

use std::io;
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use trimtab_core::error::chain;
use trimtab_core::{Bytes, Extent};
use trimtab_linux::block::BlockDevice;
use trimtab_linux::mount::{Mount, open_of};
use trimtab_linux::trim::{self, TrimError};

use super::{ManagedFileSystem, Work};
use crate::free_space::{Division, FreeSpace, FreeSpaceError};
use crate::policy_driver::RunError;
use crate::service::backoff::Backoff;
use crate::service::storage::Exclusion;
use crate::service::timeout::{NoAnswer, with_timeout};

/// The pause after a failed run; it doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Why the free space of a file system can't be queried.
#[derive(Debug, thiserror::Error)]
pub(in crate::service) enum FreeSpaceQueryError {
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
    /// It succeeded after a failure.
    Recovered,
    /// It succeeds or fails as before: there is nothing to log.
    Unchanged,
}

/// A failed run, and how long to wait for the next one.
#[derive(Debug)]
pub(super) struct Failure {
    pub reason: String,
    retry: Backoff,
}

impl Failure {
    /// Returns a failure with a pause twice as long as that of `earlier`.
    fn after(earlier: Option<&Self>, reason: String, now: Duration) -> Self {
        Self { reason, retry: Backoff::after(earlier.map(|earlier| earlier.retry), FIRST_PAUSE, now) }
    }
}

impl ManagedFileSystem {
    /// Adds all free space to the pending extents, unless there are periodic full trims.
    ///
    /// # Errors
    /// [`FreeSpaceQueryError`]; the pending extents stay.
    pub fn add_all_free(&mut self, now: Duration) -> Result<(), FreeSpaceQueryError> {
        let Work::On { driver, full_trim: None } = &mut self.work else { return Ok(()) };
        // Frees that are not committed yet are not visible yet, and their events may have been lost.
        let target = self.found.mount.target.clone();
        with_timeout(move || trim::sync(&target))??;
        let (mount, devices) =
            (self.found.mount.clone(), self.storage.devices(&self.context.machine.sysfs()));
        let free = with_timeout(move || all_free(&mount, &devices))??;
        free.into_iter().for_each(|extent| driver.freed(now, extent));
        Ok(())
    }

    /// Returns when the next run is due; none if nothing is pending.
    pub fn next_run(&self) -> Option<Duration> {
        let Work::On { driver, full_trim } = &self.work else { return None };
        if self.lease.is_some() {
            return None;
        }
        let next = driver.next_run().into_iter().chain(full_trim.map(|full_trim| full_trim.next)).min()?;
        Some(self.failure.as_ref().map_or(next, |failure| next.max(failure.retry.at())))
    }

    /// Runs what is due.
    pub fn run(&mut self, now: Duration) -> RunOutcome {
        match self.run_if_due(now) {
            Ok(false) => RunOutcome::Unchanged,
            Ok(true) => {
                self.statistics.last_trim = Some(SystemTime::now());
                if let Work::On { driver, full_trim: Some(_) } = &self.work
                    && driver.pending().is_empty()
                    && let Some(id) = self.found.id()
                {
                    self.context.store.stamp(&id);
                }
                self.failure.take().map_or(RunOutcome::Unchanged, |_| RunOutcome::Recovered)
            }
            Err(error @ RunError::Trim(TrimError::Unsupported { .. })) => {
                self.count_failure(&error);
                if let Work::On { driver, .. } = &self.work {
                    self.statistics.add(driver.totals());
                }
                self.work = Work::Off(Exclusion::Unsupported.into());
                RunOutcome::Unsupported(error)
            }
            Err(error) => {
                self.count_failure(&error);
                let earlier = self.failure.take();
                let failure = Failure::after(earlier.as_ref(), chain(&error), now);
                let is_new = earlier.is_none_or(|earlier| earlier.reason != failure.reason);
                self.failure = Some(failure);
                if is_new { RunOutcome::Failed(error) } else { RunOutcome::Unchanged }
            }
        }
    }

    fn count_failure(&mut self, error: &RunError) {
        *self.statistics.failures.entry(failure_label(error)).or_default() += 1;
    }

    fn run_if_due(&mut self, now: Duration) -> Result<bool, RunError> {
        let Work::On { driver, full_trim } = &mut self.work else { return Ok(false) };
        if let Some(full_trim) = full_trim
            && full_trim.next <= now
        {
            let (mount, devices) =
                (self.found.mount.clone(), self.storage.devices(&self.context.machine.sysfs()));
            let target = mount.target.clone();
            let free = match self.free_space.run(move || all_free(&mount, &devices)) {
                Err(NoAnswer) => return Err(TrimError::NoAnswer { mount: target }.into()),
                Ok(free) => free.map_err(|source| TrimError::Trim { mount: target, source })?,
            };
            free.into_iter().for_each(|extent| driver.freed(now, extent));
            full_trim.next = now + full_trim.every;
        }
        if driver.next_run().is_none_or(|next| next > now) {
            return Ok(false);
        }
        driver.run(now)
    }
}

/// Returns the time until a trim is due that was last done at `last` and is repeated each `every`. If the
/// clock was set back by less than `every` since, the trim counts as just done; if by more, it is due now.
pub(super) fn due_in(every: Duration, last: SystemTime, now: SystemTime) -> Duration {
    match now.duration_since(last) {
        Ok(ago) => every.saturating_sub(ago),
        Err(ahead) if ahead.duration() < every => every,
        Err(_) => Duration::ZERO,
    }
}

/// Returns all space of a file system that may be free, in trim addresses.
fn all_free(mount: &Mount, devices: &[BlockDevice]) -> io::Result<Vec<Extent>> {
    let root = open_of(&mount.target, devices)?;
    if mount.fstype == "btrfs" {
        return Ok(trimtab_linux::btrfs::chunks(root)?.into_iter().map(|chunk| chunk.extent).collect());
    }
    match FreeSpace::read(&root, mount.number, &Division::Unknown) {
        Ok(free) => Ok(free.extents().to_vec()),
        Err(FreeSpaceError::Unsupported) => {
            let size = rustix::fs::fstatvfs(&root)?;
            Ok(vec![Extent::at(Bytes::ZERO, Bytes(size.f_blocks * size.f_frsize))])
        }
        Err(FreeSpaceError::Read(source)) => Err(source),
    }
}

/// All reasons that [`failure_label`] returns.
pub(in crate::service) const REFUSALS: [&str; 8] =
    ["unsupported", "io_error", "no_answer", "read_only", "busy", "denied", "other", "no_device"];

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
        RunError::Trim(TrimError::Sync { .. }) => "other",
        RunError::Block(_) => "no_device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn changed_clock_delays_no_trim_beyond_its_interval() {
        let now = SystemTime::UNIX_EPOCH + SECOND * 1_000_000;
        let due = |last| due_in(SECOND * 100, last, now);
        assert_eq!(due(now - SECOND * 30), SECOND * 70);
        assert_eq!(due(now - SECOND * 300), Duration::ZERO);
        assert_eq!(due(now + SECOND * 30), SECOND * 100);
        assert_eq!(due(now + SECOND * 300), Duration::ZERO);
    }
}
