//! Mount namespaces, and the processes that are in them.

use std::collections::VecDeque;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{Mount, MountError, mounts, parse};
use crate::{identity, limited};

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

    /// Whether it is that of this process.
    pub(crate) fn is_own(&self) -> bool {
        self.process.is_none()
    }

    /// The directory of procfs that is its process' root; that of this process is its own.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where the file that has the absolute path `path` in it is found.
    pub fn file(&self, path: &Path) -> PathBuf {
        let root = self.root.clone();
        match self.process {
            None => root.join(path.strip_prefix("/").unwrap_or(path)),
            // Links in there may lead through a file system that does not answer.
            Some(_) => {
                let inside = path.to_owned();
                let found = limited::ask(move || follow(&root, &inside)).answer();
                found.unwrap_or_else(|| self.root.join(path.strip_prefix("/").unwrap_or(path)))
            }
        }
    }

    /// The metadata of the file that has the absolute path `path` in it.
    ///
    /// # Errors
    ///
    /// The kernel's; also where the path leads to a file system that does not answer.
    pub(crate) fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let place = self.file(path);
        limited::in_time(move || fs::metadata(place))
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
