//! The mapping: where each logical page lies on the flash.
//!
//! The state is flat arrays: logical to physical, physical to logical, and a bit for each valid
//! physical page. The hot path never divides: a physical page goes by its [address](Layout). Parts of
//! the [tables](tables) that were never written are a formula.
//!
//! Writes are appended to open blocks, the frontiers: one a host stream, one for the map if it lies on the
//! flash, and for each of these another for what garbage collection moves of its blocks. When a host frontier opens a block and only the reserve is left free, garbage
//! collection runs until a block more than the reserve is free. So every victim is chosen with
//! exactly the reserve free and the frontiers open, among the T pages that
//! [`FtlConfig::data_pages`] counts, which is the pool that the closed forms speak of.

mod cache;
mod cleaning;
mod fill;
mod map_pages;
mod sequence;
mod sound;
mod tables;
mod totals;
mod wear;

use std::hint::black_box;
use std::ops::Range;

use trimtab_core::Pages;
use trimtab_core::stats::EraseSpread;

use crate::blocks::Blocks;
use crate::flash::{Cause, Flash};
use crate::geometry::{FtlConfig, GeometryError};
use crate::validity::Validity;
use cache::Cache;
pub(crate) use cache::{CacheConfig, Folding};
pub(crate) use cleaning::next_valid;
use map_pages::MapPages;
use tables::{Addresses, Contents};
pub use totals::Totals;
use wear::Levelling;
pub(crate) use wear::WearConfig;

/// Stands for the address of a logical page without data.
const NONE: u32 = u32::MAX;

/// The pages of an open block that are still to be programmed; empty when no block is open.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Frontier {
    next: u32,
    end: u32,
}

/// How physical pages are numbered. An address is the block's number, shifted, and the page in the
/// block; every block begins a new 64-bit word of valid bits. Dense numbers are those by which the dies are found.
#[derive(Debug, Clone, Copy)]
struct Layout {
    shift: u32,
    /// The dense numbers of a block: its pages, and those by which it is smaller than the profile's.
    stride: u32,
}

impl Layout {
    fn block(self, address: u32) -> u32 {
        address >> self.shift
    }

    /// The address of a block's first page.
    fn first(self, block: u32) -> u32 {
        block << self.shift
    }

    fn dense(self, address: u32) -> u32 {
        let block = self.block(address);
        block * self.stride + (address - self.first(block))
    }
}

/// Takes the data of pages away. Those in a row of one block go at once, which is how large requests
/// are written and discarded: a block is then moved between lists once, not page by page.
struct Stale<'a> {
    layout: Layout,
    valid: &'a mut Validity,
    blocks: &'a mut Blocks,
    /// The pages that are still to be taken away.
    run: Range<u32>,
}

impl<'a> Stale<'a> {
    fn new(layout: Layout, valid: &'a mut Validity, blocks: &'a mut Blocks) -> Self {
        Self { layout, valid, blocks, run: 0..0 }
    }

    /// Takes the data of pages away that lie in a row in one block.
    #[inline]
    fn add(&mut self, addresses: Range<u32>) {
        let Range { start, end } = self.run;
        if addresses.start != end || self.layout.block(addresses.start) != self.layout.block(start) {
            self.settle();
            self.run.start = addresses.start;
        }
        self.run.end = addresses.end;
    }

    /// Takes away what is still to be.
    #[inline]
    fn settle(&mut self) {
        if !self.run.is_empty() {
            self.valid.clear(self.run.clone());
            self.blocks.invalidate(self.layout.block(self.run.start), self.run.len() as u32);
        }
        self.run.start = self.run.end;
    }
}

/// A page-mapped flash translation layer. Logical pages are numbered from 0.
pub struct Ftl {
    config: FtlConfig,
    layout: Layout,
    /// The address of each logical page, then of each page of the map that lies on the flash.
    addresses: Addresses,
    contents: Contents,
    valid: Validity,
    blocks: Blocks,
    /// One a host stream and one for the map, then garbage collection's for each of them, the cache's, and
    /// wear levelling's.
    frontiers: Vec<Frontier>,
    /// The place of garbage collection's first among them.
    copies: usize,
    /// The stream of each block, where there are several: its frontier's, or of the cache's blocks the first.
    streams: Vec<u32>,
    map: Option<MapPages>,
    cache: Option<Cache>,
    moving: Vec<u32>,
    /// The block that is being cleaned while the drive idles: out of its list, and some of its pages may
    /// have been moved.
    cleaning: Option<u32>,
    /// Whether blocks are being erased because the host has opened one: until there are more than the reserve.
    is_reclaiming: bool,
    levelling: Option<Levelling>,
    /// Pages of blocks that wear levelling filled and that were or will be erased without having been programmed.
    unfilled: u64,
    mapped: u64,
    totals: Totals,
}

