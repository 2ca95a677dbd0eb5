//! The document of the arena: every policy on every trace, drive and think time.

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Nanos};

/// The schema name of [`ArenaDocument`].
pub const ARENA_SCHEMA: &str = "trimtab/arena/1";

/// The results of the arena: schema `trimtab/arena/1`. All times are model time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArenaDocument {
    /// [`ARENA_SCHEMA`].
    pub schema: String,
    /// The version of trimtab that wrote it.
    pub version: String,
    /// When it was started: RFC 3339, UTC.
    pub started: String,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// How often each trace was replayed on the same drive.
    pub passes: u32,
    /// One entry a replay, by trace, profile, think time and policy.
    pub runs: Vec<ArenaRun>,
}

/// The cell that a replay belongs to: its policies see the same requests, think times and drive.
#[derive(Debug, Clone, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct ArenaCell {
    /// The set that the trace belongs to: `tuning` or `verdict`.
    pub set: String,
    /// The trace's name.
    pub trace: String,
    /// The name of the drive's profile.
    pub profile: String,
    /// How many times as long the host thinks between requests as in the trace.
    pub think_scale: f64,
}

/// One policy in one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArenaRun {
    /// The cell.
    pub cell: ArenaCell,
    /// The policy, or `ideal`.
    pub policy: String,
    /// For how long one or more reads, writes and flushes were under way.
    pub waited_ns: Nanos,
    /// 99 % of the reads took no longer; zero if there were none.
    pub read_p99_ns: Nanos,
    /// 99 % of the writes took no longer.
    pub write_p99_ns: Nanos,
    /// Erase-block erases.
    pub erases: u64,
    /// Mapping pages that the host wrote.
    pub host_pages: u64,
    /// Mapping pages that garbage collection copied.
    pub copied_pages: u64,
    /// Discard commands.
    pub discards: u64,
    /// The bytes that they named.
    pub discard_bytes: Bytes,
    /// For how long discards kept the drive busy.
    pub discard_busy_ns: Nanos,
    /// The bytes that were free at the end and not discarded.
    pub pending: Bytes,
}
