//! Drive profiles by name or file.

use std::io;
use std::path::Path;

use trimtab_core::profile::{Profile, ProfileError, builtin_text};
use trimtab_host::file::read_regular_text;

/// The most bytes of a profile.
const MOST: u64 = 1 << 20;

/// The table of a profile that ages a used drive: enough random overwrites for a steady state.
const AGING: &str = "
[aging]
random_writes = { value = 3.0, source = \"assumed with --aged: after three random overwrites, write amplification is steady (SNIA PTS)\" }
";

/// Why there is no such profile.
#[derive(Debug, thiserror::Error)]
pub enum LoadProfileError {
    /// Its file can't be read.
    #[error("cannot read the profile {name}")]
    File {
        /// The file.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// It is wrong, or none that comes with trimtab.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// As [`load`], of a drive that was overwritten at random if it is `aged`, unless the profile says how often.
///
/// # Errors
/// [`LoadProfileError`].
pub fn load_aged(name: &str, aged: bool) -> Result<(Profile, String), LoadProfileError> {
    let (profile, text) = load(name)?;
    Ok(if aged { age(profile, text)? } else { (profile, text) })
}

/// Returns the profile with this text as one of a drive that was overwritten at random, unless it says how often.
///
/// # Errors
/// [`ProfileError`] if the text can't be added to.
pub fn age(profile: Profile, text: String) -> Result<(Profile, String), ProfileError> {
    if profile.aging.is_some() {
        return Ok((profile, text));
    }
    let text = text + AGING;
    Ok((Profile::parse(&text, &profile.name)?, text))
}

/// Returns the profile named `name`, and its text: a file if the name ends in `.toml`, a built-in profile
/// otherwise.
///
/// # Errors
/// [`LoadProfileError`].
pub fn load(name: &str) -> Result<(Profile, String), LoadProfileError> {
    if name.ends_with(".toml") {
        let text = read_regular_text(Path::new(name), MOST)
            .map_err(|source| LoadProfileError::File { name: name.to_owned(), source })?;
        Ok((Profile::parse(&text, name)?, text))
    } else {
        Ok((Profile::named(name)?, builtin_text(name)?.to_owned()))
    }
}
