//! Byte ranges, and sets of them.

use std::fmt;
use std::str::FromStr;

use rangemap::RangeSet;
use serde::{Deserialize, Serialize};

use crate::units::{Bytes, UnitError};

/// A byte range `start..end` on a device or in a file system's trim address space.
///
/// ```
/// use trimtab_core::{Bytes, Extent};
///
/// let extent: Extent = "1M..3M".parse().unwrap();
/// assert_eq!(extent, Extent::at(Bytes::MIB, Bytes::MIB * 2));
/// assert_eq!(extent.len(), Bytes::MIB * 2);
/// assert_eq!(extent.to_string(), "1048576..3145728");
///
/// // A drive that unmaps whole units of 2 MiB finds none in this extent.
/// assert!(extent.aligned_inside(Bytes::MIB * 2).is_empty());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Ends")]
pub struct Extent {
    /// The first byte.
    pub start: Bytes,
    /// One past the last byte.
    pub end: Bytes,
}

/// An extent as a document has it.
#[derive(Deserialize)]
struct Ends {
    start: Bytes,
    end: Bytes,
}

/// An extent of a document ends before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an extent from byte {} cannot end at byte {}; it must end at or after its start", .start.0, .end.0)]
struct Backwards {
    start: Bytes,
    end: Bytes,
}

impl TryFrom<Ends> for Extent {
    type Error = Backwards;
    fn try_from(Ends { start, end }: Ends) -> Result<Self, Backwards> {
        if start <= end { Ok(Self { start, end }) } else { Err(Backwards { start, end }) }
    }
}

impl Extent {
    /// The extent `start..end`.
    ///
    /// # Panics
    /// If `end` is before `start`.
    pub fn new(start: Bytes, end: Bytes) -> Self {
        assert!(start <= end, "an extent ends at or after its start");
        Self { start, end }
    }

    /// The extent of `length` bytes from `start`, which ends at the last address that can be told.
    pub fn at(start: Bytes, length: Bytes) -> Self {
        Self { start, end: start + length }
    }

    /// The number of bytes it covers.
    pub fn len(self) -> Bytes {
        self.end - self.start
    }

    /// Whether it covers nothing.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Returns the range that both cover; empty where they share nothing.
    pub fn intersect(self, other: Self) -> Self {
        let start = self.start.max(other.start);
        Self { start, end: self.end.min(other.end).max(start) }
    }

    /// The largest extent inside this one whose ends are multiples of `granularity` bytes; where there
    /// is none, an empty one at its start. This is what a drive that honours `granularity` does with a
    /// discard.
    ///
    /// # Panics
    /// If `granularity` is zero.
    pub fn aligned_inside(self, granularity: Bytes) -> Self {
        let end = self.end.0 / granularity.0 * granularity.0;
        match self.start.0.checked_next_multiple_of(granularity.0) {
            Some(start) if start < end => Self { start: Bytes(start), end: Bytes(end) },
            _ => Self { start: self.start, end: self.start },
        }
    }
}

/// Why a text is no extent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtentError {
    /// There is no `..` in it.
    #[error("{0:?} is not a range; write it like \"1G..3G\"")]
    Shape(String),
    /// One of its ends is not an address.
    #[error(transparent)]
    End(#[from] UnitError),
    /// It ends before it starts, or where it starts.
    #[error("{0:?} holds nothing: it must end after it starts")]
    Empty(String),
}

impl FromStr for Extent {
    type Err = ExtentError;
    fn from_str(text: &str) -> Result<Self, ExtentError> {
        let (start, end) = text.split_once("..").ok_or_else(|| ExtentError::Shape(text.to_owned()))?;
        let (start, end) = (start.parse::<Bytes>()?, end.parse::<Bytes>()?);
        if start < end { Ok(Self { start, end }) } else { Err(ExtentError::Empty(text.to_owned())) }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}..{}", self.start.0, self.end.0)
    }
}

