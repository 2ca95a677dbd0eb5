//! Proof that discards reach the flash: a file is written, deleted and trimmed, and every layer below is
//! asked what it saw of that.
//!
//! Only free space is ever discarded: a file system is asked to trim the very ranges that the file had,
//! and discards what of them is free. A btrfs is asked to trim from the start of the chunk that a range is in,
//! since it passes over a chunk in which a trim begins; what is free before the range is discarded too. Below a
//! loop device, the file system that its file is on is asked to trim where that file had the ranges. The
//! canary's file has no name from the start on, so that nothing is left of it however this ends.

mod error;
mod fat;
mod file;
mod host;
mod layout;
mod storage;
#[cfg(test)]
mod tests;
mod verdict;
mod witness;

use std::path::Path;
use std::time::{Duration, Instant};

use trimtab_core::document::doctor::{Canary, Seen, Verdict};
use trimtab_core::{Bytes, Extent};
use trimtab_linux::stack::Stack;
use trimtab_linux::trim;

pub use error::CanaryError;

use host::Host;
use layout::Layout;
use trimtab_core::interrupt::Interrupt;
use verdict::Proof;
use witness::Witness;

/// How long a file system may take until what was deleted is free, and can be trimmed.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one may take that discards by itself: F2FS waits until nobody has written for five seconds,
/// and sometimes for a minute.
const IDLE_PATIENCE: Duration = Duration::from_secs(15);
/// How long discards may take from one layer to the next.
const QUIET: Duration = Duration::from_secs(2);
/// How often the layers are looked at.
const GLANCE: Duration = Duration::from_millis(20);

/// How many canaries there are at most where others take what one freed before it is trimmed.
const ATTEMPTS: usize = 3;

/// Proves what becomes of the discards of a file system: of the first in `stack` that is on a device.
/// It takes root, and free space.
///
/// # Errors
/// [`CanaryError`]; nothing is left behind.
pub fn canary(stack: &Stack, interrupt: &Interrupt) -> Result<Canary, CanaryError> {
    let (home, directory) = file::home(stack)?;
    file::check_rights(directory)?;
    for _ in 1..ATTEMPTS {
        let (canary, is_disturbed) = attempt(stack, home, directory, interrupt)?;
        if !is_disturbed {
            return Ok(canary);
        }
    }
    Ok(attempt(stack, home, directory, interrupt)?.0)
}

/// One canary in `directory`, where the file system `home` is mounted; and whether others may have kept some of
/// it.
fn attempt(
    stack: &Stack,
    home: usize,
    directory: &Path,
    interrupt: &Interrupt,
) -> Result<(Canary, bool), CanaryError> {
    let size = file::size(stack, directory)?;
    let mut witness = Witness::start(stack)?;
    let file = file::write(directory, size, interrupt)?;
    let host = Host::of(stack, home, directory, &file, Extent::at(Bytes::ZERO, size))
        .map_err(|source| CanaryError::Place { directory: directory.to_owned(), source })?;
    if host.pieces.is_empty() {
        return Err(CanaryError::Nowhere { directory: directory.to_owned() });
    }
    let layout = Layout::below(stack, host);
    let used = storage::used(stack, &layout);
    let shared = witness.begin(&layout)?;
    drop(file);

    let mut proof = Proof::new(stack, &layout, shared);
    for host in &layout.hosts {
        trim_until_seen(host, &mut proof, &mut witness, interrupt)?;
    }
    wait_for_the_last(&mut proof, &mut witness, interrupt)?;
    proof.excuse = witness.excuse();
    let (verdict, reason) = proof.judge();
    let left = storage::used(stack, &layout);
    let seen = seen(&proof, used.into_iter().zip(left));
    Ok((Canary { sent_bytes: layout.hosts[0].size(), seen, verdict, reason }, proof.is_disturbed()))
}

/// Trims where `host` had the canary until the layers directly below have seen all of it.
fn trim_until_seen(
    host: &Host,
    proof: &mut Proof,
    witness: &mut Witness,
    interrupt: &Interrupt,
) -> Result<(), CanaryError> {
    let (started, mut pause, mut refusal) = (Instant::now(), GLANCE, None);
    loop {
        interrupt.check()?;
        trim::sync(&host.directory)?;
        // What a file system discards by itself, it has discarded now.
        proof.sights = witness.look(proof.layout, pause)?;
        let missing: Vec<_> = host.pieces.iter().filter(|piece| proof.lacks(host, piece)).collect();
        let patience = match (proof.discards_by_itself(host), &refusal) {
            (true, _) => IDLE_PATIENCE,
            (false, Some(_)) => QUIET,
            (false, None) => PATIENCE,
        };
        if missing.is_empty() || started.elapsed() > patience {
            proof.refusals.push(refusal);
            return Ok(());
        }
        for piece in missing {
            interrupt.check()?;
            refusal = trim::trim(&host.directory, piece.trim, Bytes::ZERO).err();
        }
        // Whatever else happens on the machine wakes it sooner.
        pause = (pause * 2).min(QUIET / 4);
    }
}

/// Waits until the canary came to the lowest layers, or nothing more comes.
fn wait_for_the_last(
    proof: &mut Proof,
    witness: &mut Witness,
    interrupt: &Interrupt,
) -> Result<(), CanaryError> {
    let started = Instant::now();
    let mut last = started;
    while proof.judge().0 != Verdict::Reaches && last.elapsed() < QUIET && started.elapsed() < PATIENCE * 2 {
        interrupt.check()?;
        let sights = witness.look(proof.layout, GLANCE)?;
        if sights != proof.sights {
            (proof.sights, last) = (sights, Instant::now());
        }
    }
    Ok(())
}

/// What the devices saw, with the storage that each used before and after.
fn seen(proof: &Proof, storage: impl Iterator<Item = (Option<Bytes>, Option<Bytes>)>) -> Vec<Seen> {
    let bytes = proof.bytes_seen();
    let layers = proof.stack.layers.iter().zip(bytes).zip(&proof.sights).zip(storage);
    let on_canary = layers.zip(&proof.layout.places).filter(|(_, place)| place.is_some());
    on_canary
        .map(|((((layer, bytes), sight), (used, left)), _)| Seen {
            layer: layer.name.clone(),
            bytes,
            commands: sight.commands,
            returned: used.zip(left).map(|(used, left)| used.saturating_sub(left)),
        })
        .collect()
}
