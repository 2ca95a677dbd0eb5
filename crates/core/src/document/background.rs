//! Work that a drive does by itself, as a bench sees it: the cache that takes a burst of writes, its work while it
//! idles, and its work for a discard after the command has returned.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// The measurements of a drive's own work, and what follows from them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Background {
    /// Bursts of writes after pauses, in the order in which they were written.
    pub bursts: Vec<Burst>,
    /// How reads slowed after single large discards.
    pub after_discards: Vec<AfterDiscard>,
    /// The cache that writes go to first; none where no burst slowed.
    pub cache: Option<CacheFit>,
    /// Garbage collection while the drive idles; none where a pause made no random writes faster, or a cache hides
    /// it.
    pub cleaning: Option<Recovery>,
    /// The work that follows a discard; none where reads after it are as fast as before.
    pub lazy: Option<LazyFit>,
    /// The share of the flash that a discard takes until it returns; none where reads beside it are as fast as alone,
    /// or too few were done while it was in flight.
    #[serde(default)]
    pub busy_share: Option<f64>,
}

/// Writes without a pause between them, after a pause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// The drive before it.
    pub state: BurstState,
    /// Wall seconds without a command before it.
    pub pause_wall_s: f64,
    /// The writes, in rounds that each end with a flush.
    pub rounds: Vec<WriteRound>,
}

/// The state of a drive before a burst of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BurstState {
    /// All discarded; sequential writes follow.
    Empty,
    /// Written in sequence; sequential writes follow.
    Full,
    /// Overwritten at random; random writes follow.
    Aged,
}

/// A part of a burst.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WriteRound {
    /// Bytes written.
    pub bytes: Bytes,
    /// Wall seconds until they were flushed.
    pub wall_s: f64,
}

/// Reads of 4 KiB, one at a time, before a discard and after it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AfterDiscard {
    /// The bytes that the discard named.
    pub size: Bytes,
    /// Whether they held data.
    pub of_data: bool,
    /// How long the discard took.
    pub discard_us: f64,
    /// The median of a read that was sent and done while the discard was in flight; none where few were.
    #[serde(default)]
    pub beside_us: Option<f64>,
    /// The median of a read before it.
    pub alone_us: f64,
    /// The median of a read after it, while that was longer.
    pub slowed_us: f64,
    /// Wall seconds after the discard until reads were as fast as before; zero where they always were.
    pub slowed_wall_s: f64,
}

/// A cache that writes go to first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheFit {
    /// Bytes that it takes on a drive that was all discarded.
    pub empty: Bytes,
    /// Sequential writes into it, in MiB/s.
    pub fast_mib_s: f64,
    /// Sequential writes when it is full, in MiB/s.
    pub slow_mib_s: f64,
    /// How it empties while a full drive idles; none where no pause was long enough.
    pub refill: Option<Recovery>,
}

/// The speed of writes that a pause gives back.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// The pause in seconds after which it begins.
    pub after_wall_s: f64,
    /// The MiB that each second from then on adds to those that are written fast; none where the pauses don't
    /// show it.
    pub mib_s: Option<f64>,
    /// The most bytes that were written fast after any pause.
    pub most: Bytes,
    /// Whether a longer pause gave no more than a shorter one.
    pub complete: bool,
}

/// The work of a drive after a discard has returned.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LazyFit {
    /// The share of the flash's time that it takes while it lasts.
    pub share: f64,
    /// The work for each GiB without data, in milliseconds of the whole flash.
    pub per_gib_ms: f64,
    /// The work that data add to each GiB, in milliseconds of the whole flash.
    pub per_mapped_gib_ms: f64,
}
