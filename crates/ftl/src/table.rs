//! A large array of page numbers that takes memory only where it was written.

use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut};

/// The largest table, in bytes, that has huge pages from the start: they cost it this much at most.
const SMALL: usize = 128 << 20;

/// Page numbers, read and written all over the place; zero until they are written. On small memory pages most of that
/// time would go to address translation: at 14.6 million entries huge pages make writes a third faster. But a huge
/// page is taken for the first entry in it, which a large table of few entries can't afford.
pub(crate) struct Table {
    memory: MmapMut,
    has_huge_pages: bool,
}

impl Table {
    /// `length` entries.
    ///
    /// # Errors
    /// If there is no such memory.
    pub(crate) fn new(length: usize) -> io::Result<Self> {
        let memory = MmapMut::map_anon(length * size_of::<u32>())?;
        let mut table = Self { memory, has_huge_pages: false };
        if table.memory.len() <= SMALL {
            table.use_huge_pages();
        } else {
            // A system without huge pages refuses the advice; the table works all the same.
            let _ = table.memory.advise(Advice::NoHugePage);
        }
        Ok(table)
    }

    /// Takes huge pages from now on: for a table that will be written nearly everywhere.
    pub(crate) fn use_huge_pages(&mut self) {
        let _ = self.memory.advise(Advice::HugePage);
        self.has_huge_pages = true;
    }

    /// The memory that it takes at most, in bytes, where `entries` entries lie in memory that was written.
    pub(crate) fn memory(&self, entries: usize) -> usize {
        let all = self.memory.len();
        if self.has_huge_pages { all } else { all.min(entries * size_of::<u32>()) }
    }
}

impl Deref for Table {
    type Target = [u32];
    fn deref(&self) -> &[u32] {
        bytemuck::cast_slice(&self.memory)
    }
}

impl DerefMut for Table {
    fn deref_mut(&mut self) -> &mut [u32] {
        bytemuck::cast_slice_mut(&mut self.memory)
    }
}
