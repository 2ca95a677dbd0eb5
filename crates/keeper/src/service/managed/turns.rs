//! What is due on a file system, and what comes of it.

use std::io;
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use trimtab_core::{Bytes, Extent};
use trimtab_linux::block::BlockDevice;
use trimtab_linux::mount::{Mount, open_of};
use trimtab_linux::trim::{self, TrimError};

use super::{ManagedFileSystem, Work, chain, sum};
use crate::free_space::{Division, FreeSpace, FreeSpaceError};
use crate::service::patience::{NO_ANSWER, in_time};
use crate::service::storage::Off;
use crate::tender::TurnError;

/// How long a file system is left alone after a turn failed; twice as long each time.
const FIRST_RETREAT: Duration = Duration::from_secs(1);
const LONGEST_RETREAT: Duration = Duration::from_secs(3600);

/// What came of a turn that is worth telling.
#[derive(Debug)]
pub(in crate::service) enum Turn {
    /// It failed in a way that it didn't before.
    Failed(TurnError),
    /// It takes no discards after all: it is left alone from now on.
    GivenUp(TurnError),
    /// It failed before and didn't now.
    Recovered,
    /// Nothing.
    Nothing,
}

/// How a turn failed, and until when there is no other.
#[derive(Debug)]
pub(super) struct Failure {
    pub reason: String,
    until: Duration,
    next_retreat: Duration,
}

impl Failure {
    /// The one that follows `earlier`, if it does.
    fn after(earlier: Option<&Self>, reason: String, now: Duration) -> Self {
        let retreat = earlier.map_or(FIRST_RETREAT, |earlier| earlier.next_retreat);
        Self { reason, until: now + retreat, next_retreat: (retreat * 2).min(LONGEST_RETREAT) }
    }
}

impl ManagedFileSystem {
    /// Takes all that is free for pending, where that isn't done from time to time anyway.
    pub fn add_all_free(&mut self, now: Duration) -> Result<(), String> {
        let Work::On { tender, whole: None } = &mut self.work else { return Ok(()) };
        // What isn't committed yet isn't free yet, and what was said of it may have been missed.
        let target = self.found.mount.target.clone();
        let synced = in_time(move || trim::sync(&target));
        synced.ok_or(NO_ANSWER)?.map_err(|error| chain(&error))?;
        let (mount, devices) =
            (self.found.mount.clone(), self.storage.devices(&self.context.machine.sysfs()));
        let free = in_time(move || all_free(&mount, &devices)).ok_or(NO_ANSWER)?;
        free.map_err(|error| error.to_string())?.into_iter().for_each(|extent| tender.freed(now, extent));
        Ok(())
    }

    /// When it wants a turn; never where nothing is pending.
    pub fn next_turn(&self) -> Option<Duration> {
        let Work::On { tender, whole } = &self.work else { return None };
        if self.lease.is_some() {
            return None;
        }
        let next = tender.next_turn().into_iter().chain(whole.map(|whole| whole.next)).min()?;
        Some(self.failure.as_ref().map_or(next, |failure| next.max(failure.until)))
    }

    /// Does what is due.
    pub fn turn(&mut self, now: Duration) -> Turn {
        match self.due(now) {
            Ok(false) => Turn::Nothing,
            Ok(true) => {
                self.last_trim = Some(SystemTime::now());
                if let Work::On { tender, whole: Some(_) } = &self.work
                    && tender.pending().is_empty()
                    && let Some(id) = self.found.id()
                {
                    self.context.store.stamp(&id);
                }
                self.failure.take().map_or(Turn::Nothing, |_| Turn::Recovered)
            }
            Err(error @ TurnError::Trim(TrimError::Unsupported { .. })) => {
                self.refused(&error);
                if let Work::On { tender, .. } = &self.work {
                    self.before = sum(&self.before, tender.totals());
                }
                self.work = Work::Off(Off::Unsupported.to_string());
                Turn::GivenUp(error)
            }
            Err(error) => {
                self.refused(&error);
                let earlier = self.failure.take();
                let failure = Failure::after(earlier.as_ref(), chain(&error), now);
                let is_new = earlier.is_none_or(|earlier| earlier.reason != failure.reason);
                self.failure = Some(failure);
                if is_new { Turn::Failed(error) } else { Turn::Nothing }
            }
        }
    }

    fn refused(&mut self, error: &TurnError) {
        *self.refusals.entry(kind(error)).or_default() += 1;
    }

    fn due(&mut self, now: Duration) -> Result<bool, TurnError> {
        let Work::On { tender, whole } = &mut self.work else { return Ok(false) };
        if let Some(whole) = whole
            && whole.next <= now
        {
            let (mount, devices) =
                (self.found.mount.clone(), self.storage.devices(&self.context.machine.sysfs()));
            let target = mount.target.clone();
            let free = match self.all_free.ask(move || all_free(&mount, &devices)) {
                None => return Err(TrimError::NoAnswer { mount: target }.into()),
                Some(free) => free.map_err(|source| TrimError::Trim { mount: target, source })?,
            };
            free.into_iter().for_each(|extent| tender.freed(now, extent));
            whole.next = now + whole.every;
        }
        if tender.next_turn().is_none_or(|next| next > now) {
            return Ok(false);
        }
        tender.turn(now)
    }
}

/// In what time what was done at `last` and is done so often is due again. Where the clock was set back by
/// less than that since, it was just done; by more, nobody knows when.
pub(super) fn due_in(every: Duration, last: SystemTime, now: SystemTime) -> Duration {
    match now.duration_since(last) {
        Ok(ago) => every.saturating_sub(ago),
        Err(ahead) if ahead.duration() < every => every,
        Err(_) => Duration::ZERO,
    }
}

/// All that may be free of a file system, in its trim address space.
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

/// A word for why a turn failed.
fn kind(error: &TurnError) -> &'static str {
    match error {
        TurnError::Trim(TrimError::Unsupported { .. }) => "unsupported",
        TurnError::Trim(TrimError::Failed { .. }) => "io_error",
        TurnError::Trim(TrimError::NoAnswer { .. }) => "no_answer",
        TurnError::Trim(TrimError::Trim { source, .. }) => {
            match source.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::IO) => "io_error",
                Some(Errno::ROFS) => "read_only",
                Some(Errno::BUSY) => "busy",
                Some(Errno::PERM | Errno::ACCESS) => "denied",
                _ => "other",
            }
        }
        TurnError::Trim(TrimError::Sync { .. }) => "other",
        TurnError::Block(_) => "no_device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_pause_is_twice_as_long_as_the_last_up_to_an_hour() {
        let (mut failure, mut now, mut pauses) = (None, SECOND, Vec::new());
        for _ in 0..15 {
            let next = Failure::after(failure.as_ref(), "why".to_owned(), now);
            pauses.push((next.until - now).as_secs());
            now = next.until;
            failure = Some(next);
        }
        assert_eq!(pauses[..4], [1, 2, 4, 8]);
        assert_eq!(pauses[11..], [2048, 3600, 3600, 3600]);
    }

    #[test]
    fn a_clock_that_was_set_delays_no_trim_by_more_than_its_span() {
        let now = SystemTime::UNIX_EPOCH + SECOND * 1_000_000;
        let due = |last| due_in(SECOND * 100, last, now);
        assert_eq!(due(now - SECOND * 30), SECOND * 70);
        assert_eq!(due(now - SECOND * 300), Duration::ZERO);
        assert_eq!(due(now + SECOND * 30), SECOND * 100);
        assert_eq!(due(now + SECOND * 300), Duration::ZERO);
    }
}
