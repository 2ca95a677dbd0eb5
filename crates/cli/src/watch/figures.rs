//! Figures in few columns.

use trimtab_core::stats::LatencySummary;
use trimtab_core::{Bytes, Nanos};

/// An amount a second: `0`, `0.4`, `17`, `1.2k`.
pub fn rate(a_second: f64) -> String {
    if a_second > 0.0 && a_second < 9.95 {
        format!("{a_second:.1}")
    } else {
        scaled(a_second, 1000.0, ["", "k", "M", "G"])
    }
}

/// A number of bytes, in powers of 1024: `0`, `512`, `4K`, `1.5M`.
pub fn size(bytes: f64) -> String {
    scaled(bytes, 1024.0, ["", "K", "M", "G", "T"])
}

/// A mean or median; a dash of nothing.
pub fn size_of(bytes: Option<Bytes>) -> String {
    bytes.map_or_else(nothing, |bytes| size(bytes.0 as f64))
}

/// One of the percentiles of a latency; a dash where there is none.
pub fn latency(latency: Option<LatencySummary>, pick: fn(&LatencySummary) -> Nanos) -> String {
    latency.as_ref().map(pick).map_or_else(nothing, |Nanos(ns)| match ns {
        0..1_000_000 => scaled(ns as f64 / 1e3, 1000.0, ["us"]),
        1_000_000..1_000_000_000 => scaled(ns as f64 / 1e6, 1000.0, ["ms"]),
        _ => scaled(ns as f64 / 1e9, 1000.0, ["s"]),
    })
}

/// What stands where there is no figure.
pub fn nothing() -> String {
    "-".to_owned()
}

fn scaled<const N: usize>(mut value: f64, step: f64, units: [&str; N]) -> String {
    let mut unit = 0;
    // What would round up to the next unit is shown in it.
    while unit + 1 < N && value >= step - 0.5 {
        value /= step;
        unit += 1;
    }
    let whole = value >= 9.95 || value.fract() == 0.0;
    format!("{value:.*}{}", usize::from(!whole), units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_take_six_columns() {
        for (value, text) in [
            (0.0, "0"),
            (0.04, "0.0"),
            (9.94, "9.9"),
            (9.96, "10"),
            (999.4, "999"),
            (1234.0, "1.2k"),
            (187e3, "187k"),
        ] {
            assert_eq!(rate(value), text, "{value}");
        }
        for (bytes, text) in [
            (0.0, "0"),
            (512.0, "512"),
            (4096.0, "4K"),
            (4097.0, "4.0K"),
            (1e6, "977K"),
            (1_048_500.0, "1.0M"),
            (3e12, "2.7T"),
        ] {
            assert_eq!(size(bytes), text, "{bytes}");
        }
        let summary = |ns| Some(LatencySummary { p50_ns: Nanos(ns), ..LatencySummary::default() });
        for (ns, text) in
            [(0, "0us"), (1_500, "1.5us"), (999_900, "1000us"), (1_000_000, "1ms"), (2_500_000_000, "2.5s")]
        {
            assert_eq!(latency(summary(ns), |latency| latency.p50_ns), text, "{ns}");
        }
        assert_eq!(latency(None, |latency| latency.p50_ns), "-");
    }
}
