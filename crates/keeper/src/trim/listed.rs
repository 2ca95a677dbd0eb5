//! Which mount points `-a`, `-A` and `-I` mean.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use trimtab_linux::mount::{Listed, MountError, listed_in, mounts};
use trimtab_linux::stack::{Machine, StackError, targets};

/// The option of a line that keeps its file system from being trimmed.
const NEVER: &str = "X-fstrim.notrim";

/// Why it can't be told which mount points are meant.
#[derive(Debug, thiserror::Error)]
pub enum ListedError {
    /// A list can't be read.
    #[error("cannot read the list {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The mounts can't be listed.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// What they lie on can't be told.
    #[error(transparent)]
    Stack(#[from] StackError),
}

/// Where file systems are mounted that lie on block devices, each once.
///
/// # Errors
/// [`ListedError`].
pub fn mounted(machine: &Machine) -> Result<Vec<PathBuf>, ListedError> {
    let mounts = mounts(&machine.procfs())?;
    let mut found = targets(machine)?;
    found.retain(|target| mounts.iter().any(|mount| mount.target == *target));
    Ok(found)
}

/// The mount points of those in use that the first file with any lines in `lists` names; `/` among them where
/// that is `/etc/fstab` and lacks it. Lines that say `X-fstrim.notrim` are left out.
///
/// # Errors
/// [`ListedError`], also where none of the files is there.
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
            let is_never = line.options.iter().any(|option| option == NEVER);
            if !is_never && is_mounted(&line.target) && !found.contains(&line.target) {
                found.push(line.target);
            }
        }
        return Ok(found);
    }
    Ok(Vec::new())
}
