//! The document of `trimtab doctor`.

use serde::{Deserialize, Serialize};

use super::Environment;
use crate::units::Bytes;

/// The schema name of [`DoctorDocument`].
pub const DOCTOR_SCHEMA: &str = "trimtab/doctor/1";

/// Whether discards reach the flash below each target: schema `trimtab/doctor/1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DoctorDocument {
    /// [`DOCTOR_SCHEMA`].
    pub schema: String,
    /// The version of trimtab that wrote it.
    pub version: String,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// When it was started: RFC 3339, UTC.
    pub started: String,
    /// The machine it ran on; none of a captured tree.
    pub environment: Option<Environment>,
    /// The worst of the targets' verdicts; none where nothing was looked at.
    pub verdict: Option<Verdict>,
    /// The examined targets, in the order asked for.
    pub targets: Vec<Target>,
    /// The findings about the machine rather than a single target.
    pub findings: Vec<Finding>,
    /// The targets that could not be examined and why, a sentence each.
    pub left_out: Vec<String>,
}

/// A mount point, file or device, and what becomes of its discards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The path as it was given: of a mount point or device, a link to one, or a file or directory on one.
    pub asked: String,
    /// The path: of a mount point, or of a device.
    pub target: String,
    /// The file system's name; none of a bare device.
    pub fs: Option<String>,
    /// Whether discards reach the flash.
    pub verdict: Verdict,
    /// The verdict's reason, in a sentence.
    pub reason: String,
    /// The layers from the target down; each before those it lies on.
    pub layers: Vec<Layer>,
    /// The findings, the gravest first.
    pub findings: Vec<Finding>,
    /// The proof, where one was asked for.
    pub canary: Option<Canary>,
}

/// Whether discards reach the flash, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All do, rounded to the granularity at most.
    Reaches,
    /// It can't be told.
    Unknown,
    /// Some do: one branch of several, or only those of a certain size.
    Partial,
    /// None does.
    Blocked,
}

/// One layer of a stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    /// Its kind: a file system's name, `swap`, `partition`, `loop`, `dm-crypt`, `md-raid5`, `nvme`,
    /// `ata`, `scsi`, `usb`, `mmc`, `virtio-blk` and so on.
    pub kind: String,
    /// Its name: a mount point, or the kernel's name for a device.
    pub name: String,
    /// Its usual name: a volume's name, a drive's model.
    pub label: Option<String>,
    /// Its handling of discards.
    pub passes: Passes,
    /// Why, in a sentence.
    pub reason: String,
    /// The limits of its queue; none of a file system.
    pub limits: Option<Limits>,
    /// The hardware's own announcements.
    #[serde(default)]
    pub announced: Announced,
    /// The names of the layers directly below it.
    pub on: Vec<String>,
}

/// A layer's handling of discards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Passes {
    /// Hands it down unchanged.
    Yes,
    /// Hands down none.
    No,
    /// Splits it, rounds it, delays it, or drops it below a size.
    Reshaped,
    /// It can't be told.
    Unknown,
}

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

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Discards don't reach the flash.
    Critical,
    /// Some don't, or they cost more than they have to.
    Warning,
    /// Worth knowing; changes no exit code.
    Note,
}

/// Something that stands in the way of discards, or is worth changing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The finding's name, such as `luks-no-discards`; the same in all versions.
    pub id: String,
    /// How grave it is.
    pub severity: Severity,
    /// The name of the layer, or the file, that it is about.
    pub layer: String,
    /// The problem, in a sentence.
    pub message: String,
    /// Why that matters, in a sentence.
    pub why: String,
    /// The commands or configuration lines that mend it, one a line; none where nothing does.
    pub fix: Option<String>,
    /// The cost of the fix, or what it discloses; none where it costs nothing.
    pub cost: Option<String>,
    /// The command that shows whether it is mended.
    pub check: String,
}

/// The proof by a file that was written, deleted and trimmed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Canary {
    /// The bytes that the file's extents took, which were freed and then trimmed.
    pub sent_bytes: Bytes,
    /// The commands that each layer below saw, the topmost first.
    pub seen: Vec<Seen>,
    /// Whether they reached the lowest layer.
    pub verdict: Verdict,
    /// The verdict's reason, in a sentence that names the layer.
    pub reason: String,
}

/// The commands of a canary that one layer saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The layer's name.
    pub layer: String,
    /// The bytes of the canary that discards named here, each once.
    pub bytes: Bytes,
    /// The discard commands that named any of it.
    pub commands: u64,
    /// Bytes of storage that came back here, where the layer can tell: a loop's file, a thin pool.
    pub returned: Option<Bytes>,
}
