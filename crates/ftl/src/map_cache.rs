//! The pages of the map that a drive has in memory: those used last.
//!
//! A command needs the pages that hold the entries of what it names. One that is not in memory is read from the
//! flash, unless it was never written or all of its entries change. For it the page used longest ago leaves the
//! memory; if entries of it have changed, it is programmed (DFTL: Gupta, Kim and Urgaonkar, ASPLOS 2009).

use std::ops::Range;

use trimtab_core::profile::Profile;
use trimtab_core::{Bytes, Nanos};

use crate::controller::Controller;
use crate::mapping::Ftl;

/// A member of a circular list. The list itself is one, too.
#[derive(Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
}

/// How a command uses the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Looks places up.
    Read,
    /// Changes the entries of all that it names.
    Change,
}

/// The part of the map that is in memory.
pub(crate) struct MapCache {
    /// Entries in a page of the map.
    entries: u32,
    /// How many more pages fit into memory.
    room: u32,
    /// One a page of the map, then the list's own: pages in memory, the one used last first.
    links: Vec<Link>,
    /// Whether each page is in memory.
    cached: Vec<bool>,
    /// Whether entries of it have changed since.
    changed: Vec<bool>,
    reads: u64,
}

impl MapCache {
    /// The cache of a drive of `size`, if its profile has one; nothing is in it.
    pub(crate) fn new(profile: &Profile, size: Bytes) -> Option<Self> {
        let cache = profile.map_cache.as_ref()?;
        let page = profile.geometry.mapping_page.value;
        let entries = cache.entries(page);
        let pages = (size.0 / page.0).div_ceil(entries.into()) as u32;
        Some(Self {
            entries,
            room: cache.room(pages),
            links: (0..=pages).map(|own| Link { previous: own, next: own }).collect(),
            cached: vec![false; pages as usize],
            changed: vec![false; pages as usize],
            reads: 0,
        })
    }

    /// Entries in a page of the map.
    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    /// The memory that it holds, in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&self.links[..]) + self.cached.len() + self.changed.len()
    }

    /// Pages of the map that were read from the flash.
    pub(crate) fn reads(&self) -> u64 {
        self.reads
    }

    /// Brings the map of these logical pages into memory from `start`; returns when it is there.
    pub(crate) fn bring(
        &mut self,
        ftl: &mut Ftl,
        controller: &mut Controller,
        start: Nanos,
        (how, pages): (Use, Range<u32>),
    ) -> Nanos {
        let mut ready = start;
        if pages.is_empty() {
            return ready;
        }
        for page in pages.start / self.entries..=(pages.end - 1) / self.entries {
            if !self.cached[page as usize] {
                ready = ready.max(self.make_room(ftl, controller, start));
                let first = page * self.entries;
                let is_whole = pages.start <= first && first.saturating_add(self.entries) <= pages.end;
                if !(how == Use::Change && is_whole)
                    && let Some(place) = ftl.map_page(page)
                {
                    self.reads += 1;
                    ready = ready.max(controller.array().read(std::iter::once(place), start));
                }
                self.cached[page as usize] = true;
                self.room -= 1;
            } else {
                self.unlink(page);
            }
            self.link_first(page);
            self.changed[page as usize] |= how == Use::Change;
        }
        ready
    }

    /// Makes room for a page; returns when what left the memory is in the write buffer.
    fn make_room(&mut self, ftl: &mut Ftl, controller: &mut Controller, start: Nanos) -> Nanos {
        if self.room > 0 {
            return start;
        }
        let oldest = self.links[self.cached.len()].previous;
        self.unlink(oldest);
        self.cached[oldest as usize] = false;
        self.room += 1;
        if !std::mem::take(&mut self.changed[oldest as usize]) && !ftl.is_stale(oldest) {
            return start;
        }
        controller.begin_own(start);
        ftl.write_map_page(oldest, controller);
        controller.now()
    }

    fn unlink(&mut self, page: u32) {
        let Link { previous, next } = self.links[page as usize];
        self.links[previous as usize].next = next;
        self.links[next as usize].previous = previous;
    }

    fn link_first(&mut self, page: u32) {
        let head = self.cached.len() as u32;
        let next = self.links[head as usize].next;
        self.links[head as usize].next = page;
        self.links[page as usize] = Link { previous: head, next };
        self.links[next as usize].previous = page;
    }
}
