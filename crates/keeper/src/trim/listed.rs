//! The mount points that `-a`, `-A` and `-I` select.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use trimtab_core::Bytes;
use trimtab_linux::block::{BlockDevice, BlockError};
use trimtab_linux::mount::{Listed, Mount, MountError, is_directory, listed_in, mounts, visible};
use trimtab_linux::mount_points::{resolved, writable};
use trimtab_linux::stack::{Machine, StackError, targets};

use super::types::is_of_types;

/// Why the mount points can't be listed.
#[derive(Debug, thiserror::Error)]
pub enum ListedError {
    /// A list can't be read.
    #[error("cannot read the list {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The mounts can't be read.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// Their storage can't be examined.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The properties of their devices can't be read.
    #[error(transparent)]
    Block(#[from] BlockError),
}

/// Returns a mount point of each file system on a block device.
///
/// # Errors
/// [`ListedError`].
pub fn mounted(machine: &Machine) -> Result<Vec<PathBuf>, ListedError> {
    let mounts = mounts(&machine.procfs())?;
    let mut found = targets(machine)?;
    found.retain(|target| mounts.iter().any(|mount| mount.target == *target));
    Ok(found)
}

/// The file systems that a list names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// A mount point of each that is to be trimmed.
    pub mounts: Vec<PathBuf>,
    /// The mount points in the list that are passed over, and why.
    pub passed_over: Vec<(PathBuf, &'static str)>,
}

/// Returns a mount point of each mounted file system that the first file with any lines in `lists` names, except lines
/// with `X-fstrim.notrim`. Adds `/` if that file is `/etc/fstab` and lacks it. A file system that is listed several times
/// is returned once; one that is mounted read-only there is returned at a mount point that can be written to, if it has
/// one. Lines of bind mounts, swap and servers name none.
///
/// # Errors
/// [`ListedError`], also if none of the files exists.
pub fn listed(machine: &Machine, lists: &[PathBuf]) -> Result<Listing, ListedError> {
    let in_use = mounts(&machine.procfs())?;
    if let Some(first) = lists.first()
        && !lists.iter().any(|path| path.exists())
    {
        fs::metadata(first).map_err(|source| ListedError::Read { path: first.clone(), source })?;
    }
    for path in lists {
        let text = match fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            text => text.map_err(|source| ListedError::Read { path: path.clone(), source })?,
        };
        let mut lines = last_of_each_target(listed_in(&text));
        if lines.is_empty() {
            continue;
        }
        lines.splice(..0, missing_root(path, &lines));
        let seen = visible(&in_use);
        let mut found: Vec<&Mount> = Vec::new();
        let mut passed_over = Vec::new();
        for line in lines.iter().filter(|line| line.is_on_device() && line.target.is_absolute()) {
            match mounted_at(&in_use, &seen, &line.target) {
                _ if line.is_excluded() => {
                    passed_over.push((line.target.clone(), "its line has X-fstrim.notrim"))
                }
                None => passed_over.push((line.target.clone(), "it is not mounted")),
                Some(mount) if !is_directory(mount) => {
                    passed_over.push((line.target.clone(), "it is a single file"))
                }
                Some(mount) => match found.iter_mut().find(|known| known.is_of_same_file_system(mount)) {
                    Some(known) if known.is_read_only() && !mount.is_read_only() => *known = mount,
                    Some(_) => {}
                    None => found.push(mount),
                },
            }
        }
        let at_best = |mount: &Mount| {
            let elsewhere = writable(&in_use, mount).first().copied().filter(|_| mount.is_read_only());
            elsewhere.unwrap_or(mount).target.clone()
        };
        return Ok(Listing { mounts: found.into_iter().map(at_best).collect(), passed_over });
    }
    Ok(Listing::default())
}

/// A file system that the program `fstrim` trims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// Where it is mounted, as the list names it.
    pub target: PathBuf,
    /// The device that it is on, by the name of the list or of the mount.
    pub device: PathBuf,
}

