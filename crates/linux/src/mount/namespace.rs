//! Mount namespaces, and the processes that are in them.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Mount, MountError, mounts, parse};
use crate::{identity, limited};

/// A mount namespace, as one process sees it.
#[derive(Debug, Clone)]
pub struct Namespace {
    /// The directory of procfs that is the process' root; for this process, it is its own.
    root: PathBuf,
    directories: Directories,
    /// The process; none for this one.
    pub process: Option<u32>,
    /// Its mounts.
    pub mounts: Vec<Mount>,
}

impl Namespace {
    /// The namespace whose files are found below `root`.
    pub(crate) fn new(root: PathBuf, process: Option<u32>, mounts: Vec<Mount>) -> Self {
        Self { root, process, mounts, directories: Directories::default() }
    }

    /// Whether it belongs to this process.
    pub(crate) fn is_own(&self) -> bool {
        self.process.is_none()
    }

    /// The directory of procfs that is its process' root; for this process, it is its own.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where the file that has the absolute path `path` in it is found.
    pub fn file(&self, path: &Path) -> PathBuf {
        let place = self.place(path);
        match self.process {
            None => place.unfollowed(),
            // Links in there may lead through a file system that does not answer.
            Some(_) => {
                let asked = place.clone();
                limited::ask(move || asked.found()).answer().unwrap_or_else(|| place.unfollowed())
            }
        }
    }

    /// The absolute path `path` in it.
    pub(crate) fn place(&self, path: &Path) -> Place {
        let (root, directories) = (self.root.clone(), self.directories.clone());
        Place { root, path: path.to_owned(), is_own: self.is_own(), directories }
    }

    /// The metadata of the file that has the absolute path `path` in it.
    ///
    /// # Errors
    ///
    /// The kernel's; also where the path leads to a file system that does not answer.
    pub(crate) fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let place = self.place(path);
        limited::in_time(move || fs::metadata(place.found()))
    }
}

/// The directories of a namespace that were looked up, each with where it is found. Machines with many containers have the same
/// ones looked up for thousands of files.
#[derive(Debug, Clone, Default)]
struct Directories(Arc<Mutex<HashMap<PathBuf, PathBuf>>>);

/// How many directories of a namespace are kept.
const MOST_DIRECTORIES: usize = 1 << 14;

/// An absolute path in a namespace.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    root: PathBuf,
    path: PathBuf,
    is_own: bool,
    directories: Directories,
}

impl Place {
    /// Where the file is found. Follows links, which may take for ever.
    pub fn found(&self) -> PathBuf {
        if self.is_own {
            return self.unfollowed();
        }
        let (Some(directory), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return follow(&self.root, &self.path);
        };
        let found = self.directory(directory).join(name);
        // This asks no server, unless it is a link.
        if fs::read_link(&found).is_ok() { follow(&self.root, &self.path) } else { found }
    }

    /// Where the directory `path` is found, or would be.
    fn directory(&self, path: &Path) -> PathBuf {
        let known = || self.directories.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known().get(path) {
            return found.clone();
        }
        // Not while others wait for the lock: this may take for ever.
        let found = follow(&self.root, path);
        let mut known = known();
        if known.len() >= MOST_DIRECTORIES {
            known.clear();
        }
        known.insert(path.to_owned(), found.clone());
        found
    }

    fn unfollowed(&self) -> PathBuf {
        self.root.join(self.path.strip_prefix("/").unwrap_or(&self.path))
    }
}

/// How many links the kernel follows in one path.
const MOST_LINKS: usize = 40;

/// Returns `path` below `root` with all links in it followed as a process with that root directory follows them: the kernel
/// would follow absolute ones from this process' own.
fn follow(root: &Path, path: &Path) -> PathBuf {
    let mut rest: VecDeque<_> = path.components().map(|part| part.as_os_str().to_owned()).collect();
    let (mut found, mut links) = (PathBuf::new(), 0);
    while let Some(part) = rest.pop_front() {
        match part.as_bytes() {
            b"/" => found = PathBuf::new(),
            b"." => {}
            b".." => {
                found.pop();
            }
            _ => match fs::read_link(root.join(&found).join(&part)) {
                Ok(link) if links < MOST_LINKS => {
                    links += 1;
                    let parts: Vec<_> = link.components().map(|part| part.as_os_str().to_owned()).collect();
                    parts.into_iter().rev().for_each(|part| rest.push_front(part));
                }
                _ => found.push(part),
            },
        }
    }
    root.join(found)
}

/// Every mount namespace that a process of procfs is in, once for each root directory in it, this process'
/// first. `root` is where this process' files are found.
///
/// # Errors
/// [`MountError::List`]; processes that may not be looked at are passed over.
pub fn namespaces(root: &Path, procfs: &Path) -> Result<Vec<Namespace>, MountError> {
    let view = |process: &Path| {
        let root = process.join("root");
        // In a chroot, the links of roots outside it read like its own root.
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::captured::Captured;

    #[test]
    fn links_of_other_namespaces_are_followed_below_their_root() {
        let machine = Captured::new().file("images/b/disk", "").file("images/c/disk", "");
        let root = machine.root().to_owned();
        for (to, link) in [("/images/b", "images/a"), ("../images/c", "images/d"), ("loop", "images/loop")] {
            symlink(to, root.join(link)).unwrap();
        }
        let namespace = Namespace::new(root.clone(), Some(42), Vec::new());
        for (path, expected) in [
            ("/images/a/disk", "images/b/disk"),
            ("/images/d/disk", "images/c/disk"),
            ("/../images/./b/../c/disk", "images/c/disk"),
            ("/images/none/disk", "images/none/disk"),
        ] {
            assert_eq!(namespace.file(Path::new(path)), root.join(expected), "{path}");
        }
        assert!(fs::metadata(namespace.file(Path::new("/images/loop"))).is_err());
        let own = Namespace::new(root.clone(), None, Vec::new());
        assert_eq!(own.file(Path::new("/images/a/disk")), root.join("images/a/disk"));
    }
}
