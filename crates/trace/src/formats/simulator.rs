//! The traces of simulators: DiskSim, and SSDsim and MQSim, which took its columns.
//!
//! Lines of `time device address sectors flag`, addresses and lengths in sectors of 512 bytes. DiskSim ("ASCII" traces in
//! its reference manual): milliseconds with decimals, and hexadecimal flags whose lowest bit is set for a read. SSDsim
//! and MQSim (README of CMU-SAFARI/MQSim, "Trace-based Workloads"): whole nanoseconds; 1 for a read, 0 for a write.

use trimtab_core::SECTOR;
use trimtab_core::trace::{Comm, EventKind};

use crate::error::RowError;
use crate::rows::{Row, Rows};
use crate::text::{Parse, milliseconds, number, scaled, unknown};

/// The highest flags that DiskSim has.
const MOST_FLAGS: u64 = 0xffff;

/// The simulator whose times and flags a trace has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Simulator {
    DiskSim,
    MqSim,
}

impl Simulator {
    /// Nanoseconds.
    fn time(self, text: &[u8]) -> Result<u64, RowError> {
        match self {
            Self::DiskSim => milliseconds("time", text),
            Self::MqSim => number("time", text),
        }
    }

    fn is_read(self, flag: &[u8]) -> Result<bool, RowError> {
        match (self, flag) {
            (_, b"0") => Ok(false),
            (_, b"1") => Ok(true),
            (Self::MqSim, _) => Err(unknown("flag", flag, "is neither 0 nor 1")),
            (Self::DiskSim, _) => {
                let digits = flag.strip_prefix(b"0x").unwrap_or(flag);
                // Not a sign.
                let digits = if digits.iter().all(u8::is_ascii_hexdigit) {
                    std::str::from_utf8(digits).ok()
                } else {
                    None
                };
                let flags = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
                let flags = flags.filter(|flags| *flags <= MOST_FLAGS);
                Ok(flags.ok_or_else(|| unknown("flag", flag, "is no hexadecimal number"))? & 1 > 0)
            }
        }
    }
}

/// Returns the five fields of a line.
fn split(line: &[u8]) -> Result<[&[u8]; 5], RowError> {
    let wrong = || RowError::Fields { wanted: 5 };
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mut next = || words.next().ok_or_else(wrong);
    let five = [next()?, next()?, next()?, next()?, next()?];
    if words.next().is_some() { Err(wrong()) } else { Ok(five) }
}

impl Parse for Simulator {
    fn line(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let [time, device, address, sectors, flag] = split(line)?;
        number("device", device)?;
        let kind = if self.is_read(flag)? { EventKind::Read } else { EventKind::Write };
        let time = self.time(time)?;
        let device = rows.device(device)?;
        rows.push(Row {
            time,
            device,
            kind,
            start: scaled("address", number("address", address)?, SECTOR.0)?,
            length: scaled("sectors", number("sectors", sectors)?, SECTOR.0)?,
            latency: None,
            process: Comm::default(),
            error: 0,
        })
    }
}

impl Simulator {
    /// Returns true if a line is of this simulator's format.
    pub(crate) fn is_line(self, line: &[u8]) -> bool {
        split(line).is_ok_and(|[time, device, address, sectors, flag]| {
            let numbers = [device, address].into_iter().all(|text| number("", text).is_ok());
            let has_decimals = memchr::memchr(b'.', time).is_some();
            has_decimals == (self == Self::DiskSim)
                && self.time(time).is_ok()
                && numbers
                && number("", sectors).is_ok_and(|sectors| sectors > 0)
                && self.is_read(flag).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Simulator::DiskSim;

    #[test]
    fn milliseconds_are_read_to_the_nanosecond() {
        for (text, expected) in
            [("0.0", 0), ("1.5", 1_500_000), ("12.345678", 12_345_678), ("3.0000019", 3_000_001)]
        {
            assert_eq!(DiskSim.time(text.as_bytes()).unwrap(), expected, "{text}");
        }
    }
}
