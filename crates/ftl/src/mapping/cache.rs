//! The cache of flash that holds one bit in each cell (pseudo-SLC).
//!
//! It consists of groups: a group has the pages of one erase block and takes the flash of as many blocks as a
//! cell otherwise holds bits. Some groups are the cache's own (static), others are made of erased blocks
//! (dynamic) as long as garbage collection keeps what it needs. Groups are filled one after the other and
//! folded in the same order: their valid pages move to the open block of garbage collection.

use std::collections::VecDeque;

use trimtab_core::Bytes;
use trimtab_core::profile::Profile;

use super::{Frontier, Ftl};
use crate::flash::{Cause, Flash};

/// The most blocks that make a group.
const MOST_BITS: usize = 4;

/// The size of a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CacheConfig {
    /// Blocks in a group.
    pub(crate) bits: u32,
    /// Groups that are the cache's own.
    pub(crate) fixed: u32,
    /// The most groups that it makes of erased blocks.
    pub(crate) dynamic: u32,
}

impl CacheConfig {
    /// The cache of a drive of `size`, if its profile has one: the nearest number of whole groups, and at least one
    /// of a kind that the profile has.
    pub(crate) fn of_drive(profile: &Profile, size: Bytes) -> Option<Self> {
        let slc = profile.slc.as_ref()?;
        let group = profile.geometry.erase_block.value.0 as f64;
        let groups = |fraction: f64| {
            let least = if fraction > 0.0 { 1.0 } else { 0.0 };
            (size.0 as f64 * fraction / group).round().max(least) as u32
        };
        Some(Self {
            bits: slc.bits_per_cell.value,
            fixed: groups(slc.static_size.value),
            dynamic: groups(slc.dynamic_size.value),
        })
    }

    /// The blocks that are only ever the cache's.
    pub(super) fn blocks(self) -> u32 {
        self.fixed.saturating_mul(self.bits)
    }
}

/// Blocks that are one group of the cache; the first has its pages.
#[derive(Debug, Clone, Copy)]
struct Group {
    /// Counts the groups filled so far.
    number: u64,
    blocks: [u32; MOST_BITS],
    is_fixed: bool,
}

/// A group that is folded step by step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Folding {
    number: u64,
    /// The block that has its pages.
    pub(crate) block: u32,
    /// The blocks to erase afterwards.
    pub(crate) blocks: u32,
}

/// The groups of a cache.
pub(super) struct Cache {
    config: CacheConfig,
    /// Erased groups of the cache's own.
    free: Vec<[u32; MOST_BITS]>,
    /// Groups with data, the oldest first; the last may be open.
    filled: VecDeque<Group>,
    /// The groups that are made of erased blocks.
    dynamic: u32,
    groups: u64,
    /// Pages that were or will be erased without having been programmed.
    pub(super) unused: u64,
}

impl Cache {
    /// The cache of a model whose other blocks are the first `data` ones.
    pub(super) fn new(config: CacheConfig, data: u32) -> Self {
        let group = |number: u32| {
            let first = data + number * config.bits;
            std::array::from_fn(|place| first + (place as u32).min(config.bits - 1))
        };
        Self {
            config,
            free: (0..config.fixed).rev().map(group).collect(),
            filled: VecDeque::new(),
            dynamic: 0,
            groups: 0,
            unused: 0,
        }
    }

    /// Blocks of the cache's own that are erased.
    pub(super) fn free_blocks(&self) -> u32 {
        self.free.len() as u32 * self.config.bits
    }

    /// Erased blocks of the drive that are groups now.
    pub(super) fn dynamic_blocks(&self) -> u32 {
        self.dynamic * self.config.bits
    }

    /// The blocks that have the pages of groups with data.
    pub(super) fn filled(&self) -> impl Iterator<Item = u32> {
        self.filled.iter().map(|group| group.blocks[0])
    }
}

impl Ftl {
    /// The frontier of host pages that would go to `stream`: the cache's as long as it has room.
    #[inline]
    pub(super) fn place(&mut self, stream: usize, flash: &mut impl Flash) -> (usize, Cause) {
        if self.cache.is_none() {
            return (stream, Cause::Host);
        }
        let Frontier { next, end } = self.frontiers[self.cache_frontier()];
        if next < end || self.open_group(flash) {
            return (self.cache_frontier(), Cause::Cache);
        }
        (stream, Cause::Host)
    }

    fn cache_frontier(&self) -> usize {
        2 * self.copies
    }

    /// Opens the next group of the cache, where it may have one more. Erases what has no valid page where
    /// nothing is erased, and moves nothing.
    fn open_group(&mut self, flash: &mut impl Flash) -> bool {
        loop {
            if let Some((blocks, is_fixed)) = self.take_group(flash) {
                self.start_group(blocks, is_fixed);
                return true;
            }
            let oldest = self.cache.as_ref().and_then(|cache| cache.filled.front());
            if oldest.is_none_or(|group| self.blocks.valid()[group.blocks[0] as usize] > 0) {
                return false;
            }
            self.erase_group(0, flash);
        }
    }

    /// The blocks of an erased group: one of the cache's own, or of the drive's erased blocks if it may have
    /// more of them; and whether they are its own.
    fn take_group(&mut self, flash: &mut impl Flash) -> Option<([u32; MOST_BITS], bool)> {
        let cache = self.cache.as_mut()?;
        if let Some(blocks) = cache.free.pop() {
            return Some((blocks, true));
        }
        let bits = cache.config.bits;
        if cache.dynamic == cache.config.dynamic {
            return None;
        }
        let least = self.config.reserve_blocks + 1 + bits;
        while self.blocks.free() < least && self.cleaning.is_none() && self.blocks.has_empty() {
            self.clean(flash);
        }
        (self.blocks.free() >= least).then(|| {
            let mut blocks = [0; MOST_BITS];
            blocks[..bits as usize].fill_with(|| self.blocks.open());
            if let Some(stream) = self.streams.get_mut(blocks[0] as usize) {
                *stream = 0;
            }
            (blocks, false)
        })
    }

