//! The mounted file system that a trim works on.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::slice;

use rustix::fs::{AtFlags, StatxFlags, fstatfs, major, minor, statx};
use trimtab_core::{Bytes, DiscardUnits};
use trimtab_linux::block::{BlockDevice, BlockError, DeviceNumber};
use trimtab_linux::forked::Ender;
use trimtab_linux::mount::{Mount, MountError, covering, mounts};
use trimtab_linux::mount_points::writable;
use trimtab_linux::stack::{LayerKind, Machine, Setup, Stack, StackError};
use trimtab_linux::trim::{TrimError, TrimProcess, check};

use crate::free_space::{Division, FreeSpace, FreeSpaceError, Opener};
use crate::state::file_system_id;
use crate::trimmer::{MountedTrimmer, units_of};

/// Why a path can't be trimmed.
#[derive(Debug, thiserror::Error)]
pub enum RefusedError {
    /// The path can't be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The path is not a mount point.
    #[error("{} is not a mount point; to trim its file system, name {}", path.display(), on.display())]
    NotMountPoint {
        /// The path.
        path: PathBuf,
        /// Where that file system is mounted.
        on: PathBuf,
    },
    /// The path is a device, not a mount point.
    #[error("{} is a device; to trim its file system, name the mount point: {}", path.display(), on.display())]
    Device {
        /// The path.
        path: PathBuf,
        /// Where that file system is mounted.
        on: PathBuf,
    },
    /// The path is a device without a mounted file system.
    #[error("{} is a device, and nothing is mounted from it; mount its file system to trim it", path.display())]
    NotMounted {
        /// The path.
        path: PathBuf,
    },
    /// The file system is mounted read-only everywhere.
    #[error("{} is mounted read-only and cannot be trimmed", mount.display())]
    ReadOnly {
        /// The mount point.
        mount: PathBuf,
    },
    /// The mount is read-only, and another of the file system is not.
    #[error("{} is mounted read-only there; to trim its file system, name {}", mount.display(), writable.display())]
    ReadOnlyThere {
        /// The mount point.
        mount: PathBuf,
        /// Where the file system can be written to.
        writable: PathBuf,
    },
    /// The file system is not on a block device.
    #[error("{} is a {fstype}, which is not on a block device", mount.display())]
    NoDevice {
        /// The mount point.
        mount: PathBuf,
        /// The file system type.
        fstype: String,
    },
    /// The user is not root.
    #[error("cannot trim {}: run this as root", mount.display())]
    NotRoot {
        /// The mount point.
        mount: PathBuf,
    },
    /// The user is root, and lacks the right: in a container, or in a user namespace.
    #[error("cannot trim {}: it is not allowed {}; trim it on the host", mount.display(), if *in_container { "in this container" } else { "in this user namespace" })]
    NotAllowed {
        /// The mount point.
        mount: PathBuf,
        /// Whether this is a container.
        in_container: bool,
    },
    /// The file system can't be trimmed.
    #[error(transparent)]
    Trim(TrimError),
    /// Its storage can't be examined.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The mounts can't be read.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The properties of its devices can't be read.
    #[error(transparent)]
    Block(#[from] BlockError),
}

impl RefusedError {
    /// Returns whether trims of the path are not supported; `-a` skips such file systems.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self,
            Self::ReadOnly { .. }
                | Self::ReadOnlyThere { .. }
                | Self::NoDevice { .. }
                | Self::Trim(TrimError::Unsupported { .. } | TrimError::LosesData { .. })
        )
    }
}

/// A mounted file system that can be trimmed. It is opened for single calls only, so it can be unmounted between them.
#[derive(Debug)]
pub struct Target {
    mount: PathBuf,
    fstype: String,
    id: String,
    block_size: Bytes,
    stack: Stack,
    devices: Vec<BlockDevice>,
    division: Division,
}

