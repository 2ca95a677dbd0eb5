//! A large array of numbers that takes memory only where it was written.

use std::io;
use std::num::NonZeroU32;
use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut};

/// Bytes of memory that the system gives at a time.
const MEMORY_PAGE: usize = 4 << 10;
/// Bytes of memory that the system gives at a time where it was advised to use huge pages.
const HUGE_PAGE: usize = 2 << 20;
/// The largest table that has huge pages from the start: they cost it this much at most.
const SMALL: usize = 128 << 20;

/// A number, or none where nothing was written yet: that is zero in memory, as a new table is.
pub(crate) type Entry = Option<NonZeroU32>;

/// The entry of a number below `u32::MAX`.
#[inline]
pub(crate) fn entry(number: u32) -> Entry {
    NonZeroU32::new(number.wrapping_add(1))
}

/// The number of an entry that was written.
#[inline]
pub(crate) fn number(entry: NonZeroU32) -> u32 {
    entry.get() - 1
}

/// Numbers that are read and written all over the place. On small memory pages most of that time
/// would go to address translation: at 14.6 million entries huge pages make writes a third faster. But a huge
/// page is taken for the first entry in it, which a large table of few entries can't afford.
pub(crate) struct Table {
    memory: MmapMut,
    /// Bytes of memory that are taken at a time.
    granule: usize,
}

impl Table {
    /// `length` entries, none of them written.
    ///
    /// # Errors
    /// If there is no such memory.
    pub(crate) fn new(length: usize) -> io::Result<Self> {
        let memory = MmapMut::map_anon(length * size_of::<Entry>())?;
        let mut table = Self { memory, granule: MEMORY_PAGE };
        if table.memory.len() <= SMALL {
            table.use_huge_pages();
        } else {
            // A system without huge pages refuses the advice; the table works all the same.
            let _ = table.memory.advise(Advice::NoHugePage);
        }
        Ok(table)
    }

    /// Takes huge pages from now on: for a table of which most entries will be written.
    pub(crate) fn use_huge_pages(&mut self) {
        let _ = self.memory.advise(Advice::HugePage);
        self.granule = HUGE_PAGE;
    }

    /// The memory that its entries have taken, in bytes. Takes time in proportion to its length.
    pub(crate) fn memory(&self) -> usize {
        let is_taken = |part: &&[u8]| bytemuck::cast_slice::<_, Entry>(part).iter().any(Option::is_some);
        self.memory.chunks(self.granule).filter(is_taken).map(<[u8]>::len).sum()
    }
}

impl Deref for Table {
    type Target = [Entry];
    fn deref(&self) -> &[Entry] {
        bytemuck::cast_slice(&self.memory)
    }
}

impl DerefMut for Table {
    fn deref_mut(&mut self) -> &mut [Entry] {
        bytemuck::cast_slice_mut(&mut self.memory)
    }
}
