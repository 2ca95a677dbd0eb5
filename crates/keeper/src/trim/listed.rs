//! The mount points that `-a`, `-A` and `-I` select.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use trimtab_linux::mount::{Listed, MountError, listed_in, mounts};
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

/// Returns the mount points in use that the first file with any lines in `lists` names, except lines with
/// `X-fstrim.notrim`. Adds `/` if that file is `/etc/fstab` and lacks it.
///
/// # Errors
/// [`ListedError`], also if none of the files exists.
pub fn listed(machine: &Machine, lists: &[PathBuf]) -> Result<Vec<PathBuf>, ListedError> {
    let in_use = mounts(&machine.procfs())?;
    let is_mounted = |target: &Path| in_use.iter().any(|mount| mount.target == target);
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
        let mut found: Vec<PathBuf> = Vec::new();
        for line in lines {
            let is_excluded = line.options.iter().any(|option| option == EXCLUDED);
            if !is_excluded && is_mounted(&line.target) && !found.contains(&line.target) {
                found.push(line.target);
            }
        }
        return Ok(found);
    }
    Ok(Vec::new())
}
