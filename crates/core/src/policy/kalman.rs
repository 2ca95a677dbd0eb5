//! The Kalman filter: an estimate of several values from measurements of weighted sums of them.
//!
//! R. E. Kalman, "A New Approach to Linear Filtering and Prediction Problems", Journal of Basic Engineering 82,
//! 1960.

/// Estimates of N values.
#[derive(Debug, Clone)]
pub(super) struct Estimate<const N: usize> {
    /// The values.
    pub values: [f64; N],
    covariance: [[f64; N]; N],
}

impl<const N: usize> Estimate<N> {
    pub fn new(values: [f64; N], covariance: [[f64; N]; N]) -> Self {
        Self { values, covariance }
    }

    /// The values may have changed since the last measurement: adds `variance` to the variance of each, up to `most`.
    pub fn drift(&mut self, variance: f64, most: [f64; N]) {
        for (i, row) in self.covariance.iter_mut().enumerate() {
            row[i] = (row[i] + variance).min(most[i]);
        }
    }

    /// The sum of the values, each times its weight.
    pub fn sum(&self, weights: [f64; N]) -> f64 {
        dot(self.values, weights)
    }

    /// The variance of the [`sum`](Self::sum).
    pub fn variance(&self, weights: [f64; N]) -> f64 {
        dot(self.covariance.map(|row| dot(row, weights)), weights).max(0.0)
    }

    /// Corrects the values by a measurement of their [`sum`](Self::sum) that exceeds it by `error`, and that has
    /// this variance.
    pub fn correct(&mut self, weights: [f64; N], error: f64, variance: f64) {
        let seen = self.covariance.map(|row| dot(row, weights));
        let expected = dot(seen, weights) + variance;
        for (value, seen) in self.values.iter_mut().zip(seen) {
            *value += seen / expected * error;
        }
        for (row, left) in self.covariance.iter_mut().zip(seen) {
            for (cell, right) in row.iter_mut().zip(seen) {
                *cell -= left * right / expected;
            }
        }
    }

    /// Keeps each value within the least and the largest that it can have.
    pub fn keep_within(&mut self, bounds: [(f64, f64); N]) {
        for (value, (least, most)) in self.values.iter_mut().zip(bounds) {
            *value = value.clamp(least, most);
        }
    }
}

fn dot<const N: usize>(values: [f64; N], weights: [f64; N]) -> f64 {
    values.iter().zip(weights).map(|(value, weight)| value * weight).sum()
}
