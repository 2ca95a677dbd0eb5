//! Numbers in lines of text.

use crate::error::RowError;

/// The number that `text` is.
#[inline]
pub(crate) fn number(column: &'static str, text: &[u8]) -> Result<u64, RowError> {
    // Numbers of so few digits do not overflow.
    if (1..=19).contains(&text.len()) {
        let (mut value, mut are_digits) = (0_u64, true);
        for byte in text {
            let digit = byte.wrapping_sub(b'0');
            are_digits &= digit <= 9;
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        }
        if are_digits {
            return Ok(value);
        }
    }
    long_number(column, text)
}

/// The number that a text of any length is.
#[cold]
fn long_number(column: &'static str, text: &[u8]) -> Result<u64, RowError> {
    let digits = |value: u64, digit: &u8| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 { None } else { value.checked_mul(10)?.checked_add(u64::from(digit)) }
    };
    let value = if text.is_empty() { None } else { text.iter().try_fold(0, digits) };
    value.ok_or_else(|| unknown(column, text, "is no number, or too large a one"))
}

/// Returns the number that hexadecimal digits are; nothing for a sign, another byte or too many digits.
pub(crate) fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u64::from_str_radix(text, 16).ok()
}

/// `value` units; each is `unit` large.
pub(crate) fn scaled(column: &'static str, value: u64, unit: u64) -> Result<u64, RowError> {
    value.checked_mul(unit).ok_or_else(|| unknown(column, value.to_string().as_bytes(), "is too large"))
}

/// The nanoseconds that `text`, seconds with or without decimals, is; what is below a nanosecond is cut off.
pub(crate) fn seconds(column: &'static str, text: &[u8]) -> Result<u64, RowError> {
    let wrong = || unknown(column, text, "is no number of seconds, or too large a one");
    let dot = memchr::memchr(b'.', text).unwrap_or(text.len());
    let (whole, decimals) = (&text[..dot], text.get(dot + 1..).unwrap_or_default());
    if dot < text.len() && decimals.is_empty() {
        return Err(wrong());
    }
    let below = billionths(decimals).ok_or_else(wrong)?;
    let whole = number(column, whole)?.checked_mul(1_000_000_000);
    whole.and_then(|whole| whole.checked_add(below)).ok_or_else(wrong)
}

/// The nanoseconds that a number of milliseconds is.
pub(crate) fn milliseconds(column: &'static str, text: &[u8]) -> Result<u64, RowError> {
    let wrong = || unknown(column, text, "is no number of milliseconds");
    let dot = memchr::memchr(b'.', text).unwrap_or(text.len());
    let whole = scaled(column, number(column, &text[..dot])?, 1_000_000)?;
    let below = billionths(text.get(dot + 1..).unwrap_or_default()).ok_or_else(wrong)?;
    whole.checked_add(below / 1000).ok_or_else(wrong)
}

/// The billionths that digits behind a decimal point are; `None` if they are no digits.
fn billionths(decimals: &[u8]) -> Option<u64> {
    let digit = |digit: &u8| u64::from(digit - b'0');
    let sum = |sum, place| sum * 10 + decimals.get(place).map_or(0, digit);
    decimals.iter().all(u8::is_ascii_digit).then(|| (0..9).fold(0, sum))
}

/// Returns the error of a field that makes no sense.
pub(crate) fn unknown(column: &'static str, text: &[u8], problem: &'static str) -> RowError {
    let text = &text[..text.len().min(80)];
    RowError::Name { column, name: String::from_utf8_lossy(text).into_owned(), problem }
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn seconds_are_read_to_the_nanosecond() {
        for (text, expected) in [
            ("0", 0),
            ("12", 12_000_000_000),
            ("1.5", 1_500_000_000),
            ("1456135200.013118000", 1_456_135_200_013_118_000),
            ("5218128.1812390005", 5_218_128_181_239_000),
        ] {
            assert_eq!(seconds("t", text.as_bytes()).unwrap(), expected, "{text}");
        }
        for text in ["", ".", "1.", ".5", "1.5e3", "-1", "1.-5", "1,5", "99999999999.0", "1.2.3"] {
            assert!(seconds("t", text.as_bytes()).is_err(), "{text}");
        }
    }
}
