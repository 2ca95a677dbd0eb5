//! Limits of trims of a btrfs: the chunks that may be trimmed, and how long their shortest discards have to be.
//!
//! While btrfs discards a free extent, nobody can write there: a writer who needs it gets "no space left". One FITRIM of a chunk
//! with many short free extents can't be split, and holds up what needs the whole chunk, such as a balance.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::btrfs::{self, Chunk, ChunkKind, Room};

use xxhash_rust::xxh3::xxh3_64;

use crate::free_space::Opener;

/// The longest that one FITRIM of a chunk should take.
const BUDGET: Duration = Duration::from_millis(50);
/// After this time, a FITRIM that could be shorter is ended, and what it cost is learned.
pub const LONGEST_CALL: Duration = Duration::from_millis(100);
/// How often a chunk whose free space has not changed is given twice as much time.
const MOST_TRIES: u32 = 3;
/// The cost of a discard until it was learned: little on most drives, and on others the call is ended.
const FIRST_COST: Duration = Duration::from_micros(200);
/// A call has at most this many times as many discards as one before it: a drive that is not known yet may be slow.
const GROWTH: u64 = 4;
/// The share of what was learned that a new measurement replaces.
const NEW_SHARE: f64 = 0.3;
/// The free space that has to be left to writers while an extent is discarded: this share of all chunks of the kind, no less
/// than what writers of this kind reserve at once, and no more than a GiB.
const MARGIN_SHARE: u64 = 20;
const LEAST_DATA_MARGIN: Bytes = Bytes(32 << 20);
const LEAST_METADATA_MARGIN: Bytes = Bytes(8 << 20);
const MOST_MARGIN: Bytes = Bytes(1 << 30);
/// Unallocated space becomes a chunk for whoever needs it: of a tenth of the file system, or of this.
const NEW_CHUNK: Bytes = Bytes(1 << 30);

/// The least length that is trimmed after calls were too long, if it is not known how many free extents there are; each such
/// call makes it this many times as long.
const FIRST_LEAST: Bytes = Bytes(64 << 10);
const LEAST_FACTOR: u64 = 4;

/// The cost of a discard of this file system; shared by all that trim it.
#[derive(Debug, Clone, Default)]
pub struct DiscardCost(Arc<Mutex<Learned>>);

#[derive(Debug)]
struct Learned {
    /// In seconds.
    each: f64,
    /// The most discards in a call so far.
    most: u64,
    /// Whether the device counted any.
    are_counted: bool,
    /// The least length where the number of free extents is not known.
    least: Bytes,
    /// A hash of the free extents of each chunk, by its start, when not all of them could be discarded, and how often more were
    /// tried.
    seen: HashMap<Bytes, (u64, u32)>,
}

impl Default for Learned {
    fn default() -> Self {
        Self {
            each: FIRST_COST.as_secs_f64(),
            most: 0,
            are_counted: false,
            least: Bytes::ZERO,
            seen: HashMap::new(),
        }
    }
}

/// A reason to discard nothing of a chunk now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotNow {
    /// Writers need its free space.
    Needed,
    /// A call would only discard again what the last one did.
    Unchanged,
}

/// The part of a chunk that a call may discard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// The least length of a free extent.
    pub minimum: Bytes,
    /// After so long the call is ended; `None` if it can't be made any shorter.
    pub limit: Option<Duration>,
    /// The end of the range that it may discard: before the first extent that writers can't be without.
    pub end: Bytes,
    /// How many free extents it discards, as far as that is known.
    pub extents: usize,
    /// The free extents that it leaves out because there are too many, or because writers need them; these stay pending.
    pub left: ExtentSet,
    /// The entry of the chunk in [`Learned::seen`] once the call succeeded; `None` if nothing is left.
    seen: Option<(u64, u32)>,
}

impl DiscardCost {
    /// Learns from `discards`, as the device counts them, of this many free extents, that took so long together. Some devices
    /// count nothing.
    pub fn learn(&self, took: Duration, discards: u64, extents: usize) {
        let mut learned = self.lock();
        learned.are_counted |= discards > 0;
        let discards = if learned.are_counted { discards } else { extents as u64 };
        let Some(each) = (discards > 0).then(|| took.as_secs_f64() / discards as f64) else { return };
        learned.most = learned.most.max(discards);
        // A slow drive is to be known at once.
        let is_slower = each > learned.each * 4.0;
        learned.each = if is_slower { each } else { learned.each + (each - learned.each) * NEW_SHARE };
    }

    /// Learns that a call was ended because it took too long.
    pub fn learn_too_long(&self) {
        let mut learned = self.lock();
        learned.least = Bytes(learned.least.0.saturating_mul(LEAST_FACTOR)).max(FIRST_LEAST);
    }

