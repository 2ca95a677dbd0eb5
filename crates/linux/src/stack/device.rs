//! Describes a block device and the layers below it.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use trimtab_core::Bytes;
use trimtab_core::device::Limits;

use super::announced::announced;
use super::in_use::{InUse, Node, device_named, subsystem, volume};
use super::scsi::scsi;
use super::{Layer, LayerKind, Machine, MapLine, Raid, StackError, map};
use crate::block::{BlockDevice, BlockError};
use crate::loop_device::Backing;

/// A layer below, and where on it the upper's data starts.
pub(super) type Place = (Node, Option<Bytes>);

/// The layer that `device` is, with nothing below it yet.
pub(super) fn describe(machine: &Machine, device: &BlockDevice) -> Result<Layer, StackError> {
    let number = present(device.number())?;
    let kind = kind(machine, device)?;
    Ok(Layer {
        name: device.name(),
        label: label(device),
        announced: announced(device, &kind),
        fabric: device.fabric().filter(|_| kind == LayerKind::Nvme),
        kind,
        subsystem: subsystem(device),
        number,
        size: present(device.size())?,
        limits: limits(device)?,
        rotational: present(device.number_in("queue/rotational"))?.is_some_and(|number| number != 0),
        // Since Linux 6.9, those that are "host-aware" count as having no zones.
        zoned: device.identity("queue/zoned").as_deref() == Some("host-managed"),
        read_only: present(device.is_read_only())?.unwrap_or_default(),
        below: Vec::new(),
    })
}

/// Returns the usual name of a device; a partition has no name of its own.
fn label(device: &BlockDevice) -> Option<String> {
    match device.disk() {
        Some(_) => None,
        None => volume(device).or_else(|| device.identity("dm/name")).or_else(|| device.hardware()),
    }
}

fn kind(machine: &Machine, device: &BlockDevice) -> Result<LayerKind, StackError> {
    let has = |attribute: &str| device.attribute(attribute).exists();
    let name = device.name();
    // Drivers name their devices so, with letters or digits after it.
    let driver = name.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default();
    Ok(match driver {
        _ if device.disk().is_some() => LayerKind::Partition,
        _ if has("dm") => {
            let table = present(device.number())?.and_then(|number| machine.map(number));
            LayerKind::DeviceMapper(table.unwrap_or_default())
        }
        _ if has("md") => raid(machine, device)?,
        _ if has("loop/backing_file") => LayerKind::Loop { file: backing_file(device) },
        _ if device.attribute("device/scsi_disk").is_dir() => LayerKind::Scsi(scsi(&machine.sysfs(), device)),
        "bcache" => LayerKind::Bcache,
        "nbd" => LayerKind::Nbd,
        "zram" => LayerKind::Zram,
        "nvme" => LayerKind::Nvme,
        "mmcblk" => LayerKind::Mmc,
        _ if device.driver() == "virtio_blk" => LayerKind::VirtioBlk,
        _ => LayerKind::Other(Some(device.driver()).filter(|driver| !driver.is_empty())),
    })
}

fn raid(machine: &Machine, device: &BlockDevice) -> Result<LayerKind, StackError> {
    let parameter = "/sys/module/raid456/parameters/devices_handle_discard_safely";
    let safe = fs::read_to_string(machine.file(parameter)).ok();
    Ok(LayerKind::Raid(Raid {
        level: device.identity("md/level").unwrap_or_default(),
        chunk: Bytes(present(device.number_in("md/chunk_size"))?.unwrap_or_default()),
        discards_are_safe: safe.map(|text| matches!(text.trim(), "Y" | "1")),
    }))
}

/// The file behind a loop device, which need not be UTF-8.
fn backing_file(device: &BlockDevice) -> PathBuf {
    let text = fs::read(device.attribute("loop/backing_file")).unwrap_or_default();
    PathBuf::from(OsStr::from_bytes(text.strip_suffix(b"\n").unwrap_or(&text)))
}

/// The layers directly below `device`, which is of this kind; what is cached comes before its cache.
pub(super) fn below(
    machine: &Machine,
    in_use: &InUse,
    device: &BlockDevice,
    kind: &LayerKind,
) -> Result<Vec<Place>, StackError> {
    let slaves = present(device.slaves())?.unwrap_or_default();
    Ok(match kind {
        LayerKind::Partition => {
            let start = device.extent()?.start;
            device.disk().map(|disk| (Node::Device(disk), Some(start))).into_iter().collect()
        }
        LayerKind::Loop { file } => {
            let on_file = |node: Option<Node>| node.map(|node| (node, None)).into_iter().collect();
            // Who may not ask has the path alone.
            let behind = match machine.backing(device).ok().flatten() {
                Some(Backing::Device(number)) => BlockDevice::numbered(&machine.sysfs(), number),
                Some(Backing::File(id)) => return Ok(on_file(in_use.holding_file(machine, file, id))),
                None => device_named(machine, in_use, file)?,
            };
            match behind {
                Some(behind) => {
                    let offset = present(device.number_in("loop/offset"))?;
                    vec![(Node::Device(behind), offset.map(Bytes))]
                }
                None => on_file(in_use.holding(machine, file)),
            }
        }
        LayerKind::DeviceMapper(table) => in_table(slaves, table),
        LayerKind::Raid(_) => {
            let offset = |slave: &BlockDevice| {
                let member = format!("md/dev-{}", slave.name().replace('/', "!"));
                // A spare has no data, wherever it would begin.
                match device.identity(&format!("{member}/slot")).as_deref() {
                    Some("none") => Ok(None),
                    _ => present(device.sectors_in(&format!("{member}/offset"))),
                }
            };
            let members = slaves.into_iter().map(|slave| Ok((offset(&slave)?, slave)));
            let members: Result<Vec<_>, StackError> = members.collect();
            members?.into_iter().map(|(start, slave)| (Node::Device(slave), start)).collect()
        }
        _ => {
            // What is cached holds the directory of the one that does it.
            let cached = device.attribute("bcache").canonicalize().unwrap_or_default();
            let (backing, others): (Vec<_>, _) =
                slaves.into_iter().partition(|slave| cached.starts_with(slave.directory()));
            backing.into_iter().chain(others).map(|slave| (Node::Device(slave), None)).collect()
        }
    })
}

/// The devices that a table names, in its order, and those that it doesn't.
fn in_table(mut slaves: Vec<BlockDevice>, table: &[MapLine]) -> Vec<Place> {
    let mut places = Vec::new();
    for (number, start) in map::places(table) {
        let slave = slaves.iter().position(|slave| slave.number().ok() == Some(number));
        places.extend(slave.map(|at| (Node::Device(slaves.remove(at)), start)));
    }
    places.extend(slaves.into_iter().map(|slave| (Node::Device(slave), None)));
    places
}

/// The limits of its discards; none where sysfs doesn't say.
fn limits(device: &BlockDevice) -> Result<Option<Limits>, StackError> {
    let Some(limits) = present(device.discard_limits())? else { return Ok(None) };
    let segments = present(device.number_in("queue/max_discard_segments"))?;
    Ok(Some(Limits {
        max: limits.max,
        max_hardware: limits.max_hardware,
        granularity: limits.granularity,
        alignment: limits.alignment,
        segments: segments.and_then(|segments| u32::try_from(segments).ok()),
        write_zeroes_max: limits.write_zeroes_max,
    }))
}

/// Returns the value of an attribute; none where the kernel has no such attribute.
fn present<T>(read: Result<T, BlockError>) -> Result<Option<T>, StackError> {
    match read {
        Err(BlockError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        read => Ok(Some(read?)),
    }
}
