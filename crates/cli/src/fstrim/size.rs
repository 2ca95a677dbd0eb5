//! Sizes as util-linux reads and prints them.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;

/// The suffixes, each 1024 (or, before `B`, 1000) times the one before.
const SUFFIXES: &[u8] = b"KMGTPEZY";

/// Reads a number of bytes: decimal, octal with a leading `0`, or hexadecimal with `0x`, then `K`, `KiB`
/// (1024), `KB` (1000) and so on. A number with a suffix may have a decimal fraction.
///
/// # Errors
/// `EINVAL`, or `ERANGE` above 2^64 - 1.
pub fn parse(text: &OsStr) -> io::Result<u64> {
    size(text.as_bytes().trim_ascii_start()).map_err(io::Error::from)
}

fn size(text: &[u8]) -> Result<u64, Errno> {
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let (whole, rest) = integer(text)?;
    if rest.is_empty() {
        return Ok(whole);
    }
    let (digits, suffix) = match rest.strip_prefix(b".") {
        Some(rest) => rest.split_at(rest.iter().take_while(|byte| byte.is_ascii_digit()).count()),
        None => (&[][..], rest),
    };
    let unit = unit(suffix)?;
    // With more digits the product could overflow; they make a difference only with suffixes above TiB.
    let digits = &digits[..digits.len().min(14)];
    let fraction = digits.iter().fold(0, |fraction, digit| fraction * 10 + u128::from(digit - b'0'));
    let fraction = unit * fraction / 10_u128.pow(digits.len() as u32);
    let bytes = unit.checked_mul(whole.into()).and_then(|bytes| bytes.checked_add(fraction));
    bytes.and_then(|bytes| bytes.try_into().ok()).ok_or(Errno::RANGE)
}

/// Reads the integer at the beginning of `text`, and returns what follows.
fn integer(text: &[u8]) -> Result<(u64, &[u8]), Errno> {
    let hex = match text {
        [b'0', b'x' | b'X', digits @ ..] if digits.first().is_some_and(u8::is_ascii_hexdigit) => Some(digits),
        _ => None,
    };
    let (digits, base) = match (hex, text.first()) {
        (Some(digits), _) => (digits, 16),
        (None, Some(b'0')) => (text, 8),
        _ => (text, 10),
    };
    let value = |byte: &u8| char::from(*byte).to_digit(base);
    let count = digits.iter().take_while(|byte| value(byte).is_some()).count();
    if count == 0 {
        return Err(Errno::INVAL);
    }
    let number = digits[..count]
        .iter()
        .filter_map(value)
        .try_fold(0_u64, |number, digit| number.checked_mul(base.into())?.checked_add(digit.into()));
    Ok((number.ok_or(Errno::RANGE)?, &digits[count..]))
}

/// Returns the number of bytes in the unit `suffix`.
fn unit(suffix: &[u8]) -> Result<u128, Errno> {
    let (letter, base) = match suffix {
        [letter] | [letter, b'i', b'B' | b'b'] => (letter, 1024_u128),
        [letter, b'B' | b'b'] => (letter, 1000),
        _ => return Err(Errno::INVAL),
    };
    let power =
        SUFFIXES.iter().position(|suffix| *suffix == letter.to_ascii_uppercase()).ok_or(Errno::INVAL)?;
    Ok(base.pow(power as u32 + 1))
}

/// Returns `bytes` with at most one decimal: `1.5 GiB`.
pub fn human(bytes: u64) -> String {
    let power = (63 - bytes.max(1).leading_zeros()) / 10;
    let Some(suffix) = power.checked_sub(1).map(|index| char::from(SUFFIXES[index as usize])) else {
        return format!("{bytes} B");
    };
    let unit = 1_u128 << (10 * power);
    let thousandths = u128::from(bytes) % unit * 1000 / unit;
    let tenths = u128::from(bytes) / unit * 10 + (thousandths + 50) / 100;
    match tenths % 10 {
        0 => format!("{} {suffix}iB", tenths / 10),
        tenth => format!("{}.{tenth} {suffix}iB", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_all_bases_and_suffixes() {
        for (text, bytes) in [
            ("0", 0),
            (" +12", 12),
            ("010", 8),
            ("0x1F", 31),
            ("0x10K", 16 << 10),
            ("3k", 3 << 10),
            ("3KiB", 3 << 10),
            ("3kb", 3000),
            ("2GB", 2_000_000_000),
            ("1.5M", 3 << 19),
            ("0.25GiB", 1 << 28),
            ("1.K", 1 << 10),
            ("0Y", 0),
            ("18446744073709551615", u64::MAX),
            ("15.99999999999999999999E", u64::MAX),
        ] {
            let found = parse(OsStr::new(text)).unwrap();
            assert!(found.abs_diff(bytes) <= bytes >> 40, "{text}: {found}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", " ", "abc", "-1", "1.5", "1.", "08", "1Q", "1KK", "1KiBs", "1.5.5K", "1 K", "."] {
            let refused = parse(OsStr::new(text)).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(Errno::INVAL.raw_os_error()), "{text:?}");
        }
        for text in ["18446744073709551616", "16E", "1Z", "20Y", "99999999999999999999"] {
            let refused = parse(OsStr::new(text)).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(Errno::RANGE.raw_os_error()), "{text:?}");
        }
    }

    #[test]
    fn sizes_are_printed_with_one_decimal() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (1 << 20, "1 MiB"),
            ((1 << 20) - 1, "1024 KiB"),
            (80_314_368, "76.6 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }
}
