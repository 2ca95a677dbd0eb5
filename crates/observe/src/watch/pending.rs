//! Extents that a file system freed and that have been neither discarded nor used again.

use trimtab_core::{Bytes, Extent, ExtentSet};

/// The most ranges that are kept for one file system.
const LIMIT: usize = 1 << 18;
/// The first coarsening limit: the smallest default block size of file systems.
const FINEST: Bytes = Bytes(4096);

/// Pending extents in bounded memory: when there are too many ranges, the shortest are dropped.
#[derive(Debug)]
pub struct Pending {
    extents: ExtentSet,
    limit: usize,
    /// Ranges shorter than this were dropped; zero if none was.
    pub coarsened_below: Bytes,
    /// The bytes in the dropped ranges.
    pub let_go: Bytes,
}

impl Default for Pending {
    fn default() -> Self {
        Self { extents: ExtentSet::new(), limit: LIMIT, coarsened_below: Bytes::ZERO, let_go: Bytes::ZERO }
    }
}

impl Pending {
    /// Notes that the file system freed `extent`.
    pub fn free(&mut self, extent: Extent) {
        self.extents.insert(extent);
        self.coarsen();
    }

    /// Notes that `extent` was discarded, or is in use again.
    pub fn take(&mut self, extent: Extent) {
        if !self.extents.is_empty() {
            self.extents.remove(extent);
            self.coarsen();
        }
    }

    /// Returns the number of ranges.
    pub fn ranges(&self) -> usize {
        self.extents.count()
    }

    /// Returns the number of bytes.
    pub fn bytes(&self) -> Bytes {
        self.extents.len()
    }

    /// Drops the shortest ranges until half the limit is left.
    fn coarsen(&mut self) {
        if self.extents.count() <= self.limit {
            return;
        }
        let before = self.extents.len();
        while self.extents.count() > self.limit / 2 {
            self.coarsened_below = Bytes(self.coarsened_below.0 * 2).max(FINEST);
            let long = |extent: &Extent| extent.len() >= self.coarsened_below;
            self.extents = self.extents.iter().filter(long).collect();
        }
        self.let_go += before - self.extents.len();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};

    use super::*;

    proptest! {
        #[test]
        fn pending_ranges_are_true_and_dropped_bytes_are_counted(
            limit in 2usize..12,
            steps in prop::collection::vec((prop::bool::ANY, 0u64..256, 1u64..16), 0..80),
        ) {
            const BLOCK: u64 = 1024;
            let mut pending = Pending { limit, ..Pending::default() };
            let mut naive = vec![false; 512];
            for (free, start, length) in steps {
                let extent = Extent::at(Bytes(start * BLOCK), Bytes(length * BLOCK));
                if free { pending.free(extent) } else { pending.take(extent) }
                naive[start as usize..(start + length) as usize].fill(free);
                prop_assert!(pending.ranges() <= limit);
            }
            let total = naive.iter().filter(|free| **free).count() as u64 * BLOCK;
            if pending.let_go == Bytes::ZERO {
                prop_assert_eq!(pending.bytes().0, total);
                prop_assert_eq!(pending.coarsened_below, Bytes::ZERO);
            } else {
                prop_assert!(pending.bytes().0 <= total);
                prop_assert!(pending.coarsened_below >= FINEST);
            }
            for extent in pending.extents.iter() {
                let blocks = (extent.start.0 / BLOCK) as usize..(extent.end.0 / BLOCK) as usize;
                prop_assert!(naive[blocks].iter().all(|free| *free));
            }
        }
    }
}
