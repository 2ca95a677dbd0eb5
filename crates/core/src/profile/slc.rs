//! The cache of a drive whose flash holds one bit in each cell (pseudo-SLC).

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::bound::{Broken, LONGEST, first_above};
use super::{Profile, Sourced};
use crate::units::Nanos;

/// The bits that a cell can hold: MLC, TLC and QLC.
const BITS: RangeInclusive<u32> = 2..=4;

/// A cache of flash that holds one bit in each cell. The host's writes go there as long as it has room, and
/// its data are folded, moved to ordinary blocks, while the drive idles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slc {
    /// The bits that a cell holds outside the cache: one page in the cache takes the flash of this many pages.
    pub bits_per_cell: Sourced<u32>,
    /// Programming one program unit in the cache.
    pub program: Sourced<Nanos>,
    /// The bytes that the cache can always hold, as a fraction of the drive's size. Its flash is beside the
    /// over-provisioning.
    pub static_size: Sourced<f64>,
    /// The most that it can hold beside that in erased blocks of the drive, as a fraction of the drive's size.
    /// A drive with less erased flash caches less.
    pub dynamic_size: Sourced<f64>,
}

/// The first field whose value no drive can have, with the reason.
pub(super) fn broken(profile: &Profile) -> Option<Broken> {
    let slc = profile.slc.as_ref()?;
    let bits = slc.bits_per_cell.value;
    if !BITS.contains(&bits) {
        let message = format!("{bits} must be from {} to {}", BITS.start(), BITS.end());
        return Some(("slc.bits_per_cell", message));
    }
    let sizes = [
        ("slc.static_size", slc.static_size.value, 1.0),
        ("slc.dynamic_size", slc.dynamic_size.value, 1.0 / f64::from(bits)),
    ];
    let outside = sizes.iter().find(|(_, size, most)| !(0.0..=*most).contains(size));
    if let Some((field, size, most)) = outside {
        return Some((field, format!("{size} must be from 0 to {most:.3}")));
    }
    if sizes.iter().all(|(_, size, _)| *size == 0.0) {
        return Some(("slc.static_size", "0 must be above 0 where dynamic_size is 0".to_owned()));
    }
    if profile.idle.is_none() {
        let message =
            "needs the table idle: a drive that does nothing while it idles never empties its cache";
        return Some(("slc", message.to_owned()));
    }
    first_above([("slc.program", slc.program.value, LONGEST)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ProfileError;

    const GOOD: &str = include_str!("../../profiles/ocz-agility-3.toml");
    const IDLE: &str = "[idle]\nafter = { value = \"1 s\", source = \"a test\" }\n\
                        reserve = { value = 0.0, source = \"a test\" }\n";

    fn parsed(idle: &str, [bits, program, fixed, dynamic]: [&str; 4]) -> Result<Profile, ProfileError> {
        let fields = [
            ("bits_per_cell", bits),
            ("program", program),
            ("static_size", fixed),
            ("dynamic_size", dynamic),
        ];
        let line = |(field, value)| format!("{field} = {{ value = {value}, source = \"a test\" }}\n");
        let table = fields.map(line).concat();
        Profile::parse(&format!("{GOOD}\n{idle}[slc]\n{table}"), "my.toml")
    }

    #[test]
    fn a_cache_is_optional_and_survives_being_written() {
        assert_eq!(Profile::parse(GOOD, "my.toml").unwrap().slc, None);
        let profile = parsed(IDLE, ["3", "\"200 us\"", "0.006", "0.036"]).unwrap();
        assert_eq!(profile.slc.as_ref().map(|slc| slc.program.value), Some(Nanos(200_000)));
        let text = toml::to_string(&profile).unwrap();
        assert_eq!(Profile::parse(&text, "copy.toml"), Ok(profile));
    }

    #[test]
    fn a_value_outside_its_limits_is_named_with_them() {
        let time = "\"1 us\"";
        for (values, message) in [
            (["1", time, "0.1", "0.1"], "slc.bits_per_cell: 1 must be from 2 to 4"),
            (["5", time, "0.1", "0.1"], "slc.bits_per_cell: 5 must be from 2 to 4"),
            (["3", "\"3601 s\"", "0.1", "0.1"], "slc.program: 3601 s must be at most 3600 s"),
            (["3", time, "1.1", "0.1"], "slc.static_size: 1.1 must be from 0 to 1.000"),
            (["3", time, "0.1", "0.34"], "slc.dynamic_size: 0.34 must be from 0 to 0.333"),
            (["3", time, "0.1", "nan"], "slc.dynamic_size: NaN must be from 0 to 0.333"),
            (["3", time, "0.0", "0.0"], "slc.static_size: 0 must be above 0 where dynamic_size is 0"),
        ] {
            assert_eq!(parsed(IDLE, values).unwrap_err().to_string(), format!("my.toml: {message}"));
        }
        let lone = parsed("", ["3", time, "0.1", "0.1"]).unwrap_err();
        assert!(lone.to_string().starts_with("my.toml: slc: needs the table idle"), "{lone}");
        assert!(parsed(IDLE, ["2", "\"3600 s\"", "1.0", "0.5"]).is_ok());
        assert!(parsed(IDLE, ["4", "\"0 s\"", "0.0", "0.25"]).is_ok());
    }
}