    /// Fills these erased blocks from now on. The first has the pages.
    fn start_group(&mut self, blocks: [u32; MOST_BITS], is_fixed: bool) {
        let (frontier, pages) = (self.cache_frontier(), self.config.pages_per_block);
        let cache = self.cache.as_mut().expect("the cache whose group it is");
        cache.dynamic += u32::from(!is_fixed);
        cache.unused += u64::from(cache.config.bits - 1) * u64::from(pages);
        cache.groups += 1;
        cache.filled.push_back(Group { number: cache.groups, blocks, is_fixed });
        let next = self.layout.first(blocks[0]);
        self.frontiers[frontier] = Frontier { next, end: next + pages };
    }

    /// Folds the oldest group that is made of erased blocks, if there is one.
    pub(super) fn fold_dynamic(&mut self, flash: &mut impl Flash) -> bool {
        let Some(cache) = &self.cache else { return false };
        let Some(place) = cache.filled.iter().position(|group| !group.is_fixed) else { return false };
        self.fold(place, flash);
        true
    }

    /// Folds every group, and cleans for that where it is necessary. What does not fit stays in the cache.
    pub(crate) fn empty_cache(&mut self, flash: &mut impl Flash) {
        while let Some(oldest) = self.oldest_group() {
            while !self.can_fold(oldest, self.blocks.valid()[oldest.blocks[0] as usize]) {
                if self.invalid_in_closed() < u64::from(self.config.pages_per_block) {
                    return;
                }
                self.clean(flash);
            }
            self.fold(0, flash);
        }
    }

    /// Starts to fold the oldest full group that there is room for; none where there is none. Groups of the cache's
    /// own may have to wait until one that is made of erased blocks has given these back.
    pub(crate) fn start_folding(&self) -> Option<Folding> {
        let blocks = self.cache.as_ref()?.config.bits;
        let group = self.full_groups().find(|group| self.can_fold_next(**group))?;
        Some(Folding { number: group.number, block: group.blocks[0], blocks })
    }

    /// The groups that are full, the oldest first: all but one that is open.
    fn full_groups(&self) -> impl Iterator<Item = &Group> {
        let Frontier { next, end } = self.frontiers[self.cache_frontier()];
        let open = usize::from(next < end);
        self.cache.iter().flat_map(move |cache| cache.filled.iter().take(cache.filled.len() - open))
    }

    /// Whether a group is full.
    pub(crate) fn has_full_group(&self) -> bool {
        self.full_groups().next().is_some()
    }

    /// Whether this group is still to be folded, and there is room for its pages.
    pub(crate) fn is_folding(&self, folding: Folding) -> bool {
        self.place_of(folding).is_some_and(|place| self.can_fold_next(self.group(place)))
    }

    /// The place of a group that is being folded; none where it was erased meanwhile.
    fn place_of(&self, folding: Folding) -> Option<usize> {
        self.cache.as_ref()?.filled.binary_search_by_key(&folding.number, |group| group.number).ok()
    }

    /// Erases the group that is being folded.
    ///
    /// # Panics
    /// If it is no group any more, or has valid pages.
    pub(crate) fn finish_folding(&mut self, folding: Folding, flash: &mut impl Flash) {
        let place = self.place_of(folding).expect("the group is being folded");
        self.erase_group(place, flash);
    }

    fn oldest_group(&self) -> Option<Group> {
        self.cache.as_ref()?.filled.front().copied()
    }

    /// Whether the next page of a group can be folded, or it has none any more.
    fn can_fold_next(&self, group: Group) -> bool {
        self.can_fold(group, self.blocks.valid()[group.blocks[0] as usize].min(1))
    }

    /// Whether the next `pages` pages of a group can be folded without taking a block that the host's next one
    /// needs: garbage collection's open block has room for them, or there is one to spare. A group of erased
    /// blocks gives them back.
    fn can_fold(&self, group: Group, pages: u32) -> bool {
        let Frontier { next, end } = self.frontiers[self.copies_of(group.blocks[0])];
        pages <= end - next || self.blocks.free() > self.config.reserve_blocks + u32::from(group.is_fixed)
    }

    fn fold(&mut self, place: usize, flash: &mut impl Flash) {
        let block = self.group(place).blocks[0];
        self.move_all(block, Cause::Fold, flash);
        self.erase_group(place, flash);
    }

    /// Erases a group without a valid page; one that is open is closed first.
    fn erase_group(&mut self, place: usize, flash: &mut impl Flash) {
        let group = self.group(place);
        let frontier = self.cache_frontier();
        let Frontier { next, end } = &mut self.frontiers[frontier];
        let cache = self.cache.as_mut().expect("the cache whose group it is");
        if next < end && self.layout.block(*next) == group.blocks[0] {
            cache.unused += u64::from(*end - *next);
            *next = *end;
        }
        cache.filled.remove(place);
        if group.is_fixed {
            cache.free.push(group.blocks);
        } else {
            cache.dynamic -= 1;
        }
        for block in &group.blocks[..cache.config.bits as usize] {
            self.erase(*block, flash);
        }
    }

    fn group(&self, place: usize) -> Group {
        self.cache.as_ref().expect("a cache has groups").filled[place]
    }
}
