//! A new file system on an emulated drive of its own.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{io, thread};

use trimtab_core::Bytes;
use trimtab_core::document::Filling;
use trimtab_core::policy::PolicyKind;
use trimtab_core::profile::Profile;
use trimtab_drive::{Clock, CreateOptions, Drive, DriveFigures, Room};
use trimtab_linux::block::BlockDevice;
use trimtab_linux::mount::MountError;
use trimtab_linux::{SYSFS, mount};

use super::Testbed;
use super::filled::fill;
use crate::error::LabError;
use crate::fs::FileSystem;
use crate::mkfs::MakeOptions;

/// The longest wait for others to let go of a mount.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How often it is tried meanwhile.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The largest drive that has memory of its size. A larger one has a pool for what is written.
pub const LARGEST_KEPT: Bytes = Bytes(16 << 30);
/// The part of a large drive that is for the file system's own data, and the least of that: mkfs.xfs writes 530 MiB on 1 TB.
const METADATA_PART: u64 = 1024;
const LEAST_METADATA: Bytes = Bytes(1 << 30);
/// A large file system has space for new data beside old, which the drive holds until it is discarded: how often it can hold
/// the workload's room.
const COPIES: u64 = 3;

/// Returns the room for the data of a drive of `size` whose file system is filled so.
pub fn room_of(size: Bytes, filling: Option<Filling>) -> Room {
    if size <= LARGEST_KEPT {
        return Room::Kept;
    }
    let used = filling.map_or(size, |filling| filling.room);
    let metadata = Bytes(size.0 / METADATA_PART).max(LEAST_METADATA);
    Room::Pool(metadata + Bytes(used.0.saturating_mul(COPIES)))
}

/// The drive and the file system of a run.
#[derive(Debug, Clone, Copy)]
pub struct EmulatedOptions<'a> {
    /// The file system.
    pub file_system: FileSystem,
    /// The policy, which decides the mount options.
    pub policy: PolicyKind,
    /// Drive seconds per second of this machine's clock.
    pub speed: f64,
    /// How the drive behaves.
    pub profile: &'a Profile,
    /// The drive's size.
    pub size: Bytes,
    /// How the file system is filled, and the most space that the workload uses; none for a new one, all of it the workload's.
    pub filling: Option<Filling>,
    /// Whether the kernel may merge adjacent requests.
    pub merges: bool,
    /// The executable that serves drives: trimtab itself.
    pub server: &'a Path,
}

/// A mounted file system on an emulated drive; both go when this is dropped.
pub struct EmulatedTestbed {
    file_system: FileSystem,
    policy: PolicyKind,
    option: String,
    room: Bytes,
    // In order of dropping: what is mounted, and the drive it is mounted from.
    mounted: Mounted,
    block: BlockDevice,
    drive: OwnDrive,
    target: PathBuf,
}

/// Removes its drive when dropped, and waits for that.
struct OwnDrive(Option<Drive>);

impl Deref for OwnDrive {
    type Target = Drive;
    fn deref(&self) -> &Drive {
        self.0.as_ref().expect("the drive is only taken when dropped")
    }
}

impl Drop for OwnDrive {
    fn drop(&mut self) {
        if let Some(drive) = self.0.take() {
            // If this fails, the drive's server takes it down: it is owned by this process.
            let _ = drive.remove();
        }
    }
}

/// Unmounts when dropped.
struct Mounted(Option<PathBuf>);

impl Mounted {
    /// Unmounts, once those who merely look at a new mount have let go of it.
    fn unmount(&mut self) -> Result<(), LabError> {
        let Some(target) = &self.0 else { return Ok(()) };
        let started = Instant::now();
        loop {
            match mount::unmount(target) {
                Err(MountError::Unmount { source, .. })
                    if source.kind() == io::ErrorKind::ResourceBusy && started.elapsed() < TIMEOUT =>
                {
                    thread::sleep(RETRY_INTERVAL);
                }
                outcome => {
                    outcome?;
                    self.0 = None;
                    return Ok(());
                }
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(target) = self.0.take()
            && mount::unmount(&target).is_err()
        {
            // Removing the drive reports what still stands in the way.
            let _ = mount::unmount_lazily(&target);
        }
    }
}

impl EmulatedTestbed {
    /// Creates the drive, makes the file system and mounts it.
    ///
    /// # Errors
    /// [`LabError::NoSuchPolicy`], [`LabError::TooSmall`], or what the drive, the file system's
    /// maker or the mount fails with.
    pub fn create(options: EmulatedOptions) -> Result<Self, LabError> {
        let EmulatedOptions { file_system, policy, speed, profile, size, filling, merges, server } = options;
        let option =
            file_system.mount_option(policy).ok_or(LabError::NoSuchPolicy { fs: file_system, policy })?;
        let room = filling.map_or(Bytes(u64::MAX), |filling| filling.room);
        let drive = Drive::create(&CreateOptions {
            name: format!("compare-{}", std::process::id()),
            profile: profile.clone(),
            size,
            preconditioned: true,
            clock: Clock::Real { speed },
            data: None,
            server: server.to_owned(),
            owned: true,
            room: room_of(size, filling),
        })?;
        let drive = OwnDrive(Some(drive));
        let target = drive.mount_point();
        let is_large = size > LARGEST_KEPT;
        file_system
            .make_as(drive.device(), &MakeOptions { discards: false, size: None, is_lazy: is_large })?;
        let lazy = if is_large { file_system.lazy_option() } else { None };
        let option = [Some(option), lazy].into_iter().flatten().collect::<Vec<_>>().join(",");
        let block = BlockDevice::open(Path::new(SYSFS), drive.device())?;
        if !merges {
            block.turn_merges_off()?;
        }
        let mounted = Mounted(None);
        let mut testbed = Self { file_system, policy, option, room, mounted, block, drive, target };
        testbed.mount()?;
        filling.map_or(Ok(()), |filling| fill(&testbed.target, file_system, filling))?;
        Ok(testbed)
    }

    fn mount(&mut self) -> Result<(), LabError> {
        mount::mount(self.drive.device(), &self.target, self.file_system.name(), &self.option)?;
        self.mounted.0 = Some(self.target.clone());
        Ok(())
    }
}

impl Testbed for EmulatedTestbed {
    fn file_system(&self) -> &str {
        self.file_system.name()
    }

    fn dir(&self) -> &Path {
        &self.target
    }

    fn mount_point(&self) -> &Path {
        &self.target
    }

    fn source(&self) -> PathBuf {
        self.drive.device().to_owned()
    }

    fn block(&self) -> Option<&BlockDevice> {
        Some(&self.block)
    }

    fn drive(&mut self) -> Result<Option<DriveFigures>, LabError> {
        Ok(Some(self.drive.figures()?))
    }

    fn room(&self) -> Bytes {
        self.room
    }

    fn take_offline(&mut self) -> Result<(), LabError> {
        self.mounted.unmount()
    }

    fn bring_online(&mut self) -> Result<(), LabError> {
        self.mount()
    }

    fn own(&self) -> Result<(FileSystem, bool), LabError> {
        Ok((self.file_system, matches!(self.policy, PolicyKind::Online | PolicyKind::Async)))
    }

    fn remount(&mut self) -> Result<bool, LabError> {
        self.take_offline()?;
        self.bring_online()?;
        Ok(true)
    }
}
