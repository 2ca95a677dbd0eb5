//! The state of a drive before its first command.

use serde::{Deserialize, Serialize};

use super::bound::Broken;
use super::{Profile, Sourced};

/// The most drive writes: far beyond any steady state.
const MOST: f64 = 1000.0;

/// The random overwrites that make an aged drive of one that was filled in sequence: the workload dependent
/// preconditioning of the SNIA Performance Test Specification, with random writes of 4 KiB.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aging {
    /// How often the drive's size is written, a mapping page at a time, each drawn from all.
    pub random_writes: Sourced<f64>,
}

/// The first field whose value no drive can have, with the reason.
pub(super) fn broken(profile: &Profile) -> Option<Broken> {
    let writes = profile.aging.as_ref()?.random_writes.value;
    let message = format!("{writes} must be above 0 and at most {MOST}");
    (!(writes > 0.0 && writes <= MOST)).then_some(("aging.random_writes", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = include_str!("../../profiles/nvme-tlc.toml");

    #[test]
    fn aging_is_optional_limited_and_survives_being_written() {
        assert_eq!(Profile::parse(GOOD, "my.toml").unwrap().aging, None);
        let parsed = |writes: &str| {
            let table = format!("[aging]\nrandom_writes = {{ value = {writes}, source = \"a test\" }}\n");
            Profile::parse(&format!("{GOOD}\n{table}"), "my.toml").map_err(|error| error.to_string())
        };
        let profile = parsed("2.5").unwrap();
        let text = toml::to_string(&profile).unwrap();
        assert_eq!(Profile::parse(&text, "copy.toml"), Ok(profile));
        for (writes, number) in [("0.0", "0"), ("-1.0", "-1"), ("nan", "NaN"), ("1001.0", "1001")] {
            let message = format!("my.toml: aging.random_writes: {number} must be above 0 and at most 1000");
            assert_eq!(parsed(writes), Err(message));
        }
        assert!(parsed("1000.0").is_ok());
    }
}
