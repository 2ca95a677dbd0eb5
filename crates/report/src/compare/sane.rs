//! The range of figures that may be measurements.

/// `value` where it may be a measurement: times beyond 30 000 years and below a picosecond, and
/// negative ones, are not.
pub fn sane(value: f64) -> Option<f64> {
    match value {
        0.0 | 1e-12..=1e12 => Some(value),
        0.0..1e-12 => Some(0.0),
        _ => None,
    }
}