impl Ftl {
    /// A model of this shape, with nothing written. Most of its pages will be.
    ///
    /// # Errors
    /// If such a model can't work.
    pub fn new(config: &FtlConfig) -> Result<Self, GeometryError> {
        let mut ftl = Self::of_drive(config, config.pages_per_block, None, WearConfig::default())?;
        ftl.expect_many_writes();
        Ok(ftl)
    }

    /// As [`new`](Self::new), with a cache before it, and blocks that wear out. Few of its pages may be written. Each
    /// block begins on the die on which one of `stride` pages does, which has as many pages or more.
    pub(crate) fn of_drive(
        config: &FtlConfig,
        stride: u32,
        cache: Option<CacheConfig>,
        wear: WearConfig,
    ) -> Result<Self, GeometryError> {
        config.check()?;
        let cached = cache.map_or(0, CacheConfig::blocks);
        config.check_blocks(u64::from(config.blocks) + u64::from(cached))?;
        let blocks = config.blocks + cached;
        let layout = Layout { shift: config.block_shift(), stride };
        Ok(Self {
            layout,
            addresses: Addresses::new(config.used().0 as u32, config.pages_per_block)?,
            contents: Contents::new(layout, blocks)?,
            valid: Validity::new(blocks << layout.shift),
            blocks: Blocks::new(config, cached, wear),
            frontiers: vec![Frontier::default(); 2 * config.outer_frontiers() as usize + 2],
            copies: config.outer_frontiers() as usize,
            streams: vec![0; if config.outer_frontiers() > 1 { blocks as usize } else { 0 }],
            map: MapPages::new(config),
            cache: cache.map(|cache| Cache::new(cache, config.blocks)),
            moving: Vec::with_capacity(config.pages_per_block as usize),
            cleaning: None,
            is_reclaiming: false,
            levelling: wear.levelling(),
            unfilled: 0,
            mapped: 0,
            totals: Totals::default(),
            config: config.clone(),
        })
    }

    /// The shape it was made with.
    pub fn config(&self) -> &FtlConfig {
        &self.config
    }

    /// Returns the totals of programs and erases.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// How erases spread over its blocks.
    pub fn erase_spread(&self) -> EraseSpread {
        EraseSpread::of(self.blocks.erases())
    }

    /// How often each block was erased.
    pub fn erases(&self) -> &[u32] {
        self.blocks.erases()
    }

    /// The number of erased blocks.
    pub fn free_blocks(&self) -> u32 {
        self.blocks.free()
    }

    /// The memory it holds, in bytes a physical page.
    pub fn bytes_per_page(&self) -> f64 {
        self.memory() as f64 / self.contents.len() as f64
    }

    /// The number of physical pages.
    pub(crate) fn physical_pages(&self) -> usize {
        self.contents.len()
    }

    /// The memory it holds, in bytes: of the tables, the part that was written if they are large, or else all.
    pub(crate) fn memory(&self) -> usize {
        let maps = self.addresses.memory() + self.contents.memory(self.layout);
        let moving =
            self.moving.capacity() * size_of::<u32>() + self.map.as_ref().map_or(0, MapPages::memory);
        maps + moving + self.valid.memory() + self.blocks.memory() + size_of_val(&self.streams[..])
    }

    /// Whether a logical page has data.
    ///
    /// # Panics
    /// If the model has no such page.
    pub fn is_mapped(&self, page: Pages) -> bool {
        assert!(page < self.config.logical, "there are {} pages", self.config.logical.0);
        self.addresses.get(page.0 as u32) != NONE
    }

