//! The mount points that `-a`, `-A` and `-I` select.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use trimtab_core::Bytes;
use trimtab_linux::block::{BlockDevice, BlockError};
use trimtab_linux::mount::{Listed, Mount, MountError, listed_in, mounts};
use trimtab_linux::mount_points::{resolved, writable};
use trimtab_linux::stack::{Machine, StackError, targets};

/// The mount option that excludes a file system.
const EXCLUDED: &str = "X-fstrim.notrim";

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
/// one.
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
        let mut lines = listed_in(&text);
        if lines.is_empty() {
            continue;
        }
        lines.splice(..0, missing_root(path, &lines));
        let mounts = chosen(&lines, &in_use).into_iter().map(|(_, mount)| mount.target.clone()).collect();
        let targets = lines.iter().filter(|line| line.target.is_absolute());
        let passed_over = targets.filter_map(|line| {
            let reason = if is_excluded(line) {
                "its line has X-fstrim.notrim"
            } else if mounted_at(&in_use, &line.target).is_none() {
                "it is not mounted"
            } else {
                return None;
            };
            Some((line.target.clone(), reason))
        });
        return Ok(Listing { mounts, passed_over: passed_over.collect() });
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
/// one first. It selects those that can be written to, are on a device that takes discards, and are of one of
/// `types`, in the form of `mount -t`. Returns none if the list has no lines.
///
/// # Errors
/// [`ListedError`].
pub fn selected(
    machine: &Machine,
    list: &Path,
    types: Option<&str>,
) -> Result<Option<Vec<Selected>>, ListedError> {
    let unread = |source| ListedError::Read { path: list.to_owned(), source };
    let mut lines = listed_in(&fs::read(list).map_err(unread)?);
    if lines.is_empty() {
        return Ok(None);
    }
    lines.extend(missing_root(list, &lines));
    let in_use = mounts(&machine.procfs())?;
    let mut found = Vec::new();
    for (line, mount) in chosen(&lines, &in_use) {
        let device = if line.source.is_absolute() { &line.source } else { &mount.source };
        let is_wanted = types.is_none_or(|types| is_of_types(&mount.fstype, types))
            && device.is_absolute()
            && !mount.is_read_only()
            && access(&mount.target, Access::WRITE_OK).is_ok()
            && takes_discards(machine, mount)?;
        if is_wanted {
            let is_there = line.target.canonicalize().is_ok_and(|target| target == mount.target);
            let target = if is_there { &line.target } else { &mount.target };
            found.push(Selected { target: target.clone(), device: device.clone() });
        }
    }
    found.reverse();
    Ok(Some(found))
}

/// Returns a line for `/` if `list` is `/etc/fstab` and has none.
fn missing_root(list: &Path, lines: &[Listed]) -> Option<Listed> {
    let root = Path::new("/");
    let is_missing = list == Path::new("/etc/fstab") && lines.iter().all(|line| line.target != root);
    is_missing.then(|| Listed { source: PathBuf::new(), target: root.to_owned(), options: Vec::new() })
}

/// Returns the mount of each file system that `lines` name and don't exclude, and its line: once each, at a
/// mount point that can be written to if there is one.
fn chosen<'a>(lines: &'a [Listed], in_use: &'a [Mount]) -> Vec<(&'a Listed, &'a Mount)> {
    let mut found: Vec<(&Listed, &Mount)> = Vec::new();
    for line in lines.iter().filter(|line| !is_excluded(line)) {
        let Some(mount) = mounted_at(in_use, &line.target) else { continue };
        match found.iter_mut().find(|(_, known)| known.is_of_same_file_system(mount)) {
            Some(known) if known.1.is_read_only() && !mount.is_read_only() => *known = (line, mount),
            Some(_) => {}
            None => found.push((line, mount)),
        }
    }
    let at_best = |(line, mount): (&'a Listed, &'a Mount)| {
        let elsewhere = writable(in_use, mount).first().copied().filter(|_| mount.is_read_only());
        (line, elsewhere.unwrap_or(mount))
    };
    found.into_iter().map(at_best).collect()
}

fn is_excluded(line: &Listed) -> bool {
    line.options.iter().any(|option| option == EXCLUDED)
}

/// Returns the mount at `target`, which may be a symbolic link to it. Does not look below an automount point,
/// which would mount it.
fn mounted_at<'a>(in_use: &'a [Mount], target: &Path) -> Option<&'a Mount> {
    let at = |target: &Path| in_use.iter().rfind(|mount| mount.target == target);
    let found = at(target).or_else(|| at(&resolved(in_use, target)?))?;
    (found.fstype != "autofs").then_some(found)
}

/// Returns whether `fstype` is one of `types`: names with commas between them, where `no` before the first
/// excludes all of them, and `no` before another excludes that one.
fn is_of_types(fstype: &str, types: &str) -> bool {
    let (names, is_included) = types.strip_prefix("no").map_or((types, true), |names| (names, false));
    for name in names.split(',') {
        if name == fstype {
            return is_included;
        }
        if name.strip_prefix("no") == Some(fstype) {
            return false;
        }
    }
    !is_included
}

/// Returns whether the device of `mount` takes discards and can be written to. True if that is not known.
fn takes_discards(machine: &Machine, mount: &Mount) -> Result<bool, BlockError> {
    let sysfs = machine.sysfs();
    let device =
        BlockDevice::numbered(&sysfs, mount.number).or_else(|| BlockDevice::open(&sysfs, &mount.source).ok());
    let Some(device) = device else { return Ok(true) };
    Ok(device.discard_limits()?.granularity > Bytes::ZERO && !device.is_read_only()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_included_or_excluded() {
        for (types, is_wanted) in [
            ("ext4", true),
            ("xfs,ext4", true),
            ("xfs", false),
            ("noext4", false),
            ("noxfs,ext4", false),
            ("noxfs,btrfs", true),
            ("xfs,noext4", false),
            ("", false),
        ] {
            assert_eq!(is_of_types("ext4", types), is_wanted, "{types:?}");
        }
    }
}
