//! Units as types: a byte count, a span of model time and a page count don't mix silently.
//!
//! Every unit reads and prints itself with its unit (`"4 KiB"`, `"10 ms"`, `"235 MB/s"`), which is
//! how drive profiles and command lines write them. KiB, MiB, GiB and TiB are powers of 1024; kB,
//! MB, GB and TB powers of 1000; a bare K, M, G or T means the power of 1024.
//!
//! Sums and products stay at 2^64 - 1 where they would pass it: a clock stands still at its end, and
//! totals of a document with impossible figures are as large as can be told.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The unit in which the kernel counts (sysfs, requests, device-mapper tables, logs), whatever a device's
/// own blocks are.
pub const SECTOR: Bytes = Bytes(512);

/// The error of a quantity that was read from text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The text doesn't start with a number.
    #[error("{0:?} is not a number with a unit; write it like {1:?}")]
    NotANumber(String, &'static str),
    /// The unit isn't one of this quantity's.
    #[error("{0:?} has no known unit; write one of {1}")]
    UnknownUnit(String, &'static str),
    /// Quantities here count things or measure spans: none is below zero.
    #[error("{0:?} is negative; it must be 0 or more")]
    Negative(String),
    /// More than 2^64 - 1 of the base unit.
    #[error("{0:?} is too large")]
    TooLarge(String),
}

/// Splits `text` into its number and unit and scales it to the base unit, rounding to the nearest.
fn parse_scaled(
    text: &str,
    example: &'static str,
    names: &'static str,
    scale: impl Fn(&str) -> Option<f64>,
) -> Result<u64, UnitError> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | '_')))
        .unwrap_or(text.len());
    let (number, unit) = (text[..digits].replace('_', ""), text[digits..].trim());
    let value: f64 = number.parse().map_err(|_| UnitError::NotANumber(text.to_owned(), example))?;
    let factor = scale(unit).ok_or_else(|| UnitError::UnknownUnit(text.to_owned(), names))?;
    // Floating point would round whole numbers above 2^53.
    if let (Ok(count), 0.0) = (number.parse::<u64>(), factor.fract()) {
        return count.checked_mul(factor as u64).ok_or_else(|| UnitError::TooLarge(text.to_owned()));
    }
    let scaled = (value * factor).round();
    if scaled < 0.0 || (value < 0.0) {
        Err(UnitError::Negative(text.to_owned()))
    } else if scaled >= u64::MAX as f64 {
        Err(UnitError::TooLarge(text.to_owned()))
    } else {
        Ok(scaled as u64)
    }
}

/// The size of one byte unit in bytes, by the name people write.
fn byte_unit(name: &str) -> Option<f64> {
    Some(match name {
        "" | "B" => 1.0,
        "K" | "k" | "KiB" => 1024.0,
        "M" | "m" | "MiB" => 1024.0 * 1024.0,
        "G" | "g" | "GiB" => 1024.0 * 1024.0 * 1024.0,
        "T" | "t" | "TiB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        _ => return None,
    })
}

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u64);

        impl $name {
            /// Nothing of it.
            pub const ZERO: Self = Self(0);

            /// The count in the base unit, for arithmetic that leaves the unit behind.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// `self - other`, or zero where that would be negative.
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl Mul<u64> for $name {
            type Output = Self;
            fn mul(self, times: u64) -> Self {
                Self(self.0.saturating_mul(times))
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }

        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self::ZERO, Add::add)
            }
        }
    };
}

/// Serializes a unit as its base count and reads it from a count or from text with a unit.
macro_rules! serde_unit {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_u64(self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                        write!(f, "a quantity with its unit, such as {:?}", $name::EXAMPLE)
                    }
                    fn visit_u64<E: de::Error>(self, count: u64) -> Result<$name, E> {
                        Ok($name(count))
                    }
                    fn visit_i64<E: de::Error>(self, count: i64) -> Result<$name, E> {
                        u64::try_from(count)
                            .map($name)
                            .map_err(|_| E::custom(UnitError::Negative(count.to_string())))
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }
    };
}

unit! {
    /// A number of bytes, or a byte address.
    ///
    /// ```
    /// use trimtab_core::Bytes;
    ///
    /// assert_eq!("1.5 GiB".parse(), Ok(Bytes(1_610_612_736)));
    /// assert_eq!("4k".parse(), Ok(Bytes::KIB * 4));
    /// assert_eq!("1 MB".parse(), Ok(Bytes(1_000_000)));
    /// assert_eq!(Bytes(128 << 20).to_string(), "128 MiB");
    ///
    /// let error = "4 parsecs".parse::<Bytes>().unwrap_err();
    /// assert!(error.to_string().starts_with("\"4 parsecs\" has no known unit; write one of B, K,"));
    /// ```
    Bytes
}
unit! {
    /// A span or an instant of model time, in nanoseconds. Never wall time: that is
    /// [`std::time::Duration`].
    Nanos
}
unit! {
    /// A number of mapping pages of a drive, or a logical page number.
    Pages
}
unit! {
    /// A transfer rate in bytes per second.
    Rate
}

serde_unit!(Bytes);
serde_unit!(Nanos);
serde_unit!(Rate);

impl Bytes {
    const EXAMPLE: &'static str = "4 KiB";
    /// 1 024 bytes.
    pub const KIB: Self = Self(1 << 10);
    /// 1 048 576 bytes.
    pub const MIB: Self = Self(1 << 20);
    /// 1 073 741 824 bytes.
    pub const GIB: Self = Self(1 << 30);

    /// The count in MiB.
    pub fn mib(self) -> f64 {
        self.0 as f64 / Self::MIB.0 as f64
    }

