//! Tests whether discards reach the flash: writes, deletes and trims a file, and observes every layer below.
//!
//! Only free space is ever discarded: a file system is asked to trim exactly the ranges that the file had, and
//! discards the free parts of them. A btrfs is asked to trim from the start of a range's chunk, because it
//! skips a chunk if a trim begins inside it; free space before the range is discarded too. Below a loop
//! device, the file system of its file is asked to trim the ranges of that file. The canary's file never has
//! a name, so nothing is left of it however this ends.

pub mod apart;
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

use serde::{Deserialize, Serialize};
use trimtab_core::document::doctor::{Canary, Seen};
use trimtab_core::verdict::Verdict;
use trimtab_core::{Bytes, Extent};
use trimtab_linux::stack::Stack;
use trimtab_linux::{ioctl, trim};

pub use error::CanaryError;

use host::Host;
use layout::Layout;
use trimtab_core::interrupt::{Interrupt, Interrupted};
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

/// A step of a canary, which a file system that does not answer never ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// It is written, or what the file system holds in memory is.
    Write,
    /// It is trimmed.
    Trim,
}

/// Follows a canary.
pub struct Progress<'a> {
    /// Ends it early.
    pub interrupt: &'a Interrupt,
    /// Called when a step begins.
    pub begins: &'a mut dyn FnMut(Step),
}

impl Progress<'_> {
    /// Begins a step, unless the user asked to stop.
    fn begin(&mut self, step: Step) -> Result<(), Interrupted> {
        self.interrupt.check()?;
        (self.begins)(step);
        Ok(())
    }
}

/// Tests the discards of the first file system in `stack` that is on a device. Needs root and free space. Does not end while
/// the file system is frozen or its drive hangs; see [`apart::send`].
///
/// # Errors
/// [`CanaryError`]; nothing is left behind.
pub fn canary(stack: &Stack, progress: &mut Progress) -> Result<Canary, CanaryError> {
    let (home, directory) = file::home(stack)?;
    progress.begin(Step::Trim)?;
    file::check_rights(directory)?;
    for _ in 1..ATTEMPTS {
        let (canary, is_disturbed) = attempt(stack, home, directory, progress)?;
        if !is_disturbed {
            return Ok(canary);
        }
    }
    Ok(attempt(stack, home, directory, progress)?.0)
}

/// Runs one canary in `directory`, where the file system `home` is mounted. Also returns whether other
/// processes may have reused some of its space.
fn attempt(
    stack: &Stack,
    home: usize,
    directory: &Path,
    progress: &mut Progress,
) -> Result<(Canary, bool), CanaryError> {
    progress.begin(Step::Write)?;
    let size = file::size(stack, directory)?;
    // A file system that is frozen takes none, and nothing has to be traced.
    let mut file = file::create(directory)?;
    let mut witness = Witness::start(stack)?;
    file::fill(&mut file, directory, size, progress.interrupt)?;
    progress.begin(Step::Write)?;
    if ioctl::is_realtime(&file).unwrap_or_default() {
        return Err(CanaryError::Realtime { directory: directory.to_owned() });
    }
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
    proof.doubts = witness.doubts();
    for host in &layout.hosts {
        trim_until_seen(host, &mut proof, &mut witness, progress)?;
    }
    wait_for_the_last(&mut proof, &mut witness, progress)?;
    proof.excuse = witness.excuse();
    let (verdict, reason) = proof.judge();
    let left = storage::used(stack, &layout);
    let seen = seen(&proof, used.into_iter().zip(left));
    let reason = agreeing(reason, verdict, &seen);
    Ok((Canary { sent_bytes: layout.hosts[0].size(), seen, verdict, reason }, proof.is_disturbed()))
}

/// Trims the canary's ranges on `host` until the layers directly below have seen all of it.
fn trim_until_seen(
    host: &Host,
    proof: &mut Proof,
    witness: &mut Witness,
    progress: &mut Progress,
) -> Result<(), CanaryError> {
    let (started, mut pause, mut refusal) = (Instant::now(), POLL_INTERVAL, None);
    loop {
        progress.begin(Step::Write)?;
        trim::sync(&host.directory)?;
        progress.begin(Step::Trim)?;
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
            progress.begin(Step::Trim)?;
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
    progress: &mut Progress,
) -> Result<(), CanaryError> {
    let started = Instant::now();
    let mut last = started;
    while proof.judge().0 != Verdict::Reaches && last.elapsed() < QUIET && started.elapsed() < TIMEOUT * 2 {
        progress.begin(Step::Trim)?;
        let sights = witness.look(proof.layout, POLL_INTERVAL)?;
        if sights != proof.sights {
            (proof.sights, last) = (sights, Instant::now());
        }
    }
    Ok(())
}

/// Returns `reason`, or one that agrees with the storage that came back where less than all arrived.
fn agreeing(reason: String, verdict: Verdict, seen: &[Seen]) -> String {
    let returned =
        seen.iter().find_map(|seen| Some((seen, seen.returned.filter(|bytes| *bytes >= Bytes::MIB)?)));
    match returned {
        Some((seen, bytes)) if matches!(verdict, Verdict::Blocked | Verdict::Partial) => {
            let name = &seen.layer;
            let reason =
                reason.replace(&format!("{name} takes no discards"), &format!("{name} hands none on"));
            format!("{reason}; {name} itself took {bytes} back")
        }
        _ => reason,
    }
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
