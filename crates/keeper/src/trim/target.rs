//! A mounted file system that is to be trimmed, or why it isn't.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags, major, minor, statx};
use trimtab_core::Bytes;
use trimtab_linux::block::{BlockDevice, BlockError, DeviceNumber};
use trimtab_linux::mount::{Mount, MountError, covering, mounts};
use trimtab_linux::stack::{Machine, Stack, StackError};
use trimtab_linux::trim::{TrimError, Trimming, check};

use crate::free_space::{Division, FreeSpace, FreeSpaceError};
use crate::state::file_system_id;
use crate::trimmer::MountedTrimmer;

/// Why a path can't be trimmed.
#[derive(Debug, thiserror::Error)]
pub enum RefusedError {
    /// There is nothing at the path, or it may not be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The path.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Something else than a mount point.
    #[error("{} is not a mount point; to trim the file system that it is on, name {}", path.display(), on.display())]
    NotMountPoint {
        /// The path.
        path: PathBuf,
        /// Where that file system is mounted.
        on: PathBuf,
    },
    /// A device, and not where its file system is mounted.
    #[error("{} is a device; to trim the file system on it, name where that is mounted: {}", path.display(), on.display())]
    Device {
        /// The path.
        path: PathBuf,
        /// Where that file system is mounted.
        on: PathBuf,
    },
    /// A device that no file system is mounted from.
    #[error("{} is a device, and nothing is mounted from it; only what is mounted can be trimmed", path.display())]
    NotMounted {
        /// The path.
        path: PathBuf,
    },
    /// Nothing may be changed.
    #[error("{} is mounted read-only; it is not trimmed", mount.display())]
    ReadOnly {
        /// The mount point.
        mount: PathBuf,
    },
    /// A file system on no block device.
    #[error("{} is a {fstype}, which is on no block device", mount.display())]
    NoDevice {
        /// The mount point.
        mount: PathBuf,
        /// The file system's name.
        fstype: String,
    },
    /// Somebody without the right to.
    #[error("cannot trim {}: run this as root", mount.display())]
    NotRoot {
        /// The mount point.
        mount: PathBuf,
    },
    /// The kernel can't trim it.
    #[error(transparent)]
    Trim(TrimError),
    /// What it lies on can't be told.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The mounts can't be listed.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// Sysfs doesn't say what the device is like.
    #[error(transparent)]
    Block(#[from] BlockError),
}

impl RefusedError {
    /// Whether what is mounted there can't be trimmed as it is: `-a` passes over such.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self,
            Self::ReadOnly { .. } | Self::NoDevice { .. } | Self::Trim(TrimError::Unsupported { .. })
        )
    }
}

/// A mounted file system that can be trimmed. It is held open: it can't be unmounted meanwhile.
#[derive(Debug)]
pub struct Target {
    mount: PathBuf,
    fstype: String,
    directory: File,
    stack: Stack,
    devices: Vec<BlockDevice>,
    division: Division,
}

impl Target {
    /// What is mounted at `path`.
    ///
    /// # Errors
    /// [`RefusedError`].
    pub fn open(machine: &Machine, path: &Path) -> Result<Self, RefusedError> {
        let unseen = |source| RefusedError::Open { path: path.to_owned(), source };
        let place = path.canonicalize().map_err(unseen)?;
        let all = mounts(&machine.procfs())?;
        let kind = place.metadata().map_err(unseen)?;
        if kind.file_type().is_block_device() {
            let path = path.to_owned();
            return Err(match mount_from(&all, &place, kind.rdev()) {
                Some(mount) => RefusedError::Device { path, on: mount.target.clone() },
                None => RefusedError::NotMounted { path },
            });
        }
        let not_mounted = || {
            let on = covering(&all, &place).map_or(PathBuf::from("/"), |mount| mount.target.clone());
            RefusedError::NotMountPoint { path: path.to_owned(), on }
        };
        let directory = File::open(&place).map_err(unseen)?;
        let mount = found(&all, &place, &directory).ok_or_else(not_mounted)?;
        if mount.all_options().split(',').any(|option| option == "ro") {
            return Err(RefusedError::ReadOnly { mount: place });
        }
        let stack = Stack::of(machine, &place)?;
        let devices = devices(machine, &stack);
        let Some(device) = devices.first() else {
            return Err(RefusedError::NoDevice { mount: place, fstype: mount.fstype.clone() });
        };
        check(&place).map_err(|error| match error {
            TrimError::Trim { source, mount } if source.kind() == io::ErrorKind::PermissionDenied => {
                RefusedError::NotRoot { mount }
            }
            error => RefusedError::Trim(error),
        })?;
        let limits = devices.iter().map(BlockDevice::discard_limits).collect::<Result<Vec<_>, _>>()?;
        if limits.iter().all(|limits| limits.max == Bytes::ZERO) {
            return Err(RefusedError::Trim(TrimError::Unsupported { mount: place }));
        }
        let division = Division::of(&mount.fstype, &directory, &device.path());
        let division = division
            .map_err(|source| RefusedError::Trim(TrimError::Trim { mount: place.clone(), source }))?;
        Ok(Self { mount: place, fstype: mount.fstype.clone(), directory, stack, devices, division })
    }

