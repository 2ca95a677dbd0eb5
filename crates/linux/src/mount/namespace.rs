//! Mount namespaces, and the processes that are in them.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::{Mount, MountError, mounts, parse};
use crate::identity;

/// A mount namespace, as one process sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// The directory of procfs that is the process' root; that of this process is its own.
    root: PathBuf,
    /// The process; none for this one.
    pub process: Option<u32>,
    /// Its mounts.
    pub mounts: Vec<Mount>,
}

impl Namespace {
    /// The namespace whose files are found below `root`.
    pub(crate) fn new(root: PathBuf, process: Option<u32>, mounts: Vec<Mount>) -> Self {
        Self { root, process, mounts }
    }

    /// Where the file that has the absolute path `path` in it is found.
    pub fn file(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// Every mount namespace that a process of procfs is in, once for each root directory in it, this process'
/// first. `root` is where this process' files are found.
///
/// # Errors
/// [`MountError::List`]; processes that may not be looked at are passed over.
pub fn namespaces(root: &Path, procfs: &Path) -> Result<Vec<Namespace>, MountError> {
    let view = |process: &Path| {
        let root = process.join("root");
        // In a chroot, the links of roots outside it read like that of its own.
        let place = identity::look(&root).ok().map(|found| (identity::id_of(&found), found.stx_mnt_id));
        Some((fs::read_link(process.join("ns/mnt")).ok()?, fs::read_link(&root).ok()?, place))
    };
    let mut seen: Vec<_> = view(&procfs.join("self")).into_iter().collect();
    let mut all = vec![Namespace::new(root.to_owned(), None, mounts(procfs)?)];
    for process in processes(procfs)? {
        let directory = procfs.join(process.to_string());
        // One that ended, or that this may not look at, has none.
        let Some(view) = view(&directory) else { continue };
        if seen.contains(&view) {
            continue;
        }
        let Ok(text) = fs::read(directory.join("mountinfo")) else { continue };
        all.push(Namespace::new(directory.join("root"), Some(process), parse(&text)));
        seen.push(view);
    }
    Ok(all)
}

/// The processes that procfs lists.
pub(crate) fn processes(procfs: &Path) -> Result<Vec<u32>, MountError> {
    let list = |source| MountError::List { path: procfs.to_owned(), source };
    let entries = fs::read_dir(procfs).map_err(list)?.collect::<io::Result<Vec<_>>>().map_err(list)?;
    let numbers = entries.iter().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers.collect())
}
