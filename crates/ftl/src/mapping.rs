//! The mapping: where each logical page lies on the flash.
//!
//! The state is flat arrays: logical to physical, physical to logical, and a bit for each valid
//! physical page. Writes are appended to open blocks, the frontiers: one a host stream, and one for
//! what garbage collection moves. When a host frontier opens a block and only the reserve is left
//! free, garbage collection runs until a block more than the reserve is free. So every victim is
//! chosen with exactly the reserve free and the frontiers open, among the T pages that
//! [`FtlConfig::data_pages`] counts, which is the pool that the closed forms speak of.

use std::hint::black_box;

use trimtab_core::Pages;
use trimtab_core::stats::EraseSpread;

use crate::blocks::Blocks;
use crate::flash::{Cause, Flash};
use crate::geometry::{FtlConfig, GeometryError};

/// Marks a logical page without data, and a physical one that holds journal.
const NONE: u32 = u32::MAX;

/// The pages of an open block that are still to be programmed; empty when no block is open.
#[derive(Debug, Clone, Copy, Default)]
struct Frontier {
    next: u32,
    end: u32,
}

/// Flash pages programmed and blocks erased, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Pages that host writes programmed.
    pub host: u64,
    /// Pages that garbage collection moved.
    pub copied: u64,
    /// Pages of mapping journal.
    pub journal: u64,
    /// Erase blocks erased.
    pub erases: u64,
}

impl Totals {
    /// Pages programmed in all.
    pub fn programmed(&self) -> u64 {
        self.host + self.copied + self.journal
    }

    /// Write amplification: pages programmed / pages the host wrote; not a number without any.
    pub fn waf(&self) -> f64 {
        self.programmed() as f64 / self.host as f64
    }

    /// What happened after `earlier` was taken from the same model.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            host: self.host - earlier.host,
            copied: self.copied - earlier.copied,
            journal: self.journal - earlier.journal,
            erases: self.erases - earlier.erases,
        }
    }
}

/// A page-mapped flash translation layer. Logical pages are numbered from 0.
pub struct Ftl {
    config: FtlConfig,
    physical: Vec<u32>,
    logical: Vec<u32>,
    /// A bit a physical page; every block begins a new word.
    valid: Vec<u64>,
    blocks: Blocks,
    /// One a host stream, then the one of garbage collection.
    frontiers: Vec<Frontier>,
    moving: Vec<u32>,
    mapped: u64,
    totals: Totals,
}

impl Ftl {
    /// A model of this shape, with nothing written.
    ///
    /// # Errors
    /// If such a model can't work.
    pub fn new(config: &FtlConfig) -> Result<Self, GeometryError> {
        config.check()?;
        let pages = config.blocks as usize * config.pages_per_block as usize;
        let words = config.blocks as usize * (config.pages_per_block as usize).div_ceil(64);
        Ok(Self {
            physical: vec![NONE; config.logical.0 as usize],
            logical: vec![NONE; pages],
            valid: vec![0; words],
            blocks: Blocks::new(config),
            frontiers: vec![Frontier::default(); config.streams as usize + 1],
            moving: Vec::with_capacity(config.pages_per_block as usize),
            mapped: 0,
            totals: Totals::default(),
            config: config.clone(),
        })
    }

    /// The shape it was made with.
    pub fn config(&self) -> &FtlConfig {
        &self.config
    }

    /// What it has programmed and erased.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// How erases spread over its blocks.
    pub fn erase_spread(&self) -> EraseSpread {
        EraseSpread::of(self.blocks.erases())
    }

    /// The memory it holds, in bytes a physical page.
    pub fn bytes_per_page(&self) -> f64 {
        let arrays = size_of_val(&self.physical[..]) + size_of_val(&self.logical[..]);
        let small = size_of_val(&self.valid[..]) + self.moving.capacity() * size_of::<u32>();
        (arrays + small + self.blocks.memory()) as f64 / self.logical.len() as f64
    }

    /// Whether a logical page has data.
    pub fn is_mapped(&self, page: Pages) -> bool {
        self.physical_page(page.0 as u32).is_some()
    }

    /// The number of logical pages with data.
    pub fn mapped(&self) -> Pages {
        Pages(self.mapped)
    }

    /// Where a logical page lies, if it has data.
    pub(crate) fn physical_page(&self, page: u32) -> Option<u32> {
        let physical = self.physical[page as usize];
        (physical != NONE).then_some(physical)
    }

    /// Writes `count` pages from `first`.
    ///
    /// # Panics
    /// If the model has no such pages or no such stream.
    pub fn write(&mut self, stream: u32, first: u32, count: u32, flash: &mut impl Flash) {
        self.totals.host += u64::from(count);
        self.append(stream as usize, Cause::Host, first..first + count, flash);
    }

