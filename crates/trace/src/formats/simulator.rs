//! The traces of simulators: DiskSim, and SSDsim and MQSim, which took its columns.
//!
//! Lines of `time device address sectors flag`, addresses and lengths in sectors of 512 bytes. DiskSim ("ASCII" traces in
//! its reference manual): milliseconds with decimals, and hexadecimal flags whose lowest bit is set for a read. SSDsim
//! and MQSim (README of CMU-SAFARI/MQSim, "Trace-based Workloads"): whole nanoseconds; 1 for a read, 0 for a write.

use trimtab_core::SECTOR;
use trimtab_core::trace::EventKind;

use crate::error::RowError;
use crate::parse::{Notes, Parse, Parsed};
use crate::rows::Row;
use crate::scan::{Cursor, Field, Words};
use crate::text::{hexadecimal, milliseconds, scaled, unknown};

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
    fn time(self, time: Field) -> Result<u64, RowError> {
        match self {
            Self::DiskSim => milliseconds("time", time.text),
            Self::MqSim => time.number("time"),
        }
    }

    fn is_read(self, flag: &[u8]) -> Result<bool, RowError> {
        match (self, flag) {
            (_, b"0") => Ok(false),
            (_, b"1") => Ok(true),
            (Self::MqSim, _) => Err(unknown("flag", flag, "is neither 0 nor 1")),
            (Self::DiskSim, _) => {
                let digits = flag.strip_prefix(b"0x").unwrap_or(flag);
                let flags = hexadecimal(digits).filter(|flags| *flags <= MOST_FLAGS);
                Ok(flags.ok_or_else(|| unknown("flag", flag, "is no hexadecimal number"))? & 1 > 0)
            }
        }
    }
}

/// Returns the five fields of a line.
fn split(line: &[u8]) -> Result<[Field<'_>; 5], RowError> {
    let wrong = || RowError::Fields { wanted: 5 };
    let mut words = Words::<false>::of(line);
    let mut next = || words.next().ok_or_else(wrong);
    let five = [next()?, next()?, next()?, next()?, next()?];
    if words.next().is_some() { Err(wrong()) } else { Ok(five) }
}

impl Parse for Simulator {
    type Content = Row;

    #[inline(always)]
    fn quick(&mut self, line: &mut Cursor, notes: &mut Notes) -> Option<Parsed<Row>> {
        let time = match self {
            Self::MqSim => line.number()?,
            // A millionth of a millisecond is a nanosecond.
            Self::DiskSim => line.seconds()?.0 / 1000,
        };
        line.byte(b' ')?;
        let device = line.word()?;
        line.byte(b' ')?;
        let (sector, sectors) = (line.number_and(b' ')?, line.number_and(b' ')?);
        let kind = match line.word()? {
            b"0" => EventKind::Write,
            b"1" => EventKind::Read,
            _ => return None,
        };
        line.byte(b'\n')?;
        Some(Parsed::Content(Row {
            time,
            device: notes.known(device)?,
            kind,
            start: sector.checked_mul(SECTOR.0)?,
            length: sectors.checked_mul(SECTOR.0)?,
            ..Row::bare()
        }))
    }

    fn fork(&self) -> Option<Self> {
        Some(*self)
    }

    fn line(&mut self, line: &[u8], notes: &mut Notes) -> Result<Parsed<Row>, RowError> {
        let [time, device, address, sectors, flag] = split(line)?;
        device.number("device")?;
        let kind = if self.is_read(flag.text)? { EventKind::Read } else { EventKind::Write };
        let time = self.time(time)?;
        let device = notes.device(device.text)?;
        Ok(Parsed::Content(Row {
            time,
            device,
            kind,
            start: scaled("address", address.number("address")?, SECTOR.0)?,
            length: scaled("sectors", sectors.number("sectors")?, SECTOR.0)?,
            ..Row::bare()
        }))
    }
}

impl Simulator {
    /// Returns true if a line is of this simulator's format.
    pub(crate) fn is_line(self, line: &[u8]) -> bool {
        split(line).is_ok_and(|[time, device, address, sectors, flag]| {
            let numbers = device.is_number() && address.is_number();
            let has_decimals = memchr::memchr(b'.', time.text).is_some();
            has_decimals == (self == Self::DiskSim)
                && self.time(time).is_ok()
                && numbers
                && sectors.number("").is_ok_and(|sectors| sectors > 0)
                && self.is_read(flag.text).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Simulator::DiskSim;
    use crate::scan::Words;

    #[test]
    fn milliseconds_are_read_to_the_nanosecond() {
        for (text, expected) in
            [("0.0", 0), ("1.5", 1_500_000), ("12.345678", 12_345_678), ("3.0000019", 3_000_001)]
        {
            let time = Words::<false>::of(text.as_bytes()).next().unwrap();
            assert_eq!(DiskSim.time(time).unwrap(), expected, "{text}");
        }
    }
}
