//! The rules of conservation, for tests.

use super::{Ftl, NONE};

impl Ftl {
    /// Panics unless every rule of conservation holds: programmed pages are all in erased or in
    /// programmed blocks, valid pages are the mapped ones, and both maps agree.
    ///
    /// # Panics
    /// If the model is broken. Takes time in proportion to its pages.
    pub fn assert_sound(&self) {
        let of_block = u64::from(self.config.pages_per_block);
        let open: u64 = self.frontiers.iter().map(|frontier| u64::from(frontier.end - frontier.next)).sum();
        let (unused, cached) =
            self.cache.as_ref().map_or((0, 0), |cache| (cache.unused, cache.free_blocks()));
        let free = u64::from(self.blocks.free() + self.blocks.bad() + cached);
        let taken = (self.blocks.erases().len() as u64 - free) * of_block - open;
        let programmed = self.totals.programmed() + unused + self.unfilled;
        assert_eq!(programmed, self.totals.erases * of_block + taken, "pages are conserved");
        let pages = 0..self.addresses.len();
        let mapped = pages.clone().filter(|page| self.addresses.get(*page) != NONE).count() as u64;
        let valid: u64 = self.blocks.valid().iter().map(|count| u64::from(*count)).sum();
        assert_eq!([valid, self.valid.count(), self.mapped], [mapped; 3], "valid pages are the mapped ones");
        for page in pages {
            let address = self.addresses.get(page);
            if address != NONE {
                let block = self.layout.block(address);
                let contents = self.contents.of_block(self.layout, block, self.config.pages_per_block);
                assert_eq!(contents.get(address - self.layout.first(block)), page, "both maps agree");
            }
        }
    }
}
