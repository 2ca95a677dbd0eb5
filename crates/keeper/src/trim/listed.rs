//! The mount points that `-a`, `-A` and `-I` select.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use trimtab_linux::mount::{Listed, Mount, MountError, covering, listed_in, mounts};
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

/// Returns a mount point of each mounted file system that the first file with any lines in `lists` names, except lines
/// with `X-fstrim.notrim`. Adds `/` if that file is `/etc/fstab` and lacks it. A file system that is listed several times
/// is returned once; one that is mounted read-only there is returned at a mount point that can be written to, if it has
/// one.
///
/// # Errors
/// [`ListedError`], also if none of the files exists.
pub fn listed(machine: &Machine, lists: &[PathBuf]) -> Result<Vec<PathBuf>, ListedError> {
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
        let root = Path::new("/");
        if path == Path::new("/etc/fstab") && lines.iter().all(|line| line.target != root) {
            lines.insert(0, Listed { target: root.to_owned(), options: Vec::new() });
        }
        let mut found: Vec<&Mount> = Vec::new();
        for line in lines.iter().filter(|line| line.options.iter().all(|option| option != EXCLUDED)) {
            // A mount point may be named through a symbolic link.
            let target = line.target.canonicalize().unwrap_or_else(|_| line.target.clone());
            let Some(mount) = in_use.iter().rfind(|mount| mount.target == target) else { continue };
            match found.iter_mut().find(|known| known.is_of_same_file_system(mount)) {
                Some(known) if known.is_read_only() && !mount.is_read_only() => *known = mount,
                Some(_) => {}
                None => found.push(mount),
            }
        }
        let targets = found.into_iter().map(|mount| writable(&in_use, mount).target.clone());
        return Ok(targets.collect());
    }
    Ok(Vec::new())
}

/// Returns `mount`, or another mount of its file system that can be written to where `mount` is read-only.
fn writable<'a>(in_use: &'a [Mount], mount: &'a Mount) -> &'a Mount {
    let is_better = |other: &&Mount| {
        let is_visible = covering(in_use, &other.target).is_some_and(|top| top.id == other.id);
        is_visible && !other.is_read_only() && other.is_of_same_file_system(mount)
    };
    if mount.is_read_only() { in_use.iter().find(is_better).unwrap_or(mount) } else { mount }
}
