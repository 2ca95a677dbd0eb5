//! Saves and restores the state of file systems while the service doesn't manage them.

use std::time::{Duration, SystemTime};

use trimtab_linux::generation::{Seal, SealError, seal_mounted, seal_unmounted};
use trimtab_linux::tracefs::FreeCoverage;

use super::context::{Context, WriteError};
use super::early_seal::EarlySeal;
use super::managed::ManagedFileSystem;
use super::timeout::{NoAnswer, TIMEOUT, with_timeout, within};
use crate::state::{Refusal, State};

/// Why the state of a file system can't be saved or restored.
#[derive(Debug, thiserror::Error)]
pub(super) enum PersistenceError {
    /// The file system doesn't answer.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    /// It was mounted again before its state was saved.
    #[error("it was mounted again before it was saved")]
    Remounted,
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
    Write(#[from] WriteError),
}

/// Restores the saved state of the file system, whose free events are received as `coverage` says. `early` is its seal of
/// the time when it was mounted; none to make one now. Returns whether there was a state.
///
/// # Errors
/// [`PersistenceError`] if the saved state is not valid, or if that can't be determined.
pub(super) fn restore(
    context: &Context,
    managed: &mut ManagedFileSystem,
    early: Option<EarlySeal>,
    coverage: FreeCoverage,
    now: Duration,
) -> Result<bool, PersistenceError> {
    let seal = match (early, coverage) {
        (Some(EarlySeal(seal)), FreeCoverage::SinceMount) => seal?,
        // Its frees since the early seal are not known.
        (Some(_), FreeCoverage::FromNow) => return Ok(false),
        (None, _) => seal(context, managed, TIMEOUT)?,
    };
    let seal = match seal {
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

/// Returns the seal of a mounted file system, if it answers within `limit`.
pub(super) fn seal(
    context: &Context,
    managed: &ManagedFileSystem,
    limit: Duration,
) -> Result<Result<Seal, SealError>, NoAnswer> {
    let (sysfs, mount) = (context.machine.sysfs(), managed.found.mount.clone());
    within(limit, move || seal_mounted(&sysfs, &mount))
}

/// Returns the seal of a file system that was unmounted; `None` if it is on several devices, or has no seal.
pub(super) fn seal_after_unmount(
    context: &Context,
    unmounted: &ManagedFileSystem,
) -> Option<Result<Result<Seal, SealError>, NoAnswer>> {
    let devices = unmounted.devices();
    let [device] = devices.as_slice() else { return None };
    let (sysfs, procfs, path) = (context.machine.sysfs(), context.machine.procfs(), device.path());
    Some(with_timeout(move || seal_unmounted(&sysfs, &procfs, &path)))
}

/// Saves the state of a file system under its seal, if all of its free space is known. Returns false if the file system has no
/// seal.
///
/// # Errors
/// [`PersistenceError`]; a state saved before stays.
pub(super) fn save(
    context: &Context,
    seal: Result<Seal, SealError>,
    managed: &ManagedFileSystem,
    now: Duration,
) -> Result<bool, PersistenceError> {
    if managed.lacks_free_space() {
        return Err(PersistenceError::Unread);
    }
    let seal = match seal {
        // A file system without a generation counter is examined anew at each mount.
        Err(SealError::Unknown { .. }) => return Ok(false),
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
    context.write_states(|store| store.save(&state))?;
    Ok(true)
}
