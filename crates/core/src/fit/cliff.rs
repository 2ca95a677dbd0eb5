//! Where a curve is cut into straight segments.
//!
//! The best cuts into two, three and more segments are found by dynamic programming (J. Bai and P.
//! Perron, "Computation and Analysis of Multiple Structural Change Models", Journal of Applied
//! Econometrics 18, 2003), which no order of the cliffs can mislead. More segments are taken where
//! the F-test says so. A cut adds two parameters, and F with two and m degrees of freedom exceeds
//! its value for losses C0 and C1 with a probability of (C1 / C0)^(m / 2). The best of all places
//! was chosen, so that this has to be below [`FALSE_RATE`] shared among them: Bonferroni's bound of
//! the supremum that D. W. K. Andrews treats in "Tests for Parameter Instability and Structural
//! Change with Unknown Change Point", Econometrica 61, 1993. Huber's loss stands in for the sum of
//! squares, as in R. M. Schrader and T. P. Hettmansperger, "Robust Analysis of Variance Based Upon
//! a Likelihood Ratio Criterion", Biometrika 67, 1980.

use super::line::{Line, Noise, PARAMETERS};
use super::point::Point;

/// How often a straight curve may be cut, about.
const FALSE_RATE: f64 = 0.015;
/// The fewest points of a segment: one or two are more likely cells that something disturbed.
const FEWEST_POINTS: usize = 3;
/// The most segments that are looked for.
const MOST_SEGMENTS: usize = 5;
/// The least mean loss that is believed: points that lie closer to their lines than half their
/// noise do so by luck.
const LEAST_LOSS: f64 = 0.125;

/// Some segments, by the point that each begins with.
#[derive(Debug, Clone)]
struct Cut {
    loss: f64,
    starts: Vec<usize>,
}

impl Cut {
    /// Whether this is better than `other`, which has fewer segments, by more than the noise of
    /// `points` points can make it.
    fn is_needed(&self, other: &Self, points: usize) -> bool {
        let freedom = points.saturating_sub(PARAMETERS * self.starts.len()) as f64;
        let places = (points + 1 - 2 * FEWEST_POINTS) as f64;
        let added = (self.starts.len() - other.starts.len()) as f64;
        let ratio = other.loss / self.loss.max(LEAST_LOSS * freedom);
        freedom / 2.0 * ratio.ln() > added * (places / FALSE_RATE).ln()
    }
}

/// The straight segments of the curve through `points`, smallest sizes first: one where there is no
/// cliff, none where there are too few points.
pub(super) fn segments(points: &[Point], noise: Noise) -> Vec<&[Point]> {
    let losses: Vec<Vec<_>> = (0..points.len())
        .map(|from| (from..=points.len()).map(|to| loss(&points[from..to], noise)).collect())
        .collect();
    let mut best: Vec<Option<Cut>> = (0..=points.len())
        .map(|to| Some(Cut { loss: (*losses.first()?.get(to)?)?, starts: vec![0] }))
        .collect();
    let Some(mut chosen) = best[points.len()].clone() else { return Vec::new() };
    for _ in 1..MOST_SEGMENTS {
        let one_more = |to: usize| {
            let longer = (0..to).filter_map(|from| {
                let before = best[from].as_ref()?;
                Some((before.loss + losses[from][to - from]?, from, before))
            });
            let (loss, from, before) = longer.min_by(|left, right| left.0.total_cmp(&right.0))?;
            Some(Cut { loss, starts: before.starts.iter().copied().chain([from]).collect() })
        };
        best = (0..=points.len()).map(one_more).collect();
        match &best[points.len()] {
            Some(cut) if cut.is_needed(&chosen, points.len()) => chosen = cut.clone(),
            Some(_) => {}
            None => break,
        }
    }
    let ends = chosen.starts[1..].iter().copied().chain([points.len()]);
    chosen.starts.iter().zip(ends).map(|(start, end)| &points[*start..end]).collect()
}

/// Huber's loss of a segment around its own line; none of a segment that is too short.
fn loss(segment: &[Point], noise: Noise) -> Option<f64> {
    let long_enough = segment.len() >= FEWEST_POINTS;
    long_enough.then(|| noise.loss(segment, Line::robust(segment, noise, Line::weighted)))
}
