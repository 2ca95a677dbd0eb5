//! Extents that are free and not yet discarded, with their age.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::extent::Extent;
use crate::units::Bytes;

/// Classes of length, by powers of two.
const CLASSES: usize = 64;

/// Extents freed since they were last discarded, each as old as its oldest byte.
///
/// Invariant: no extent in it is empty, no two overlap and no two touch; there are never more than
/// its limit. Beyond the limit, the extents closest to each other are joined. A joined extent also holds the
/// bytes between them, which nobody freed. A trim leaves those alone, as they are in use or discarded.
#[derive(Debug, Clone)]
pub struct PendingExtents {
    extents: BTreeMap<u64, Stretch>,
    /// The starts of the extents of each class: the longest are found without looking at all.
    classes: Vec<Class>,
    bytes: u64,
    limit: usize,
    /// None is free since before this.
    floor: Duration,
}

/// The extents whose lengths have the same power of two.
#[derive(Debug, Clone, Default)]
struct Class {
    starts: BTreeSet<u64>,
    bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    end: u64,
    since: Duration,
}

fn class_of(length: u64) -> usize {
    length.ilog2() as usize
}

impl PendingExtents {
    /// A set without extents, which will hold at most `limit`.
    ///
    /// # Panics
    /// If `limit` is below 2.
    pub fn new(limit: usize) -> Self {
        assert!(limit >= 2, "extents can only be joined if there are two");
        Self {
            extents: BTreeMap::new(),
            classes: vec![Class::default(); CLASSES],
            bytes: 0,
            limit,
            floor: Duration::MAX,
        }
    }

    /// Records that the bytes are free since `at`.
    pub fn insert(&mut self, extent: Extent, at: Duration) {
        if extent.is_empty() {
            return;
        }
        let (mut start, mut end, mut since) = (extent.start.0, extent.end.0, at);
        // From right to left: the extents that begin in or right after this one, and the one before if it
        // overlaps or touches it.
        while let Some((&left, &stretch)) = self.extents.range(..=end).next_back()
            && stretch.end >= start
        {
            self.drop_at(left, stretch);
            (start, end, since) = (start.min(left), end.max(stretch.end), since.min(stretch.since));
        }
        self.put(start, Stretch { end, since });
        self.floor = self.floor.min(since);
        if self.extents.len() > self.limit {
            self.coarsen();
        }
    }

    /// Records that the bytes are in use, or discarded.
    pub fn remove(&mut self, extent: Extent) {
        if extent.is_empty() {
            return;
        }
        let (start, end) = (extent.start.0, extent.end.0);
        while let Some((&left, &stretch)) = self.extents.range(..end).next_back()
            && stretch.end > start
        {
            self.drop_at(left, stretch);
            if left < start {
                self.put(left, Stretch { end: start, ..stretch });
            }
            if stretch.end > end {
                self.put(end, stretch);
            }
        }
        if self.extents.len() > self.limit {
            self.coarsen();
        }
    }

