//! The two tables of the mapping: the address of each logical page, and the logical page at each address.
//!
//! A part that was never written stands for a formula. So a drive that was filled in order needs no table until its
//! pages are written again, and a large one starts at once: memory is taken by what is touched.

use std::ops::Range;

use super::sequence::Sequence;
use super::{Layout, NONE};
use crate::table::Table;

/// Addresses that are written together for the first time: those of one page of memory.
const CHUNK: u32 = 1 << 10;

/// A bit for each chunk, or for each block.
struct Bits(Vec<u64>);

impl Bits {
    /// So many bits of this value.
    fn new(count: u32, value: bool) -> Self {
        Self(vec![if value { u64::MAX } else { 0 }; count.div_ceil(u64::BITS) as usize])
    }

    #[inline]
    fn get(&self, place: u32) -> bool {
        self.0[(place / u64::BITS) as usize] >> (place % u64::BITS) & 1 == 1
    }

    #[inline]
    fn set(&mut self, place: u32) {
        self.0[(place / u64::BITS) as usize] |= 1 << (place % u64::BITS);
    }

    /// The number of bits that are set.
    fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The memory that it takes, in bytes.
    fn memory(&self) -> usize {
        size_of_val(&self.0[..])
    }
}

/// The address of each logical page, or [`NONE`].
pub(super) struct Addresses {
    table: Table,
    /// The chunks whose pages have their addresses in the table.
    written: Bits,
    /// The others whose pages have no data.
    empty: Bits,
    /// The addresses of all other pages.
    sequence: Sequence,
}

impl Addresses {
    /// `pages` pages without data.
    pub(super) fn new(pages: u32, pages_per_block: u32) -> std::io::Result<Self> {
        let chunks = pages.div_ceil(CHUNK);
        Ok(Self {
            table: Table::new(pages as usize)?,
            written: Bits::new(chunks, false),
            empty: Bits::new(chunks, true),
            sequence: Sequence::new(pages_per_block),
        })
    }

    /// All pages were written in order. They had no data before.
    pub(super) fn fill(&mut self, sequence: Sequence) {
        self.sequence = sequence;
        self.empty = Bits::new(self.len().div_ceil(CHUNK), false);
    }

    /// The number of pages.
    pub(super) fn len(&self) -> u32 {
        self.table.len() as u32
    }

    /// Takes huge pages, for which most addresses have to be written.
    pub(super) fn use_huge_pages(&mut self) {
        self.table.use_huge_pages();
    }

    /// The memory that it takes, in bytes.
    pub(super) fn memory(&self) -> usize {
        let bits = self.written.memory() + self.empty.memory();
        self.table.memory(self.written.count() * CHUNK as usize) + self.sequence.memory() + bits
    }

    /// The address of a page.
    #[inline]
    pub(super) fn get(&self, page: u32) -> u32 {
        if self.written.get(page / CHUNK) { self.table[page as usize] } else { self.unwritten(page) }
    }

    /// The address of a page, to be changed.
    #[inline]
    pub(super) fn slot(&mut self, page: u32) -> &mut u32 {
        if !self.written.get(page / CHUNK) {
            self.write_chunk(page / CHUNK);
        }
        &mut self.table[page as usize]
    }

