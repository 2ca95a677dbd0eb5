//! Where the facts of a stack come from: this machine, or a captured tree.

use std::path::{Path, PathBuf};

/// This machine, or a tree that holds another's `sys`, `proc`, `etc` and what it answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    root: PathBuf,
    live: bool,
}

impl Machine {
    /// The machine that this runs on.
    pub fn live() -> Self {
        Self { root: PathBuf::from("/"), live: true }
    }

    /// The machine whose files are below `root`.
    pub fn captured(root: &Path) -> Self {
        Self { root: root.to_owned(), live: false }
    }

    /// Whether it can be asked more than its files say.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Where the file with the absolute path `path` is found.
    pub fn file(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Where sysfs is mounted.
    pub fn sysfs(&self) -> PathBuf {
        self.file("/sys")
    }

    /// Where procfs is mounted.
    pub fn procfs(&self) -> PathBuf {
        self.file("/proc")
    }
}