    /// The first logical page with data from `page` on, past the end from the first page on.
    ///
    /// # Panics
    /// If the model has no page before `page`.
    pub fn mapped_from(&self, page: Pages) -> Option<Pages> {
        assert!(page <= self.config.logical, "there are {} pages", self.config.logical.0);
        let (page, end) = (page.0 as u32, self.config.logical.0 as u32);
        let after = self.addresses.first_with_data(page..end);
        after.or_else(|| self.addresses.first_with_data(0..page)).map(|page| Pages(page.into()))
    }

    /// The number of logical pages with data.
    pub fn mapped(&self) -> Pages {
        Pages(self.mapped - self.map.as_ref().map_or(0, MapPages::written))
    }

    /// Where a logical page lies, by dense number, if it has data.
    pub(crate) fn physical_page(&self, page: u32) -> Option<u32> {
        let address = self.addresses.get(page);
        (address != NONE).then(|| self.layout.dense(address))
    }

    /// Writes `count` pages from `first`.
    ///
    /// # Panics
    /// If the model has no such pages or no such stream.
    pub fn write(&mut self, stream: u32, first: u32, count: u32, flash: &mut impl Flash) {
        self.totals.host += u64::from(count);
        self.append::<false>(stream as usize, Cause::Host, first..first + count, flash);
    }

