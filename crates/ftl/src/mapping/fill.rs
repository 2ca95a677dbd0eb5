//! Preconditioning without a write of each page.
//!
//! Blocks are opened, closed, cleaned and erased as by writes of every page in order, twice; only the tables are not
//! written. They are a formula afterwards, as long as nothing was copied.

#[cfg(test)]
mod tests;

use trimtab_core::profile::GcPolicy;

use super::sequence::Sequence;
use super::{Frontier, Ftl, Stale, Totals};
use crate::flash::Untimed;

impl Ftl {
    /// Makes a new model what it is after two writes of every page in order, in time and memory that grow with its
    /// blocks. Returns false, having done nothing, unless it is new and nothing of it would be copied.
    pub(crate) fn fill_twice(&mut self) -> bool {
        if !self.fills_by_blocks() {
            return false;
        }
        let first = self.fill(&Sequence::new(self.config.pages_per_block));
        self.mapped = self.config.logical.0;
        let second = self.fill(&first);
        debug_assert_eq!(self.totals.copied, 0, "victims have no valid page");
        let pages = self.config.logical.0 as u32;
        self.contents.fill(self.layout, pages, &second);
        self.addresses.fill(second);
        true
    }

    /// Returns whether it is new, and copies nothing when every page is written in order, twice.
    pub(crate) fn fills_by_blocks(&self) -> bool {
        // Victims that are drawn may have valid pages, and blocks that differ by one erase may be levelled.
        let may_copy = matches!(self.config.policy, GcPolicy::DChoices(_))
            || self.levelling.as_ref().is_some_and(|levelling| levelling.levels_first_erases());
        self.totals == Totals::default() && self.cache.is_none() && self.map.is_none() && !may_copy
    }

    /// The memory that the tables take once every page was written, in bytes.
    pub(crate) fn whole_tables(&self) -> usize {
        (self.addresses.len() as usize + self.contents.len()) * size_of::<u32>()
    }

    /// Takes huge pages for its tables: most of its pages will be written in no order.
    pub(crate) fn expect_many_writes(&mut self) {
        self.addresses.use_huge_pages();
        self.contents.use_huge_pages();
    }

    /// Writes every page in order, but not into the tables. Returns where they are; they were where `before` says.
    fn fill(&mut self, before: &Sequence) -> Sequence {
        let pages = self.config.logical.0 as u32;
        let mut sequence = Sequence::new(self.config.pages_per_block);
        let mut page = 0;
        while page < pages {
            let Frontier { next, end } = self.room(0, &mut Untimed);
            let count = (end - next).min(pages - page);
            sequence.push(self.layout, next);
            self.valid.set(next, count);
            self.blocks.fill(self.layout.block(next), count);
            let mut stale = Stale::new(self.layout, &mut self.valid, &mut self.blocks);
            before.addresses(page..page + count).for_each(|addresses| stale.add(addresses));
            stale.settle();
            self.advance(0, count);
            page += count;
        }
        self.totals.host += u64::from(pages);
        sequence
    }
}
