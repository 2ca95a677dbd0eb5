//! Estimates the cost of a discard from the times of discards of several sizes.
//!
//! A drive takes `command` for each discard and `per_gib` for each GiB named in it, so a discard of
//! `s` bytes takes t(s) = command + s × per_gib: what [`Discard`](crate::profile::Discard) holds,
//! with the cost of further ranges in the slope. [`cost`] finds the two from a curve of measured
//! sizes, and [`cliffs`] the sizes at which a drive does something else than this line.
//!
//! Sizes span six decades and latencies five, so a distance from the line counts relative to the
//! line. Each size, a cell, is represented by its median, which single slow samples don't move.
//! Whole cells that are off move the line little: it is fitted by Huber's M-estimator. Intervals
//! come from a parametric bootstrap with two noises: the error of each cell's median, as its own
//! samples show it, and what makes cells differ on a machine that does other work meanwhile, as
//! their distances from the line show it.

mod cliff;
mod line;
mod point;
mod random;

use crate::document::bench::{Cliff, Estimate, LatencyHistogram};
use crate::stats::median;
use crate::units::Bytes;
use line::{Line, Noise};
use point::{Point, points};

/// The fewest cells that a line is fitted to: one more than it has parameters.
const FEWEST_CELLS: usize = 3;
/// The most cells that cliffs are looked for in; of more, some are left out, evenly.
const MOST_POINTS: usize = 96;

/// One size of the curve, and how long discards of it took.
#[derive(Debug, Clone, Copy)]
pub struct Cell<'a> {
    /// The bytes that each discard named.
    pub size: Bytes,
    /// How many commands the drive got for each: more than one where the kernel split it.
    pub commands: f64,
    /// How long they took.
    pub latencies: &'a LatencyHistogram,
}

/// The cost of a discard.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// The cost of each command, in microseconds; not below zero.
    pub command_us: Estimate,
    /// The cost of each GiB, in milliseconds; not below zero. An interval that begins at zero says
    /// that the sizes don't reach far enough to tell.
    pub per_gib_ms: Estimate,
    /// The median relative distance of the cells from the line: 0.05 is 5 %.
    pub residual: f64,
    /// How many cells it was fitted to.
    pub cells: usize,
}

/// The cost of a command and of a GiB, each with its 95 % interval; none of fewer than three
/// sizes. Cells that counted nothing are left out. The same cells always give the same figures.
pub fn cost(cells: &[Cell]) -> Option<Cost> {
    let points = points(cells);
    let sizes = points.chunk_by(|left, right| left.size == right.size).count();
    if sizes < FEWEST_CELLS {
        return None;
    }
    let (line, noise) = Line::of(&points);
    let distances: Vec<_> = points.iter().map(|point| line.distance(point).abs()).collect();
    let drawn = line::bootstrap(&points, line, noise);
    Some(Cost {
        command_us: interval(line, &drawn, |line| line.command_us.max(0.0)),
        per_gib_ms: interval(line, &drawn, |line| line.per_gib_us / 1e3),
        residual: median(&distances)?,
        cells: points.len(),
    })
}

/// The sizes at which the cost changes its slope, or jumps, beyond the noise, smallest first. A
/// discard that the kernel splits is taken as one, so that what the split costs shows as well.
///
/// The curve is cut into as many straight segments as an F-test finds significant (Bai and Perron,
/// "Computation and Analysis of Multiple Structural Change Models", 2003). Each has at least three
/// sizes. A straight curve is cut in less than 2 % of runs; a jump of five times the noise between
/// cells is found in about nine runs of ten, one of three times in about half.
pub fn cliffs(cells: &[Cell]) -> Vec<Cliff> {
    let whole: Vec<_> = cells.iter().map(|cell| Cell { commands: 1.0, ..*cell }).collect();
    let all = points(&whole);
    let stride = all.len().div_ceil(MOST_POINTS).max(1);
    let points: Vec<_> = all.into_iter().step_by(stride).collect();
    let noise = Noise::of_neighbours(&points);
    let segments = cliff::segments(&points, noise);
    let lines: Vec<_> = segments.iter().map(|segment| settled(segment, noise)).collect();
    let neighbours = segments.windows(2).zip(lines.windows(2));
    neighbours
        .map(|(segments, lines)| {
            let (last, first) = (&segments[0][segments[0].len() - 1], &segments[1][0]);
            let ((below, _), (above, drawn)) = (&lines[0], &lines[1]);
            Cliff {
                from: last.size,
                to: first.size,
                expected_us: below.at(first),
                found_us: interval(*above, drawn, |line| line.at(first)),
                before_ms_per_gib: below.per_gib_us / 1e3,
                after_ms_per_gib: above.per_gib_us / 1e3,
            }
        })
        .collect()
}

/// The line through a segment, and lines as other runs would have given it. A slope that the noise
/// alone may have made is none: over a few small sizes it would be enormous.
fn settled(segment: &[Point], noise: Noise) -> (Line, Vec<Line>) {
    let line = Line::robust(segment, noise, Line::weighted);
    let drawn = line::bootstrap(segment, line, noise);
    if interval(line, &drawn, |line| line.per_gib_us).low > 0.0 {
        return (line, drawn);
    }
    let flat = Line::robust(segment, noise, Line::flat);
    let drawn = drawn.into_iter().map(|line| Line { per_gib_us: 0.0, ..line }).collect();
    (flat, drawn)
}

/// A figure of `line` with the 95 % interval that `drawn` give it.
fn interval(line: Line, drawn: &[Line], figure: impl Fn(&Line) -> f64) -> Estimate {
    let value = figure(&line);
    let mut others: Vec<_> = drawn.iter().map(figure).collect();
    others.sort_by(f64::total_cmp);
    let at = |share: f64| others[(share * (others.len() - 1) as f64).round() as usize];
    Estimate { value, low: at(0.025).min(value), high: at(0.975).max(value) }
}

#[cfg(test)]
mod tests;
