//! Drive profiles by name or file.

use anyhow::{Context, Result};
use trimtab_core::profile::{Profile, builtin_text};

/// The profile that `name` means, and its text: a file where the name ends in `.toml`, a built-in
/// profile otherwise.
pub fn load(name: &str) -> Result<(Profile, String)> {
    if name.ends_with(".toml") {
        let text =
            std::fs::read_to_string(name).with_context(|| format!("cannot read the profile {name}"))?;
        Ok((Profile::parse(&text, name)?, text))
    } else {
        Ok((Profile::named(name)?, builtin_text(name)?.to_owned()))
    }
}
