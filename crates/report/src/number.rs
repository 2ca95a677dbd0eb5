//! Figures as people read them.

use trimtab_core::units::Bytes;

/// `value` with three significant digits, and its thousands set apart by no-break spaces.
pub fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let decimals = 2 - value.abs().log10().floor() as i32;
    grouped(&format!("{value:.*}", decimals.clamp(0, 6) as usize))
}

/// A count, to the nearest whole.
pub fn count(value: f64) -> String {
    grouped(&format!("{value:.0}"))
}

/// A time of `seconds`, in ms where it is short.
pub fn seconds(value: f64) -> String {
    if value == 0.0 || value >= 0.1 {
        format!("{} s", significant(value))
    } else {
        format!("{} ms", significant(value * 1e3))
    }
}

/// A time of `us` microseconds, in the unit that suits it: `30.0 µs`, `10.1 ms`, `1.20 s`.
pub fn latency(us: f64) -> String {
    let (scale, unit) = match us {
        ..1e3 => (1.0, "µs"),
        ..1e6 => (1e3, "ms"),
        _ => (1e6, "s"),
    };
    format!("{} {unit}", significant(us / scale))
}

/// A size of about `bytes`: `1.50 MiB`.
pub fn bytes(bytes: f64) -> String {
    let (scale, unit) = match bytes {
        ..1024.0 => (Bytes(1), "B"),
        ..1_048_576.0 => (Bytes::KIB, "KiB"),
        ..1_073_741_824.0 => (Bytes::MIB, "MiB"),
        _ => (Bytes::GIB, "GiB"),
    };
    format!("{} {unit}", significant(bytes / scale.0 as f64))
}

/// `value` in at most six characters, for a column whose heading names the unit: `<0.01`, `0.16`, `8.84`,
/// `54.5`, `1234`, `1.2e6`.
pub fn compact(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        ..0.005 => "<0.01".to_owned(),
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        ..99_999.5 => count(value),
        _ => format!("{value:.1e}"),
    }
}

/// A multiple of something: `4.1×`.
pub fn times(ratio: f64) -> String {
    if ratio.is_infinite() {
        return "∞×".to_owned();
    }
    let decimals = match ratio {
        ..0.01 => 4,
        0.01..0.1 => 3,
        0.1..2.0 => 2,
        2.0..10.0 => 1,
        _ => 0,
    };
    format!("{}×", grouped(&format!("{ratio:.decimals$}")))
}

/// A part of one as whole percents: `38 %`.
pub fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

/// Text from outside made harmless for a terminal: control characters are replaced.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// `digits` with no-break spaces between the thousands of its whole part, from 10 000 on.
fn grouped(digits: &str) -> String {
    let whole = digits.find('.').unwrap_or(digits.len());
    let mut out = String::new();
    for (place, digit) in digits.char_indices() {
        if whole > 4 && 0 < place && place < whole && (whole - place).is_multiple_of(3) {
            out.push('\u{a0}');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.012_345, "0.0123"),
            (1.0, "1.00"),
            (61.234, "61.2"),
            (999.6, "1000"),
            (1234.5, "1234"),
            (12_345.6, "12\u{a0}346"),
            (1e-12, "0.000000"),
        ] {
            assert_eq!(significant(value), text, "{value}");
        }
        assert_eq!(count(1_234_567.0), "1\u{a0}234\u{a0}567");
        assert_eq!(seconds(0.0451), "45.1 ms");
        assert_eq!(seconds(12.0), "12.0 s");
        let figures = [0.0, 0.004, 0.157, 8.838, 99.96, 1234.4, 23_521.0, 1.2e18].map(compact);
        assert_eq!(figures, ["0", "<0.01", "0.16", "8.84", "100", "1234", "23\u{a0}521", "1.2e18"]);
        let latencies = [0.0, 30.04, 999.6, 1000.0, 10_100.0, 1e6, 1.2e9].map(latency);
        assert_eq!(latencies, ["0 µs", "30.0 µs", "1000 µs", "1.00 ms", "10.1 ms", "1.00 s", "1200 s"]);
        assert_eq!(
            [0.003, 0.04, 1.016, 4.12, 64.4].map(times),
            ["0.0030×", "0.040×", "1.02×", "4.1×", "64×"]
        );
        assert_eq!(printable("a\u{1b}[31mb"), "a\u{fffd}[31mb");
    }
}
