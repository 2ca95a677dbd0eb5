//! Where extents of a trace lie on the drive it is replayed on.

use trimtab_core::trace::EventKind;
use trimtab_core::{Bytes, Extent};

/// Scales addresses of a traced device to those of a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// The traced device's size, above zero.
    pub from: Bytes,
    /// The drive's size: whole pages.
    pub to: Bytes,
}

/// Where extents of a trace lie on a drive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    scale: Option<Scale>,
    page: Bytes,
}

impl Addresses {
    /// Addresses as in the trace, unless they are scaled.
    pub(super) fn new(scale: Option<Scale>, page: Bytes) -> Self {
        Self { scale: scale.filter(|scale| scale.from != scale.to), page }
    }

    /// The extent on the drive. Scaled ends are rounded down to pages, both in the same way, so that
    /// what touched still touches; a read or a write keeps a page at least.
    pub(super) fn place(&self, kind: EventKind, extent: Extent) -> Extent {
        let Some(scale) = self.scale else { return extent };
        let scaled = |address: Bytes| {
            let exact = u128::from(address.0) * u128::from(scale.to.0) / u128::from(scale.from.0);
            Bytes(exact as u64 / self.page.0 * self.page.0)
        };
        let placed = Extent { start: scaled(extent.start), end: scaled(extent.end) };
        let transfers = matches!(kind, EventKind::Read | EventKind::Write | EventKind::WriteZeroes);
        if transfers && placed.is_empty() && !extent.is_empty() {
            return Extent::at(placed.start, self.page);
        }
        placed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    proptest! {
        #[test]
        fn adjacent_extents_stay_adjacent_when_scaled(
            from in 1..1u64 << 50, pages in 1..1u64 << 30, mut cuts in proptest::array::uniform3(0.0..=1.0),
        ) {
            cuts.sort_by(f64::total_cmp);
            let to = Bytes(pages * 4096);
            let addresses = Addresses::new(Some(Scale { from: Bytes(from), to }), Bytes(4096));
            let [a, b, c] = cuts.map(|cut| Bytes((cut * from as f64) as u64));
            let left = addresses.place(EventKind::Free, Extent::new(a, b));
            let right = addresses.place(EventKind::Free, Extent::new(b, c));
            prop_assert_eq!(left.end, right.start);
            let write = addresses.place(EventKind::Write, Extent::new(a, b));
            prop_assert!(left.start <= left.end && right.end <= to);
            prop_assert_eq!(write.is_empty(), a == b);
            prop_assert!(write.end <= to || b.0 == from || from == to.0);
        }
    }

    #[test]
    fn the_same_size_keeps_every_byte() {
        let same = Addresses::new(Some(Scale { from: Bytes(8192), to: Bytes(8192) }), Bytes(4096));
        let odd = Extent::new(Bytes(512), Bytes(1024));
        assert_eq!(same.place(EventKind::Discard, odd), odd);
        let half = Addresses::new(Some(Scale { from: Bytes(16_384), to: Bytes(8192) }), Bytes(4096));
        assert!(half.place(EventKind::Discard, odd).is_empty());
        assert_eq!(half.place(EventKind::Write, odd), Extent::at(Bytes::ZERO, Bytes(4096)));
    }
}
