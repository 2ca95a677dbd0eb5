//! A figure over repeated runs.

use serde::Serialize;
use trimtab_core::stats::median;

/// The median of some runs' samples, and how far they lie apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The middle sample.
    pub median: f64,
    /// The smallest sample.
    pub min: f64,
    /// The largest sample.
    pub max: f64,
}

/// Medians closer than this are taken for equal even where the runs' ranges don't overlap: figures
/// are only promised to repeat within 5 %.
const REPEATABLE: f64 = 0.05;

impl Spread {
    /// The spread of these samples; none of no samples.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let samples: Vec<f64> = samples.into_iter().collect();
        Some(Self {
            median: median(&samples)?,
            min: samples.iter().copied().fold(f64::INFINITY, f64::min),
            max: samples.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }

    /// This median in multiples of `base`'s, infinite where only that is zero; none where both are.
    pub fn ratio(self, base: Self) -> Option<f64> {
        (self.median > 0.0 || base.median > 0.0).then(|| self.median / base.median)
    }

    /// Whether this and `other` differ by more than their runs do among themselves, and by more
    /// than figures are promised to repeat.
    pub fn differs(self, other: Self) -> bool {
        let apart = self.min > other.max || other.min > self.max;
        let larger = self.median.max(other.median);
        apart && (self.median - other.median).abs() > REPEATABLE * larger
    }

    /// Half of the range from smallest to largest, as a part of the median; zero for a median of
    /// zero.
    pub fn half_range(self) -> f64 {
        if self.median > 0.0 { (self.max - self.min) / 2.0 / self.median } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_has_the_median_and_the_ends() {
        let spread = Spread::of([4.0, 1.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.0, min: 1.0, max: 4.0 });
        assert_eq!(spread.half_range(), 0.75);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn a_difference_is_more_than_noise() {
        let spread = |samples: [f64; 3]| Spread::of(samples).unwrap();
        let base = spread([100.0, 101.0, 102.0]);
        assert!(!base.differs(spread([102.0, 150.0, 160.0])), "the ranges touch");
        assert!(!base.differs(spread([104.0, 104.0, 104.0])), "within 5 %");
        assert!(base.differs(spread([110.0, 111.0, 112.0])));
        assert!(spread([110.0, 111.0, 112.0]).differs(base));
        assert!(!spread([0.0; 3]).differs(spread([0.0; 3])));
        assert!(spread([0.0; 3]).differs(base));
    }
}