    /// Writes each of these pages, in order. Their mapping entries are touched first, so that
    /// cache misses overlap: up to some hundred pages at a time are best.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn write_each(&mut self, stream: u32, pages: &[u32], flash: &mut impl Flash) {
        black_box(pages.iter().fold(0, |touched, page| touched ^ self.physical[*page as usize]));
        self.totals.host += pages.len() as u64;
        self.append(stream as usize, Cause::Host, pages.iter().copied(), flash);
    }

    /// Forgets the data of `count` pages from `first`.
    ///
    /// # Panics
    /// If the model has no such pages.
    pub fn discard(&mut self, first: u32, count: u32) {
        for page in first..first + count {
            if let Some(physical) = self.physical_page(page) {
                self.invalidate(physical);
                self.mapped -= 1;
                self.physical[page as usize] = NONE;
            }
        }
    }

    /// Programs a page of mapping journal; it holds no data, so that it is invalid at once.
    pub fn write_journal(&mut self, flash: &mut impl Flash) {
        self.totals.journal += 1;
        let page = self.room(0, flash).next;
        self.logical[page as usize] = NONE;
        flash.program(Cause::Journal, page..page + 1);
        self.advance(0, 1);
    }

    /// Writes logical pages to a frontier.
    fn append(
        &mut self,
        frontier: usize,
        cause: Cause,
        mut pages: impl ExactSizeIterator<Item = u32>,
        flash: &mut impl Flash,
    ) {
        while pages.len() > 0 {
            let Frontier { next, end } = self.room(frontier, flash);
            let count = (end - next).min(pages.len() as u32);
            self.mark_valid(next, count);
            self.blocks.fill(next / self.config.pages_per_block, count);
            for (physical, page) in (next..next + count).zip(&mut pages) {
                let before = std::mem::replace(&mut self.physical[page as usize], physical);
                if cause == Cause::Host {
                    match before {
                        NONE => self.mapped += 1,
                        before => self.invalidate(before),
                    }
                }
                self.logical[physical as usize] = page;
            }
            flash.program(cause, next..next + count);
            self.advance(frontier, count);
        }
    }

    /// A frontier with room for a page.
    fn room(&mut self, frontier: usize, flash: &mut impl Flash) -> Frontier {
        if self.frontiers[frontier].next == self.frontiers[frontier].end {
            let pages = self.config.pages_per_block;
            let next = self.blocks.open() * pages;
            self.frontiers[frontier] = Frontier { next, end: next + pages };
            while frontier < self.config.streams as usize && self.blocks.free() <= self.config.reserve_blocks
            {
                self.clean(flash);
            }
        }
        self.frontiers[frontier]
    }

    /// `count` pages of a frontier are programmed; closes its block when that was all of it.
    fn advance(&mut self, frontier: usize, count: u32) {
        let frontier = &mut self.frontiers[frontier];
        frontier.next += count;
        if frontier.next == frontier.end {
            self.blocks.close((frontier.end - 1) / self.config.pages_per_block);
        }
    }

    /// Moves what is valid out of one block and erases it.
    fn clean(&mut self, flash: &mut impl Flash) {
        let (block, pages) = (self.blocks.victim(), self.config.pages_per_block);
        let first = block * pages;
        let mut moving = std::mem::take(&mut self.moving);
        moving.clear();
        let words = self.words_of(block);
        for (base, word) in (first..).step_by(64).zip(&mut self.valid[words]) {
            let mut bits = std::mem::take(word);
            while bits != 0 {
                moving.push(base + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
        flash.collect(&moving);
        for page in &mut moving {
            *page = self.logical[*page as usize];
        }
        black_box(moving.iter().fold(0, |touched, page| touched ^ self.physical[*page as usize]));
        self.totals.copied += moving.len() as u64;
        self.append(self.config.streams as usize, Cause::Copy, moving.iter().copied(), flash);
        self.moving = moving;
        self.totals.erases += 1;
        self.blocks.erase(block);
        flash.erase(first..first + pages);
    }

    #[inline]
    fn invalidate(&mut self, physical: u32) {
        let block = physical / self.config.pages_per_block;
        let offset = physical % self.config.pages_per_block;
        let word = self.words_of(block).start + (offset / 64) as usize;
        self.valid[word] &= !(1 << (offset % 64));
        self.blocks.invalidate(block);
    }

    /// Marks `count` pages of one block valid.
    fn mark_valid(&mut self, first: u32, count: u32) {
        let start = self.words_of(first / self.config.pages_per_block).start;
        let offset = first % self.config.pages_per_block;
        for offset in offset..offset + count {
            self.valid[start + (offset / 64) as usize] |= 1 << (offset % 64);
        }
    }

    /// Where the valid bits of a block are.
    fn words_of(&self, block: u32) -> std::ops::Range<usize> {
        let words = (self.config.pages_per_block as usize).div_ceil(64);
        let start = block as usize * words;
        start..start + words
    }

    /// Panics unless every rule of conservation holds: programmed pages are all in erased or in
    /// programmed blocks, valid pages are the mapped ones, and both maps agree.
    ///
    /// # Panics
    /// If the model is broken. Takes time in proportion to its pages.
    pub fn assert_sound(&self) {
        let pages = u64::from(self.config.pages_per_block);
        let open: u64 = self.frontiers.iter().map(|frontier| u64::from(frontier.end - frontier.next)).sum();
        let taken = u64::from(self.config.blocks - self.blocks.free()) * pages - open;
        assert_eq!(self.totals.programmed(), self.totals.erases * pages + taken, "pages are conserved");
        let mapped = self.physical.iter().filter(|physical| **physical != NONE).count() as u64;
        let valid: u64 = self.blocks.valid().iter().map(|count| u64::from(*count)).sum();
        let bits: u64 = self.valid.iter().map(|word| u64::from(word.count_ones())).sum();
        assert_eq!([valid, bits, self.mapped], [mapped; 3], "valid pages are the mapped ones");
        for (page, physical) in (0..).zip(&self.physical).filter(|(_, physical)| **physical != NONE) {
            assert_eq!(self.logical[*physical as usize], page, "both maps agree");
        }
    }
}
