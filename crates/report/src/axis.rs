//! The value axis of a chart.

use crate::number::significant;
use crate::spread::Spread;

/// The nearest value that an axis can end at: between those that have no logarithm.
fn shown(value: f64) -> f64 {
    value.clamp(f64::MIN_POSITIVE, f64::MAX)
}

/// The value axis: logarithmic where the values span more than [`Axis::LINEAR_SPAN`].
pub struct Axis {
    /// Whether it is logarithmic.
    pub log: bool,
    low: f64,
    high: f64,
}

impl Axis {
    /// The largest span, from the smallest value above zero to the largest, shown on a linear axis.
    const LINEAR_SPAN: f64 = 50.0;
    /// The largest span of a logarithmic axis; smaller values stand at its foot.
    const LOG_SPAN: f64 = 1e7;

    /// The axis for these values; none where no value is above zero.
    pub fn of<'a>(values: impl Iterator<Item = &'a Spread>) -> Option<Self> {
        let ends: Vec<_> = values.filter(|value| value.median > 0.0).collect();
        let largest = ends.iter().map(|value| value.max).max_by(f64::total_cmp)?;
        let smallest = ends.iter().map(|value| value.median).min_by(f64::total_cmp)?;
        Some(if largest > Self::LINEAR_SPAN * smallest {
            Self::log(smallest, largest)
        } else {
            Self::linear(largest * 1.08)
        })
    }

    /// The linear axis from zero to `largest`, which is above zero.
    pub fn linear(largest: f64) -> Self {
        Self { log: false, low: 0.0, high: shown(largest) }
    }

    /// The linear axis for values from `smallest` to `largest`, both at least zero. It begins at zero, or further up where
    /// that would press the values together; it is never so short that differences of a few percent look large.
    pub fn range(smallest: f64, largest: f64) -> Self {
        let (smallest, largest) = (smallest.min(f64::MAX), shown(largest));
        let margin = ((largest - smallest) / 8.0).max(largest / 10.0);
        let low = if smallest < largest / 2.0 { 0.0 } else { smallest - margin };
        Self { log: false, low, high: shown(largest + margin) }
    }

    /// The logarithmic axis for values from `smallest` to `largest`, both above zero.
    pub fn log(smallest: f64, largest: f64) -> Self {
        let (smallest, largest) = (shown(smallest), shown(largest));
        let low = shown((smallest / 2.0).max(largest / Self::LOG_SPAN));
        Self { log: true, low, high: shown(largest * (largest / low).powf(0.08)) }
    }

    /// The logarithmic axis for sizes from `smallest` to `largest` bytes, both above zero.
    pub fn sizes(smallest: f64, largest: f64) -> Self {
        Self { log: true, low: shown(smallest / 1.5), high: shown(largest * 1.5) }
    }

    /// Where `value` stands: 0 at the foot, 1 at the top.
    pub fn part(&self, value: f64) -> f64 {
        if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    /// The sizes to name along it, in order: powers of two, at most nine.
    pub fn size_ticks(&self) -> Vec<f64> {
        let powers = self.low.log2().ceil() as i32..=self.high.log2().floor() as i32;
        let every = powers.clone().count().div_ceil(9).max(1) as i32;
        powers.filter(|power| power % every == 0).map(|power| 2_f64.powi(power)).collect()
    }

    /// The values to name along it, in order.
    pub fn ticks(&self) -> Vec<f64> {
        if !self.log {
            let rough = (self.high - self.low) / 6.0;
            let decade = 10_f64.powf(rough.log10().floor());
            let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * decade).into_iter().find(|step| *step >= rough);
            let step = step.unwrap_or(rough);
            let first = (self.low / step).ceil() as u32;
            return (first..=(self.high / step) as u32).map(|n| f64::from(n) * step).collect();
        }
        let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let within: &[f64] = match self.high / self.low {
            ..10.0 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
            ..1e3 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        decades
            .flat_map(|power| within.iter().map(move |n| n * 10_f64.powi(power)))
            .filter(|tick| (self.low..=self.high).contains(tick))
            .collect()
    }
}

/// A tick's figure without trailing zeros, in thousands (k) or millions (M) where it is long.
pub fn tick_label(tick: f64) -> String {
    let (scale, unit) = match tick {
        ..1e4 => (1.0, ""),
        ..1e6 => (1e3, " k"),
        _ => (1e6, " M"),
    };
    let text = significant(tick / scale);
    let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{short}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(values: &[f64]) -> Option<Axis> {
        let exact = |value: &f64| Spread { median: *value, min: *value, max: *value };
        Axis::of(values.iter().map(exact).collect::<Vec<_>>().iter())
    }

    #[test]
    fn a_wide_range_gets_a_log_axis_that_holds_every_value() {
        for (values, log) in [
            (vec![1.0, 49.0], false),
            (vec![0.1, 10_000.0], true),
            (vec![3.0, 151.0], true),
            (vec![7.0], false),
            (vec![0.0, 2.0], false),
        ] {
            let axis = axis(&values).unwrap();
            assert_eq!(axis.log, log, "{values:?}");
            assert!(values.iter().all(|value| (0.0..=1.0).contains(&axis.part(*value))), "{values:?}");
            assert!((3..=9).contains(&axis.ticks().len()), "{values:?}: {:?}", axis.ticks());
        }
        for values in
            [[1.0, f64::MAX], [5e-324, 1.0], [5e-324, 5e-324], [f64::INFINITY, 1.0], [1e307, f64::MAX]]
        {
            let axis = axis(&values).unwrap();
            assert!(axis.ticks().len() <= 9, "{values:?}: {:?}", axis.ticks());
            assert!(Axis::sizes(values[0], values[1]).size_ticks().len() <= 10, "{values:?}");
        }
        assert!(axis(&[0.0]).is_none());
        assert!(axis(&[]).is_none());
    }

    #[test]
    fn a_range_holds_its_values_apart() {
        for (smallest, largest) in [(0.0, 7.0), (95.0, 100.0), (100.0, 100.0), (40.0, 100.0), (1e-9, 1e-9)] {
            let axis = Axis::range(smallest, largest);
            let parts = [smallest, largest].map(|value| axis.part(value));
            assert!(parts.iter().all(|part| (0.0..=1.0).contains(part)), "{smallest} {largest}: {parts:?}");
            assert!((3..=9).contains(&axis.ticks().len()), "{smallest} {largest}: {:?}", axis.ticks());
        }
        let near = Axis::range(95.0, 100.0);
        let apart = near.part(100.0) - near.part(95.0);
        assert!((0.15..0.5).contains(&apart), "a difference of 5 %: {apart}");
        assert_eq!(Axis::range(40.0, 100.0).part(0.0), 0.0);
    }

    #[test]
    fn ticks_are_short() {
        let ticks = [0.0, 0.05, 1.0, 2500.0, 10_000.0, 250_000.0, 1e6];
        assert_eq!(ticks.map(tick_label), ["0", "0.05", "1", "2500", "10 k", "250 k", "1 M"]);
    }
}
