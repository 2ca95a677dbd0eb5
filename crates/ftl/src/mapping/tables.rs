//! The two tables of the mapping: the address of each logical page, and the logical page at each address.
//!
//! An entry that was never written stands for a formula. So a drive that was filled in order needs no table
//! until its pages are written again, and a large one starts at once: memory is taken by what is touched.

use std::ops::Range;

use super::{Layout, NONE};
use crate::table::{Entry, Table, entry, number};

/// Entries that a discard of all of them returns to the formula: those of one page of memory.
const CHUNK: u32 = 1 << 10;

/// Where writing every logical page in order has put them: the rest of an open block first, then whole blocks.
#[derive(Debug, Default)]
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

    /// The next pages are written from this address on, to the end of its block.
    pub(super) fn push(&mut self, layout: Layout, address: u32) {
        let first = layout.first(layout.block(address));
        if self.firsts.is_empty() {
            self.head = address - first;
        }
        self.firsts.push(first);
    }

    /// The address of a logical page.
    fn address(&self, page: u32) -> u32 {
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

    /// For each of `blocks` blocks, the logical page at its first address. It may lie before page 0, and wraps.
    fn starts(&self, layout: Layout, blocks: u32) -> Vec<u32> {
        let mut starts = vec![0; blocks as usize];
        let pages = (0..).step_by(self.pages_per_block as usize);
        for (first, page) in self.firsts.iter().zip(pages) {
            starts[layout.block(*first) as usize] = u32::wrapping_sub(page, self.head);
        }
        starts
    }

    fn memory(&self) -> usize {
        size_of_val(&self.firsts[..])
    }
}

/// The address of each logical page, or [`NONE`].
pub(super) struct Addresses {
    table: Table,
    /// The pages of entries that were never written, unless their chunk is empty.
    sequence: Sequence,
    /// A bit for each chunk: pages whose entry was not written since have no data.
    empty: Vec<u64>,
}

impl Addresses {
    /// `pages` pages without data.
    pub(super) fn new(pages: u32) -> std::io::Result<Self> {
        let words = pages.div_ceil(CHUNK * u64::BITS) as usize;
        let sequence = Sequence::default();
        Ok(Self { table: Table::new(pages as usize)?, sequence, empty: vec![u64::MAX; words] })
    }

    /// All pages were written in order. They had no data before.
    pub(super) fn fill(&mut self, sequence: Sequence) {
        self.sequence = sequence;
        self.empty.fill(0);
    }

    /// The number of pages.
    pub(super) fn len(&self) -> u32 {
        self.table.len() as u32
    }

    /// Takes huge pages, for which most entries have to be written.
    pub(super) fn use_huge_pages(&mut self) {
        self.table.use_huge_pages();
    }