/// Returns the file systems that the program `fstrim` selects from the file `list`, in its order: the last
/// one first. It selects those that can be written to there, are on a device that takes discards, and are of one of
/// `types`, in the form of `mount -t`. Returns `None` if the list has no lines.
///
/// As util-linux, of several lines for one mount point it takes the last, and of several for one file system the first. It
/// knows tags such as `UUID=...` in `/etc/fstab` alone.
///
/// # Errors
/// [`ListedError`].
pub fn selected(
    machine: &Machine,
    list: &Path,
    types: Option<&str>,
) -> Result<Option<Vec<Selected>>, ListedError> {
    let unread = |source| ListedError::Read { path: list.to_owned(), source };
    let mut lines = last_of_each_target(listed_in(&fs::read(list).map_err(unread)?));
    if lines.is_empty() {
        return Ok(None);
    }
    lines.extend(missing_root(list, &lines));
    let in_use = mounts(&machine.procfs())?;
    let seen = visible(&in_use);
    let mut found: Vec<(&Mount, Selected)> = Vec::new();
    let is_listed = |line: &&Listed| {
        line.is_on_device()
            && !line.is_read_only()
            && !line.is_excluded()
            && types.is_none_or(|types| is_of_types(&line.fstype, types))
            && (line.source.is_absolute() || list == Path::new(FSTAB))
    };
    for line in lines.iter().filter(is_listed) {
        let Some(mount) = mounted_at(&in_use, &seen, &line.target) else { continue };
        let device = if line.source.is_absolute() { &line.source } else { &mount.source };
        let is_known = found.iter().any(|(known, _)| known.is_of_same_file_system(mount));
        let is_wanted = !is_known
            && device.is_absolute()
            && is_directory(mount)
            && access(&mount.target, Access::WRITE_OK).is_ok()
            && takes_discards(machine, mount)?;
        if is_wanted {
            found.push((mount, Selected { target: line.target.clone(), device: device.clone() }));
        }
    }
    Ok(Some(found.into_iter().map(|(_, selected)| selected).rev().collect()))
}

/// The list of what is to be mounted.
const FSTAB: &str = "/etc/fstab";

/// Of several lines with one mount point, the last.
fn last_of_each_target(lines: Vec<Listed>) -> Vec<Listed> {
    let mut last: Vec<Listed> = Vec::new();
    for line in lines.into_iter().rev() {
        if last.iter().all(|known| known.target != line.target) {
            last.push(line);
        }
    }
    last.reverse();
    last
}

/// Returns a line for `/` if `list` is `/etc/fstab` and has none.
fn missing_root(list: &Path, lines: &[Listed]) -> Option<Listed> {
    let root = Path::new("/");
    let is_missing = list == Path::new(FSTAB) && lines.iter().all(|line| line.target != root);
    is_missing.then(|| Listed {
        source: PathBuf::new(),
        target: root.to_owned(),
        fstype: "auto".to_owned(),
        options: Vec::new(),
    })
}

/// Returns the mount at `target`, which may be a symbolic link to it, among those of `in_use` that are `seen`. Does not
/// look below an automount point, which would mount it.
fn mounted_at<'a>(in_use: &[Mount], seen: &[&'a Mount], target: &Path) -> Option<&'a Mount> {
    let at = |target: &Path| seen.iter().copied().find(|mount| mount.target == target);
    let found = at(target).or_else(|| at(&resolved(in_use, target)?))?;
    (found.fstype != "autofs").then_some(found)
}

/// Returns whether the device of `mount` takes discards and can be written to. True if that is not known.
fn takes_discards(machine: &Machine, mount: &Mount) -> Result<bool, BlockError> {
    let sysfs = machine.sysfs();
    let device =
        BlockDevice::numbered(&sysfs, mount.number).or_else(|| BlockDevice::open(&sysfs, &mount.source).ok());
    let Some(device) = device else { return Ok(true) };
    Ok(device.discard_limits()?.granularity > Bytes::ZERO && !device.is_read_only()?)
}
