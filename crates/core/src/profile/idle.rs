//! The work of a drive while no command is under way.

use serde::{Deserialize, Serialize};

use super::bound::{Broken, LONGEST, first_above};
use super::{Profile, Sourced};
use crate::units::Nanos;

/// The work of a drive while no command is under way. A command that arrives waits for the operations that
/// its dies have begun, and for no other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Idle {
    /// How long no command has been under way when the drive begins to work.
    pub after: Sourced<Nanos>,
    /// The erased flash that it cleans up to, as a fraction of the drive's size, beside the least that garbage
    /// collection keeps erased. 0: it cleans nothing.
    pub reserve: Sourced<f64>,
}

/// The first field whose value no drive can have, with the reason.
pub(super) fn broken(profile: &Profile) -> Option<Broken> {
    let Idle { after, reserve } = profile.idle.as_ref()?;
    let spare = profile.geometry.over_provisioning.value;
    first_above([("idle.after", after.value, LONGEST)]).or_else(|| {
        let message = format!("{} must be from 0 to over_provisioning, {spare}", reserve.value);
        (!(0.0..=spare).contains(&reserve.value)).then_some(("idle.reserve", message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ProfileError;

    const GOOD: &str = include_str!("../../profiles/ocz-agility-3.toml");

    fn parsed(after: &str, reserve: &str) -> Result<Profile, ProfileError> {
        let sourced = |value| format!("{{ value = {value}, source = \"a test\" }}");
        let table = format!("[idle]\nafter = {}\nreserve = {}\n", sourced(after), sourced(reserve));
        Profile::parse(&format!("{GOOD}\n{table}"), "my.toml")
    }

    #[test]
    fn idle_work_is_optional_and_survives_being_written() {
        assert_eq!(Profile::parse(GOOD, "my.toml").unwrap().idle, None);
        let profile = parsed("\"50 ms\"", "0.05").unwrap();
        assert_eq!(profile.idle.as_ref().map(|idle| idle.after.value), Some(Nanos(50_000_000)));
        let text = toml::to_string(&profile).unwrap();
        assert_eq!(Profile::parse(&text, "copy.toml"), Ok(profile));
    }

    #[test]
    fn a_value_outside_its_limits_is_named_with_them() {
        for (after, reserve, message) in [
            ("\"3601 s\"", "0.05", "idle.after: 3601 s must be at most 3600 s"),
            ("\"1 s\"", "0.08", "idle.reserve: 0.08 must be from 0 to over_provisioning, 0.0737"),
            ("\"1 s\"", "-0.01", "idle.reserve: -0.01 must be from 0 to over_provisioning, 0.0737"),
            ("\"1 s\"", "nan", "idle.reserve: NaN must be from 0 to over_provisioning, 0.0737"),
        ] {
            assert_eq!(parsed(after, reserve).unwrap_err().to_string(), format!("my.toml: {message}"));
        }
        assert!(parsed("\"3600 s\"", "0.0737").is_ok() && parsed("\"0 s\"", "0.0").is_ok());
    }
}