    /// The memory that it has taken, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.table.memory() + self.sequence.memory() + size_of_val(&self.empty[..])
    }

    /// The address of a page.
    #[inline]
    pub(super) fn get(&self, page: u32) -> u32 {
        self.resolve(page, self.table[page as usize])
    }

    /// Sets the address of a page; returns the one before.
    #[inline]
    pub(super) fn replace(&mut self, page: u32, address: u32) -> u32 {
        let before = std::mem::replace(&mut self.table[page as usize], entry(address));
        self.resolve(page, before)
    }

    /// Sets the address of a page.
    #[inline]
    pub(super) fn set(&mut self, page: u32, address: u32) {
        self.table[page as usize] = entry(address);
    }

    /// Touches the entries of pages, so that cache misses overlap.
    #[inline]
    pub(super) fn touch(&self, pages: &[u32]) -> u32 {
        let entries = &self.table[..];
        pages.iter().fold(0, |touched, page| touched ^ entries[*page as usize].map_or(0, number))
    }

    /// Takes the data of pages away. `forget` is told their addresses, those in a row of one block at a time.
    ///
    /// # Panics
    /// If there are no such pages.
    pub(super) fn remove(&mut self, pages: Range<u32>, mut forget: impl FnMut(Range<u32>)) {
        assert!(pages.end <= self.len(), "there are {} pages", self.len());
        let mut start = pages.start;
        while start < pages.end {
            let chunk = start / CHUNK;
            let whole = chunk * CHUNK..(chunk + 1).saturating_mul(CHUNK).min(self.len());
            let part = start..pages.end.min(whole.end);
            start = part.end;
            if part == whole {
                self.remove_chunk(chunk, whole, &mut forget);
                continue;
            }
            for page in part {
                let address = self.get(page);
                if address != NONE {
                    self.set(page, NONE);
                    forget(address..address + 1);
                }
            }
        }
    }

    /// As [`remove`](Self::remove), of all pages of a chunk. Writes no entry that was never written.
    fn remove_chunk(&mut self, chunk: u32, pages: Range<u32>, forget: &mut impl FnMut(Range<u32>)) {
        let is_empty = self.is_empty(chunk);
        let entries = &mut self.table[pages.start as usize..pages.end as usize];
        if entries.iter().all(Option::is_none) {
            if !is_empty {
                self.sequence.addresses(pages).for_each(forget);
            }
        } else {
            for (page, entry) in pages.zip(entries) {
                let address = match entry.take() {
                    Some(entry) => number(entry),
                    None if is_empty => NONE,
                    None => self.sequence.address(page),
                };
                if address != NONE {
                    forget(address..address + 1);
                }
            }
        }
        self.empty[(chunk / u64::BITS) as usize] |= 1 << (chunk % u64::BITS);
    }

    /// The first of these pages that has data.
    pub(super) fn first_with_data(&self, pages: Range<u32>) -> Option<u32> {
        let mut start = pages.start;
        while start < pages.end {
            let chunk = start / CHUNK;
            let end = (chunk + 1).saturating_mul(CHUNK).min(pages.end);
            let (none, is_empty) = (entry(NONE), self.is_empty(chunk));
            let has_data = |entry: &Entry| *entry != none && !(is_empty && entry.is_none());
            if let Some(at) = self.table[start as usize..end as usize].iter().position(has_data) {
                return Some(start + at as u32);
            }
            start = end;
        }
        None
    }

    fn is_empty(&self, chunk: u32) -> bool {
        self.empty[(chunk / u64::BITS) as usize] >> (chunk % u64::BITS) & 1 == 1
    }

    /// The address that the entry of a page stands for.
    #[inline]
    fn resolve(&self, page: u32, entry: Entry) -> u32 {
        entry.map_or_else(|| self.unwritten(page), number)
    }

    /// The address of a page whose entry was never written.
    #[cold]
    fn unwritten(&self, page: u32) -> u32 {
        if self.is_empty(page / CHUNK) { NONE } else { self.sequence.address(page) }
    }
}

/// The logical page that each physical page holds, by dense number.
pub(super) struct Contents {
    table: Table,
    /// For each block, the logical page at its first address, of those whose entries were never written. Empty
    /// where there are none.
    starts: Vec<u32>,
}

impl Contents {
    /// `pages` physical pages that hold nothing.
    pub(super) fn new(pages: usize) -> std::io::Result<Self> {
        Ok(Self { table: Table::new(pages)?, starts: Vec::new() })
    }

    /// Logical pages were written in order to `blocks` blocks, which held nothing before.
    pub(super) fn fill(&mut self, layout: Layout, blocks: u32, sequence: &Sequence) {
        self.starts = sequence.starts(layout, blocks);
    }

    /// The number of physical pages.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Takes huge pages, for which most entries have to be written.
    pub(super) fn use_huge_pages(&mut self) {
        self.table.use_huge_pages();
    }

    /// The memory that it has taken, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.table.memory() + size_of_val(&self.starts[..])
    }

    /// The entries of physical pages, to be written.
    #[inline]
    pub(super) fn entries(&mut self, pages: Range<u32>) -> &mut [Entry] {
        &mut self.table[pages.start as usize..pages.end as usize]
    }

    /// The logical pages that the physical pages of a block hold.
    #[inline]
    pub(super) fn of_block(&self, layout: Layout, block: u32, pages: u32) -> BlockContents<'_> {
        let dense = layout.dense(layout.first(block)) as usize;
        let start = self.starts.get(block as usize).copied().unwrap_or_default();
        BlockContents { entries: &self.table[dense..dense + pages as usize], start }
    }
}

/// The logical pages that the physical pages of one block hold.
pub(super) struct BlockContents<'a> {
    entries: &'a [Entry],
    /// The logical page at the first address, of those whose entries were never written.
    start: u32,
}

impl BlockContents<'_> {
    /// The logical page that page `place` of the block holds; any one where it holds no valid data.
    #[inline]
    pub(super) fn get(&self, place: u32) -> u32 {
        self.entries[place as usize].map_or(self.start.wrapping_add(place), number)
    }
}
