//! Cleaning step by step, for a drive that idles: a command can come between any two steps.
//!
//! A block whose cleaning has started has left its list, and its pages lose their data as they are moved.
//! Whoever needs an erased block meanwhile finishes it first: what is left of it fits into the open block of
//! garbage collection, or opens one of the blocks that the reserve holds.

use std::ops::Range;

use super::{Cache, Frontier, Ftl};
use crate::flash::{Cause, Flash, Untimed};

impl Ftl {
    /// The block that is being cleaned.
    pub(crate) fn cleaning(&self) -> Option<u32> {
        self.cleaning
    }

    /// Chooses the next block to clean; none where all closed blocks together do not have a block's worth of
    /// invalid pages.
    ///
    /// # Panics
    /// If another block is being cleaned.
    pub(crate) fn start_cleaning(&mut self) -> Option<u32> {
        assert_eq!(self.cleaning, None, "one block at a time");
        if self.invalid_in_closed() >= u64::from(self.config.pages_per_block) {
            self.cleaning = Some(self.blocks.victim());
        }
        self.cleaning
    }

    /// The pages of a block by dense number, and their valid bits: page `n` has bit `n % 64` of word
    /// `n / 64`.
    pub(crate) fn block(&self, block: u32) -> (Range<u32>, &[u64]) {
        let (first, pages) = (self.layout.first(block), self.config.pages_per_block);
        let dense = self.layout.dense(first);
        (dense..dense + pages, self.valid.words(first, pages))
    }

    /// The pages, by dense number, that garbage collection programs next when it moves data of `block`: of its
    /// open block, or of the one that it will open.
    pub(crate) fn next_copies(&self, block: u32) -> Range<u32> {
        let Frontier { next, end } = self.frontiers[self.copies_of(block)];
        if next < end {
            let dense = self.layout.dense(next);
            return dense..dense + (end - next);
        }
        let dense = self.layout.dense(self.layout.first(self.blocks.next_open()));
        dense..dense + self.config.pages_per_block
    }

    /// Moves the first valid pages of `block`, which is being cleaned or folded, from page `from` of it on: as
    /// many as `count`. Returns the page behind the last one moved, and how many were.
    pub(crate) fn move_pages(&mut self, block: u32, from: u32, count: u32, cause: Cause) -> (u32, u32) {
        let (first, pages) = (self.layout.first(block), self.config.pages_per_block);
        let contents = self.contents.of_block(self.layout, block, pages);
        let mut moving = std::mem::take(&mut self.moving);
        moving.clear();
        let mut next = from;
        while let Some(page) = next_valid(self.valid.words(first, pages), next, pages)
            && moving.len() < count as usize
        {
            moving.push(contents.get(page));
            self.valid.clear(first + page..first + page + 1);
            next = page + 1;
        }
        let moved = moving.len() as u32;
        self.blocks.invalidate(block, moved);
        self.append_moved(block, moving, cause, &mut Untimed);
        (next, moved)
    }

    /// Erases the block that is being cleaned.
    ///
    /// # Panics
    /// If none is, or it has valid pages.
    pub(crate) fn finish_cleaning(&mut self, flash: &mut impl Flash) {
        let block = self.cleaning.take().expect("a block is being cleaned");
        assert_eq!(self.blocks.valid()[block as usize], 0, "its pages have been moved");
        self.recycle(block, flash);
    }

    /// The number of invalid pages in closed blocks.
    pub(super) fn invalid_in_closed(&self) -> u64 {
        let pages = u64::from(self.config.pages_per_block);
        let frontiers = &self.frontiers[..2 * self.copies];
        let open = frontiers.iter().filter(|frontier| frontier.next < frontier.end);
        let open = open.map(|frontier| self.layout.block(frontier.next));
        let valid = |block: u32| u64::from(self.blocks.valid()[block as usize]);
        let cached: u64 = self.cache.iter().flat_map(Cache::filled).map(valid).sum();
        let borrowed = self.cache.as_ref().map_or(0, Cache::dynamic_blocks);
        let closed = self.config.blocks
            - self.blocks.bad()
            - self.blocks.free()
            - open.clone().count() as u32
            - borrowed;
        u64::from(closed) * pages - (self.mapped - cached - open.map(valid).sum::<u64>())
    }
}

/// The first valid page of a block of `pages` pages from page `from` on, by the block's valid bits.
pub(crate) fn next_valid(words: &[u64], from: u32, pages: u32) -> Option<u32> {
    let mut page = from;
    while page < pages {
        let bits = words[(page / 64) as usize] >> (page % 64);
        if bits != 0 {
            return Some(page + bits.trailing_zeros());
        }
        page = (page / 64 + 1) * 64;
    }
    None
}
