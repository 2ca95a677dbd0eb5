//! The interface between the mapping and the flash below it.

use std::ops::Range;

/// Why pages are programmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The host wrote them.
    Host,
    /// The host wrote them, and they went to the cache, where a cell holds one bit.
    Cache,
    /// Garbage collection moved them.
    Copy,
    /// They were folded: moved out of the cache.
    Fold,
    /// Discards filled mapping journal.
    Journal,
    /// Memory had to make room for another page of the map.
    Map,
}

impl Cause {
    /// Whether they were moved from other pages.
    pub(crate) fn is_move(self) -> bool {
        matches!(self, Self::Copy | Self::Fold)
    }
}

/// The flash under an [`Ftl`](crate::Ftl): hears of every operation, in order. Pages are physical
/// ones by dense number: block x pages per block + page in the block.
pub trait Flash {
    /// These pages of one block are programmed, in order.
    fn program(&mut self, cause: Cause, pages: Range<u32>);
    /// Garbage collection or folding reads those of this block's pages that are valid: page `n` of the block
    /// has bit `n % 64` of word `n / 64`.
    fn collect(&mut self, block: Range<u32>, valid: &[u64]);
    /// The block of these pages is erased.
    fn erase(&mut self, pages: Range<u32>);
}

/// Flash that takes no time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Untimed;

impl Flash for Untimed {
    fn program(&mut self, _: Cause, _: Range<u32>) {}
    fn collect(&mut self, _: Range<u32>, _: &[u64]) {}
    fn erase(&mut self, _: Range<u32>) {}
}
