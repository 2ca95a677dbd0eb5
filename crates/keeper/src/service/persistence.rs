//! Saves and restores the state of file systems while the service doesn't manage them.

use std::thread;
use std::time::{Duration, Instant, SystemTime};

use trimtab_linux::generation::{Seal, SealError, seal_mounted, seal_unmounted};
use trimtab_linux::tracefs::FreeCoverage;

use super::context::Context;
use super::managed::ManagedFileSystem;
use super::timeout::{NoAnswer, with_timeout};
use crate::state::{Refusal, SaveError, State};

/// How long an unmount may take to complete.
const UNMOUNT_TIMEOUT: Duration = Duration::from_millis(500);
/// How often an unmount is checked for completion.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Why the state of a file system can't be saved or restored.
#[derive(Debug, thiserror::Error)]
pub(super) enum PersistenceError {
    /// The file system doesn't answer.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    /// The service didn't receive all free events up to the unmount.
    #[error("some of its last free events were not received")]
    Incomplete,
    /// Not all of its free space was read.
    #[error("not all of its free space was read")]
    Unread,
    /// The generation of the file system can't be read.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The saved state is not valid for the file system.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The state can't be written.
    #[error(transparent)]
    Save(#[from] SaveError),
}

/// Restores the saved state of the file system, whose free events are received as `coverage` says. Returns
/// whether there was one.
///
/// # Errors
/// [`PersistenceError`] if the saved state is not valid, or if that can't be determined.
pub(super) fn restore(
    context: &Context,
    managed: &mut ManagedFileSystem,
    coverage: FreeCoverage,
    now: Duration,
) -> Result<bool, PersistenceError> {
    let seal = match seal(context, managed)? {
        Err(SealError::Unknown { .. }) => return Ok(false),
        seal => seal?,
    };
    let Some(state) = context.store.load(&seal, coverage)? else { return Ok(false) };
    let wall = SystemTime::now();
    for (extent, since) in &state.pending {
        // If the clock was set back, the age counts as zero.
        let age = wall.duration_since(*since).unwrap_or_default();
        managed.freed(now.saturating_sub(age), *extent);
    }
    managed.restore_totals(state.trimmed, state.last_trim);
    Ok(true)
}

/// Returns the seal of a mounted file system.
pub(super) fn seal(
    context: &Context,
    managed: &ManagedFileSystem,
) -> Result<Result<Seal, SealError>, NoAnswer> {
    let (sysfs, mount) = (context.machine.sysfs(), managed.found.mount.clone());
    with_timeout(move || seal_mounted(&sysfs, &mount))
}

/// Returns the seal of a file system that was just unmounted; none if it is on several devices.
pub(super) fn seal_after_unmount(
    context: &Context,
    unmounted: &ManagedFileSystem,
) -> Option<Result<Seal, SealError>> {
    let devices = unmounted.devices();
    let [device] = devices.as_slice() else { return None };
    // A file system leaves the list of mounts before all of it is written to its device.
    let deadline = Instant::now() + UNMOUNT_TIMEOUT;
    loop {
        match seal_unmounted(&context.machine.sysfs(), &context.machine.procfs(), &device.path()) {
            Err(SealError::Unclean { .. }) if Instant::now() < deadline => thread::sleep(POLL_INTERVAL),
            seal => return Some(seal),
        }
    }
}

/// Saves the state of a file system under its seal, if all of its free space is known.
///
/// # Errors
/// [`PersistenceError`]; a state saved before stays.
pub(super) fn save(
    context: &Context,
    seal: Result<Seal, SealError>,
    managed: &ManagedFileSystem,
    now: Duration,
) -> Result<(), PersistenceError> {
    if managed.lacks_free_space() {
        return Err(PersistenceError::Unread);
    }
    let seal = match seal {
        // A file system without a generation counter is examined anew at each mount.
        Err(SealError::Unknown { .. }) => return Ok(()),
        seal => seal?,
    };
    let wall = SystemTime::now();
    let pending = managed.pending().map(|(extent, since)| {
        let since = wall.checked_sub(now.saturating_sub(since)).unwrap_or(SystemTime::UNIX_EPOCH);
        (extent, since)
    });
    let state = State {
        seal,
        pending: pending.collect(),
        trimmed: managed.trimmed(),
        last_trim: managed.last_trim(),
    };
    Ok(context.store.save(&state)?)
}
