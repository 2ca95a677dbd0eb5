//! Drive profiles by name or file.

use anyhow::Result;
use trimtab_core::profile::Profile;
use trimtab_sim::drive_profile;

/// As [`load`], of a drive that was overwritten at random if it is `aged`, unless the profile says how often.
pub fn load_aged(name: &str, aged: bool) -> Result<(Profile, String)> {
    Ok(drive_profile::load_aged(name, aged)?)
}

/// Returns the profile named `name`, and its text: a file if the name ends in `.toml`, a built-in profile
/// otherwise.
pub fn load(name: &str) -> Result<(Profile, String)> {
    Ok(drive_profile::load(name)?)
}
