//! A directory of the user's, on whatever it is mounted on: nothing is mounted or formatted.

use std::path::Path;

use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::error::chain;
use trimtab_core::policy::{Goals, PolicyKind, SmartPolicy, Worth};
use trimtab_core::stats::DriveCounters;
use trimtab_linux::block::{BlockCounters, BlockDevice};
use trimtab_linux::mount::{Mount, covering, mounts};
use trimtab_linux::{PROCFS, SYSFS};

use super::Ground;
use crate::error::{LabError, io_at};
use crate::interrupt::Interrupt;
use crate::keeping::{Keeping, survey};

/// File systems whose events tell what they give up.
const TELLING: [&str; 5] = ["ext2", "ext3", "ext4", "xfs", "btrfs"];

/// A fresh directory inside one of the user's; it goes when this is dropped.
pub struct DirectoryGround {
    dir: TempDir,
    mount: Mount,
    device: Option<BlockDevice>,
    room: Bytes,
}

impl DirectoryGround {
    /// Makes a directory to work in inside `parent`, for a workload that uses at most `room`.
    ///
    /// # Errors
    /// [`LabError::File`] where `parent` isn't there, is no directory or can't be written to.
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
/// [`LabError::File`] where `dir` isn't a directory.
pub fn mount_of(dir: &Path) -> Result<Mount, LabError> {
    let place = dir.canonicalize().map_err(io_at(dir, "open the directory"))?;
    std::fs::read_dir(&place).map_err(io_at(dir, "open the directory"))?;
    let known = mounts(Path::new(PROCFS))?;
    covering(&known, &place)
        .cloned()
        .ok_or_else(|| io_at(dir, "find the mount of")(std::io::ErrorKind::NotFound.into()))
}

/// The policies that can be compared on a mount as it is: a mount that discards online can't be
/// told not to, and only of some file systems is it told what they give up.
pub fn possible_policies(mount: &Mount) -> &'static [PolicyKind] {
    let discard = mount.super_options.split(',').find(|option| option.starts_with("discard"));
    match discard {
        None if TELLING.contains(&mount.fstype.as_str()) => {
            &[PolicyKind::None, PolicyKind::Batched, PolicyKind::Smart]
        }
        None => &[PolicyKind::None, PolicyKind::Batched],
        Some("discard=async") => &[PolicyKind::Async],
        Some(_) => &[PolicyKind::Online],
    }
}

impl Ground for DirectoryGround {
    fn file_system(&self) -> &str {
        &self.mount.fstype
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn kernel_counters(&self) -> Result<Option<BlockCounters>, LabError> {
        Ok(self.device.as_ref().map(BlockDevice::counters).transpose()?)
    }

    fn drive_counters(&mut self) -> Result<Option<DriveCounters>, LabError> {
        Ok(None)
    }

    fn room(&self) -> Bytes {
        self.room
    }

    fn idle(&mut self, interrupt: &Interrupt) -> Result<(), LabError> {
        super::await_async_discards(&self.mount.source, interrupt)
    }

    fn keep(&self) -> Result<Keeping, LabError> {
        let (place, sysfs) = (&self.mount.target, Path::new(SYSFS));
        let failed = |reason| LabError::NotTended { mount: place.clone(), reason };
        let ground = survey(place).map_err(failed)?;
        let profile = ground.usual_profile().map_err(|error| failed(chain(&error)))?;
        let devices = ground.devices(sysfs);
        let size = devices.iter().map(|device| device.size().unwrap_or_default()).sum();
        let policy = SmartPolicy::new(Goals::default(), Worth::new(&profile, size), ground.gain());
        Keeping::start(place, devices, None, policy)
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
    fn a_mount_rules_policies_out() {
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
    fn the_work_directory_goes_with_its_ground() {
        let parent = tempfile::tempdir().unwrap();
        let ground = DirectoryGround::create(parent.path(), Bytes::MIB).unwrap();
        std::fs::write(ground.dir().join("file"), "x").unwrap();
        drop(ground);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
