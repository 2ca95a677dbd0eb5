//! The work of a drive while no command is under way: it cleans blocks up to a reserve of erased ones.
//!
//! It goes block by block, as garbage collection in the foreground does: reads the valid pages, programs
//! them elsewhere, erases the block. Every read, program and erase begins on a free die, and only before the
//! next command arrives, which so waits for at most one of them on each die.

use trimtab_core::profile::Profile;
use trimtab_core::{Bytes, Nanos};

use crate::array::{Array, Unit};
use crate::flash::Untimed;
use crate::mapping::{Ftl, next_valid};
use crate::validity::count_valid;

/// The idle work of a drive, and how far it has come.
pub(crate) struct Background {
    after: Nanos,
    /// The number of erased blocks that it cleans up to.
    target: u32,
    work: Option<Work>,
}

/// The block being cleaned.
struct Work {
    block: u32,
    /// Its pages before this one have been read.
    read: u32,
    /// Its pages before this one have been moved.
    moved: u32,
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
        let least = geometry.reserve_blocks.value.saturating_add(1);
        let target = if idle.reserve.value > 0.0 { least.saturating_add(reserve.ceil() as u32) } else { 0 };
        Some(Self { after: idle.after.value, target, work: None })
    }

    /// Works from when the last command was done, at `done`, until the next one comes, at `arrival`.
    pub(crate) fn run(&mut self, ftl: &mut Ftl, array: &mut Array, done: Nanos, arrival: Nanos) {
        let window = Window { start: done + self.after, end: arrival };
        while window.start < window.end {
            let Some(work) = self.work(ftl) else { return };
            if !work.advance(ftl, array, window) {
                return;
            }
        }
    }

    /// The block being cleaned, or else the next one.
    fn work(&mut self, ftl: &mut Ftl) -> Option<&mut Work> {
        if ftl.cleaning().is_none() {
            let begun = (ftl.free_blocks() < self.target).then(|| ftl.start_cleaning()).flatten();
            let (ready, programmed) = (Nanos::ZERO, Nanos::ZERO);
            self.work = begun.map(|block| Work { block, read: 0, moved: 0, ready, programmed });
        }
        self.work.as_mut()
    }
}

impl Work {
    /// Does the next operation; returns false where it can not begin in time.
    fn advance(&mut self, ftl: &mut Ftl, array: &mut Array, window: Window) -> bool {
        let (pages, valid) = ftl.block(self.block);
        let next = |from| next_valid(valid, from, pages.len() as u32);
        let begun = if let Some(page) = next(self.read) {
            let mut unit = Unit::default();
            let count = array.seek(&mut unit, &(pages.start + page..pages.end));
            let valid = count_valid(valid, page..page + count);
            array.free_at(&unit, window.start, window.end).map(|start| {
                self.ready = self.ready.max(array.read_unit(&unit, valid, start));
                self.read = page + count;
            })
        } else if next(self.moved).is_some() {
            self.program(ftl, array, window)
        } else {
            let start = window.start.max(self.programmed);
            array.block_free_at(&pages, start, window.end).map(|start| {
                array.erase(pages, start);
                ftl.finish_cleaning(&mut Untimed);
            })
        };
        begun.is_some()
    }

    /// Programs as many pages as the next unit of garbage collection takes.
    fn program(&mut self, ftl: &mut Ftl, array: &mut Array, window: Window) -> Option<()> {
        let mut unit = Unit::default();
        let room = array.seek(&mut unit, &ftl.next_copies());
        let start = array.free_at(&unit, window.start.max(self.ready), window.end)?;
        let before = ftl.totals().copied;
        self.moved = ftl.move_pages(self.block, self.moved, room, &mut Untimed);
        let moved = (ftl.totals().copied - before) as u32;
        self.programmed = self.programmed.max(array.program(&unit, moved, start));
        Some(())
    }
}
