//! A cell of the curve in the figures that a fit needs.

use super::Cell;
use crate::stats::median;
use crate::units::Bytes;

/// How many samples of its own outweigh what the other cells say of a cell's spread.
const PRIOR_SAMPLES: f64 = 5.0;

/// A cell's median and how far to trust it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) size: Bytes,
    pub(super) gib: f64,
    pub(super) commands: f64,
    pub(super) median_us: f64,
    /// The variance of the median's relative error.
    pub(super) variance: f64,
}

/// The cells that counted something, smallest size first.
///
/// The error of a median is half the distance between the quantiles one standard deviation of its
/// rank to either side (R. S. Woodruff, "Confidence Intervals for Medians and Other Position
/// Measures", Journal of the American Statistical Association 47, 1952). A few samples can't show
/// their spread, so it is drawn towards what is usual of the curve.
pub(super) fn points(cells: &[Cell]) -> Vec<Point> {
    let spreads: Vec<_> = cells
        .iter()
        .filter_map(|cell| {
            let (count, _, error) = middle(cell)?;
            (count > PRIOR_SAMPLES).then(|| error * count.sqrt())
        })
        .collect();
    let usual = median(&spreads).unwrap_or(0.0).powi(2);
    let mut points: Vec<_> = cells
        .iter()
        .filter_map(|cell| {
            let (count, median_us, error) = middle(cell)?;
            let variance = (count * error.powi(2) + PRIOR_SAMPLES * usual / count) / (count + PRIOR_SAMPLES);
            Some(Point {
                size: cell.size,
                gib: cell.size.gib(),
                commands: cell.commands,
                median_us,
                variance,
            })
        })
        .collect();
    points.sort_by_key(|point| point.size);
    points
}

/// How many samples a cell has, their median in microseconds, and its relative standard error.
fn middle(cell: &Cell) -> Option<(f64, f64, f64)> {
    let count = cell.latencies.total() as f64;
    let at = |quantile| cell.latencies.quantile(quantile).map(|ns| ns.max(1) as f64 / 1e3);
    let median_us = at(0.5)?;
    let one_deviation = 0.5 / count.sqrt();
    let error = (at(0.5 + one_deviation)? - at(0.5 - one_deviation)?) / 2.0 / median_us;
    Some((count, median_us, error))
}
