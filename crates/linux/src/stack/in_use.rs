//! The file systems, swap and device mapper's devices that a machine has in use, by their names.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use trimtab_core::Bytes;

use super::{Machine, StackError};
use crate::block::BlockDevice;
use crate::mount::{Mount, mounts, unescape};

/// The most mounts of a captured machine that are looked at.
pub(super) const MOST_MOUNTS: usize = 1024;

/// The first words of the UUIDs of device-mapper devices, by their makers.
const SUBSYSTEMS: [&str; 12] = [
    "CRYPT-LUKS1",
    "CRYPT-LUKS2",
    "CRYPT-PLAIN",
    "CRYPT-BITLK",
    "CRYPT-TCRYPT",
    "CRYPT-FVAULT2",
    "CRYPT-LOOPAES",
    "CRYPT-INTEGRITY",
    "CRYPT-VERITY",
    "LVM",
    "mpath",
    "stratis",
];

/// A layer to be looked at.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// A mounted file system, by one of its mounts.
    FileSystem(Mount),
    /// Active swap.
    Swap(Swap),
    /// A block device.
    Device(BlockDevice),
}

impl PartialEq for Node {
    /// Whether both are the same layer: all mounts of a file system are.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::FileSystem(one), Self::FileSystem(other)) => one.number == other.number,
            (Self::Swap(one), Self::Swap(other)) => one == other,
            (Self::Device(one), Self::Device(other)) => one == other,
            _ => false,
        }
    }
}

/// Active swap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Swap {
    /// The device or file.
    pub(super) path: PathBuf,
    /// Whether it is a file.
    pub(super) is_file: bool,
    /// Its size.
    pub(super) size: Option<Bytes>,
}

/// The mounted file systems and the active swap.
pub(super) struct InUse {
    /// The mounts, in the order they were made.
    pub(super) mounts: Vec<Mount>,
    /// The active swap.
    pub(super) swaps: Vec<Swap>,
    /// The device mapper's devices by name, once they were asked for.
    mapped: OnceCell<HashMap<String, BlockDevice>>,
}

impl InUse {
    /// Reads both lists.
    pub(super) fn of(machine: &Machine) -> Result<Self, StackError> {
        let mut mounts = mounts(&machine.procfs())?;
        if !machine.is_live() {
            mounts.truncate(MOST_MOUNTS);
        }
        Ok(Self { mounts, swaps: swaps(machine)?, mapped: OnceCell::new() })
    }

    /// The device mapper's devices, by what they are called below `/dev`.
    pub(super) fn mapped(&self, machine: &Machine) -> Result<&HashMap<String, BlockDevice>, StackError> {
        match self.mapped.get() {
            Some(mapped) => Ok(mapped),
            None => {
                let mapped = mapped(machine)?;
                Ok(self.mapped.get_or_init(|| mapped))
            }
        }
    }
}

/// The device that `path` below `/dev` names: by the kernel's name, or the device mapper's.
pub(super) fn device_named(
    machine: &Machine,
    in_use: &InUse,
    path: &Path,
) -> Result<Option<BlockDevice>, StackError> {
    let sysfs = machine.sysfs();
    let Some(name) = path.strip_prefix("/dev").ok().and_then(Path::to_str) else { return Ok(None) };
    let directory = sysfs.join("class/block").join(name.replace('/', "!"));
    // Captures of other programs have the disks alone.
    let disk = || BlockDevice::at(&sysfs.join("block").join(name.replace('/', "!")));
    let known = BlockDevice::at(&directory).or_else(disk).filter(|device| device.attribute("dev").exists());
    let found = match known {
        Some(device) => Some(device),
        None => in_use.mapped(machine)?.get(name).cloned(),
    };
    // Any other link can be followed on this machine alone.
    Ok(found.or_else(|| BlockDevice::open(&sysfs, path).ok().filter(|_| machine.is_live())))
}

/// The device mapper's devices by what they are called below `/dev`: `mapper/NAME`, and `GROUP/VOLUME` of LVM.
pub(super) fn mapped(machine: &Machine) -> Result<HashMap<String, BlockDevice>, StackError> {
    let mut mapped = HashMap::new();
    for disk in BlockDevice::disks(&machine.sysfs())? {
        let name = disk.identity("dm/name").map(|name| format!("mapper/{name}"));
        for name in name.into_iter().chain(volume(&disk)) {
            mapped.insert(name, disk.clone());
        }
    }
    Ok(mapped)
}

/// Returns the maker of a device-mapper device; none where its UUID doesn't tell.
pub(super) fn subsystem(device: &BlockDevice) -> Option<String> {
    let uuid = device.identity("dm/uuid").filter(|_| device.disk().is_none())?;
    let made = |name: &&str| uuid.strip_prefix(*name).is_some_and(|rest| rest.starts_with('-'));
    SUBSYSTEMS.into_iter().find(made).map(str::to_owned)
}

/// `GROUP/VOLUME` of an LVM volume: its name has a hyphen between the two, and theirs doubled.
pub(super) fn volume(device: &BlockDevice) -> Option<String> {
    subsystem(device).filter(|made| made == "LVM")?;
    let name = device.identity("dm/name")?.replace("--", "\0");
    let (group, volume) = name.split_once('-')?;
    Some(format!("{group}/{volume}").replace('\0', "-"))
}

/// Active swap; none on a kernel without.
fn swaps(machine: &Machine) -> Result<Vec<Swap>, StackError> {
    let path = machine.procfs().join("swaps");
    let text = match fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        read => read.map_err(|source| StackError::Swaps { path, source })?,
    };
    Ok(text.split(|byte| *byte == b'\n').skip(1).filter_map(swap_in).collect())
}

/// Reads a line of `/proc/swaps`: `PATH TYPE KIBIBYTES USED PRIORITY`.
fn swap_in(line: &[u8]) -> Option<Swap> {
    let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    let path = unescape(fields.next()?);
    let is_file = fields.next()? == b"file";
    let size: Option<u64> = fields.next().and_then(|size| std::str::from_utf8(size).ok()?.parse().ok());
    Some(Swap { path, is_file, size: size.and_then(|size| size.checked_mul(1024)).map(Bytes) })
}
