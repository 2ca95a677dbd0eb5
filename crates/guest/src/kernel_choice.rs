//! The kernel that a user chooses for guests.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The kernel that a guest runs: `debian:VERSION`, `VMLINUZ` or `VMLINUZ:MODULES_DIR`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelChoice {
    /// Debian's package of a version, such as `6.12`, or of a release, such as `6.1.0-50-amd64`.
    Debian(String),
    /// A kernel image on this machine.
    File {
        /// The image.
        image: PathBuf,
        /// The directory with its modules, such as `/lib/modules/6.12.90`, if they are elsewhere than
        /// `lib/modules` beside or above the image.
        modules: Option<PathBuf>,
    },
}

/// A choice of a kernel that can't be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} names no kernel; use debian:6.12, debian:6.1, or the path of a vmlinuz, as in /boot/vmlinuz-RELEASE"
)]
pub struct UnknownKernel {
    /// The rejected text.
    pub given: String,
}

impl Default for KernelChoice {
    fn default() -> Self {
        Self::Debian("6.12".to_owned())
    }
}

impl FromStr for KernelChoice {
    type Err = UnknownKernel;

    fn from_str(given: &str) -> Result<Self, UnknownKernel> {
        if let Some(version) = given.strip_prefix("debian:") {
            let is_version = version.starts_with(|c: char| c.is_ascii_digit())
                && version.chars().all(|c| c.is_ascii_alphanumeric() || ".+~-".contains(c));
            if is_version {
                return Ok(Self::Debian(version.to_owned()));
            }
        } else if given.contains('/') {
            let (image, modules) = match given.rsplit_once(':') {
                Some((image, modules)) => (image, Some(modules)),
                None => (given, None),
            };
            if !image.is_empty() && modules != Some("") {
                return Ok(Self::File { image: image.into(), modules: modules.map(PathBuf::from) });
            }
        }
        Err(UnknownKernel { given: given.to_owned() })
    }
}

impl fmt::Display for KernelChoice {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Debian(version) => write!(f, "debian:{version}"),
            Self::File { image, modules: None } => image.display().fmt(f),
            Self::File { image, modules: Some(modules) } => {
                write!(f, "{}:{}", image.display(), modules.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_parsed_and_written_alike() {
        let debian = |version: &str| KernelChoice::Debian(version.to_owned());
        let file = |image: &str, modules: Option<&str>| KernelChoice::File {
            image: image.into(),
            modules: modules.map(PathBuf::from),
        };
        let choices = [
            ("debian:6.12", debian("6.12")),
            ("debian:6.12.100+deb12-amd64", debian("6.12.100+deb12-amd64")),
            ("/boot/vmlinuz-6.1", file("/boot/vmlinuz-6.1", None)),
            ("./vmlinuz:out/lib", file("./vmlinuz", Some("out/lib"))),
        ];
        for (text, choice) in choices {
            assert_eq!(text.parse(), Ok(choice.clone()));
            assert_eq!(choice.to_string(), text);
        }
        assert_eq!(KernelChoice::default().to_string(), "debian:6.12");
    }

    #[test]
    fn choices_that_name_no_kernel_are_refused() {
        for given in
            ["", "6.12", "debian:", "debian:-o x", "debian:../6.1", "vmlinuz", "/boot/vmlinuz:", ":/lib"]
        {
            let error = given.parse::<KernelChoice>().unwrap_err();
            assert!(error.to_string().starts_with(&format!("{given:?} names no kernel; use ")), "{error}");
        }
    }
}
