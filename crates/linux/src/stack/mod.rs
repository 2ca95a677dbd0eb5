//! The stack below a mount point or device: every layer with what the kernel says of its discards.
//!
//! Only facts are gathered here; what they mean is the doctor's to say. All come from a [`Machine`],
//! which is this one or a captured tree.

mod announced;
mod build;
mod capture;
mod device;
mod error;
mod file_system;
mod in_use;
mod machine;
mod map;
mod scsi;
mod setup;
mod target;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use trimtab_core::Bytes;
use trimtab_core::device::{Announced, Limits};

pub use capture::{CaptureError, capture};
pub use error::StackError;
pub(crate) use file_system::overlaid;
pub use machine::Machine;
pub use setup::{
    CronTrim, CrypttabLine, FstrimService, ServedMount, Setup, Timer, UdevLine, allows_discards,
};

pub use target::{never_frees, targets};

use crate::block::DeviceNumber;
pub use crate::ioctl::MapLine;

/// The layers from a target down: the first is the target, and each comes before those it lies on.
#[derive(Debug, Clone, PartialEq)]
pub struct Stack {
    /// The layers.
    pub layers: Vec<Layer>,
}

/// One layer of a stack.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// The mount point of a file system, or the kernel's name for a device, such as `dm-0`.
    pub name: String,
    /// Its usual name: `vg/root`, a drive's model.
    pub label: Option<String>,
    /// Its kind.
    pub kind: LayerKind,
    /// The maker of a device-mapper device, in the words that its UUID starts with: `LVM`, `CRYPT-LUKS2`,
    /// `mpath` and their like. Everybody may read it, where a table takes root; none where the UUID
    /// starts with no such words.
    pub subsystem: Option<String>,
    /// The device's number; none of a file system.
    pub number: Option<DeviceNumber>,
    /// Its size; none where that can't be told.
    pub size: Option<Bytes>,
    /// The limits of its discards; none of a file system, and where sysfs doesn't say.
    pub limits: Option<Limits>,
    /// The network over which an NVMe namespace is reached, such as `tcp`; none of a local drive, and of other kinds.
    pub fabric: Option<String>,
    /// The hardware's own announcements about discards.
    pub announced: Announced,
    /// Whether it says that it is a rotating disk.
    pub rotational: bool,
    /// Whether it is a zoned device (`host-managed`). Each of its zones is written in a row and freed by
    /// resetting it.
    pub zoned: bool,
    /// Whether nothing can be written to it.
    pub read_only: bool,
    /// The layers directly below it, and where on them it lies.
    pub below: Vec<Below>,
}

impl Layer {
    /// Where it is found: a file system's mount point, swap's path, a device's node.
    pub fn path(&self) -> String {
        match self.kind {
            LayerKind::FileSystem(_) | LayerKind::Swap => self.name.clone(),
            _ => format!("/dev/{}", self.name),
        }
    }
}

/// Where a layer lies on one below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Below {
    /// The lower layer's index in [`Stack::layers`].
    pub layer: usize,
    /// The byte of the lower layer at which the upper's data starts; none where it isn't laid out in
    /// a row, as a thin volume isn't.
    pub start: Option<Bytes>,
}

/// The kind of a layer, with the facts that decide on its discards.
#[derive(Debug, Clone, PartialEq)]
pub enum LayerKind {
    /// A mounted file system.
    FileSystem(FileSystem),
    /// Active swap, a device's or a file's.
    Swap,
    /// A partition of a disk.
    Partition,
    /// A device-mapper device: its table, line by line; empty where it can't be read.
    DeviceMapper(Vec<MapLine>),
    /// A software RAID.
    Raid(Raid),
    /// A block cache's device.
    Bcache,
    /// A file as a device; the layer below is the file system that it is on.
    Loop {
        /// The file, as the kernel names it.
        file: PathBuf,
    },
    /// Another machine's device over the network.
    Nbd,
    /// Compressed memory.
    Zram,
    /// An NVMe namespace.
    Nvme,
    /// A device behind the SCSI layer, SATA drives and USB bridges among them.
    Scsi(Scsi),
    /// An SD card or eMMC.
    Mmc,
    /// A virtual machine's disk of virtio-blk; what lies below is the host's.
    VirtioBlk,
    /// Any other device; its driver's name where sysfs tells.
    Other(Option<String>),
}

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    /// Its name, such as `ext4`.
    pub fstype: String,
    /// Its mount points, the one asked for first.
    pub targets: Vec<PathBuf>,
    /// Its mount points at which it can be written to, the shortest path first.
    pub writable: Vec<PathBuf>,
    /// The mount's source, as mountinfo has it.
    pub source: PathBuf,
    /// The mount's options and then the file system's, with commas between them.
    pub options: String,
    /// The names of its devices to which a bcachefs sends no discards, by its own setting for each.
    pub undiscarded: Vec<String>,
}

/// A software RAID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raid {
    /// Its level as sysfs has it, such as `raid5` or `linear`.
    pub level: String,
    /// The bytes that one disk holds in a row; zero where it has none.
    pub chunk: Bytes,
    /// The parameter `devices_handle_discard_safely` of the module raid456; none where it is not loaded.
    pub discards_are_safe: Option<bool>,
}

/// The SCSI layer's facts about a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scsi {
    /// How it is attached.
    pub transport: Transport,
    /// How it is told of free space: `full`, `unmap`, `writesame_16`, `writesame_10`,
    /// `writesame_zero` or `disabled`; none where sysfs doesn't say.
    pub provisioning_mode: Option<String>,
    /// Whether it says that space is allocated as needed.
    pub thin_provisioning: Option<bool>,
}

/// How a SCSI device is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// A SATA or PATA drive; what libata says of its TRIM: `unsupported`, `unqueued`, `queued`,
    /// `forced_unsupported` or `forced_unqueued`.
    Ata {
        /// The word; none before the kernel said.
        trim: Option<String>,
    },
    /// A USB bridge.
    Usb {
        /// `uas` or `usb-storage`.
        driver: String,
        /// The vendor's and the product's number in hexadecimal, as a udev rule takes them.
        ids: Option<(String, String)>,
    },
    /// A virtual machine's disk of virtio-scsi.
    Virtio,
    /// Another host adapter; its driver's name where sysfs tells.
    Other(Option<String>),
}