    /// Where it is mounted.
    pub fn mount(&self) -> &Path {
        &self.mount
    }

    /// The file system's name.
    pub fn fstype(&self) -> &str {
        &self.fstype
    }

    /// All that it lies on.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// The block devices it lies on directly.
    pub fn devices(&self) -> &[BlockDevice] {
        &self.devices
    }

    /// How its trim addresses are divided.
    pub fn division(&self) -> &Division {
        &self.division
    }

    /// Its free space.
    ///
    /// # Errors
    /// [`FreeSpaceError`].
    pub fn free_space(&self) -> Result<FreeSpace, FreeSpaceError> {
        let number = self.devices[0].number().map_err(io::Error::other)?;
        FreeSpace::read(&self.directory, number, &self.division)
    }

    /// How far its trim addresses go at most, where that can be told from its devices.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn size(&self) -> Result<Bytes, BlockError> {
        self.devices.iter().map(BlockDevice::size).sum()
    }

    /// The shortest discard that all its devices take.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn granularity(&self) -> Result<Bytes, BlockError> {
        let limits = self.devices.iter().map(|device| Ok(device.discard_limits()?.granularity));
        let all: Vec<Bytes> = limits.collect::<Result<_, BlockError>>()?;
        Ok(all.into_iter().max().unwrap_or_default())
    }

    /// The longest discard that the kernel sends to its devices as one command.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn longest_command(&self) -> Result<Bytes, BlockError> {
        let limits = self.devices.iter().map(|device| Ok(device.discard_limits()?.max));
        let limits: Vec<Bytes> = limits.collect::<Result<_, BlockError>>()?;
        Ok(limits.into_iter().filter(|max| *max > Bytes::ZERO).min().unwrap_or_default())
    }

    /// What tells it from other file systems, in letters and digits.
    pub fn id(&self) -> String {
        file_system_id(&self.directory, &self.fstype)
    }

    /// What trims it.
    pub fn trimmer(&self) -> MountedTrimmer {
        MountedTrimmer::new(self.mount.clone(), self.devices.clone())
    }

    /// Has ext4 forget which groups it has trimmed, until it is next trimmed.
    ///
    /// # Errors
    /// [`TrimError`].
    pub fn forget(&self) -> Result<(), TrimError> {
        let Division::Groups(groups) = &self.division else { return Ok(()) };
        // It trims a group again where the shortest length asked for is below that of the trim before. This
        // asks for pieces as long as a group in the first of all, which has the superblock.
        let first = trimtab_core::Extent::at(groups.first, Bytes(64 << 10));
        Trimming::begin(&self.mount, &self.devices)?.trim(first, groups.length).map(|_| ())
    }
}

/// The mount that `directory` is the root of: of several at `place`, the one that is seen.
fn found<'a>(all: &'a [Mount], place: &Path, directory: &File) -> Option<&'a Mount> {
    let mut at_place = all.iter().filter(|mount| mount.target == place);
    let number = statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    match number.stx_mask & StatxFlags::MNT_ID.bits() {
        0 => at_place.next_back(),
        _ => at_place.find(|mount| mount.id == number.stx_mnt_id),
    }
}

/// The last mount of the device at the path `place`, which has this number: btrfs only tells its path.
fn mount_from<'a>(all: &'a [Mount], place: &Path, number: u64) -> Option<&'a Mount> {
    let number = DeviceNumber { major: major(number), minor: minor(number) };
    let is_path = |source: &Path| source.canonicalize().is_ok_and(|source| source == place);
    all.iter().rfind(|mount| mount.number == number || is_path(&mount.source))
}

/// The block devices that the file system on top of `stack` lies on directly.
fn devices(machine: &Machine, stack: &Stack) -> Vec<BlockDevice> {
    let below = stack.layers.first().into_iter().flat_map(|top| &top.below);
    let numbers = below.filter_map(|below| stack.layers[below.layer].number);
    numbers.filter_map(|number| BlockDevice::numbered(&machine.sysfs(), number)).collect()
}
