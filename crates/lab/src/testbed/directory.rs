//! A directory of the user's, on whatever it is mounted on: nothing is mounted or formatted.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::policy::PolicyKind;
use trimtab_drive::DriveFigures;
use trimtab_linux::block::BlockDevice;
use trimtab_linux::file_system_kind::FileSystemKind;
use trimtab_linux::mount::{Mount, covering, discard_option, mounts};
use trimtab_linux::{PROCFS, SYSFS};

use super::Testbed;
use crate::error::{LabError, io_at};
use crate::fs::FileSystem;

/// A fresh directory inside one of the user's; it goes when this is dropped.
pub struct DirectoryTestbed {
    dir: TempDir,
    mount: Mount,
    device: Option<BlockDevice>,
    room: Bytes,
}

impl DirectoryTestbed {
    /// Makes a directory to work in inside `parent`, for a workload that uses at most `room`.
    ///
    /// # Errors
    /// [`LabError::File`] if `parent` isn't there, is no directory or can't be written to.
    pub fn create(parent: &Path, room: Bytes) -> Result<Self, LabError> {
        let mount = mount_of(parent)?;
        let parent = &parent.canonicalize().map_err(io_at(parent, "open the directory"))?;
        let dir = tempfile::Builder::new().prefix("trimtab-").tempdir_in(parent);
        let dir = dir.map_err(io_at(parent, "make a directory in"))?;
        let device = BlockDevice::open(Path::new(SYSFS), &mount.source).ok();
        Ok(Self { dir, mount, device, room })
    }
}

/// The mount that the directory `dir` is on.
///
/// # Errors
/// [`LabError::File`] if `dir` isn't a directory.
pub fn mount_of(dir: &Path) -> Result<Mount, LabError> {
    let place = dir.canonicalize().map_err(io_at(dir, "open the directory"))?;
    std::fs::read_dir(&place).map_err(io_at(dir, "open the directory"))?;
    let known = mounts(Path::new(PROCFS))?;
    covering(&known, &place)
        .cloned()
        .ok_or_else(|| io_at(dir, "find the mount of")(std::io::ErrorKind::NotFound.into()))
}

/// Returns the policies that can be compared on a mount without changing it. A mount that discards online
/// keeps doing so, and smart needs a file system that reports its frees.
pub fn possible_policies(mount: &Mount) -> &'static [PolicyKind] {
    match discard_option(&mount.super_options) {
        None if FileSystemKind::reports_frees(&mount.fstype) => {
            &[PolicyKind::None, PolicyKind::Batched, PolicyKind::Smart]
        }
        None => &[PolicyKind::None, PolicyKind::Batched],
        Some("discard=async") => &[PolicyKind::Async],
        Some(_) => &[PolicyKind::Online],
    }
}

impl Testbed for DirectoryTestbed {
    fn file_system(&self) -> &str {
        &self.mount.fstype
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn mount_point(&self) -> &Path {
        &self.mount.target
    }

    fn source(&self) -> PathBuf {
        self.mount.source.clone()
    }

    fn block(&self) -> Option<&BlockDevice> {
        self.device.as_ref()
    }

    fn drive(&mut self) -> Result<Option<DriveFigures>, LabError> {
        Ok(None)
    }

    fn room(&self) -> Bytes {
        self.room
    }

    fn take_offline(&mut self) -> Result<(), LabError> {
        Err(LabError::MountIsUsers)
    }

    fn bring_online(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    fn own(&self) -> Result<(FileSystem, bool), LabError> {
        Err(LabError::MountIsUsers)
    }

    fn remount(&mut self) -> Result<bool, LabError> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use trimtab_linux::block::DeviceNumber;

    use super::*;

    fn mounted(options: &str) -> Mount {
        Mount {
            id: 31,
            parent: 1,
            number: DeviceNumber { major: 8, minor: 1 },
            root: "/".into(),
            target: "/x".into(),
            fstype: "ext4".into(),
            source: "/dev/x".into(),
            options: "rw".into(),
            super_options: options.into(),
        }
    }

    #[test]
    fn mount_options_limit_the_policies() {
        use PolicyKind::{Async, Batched, None, Online, Smart};
        for (options, possible) in [
            ("rw", vec![None, Batched, Smart]),
            ("rw,nodiscard", vec![None, Batched, Smart]),
            ("rw,discard,data=ordered", vec![Online]),
            ("rw,discard=async", vec![Async]),
        ] {
            assert_eq!(possible_policies(&mounted(options)), possible, "{options}");
        }
        let silent = Mount { fstype: "vfat".into(), ..mounted("rw") };
        assert_eq!(possible_policies(&silent), [None, Batched]);
    }

    #[test]
    fn work_directory_is_removed_with_its_testbed() {
        let parent = tempfile::tempdir().unwrap();
        let testbed = DirectoryTestbed::create(parent.path(), Bytes::MIB).unwrap();
        std::fs::write(testbed.dir().join("file"), "x").unwrap();
        drop(testbed);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
