//! The line command + size × per_gib through the points of a curve.

use super::point::Point;
use super::random::Random;
use crate::stats::median;

/// Where Huber's loss turns from squared to linear, in standard deviations: 95 % efficient where
/// the noise is normal (P. J. Huber, "Robust Statistics", 1981).
const HUBER: f64 = 1.345;
/// The most rounds of reweighting.
const ROUNDS: usize = 20;
/// A fit that moves by no more than this share is settled.
const SETTLED: f64 = 1e-4;
/// Halvings of an interval that the noise is in.
const HALVINGS: usize = 20;
/// Rounds in which the line and the noise settle on each other.
const NOISE_ROUNDS: usize = 5;
/// Runs that the bootstrap draws.
const DRAWS: usize = 400;
/// The variance between cells is at least the variance of 1 %: what is below is of no interest, and three
/// cells can agree better by chance.
const LEAST_VARIANCE: f64 = 1e-4;
/// The median of a chi-squared variable of one degree of freedom.
const MEDIAN_CHI_SQUARED: f64 = 0.4549;
/// How many parameters a line has.
pub(super) const PARAMETERS: usize = 2;

/// The cost of a discard.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line {
    pub(super) command_us: f64,
    pub(super) per_gib_us: f64,
}

/// The variance of what makes cells differ beside the errors of their medians, relative.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Noise(f64);

impl Line {
    /// The line through all `points`, and the noise around it.
    pub(super) fn of(points: &[Point]) -> (Self, Noise) {
        let mut noise = Noise(LEAST_VARIANCE);
        let mut line = Self::robust(points, noise, Self::weighted);
        for _ in 0..NOISE_ROUNDS {
            noise = Noise::around(points, line);
            line = Self::robust(points, noise, Self::weighted);
        }
        (line, noise)
    }

    /// The line that minimizes Huber's loss of the distances, by reweighted least squares with
    /// `step` as one of its steps. The weights follow the fitted line, not the noisy medians (R. J.
    /// Carroll and D. Ruppert, "Transformation and Weighting in Regression", 1988, chapter 2).
    pub(super) fn robust(points: &[Point], noise: Noise, step: fn(&[Point], &[f64]) -> Self) -> Self {
        let flat_weights: Vec<_> = points.iter().map(|point| point.median_us.powi(-2)).collect();
        let mut line = step(points, &flat_weights);
        for _ in 0..ROUNDS {
            let weights: Vec<_> = points
                .iter()
                .map(|point| {
                    let outlying = noise.deviations(line.distance(point), point).abs() / HUBER;
                    let variance = noise.variance(point) * line.yardstick(point).powi(2);
                    1.0 / (variance * outlying.max(1.0))
                })
                .collect();
            let before = std::mem::replace(&mut line, step(points, &weights));
            if points.iter().all(|point| (line.at(point) / before.at(point) - 1.0).abs() < SETTLED) {
                break;
            }
        }
        line
    }

    /// The line of the least weighted squares, with a slope of zero where that would be negative.
    pub(super) fn weighted(points: &[Point], weights: &[f64]) -> Self {
        let sum = |term: fn(&Point) -> f64| -> f64 {
            points.iter().zip(weights).map(|(point, weight)| weight * term(point)).sum()
        };
        let (cc, cs) = (sum(|p| p.commands * p.commands), sum(|p| p.commands * p.gib));
        let (ss, ct, st) =
            (sum(|p| p.gib * p.gib), sum(|p| p.commands * p.median_us), sum(|p| p.gib * p.median_us));
        let determinant = cc * ss - cs * cs;
        let per_gib_us = (cc * st - cs * ct) / determinant;
        if per_gib_us > 0.0 && determinant > f64::EPSILON * cc * ss {
            Self { command_us: (ct - cs * per_gib_us) / cc, per_gib_us }
        } else {
            Self::flat(points, weights)
        }
    }

    /// The line of the least weighted squares that has no slope.
    pub(super) fn flat(points: &[Point], weights: &[f64]) -> Self {
        let sum = |term: fn(&Point) -> f64| -> f64 {
            points.iter().zip(weights).map(|(point, weight)| weight * term(point)).sum()
        };
        let command_us = sum(|p| p.commands * p.median_us) / sum(|p| p.commands * p.commands);
        Self { command_us, per_gib_us: 0.0 }
    }

    /// The cost of a discard by this line, in microseconds.
    pub(super) fn at(&self, point: &Point) -> f64 {
        point.commands * self.command_us + point.gib * self.per_gib_us
    }

    /// How far a point lies above the line, relative to the line.
    pub(super) fn distance(&self, point: &Point) -> f64 {
        (point.median_us - self.at(point)) / self.yardstick(point)
    }

    /// The scale of a distance: the line, but no more than a factor of four from the point,
    /// as a line on its way to the best one may be near zero or below.
    fn yardstick(&self, point: &Point) -> f64 {
        self.at(point).clamp(point.median_us / 4.0, point.median_us * 4.0)
    }
}

