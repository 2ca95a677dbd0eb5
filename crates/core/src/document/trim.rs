//! The document of `trimtab trim`.

use serde::{Deserialize, Serialize};

use super::Environment;
use crate::stats::SizeHistogram;
use crate::units::Bytes;

/// The schema name of [`TrimDocument`].
pub const TRIM_SCHEMA: &str = "trimtab/trim/1";

/// The results of a trim or of a dry run: schema `trimtab/trim/1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrimDocument {
    /// [`TRIM_SCHEMA`].
    pub schema: String,
    /// The version of trimtab that wrote it.
    pub version: String,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// When it was started: RFC 3339, UTC.
    pub started: String,
    /// The machine it ran on.
    pub environment: Environment,
    /// Whether nothing was trimmed, as asked.
    pub dry_run: bool,
    /// The file systems, in order.
    pub targets: Vec<Target>,
}

/// A file system that was to be trimmed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Its mount point.
    pub target: String,
    /// Its outcome.
    pub outcome: Outcome,
    /// Why it was not trimmed, or not to its end; none where it was.
    pub reason: Option<String>,
    /// The plan; none where it was not reached.
    pub plan: Option<TrimPlan>,
    /// The work that was done; none of a dry run, and where nothing was done.
    pub sent: Option<Sent>,
}

/// The outcome of a trim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// A dry run: it could be trimmed.
    Planned,
    /// All that was asked for was trimmed.
    Done,
    /// It was interrupted.
    Stopped,
    /// It can't be trimmed: the file system or the device takes no discards, it is on no block device, or
    /// mounted read-only.
    Unsupported,
    /// It was refused, or failed on the way.
    Failed,
}

/// The plan of a trim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrimPlan {
    /// The file system's name.
    pub fs: String,
    /// Its devices' names.
    pub devices: Vec<String>,
    /// Whether it only covers what is known to have been freed since it was trimmed.
    pub only_pending: bool,
    /// The first byte of its trim addresses.
    pub start: Bytes,
    /// One past the last; none where it is the end of the file system.
    pub end: Option<Bytes>,
    /// The address that an interrupted trim reached, from which this one goes on.
    pub resumed_at: Option<Bytes>,
    /// Free extents that are shorter are left alone.
    pub minimum: Bytes,
    /// The free space there; none where the file system doesn't tell.
    pub free: Option<Free>,
    /// The part of it that is long enough.
    pub chosen: Option<Free>,
    /// How long that takes; none without a drive profile, and where it isn't known what is free.
    pub predicted: Option<Predicted>,
}

/// Free extents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Free {
    /// How many.
    pub extents: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// The number of discards of each length.
    pub sizes: SizeHistogram,
}

/// The predicted time of a trim by a drive profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// The profile's name.
    pub profile: String,
    /// How many discards the device gets.
    pub discards: u64,
    /// How long they hold it, without pauses.
    pub wall_s: f64,
}

/// The work that a trim did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// How many ranges the file system was asked to trim.
    pub slices: u64,
    /// Discards that the devices completed meanwhile, from `/sys/block/*/stat`.
    pub discards: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// The file system's own figure for these ranges, which means different things: bytes discarded on ext4.
    #[serde(default)]
    pub reported_bytes: Bytes,
    /// The names of its devices whose counters have never shown a discard: `discards` and `bytes` lack theirs.
    #[serde(default)]
    pub uncounted: Vec<String>,
    /// Discards that the devices completed between the slices, which are others'. Where there are any, some
    /// among `discards` may be others' too: that can't be told apart.
    pub others_discards: u64,
    /// Their bytes.
    pub others_bytes: Bytes,
    /// How long slices held the drive, together.
    pub held_wall_s: f64,
    /// How long it took, with the pauses between.
    pub wall_s: f64,
    /// By how much the mean latency of others' reads and writes grew, as last measured.
    pub latency_added_wall_s: f64,
}
