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

    /// The values may have changed by so much since the last measurement: adds `variance` to each of them, up to
    /// `most`.
    pub fn drift(&mut self, variance: f64, most: [f64; N]) {
        for (i, row) in self.covariance.iter_mut().enumerate() {
            row[i] = (row[i] + variance).min(most[i]);
        }
    }

    /// The sum of the values, each times its weight, was measured to be by `error` larger than it is by the
    /// estimates. A measurement has this variance by itself.
    pub fn correct(&mut self, weights: [f64; N], error: f64, variance: f64) {
        let sum =
            |terms: [f64; N]| -> f64 { terms.iter().zip(weights).map(|(term, weight)| term * weight).sum() };
        let seen = self.covariance.map(sum);
        let expected = sum(seen) + variance;
        for (value, seen) in self.values.iter_mut().zip(seen) {
            *value += seen / expected * error;
        }
        for (row, left) in self.covariance.iter_mut().zip(seen) {
            for (cell, right) in row.iter_mut().zip(seen) {
                *cell -= left * right / expected;
            }
        }
    }
}
