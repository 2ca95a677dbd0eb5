//! Formats figures in few columns.

use trimtab_core::stats::LatencySummary;
use trimtab_core::{Bytes, Nanos};

/// Formats an amount per second: `0`, `0.4`, `17`, `1.2k`.
pub fn rate(a_second: f64) -> String {
    if a_second > 0.0 && a_second < 9.95 {
        format!("{a_second:.1}")
    } else {
        scaled(a_second, 1000.0, ["", "k", "M", "G"])
    }
}

/// Formats a count: `0`, `99999`, `123k`.
pub fn count(things: u64) -> String {
    if things < 100_000 { things.to_string() } else { scaled(things as f64, 1000.0, ["", "k", "M", "G"]) }
}

/// Formats a number of bytes: `512 B`, `4 KiB`, `1.5 MiB`.
pub fn size(bytes: f64) -> String {
    scaled(bytes, 1024.0, [" B", " KiB", " MiB", " GiB", " TiB"])
}

/// Formats a mean or median; a dash if there is none.
pub fn size_of(bytes: Option<Bytes>) -> String {
    bytes.map_or_else(nothing, |bytes| size(bytes.0 as f64))
}

/// Formats a percentile of a latency; a dash if there is none.
pub fn latency(latency: Option<LatencySummary>, pick: fn(&LatencySummary) -> Nanos) -> String {
    let us = latency.as_ref().map(pick).map(|Nanos(ns)| ns as f64 / 1e3);
    us.map_or_else(nothing, |us| scaled(us, 1000.0, [" us", " ms", " s"]))
}

/// Returns the placeholder for a missing figure.
pub fn nothing() -> String {
    "-".to_owned()
}

fn scaled<const N: usize>(mut value: f64, step: f64, units: [&str; N]) -> String {
    let mut unit = 0;
    // A value of four digits is shown in the next unit.
    while unit + 1 < N && value >= 999.5 {
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
    fn figures_take_seven_columns() {
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
        for (things, text) in [(0, "0"), (99_999, "99999"), (123_456, "123k"), (1_500_000, "1.5M")] {
            assert_eq!(count(things), text);
        }
        for (bytes, text) in [
            (0.0, "0 B"),
            (512.0, "512 B"),
            (1000.0, "1.0 KiB"),
            (4096.0, "4 KiB"),
            (4097.0, "4.0 KiB"),
            (1e6, "977 KiB"),
            (1_048_500.0, "1.0 MiB"),
            (3e12, "2.7 TiB"),
        ] {
            assert_eq!(size(bytes), text, "{bytes}");
        }
        let summary = |ns| Some(LatencySummary { p50_ns: Nanos(ns), ..LatencySummary::default() });
        for (ns, text) in [
            (0, "0 us"),
            (1_500, "1.5 us"),
            (999_900, "1.0 ms"),
            (1_000_000, "1 ms"),
            (2_500_000_000, "2.5 s"),
        ] {
            assert_eq!(latency(summary(ns), |latency| latency.p50_ns), text, "{ns}");
        }
        assert_eq!(latency(None, |latency| latency.p50_ns), "-");
    }
}