    /// The extents, each with the time since which its oldest byte is free, in order of address.
    pub fn iter(&self) -> impl Iterator<Item = (Extent, Duration)> + '_ {
        self.extents
            .iter()
            .map(|(start, stretch)| (Extent::new(Bytes(*start), Bytes(stretch.end)), stretch.since))
    }

    /// The extents that share bytes with `range`, in order of address.
    pub fn sharing(&self, range: Extent) -> impl Iterator<Item = Extent> + '_ {
        let before =
            self.extents.range(..=range.start.0).next_back().map_or(range.start.0, |(start, _)| *start);
        let starts = if range.is_empty() { 0..0 } else { before..range.end.0 };
        let extents = self.extents.range(starts);
        let extents = extents.map(|(start, stretch)| Extent::new(Bytes(*start), Bytes(stretch.end)));
        extents.filter(move |extent| extent.end > range.start)
    }

    /// Returns the extents of `least` bytes or more, the longer ones first, to a power of two.
    pub fn longest(&self, least: Bytes) -> impl Iterator<Item = Extent> + '_ {
        let least = least.0.max(1);
        let classes = self.classes[class_of(least)..].iter().rev();
        let starts = classes.flat_map(|class| &class.starts);
        let extents = starts.map(|start| Extent::new(Bytes(*start), Bytes(self.extents[start].end)));
        extents.filter(move |extent| extent.len().0 >= least)
    }

    /// Returns how many bytes are in extents of `least` bytes or more, to a power of two: also in those whose
    /// length has the same power of two.
    pub fn bytes_from(&self, least: Bytes) -> Bytes {
        Bytes(self.classes[class_of(least.0.max(1))..].iter().map(|class| class.bytes).sum())
    }

    /// Returns the extents that are free since `before` or longer, in order of address. Searches only if
    /// there may be any.
    pub fn older(&mut self, before: Duration) -> Vec<Extent> {
        if self.floor > before {
            return Vec::new();
        }
        self.floor = self.oldest().unwrap_or(Duration::MAX);
        self.iter().filter(|(_, since)| *since <= before).map(|(extent, _)| extent).collect()
    }

    /// Returns since when the extent with the byte at `address` is free; `None` if no extent has it.
    pub fn since(&self, address: Bytes) -> Option<Duration> {
        let (_, stretch) = self.extents.range(..=address.0).next_back()?;
        (stretch.end > address.0).then_some(stretch.since)
    }

    /// Returns since when the oldest extent is free.
    pub fn oldest(&self) -> Option<Duration> {
        self.extents.values().map(|stretch| stretch.since).min()
    }

    /// Returns a time before which no extent was freed, which may be long before the oldest.
    pub fn none_before(&self) -> Duration {
        self.floor
    }

    /// The number of extents.
    pub fn count(&self) -> usize {
        self.extents.len()
    }

    /// The number of bytes.
    pub fn len(&self) -> Bytes {
        Bytes(self.bytes)
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    fn put(&mut self, start: u64, stretch: Stretch) {
        let length = stretch.end - start;
        self.extents.insert(start, stretch);
        let class = &mut self.classes[class_of(length)];
        class.starts.insert(start);
        class.bytes += length;
        self.bytes += length;
    }

    fn drop_at(&mut self, start: u64, stretch: Stretch) {
        let length = stretch.end - start;
        self.extents.remove(&start);
        let class = &mut self.classes[class_of(length)];
        class.starts.remove(&start);
        class.bytes -= length;
        self.bytes -= length;
    }

    /// Joins those with the shortest gaps between them, until half of the limit are left.
    fn coarsen(&mut self) {
        let starts = self.extents.keys().skip(1);
        let ends = self.extents.values().map(|stretch| stretch.end);
        let mut gaps: Vec<Extent> =
            ends.zip(starts).map(|(end, start)| Extent::new(Bytes(end), Bytes(*start))).collect();
        let surplus = self.extents.len() - (self.limit / 2).max(1);
        gaps.select_nth_unstable_by_key(surplus - 1, |gap| gap.len());
        for gap in &gaps[..surplus] {
            // As old as the older of its neighbours.
            self.insert(*gap, Duration::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, prop, prop_assert, prop_assert_eq, proptest};

    use super::*;

    const SPACE: u64 = 96;

    fn extents() -> impl Strategy<Value = Extent> {
        (0..=SPACE, 0..=SPACE).prop_map(|(a, b)| Extent::new(Bytes(a.min(b)), Bytes(a.max(b))))
    }

    fn seconds(time: usize) -> Duration {
        Duration::from_secs(time as u64)
    }

    proptest! {
        /// Held to a list of bytes, each with the time since which it is free.
        #[test]
        fn pending_matches_a_list_of_bytes(
            steps in prop::collection::vec((prop::bool::ANY, extents()), 0..40),
            least in 0..20u64,
        ) {
            let (mut pending, mut naive) = (PendingExtents::new(1000), vec![None; SPACE as usize]);
            for (time, &(free, extent)) in steps.iter().enumerate() {
                for byte in &mut naive[extent.start.0 as usize..extent.end.0 as usize] {
                    *byte = free.then(|| byte.unwrap_or(seconds(time)));
                }
                if free { pending.insert(extent, seconds(time)) } else { pending.remove(extent) }
            }
            let list: Vec<_> = pending.iter().collect();
            prop_assert!(list.windows(2).all(|pair| pair[0].0.end < pair[1].0.start));
            let held: Vec<bool> = (0..SPACE)
                .map(|byte| list.iter().any(|(extent, _)| (extent.start.0..extent.end.0).contains(&byte)))
                .collect();
            prop_assert_eq!(held, naive.iter().map(Option::is_some).collect::<Vec<_>>());
            for (extent, since) in &list {
                // Never younger than its bytes; what was cut off may still count as old as it was.
                let bytes = &naive[extent.start.0 as usize..extent.end.0 as usize];
                prop_assert!(*since <= bytes.iter().flatten().min().copied().unwrap());
            }
            prop_assert_eq!(pending.len(), list.iter().map(|(extent, _)| extent.len()).sum());
            prop_assert_eq!(pending.oldest(), list.iter().map(|(_, since)| *since).min());
            for before in 0..steps.len() {
                let old = list.iter().filter(|(_, since)| *since <= seconds(before)).map(|(extent, _)| *extent);
                prop_assert_eq!(pending.older(seconds(before)), old.collect::<Vec<_>>());
            }
            for byte in 0..SPACE {
                let holds = |(extent, _): &&(Extent, _)| (extent.start.0..extent.end.0).contains(&byte);
                prop_assert_eq!(pending.since(Bytes(byte)), list.iter().find(holds).map(|(_, since)| *since));
            }
            for window in [Extent::new(Bytes(least), Bytes(2 * least)), Extent::new(Bytes(0), Bytes(SPACE))] {
                let some = list.iter().map(|(extent, _)| *extent);
                let some = some.filter(|extent| !extent.intersect(window).is_empty());
                prop_assert_eq!(pending.sharing(window).collect::<Vec<_>>(), some.collect::<Vec<_>>());
            }
            let mut longest: Vec<_> = pending.longest(Bytes(least)).collect();
            prop_assert!(longest.windows(2).all(|pair| pair[0].len().0.ilog2() >= pair[1].len().0.ilog2()));
            longest.sort();
            let class: Bytes = list
                .iter()
                .map(|(extent, _)| extent.len())
                .filter(|length| length.0.ilog2() >= least.max(1).ilog2())
                .sum();
            prop_assert_eq!(pending.bytes_from(Bytes(least)), class);
            let long = list.iter().map(|(extent, _)| *extent).filter(|extent| extent.len().0 >= least);
            prop_assert_eq!(longest, long.collect::<Vec<_>>());
        }

        #[test]
        fn coarse_extents_cover_all_free_bytes(
            frees in prop::collection::vec(extents(), 1..60),
            limit in 2..8usize,
        ) {
            let (mut coarse, mut exact) = (PendingExtents::new(limit), PendingExtents::new(1000));
            for (time, &extent) in frees.iter().enumerate() {
                coarse.insert(extent, seconds(time));
                exact.insert(extent, seconds(time));
                prop_assert!(coarse.count() <= limit);
            }
            let held: Vec<_> = coarse.iter().collect();
            for (extent, since) in exact.iter() {
                let holds = |(outer, age): &(Extent, Duration)| outer.intersect(extent) == extent && *age <= since;
                prop_assert!(held.iter().any(holds));
            }
        }
    }

    #[test]
    fn shortest_gaps_are_joined_first() {
        let mut pending = PendingExtents::new(4);
        for (start, end) in [(0, 10), (12, 20), (50, 60), (61, 70), (200, 210)] {
            pending.insert(Extent::new(Bytes(start), Bytes(end)), seconds(start as usize));
        }
        let left: Vec<_> =
            pending.iter().map(|(extent, since)| (extent.start.0, extent.end.0, since)).collect();
        assert_eq!(left, [(0, 70, seconds(0)), (200, 210, seconds(200))]);
    }
}
