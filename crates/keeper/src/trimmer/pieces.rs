//! Cuts a trim into calls of FITRIM that are short: nobody can unmount the file system during a call.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use trimtab_core::{Bytes, DiscardUnits, Extent, ExtentSet};
use trimtab_linux::ext4::Groups;

use super::chunk_limits::DiscardCost;

/// A call should take no longer, on a drive with discards that are shorter.
const LONGEST_PIECE: Duration = Duration::from_millis(50);
/// After a call that was shorter, the next one may be longer.
const SHORT_PIECE: Duration = Duration::from_millis(10);
/// The first, the shortest and the longest piece.
const FIRST: Bytes = Bytes(64 << 20);
const SHORTEST: Bytes = Bytes(1 << 20);
const LONGEST: Bytes = Bytes(16 << 30);

/// The length of a piece that takes some time; shared by those who trim a file system.
#[derive(Debug, Clone)]
pub struct PieceLength(Arc<Mutex<Bytes>>);

impl Default for PieceLength {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(FIRST)))
    }
}

impl PieceLength {
    fn get(&self) -> Bytes {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns that a piece of this length took so long, with this many discards. Of several, their number may be the reason.
    pub fn learn(&self, length: Bytes, took: Duration, discards: u64) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if took > LONGEST_PIECE && discards == 1 {
            *current = Bytes(length.0.min(current.0) / 2).max(SHORTEST);
        } else if took < SHORT_PIECE && length >= *current {
            *current = Bytes(current.0 * 2).min(LONGEST);
        }
    }
}

/// Where a trim can be cut.
#[derive(Debug, Clone)]
pub enum Cuts {
    /// Nowhere but between the ranges.
    Nowhere,
    /// ext4: between groups. A range that begins inside a free extent would discard what the one before it did.
    Groups(Groups),
    /// Anywhere.
    Anywhere(PieceLength),
}

/// The conditions that the pieces of a trim depend on.
pub struct Cutter<'a> {
    /// Where it can be cut.
    pub cuts: Cuts,
    /// The least length of the free extents that it discards.
    pub minimum: Bytes,
    /// The units in which the device takes discards: one on both sides of a cut is discarded by neither piece.
    pub units: DiscardUnits,
    /// The cost of a discard.
    pub cost: &'a DiscardCost,
    /// Returns the free extents in a range, in order; none where they are not known.
    pub free_in: &'a dyn Fn(Extent) -> Vec<Extent>,
}

/// A piece of a trim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The extents to trim.
    pub range: Extent,
    /// How many free extents it is known to hold.
    pub extents: usize,
}

