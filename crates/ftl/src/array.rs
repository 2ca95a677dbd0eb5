//! The flash array in time: channels and dies, each with the instant until which it is busy.
//!
//! Program units are dealt to the dies in order, so an erase block is striped over all of them;
//! dies are dealt to the channels in the same way. Programming a unit is spread evenly over the
//! mapping pages it holds. Dies and channels serve requests in the order they come in,
//! unless the drive lets the host's reads go first.

mod suspend;

use std::ops::Range;

use trimtab_core::Nanos;
use trimtab_core::profile::Profile;

use crate::validity::count_valid;
use suspend::Priority;

/// The bits that a programmed cell holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell {
    /// As many as it can.
    Full,
    /// One, in the cache.
    Single,
}

/// Channels and dies.
pub(crate) struct Array {
    pages_per_unit: u32,
    read: Nanos,
    program_page: Nanos,
    cache_page: Nanos,
    erase: Nanos,
    transfer_page: Nanos,
    dies: Vec<Die>,
    channels: Vec<Nanos>,
    other: OtherWork,
    /// Whether reads of the host go first.
    priority: Option<Priority>,
}

struct Die {
    busy: Nanos,
    channel: usize,
}

impl Die {
    /// Occupies a die for `span`, and longer where it is `SHARED` with other work.
    #[inline]
    fn occupy<const SHARED: bool>(&mut self, other: &OtherWork, span: Nanos, start: Nanos) -> Nanos {
        let begun = self.busy.max(start);
        self.busy = begun + span;
        if SHARED && begun < other.end {
            self.busy += other.delay(begun, span);
        }
        self.busy
    }
}

/// Work that takes a share of every die for a time, beside all other operations.
#[derive(Debug, Clone, Copy, Default)]
struct OtherWork {
    share: f64,
    start: Nanos,
    end: Nanos,
}

impl OtherWork {
    /// How much longer an operation takes that begins at `begun` and alone takes `span`.
    fn delay(&self, begun: Nanos, span: Nanos) -> Nanos {
        let before = self.start.saturating_sub(begun);
        let shared = span.saturating_sub(before).seconds() * self.share / (1.0 - self.share);
        let most = (self.end - begun.max(self.start)).seconds() * self.share;
        Nanos::from_seconds(shared.min(most))
    }
}

/// A program unit: its pages and its die. Whoever goes through pages in order keeps the last unit,
/// from which the next is found without division.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unit {
    pages: Range<u32>,
    die: usize,
}

impl Array {
    pub(crate) fn new(profile: &Profile) -> Self {
        let (geometry, timing) = (&profile.geometry, &profile.timing);
        let page = geometry.mapping_page.value;
        let pages_per_unit = (geometry.program_unit.value.0 / page.0) as u32;
        let channels = geometry.channels.value as usize;
        let page_of = |unit: Nanos| Nanos(unit.0.div_ceil(pages_per_unit.into()));
        let die = |number| Die { busy: Nanos::ZERO, channel: number % channels };
        Self {
            pages_per_unit,
            read: timing.read.value,
            program_page: page_of(timing.program.value),
            cache_page: page_of(profile.slc.as_ref().map_or(timing.program.value, |slc| slc.program.value)),
            erase: timing.erase.value,
            transfer_page: timing.channel_rate.value.time_for(page),
            dies: (0..profile.dies() as usize).map(die).collect(),
            channels: vec![Nanos::ZERO; channels],
            other: OtherWork::default(),
            priority: Priority::new(profile),
        }
    }

    /// Adds work of so much time that takes this share of every die from `start`, or from the end of such work
    /// that is not done yet.
    pub(crate) fn add_work(&mut self, work: Nanos, share: f64, start: Nanos) {
        if self.other.end <= start {
            self.other = OtherWork { share, start, end: start };
        }
        self.other.end += Nanos::from_seconds(work.seconds() / share);
    }

    /// Moves `unit` to the one that `pages` begin in; returns how many of them are in it.
    #[inline]
    pub(crate) fn seek(&self, unit: &mut Unit, pages: &Range<u32>) -> u32 {
        let page = pages.start;
        if !unit.pages.contains(&page) {
            let next = unit.pages.end..unit.pages.end + self.pages_per_unit;
            *unit = if next.contains(&page) && !unit.pages.is_empty() {
                let die = if unit.die + 1 == self.dies.len() { 0 } else { unit.die + 1 };
                Unit { pages: next, die }
            } else {
                let number = page / self.pages_per_unit;
                let start = number * self.pages_per_unit;
                let pages = start..start + self.pages_per_unit;
                Unit { pages, die: number as usize % self.dies.len() }
            };
        }
        unit.pages.end.min(pages.end) - page
    }

    /// The time to program a page.
    pub(crate) fn page_time(&self, cell: Cell) -> Nanos {
        if cell == Cell::Full { self.program_page } else { self.cache_page }
    }

