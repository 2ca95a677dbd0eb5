//! The results of several trims in a row.

use std::time::{Duration, Instant};

use trimtab_core::policy::LONGEST_TRIM;
use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::trim::TrimError;

/// The result of several trims in a row.
#[derive(Debug)]
pub struct TrimSeries {
    /// The ranges that were trimmed.
    pub trimmed: ExtentSet,
    /// How long the devices were busy with them.
    pub took: Duration,
    /// The sum of the kernel's figures, which mean different things; see [`trimtab_linux::trim::Done`].
    pub reported: Bytes,
    /// The bytes of them that a device holds back, and will count later.
    pub held: Bytes,
    /// The error that ended the series, if any. Part of the range that failed may have been discarded.
    pub outcome: Result<(), TrimError>,
}

/// A call of FITRIM that succeeded.
pub(super) struct Called {
    /// The range that was trimmed.
    pub range: Extent,
    /// How long the devices were busy with it.
    pub took: Duration,
    /// The free extents of the range that it left out.
    pub left: ExtentSet,
    /// The kernel's figure.
    pub reported: Bytes,
}

impl Called {
    pub fn whole(range: Extent, took: Duration, reported: Bytes) -> Self {
        Self { range, took, left: ExtentSet::new(), reported }
    }
}

impl TrimSeries {
    /// Calls `trim`, which returns how long the devices were busy, for each of `ranges` in order of address,
    /// until it fails or the series has taken too long.
    pub fn of(ranges: &ExtentSet, mut trim: impl FnMut(Extent) -> Result<Duration, TrimError>) -> Self {
        let trim = |range| Ok(Some(Called::whole(range, trim(range)?, Bytes::ZERO)));
        Self::of_pieces(ranges.iter(), Some(LONGEST_TRIM), trim)
    }

    /// Calls `trim`, which returns none for what is left out, for each of `pieces`, until it fails or the series has taken
    /// `longest`.
    pub(super) fn of_pieces<Piece>(
        pieces: impl IntoIterator<Item = Piece>,
        longest: Option<Duration>,
        mut trim: impl FnMut(Piece) -> Result<Option<Called>, TrimError>,
    ) -> Self {
        let begun = Instant::now();
        let mut series = Self::nothing(Ok(()));
        for piece in pieces {
            match trim(piece) {
                Ok(Some(Called { range, took, left, reported })) => {
                    series.reported += reported;
                    series.trimmed.insert(range);
                    left.iter().for_each(|extent| series.trimmed.remove(extent));
                    series.took += took;
                }
                Ok(None) => {}
                Err(error) => return Self { outcome: Err(error), ..series },
            }
            if longest.is_some_and(|longest| series.took.max(begun.elapsed()) >= longest) {
                break;
            }
        }
        series
    }

    /// A series that failed with `error` and trimmed nothing.
    pub fn failed(error: TrimError) -> Self {
        Self::nothing(Err(error))
    }

    fn nothing(outcome: Result<(), TrimError>) -> Self {
        Self {
            trimmed: ExtentSet::new(),
            took: Duration::ZERO,
            reported: Bytes::ZERO,
            held: Bytes::ZERO,
            outcome,
        }
    }
}