    /// Touches the addresses of pages, so that cache misses overlap.
    #[inline]
    pub(super) fn touch(&self, pages: &[u32]) -> u32 {
        let pages = pages.iter().filter(|page| self.written.get(**page / CHUNK));
        pages.fold(0, |touched, page| touched ^ self.table[*page as usize])
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
            let whole = self.pages_of(chunk);
            let part = start..pages.end.min(whole.end);
            start = part.end;
            if !self.written.get(chunk) {
                if self.empty.get(chunk) {
                    continue;
                }
                if part == whole {
                    self.sequence.addresses(whole).for_each(&mut forget);
                    self.empty.set(chunk);
                    continue;
                }
                self.write_chunk(chunk);
            }
            for address in &mut self.table[part.start as usize..part.end as usize] {
                if *address != NONE {
                    forget(*address..*address + 1);
                    *address = NONE;
                }
            }
        }
    }

    /// The first of these pages that has data.
    pub(super) fn first_with_data(&self, pages: Range<u32>) -> Option<u32> {
        let mut start = pages.start;
        while start < pages.end {
            let chunk = start / CHUNK;
            let end = self.pages_of(chunk).end.min(pages.end);
            if self.written.get(chunk) {
                let addresses = &self.table[start as usize..end as usize];
                if let Some(at) = addresses.iter().position(|address| *address != NONE) {
                    return Some(start + at as u32);
                }
            } else if !self.empty.get(chunk) {
                return Some(start);
            }
            start = end;
        }
        None
    }

    fn pages_of(&self, chunk: u32) -> Range<u32> {
        chunk * CHUNK..(chunk + 1).saturating_mul(CHUNK).min(self.len())
    }

    /// The address of a page that is not in the table.
    #[cold]
    fn unwritten(&self, page: u32) -> u32 {
        if self.empty.get(page / CHUNK) { NONE } else { self.sequence.address(page) }
    }

    /// Writes the addresses of a chunk's pages to the table.
    #[cold]
    fn write_chunk(&mut self, chunk: u32) {
        let pages = self.pages_of(chunk);
        let mut entries = &mut self.table[pages.start as usize..pages.end as usize];
        if self.empty.get(chunk) {
            entries.fill(NONE);
        } else {
            for addresses in self.sequence.addresses(pages) {
                let (run, rest) = entries.split_at_mut(addresses.len());
                run.iter_mut().zip(addresses).for_each(|(entry, address)| *entry = address);
                entries = rest;
            }
        }
        self.written.set(chunk);
    }
}

/// The logical page that each physical page holds, by dense number.
pub(super) struct Contents {
    table: Table,
    /// The blocks whose pages are in the table.
    written: Bits,
    /// The logical page at the first address of each other block, whose pages are neighbours; empty before all pages were
    /// written in order.
    starts: Vec<u32>,
}

impl Contents {
    /// The pages of `blocks` blocks that hold nothing.
    pub(super) fn new(layout: Layout, blocks: u32) -> std::io::Result<Self> {
        let pages = blocks as usize * layout.stride as usize;
        Ok(Self { table: Table::new(pages)?, written: Bits::new(blocks, false), starts: Vec::new() })
    }

    /// All of `pages` logical pages were written in order. The blocks held nothing before.
    pub(super) fn fill(&mut self, layout: Layout, pages: u32, sequence: &Sequence) {
        self.starts = vec![0; self.table.len() / layout.stride as usize];
        let mut page = 0;
        for addresses in sequence.addresses(0..pages) {
            let (block, count) = (layout.block(addresses.start), addresses.len() as u32);
            if count == sequence.pages_per_block() {
                self.starts[block as usize] = page;
            } else {
                let dense = layout.dense(addresses.start);
                let entries = self.entries(block, dense..dense + count);
                entries.iter_mut().zip(page..).for_each(|(entry, page)| *entry = page);
            }
            page += count;
        }
    }

    /// The number of physical pages.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Takes huge pages, for which most entries have to be written.
    pub(super) fn use_huge_pages(&mut self) {
        self.table.use_huge_pages();
    }

    /// The memory that it takes, in bytes.
    pub(super) fn memory(&self, layout: Layout) -> usize {
        let entries = self.written.count() * layout.stride as usize;
        self.table.memory(entries) + self.written.memory() + size_of_val(&self.starts[..])
    }

    /// The entries of physical pages of an open block, to be written.
    #[inline]
    pub(super) fn entries(&mut self, block: u32, pages: Range<u32>) -> &mut [u32] {
        self.written.set(block);
        &mut self.table[pages.start as usize..pages.end as usize]
    }

    /// The logical pages that the physical pages of a block hold.
    #[inline]
    pub(super) fn of_block(&self, layout: Layout, block: u32, pages: u32) -> BlockContents<'_> {
        match self.starts.get(block as usize) {
            Some(start) if !self.written.get(block) => BlockContents::From(*start),
            _ => {
                let dense = layout.dense(layout.first(block)) as usize;
                BlockContents::InTable(&self.table[dense..dense + pages as usize])
            }
        }
    }
}

/// The logical pages that the physical pages of one block hold.
#[derive(Clone, Copy)]
pub(super) enum BlockContents<'a> {
    InTable(&'a [u32]),
    /// Neighbours, from this one on.
    From(u32),
}

impl BlockContents<'_> {
    /// The logical page that page `place` of the block holds; any one where it holds no valid data.
    #[inline]
    pub(super) fn get(self, place: u32) -> u32 {
        match self {
            Self::InTable(entries) => entries[place as usize],
            Self::From(start) => start + place,
        }
    }
}
