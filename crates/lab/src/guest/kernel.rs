//! The kernel that a guest runs.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::bzimage;
use super::debian::Fetcher;
use super::error::GuestError;
use trimtab_core::interrupt::Interrupt;

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

impl KernelChoice {
    /// Finds the kernel, which is fetched first if it is a package that was never fetched before.
    ///
    /// # Errors
    /// [`GuestError`] names what is missing.
    pub(super) fn find(&self, interrupt: &Interrupt) -> Result<Kernel, GuestError> {
        match self {
            Self::Debian(version) => Kernel::read(&Fetcher::new().kernel(version, interrupt)?, None),
            Self::File { image, modules } => Kernel::read(image, modules.as_deref()),
        }
    }
}

/// A kernel and where its modules are.
#[derive(Debug)]
pub(super) struct Kernel {
    image: Vec<u8>,
    /// As uname gives it.
    pub(super) release: String,
    /// The directory with its modules.
    pub(super) modules: PathBuf,
}

impl Kernel {
    fn read(path: &Path, modules: Option<&Path>) -> Result<Self, GuestError> {
        let image = fs::read(path)
            .map_err(|source| GuestError::KernelUnreadable { path: path.to_owned(), source })?;
        let release =
            bzimage::release(&image).ok_or_else(|| GuestError::NotAKernel { path: path.to_owned() })?;
        let modules = match modules {
            Some(dir) => dir.to_owned(),
            None => modules_of(path, &release),
        };
        if !modules.join("kernel").is_dir() {
            return Err(GuestError::NoModules { release, dir: modules });
        }
        Ok(Self { image, release, modules })
    }

    /// Returns the image that QEMU boots.
    pub(super) fn bootable(&self) -> Vec<u8> {
        bzimage::direct(&self.image).unwrap_or_else(|| self.image.clone())
    }
}

/// Where the modules of an image should be: `lib/modules/RELEASE` in its own directory or the one above,
/// as in an unpacked package, or that of this machine.
fn modules_of(image: &Path, release: &str) -> PathBuf {
    let inside = Path::new("lib/modules").join(release);
    let above = image.ancestors().skip(1).take(2).map(|dir| dir.join(&inside));
    above.into_iter().find(|dir| dir.is_dir()).unwrap_or_else(|| Path::new("/").join(&inside))
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

    #[test]
    fn modules_are_found_beside_the_image_or_on_this_machine() {
        let root = tempfile::tempdir().unwrap();
        let modules = root.path().join("lib/modules/6.1");
        fs::create_dir_all(&modules).unwrap();
        assert_eq!(modules_of(&root.path().join("boot/vmlinuz"), "6.1"), modules);
        assert_eq!(modules_of(&root.path().join("vmlinuz"), "6.1"), modules);
        assert_eq!(modules_of(&root.path().join("boot/vmlinuz"), "6.2"), Path::new("/lib/modules/6.2"));
    }

    #[test]
    fn a_file_that_is_no_kernel_is_named() {
        let root = tempfile::tempdir().unwrap();
        let image = root.path().join("vmlinuz");
        let find = || {
            let choice = KernelChoice::File { image: image.clone(), modules: None };
            choice.find(&Interrupt::never()).unwrap_err()
        };
        assert!(matches!(find(), GuestError::KernelUnreadable { .. }));
        fs::write(&image, "text").unwrap();
        assert!(matches!(find(), GuestError::NotAKernel { path } if path == image));
    }
}
