//! The document of `trimtab status`: how the service manages each file system. Times are wall time.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::policy::Explanation;
use crate::units::Bytes;

/// The schema name of [`StatusDocument`].
pub const STATUS_SCHEMA: &str = "trimtab/status/2";

/// The state of the service: schema `trimtab/status/2`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusDocument {
    /// [`STATUS_SCHEMA`].
    pub schema: String,
    /// The version of the service.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// When it started: RFC 3339, UTC.
    pub started: String,
    /// When this document was written: RFC 3339, UTC.
    pub at: String,
    /// Why it receives no free events; `None` if it does.
    pub frees_unavailable: Option<String>,
    /// Free events lost since it started.
    pub lost_events: u64,
    /// The mounted file systems on block devices, in order of their mount points.
    pub file_systems: Vec<FileSystemStatus>,
    /// The thin pools below them.
    #[serde(default)]
    pub pools: Vec<ThinPoolStatus>,
}

/// How much of a thin pool of the device mapper is in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThinPoolStatus {
    /// Its device node, such as `/dev/dm-2`.
    pub device: String,
    /// Its name: `vg/pool` of LVM's, otherwise that in the device mapper; empty if unknown.
    pub name: String,
    /// Bytes of its data device that thin volumes use.
    pub used: Bytes,
    /// Bytes of its data device.
    pub size: Bytes,
    /// Bytes of its metadata device in use.
    pub metadata_used: Bytes,
    /// Bytes of its metadata device.
    pub metadata_size: Bytes,
}

/// The discards that a mounted btrfs delays and sends by itself (`discard=async`), as sysfs shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BtrfsDiscards {
    /// Bytes that wait for their discard.
    pub discardable: Bytes,
    /// Extents that wait for their discard.
    pub discardable_extents: u64,
    /// Bytes discarded since it was mounted that were free as whole extents.
    pub discarded_extents: Bytes,
    /// Bytes discarded since it was mounted that were free in bitmaps.
    pub discarded_bitmaps: Bytes,
    /// Bytes that were used again before their discard, since it was mounted.
    pub saved: Bytes,
}

/// How the service manages a file system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileSystemStatus {
    /// Its mount point.
    pub mount: String,
    /// The mounted device, as listed in the mount table.
    pub device: String,
    /// The file system type, such as `ext4`.
    pub fs: String,
    /// The policy: `smart`, `batched:1w` or `none`.
    pub policy: String,
    /// Its state.
    pub state: State,
    /// Why it is off, failing or waiting, or how it is steered; none otherwise.
    pub reason: Option<String>,
    /// The kind of the reason why it is off, such as `blocked` or `configured`; `None` if it is not off.
    #[serde(default)]
    pub unmanaged: Option<String>,
    /// Whether its free space has not been read yet, so that more may be pending.
    #[serde(default)]
    pub unread: bool,
    /// Pending bytes: free and maybe not discarded yet.
    pub pending: Bytes,
    /// The number of pending extents.
    pub pending_extents: u64,
    /// Seconds since the oldest of them was freed; `None` if nothing is pending.
    pub oldest_s: Option<f64>,
    /// The age in seconds at which they are trimmed regardless of their worth; `None` if there is no such age.
    pub max_age_s: Option<f64>,
    /// When it was last trimmed: RFC 3339, UTC; `None` if unknown.
    pub last_trim: Option<String>,
    /// Bytes that the device discarded in trims of the service, including those before a restart if known.
    pub trimmed: Bytes,
    /// Discards that the device completed in trims since the service started.
    pub discards: u64,
    /// Seconds that these trims took.
    pub trim_s: f64,
    /// The number of failed or delayed trims by reason.
    pub refusals: BTreeMap<String, u64>,
    /// The mean increase in latency of other commands in seconds, when they last ran beside trims.
    pub latency_added_s: f64,
    /// The current decision of the policy smart with its figures; none with other policies.
    #[serde(default)]
    pub decision: Option<Explanation>,
    /// The discards that a btrfs sends by itself; none for other file systems and kernels before 6.1.
    #[serde(default)]
    pub btrfs: Option<BtrfsDiscards>,
    /// A device of the file system whose frees the service neither follows nor trims: the realtime device of an XFS;
    /// `None` if there is none.
    #[serde(default)]
    pub untrimmed: Option<String>,
    /// The names of its devices whose counters have never shown a discard, although it was trimmed: `trimmed` lacks theirs.
    #[serde(default)]
    pub uncounted: Vec<String>,
}

/// The state of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nothing is pending.
    Idle,
    /// Something is pending, and waits until a trim is worthwhile or the drive is idle.
    Waiting,
    /// It is being trimmed.
    Trimming,
    /// A trim failed and will be retried.
    Failing,
    /// It discards by itself, with settings that hold the goals.
    Steered,
    /// It is not managed.
    Off,
}

impl State {
    /// All states.
    pub const ALL: [Self; 6] =
        [Self::Idle, Self::Waiting, Self::Trimming, Self::Failing, Self::Steered, Self::Off];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Waiting => "waiting",
            Self::Trimming => "trimming",
            Self::Failing => "failing",
            Self::Steered => "steered",
            Self::Off => "off",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.name())
    }
}