impl Target {
    /// Opens the file system mounted at `path`.
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
        let mount = mount_of(&all, &place, &directory).ok_or_else(not_mounted)?;
        if mount.all_options().split(',').any(|option| option == "ro") {
            return Err(match writable(&all, mount).first() {
                Some(other) => RefusedError::ReadOnlyThere { mount: place, writable: other.target.clone() },
                None => RefusedError::ReadOnly { mount: place },
            });
        }
        let stack = Stack::of(machine, &place)?;
        let devices = devices(machine, &stack);
        let Some(device) = devices.first() else {
            return Err(RefusedError::NoDevice { mount: place, fstype: mount.fstype.clone() });
        };
        check(&place).map_err(|error| match error {
            TrimError::Trim { source, mount } if source.kind() == io::ErrorKind::PermissionDenied => {
                not_permitted(machine, mount)
            }
            error => RefusedError::Trim(error),
        })?;
        let limits = devices.iter().map(BlockDevice::discard_limits).collect::<Result<Vec<_>, _>>()?;
        if limits.iter().all(|limits| limits.max == Bytes::ZERO) {
            return Err(RefusedError::Trim(TrimError::Unsupported { mount: place }));
        }
        let block_size = Bytes(fstatfs(&directory).map_or(0, |found| found.f_bsize as u64));
        let id = file_system_id(&directory, &mount.fstype);
        drop(directory);
        let opener = Opener { mount: &place, devices: &devices };
        let division = Division::of(&mount.fstype, opener, &device.path());
        let division = division
            .map_err(|source| RefusedError::Trim(TrimError::Trim { mount: place.clone(), source }))?;
        Ok(Self { fstype: mount.fstype.clone(), mount: place, id, block_size, stack, devices, division })
    }

    /// Returns the mount point.
    pub fn mount(&self) -> &Path {
        &self.mount
    }

    /// Returns all mount points of the file system.
    pub fn mount_points(&self) -> &[PathBuf] {
        match self.stack.layers.first().map(|top| &top.kind) {
            Some(LayerKind::FileSystem(found)) => &found.targets,
            _ => slice::from_ref(&self.mount),
        }
    }

    /// Returns the file system type.
    pub fn fstype(&self) -> &str {
        &self.fstype
    }

    /// Returns the layers below it.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Returns the block devices directly below it.
    pub fn devices(&self) -> &[BlockDevice] {
        &self.devices
    }

    /// Returns its block size; 0 where that can't be told.
    pub fn block_size(&self) -> Bytes {
        self.block_size
    }

    /// Returns how its trim addresses are divided.
    pub fn division(&self) -> &Division {
        &self.division
    }

    /// Reads its free space.
    ///
    /// # Errors
    /// [`FreeSpaceError`].
    pub fn free_space(&self) -> Result<FreeSpace, FreeSpaceError> {
        FreeSpace::read(Opener { mount: &self.mount, devices: &self.devices }, &self.division)
    }

    /// Returns the total size of its devices, an upper limit of its trim addresses.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn size(&self) -> Result<Bytes, BlockError> {
        self.devices.iter().map(BlockDevice::size).sum()
    }

    /// Returns the discard granularity that all its devices support.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn granularity(&self) -> Result<Bytes, BlockError> {
        let limits = self.devices.iter().map(|device| Ok(device.discard_limits()?.granularity));
        let all: Vec<Bytes> = limits.collect::<Result<_, BlockError>>()?;
        Ok(all.into_iter().max().unwrap_or_default())
    }

    /// Returns the units in which its device takes discards, in trim addresses.
    pub fn units(&self) -> DiscardUnits {
        match self.division {
            Division::Chunks(_) => DiscardUnits::default(),
            _ => units_of(&self.devices),
        }
    }

    /// Returns the longest discard that the kernel sends to its devices as one command.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn longest_command(&self) -> Result<Bytes, BlockError> {
        let limits = self.devices.iter().map(|device| Ok(device.discard_limits()?.max));
        let limits: Vec<Bytes> = limits.collect::<Result<_, BlockError>>()?;
        Ok(limits.into_iter().filter(|max| *max > Bytes::ZERO).min().unwrap_or_default())
    }

    /// Returns the names of its devices that take discards which no counter has ever shown.
    pub fn uncounted(&self) -> Vec<String> {
        BlockDevice::hiding_discards(&self.devices)
    }

    /// Returns an identifier of the file system, in letters and digits.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns a trimmer for it.
    pub fn trimmer(&self) -> MountedTrimmer {
        MountedTrimmer::new(self.mount.clone(), self.devices.clone())
    }

    /// Makes ext4 forget which groups it has trimmed.
    ///
    /// # Errors
    /// [`TrimError`].
    pub fn forget(&self, ender: &Ender) -> Result<(), TrimError> {
        let Division::Groups(groups) = &self.division else { return Ok(()) };
        // ext4 trims a group again if the minimum is below the last trim's. So this trims with a
        // minimum of a whole group, in the first group, which is never entirely free because it has the
        // superblock.
        let first = trimtab_core::Extent::at(groups.first, Bytes(64 << 10));
        let process = TrimProcess::start(&self.mount, &self.devices, ender)?;
        process.trim(first, groups.length, None).map(|_| ())
    }
}

/// Why this process may not trim what is mounted at `mount`.
fn not_permitted(machine: &Machine, mount: PathBuf) -> RefusedError {
    if rustix::process::geteuid().is_root() {
        RefusedError::NotAllowed { mount, in_container: Setup::is_in_container(machine) }
    } else {
        RefusedError::NotRoot { mount }
    }
}

/// Returns the mount whose root is `directory`: the visible one of those at `place`.
fn mount_of<'a>(all: &'a [Mount], place: &Path, directory: &File) -> Option<&'a Mount> {
    let mut at_place = all.iter().filter(|mount| mount.target == place);
    let number = statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    match number.stx_mask & StatxFlags::MNT_ID.bits() {
        0 => at_place.next_back(),
        _ => at_place.find(|mount| mount.id == number.stx_mnt_id),
    }
}

/// Returns the last of the mounts `all` from the device with the canonical path `place` and this number; for btrfs, only the path
/// matches.
pub fn mount_from<'a>(all: &'a [Mount], place: &Path, number: u64) -> Option<&'a Mount> {
    let number = DeviceNumber { major: major(number), minor: minor(number) };
    let is_path = |source: &Path| source.canonicalize().is_ok_and(|source| source == place);
    all.iter().rfind(|mount| mount.number == number || is_path(&mount.source))
}

/// Returns the block devices directly below the file system on top of `stack`.
fn devices(machine: &Machine, stack: &Stack) -> Vec<BlockDevice> {
    let below = stack.layers.first().into_iter().flat_map(|top| &top.below);
    let numbers = below.filter_map(|below| stack.layers[below.layer].number);
    numbers.filter_map(|number| BlockDevice::numbered(&machine.sysfs(), number)).collect()
}
