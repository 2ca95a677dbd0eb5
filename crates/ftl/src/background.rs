//! The work of a drive while no command is under way: it folds its cache, and cleans blocks up to a reserve of
//! erased ones.
//!
//! It goes block by block, as garbage collection in the foreground does: reads the valid pages, programs
//! them elsewhere, erases the block. Every read, program and erase begins on a free die, and only before the
//! next command arrives, which so waits for at most one of them on each die.

use trimtab_core::profile::Profile;
use trimtab_core::{Bytes, Nanos};

use crate::array::{Array, Cell, Unit};
use crate::flash::{Cause, Untimed};
use crate::mapping::{Folding, Ftl, next_valid};
use crate::validity::count_valid;

/// The idle work of a drive, and how far it has come.
pub(crate) struct Background {
    after: Nanos,
    /// The number of erased blocks that it cleans up to.
    target: u32,
    /// The number without which no group of the cache is folded.
    least: u32,
    work: Option<Work>,
}

/// The data that are being moved out of flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A block that garbage collection has chosen.
    Block(u32),
    /// The oldest group of the cache.
    Group(Folding),
}

/// A source, and how far its move has come.
struct Work {
    source: Source,
    /// Its pages before this one have been read.
    read: u32,
    /// Its pages before this one have been moved.
    moved: u32,
    /// Its blocks erased so far.
    erased: u32,
    /// When the pages are read that have to be moved.
    ready: Nanos,
    /// When those moved are on flash.
    programmed: Nanos,
}

/// The time in which operations may begin.
#[derive(Clone, Copy)]
struct Window {
    start: Nanos,
    end: Nanos,
}

impl Background {
    /// The idle work of a drive of `size`, if its profile has any.
    pub(crate) fn new(profile: &Profile, size: Bytes) -> Option<Self> {
        let idle = profile.idle.as_ref()?;
        let geometry = &profile.geometry;
        let reserve = size.0 as f64 * idle.reserve.value / geometry.erase_block.value.0 as f64;
        // Where the next block is opened, garbage collection has to leave one more than its own reserve.
        let kept = geometry.reserve_blocks.value.saturating_add(1);
        let target = if idle.reserve.value > 0.0 { kept.saturating_add(reserve.ceil() as u32) } else { 0 };
        Some(Self { after: idle.after.value, target, least: kept.saturating_add(1), work: None })
    }

    /// Works from when the last command was done, at `done`, until the next one comes, at `arrival`.
    pub(crate) fn run(&mut self, ftl: &mut Ftl, array: &mut Array, done: Nanos, arrival: Nanos) {
        let window = Window { start: done + self.after, end: arrival };
        if window.start >= window.end {
            return;
        }
        while let Some(work) = self.work(ftl) {
            if !work.advance(ftl, array, window) {
                return;
            }
        }
    }

    /// The work under way, or else the next: a block that is being cleaned is finished, then the cache is
    /// folded, then blocks are cleaned.
    fn work(&mut self, ftl: &mut Ftl) -> Option<&mut Work> {
        let goes_on = |work: &Work| match work.source {
            Source::Block(block) => ftl.cleaning() == Some(block),
            Source::Group(folding) => ftl.is_folding(folding),
        };
        if !self.work.as_ref().is_some_and(goes_on) {
            let source =
                match ftl.cleaning().map(Source::Block).or_else(|| ftl.start_folding().map(Source::Group)) {
                    Some(source) => Some(source),
                    None => {
                        let wanted =
                            if ftl.has_full_group() { self.least.max(self.target) } else { self.target };
                        let begun = (ftl.free_blocks() < wanted).then(|| ftl.start_cleaning());
                        begun.flatten().map(Source::Block)
                    }
                };
            self.work = source.map(Work::new);
        }
        self.work.as_mut()
    }
}

impl Work {
    fn new(source: Source) -> Self {
        let (ready, programmed) = (Nanos::ZERO, Nanos::ZERO);
        Self { source, read: 0, moved: 0, erased: 0, ready, programmed }
    }

    /// Does the next operation; returns false where it can not begin in time.
    fn advance(&mut self, ftl: &mut Ftl, array: &mut Array, window: Window) -> bool {
        let (block, blocks, cause) = match self.source {
            Source::Block(block) => (block, 1, Cause::Copy),
            Source::Group(Folding { block, blocks, .. }) => (block, blocks, Cause::Fold),
        };
        let (pages, valid) = ftl.block(block);
        let next = |from| next_valid(valid, from, pages.len() as u32);
        if let Some(page) = next(self.read) {
            let mut unit = Unit::default();
            let count = array.seek(&mut unit, &(pages.start + page..pages.end));
            let valid = count_valid(valid, page..page + count);
            let Some(start) = array.free_at(&unit, window.start, window.end) else { return false };
            self.ready = self.ready.max(array.read_unit(&unit, valid, start));
            self.read = page + count;
        } else if next(self.moved).is_some() {
            let mut unit = Unit::default();
            let room = array.seek(&mut unit, &ftl.next_copies(block));
            let ready = window.start.max(self.ready);
            let Some(start) = array.free_at(&unit, ready, window.end) else { return false };
            let (next, moved) = ftl.move_pages(block, self.moved, room, cause);
            self.moved = next;
            let page = array.page_time(Cell::Full);
            self.programmed = self.programmed.max(array.program(&unit, moved, start, page));
        } else {
            let ready = window.start.max(self.programmed);
            let Some(start) = array.block_free_at(&pages, ready, window.end) else { return false };
            array.erase(pages, start);
            self.erased += 1;
            if self.erased == blocks {
                match self.source {
                    Source::Block(_) => ftl.finish_cleaning(&mut Untimed),
                    Source::Group(folding) => ftl.finish_folding(folding, &mut Untimed),
                }
            }
        }
        true
    }
}