    /// Writes each of these pages, in order. Their mapping entries are touched first, so that
    /// cache misses overlap: up to some hundred pages at a time are best.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn write_each(&mut self, stream: u32, pages: &[u32], flash: &mut impl Flash) {
        black_box(self.addresses.touch(pages));
        self.totals.host += pages.len() as u64;
        self.append::<false>(stream as usize, Cause::Host, pages.iter().copied(), flash);
    }

    /// Touches what commands that begin with these pages will need, so that cache misses overlap: up
    /// to some hundred pages at a time are best. Pages that the model doesn't have are let be.
    pub(crate) fn touch(&self, pages: impl Iterator<Item = u32>) {
        let pages = pages.filter(|page| *page < self.addresses.len());
        let addresses = pages.map(|page| self.addresses.get(page)).filter(|address| *address != NONE);
        black_box(addresses.fold(0, |touched, address| touched ^ self.valid.word(address)));
    }

    /// Forgets the data of `count` pages from `first`; returns how many of them had data.
    ///
    /// # Panics
    /// If the model has no such pages.
    pub fn discard(&mut self, first: u32, count: u32) -> Pages {
        let before = self.mapped;
        let mut stale = Stale::new(self.layout, &mut self.valid, &mut self.blocks);
        self.addresses.remove(first..first + count, |addresses| {
            self.mapped -= addresses.len() as u64;
            stale.add(addresses);
        });
        stale.settle();
        Pages(before - self.mapped)
    }

    /// Programs a page of mapping journal; it holds no data, so that it is invalid at once.
    pub fn write_journal(&mut self, flash: &mut impl Flash) {
        self.totals.journal += 1;
        let page = self.layout.dense(self.room(0, flash).next);
        flash.program(Cause::Journal, page..page + 1);
        self.advance(0, 1);
    }

    /// Writes logical pages to a frontier: those of the host, to the cache where it has room, or those that are
    /// moved, whose data are where they were until their block is erased.
    fn append<const IS_MOVE: bool>(
        &mut self,
        frontier: usize,
        cause: Cause,
        mut pages: impl ExactSizeIterator<Item = u32>,
        flash: &mut impl Flash,
    ) {
        while pages.len() > 0 {
            let (frontier, cause) =
                if cause == Cause::Host { self.place(frontier, flash) } else { (frontier, cause) };
            let Frontier { next, end } = self.room(frontier, flash);
            let count = (end - next).min(pages.len() as u32);
            let run = self.layout.dense(next)..self.layout.dense(next) + count;
            self.valid.set(next, count);
            self.blocks.fill(self.layout.block(next), count);
            let contents = self.contents.entries(self.layout.block(next), run.clone());
            let mut stale = Stale::new(self.layout, &mut self.valid, &mut self.blocks);
            for ((address, content), page) in (next..).zip(contents).zip(&mut pages) {
                *content = page;
                let before = std::mem::replace(self.addresses.slot(page), address);
                if IS_MOVE {
                    if let Some(map) = &mut self.map {
                        map.moved(page);
                    }
                } else {
                    match before {
                        NONE => self.mapped += 1,
                        before => stale.add(before..before + 1),
                    }
                }
            }
            stale.settle();
            flash.program(cause, run);
            self.advance(frontier, count);
        }
    }

    /// A frontier with room for a page.
    fn room(&mut self, frontier: usize, flash: &mut impl Flash) -> Frontier {
        if self.frontiers[frontier].next == self.frontiers[frontier].end {
            let block = self.blocks.open();
            if let Some(stream) = self.streams.get_mut(block as usize) {
                *stream = (frontier % self.copies) as u32;
            }
            let next = self.layout.first(block);
            self.frontiers[frontier] = Frontier { next, end: next + self.config.pages_per_block };
            if frontier < self.copies {
                self.is_reclaiming = true;
                while self.blocks.free() <= self.config.reserve_blocks {
                    self.reclaim(flash);
                }
                self.is_reclaiming = false;
            }
        }
        self.frontiers[frontier]
    }

    /// Gains erased blocks: from the cache those that it has borrowed, unless one without valid pages is to be
    /// had.
    fn reclaim(&mut self, flash: &mut impl Flash) {
        if self.cache.is_none()
            || self.cleaning.is_some()
            || self.blocks.has_empty()
            || !self.fold_dynamic(flash)
        {
            self.clean(flash);
        }
    }

    /// `count` pages of a frontier are programmed; closes its block when that was all of it.
    fn advance(&mut self, frontier: usize, count: u32) {
        let Frontier { next, end } = &mut self.frontiers[frontier];
        *next += count;
        if next == end && frontier < 2 * self.copies {
            self.blocks.close(self.layout.block(*end - 1));
        }
    }

    /// Moves what is valid out of one block, the one that is being cleaned already if there is one, and
    /// erases it.
    fn clean(&mut self, flash: &mut impl Flash) {
        let block = self.cleaning.take().unwrap_or_else(|| self.blocks.victim());
        self.move_all(block, Cause::Copy, flash);
        self.recycle(block, flash);
    }

    /// Moves what is valid in a block to its frontier of garbage collection; its valid bits stay.
    fn move_all(&mut self, block: u32, cause: Cause, flash: &mut impl Flash) {
        let moving = self.collect_valid(block, flash);
        self.append_moved(block, moving, cause, flash);
    }

    /// Reads what is valid in a block; returns its logical pages.
    fn collect_valid(&mut self, block: u32, flash: &mut impl Flash) -> Vec<u32> {
        let (first, pages) = (self.layout.first(block), self.config.pages_per_block);
        let dense = self.layout.dense(first);
        let valid = self.valid.words(first, pages);
        flash.collect(dense..dense + pages, valid);
        let contents = self.contents.of_block(self.layout, block, pages);
        let mut moving = std::mem::take(&mut self.moving);
        moving.clear();
        for (word, start) in valid.iter().zip((0..).step_by(64)) {
            let mut bits = *word;
            // Runs are short: a copy of each run would take longer than of each page.
            while bits != 0 {
                moving.push(contents.get(start + bits.trailing_zeros()));
                bits &= bits - 1;
            }
        }
        moving
    }

    /// The frontier that data of this block are moved to.
    fn copies_of(&self, block: u32) -> usize {
        self.copies + self.streams.get(block as usize).map_or(0, |stream| *stream as usize)
    }

    /// Programs pages that are moved out of a block, and counts them.
    fn append_moved(&mut self, block: u32, moving: Vec<u32>, cause: Cause, flash: &mut impl Flash) {
        let moved = if cause == Cause::Fold { &mut self.totals.folded } else { &mut self.totals.copied };
        *moved += moving.len() as u64;
        self.append::<true>(self.copies_of(block), cause, moving.iter().copied(), flash);
        self.moving = moving;
    }

    /// Erases a block without a page that is still needed; it is free then, unless it turns bad.
    fn erase(&mut self, block: u32, flash: &mut impl Flash) {
        let turns_bad = self.turns_bad(block);
        self.wipe(block, flash);
        self.blocks.erase(block, turns_bad);
    }

    /// Erases the flash of a block.
    fn wipe(&mut self, block: u32, flash: &mut impl Flash) {
        let (first, pages) = (self.layout.first(block), self.config.pages_per_block);
        let dense = self.layout.dense(first);
        self.totals.erases += 1;
        self.valid.clear_block(first, pages);
        flash.erase(dense..dense + pages);
    }
}
