//! The discard limits of a device, as the kernel has them and as the hardware announces them.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// The limits of a block device's discards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The longest that the kernel sends as one command; zero where the device takes none.
    pub max: Bytes,
    /// The longest that the device takes.
    pub max_hardware: Bytes,
    /// The smallest worth sending.
    pub granularity: Bytes,
    /// How far the device starts after a multiple of the granularity.
    pub alignment: Bytes,
    /// How many ranges one command takes; none where the kernel doesn't say.
    pub segments: Option<u32>,
    /// The longest "write zeroes" command; zero where the device has none.
    pub write_zeroes_max: Bytes,
}

/// The hardware's own announcements about discards; none where it doesn't announce something, and where the
/// kernel doesn't show it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Announced {
    /// The limits of a SCSI device's UNMAP and WRITE SAME.
    pub limits: Option<UnmapLimits>,
    /// The command by which a SCSI device learns of free space.
    pub provisioning: Option<Provisioning>,
    /// The TRIM of an ATA drive, also of one behind a bridge.
    pub trim: Option<AtaTrim>,
    /// The bytes that an SD card or eMMC erases at once.
    pub erase: Option<CardErase>,
}

/// The limits of a SCSI device's commands: page B0h, "block limits", of T10's SBC-4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmapLimits {
    /// The most that one UNMAP frees; none where it sets no limit.
    pub max_unmap: Option<Bytes>,
    /// The most ranges of one UNMAP; none where it sets no limit.
    pub max_ranges: Option<u32>,
    /// The unit in which UNMAP is best; none where it doesn't say.
    pub granularity: Option<Bytes>,
    /// Where the first such unit starts; none where it doesn't say.
    pub alignment: Option<Bytes>,
    /// The most that one WRITE SAME covers; none where it doesn't say.
    pub max_write_same: Option<Bytes>,
}

/// The commands that tell a SCSI device of free space: page B2h, "logical block provisioning", of T10's
/// SBC-4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provisioning {
    /// UNMAP (LBPU).
    pub unmap: bool,
    /// WRITE SAME(16) with its UNMAP bit (LBPWS).
    pub write_same_16: bool,
    /// WRITE SAME(10) with its UNMAP bit (LBPWS10).
    pub write_same_10: bool,
    /// Whether what was freed reads as zeros (LBPRZ).
    pub zeroes: bool,
}

/// An ATA drive's TRIM: words 69, 105 and 169 of IDENTIFY DEVICE, of T13's ACS-4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtaTrim {
    /// Whether it has one.
    pub supported: bool,
    /// Whether what was trimmed reads the same each time (DRAT).
    pub deterministic: bool,
    /// Whether what was trimmed reads as zeros (RZAT), which counts only with the former.
    pub zeroes: bool,
    /// The most blocks of 512 bytes, each of 64 ranges, that one command takes; none where it doesn't say.
    pub max_blocks: Option<u16>,
}

/// The erasing of an SD card or eMMC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardErase {
    /// The card's type: `SD` or `MMC`.
    pub card: Option<String>,
    /// The smallest that it erases.
    pub unit: Option<Bytes>,
    /// The size that it erases best.
    pub preferred: Option<Bytes>,
}
