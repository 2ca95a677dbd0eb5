//! The canary's file: its directory, size and contents.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Access, FallocateFlags};
use rustix::io::Errno;
use trimtab_core::Bytes;
use trimtab_linux::PROCFS;
use trimtab_linux::mount::{self, Mount};
use trimtab_linux::stack::{Layer, LayerKind, Stack};
use trimtab_linux::trim::{self, TrimError};

use super::error::CanaryError;
use crate::mapper;
use trimtab_core::contents::{Contents, WriteError};
use trimtab_core::interrupt::Interrupt;

/// The smallest canary with enough free space, and with little.
const WANTED: Bytes = Bytes(16 << 20);
const LEAST: Bytes = Bytes(1 << 20);

/// The number of largest discard units in a canary: the first and the last may be cut off.
const UNITS: u64 = 4;

/// Returns the layer and the directory of the file system for the canary: the top of `stack`, or the file
/// system below its overlays. It must be on a device. A device or swap has none: a file system below those
/// only holds their file.
pub(super) fn home(stack: &Stack) -> Result<(usize, &Path), CanaryError> {
    let none = || match stack.layers.first() {
        Some(top) => match mount_of(top) {
            Some(mount) => CanaryError::Mounted { device: top.path(), mount },
            None => CanaryError::NoFileSystem { target: top.path() },
        },
        None => CanaryError::NoFileSystem { target: String::new() },
    };
    let is_overlay =
        |layer: &Layer| matches!(&layer.kind, LayerKind::FileSystem(found) if found.fstype == "overlay");
    let layer = stack.layers.iter().position(|layer| !is_overlay(layer)).ok_or_else(none)?;
    let Layer { kind: LayerKind::FileSystem(file_system), below, .. } = &stack.layers[layer] else {
        return Err(none());
    };
    if !below.iter().any(|below| stack.layers[below.layer].number.is_some()) {
        return Err(none());
    }
    let mut directories = file_system.targets.iter().filter(|target| target.is_dir());
    let writable = |target: &&PathBuf| rustix::fs::access(target.as_path(), Access::WRITE_OK).is_ok();
    let chosen = directories.clone().find(writable).or_else(|| directories.next()).ok_or_else(none)?;
    Ok((layer, chosen))
}

/// Returns where the device `layer` is mounted, if it is.
fn mount_of(layer: &Layer) -> Option<PathBuf> {
    let number = layer.number?;
    let mounts = mount::mounts(Path::new(PROCFS)).ok()?;
    let is_of_it = |mount: &Mount| mount.number == number || mount.source == Path::new(&layer.path());
    mounts.into_iter().find(is_of_it).map(|mount| mount.target)
}

/// Checks in advance that the file system at `directory` can be written and trimmed.
pub(super) fn check_rights(directory: &Path) -> Result<(), CanaryError> {
    let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    match rustix::fs::access(directory, Access::WRITE_OK) {
        Err(Errno::ROFS) => return Err(CanaryError::ReadOnly { directory: directory.to_owned() }),
        Err(Errno::ACCESS) => return Err(CanaryError::Rights { directory: directory.to_owned() }),
        _ => {}
    }
    match trim::check(directory) {
        Err(TrimError::Trim { source, .. }) if is_denied(&source) => {
            Err(CanaryError::Rights { directory: directory.to_owned() })
        }
        // A file system that can't be trimmed may still discard by itself.
        _ => Ok(()),
    }
}

/// Returns the size of a canary that no layer of `stack` rounds away, and that leaves half of the space free.
pub(super) fn size(stack: &Stack, directory: &Path) -> Result<Bytes, CanaryError> {
    let largest = stack.layers.iter().map(unit).max().unwrap_or_default();
    let needed = Bytes(largest.0.saturating_mul(UNITS).next_multiple_of(LEAST.0)).max(LEAST);
    let failed = |errno: Errno| CanaryError::Write { directory: directory.to_owned(), source: errno.into() };
    let space = rustix::fs::statvfs(directory).map_err(failed)?;
    let free = Bytes(space.f_bavail.saturating_mul(space.f_frsize));
    let room = Bytes(free.0 / 2 / LEAST.0 * LEAST.0);
    if room < needed {
        Err(CanaryError::Full { directory: directory.to_owned(), free, needed: Bytes(needed.0 * 2) })
    } else {
        Ok(room.min(needed.max(WANTED)))
    }
}

/// Returns the smallest discard that has an effect in a layer.
fn unit(layer: &Layer) -> Bytes {
    let granularity = layer.limits.map_or(Bytes::ZERO, |limits| limits.granularity);
    let stripe = match &layer.kind {
        LayerKind::Raid(raid) => Bytes(raid.chunk.0.saturating_mul(layer.below.len() as u64)),
        LayerKind::DeviceMapper(lines) => mapper::largest_chunk(lines).unwrap_or_default(),
        _ => Bytes::ZERO,
    };
    granularity.max(stripe)
}

/// Creates a file without a name.
pub(super) fn create(directory: &Path) -> Result<File, CanaryError> {
    tempfile::tempfile_in(directory).map_err(|source| failed(directory, source))
}

/// Writes `size` bytes to the new `file` in `directory`, and them to the device: random contents that can't be compressed
/// or deduplicated.
pub(super) fn fill(
    file: &mut File,
    directory: &Path,
    size: Bytes,
    interrupt: &Interrupt,
) -> Result<(), CanaryError> {
    // Allocate as few pieces as possible; some file systems can't, and some fail only when the file is written.
    _ = rustix::fs::fallocate(&*file, FallocateFlags::empty(), 0, size.0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let written = Contents::new(now.as_nanos() as u64).write(file, 0, size, interrupt);
    match written {
        Ok(()) => file.sync_all().map_err(|source| failed(directory, source)),
        Err(WriteError::Interrupted(interrupted)) => Err(interrupted.into()),
        Err(WriteError::Io(source)) => Err(failed(directory, source)),
    }
}

/// The error of a file in `directory` that can't be written.
fn failed(directory: &Path, source: io::Error) -> CanaryError {
    let directory = directory.to_owned();
    match Errno::from_io_error(&source) {
        Some(Errno::ROFS) => CanaryError::ReadOnly { directory },
        _ => CanaryError::Write { directory, source },
    }
}
