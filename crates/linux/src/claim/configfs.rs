//! The settings of what the kernel serves to others, wherever configfs is mounted, or nowhere.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::statfs;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::ClaimError;
use crate::stack::Machine;

/// `f_type` of configfs; see `linux/magic.h`.
const CONFIGFS: i64 = 0x6265_6570;

/// Where it is usually mounted.
const USUAL: &str = "/sys/kernel/config";

/// The tree of configfs.
#[derive(Debug)]
pub(super) struct ConfigFs {
    root: PathBuf,
    /// A mount that is in no list, which lasts as long as this.
    _mount: Option<OwnedFd>,
}

impl ConfigFs {
    /// The directory that holds the tree.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path that `inner`, a path below [`root`](Self::root), has where configfs is usually mounted.
    pub fn usual(&self, inner: &Path) -> PathBuf {
        inner.strip_prefix(&self.root).map_or(inner.to_owned(), |inner| Path::new(USUAL).join(inner))
    }
}

/// Returns the tree of configfs; none where the kernel has none. On this machine it is mounted once more, as the usual
/// mount may be hidden or missing.
///
/// # Errors
/// [`ClaimError::NoConfig`] where it can't be mounted and is not in its usual place.
pub(super) fn configfs(machine: &Machine) -> Result<Option<ConfigFs>, ClaimError> {
    if !machine.is_live() {
        return Ok(Some(ConfigFs { root: machine.sysfs().join("kernel/config"), _mount: None }));
    }
    // Asking for a file system that is not there would load it.
    let text = fs::read_to_string(machine.procfs().join("filesystems"));
    if text.is_ok_and(|text| !is_listed(&text)) {
        return Ok(None);
    }
    match mounted() {
        Ok(mount) => {
            let root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
            Ok(Some(ConfigFs { root, _mount: Some(mount) }))
        }
        Err(_) if statfs(USUAL).is_ok_and(|found| found.f_type == CONFIGFS) => {
            Ok(Some(ConfigFs { root: USUAL.into(), _mount: None }))
        }
        Err(source) => Err(ClaimError::NoConfig { source: source.into() }),
    }
}

/// Whether `/proc/filesystems` with this text has configfs.
fn is_listed(text: &str) -> bool {
    text.lines().any(|line| line.split_whitespace().last() == Some("configfs"))
}

/// Mounts configfs where no path leads.
fn mounted() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("configfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configfs_is_looked_for_by_its_whole_name() {
        assert!(is_listed("nodev\tsysfs\nnodev\tconfigfs\n\text4\n"));
        assert!(!is_listed("nodev\tsysfs\nnodev\tbinconfigfs\n\text4\n"));
        assert!(!is_listed(""));
    }

    #[test]
    fn settings_are_named_where_they_usually_are() {
        let tree = ConfigFs { root: "/proc/self/fd/7".into(), _mount: None };
        let inner = tree.root().join("nvmet/subsystems/s");
        assert_eq!(tree.usual(&inner), Path::new("/sys/kernel/config/nvmet/subsystems/s"));
        assert_eq!(tree.usual(Path::new("/sys/class/udc")), Path::new("/sys/class/udc"));
    }
}
