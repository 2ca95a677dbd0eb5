//! What is known of file systems, kept while nobody tends them.

use std::thread;
use std::time::{Duration, Instant, SystemTime};

use trimtab_core::error::chain;
use trimtab_linux::generation::{Seal, SealError, seal_mounted, seal_unmounted};
use trimtab_linux::tracefs::FreeCoverage;

use super::context::Context;
use super::managed::ManagedFileSystem;
use super::patience::{NO_ANSWER, in_time};
use crate::state::State;

/// How long an unmount may take to end, and how often that is looked at.
const UNMOUNTING: Duration = Duration::from_millis(500);
const GLANCE: Duration = Duration::from_millis(1);

/// Gives the file system back what is known of it from before; says why not, where something was kept that
/// doesn't hold or can't be told to. `heard` says from when on it is heard what it frees.
pub(super) fn restore(
    context: &Context,
    managed: &mut ManagedFileSystem,
    heard: FreeCoverage,
    now: Duration,
) -> Result<bool, String> {
    let seal = match seal(context, managed).ok_or(NO_ANSWER)? {
        Err(SealError::Unknown { .. }) => return Ok(false),
        seal => seal.map_err(|error| chain(&error))?,
    };
    let Some(state) = context.store.load(&seal, heard).map_err(|error| chain(&error))? else {
        return Ok(false);
    };
    let wall = SystemTime::now();
    for (extent, since) in &state.pending {
        // Where the clock was set back, it was freed just now.
        let age = wall.duration_since(*since).unwrap_or_default();
        managed.freed(now.saturating_sub(age), *extent);
    }
    managed.restore_totals(state.trimmed, state.last_trim);
    Ok(true)
}

/// The seal of a file system that is mounted; none where it doesn't come in time.
pub(super) fn seal(context: &Context, managed: &ManagedFileSystem) -> Option<Result<Seal, SealError>> {
    let (sysfs, mount) = (context.machine.sysfs(), managed.found.mount.clone());
    in_time(move || seal_mounted(&sysfs, &mount))
}

/// The seal of a file system that was unmounted a moment ago; none of one that has none.
pub(super) fn seal_after_unmount(
    context: &Context,
    gone: &ManagedFileSystem,
) -> Option<Result<Seal, SealError>> {
    let devices = gone.devices();
    let [device] = devices.as_slice() else { return None };
    // It leaves the list of mounts before all of it is on its device.
    let patience = Instant::now() + UNMOUNTING;
    loop {
        match seal_unmounted(&context.machine.sysfs(), &context.machine.procfs(), &device.path()) {
            Err(SealError::Unclean { .. }) if Instant::now() < patience => thread::sleep(GLANCE),
            seal => return Some(seal),
        }
    }
}

/// Keeps what is known of a file system as it is under the seal.
pub(super) fn save(
    context: &Context,
    seal: Result<Seal, SealError>,
    managed: &ManagedFileSystem,
    now: Duration,
) -> Result<(), String> {
    let seal = match seal {
        // What tells nothing is looked at anew each time.
        Err(SealError::Unknown { .. }) => return Ok(()),
        seal => seal.map_err(|error| chain(&error))?,
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
    context.store.save(&state).map_err(|error| chain(&error))
}