impl Noise {
    /// The noise that makes the median squared distance from `line` what it should be, which is the
    /// estimator of R. C. Paule and J. Mandel ("Consensus Values and Weighting Factors", Journal of
    /// Research of the National Bureau of Standards 87, 1982) with medians in place of means.
    fn around(points: &[Point], line: Line) -> Self {
        let expected = MEDIAN_CHI_SQUARED * freedom(points) as f64 / points.len() as f64;
        let squares: Vec<_> =
            points.iter().map(|point| (line.distance(point).powi(2), point.variance)).collect();
        Self::that_explains(&squares, expected)
    }

    /// The noise by how far each point lies from the straight line between its neighbours, which
    /// neither a slope nor a few cliffs disturb (T. Gasser, L. Sroka and C. Jennen-Steinmetz,
    /// "Residual Variance and Residual Pattern in Nonlinear Regression", Biometrika 73, 1986).
    pub(super) fn of_neighbours(points: &[Point]) -> Self {
        let squares: Vec<_> = points
            .windows(3)
            .filter(|three| three[0].gib < three[2].gib)
            .map(|three| {
                let share = (three[1].gib - three[0].gib) / (three[2].gib - three[0].gib);
                let middle = three[1].median_us;
                let parts = [(1.0 - share) * three[0].median_us, share * three[2].median_us];
                let [before, after] = parts.map(|part| part / middle);
                let together = 1.0 + before.powi(2) + after.powi(2);
                let sampling = three[1].variance
                    + before.powi(2) * three[0].variance
                    + after.powi(2) * three[2].variance;
                ((1.0 - before - after).powi(2) / together, sampling / together)
            })
            .collect();
        Self::that_explains(&squares, MEDIAN_CHI_SQUARED)
    }

    /// The noise with which the median of `square / (noise + variance)` is `expected`.
    fn that_explains(squares: &[(f64, f64)], expected: f64) -> Self {
        let too_small = |noise: f64| {
            let ratios: Vec<_> =
                squares.iter().map(|(square, variance)| square / (noise + variance)).collect();
            median(&ratios).is_some_and(|median| median > expected)
        };
        let (mut low, mut high) = (LEAST_VARIANCE, LEAST_VARIANCE);
        while too_small(high) {
            (low, high) = (high, high * 2.0);
        }
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if too_small(middle) { low = middle } else { high = middle }
        }
        Self(high)
    }

    /// The variance of a point's relative distance from the true line.
    fn variance(self, point: &Point) -> f64 {
        self.0 + point.variance
    }

    fn deviations(self, distance: f64, point: &Point) -> f64 {
        distance / self.variance(point).sqrt()
    }

    /// By how much cells that lie far off widen what is known of the line: the square root of the
    /// asymptotic variance of Huber's estimator, (mean of psi²) / (mean of psi')², which is 1 where
    /// the noise is normal; never less.
    fn stretch(self, points: &[Point], line: Line) -> f64 {
        let deviations = points.iter().map(|point| self.deviations(line.distance(point), point).abs());
        let near = deviations.clone().filter(|far| *far < HUBER).count() as f64 / points.len() as f64;
        let clipped: f64 = deviations.map(|far| far.min(HUBER).powi(2)).sum();
        let freedom = freedom(points) as f64;
        ((clipped / freedom).sqrt() / near.max(0.5)).max(1.0)
    }

    /// Huber's loss of the distances of `points` from `line`.
    pub(super) fn loss(self, points: &[Point], line: Line) -> f64 {
        let loss = |deviations: f64| match deviations.abs() {
            far if far > HUBER => HUBER * (far - HUBER / 2.0),
            near => near.powi(2) / 2.0,
        };
        points.iter().map(|point| loss(self.deviations(line.distance(point), point))).sum()
    }
}

/// How many points there are beside those that a line needs; at least one.
fn freedom(points: &[Point]) -> usize {
    points.len().saturating_sub(PARAMETERS).max(1)
}

/// Lines as other runs on the same drive would have given them: the parametric bootstrap (B. Efron
/// and R. J. Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 6). The noise itself is
/// known by no more points than there are, so that its variance is drawn as well, from the
/// inverse chi-squared distribution; this widens intervals of few points as Student's t does.
pub(super) fn bootstrap(points: &[Point], line: Line, noise: Noise) -> Vec<Line> {
    let mut random = Random(points.len() as u64);
    let (freedom, stretch) = (freedom(points), noise.stretch(points, line));
    let mut other = points.to_vec();
    (0..DRAWS)
        .map(|_| {
            let stretch = stretch * (freedom as f64 / random.chi_squared(freedom)).sqrt();
            for (other, point) in other.iter_mut().zip(points) {
                let deviation = noise.variance(point).sqrt() * stretch * random.normal();
                other.median_us = line.at(point).max(0.0).max(point.median_us / 4.0) * deviation.exp();
            }
            Line::robust(&other, noise, Line::weighted)
        })
        .collect()
}
