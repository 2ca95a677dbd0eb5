//! What `trimtab status` prints: how the service tends each file system. Times are wall time.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// The schema name of [`StatusDocument`].
pub const STATUS_SCHEMA: &str = "trimtab/status/1";

/// What the service does: schema `trimtab/status/1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusDocument {
    /// [`STATUS_SCHEMA`].
    pub schema: String,
    /// The version of the service.
    pub version: String,
    /// The number of its process.
    pub pid: u32,
    /// Since when it runs: RFC 3339, UTC.
    pub started: String,
    /// Of when this is: RFC 3339, UTC.
    pub at: String,
    /// Why it doesn't hear of what is freed; none where it does.
    pub deaf: Option<String>,
    /// Events of the kernel that were lost since it started.
    pub lost_events: u64,
    /// The mounted file systems that are on block devices, in order of their mount points.
    pub file_systems: Vec<FileSystemStatus>,
}

/// How a file system is tended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileSystemStatus {
    /// Its mount point.
    pub mount: String,
    /// What is mounted there: its device, as the list of mounts has it.
    pub device: String,
    /// Its name, such as `ext4`.
    pub fs: String,
    /// The policy: `smart`, `batched:1w` or `none`.
    pub policy: String,
    /// What it is doing.
    pub state: State,
    /// Why it is off, how it is steered, or what it waits for, in a sentence; none where there is nothing
    /// to say.
    pub reason: Option<String>,
    /// Bytes that are free and may not be discarded yet.
    pub pending: Bytes,
    /// In how many pieces they are.
    pub pending_extents: u64,
    /// For how many seconds the oldest of them has been free; none where nothing is pending.
    pub oldest_s: Option<f64>,
    /// The age in seconds at which they are trimmed in any case; none where no age is.
    pub max_age_s: Option<f64>,
    /// When it was trimmed last, RFC 3339, UTC; none where that isn't known.
    pub last_trim: Option<String>,
    /// Bytes that the device counted as discarded in trims of the service, also before a restart where that
    /// was kept.
    pub trimmed: Bytes,
    /// Discards that the device counted in its trims since it started.
    pub discards: u64,
    /// Seconds that these took.
    pub trim_s: f64,
    /// How often a trim was refused or put off, by reason.
    pub refusals: BTreeMap<String, u64>,
    /// The seconds by which other commands took longer, on average, when they were last beside trims.
    pub latency_added_s: f64,
}

/// What the service does with a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nothing is pending.
    Idle,
    /// Something is, and waits until it is worth it or the drive has time.
    Waiting,
    /// It is being trimmed.
    Trimming,
    /// A trim failed, and is tried again later.
    Failing,
    /// It discards by itself, with its knobs set so that this holds the goals.
    Steered,
    /// It is left alone.
    Off,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Idle, Self::Waiting, Self::Trimming, Self::Failing, Self::Steered, Self::Off];

    /// The word for it.
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