/// A set of bytes, kept as sorted extents.
///
/// Invariant: no extent in it is empty, no two overlap and no two touch.
///
/// ```
/// use trimtab_core::{Bytes, Extent, ExtentSet};
///
/// let extent = |start, end| Extent::new(Bytes(start), Bytes(end));
/// let mut pending = ExtentSet::new();
/// pending.insert(extent(0, 4096));
/// pending.insert(extent(4096, 8192)); // touches the first, so that both become one
/// assert_eq!(pending.count(), 1);
///
/// pending.remove(extent(2048, 4096));
/// assert_eq!(pending.iter().collect::<Vec<_>>(), [extent(0, 2048), extent(4096, 8192)]);
/// assert_eq!(pending.gaps(extent(0, 8192)).collect::<Vec<_>>(), [extent(2048, 4096)]);
/// assert_eq!(pending.len(), Bytes(6144));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(into = "Vec<Extent>", from = "Vec<Extent>")]
pub struct ExtentSet(RangeSet<u64>);

impl ExtentSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds every byte of `extent`.
    pub fn insert(&mut self, extent: Extent) {
        if !extent.is_empty() {
            self.0.insert(extent.start.0..extent.end.0);
        }
    }

    /// Takes every byte of `extent` out.
    pub fn remove(&mut self, extent: Extent) {
        if !extent.is_empty() {
            self.0.remove(extent.start.0..extent.end.0);
        }
    }

    /// Whether the set holds the byte at `address`.
    pub fn contains(&self, address: Bytes) -> bool {
        self.0.contains(&address.0)
    }

    /// The extents, in order of address.
    pub fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        self.0.iter().map(|range| Extent::new(Bytes(range.start), Bytes(range.end)))
    }

    /// Returns the parts of `extent` that the set holds, in order of address.
    pub fn inside(&self, extent: Extent) -> impl Iterator<Item = Extent> + '_ {
        let outer = extent.start.0..extent.end.0;
        let overlapping: Vec<_> =
            if extent.is_empty() { Vec::new() } else { self.0.overlapping(&outer).cloned().collect() };
        overlapping
            .into_iter()
            .map(move |range| Extent::new(Bytes(range.start), Bytes(range.end)).intersect(extent))
    }

    /// Returns the parts of `extent` that the set doesn't hold, in order of address.
    pub fn gaps(&self, extent: Extent) -> impl Iterator<Item = Extent> + '_ {
        let outer = extent.start.0..extent.end.0;
        let gaps: Vec<_> = if extent.is_empty() { Vec::new() } else { self.0.gaps(&outer).collect() };
        gaps.into_iter().map(|range| Extent::new(Bytes(range.start), Bytes(range.end)))
    }

    /// The bytes that both sets hold.
    pub fn intersect(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).collect())
    }

    /// The number of extents.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The number of bytes.
    pub fn len(&self) -> Bytes {
        self.iter().map(Extent::len).sum()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Extent> for ExtentSet {
    fn from_iter<I: IntoIterator<Item = Extent>>(extents: I) -> Self {
        let mut set = Self::new();
        extents.into_iter().for_each(|extent| set.insert(extent));
        set
    }
}

impl From<Vec<Extent>> for ExtentSet {
    fn from(extents: Vec<Extent>) -> Self {
        extents.into_iter().collect()
    }
}

impl From<ExtentSet> for Vec<Extent> {
    fn from(set: ExtentSet) -> Self {
        set.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, prop, prop_assert, prop_assert_eq, proptest};

    use super::*;

    const SPACE: u64 = 64;

    fn extents() -> impl Strategy<Value = Extent> {
        (0..=SPACE, 0..=SPACE).prop_map(|(a, b)| Extent::new(Bytes(a.min(b)), Bytes(a.max(b))))
    }

    fn apply(steps: &[(bool, Extent)]) -> (ExtentSet, Vec<bool>) {
        let (mut set, mut bitmap) = (ExtentSet::new(), vec![false; SPACE as usize]);
        for &(insert, extent) in steps {
            if insert {
                set.insert(extent)
            } else {
                set.remove(extent)
            }
            bitmap[extent.start.0 as usize..extent.end.0 as usize].fill(insert);
        }
        (set, bitmap)
    }

    fn bits(set: &ExtentSet) -> Vec<bool> {
        (0..SPACE).map(|byte| set.contains(Bytes(byte))).collect()
    }

    #[test]
    fn extent_is_parsed_in_common_notations() {
        assert_eq!("1G..3 GiB".parse(), Ok(Extent::new(Bytes::GIB, Bytes(3 << 30))));
        for (text, message) in [
            ("1G", "\"1G\" is not a range; write it like \"1G..3G\""),
            ("2G..1G", "\"2G..1G\" holds nothing: it must end after it starts"),
            (
                "1G..2 bits",
                "\"2 bits\" has no known unit; write one of B, K, M, G, T (or KiB and so on), kB, MB, GB, TB",
            ),
        ] {
            assert_eq!(text.parse::<Extent>().unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn an_extent_of_a_document_ends_after_it_starts() {
        let extent = Extent::new(Bytes(1), Bytes(1));
        let json = serde_json::to_string(&extent).unwrap();
        assert_eq!(
            (json.as_str(), serde_json::from_str(&json).unwrap()),
            ("{\"start\":1,\"end\":1}", extent)
        );
        let error = serde_json::from_str::<Extent>("{\"start\": 2, \"end\": 1}").unwrap_err().to_string();
        assert!(error.contains("from byte 2 cannot end at byte 1"), "{error}");
    }

    proptest! {
        #[test]
        fn set_matches_a_bitmap(steps in prop::collection::vec((prop::bool::ANY, extents()), 0..40)) {
            let (set, bitmap) = apply(&steps);
            prop_assert_eq!(bits(&set), bitmap.clone());
            prop_assert_eq!(set.len().0 as usize, bitmap.iter().filter(|bit| **bit).count());
            let list: Vec<_> = set.iter().collect();
            prop_assert_eq!(list.len(), set.count());
            prop_assert!(list.iter().all(|extent| !extent.is_empty()));
            prop_assert!(list.windows(2).all(|pair| pair[0].end < pair[1].start));
        }

        #[test]
        fn gaps_and_held_parts_match_a_bitmap(
            steps in prop::collection::vec((prop::bool::ANY, extents()), 0..40),
            window in extents(),
        ) {
            let (set, bitmap) = apply(&steps);
            let gaps: ExtentSet = set.gaps(window).collect();
            let held: ExtentSet = set.inside(window).collect();
            for byte in 0..SPACE {
                let inside = window.start.0 <= byte && byte < window.end.0;
                prop_assert_eq!(gaps.contains(Bytes(byte)), inside && !bitmap[byte as usize]);
                prop_assert_eq!(held.contains(Bytes(byte)), inside && bitmap[byte as usize]);
            }
        }

        #[test]
        fn an_intersection_is_a_bitwise_and(
            left in prop::collection::vec((prop::bool::ANY, extents()), 0..20),
            right in prop::collection::vec((prop::bool::ANY, extents()), 0..20),
        ) {
            let ((a, a_bits), (b, b_bits)) = (apply(&left), apply(&right));
            let both: Vec<_> = a_bits.iter().zip(&b_bits).map(|(a, b)| *a && *b).collect();
            prop_assert_eq!(bits(&a.intersect(&b)), both);
        }

        #[test]
        fn alignment_keeps_whole_grains_only(extent in extents(), grain in 1..9u64) {
            let inside = extent.aligned_inside(Bytes(grain));
            let whole = (0..SPACE / grain).filter(|g| {
                extent.start.0 <= g * grain && (g + 1) * grain <= extent.end.0
            });
            prop_assert_eq!(inside.len().0, whole.count() as u64 * grain);
            prop_assert_eq!(inside.intersect(extent), inside);
        }

        #[test]
        fn alignment_stays_inside_at_any_address(a: u64, b: u64, grain in 1..=u64::MAX) {
            let extent = Extent::new(Bytes(a.min(b)), Bytes(a.max(b)));
            let inside = extent.aligned_inside(Bytes(grain));
            prop_assert!(extent.start <= inside.start && inside.start <= inside.end && inside.end <= extent.end);
        }
    }
}
