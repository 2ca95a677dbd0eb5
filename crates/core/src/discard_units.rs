//! The units in which a layer takes discards.

use serde::{Deserialize, Serialize};

use crate::extent::Extent;
use crate::units::Bytes;

/// Units of equal size, one after the other. A layer that has them frees a unit only if one discard covers all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiscardUnits {
    size: Bytes,
    first: Bytes,
}

impl DiscardUnits {
    /// Units of `size` bytes. The address `first` is the start of one. With a size of zero, any byte is a unit.
    pub fn new(size: Bytes, first: Bytes) -> Self {
        Self { size, first: Bytes(first.0.checked_rem(size.0).unwrap_or_default()) }
    }

    /// The size of a unit; zero if any byte is one.
    pub fn size(self) -> Bytes {
        self.size
    }

    /// Returns the start of the unit with the byte at `address`; zero if it begins before the first byte.
    pub fn start_of(self, address: Bytes) -> Bytes {
        address.saturating_sub(self.over(address))
    }

    /// Returns the smallest extent of whole units that has all of `extent`.
    pub fn outside(self, extent: Extent) -> Extent {
        let over = self.over(extent.end);
        let missing = if over == Bytes::ZERO { 0 } else { self.size.0 - over.0 };
        Extent::new(self.start_of(extent.start), Bytes(extent.end.0.saturating_add(missing)))
    }

    /// Returns the whole units in `extent`; an empty extent at its start if there are none.
    pub fn inside(self, extent: Extent) -> Extent {
        let over = self.over(extent.start);
        let missing = if over == Bytes::ZERO { 0 } else { self.size.0 - over.0 };
        let end = extent.end.saturating_sub(self.over(extent.end));
        match extent.start.0.checked_add(missing) {
            Some(start) if start < end.0 => Extent::new(Bytes(start), end),
            _ => Extent::new(extent.start, extent.start),
        }
    }

    /// Returns how far `address` is from the start of its unit.
    fn over(self, address: Bytes) -> Bytes {
        let Some(over) = address.0.checked_rem(self.size.0) else { return Bytes::ZERO };
        Bytes(if over >= self.first.0 { over - self.first.0 } else { self.size.0 - (self.first.0 - over) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::*;

    fn extent(start: u64, end: u64) -> Extent {
        Extent::new(Bytes(start), Bytes(end))
    }

    #[test]
    fn extent_is_widened_and_narrowed_to_units() {
        let units = DiscardUnits::new(Bytes(100), Bytes(1030));
        assert_eq!(units.outside(extent(140, 231)), extent(130, 330));
        assert_eq!(units.inside(extent(140, 431)), extent(230, 430));
        assert_eq!(units.inside(extent(140, 329)), extent(140, 140), "it has no whole unit");
        assert_eq!(units.outside(extent(10, 20)), extent(0, 30), "a unit that begins before the device");
        let any = DiscardUnits::default();
        assert_eq!((any.outside(extent(3, 5)), any.inside(extent(3, 5))), (extent(3, 5), extent(3, 5)));
    }

    proptest! {
        #[test]
        fn units_match_a_search(size in 1..50_u64, first in any::<u64>(), start in 0..300_u64, length in 0..200_u64) {
            let units = DiscardUnits::new(Bytes(size), Bytes(first));
            let is_start = |address: u64| address % size == first % size;
            let given = extent(start, start + length);
            let before = (0..=start).rev().find(|at| is_start(*at)).unwrap_or(0);
            let after = (given.end.0..).find(|at| is_start(*at)).unwrap();
            prop_assert_eq!(units.outside(given), extent(before, after));
            let bounds: Vec<u64> = (start..=given.end.0).filter(|at| is_start(*at)).collect();
            match bounds.as_slice() {
                [first, .., last] => prop_assert_eq!(units.inside(given), extent(*first, *last)),
                _ => prop_assert!(units.inside(given).is_empty()),
            }
        }

        #[test]
        fn units_take_any_address(size: u64, first: u64, start: u64, length: u64) {
            let units = DiscardUnits::new(Bytes(size), Bytes(first));
            let given = extent(start, start.saturating_add(length));
            let (outside, inside) = (units.outside(given), units.inside(given));
            prop_assert!(outside.start <= given.start && outside.end >= given.end);
            prop_assert!(inside.start >= given.start && inside.end <= given.end);
        }
    }
}
