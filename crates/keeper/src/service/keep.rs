//! What is known of file systems, kept while nobody tends them.

use std::path::Path;
use std::time::{Duration, SystemTime};

use trimtab_linux::generation::{Seal, SealError, seal_mounted, seal_unmounted};
use trimtab_linux::tracing::Heard;

use super::tended::{Tended, chain};
use crate::state::{State, Store};

/// Gives the file system back what is known of it from before; says why not, where something was kept that
/// doesn't hold or can't be told to. `heard` says from when on it is heard what it frees.
pub(super) fn restore(
    store: &Store,
    sysfs: &Path,
    tended: &mut Tended,
    heard: Heard,
    now: Duration,
) -> Result<bool, String> {
    let seal = match seal_mounted(sysfs, &tended.found.mount) {
        Err(SealError::Unknown { .. }) => return Ok(false),
        seal => seal.map_err(|error| chain(&error))?,
    };
    let Some(state) = store.load(&seal, heard).map_err(|error| chain(&error))? else { return Ok(false) };
    let wall = SystemTime::now();
    for (extent, since) in &state.pending {
        // Where the clock was set back, it was freed just now.
        let age = wall.duration_since(*since).unwrap_or_default();
        tended.freed(now.saturating_sub(age), *extent);
    }
    tended.go_on_from(state.trimmed, state.last_trim);
    Ok(true)
}

/// Keeps what is known of a file system that is still mounted, which nobody tends from now on.
pub(super) fn keep(store: &Store, sysfs: &Path, tended: &Tended, now: Duration) -> Result<(), String> {
    save(store, seal_mounted(sysfs, &tended.found.mount), tended, now)
}

/// Keeps what is known of a file system that was unmounted.
pub(super) fn keep_unmounted(
    store: &Store,
    sysfs: &Path,
    gone: &Tended,
    now: Duration,
) -> Result<(), String> {
    let devices = gone.devices(sysfs);
    match devices.as_slice() {
        [device] => save(store, seal_unmounted(sysfs, &device.path()), gone, now),
        _ => Ok(()),
    }
}

fn save(store: &Store, seal: Result<Seal, SealError>, tended: &Tended, now: Duration) -> Result<(), String> {
    let seal = match seal {
        // What tells nothing is looked at anew each time.
        Err(SealError::Unknown { .. }) => return Ok(()),
        seal => seal.map_err(|error| chain(&error))?,
    };
    let wall = SystemTime::now();
    let pending = tended.pending().map(|(extent, since)| {
        let since = wall.checked_sub(now.saturating_sub(since)).unwrap_or(SystemTime::UNIX_EPOCH);
        (extent, since)
    });
    let state =
        State { seal, pending: pending.collect(), trimmed: tended.trimmed(), last_trim: tended.last_trim() };
    store.save(&state).map_err(|error| chain(&error))
}
