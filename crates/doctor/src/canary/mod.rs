//! Tests whether discards reach the flash: writes, deletes and trims a file, and observes every layer below.
//!
//! Only free space is ever discarded: a file system is asked to trim exactly the ranges that the file had, and
//! discards the free parts of them. A btrfs is asked to trim from the start of a range's chunk, because it
//! skips a chunk if a trim begins inside it; free space before the range is discarded too. Below a loop
//! device, the file system of its file is asked to trim the ranges of that file. The canary's file never has
//! a name, so nothing is left of it however this ends.

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

use trimtab_core::document::doctor::{Canary, Seen};
use trimtab_core::verdict::Verdict;
use trimtab_core::{Bytes, Extent};
use trimtab_linux::stack::Stack;
use trimtab_linux::trim;

pub use error::CanaryError;

use host::Host;
use layout::Layout;
use trimtab_core::interrupt::Interrupt;
use verdict::Proof;
use witness::Witness;

/// The longest wait until a file system has freed the deleted file, so that it can be trimmed.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The same for a file system that discards by itself: F2FS waits until nobody has written for five seconds,
/// and sometimes for a minute.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest delay of discards from one layer to the next.
const QUIET: Duration = Duration::from_secs(2);
/// How often the layers are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The most canaries that are tried if other processes reuse their space before it is trimmed.
const ATTEMPTS: usize = 3;

/// Tests the discards of the first file system in `stack` that is on a device. Needs root and free space.
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

/// Runs one canary in `directory`, where the file system `home` is mounted. Also returns whether other
/// processes may have reused some of its space.
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

/// Trims the canary's ranges on `host` until the layers directly below have seen all of it.
fn trim_until_seen(
    host: &Host,
    proof: &mut Proof,
    witness: &mut Witness,
    interrupt: &Interrupt,
) -> Result<(), CanaryError> {
    let (started, mut pause, mut refusal) = (Instant::now(), POLL_INTERVAL, None);
    loop {
        interrupt.check()?;
        trim::sync(&host.directory)?;
        // A file system that discards by itself has done so by now.
        proof.sights = witness.look(proof.layout, pause)?;
        let missing: Vec<_> = host.pieces.iter().filter(|piece| proof.lacks(host, piece)).collect();
        let timeout = match (proof.discards_by_itself(host), &refusal) {
            (true, _) => IDLE_TIMEOUT,
            (false, Some(_)) => QUIET,
            (false, None) => TIMEOUT,
        };
        if missing.is_empty() || started.elapsed() > timeout {
            proof.refusals.push(refusal);
            return Ok(());
        }
        for piece in missing {
            interrupt.check()?;
            refusal = trim::trim(&host.directory, piece.trim, Bytes::ZERO).err();
        }
        // Other activity on the machine wakes it sooner.
        pause = (pause * 2).min(QUIET / 4);
    }
}

/// Waits until the canary has reached the lowest layers, or nothing more comes.
fn wait_for_the_last(
    proof: &mut Proof,
    witness: &mut Witness,
    interrupt: &Interrupt,
) -> Result<(), CanaryError> {
    let started = Instant::now();
    let mut last = started;
    while proof.judge().0 != Verdict::Reaches && last.elapsed() < QUIET && started.elapsed() < TIMEOUT * 2 {
        interrupt.check()?;
        let sights = witness.look(proof.layout, POLL_INTERVAL)?;
        if sights != proof.sights {
            (proof.sights, last) = (sights, Instant::now());
        }
    }
    Ok(())
}

/// Returns what the devices saw, with the storage that each used before and after.
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
