//! Reads that go before programs and erases.

use serde::{Deserialize, Serialize};

use super::bound::{Broken, LONGEST, first_above};
use super::{Profile, Sourced};
use crate::units::Nanos;

/// How a die interrupts a program or an erase for a read of the host (Wu and He, "Reducing SSD Read Latency via
/// NAND Flash Program and Erase Suspension", FAST 2012).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspend {
    /// The time until a program or an erase gives way to a read.
    pub latency: Sourced<Nanos>,
    /// The time that it takes to go on afterwards.
    pub resume: Sourced<Nanos>,
}

/// The first field whose value no drive can have, with the reason.
pub(super) fn broken(profile: &Profile) -> Option<Broken> {
    let Suspend { latency, resume } = profile.suspend.as_ref()?;
    first_above([("suspend.latency", latency.value, LONGEST), ("suspend.resume", resume.value, LONGEST)])
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = include_str!("../../profiles/nvme-tlc.toml");

    #[test]
    fn suspend_is_optional_limited_and_survives_being_written() {
        assert_eq!(Profile::parse(GOOD, "my.toml").unwrap().suspend, None);
        let parsed = |latency: &str, resume: &str| {
            let line = |field, value| format!("{field} = {{ value = \"{value}\", source = \"a test\" }}\n");
            let table = line("latency", latency) + &line("resume", resume);
            Profile::parse(&format!("{GOOD}\n[suspend]\n{table}"), "my.toml")
                .map_err(|error| error.to_string())
        };
        let profile = parsed("20 us", "3600 s").unwrap();
        let text = toml::to_string(&profile).unwrap();
        assert_eq!(Profile::parse(&text, "copy.toml"), Ok(profile));
        for (latency, resume, field) in [("3601 s", "0 ns", "latency"), ("0 ns", "3601 s", "resume")] {
            let message = format!("my.toml: suspend.{field}: 3601 s must be at most 3600 s");
            assert_eq!(parsed(latency, resume), Err(message));
        }
    }
}
