//! What a block device, its partitions and its disk are used for.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use trimtab_core::Extent;

use super::{ClaimError, Overrides};
use crate::block::{BlockDevice, BlockError, DeviceNumber};
use crate::{btrfs, loop_device, mount};

/// What a block device is used for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Use {
    /// It is mounted.
    Mounted(PathBuf),
    /// It is active swap.
    Swap,
    /// It lies below another device that is used so.
    Below(String, Box<Self>),
    /// A device is built on it.
    Held(String),
}

impl fmt::Display for Use {
    /// What was found and what to do, such as `is mounted on /home; unmount it first (umount /home)`.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Mounted(target) => {
                let target = target.display();
                write!(f, "is mounted on {target}; unmount it first (umount {target})")
            }
            Self::Swap => write!(f, "is active swap; turn it off first (swapoff)"),
            Self::Below(upper, found) => write!(f, "is below {upper}, which {found}"),
            Self::Held(holder) => write!(f, "is held by {holder}; take that down first"),
        }
    }
}

/// A device, or a relative of it, and what it is used for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    path: String,
    extent: Extent,
    uses: Vec<Use>,
}

/// What is known of the use of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Usage {
    device: Node,
    read_only: bool,
    /// The disk that it is a partition of.
    disk: Option<Node>,
    /// The partitions of its disk, without itself.
    partitions: Vec<Node>,
}

impl Usage {
    /// Looks it up.
    pub(super) fn of(sysfs: &Path, procfs: &Path, block: &BlockDevice) -> Result<Self, ClaimError> {
        let all = all_uses(sysfs, procfs)?;
        let node = |block: &BlockDevice| -> Result<Node, BlockError> {
            let number = block.number()?;
            let uses = all.iter().filter(|(used, _)| *used == number).map(|(_, found)| found.clone());
            let holders = block.holders()?.into_iter().map(|holder| Use::Held(titled(&holder)));
            let uses = uses.chain(holders).collect();
            Ok(Node { path: block.path().display().to_string(), extent: block.extent()?, uses })
        };
        let partitions = block.partitions()?.into_iter().filter(|partition| partition != block);
        Ok(Self {
            device: node(block)?,
            read_only: block.is_read_only()?,
            disk: block.disk().as_ref().map(node).transpose()?,
            partitions: partitions.map(|partition| node(&partition)).collect::<Result<_, _>>()?,
        })
    }

    /// Says what work on the device costs what is around it, or why it may not be used.
    pub(super) fn judge(&self, overrides: &Overrides) -> Result<Vec<String>, ClaimError> {
        let device = self.device.path.clone();
        let partitions = self.partitions.iter().filter(|_| self.disk.is_none());
        let mut decisive = [&self.device].into_iter().chain(&self.disk).chain(partitions);
        if let Some((node, found)) = decisive.find_map(|node| Some((node, node.uses.first()?))) {
            return Err(ClaimError::InUse { device, node: node.path.clone(), found: found.clone() });
        }
        if self.device.extent.is_empty() {
            return Err(ClaimError::Empty { device });
        }
        if self.read_only {
            return Err(ClaimError::ReadOnly { device });
        }
        let Some(disk) = &self.disk else { return Ok(Vec::new()) };
        let overlaps = |other: &&Node| {
            let (ours, theirs) = (self.device.extent, other.extent);
            ours.start < theirs.end && theirs.start < ours.end
        };
        if let Some(other) = self.partitions.iter().find(overlaps) {
            return Err(ClaimError::Overlap { device, other: other.path.clone() });
        }
        let used = self.partitions.iter().filter(|node| !node.uses.is_empty());
        let used: Vec<_> = used.map(|node| node.path.as_str()).collect();
        let others = match used.is_empty() {
            true => String::new(),
            false => format!(" ({} in use)", used.join(", ")),
        };
        match overrides.partition {
            true => Ok(vec![format!("will be slowed: what uses {}{others}", disk.path)]),
            false => Err(ClaimError::Partition { device, disk: disk.path.clone(), others }),
        }
    }
}

/// Every device that carries a mounted file system or active swap, or has a loop device above it.
fn all_uses(sysfs: &Path, procfs: &Path) -> Result<Vec<(DeviceNumber, Use)>, ClaimError> {
    let mut tops = Vec::new();
    for mount in mount::mounts(procfs)? {
        // A file system on several devices has a number of its own; its source is one of them.
        let device = BlockDevice::numbered(sysfs, mount.number)
            .or_else(|| BlockDevice::open(sysfs, &mount.source).ok());
        let names = device.as_ref().map_or(Vec::new(), |device| btrfs::devices(sysfs, &device.name()));
        let named = names.iter().filter_map(|name| BlockDevice::at(&sysfs.join("class/block").join(name)));
        tops.extend(
            device.into_iter().chain(named).map(|device| (device, Use::Mounted(mount.target.clone()))),
        );
    }
    let path = procfs.join("swaps");
    let swaps = fs::read(&path).map_err(|source| ClaimError::Swaps { path, source })?;
    for line in swaps.split(|byte| *byte == b'\n').skip(1) {
        let swap = mount::unescape(line.split(u8::is_ascii_whitespace).next().unwrap_or_default());
        tops.extend(BlockDevice::open(sysfs, &swap).ok().map(|device| (device, Use::Swap)));
    }
    let mut uses = Vec::new();
    for (device, found) in tops {
        uses.push((device.number()?, found.clone()));
        sink(sysfs, &device, &Use::Below(titled(&device), Box::new(found)), &mut uses)?;
    }
    for looped in loop_device::attached(sysfs).unwrap_or_default() {
        if let Some(below) = in_dev(sysfs, &looped.file) {
            uses.push((below.number()?, Use::Held(looped.device.display().to_string())));
        }
    }
    Ok(uses)
}

/// Adds that all devices below `device` are used as `found`.
fn sink(
    sysfs: &Path,
    device: &BlockDevice,
    found: &Use,
    uses: &mut Vec<(DeviceNumber, Use)>,
) -> Result<(), BlockError> {
    let whole = device.whole();
    for below in whole.slaves()?.into_iter().chain(behind(sysfs, &whole)) {
        uses.push((below.number()?, found.clone()));
        sink(sysfs, &below, found, uses)?;
    }
    Ok(())
}

/// The block device that the loop device `device` is over; none where it is no loop device, or one
/// over a regular file.
fn behind(sysfs: &Path, device: &BlockDevice) -> Option<BlockDevice> {
    let file = fs::read_to_string(device.attribute("loop/backing_file")).ok()?;
    in_dev(sysfs, Path::new(file.trim_end_matches('\n')))
}

/// The block device that `path` names, where it is not a regular file that happens to be named so.
fn in_dev(sysfs: &Path, path: &Path) -> Option<BlockDevice> {
    path.starts_with("/dev").then(|| BlockDevice::open(sysfs, path).ok())?
}

/// The path of a device, with the name that the device mapper gave it.
fn titled(device: &BlockDevice) -> String {
    let path = device.path();
    match fs::read_to_string(device.attribute("dm/name")) {
        Ok(name) => format!("{} ({})", path.display(), name.trim()),
        Err(_) => path.display().to_string(),
    }
}
