//! Describes a mounted file system and the devices below it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use trimtab_core::Bytes;

use super::device::Place;
use super::in_use::{InUse, Node, device_named};
use super::{FileSystem, Machine, StackError};
use crate::block::BlockDevice;
use crate::btrfs;
use crate::mount::{Mount, unescape};
use crate::mount_points::writable;

/// Describes the file system of the mount `mount`, with all its mount points.
pub(super) fn describe(mount: &Mount, mounts: &[Mount]) -> FileSystem {
    let mut targets = vec![mount.target.clone()];
    for other in mounts.iter().filter(|other| other.number == mount.number) {
        if !targets.contains(&other.target) {
            targets.push(other.target.clone());
        }
    }
    FileSystem {
        fstype: mount.fstype.clone(),
        targets,
        writable: writable(mounts, mount).into_iter().map(|mount| mount.target.clone()).collect(),
        source: mount.source.clone(),
        options: format!("{},{}", mount.options, mount.super_options),
        undiscarded: Vec::new(),
    }
}

/// The names of the devices directly below a bcachefs whose own setting is to get no discards.
pub(super) fn undiscarded(mount: &Mount, below: &[Place]) -> Vec<String> {
    let is_off = |device: &BlockDevice| matches!(device.number_in("bcachefs/discard"), Ok(0));
    let devices = below.iter().filter_map(|(node, _)| match node {
        Node::Device(device) if mount.fstype == "bcachefs" && is_off(device) => Some(device.name()),
        _ => None,
    });
    devices.collect()
}

/// Whether the file system lies on block devices, be they unknown as those of ZFS are.
pub(super) fn is_on_devices(machine: &Machine, in_use: &InUse, mount: &Mount) -> Result<bool, StackError> {
    Ok(mount.fstype == "zfs" || !devices(machine, in_use, mount)?.is_empty())
}

/// The layers directly below the file system; one on a single device starts where that does.
pub(super) fn below(machine: &Machine, in_use: &InUse, mount: &Mount) -> Result<Vec<Place>, StackError> {
    let devices = devices(machine, in_use, mount)?;
    let is_in_a_row = devices.len() == 1 || mount.fstype == "xfs";
    // XFS has its own space on the first, and its realtime space on the second.
    let start = |place: usize| (is_in_a_row && place == 0).then_some(Bytes::ZERO);
    let placed = devices.into_iter().enumerate();
    let mut below: Vec<Place> = placed.map(|(place, device)| (Node::Device(device), start(place))).collect();
    if mount.fstype == "overlay" {
        let (upper, lower) = overlaid(&mount.super_options);
        let itself = Node::FileSystem(mount.clone());
        let is_on = |directory: &PathBuf| {
            let holding = in_use.holding(machine, directory).filter(|_| directory.is_absolute());
            holding.filter(|node| *node != itself)
        };
        // What is freed is freed in the upper directory: where that is unknown, so is all below.
        if upper.iter().all(|upper| is_on(upper).is_some()) {
            for place in upper.iter().chain(&lower).filter_map(is_on).map(|node| (node, None)) {
                if !below.contains(&place) {
                    below.push(place);
                }
            }
        }
    }
    Ok(below)
}

/// The block devices that the file system is on.
fn devices(machine: &Machine, in_use: &InUse, mount: &Mount) -> Result<Vec<BlockDevice>, StackError> {
    let sysfs = machine.sysfs();
    if let Some(device) = BlockDevice::numbered(&sysfs, mount.number) {
        let realtime =
            mount.realtime_device().map(|path| device_named(machine, in_use, Path::new(path))).transpose()?;
        return Ok(std::iter::once(device).chain(realtime.flatten()).collect());
    }
    // One on several devices has a number of its own. bcachefs has all devices in its source; what others have
    // there, such as FUSE, is whatever they like.
    let mut devices = Vec::new();
    if !["btrfs", "bcachefs"].contains(&mount.fstype.as_str()) {
        return Ok(devices);
    }
    for source in mount.source.as_os_str().as_bytes().split(|byte| *byte == b':') {
        let source = Path::new(OsStr::from_bytes(source));
        if source.starts_with("/dev") {
            devices.extend(device_named(machine, in_use, source)?);
        }
    }
    if let ("btrfs", Some(device)) = (mount.fstype.as_str(), devices.first()) {
        let mut members = btrfs::member_names(&sysfs, &device.name());
        members.sort();
        let members = members.iter().map(|name| device_named(machine, in_use, &Path::new("/dev").join(name)));
        let members: Vec<_> = members.collect::<Result<_, _>>()?;
        if members.iter().any(Option::is_some) {
            devices = members.into_iter().flatten().collect();
        }
    }
    Ok(devices)
}

/// The directory that takes the changes of an overlay, and those below that, the uppermost first; those of
/// composefs that hold only data are among them.
pub(crate) fn overlaid(options: &str) -> (Option<PathBuf>, Vec<PathBuf>) {
    let options: Vec<_> = options.split(',').filter_map(|option| option.split_once('=')).collect();
    let of = |keys: &'static [&str]| options.iter().filter(|(key, _)| keys.contains(key));
    let path = |directory: &str| unescape(directory.as_bytes());
    let upper = of(&["upperdir"]).map(|(_, directory)| path(directory)).next();
    let lower = of(&["lowerdir", "lowerdir+", "datadir+"]).flat_map(|(_, list)| list.split(':'));
    (upper, lower.map(path).collect())
}
