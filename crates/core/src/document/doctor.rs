//! The document of `trimtab doctor`.

use serde::{Deserialize, Serialize};

use super::Environment;
use crate::device::{Announced, Limits};
use crate::units::Bytes;
use crate::verdict::{Finding, Passes, Verdict};

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

/// The proof by a file that was written, deleted and trimmed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Canary {
    /// The bytes that the file's extents took, which were freed and then trimmed; zero if the file system did not answer.
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
