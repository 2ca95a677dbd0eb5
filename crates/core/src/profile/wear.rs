//! How flash wears out.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::bound::Broken;
use super::{Profile, Sourced};

/// The cycles that a block lasts.
const ENDURANCE: RangeInclusive<u32> = 1..=10_000_000;
/// The erases by which blocks may differ before data are moved for it. They differ by less even where no data rest:
/// levelling at less would move data for nothing, and wear the flash out.
const LEVEL_AT: RangeInclusive<u32> = 8..=1_000_000;
/// The share of blocks that are bad from the start: more would be no spare area but another drive.
const BAD: RangeInclusive<f64> = 0.0..=0.5;
/// How much the endurance of blocks varies.
const VARIATION: RangeInclusive<f64> = 0.0..=0.9;

/// How the flash wears out, and what the drive does about it. A drive without any of these fields has blocks
/// that last for ever and are all good.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wear {
    /// The program and erase cycles that an average block lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endurance: Option<Sourced<u32>>,
    /// How far the endurance of single blocks lies from the average at most, as a fraction of it: 0.3 is from
    /// 70 % to 130 %, all alike often. A block that has reached its own turns bad, and the spare area becomes
    /// smaller by it. A drive that leaves it out has no block turn bad.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variation: Option<Sourced<f64>>,
    /// The share of erase blocks that are bad from the start, as a fraction; they are missing from the spare
    /// area.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad_blocks: Option<Sourced<f64>>,
    /// Static wear levelling: data are moved out of the block that was closed longest ago once it has as many erases
    /// less than the block that was erased last, or more. A drive that leaves it out levels nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level_at: Option<Sourced<u32>>,
}

/// The first field whose value no drive can have, with the reason.
pub(super) fn broken(profile: &Profile) -> Option<Broken> {
    let wear = profile.wear.as_ref()?;
    let counts =
        [("wear.endurance", &wear.endurance, ENDURANCE), ("wear.level_at", &wear.level_at, LEVEL_AT)];
    for (field, count, possible) in counts {
        if let Some(count) = count.as_ref().filter(|count| !possible.contains(&count.value)) {
            let message = format!("{} must be from {} to {}", count.value, possible.start(), possible.end());
            return Some((field, message));
        }
    }
    let shares = [("wear.variation", &wear.variation, VARIATION), ("wear.bad_blocks", &wear.bad_blocks, BAD)];
    for (field, share, possible) in shares {
        if let Some(share) = share.as_ref().filter(|share| !possible.contains(&share.value)) {
            let message = format!("{} must be from {} to {}", share.value, possible.start(), possible.end());
            return Some((field, message));
        }
    }
    let message = "it needs endurance, from which it says how far blocks lie".to_owned();
    (wear.variation.is_some() && wear.endurance.is_none()).then_some(("wear.variation", message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ProfileError;

    const BASE: &str = include_str!("../../profiles/nvme-tlc.toml");

    fn parsed(fields: &[(&str, &str)]) -> Result<Profile, ProfileError> {
        let line = |(field, value): &(&str, &str)| {
            format!("{field} = {{ value = {value}, source = \"a test of wear\" }}\n")
        };
        let (base, _) = BASE.split_once("[wear]").unwrap_or((BASE, ""));
        let table: String = fields.iter().map(line).collect();
        Profile::parse(&format!("{base}\n[wear]\n{table}"), "my.toml")
    }

    #[test]
    fn wear_is_optional_in_every_field_and_survives_being_written() {
        let all = [("endurance", "3000"), ("variation", "0.3"), ("bad_blocks", "0.02"), ("level_at", "32")];
        for count in 0..=all.len() {
            let profile = parsed(&all[..count]).unwrap();
            let text = toml::to_string(&profile).unwrap();
            assert_eq!(Profile::parse(&text, "copy.toml"), Ok(profile));
        }
    }

    #[test]
    fn a_value_outside_its_limits_is_named_with_them() {
        for (field, value, message) in [
            ("endurance", "0", "0 must be from 1 to 10000000"),
            ("level_at", "7", "7 must be from 8 to 1000000"),
            ("bad_blocks", "0.6", "0.6 must be from 0 to 0.5"),
            ("bad_blocks", "nan", "NaN must be from 0 to 0.5"),
            ("variation", "1.0", "1 must be from 0 to 0.9"),
            ("variation", "0.3", "it needs endurance, from which it says how far blocks lie"),
        ] {
            let error = parsed(&[(field, value)]).unwrap_err();
            assert_eq!(error.to_string(), format!("my.toml: wear.{field}: {message}"));
        }
    }
}
