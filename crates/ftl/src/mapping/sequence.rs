//! Where writing every logical page in order has put them.

use std::ops::Range;

use super::Layout;

/// Every logical page, in order: in the rest of an open block first, then in whole blocks.
#[derive(Debug)]
pub(super) struct Sequence {
    pages_per_block: u32,
    /// The place of the first logical page in its block.
    head: u32,
    /// The first address of each block, in the order in which they were filled.
    firsts: Vec<u32>,
}

impl Sequence {
    /// No page was written yet.
    pub(super) fn new(pages_per_block: u32) -> Self {
        Self { pages_per_block, head: 0, firsts: Vec::new() }
    }

    /// The pages of a block.
    pub(super) fn pages_per_block(&self) -> u32 {
        self.pages_per_block
    }

    /// The next pages are written from this address on, to the end of its block.
    pub(super) fn push(&mut self, layout: Layout, address: u32) {
        let first = layout.first(layout.block(address));
        if self.firsts.is_empty() {
            self.head = address - first;
        }
        self.firsts.push(first);
    }

    /// The address of a logical page.
    pub(super) fn address(&self, page: u32) -> u32 {
        let place = self.head + page;
        self.firsts[(place / self.pages_per_block) as usize] + place % self.pages_per_block
    }

    /// The addresses of logical pages, those of one block at a time; none where no page was written.
    pub(super) fn addresses(&self, pages: Range<u32>) -> impl Iterator<Item = Range<u32>> {
        let mut next = if self.firsts.is_empty() { pages.end } else { pages.start };
        std::iter::from_fn(move || {
            if next == pages.end {
                return None;
            }
            let left = self.pages_per_block - (self.head + next) % self.pages_per_block;
            let (address, count) = (self.address(next), left.min(pages.end - next));
            next += count;
            Some(address..address + count)
        })
    }

    /// The memory that it takes, in bytes.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&self.firsts[..])
    }
}
