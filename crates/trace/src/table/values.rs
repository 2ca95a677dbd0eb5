//! Numbers of tables.

use arrow_schema::TimeUnit;

use crate::error::RowError;
use crate::text::{number, unknown};

/// The least whole number that a float of 64 bits does not tell from the next.
const PAST_EXACT: f64 = 9_007_199_254_740_992.0;
/// The same of a float of 32 bits.
const PAST_EXACT_SINGLE: f64 = 16_777_216.0;

/// The nanoseconds of a unit of Arrow.
pub(super) const fn nanoseconds(unit: TimeUnit) -> u64 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1000,
        TimeUnit::Nanosecond => 1,
    }
}

/// Returns `value` in units of `unit`.
pub(super) fn counted(column: &'static str, value: i64, unit: u64) -> Result<u64, RowError> {
    let wrong = |problem| unknown(column, value.to_string().as_bytes(), problem);
    let units = u64::try_from(value).map_err(|_| wrong("is negative"))?;
    units.checked_mul(unit).ok_or_else(|| wrong("is too large"))
}

/// The whole number that a float is, none for NaN; pandas makes floats of columns with missing values.
pub(super) fn double(column: &'static str, value: f64) -> Result<Option<u64>, RowError> {
    if value.is_nan() { Ok(None) } else { whole(column, value, PAST_EXACT).map(Some) }
}

/// The whole number that a float of 32 bits is, none for NaN.
pub(super) fn single(column: &'static str, value: f32) -> Result<Option<u64>, RowError> {
    if value.is_nan() { Ok(None) } else { whole(column, value.into(), PAST_EXACT_SINGLE).map(Some) }
}

fn whole(column: &'static str, value: f64, past: f64) -> Result<u64, RowError> {
    let is_whole = value.fract() == 0.0 && (0.0..past).contains(&value);
    let wrong = || {
        unknown(column, value.to_string().as_bytes(), "is no whole number that a float can tell from others")
    };
    is_whole.then_some(value as u64).ok_or_else(wrong)
}

/// The number that a field of CSV is; `None` if it is missing.
pub(super) fn number_of(column: &'static str, text: &[u8]) -> Result<Option<u64>, RowError> {
    if text.first().is_some_and(u8::is_ascii_digit) && text.iter().all(u8::is_ascii_digit) {
        return number(column, text).map(Some);
    }
    match text {
        b"" | b"nan" | b"NaN" | b"null" | b"NULL" | b"NA" | b"<NA>" | b"None" => Ok(None),
        _ => {
            let value = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
            let value = value.ok_or_else(|| unknown(column, text, "is no number, or too large a one"))?;
            double(column, value)
        }
    }
}

/// The number of a row that must have one.
pub(super) fn required(column: &'static str, value: Option<u64>) -> Result<u64, RowError> {
    value.ok_or_else(|| unknown(column, b"", "is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_read_however_they_are_written() {
        for (text, expected) in [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("850.0", Some(850)),
            ("8.5e2", Some(850)),
            ("9007199254740991.0", Some((1 << 53) - 1)),
            ("", None),
            ("NaN", None),
        ] {
            assert_eq!(number_of("n", text.as_bytes()).unwrap(), expected, "{text}");
        }
        for text in [
            "-1",
            "0.5",
            "1e17",
            "9007199254740992.0",
            "9007199254740993.0",
            "18446744073709551616",
            "x",
            "inf",
            "-0.5",
        ] {
            assert!(number_of("n", text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn floats_that_could_be_several_numbers_are_refused() {
        assert_eq!(double("n", 9_007_199_254_740_991.0).unwrap(), Some((1 << 53) - 1));
        assert!(double("n", 9_007_199_254_740_992.0).is_err());
        assert_eq!(single("n", 16_777_215.0).unwrap(), Some((1 << 24) - 1));
        assert!(single("n", 16_777_216.0).is_err());
        assert_eq!((single("n", f32::NAN).unwrap(), double("n", f64::NAN).unwrap()), (None, None));
    }
}