    /// The count in GiB.
    pub fn gib(self) -> f64 {
        self.0 as f64 / Self::GIB.0 as f64
    }
}

impl FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        if let Some(digits) = text.trim().strip_prefix("0x")
            && let Ok(bytes) = u64::from_str_radix(digits, 16)
        {
            return Ok(Self(bytes));
        }
        parse_scaled(text, Self::EXAMPLE, "B, K, M, G, T (or KiB and so on), kB, MB, GB, TB", byte_unit)
            .map(Self)
    }
}

impl fmt::Display for Bytes {
    /// The largest binary unit that leaves at least 1, with up to two decimals: `1.5 MiB`.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (mut value, mut unit) = (self.0 as f64, "B");
        for larger in ["KiB", "MiB", "GiB", "TiB"] {
            if value < 1024.0 {
                break;
            }
            (value, unit) = (value / 1024.0, larger);
        }
        f.pad(&format!("{} {unit}", two_decimals(value)))
    }
}

/// `value` with at most two decimals and no trailing zeros.
fn two_decimals(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Nanos {
    const EXAMPLE: &'static str = "10 ms";

    /// The span in seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The span of `seconds`, rounded to the nearest nanosecond.
    pub fn from_seconds(seconds: f64) -> Self {
        Self((seconds * 1e9).round() as u64)
    }
}

impl FromStr for Nanos {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let unit = |name: &str| {
            Some(match name {
                "ns" => 1.0,
                "us" | "µs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                _ => return None,
            })
        };
        parse_scaled(text, Self::EXAMPLE, "ns, us, ms, s", unit).map(Self)
    }
}

impl fmt::Display for Nanos {
    /// The largest unit that leaves at least 1: `10 ms`.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (value, unit) = match self.0 {
            0..1_000 => (self.0 as f64, "ns"),
            1_000..1_000_000 => (self.0 as f64 / 1e3, "us"),
            1_000_000..1_000_000_000 => (self.0 as f64 / 1e6, "ms"),
            _ => (self.0 as f64 / 1e9, "s"),
        };
        f.pad(&format!("{} {unit}", two_decimals(value)))
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(&format!("{} pages", self.0))
    }
}

impl Rate {
    const EXAMPLE: &'static str = "235 MB/s";

    /// How long `bytes` take at this rate, rounded up to a nanosecond; no time at a rate of zero,
    /// which stands for "not a limit".
    pub const fn time_for(self, bytes: Bytes) -> Nanos {
        const LONGEST: u128 = u64::MAX as u128;
        match self.0 {
            0 => Nanos(0),
            rate => match (bytes.0 as u128 * 1_000_000_000).div_ceil(rate as u128) {
                LONGEST.. => Nanos(u64::MAX),
                nanos => Nanos(nanos as u64),
            },
        }
    }
}

impl FromStr for Rate {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let unit = |name: &str| name.strip_suffix("/s").and_then(byte_unit);
        parse_scaled(text, Self::EXAMPLE, "KiB/s, MiB/s, GiB/s, kB/s, MB/s, GB/s", unit).map(Self)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(&format!("{} MB/s", two_decimals(self.0 as f64 / 1e6)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_parsed_in_common_notations() {
        for (text, bytes) in [
            ("0x100000", 1 << 20),
            ("5m", 5 << 20),
            ("4096", 4096),
            ("4KiB", 4096),
            ("4 K", 4096),
            ("2G", 2 << 30),
            ("1.5 MiB", 3 << 19),
            ("235 MB", 235_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_reason() {
        let message = |text: &str| text.parse::<Nanos>().unwrap_err().to_string();
        assert_eq!(message("-5 us"), "\"-5 us\" is negative; it must be 0 or more");
        assert_eq!(message("5 min"), "\"5 min\" has no known unit; write one of ns, us, ms, s");
        assert_eq!(message("5"), "\"5\" has no known unit; write one of ns, us, ms, s");
        assert_eq!(message("soon"), "\"soon\" is not a number with a unit; write it like \"10 ms\"");
        assert!(matches!("99999999 TiB".parse::<Bytes>(), Err(UnitError::TooLarge(_))));
    }

    #[test]
    fn a_tiny_negative_is_still_negative() {
        assert!(matches!("-0.0001 ns".parse::<Nanos>(), Err(UnitError::Negative(_))));
    }

    #[test]
    fn printed_quantities_read_back() {
        for bytes in [0, 512, 4096, 1 << 20, 3 << 19, 7 << 30] {
            let bytes = Bytes(bytes);
            assert_eq!(bytes.to_string().parse(), Ok(bytes));
        }
        for nanos in [0, 7, 1_500, 10_000_000, 40_000_000_000] {
            let nanos = Nanos(nanos);
            assert_eq!(nanos.to_string().parse(), Ok(nanos));
        }
    }

    #[test]
    fn sums_and_products_stop_at_the_largest_count() {
        const MOST: Bytes = Bytes(u64::MAX);
        assert_eq!(MOST + Bytes(1), MOST);
        assert_eq!([MOST, Bytes(1)].into_iter().sum::<Bytes>(), MOST);
        assert_eq!(Bytes(1 << 40) * (1 << 40), MOST);
        let mut total = MOST;
        total += Bytes(1);
        assert_eq!(total, MOST);
        assert_eq!((Bytes(3) + Bytes(4), Bytes(3) * 4), (Bytes(7), Bytes(12)));
    }

    #[test]
    fn rate_gives_the_time_of_a_transfer() {
        assert_eq!(Rate(1_000_000_000).time_for(Bytes(4096)), Nanos(4096));
        assert_eq!(Rate(0).time_for(Bytes(4096)), Nanos(0));
        assert_eq!(Rate(1).time_for(Bytes(u64::MAX)), Nanos(u64::MAX));
    }
}