    /// Learns that a call succeeded that `allowed` describes, of the chunk that starts there.
    pub fn learn_trimmed(&self, start: Bytes, allowed: &Allowed) {
        let mut learned = self.lock();
        match allowed.seen {
            Some(seen) => learned.seen.insert(start, seen),
            None => learned.seen.remove(&start),
        };
    }

    fn lock(&self) -> MutexGuard<'_, Learned> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many discards fit into this time, and are not many more than there were in a call before; at least one.
    pub fn affordable(&self, budget: Duration) -> usize {
        let learned = self.lock();
        let fitting = (budget.as_secs_f64() / learned.each) as usize;
        fitting.min(learned.most.saturating_mul(GROWTH) as usize).max(1)
    }

    /// Returns what a call may discard of `chunk`, if nothing is known about its free extents.
    fn allows_unknown(&self, chunk: Extent, minimum: Bytes) -> Allowed {
        let least = self.lock().least.min(chunk.len());
        let limit = (least < chunk.len()).then_some(LONGEST_CALL);
        Allowed {
            minimum: least.max(minimum),
            limit,
            end: chunk.end,
            extents: 0,
            left: ExtentSet::new(),
            seen: None,
        }
    }

    /// Returns the part of `chunk` that a call may discard. Of its free extents, none longer than `longest` may be taken from
    /// writers.
    fn allows(
        &self,
        chunk: Extent,
        free: &ExtentSet,
        minimum: Bytes,
        longest: Bytes,
    ) -> Result<Allowed, NotNow> {
        // A range that begins inside a chunk discards nothing, but one that ends there does.
        let needed = free.iter().find(|extent| extent.len() > longest.max(minimum));
        let end = needed.map_or(chunk.end, |extent| extent.start);
        let needed: ExtentSet =
            free.iter().filter(|extent| extent.start >= end && extent.len() >= minimum).collect();
        let free: ExtentSet = free.iter().filter(|extent| extent.start < end).collect();
        if longest < minimum || (free.is_empty() && !needed.is_empty()) {
            return Err(NotNow::Needed);
        }
        let numbers =
            free.iter().flat_map(|extent| [extent.start.0.to_le_bytes(), extent.end.0.to_le_bytes()]);
        let hash = xxh3_64(&numbers.flatten().collect::<Vec<u8>>());
        // What the last call discarded can't be left out, so the next one is longer.
        let tries = match self.lock().seen.get(&chunk.start) {
            Some((seen, tries)) if *seen == hash => tries + 1,
            _ => 0,
        };
        if tries > MOST_TRIES {
            return Err(NotNow::Unchanged);
        }
        let count = self.affordable(BUDGET) << tries;
        let lengths = free.iter().map(|extent| extent.len()).filter(|length| *length >= minimum);
        let least = longest_of(lengths.collect(), count).max(minimum);
        let extents = free.iter().filter(|extent| extent.len() >= least).count();
        let short: ExtentSet =
            free.iter().filter(|extent| (minimum..least).contains(&extent.len())).collect();
        let seen = match (short.is_empty(), needed.is_empty()) {
            (true, true) => None,
            // Another call could only discard the same.
            (true, false) => Some((hash, MOST_TRIES)),
            (false, _) => Some((hash, tries)),
        };
        let limit = (count > 1).then_some(LONGEST_CALL * (1 << tries));
        let left = short.iter().chain(needed.iter()).collect();
        Ok(Allowed { minimum: least, limit, end, extents, left, seen })
    }
}

/// Returns what a call may discard of `chunk`, in the btrfs with this directory in sysfs, and nothing shorter than `minimum`.
///
/// # Errors
/// The kernel's error.
pub fn allowed(
    opener: Opener<'_>,
    directory: &Path,
    chunk: &Chunk,
    minimum: Bytes,
    cost: &DiscardCost,
) -> io::Result<Result<Allowed, NotNow>> {
    let room = btrfs::room(directory, chunk.kind);
    let longest = room.map_or(Bytes(u64::MAX), |room| longest_spared(&room, chunk.kind));
    if let Some(free) = btrfs::free_extents_in(opener.open()?, chunk.extent)? {
        return Ok(cost.allows(chunk.extent, &free, minimum, longest));
    }
    let used = btrfs::used_in(opener.open()?, chunk.extent)?.unwrap_or_default();
    let is_spared = chunk.extent.len().saturating_sub(used) <= longest;
    Ok(if is_spared { Ok(cost.allows_unknown(chunk.extent, minimum)) } else { Err(NotNow::Needed) })
}