    /// Programs some pages of a unit, each in `page`, whose data are there at `ready`; returns when they are
    /// on flash.
    #[inline]
    pub(crate) fn program(&mut self, unit: &Unit, pages: u32, ready: Nanos, page: Nanos) -> Nanos {
        if ready < self.other.end {
            return self.program_beside(unit, pages, ready, page);
        }
        self.program_on::<false>(unit, pages, ready, page)
    }

    #[cold]
    fn program_beside(&mut self, unit: &Unit, pages: u32, ready: Nanos, page: Nanos) -> Nanos {
        self.program_on::<true>(unit, pages, ready, page)
    }

    #[inline]
    fn program_on<const SHARED: bool>(
        &mut self,
        unit: &Unit,
        pages: u32,
        ready: Nanos,
        page: Nanos,
    ) -> Nanos {
        let die = &mut self.dies[unit.die];
        let channel = &mut self.channels[die.channel];
        *channel = (*channel).max(ready) + self.transfer_page * u64::from(pages);
        die.occupy::<SHARED>(&self.other, page * u64::from(pages), *channel)
    }

    /// Reads these pages for the host from `start`, each unit of pages in a row at once; returns when all are
    /// out.
    pub(crate) fn read(&mut self, pages: impl Iterator<Item = u32>, start: Nanos) -> Nanos {
        let mut unit = Unit::default();
        let (mut count, mut out) = (0, start);
        for page in pages {
            if !unit.pages.contains(&page) {
                out = out.max(self.read_for_host(&unit, count, start));
                self.seek(&mut unit, &(page..page + 1));
                count = 0;
            }
            count += 1;
        }
        out.max(self.read_for_host(&unit, count, start))
    }

    /// Reads the valid pages of a block from `start`, as [`Flash::collect`](crate::Flash::collect)
    /// gives them; returns when all are out.
    pub(crate) fn collect(&mut self, block: Range<u32>, valid: &[u64], start: Nanos) -> Nanos {
        if start < self.other.end {
            return self.collect_on::<true>(block, valid, start);
        }
        self.collect_on::<false>(block, valid, start)
    }

    fn collect_on<const SHARED: bool>(&mut self, block: Range<u32>, valid: &[u64], start: Nanos) -> Nanos {
        let mut unit = Unit::default();
        let (mut pages, mut out) = (block.clone(), start);
        while !pages.is_empty() {
            let count = self.seek(&mut unit, &pages);
            let first = pages.start - block.start;
            let count_valid = count_valid(valid, first..first + count);
            out = out.max(self.read_on::<SHARED>(&unit, count_valid, start));
            pages.start += count;
        }
        out
    }

    /// Reads this many pages of a unit from `start`; returns when they are out.
    pub(crate) fn read_unit(&mut self, unit: &Unit, pages: u32, start: Nanos) -> Nanos {
        self.read_on::<true>(unit, pages, start)
    }

    #[inline]
    fn read_on<const SHARED: bool>(&mut self, unit: &Unit, pages: u32, start: Nanos) -> Nanos {
        if pages == 0 {
            return start;
        }
        let die = &mut self.dies[unit.die];
        let channel = &mut self.channels[die.channel];
        let transfer = self.transfer_page * u64::from(pages);
        *channel = (*channel).max(start) + transfer;
        (*channel).max(die.occupy::<SHARED>(&self.other, self.read, start) + transfer)
    }

    /// Erases the block of these pages: each of its dies does its part after what it has to do.
    pub(crate) fn erase(&mut self, pages: Range<u32>, start: Nanos) {
        let units = pages.len().div_ceil(self.pages_per_unit as usize);
        let mut first = Unit::default();
        self.seek(&mut first, &pages);
        let (before, from) = self.dies.split_at_mut(first.die);
        let dies = from.iter_mut().chain(before).take(units);
        if start < self.other.end {
            dies.for_each(|die| _ = die.occupy::<true>(&self.other, self.erase, start));
        } else {
            dies.for_each(|die| _ = die.occupy::<false>(&self.other, self.erase, start));
        }
    }

    /// When an operation on this unit's die can begin, from `start` on, if that is before `until`: with the
    /// die and its channel free.
    pub(crate) fn free_at(&self, unit: &Unit, start: Nanos, until: Nanos) -> Option<Nanos> {
        let Die { busy, channel } = self.dies[unit.die];
        let free = start.max(busy).max(self.channels[channel]);
        (free < until).then_some(free)
    }

    /// As [`free_at`](Self::free_at), with all dies of a block free.
    pub(crate) fn block_free_at(&self, pages: &Range<u32>, start: Nanos, until: Nanos) -> Option<Nanos> {
        let units = pages.len().div_ceil(self.pages_per_unit as usize);
        let mut first = Unit::default();
        self.seek(&mut first, pages);
        let (before, from) = self.dies.split_at(first.die);
        let busy = from.iter().chain(before).take(units).map(|die| die.busy);
        let free = busy.fold(start, Nanos::max);
        (free < until).then_some(free)
    }
}
