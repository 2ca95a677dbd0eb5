//! The space that is free and not yet discarded: a bit for each sector.

use std::hint::black_box;
use std::ops::Range;

use trimtab_core::{Bytes, Extent, SECTOR};

use crate::validity::masks;

/// Free bytes of a drive that have not been discarded since, to the sector: one counts as free once
/// all of it is, and no longer as soon as a part of it is taken.
pub(super) struct Pending {
    words: Vec<u64>,
    sectors: u64,
}

impl Pending {
    /// Of a drive of `size` bytes, nothing is free.
    pub(super) fn new(size: Bytes) -> Self {
        let words = size.0.div_ceil(SECTOR.0 * u64::from(u64::BITS)) as usize;
        Self { words: vec![0; words], sectors: 0 }
    }

    /// Touches the bits of these places, so that cache misses overlap. Places past the drive's end are
    /// let be.
    pub(super) fn touch(&self, starts: impl Iterator<Item = Bytes>) {
        let place = |start: Bytes| (start.0 / SECTOR.0 / u64::from(u64::BITS)) as usize;
        let words = starts.filter_map(|start| self.words.get(place(start)));
        black_box(words.fold(0, |touched, word| touched ^ word));
    }

    /// The bytes are free from now on.
    pub(super) fn insert(&mut self, extent: Extent) {
        let Extent { start, end } = extent.aligned_inside(SECTOR);
        for (word, bits) in masks(start.0 / SECTOR.0..end.0 / SECTOR.0) {
            self.sectors += u64::from((bits & !self.words[word]).count_ones());
            self.words[word] |= bits;
        }
    }

    /// The bytes are in use, or discarded.
    pub(super) fn remove(&mut self, extent: Extent) {
        if extent.is_empty() {
            return;
        }
        for (word, bits) in masks(extent.start.0 / SECTOR.0..extent.end.0.div_ceil(SECTOR.0)) {
            let taken = bits & self.words[word];
            // Memory where nothing was ever free is not written, and so takes no room.
            if taken != 0 {
                self.sectors -= u64::from(taken.count_ones());
                self.words[word] ^= taken;
            }
        }
    }

    /// The first free extent inside `window`, as far as it reaches in there.
    pub(super) fn first_inside(&self, window: Extent) -> Option<Extent> {
        let Extent { start, end } = window.aligned_inside(SECTOR);
        let sectors = start.0 / SECTOR.0..end.0 / SECTOR.0;
        let first = self.find(sectors.clone(), |word| word)?;
        let end = self.find(first..sectors.end, |word| !word).unwrap_or(sectors.end);
        Some(Extent::new(Bytes(first * SECTOR.0), Bytes(end * SECTOR.0)))
    }

    /// The whole units of this size that are free and that `extent` names a part of. `extent` is free.
    pub(super) fn units_of(&self, extent: Extent, unit: Bytes) -> Extent {
        let inside = extent.aligned_inside(unit);
        let is_free = |unit: Extent| self.first_inside(unit) == Some(unit);
        let start = Bytes(extent.start.0 / unit.0 * unit.0);
        let end = Bytes(extent.end.0.div_ceil(unit.0) * unit.0);
        if extent.is_empty() || start == extent.start && end == extent.end {
            return inside;
        }
        let first = Extent::at(start, unit);
        let last = Extent::new(Bytes(end.0 - unit.0), end);
        let after_first = Bytes(start.0 + unit.0);
        let from = if is_free(first) { start } else { after_first };
        let to = if is_free(last) { end } else { last.start };
        Extent::new(from.min(to), to)
    }

    /// The first of `sectors` whose bit is set in what `view` makes of its word.
    fn find(&self, sectors: Range<u64>, view: impl Fn(u64) -> u64) -> Option<u64> {
        let mut next = sectors.start;
        while next < sectors.end {
            let bits = view(self.words[(next / 64) as usize]) >> (next % 64);
            if bits != 0 {
                next += u64::from(bits.trailing_zeros());
                return (next < sectors.end).then_some(next);
            }
            next = (next / 64 + 1) * 64;
        }
        None
    }

    /// How many bytes are free.
    pub(super) fn len(&self) -> Bytes {
        Bytes(self.sectors * SECTOR.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, prop, prop_assert_eq, proptest};

    use super::*;

    const SECTORS: u64 = 300;

    fn extents() -> impl Strategy<Value = Extent> {
        // Most are whole sectors, as the kernel's are.
        let address = (0..=SECTORS, prop::sample::select(vec![0, 0, 0, 100]));
        let address = address.prop_map(|(sector, odd)| Bytes((sector * 512 + odd).min(SECTORS * 512)));
        (address.clone(), address).prop_map(|(a, b)| Extent::new(a.min(b), a.max(b)))
    }

    proptest! {
        #[test]
        fn pending_matches_a_bitmap_of_sectors(
            steps in prop::collection::vec((prop::bool::ANY, extents()), 0..40),
            window in extents(),
        ) {
            let (mut pending, mut naive) = (Pending::new(Bytes(SECTORS * 512)), vec![false; SECTORS as usize]);
            for (free, extent) in steps {
                for (sector, bit) in naive.iter_mut().enumerate() {
                    let sector = Extent::at(Bytes(sector as u64 * 512), SECTOR);
                    let touched = sector.intersect(extent).len();
                    *bit = if free { *bit || touched == SECTOR } else { *bit && touched == Bytes::ZERO };
                }
                if free { pending.insert(extent) } else { pending.remove(extent) }
            }
            prop_assert_eq!(pending.len().0, 512 * naive.iter().filter(|bit| **bit).count() as u64);
            let inside = window.start.0.div_ceil(512)..window.end.0 / 512;
            let first = inside.clone().find(|sector| naive[*sector as usize]);
            let expected = first.map(|first| {
                let end = (first..inside.end).find(|sector| !naive[*sector as usize]).unwrap_or(inside.end);
                Extent::new(Bytes(first * 512), Bytes(end * 512))
            });
            prop_assert_eq!(pending.first_inside(window), expected);
        }
    }
}