/// Returns the length of the shortest of the `count` longest of `lengths`; zero if there are no more than `count`.
fn longest_of(mut lengths: Vec<Bytes>, count: usize) -> Bytes {
    if lengths.len() <= count {
        return Bytes::ZERO;
    }
    lengths.sort_unstable_by(|one, other| other.cmp(one));
    // Others may be as long as the last one: only those that are longer are certain to be few enough.
    let last = lengths[count - 1];
    if lengths[count] < last { last } else { Bytes(last.0 + 1) }
}

/// Returns how long a free extent may be that writers can be without, with so much room in the chunks of a kind.
fn longest_spared(room: &Room, kind: ChunkKind) -> Bytes {
    let least = if kind == ChunkKind::Metadata { LEAST_METADATA_MARGIN } else { LEAST_DATA_MARGIN };
    let margin = Bytes(room.total.0 / MARGIN_SHARE).max(least).min(MOST_MARGIN);
    if room.unallocated >= NEW_CHUNK.min(Bytes(room.size.0 / 10)).max(margin) {
        return Bytes(u64::MAX);
    }
    room.free.saturating_sub(margin)
}

/// Returns the chunks of the file system that lie within `ranges` as a whole, in order.
///
/// # Errors
/// The kernel's error.
pub fn chunks_within(opener: Opener<'_>, ranges: &ExtentSet) -> io::Result<Vec<Chunk>> {
    let mut chunks = btrfs::chunks(opener.open()?)?;
    chunks.retain(|chunk| ranges.inside(chunk.extent).next() == Some(chunk.extent));
    chunks.sort_by_key(|chunk| chunk.extent.start);
    Ok(chunks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_longest_extents_are_discarded_where_there_are_many() {
        let of =
            |lengths: &[u64], count| longest_of(lengths.iter().map(|length| Bytes(*length)).collect(), count);
        assert_eq!(of(&[5, 9, 1], 3), Bytes::ZERO);
        assert_eq!(of(&[5, 9, 1], 2), Bytes(5));
        assert_eq!(of(&[5, 9, 5, 1], 2), Bytes(6), "of two as long, it can't be said which");
        assert_eq!(of(&[], 1), Bytes::ZERO);
    }

    #[test]
    fn slow_drive_gets_few_discards_at_once() {
        let cost = DiscardCost::default();
        let first = (0..6).map(|_| {
            let affordable = cost.affordable(BUDGET);
            cost.learn(FIRST_COST * affordable as u32, affordable as u64, 0);
            affordable
        });
        assert_eq!(first.collect::<Vec<_>>(), [1, 4, 16, 64, 250, 250]);
        cost.learn(Duration::from_millis(840), 10, 10);
        assert_eq!(cost.affordable(BUDGET), 1);
        (0..40).for_each(|_| cost.learn(Duration::from_millis(1), 10, 10));
        assert!(cost.affordable(BUDGET) > 200);
        cost.learn(Duration::from_secs(5), 0, 10);
        assert!(cost.affordable(BUDGET) > 200, "nothing was discarded");
        let uncounted = DiscardCost::default();
        uncounted.learn(Duration::from_millis(5), 0, 10);
        assert_eq!(uncounted.affordable(BUDGET), 40);
    }

    const CHUNK: Extent = Extent { start: Bytes(1 << 30), end: Bytes(2 << 30) };

    const ANY: Bytes = Bytes(u64::MAX);

    /// Plays a call that succeeds, if one is allowed.
    fn call(cost: &DiscardCost, free: &ExtentSet, longest: Bytes) -> Result<Allowed, NotNow> {
        let allowed = cost.allows(CHUNK, free, Bytes(4096), longest)?;
        cost.learn_trimmed(CHUNK.start, &allowed);
        Ok(allowed)
    }

    fn free(lengths: &[u64]) -> ExtentSet {
        let at = |(index, length): (usize, &u64)| {
            Extent::at(CHUNK.start + Bytes((index as u64) << 20), Bytes(*length))
        };
        lengths.iter().enumerate().map(at).collect()
    }

    #[test]
    fn call_that_cannot_be_shorter_is_not_ended() {
        let cost = DiscardCost::default();
        let of = |minimum, limit, extents, left| Allowed {
            minimum: Bytes(minimum),
            limit,
            end: CHUNK.end,
            extents,
            left,
            seen: None,
        };
        cost.learn(FIRST_COST, 1, 1);
        let two = free(&[4096, 8192]);
        let first = cost.allows(CHUNK, &two, Bytes(4096), ANY);
        assert_eq!(first, Ok(of(4096, Some(LONGEST_CALL), 2, ExtentSet::new())));
        cost.learn(Duration::from_secs(10), 1, 1);
        let second =
            cost.allows(CHUNK, &two, Bytes(4096), ANY).map(|allowed| Allowed { seen: None, ..allowed });
        assert_eq!(second, Ok(of(8192, None, 1, free(&[4096]))));
        // Without a tree of free space.
        let mut last = Bytes::ZERO;
        for _ in 0..8 {
            cost.learn_too_long();
            let allowed = cost.allows_unknown(CHUNK, Bytes(4096));
            assert!(allowed.minimum > last && allowed.minimum <= CHUNK.len());
            last = allowed.minimum;
        }
        assert_eq!(cost.allows_unknown(CHUNK, Bytes(4096)), of(1 << 30, None, 0, ExtentSet::new()));
    }

    #[test]
    fn longest_extents_are_not_discarded_again_until_the_free_space_changes() {
        let cost = DiscardCost::default();
        cost.learn(Duration::from_secs(1), 20, 20);
        let left = |lengths: &[u64]| call(&cost, &free(lengths), ANY).map(|allowed| allowed.left.len());
        let many: Vec<u64> = (1..=20).map(|number| number * 4096).collect();
        let twice = [(); 2].map(|()| cost.allows(CHUNK, &free(&many), Bytes(4096), ANY));
        assert_eq!(twice[0], twice[1], "a call that was ended, or waits, changes nothing");
        let longest_left: Vec<_> = (0..5).map(|_| left(&many)).collect();
        let of = |count: u64| Ok(Bytes((1..=count).map(|number| number * 4096).sum()));
        assert_eq!(longest_left, [of(19), of(18), of(16), of(12), Err(NotNow::Unchanged)]);
        assert_eq!(left(&[4096, 8192, 32768]), of(2));
        assert_eq!(left(&[4096, 8192, 32768]), of(1));
        assert_eq!(left(&[4096, 8192, 32768]), of(0));
        assert_eq!(left(&[4096, 8192, 32768]), of(2), "it has been trimmed wholly meanwhile");
    }

    #[test]
    fn extents_that_writers_need_and_what_lies_behind_are_left() {
        let cost = DiscardCost::default();
        cost.learn(FIRST_COST, 1, 1);
        let lengths = [4096, 8192, 65536, 8192];
        let all = free(&lengths);
        let allow = |longest| call(&cost, &all, Bytes(longest));
        let beyond: ExtentSet = all.iter().skip(2).collect();
        let third = CHUNK.start + Bytes(2 << 20);
        let allowed = allow(8192).unwrap();
        assert_eq!((allowed.end, allowed.minimum, &allowed.left), (third, Bytes(4096), &beyond));
        assert_eq!(allow(8192), Err(NotNow::Unchanged));
        assert_eq!(allow(65536).unwrap().left, ExtentSet::new());
        assert_eq!(allow(4096).unwrap().end, CHUNK.start + Bytes(1 << 20));
        assert_eq!(allow(4095), Err(NotNow::Needed));
        let one = cost.allows(CHUNK, &free(&[65536]), Bytes(4096), Bytes(8192));
        assert_eq!(one, Err(NotNow::Needed));
        let short = cost.allows(CHUNK, &free(&[4096, 4096]), Bytes(8192), Bytes(8192));
        assert_eq!(short.unwrap().left, ExtentSet::new(), "nothing that is long enough was left");
    }

    #[test]
    fn writers_keep_a_margin() {
        const MIB: u64 = 1 << 20;
        let longest = |kind, [total, free, unallocated, size]: [u64; 4]| {
            let [total, free, unallocated, size] =
                [total, free, unallocated, size].map(|mib| Bytes(mib * MIB));
            longest_spared(&Room { total, free, unallocated, size }, kind).0 / MIB
        };
        let (data, metadata) = (ChunkKind::Data, ChunkKind::Metadata);
        let any = u64::MAX / MIB;
        assert_eq!(longest(data, [300, 32, 0, 400]), 0, "writers need all of it");
        assert_eq!(longest(data, [300, 40, 31, 400]), 8);
        assert_eq!(longest(data, [300, 0, 40, 400]), any, "a new chunk can be made");
        assert_eq!(longest(data, [1 << 20, 1100, 0, 1 << 20]), 76);
        assert_eq!(longest(data, [100 << 10, 0, 100, 100 << 10]), 0);
        assert_eq!(longest(data, [100 << 10, 0, 1 << 10, 100 << 10]), any);
        assert_eq!(longest(metadata, [32, 30, 0, 400]), 22);
    }
}
