//! The pages of the map that lie on the flash, beside the data.
//!
//! They are numbered after the logical pages, so that they take space and garbage collection moves them as it
//! does data. Their own places are in memory at all times. The new places of data that are moved do not
//! go to the map at once: its page is marked, and written with them when it leaves the memory next, as drives
//! do that keep a summary in each block (Ma, Feng and Li, "LazyFTL", SIGMOD 2011).

use super::{Ftl, NONE};
use crate::flash::{Cause, Flash};
use crate::geometry::FtlConfig;

/// The pages of flash that hold the map.
pub(super) struct MapPages {
    /// The first one's number among all logical pages.
    first: u32,
    /// Entries in each.
    entries: u32,
    /// Pages that are on the flash.
    written: u64,
    /// A bit for each page: data of it have been moved since it was written.
    stale: Vec<u64>,
}

impl MapPages {
    /// The map's pages, none of them written, if the map lies on the flash.
    pub(super) fn new(config: &FtlConfig) -> Option<Self> {
        Some(Self {
            first: config.logical.0 as u32,
            entries: config.map_entries?,
            written: 0,
            stale: vec![0; config.map_pages().0.div_ceil(64) as usize],
        })
    }

    /// The number of them that are on the flash.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// The memory that is kept of them, in bytes.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&self.stale[..])
    }

    /// Data of this logical page have been moved.
    pub(super) fn moved(&mut self, page: u32) {
        if page < self.first {
            let page = page / self.entries;
            self.stale[(page / 64) as usize] |= 1 << (page % 64);
        }
    }
}

impl Ftl {
    /// Programs page `page` of the map.
    ///
    /// # Panics
    /// If the map does not lie on the flash, or has no such page.
    pub(crate) fn write_map_page(&mut self, page: u32, flash: &mut impl Flash) {
        let map = self.map.as_mut().expect("the map lies on the flash");
        let logical = map.first + page;
        map.stale[(page / 64) as usize] &= !(1 << (page % 64));
        map.written += u64::from(self.addresses.get(logical) == NONE);
        let frontier = self.config.streams as usize;
        self.totals.map += 1;
        self.append::<false>(frontier, Cause::Map, std::iter::once(logical), flash);
    }

    /// Where page `page` of the map lies, by dense number, if it was ever written.
    pub(crate) fn map_page(&self, page: u32) -> Option<u32> {
        self.physical_page(self.config.logical.0 as u32 + page)
    }

    /// Whether data of page `page` of the map have been moved since it was written.
    pub(crate) fn is_stale(&self, page: u32) -> bool {
        let word = self.map.as_ref().map_or(0, |map| map.stale[(page / 64) as usize]);
        word >> (page % 64) & 1 == 1
    }
}