impl Cutter<'_> {
    /// Returns the pieces of `ranges`, in their order. Their lengths, and how many free extents each has, are those that were
    /// learned by the time when they are asked for. None is shorter than the minimum, which would be left out, unless its range
    /// is.
    pub fn pieces<'a>(&'a self, ranges: &'a ExtentSet) -> impl Iterator<Item = Piece> + 'a {
        let mut ranges = ranges.iter();
        let mut free = Vec::new();
        let mut rest: Option<Extent> = None;
        std::iter::from_fn(move || {
            let range = match rest.take() {
                Some(rest) => rest,
                None => {
                    let range = ranges.next()?;
                    free = if let Cuts::Nowhere = self.cuts { Vec::new() } else { (self.free_in)(range) };
                    range
                }
            };
            let end = self.end_of_first(range).min(self.end_by_count(range, &free));
            rest = Some(Extent::new(end, range.end)).filter(|rest| !rest.is_empty());
            let extents = self.long_from(range, &free).take_while(|extent| extent.start < end).count();
            Some(Piece { range: Extent::new(range.start, end), extents })
        })
    }

    /// Returns the end of the first piece of `range`, by its length.
    fn end_of_first(&self, range: Extent) -> Bytes {
        match &self.cuts {
            Cuts::Nowhere => range.end,
            Cuts::Groups(groups) => groups.at(range.start).end.min(range.end),
            Cuts::Anywhere(length) => {
                let shortest = self.minimum.max(SHORTEST);
                let length = length.get().max(shortest) + self.units.size();
                let end = self.units.start_of(Bytes(range.start.0.saturating_add(length.0)));
                if range.end.saturating_sub(end) < shortest { range.end } else { end }
            }
        }
    }

    /// Returns the end of the first piece of `range` by the number of its discards: the start of the first extent that is too
    /// much.
    fn end_by_count(&self, range: Extent, free: &[Extent]) -> Bytes {
        let beyond = self.long_from(range, free).nth(self.cost.affordable(LONGEST_PIECE));
        let beyond = beyond.map_or(range.end, |extent| extent.start);
        if beyond <= range.start { range.end } else { beyond.min(range.end) }
    }

    /// Returns the free extents from the start of `range` on that are long enough to be discarded.
    fn long_from<'a>(&self, range: Extent, free: &'a [Extent]) -> impl Iterator<Item = &'a Extent> + use<'a> {
        let minimum = self.minimum;
        let first = free.partition_point(|extent| extent.end <= range.start);
        free[first..].iter().filter(move |extent| extent.len() >= minimum)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn pieces_become_shorter_on_a_slow_drive_and_longer_on_a_fast_one() {
        let length = PieceLength::default();
        length.learn(FIRST, Duration::from_millis(300), 1);
        assert_eq!(length.get(), Bytes(FIRST.0 / 2));
        length.learn(Bytes(4096), Duration::ZERO, 1);
        length.learn(length.get(), Duration::from_secs(1), 9);
        assert_eq!(length.get(), Bytes(FIRST.0 / 2), "a short range, or many discards, prove nothing");
        (0..40).for_each(|_| length.learn(length.get(), Duration::from_secs(1), 1));
        assert_eq!(length.get(), SHORTEST);
        (0..40).for_each(|_| length.learn(length.get(), Duration::ZERO, 1));
        assert_eq!(length.get(), LONGEST);
    }

    proptest! {
        #[test]
        fn pieces_cover_the_ranges_and_have_few_discards(
            raw in prop::collection::vec((1..400_u64, 1..900_u64), 1..8),
            holes in prop::collection::vec((0..90_u64, 1..200_u64), 0..60),
            kind in 0..3_u8, minimum in 0..300_u64, each in 1..60_u64, unit in 0..200_u64,
        ) {
            let lay_out = |raw: &[(u64, u64)]| -> ExtentSet {
                let mut next = 0;
                raw.iter().map(|(gap, length)| {
                    let extent = Extent::at(Bytes((next + gap + 1) << 20), Bytes(*length << 20));
                    next += gap + 1 + length;
                    extent
                }).collect()
            };
            let (ranges, free) = (lay_out(&raw), lay_out(&holes));
            let groups = Groups { first: Bytes(1 << 20), length: Bytes(128 << 20) };
            let cuts = match kind {
                0 => Cuts::Nowhere,
                1 => Cuts::Groups(groups),
                _ => Cuts::Anywhere(PieceLength::default()),
            };
            let cost = DiscardCost::default();
            cost.learn(Duration::from_millis(each * 50), 50, 50);
            let minimum = Bytes(minimum << 20);
            let free_in = |range: Extent| free.inside(range).collect::<Vec<_>>();
            let units = DiscardUnits::new(Bytes(unit << 16), Bytes(unit << 14));
            let cutter = Cutter { cuts, minimum, units, cost: &cost, free_in: &free_in };
            let pieces: Vec<_> = cutter.pieces(&ranges).collect();
            let found: Vec<_> = pieces.iter().map(|piece| piece.range).collect();
            prop_assert!(found.windows(2).all(|pair| pair[0].end <= pair[1].start));
            prop_assert!(found.iter().all(|piece| !piece.is_empty()));
            if kind == 1 {
                prop_assert!(found.iter().all(|piece| groups.at(piece.start).end >= piece.end));
            }
            // A cut inside a free extent is between two units.
            for pair in found.windows(2).filter(|pair| pair[0].end == pair[1].start) {
                let is_inside = free.iter().any(|free| free.start < pair[0].end && pair[0].end < free.end);
                let at_group = kind == 1 && groups.at(pair[1].start).start == pair[1].start;
                prop_assert!(!is_inside || at_group || units.start_of(pair[0].end) == pair[0].end);
            }
            if kind > 0 {
                let most = cost.affordable(LONGEST_PIECE);
                let whole = |piece: &Extent| {
                    let here = ranges.iter().find(|range| range.start <= piece.start && piece.end <= range.end);
                    let free: Vec<_> = free.inside(here.unwrap()).collect();
                    free.iter().filter(|extent| extent.len() >= minimum && piece.start <= extent.start && extent.end <= piece.end).count()
                };
                prop_assert!(found.iter().all(|piece| whole(piece) <= most));
                prop_assert!(pieces.iter().all(|piece| whole(&piece.range) <= piece.extents && piece.extents <= most));
            }
            prop_assert_eq!(found.into_iter().collect::<ExtentSet>(), ranges);
        }
    }
}
