//! Fetches Debian's kernels, once, into a cache.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io};

use tempfile::TempDir;

use super::error::{GuestError, at};
use super::kernel::KernelChoice;
use crate::error::LabError;
use crate::interrupt::Interrupt;
use crate::program::{self, Reason};

const APT_CACHE: &str = "apt-cache";
const APT_GET: &str = "apt-get";
const DPKG_DEB: &str = "dpkg-deb";

/// Returns the path of the image of a kernel that Debian has as a package; its modules are where the
/// package has them. The package is fetched and unpacked into the cache if that was never done before;
/// a newer version is not looked for then, so that results stay comparable.
///
/// # Errors
/// [`GuestError::NoFetcher`], [`GuestError::NoPackage`], [`GuestError::Fetch`], or [`GuestError::File`].
pub(super) fn kernel(choice: &KernelChoice, interrupt: &Interrupt) -> Result<PathBuf, GuestError> {
    let cache = cache();
    let unpacked = cache.join(choice.to_string().replace(':', "-"));
    if !unpacked.is_dir() {
        fs::create_dir_all(&cache).map_err(at(&cache, "make"))?;
        fetch(choice, &cache, &unpacked, interrupt)?;
    }
    image(&unpacked.join("boot"))
}

/// The directory where fetched kernels are kept.
fn cache() -> PathBuf {
    let named = |variable| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = named("XDG_CACHE_HOME").unwrap_or_else(|| match named("HOME") {
        Some(home) if !rustix::process::geteuid().is_root() => home.join(".cache"),
        _ => PathBuf::from("/var/cache"),
    });
    base.join("trimtab")
}

/// The only kernel image in a package's `boot` directory.
fn image(boot: &Path) -> Result<PathBuf, GuestError> {
    let entries = fs::read_dir(boot).map_err(at(boot, "list"))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    let is_image =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"));
    paths.find(is_image).ok_or_else(|| at(boot, "find a kernel in")(io::ErrorKind::NotFound.into()))
}

fn fetch(
    choice: &KernelChoice,
    cache: &Path,
    unpacked: &Path,
    interrupt: &Interrupt,
) -> Result<(), GuestError> {
    let package = package(choice)?;
    let room = TempDir::with_prefix_in("new-", cache).map_err(at(cache, "make a file in"))?;
    let run = |program, command: &mut Command| {
        program::run(command, Reason::Last, interrupt).map_err(|error| match error {
            LabError::Interrupted(interrupted) => interrupted.into(),
            LabError::Program { stderr, .. } => {
                GuestError::Fetch { package: package.clone(), program, said: stderr }
            }
            _ => GuestError::NoFetcher { kernel: choice.clone(), program },
        })
    };
    let download = &mut Command::new(APT_GET);
    run(APT_GET, download.args(["download", "-q", &package]).current_dir(room.path()))?;
    let entries = fs::read_dir(room.path()).map_err(at(room.path(), "list"))?;
    let files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    let tree = room.path().join("tree");
    run(DPKG_DEB, Command::new(DPKG_DEB).arg("-x").args(&files).arg(&tree))?;
    match fs::rename(&tree, unpacked) {
        // Of two that fetch at once, the second finds the work done.
        Err(_) if unpacked.is_dir() => Ok(()),
        renamed => renamed.map_err(at(unpacked, "make")),
    }
}

/// Returns the package with the image itself.
fn package(choice: &KernelChoice) -> Result<String, GuestError> {
    let version = match choice {
        KernelChoice::Debian(version) => version.as_str(),
        KernelChoice::File { .. } => return Err(GuestError::NoPackage { kernel: choice.clone() }),
    };
    let images = [
        format!("linux-image-{version}"),
        format!("linux-image-{version}-amd64"),
        "linux-image-amd64".into(),
    ];
    for package in images {
        let listed = ask(choice, &package)?;
        if let Some(image) = chosen(&package, &listed, version) {
            return Ok(image);
        }
    }
    Err(GuestError::NoPackage { kernel: choice.clone() })
}

/// The relations of a package, as apt-cache lists them; empty where it knows no such package.
fn ask(choice: &KernelChoice, package: &str) -> Result<String, GuestError> {
    let mut command = Command::new(APT_CACHE);
    command.args(["depends", package]).env("LC_ALL", "C").stdin(Stdio::null());
    let output =
        command.output().map_err(|_| GuestError::NoFetcher { kernel: choice.clone(), program: APT_CACHE })?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the package that holds a kernel of `version`, given a package and its relations: the package
/// itself, or the image that it stands for.
fn chosen(package: &str, relations: &str, version: &str) -> Option<String> {
    let mut lines = relations.lines();
    if lines.next()? != package {
        return None;
    }
    let mut depends = lines.filter_map(|line| line.trim().strip_prefix("Depends: "));
    let of_version = |image: &&str| {
        let found = image.strip_prefix("linux-image-").and_then(|rest| rest.strip_prefix(version));
        found.is_some_and(|rest| rest.starts_with(['.', '-', '+']))
    };
    if let Some(image) = depends.clone().find(of_version) {
        return Some(image.to_owned());
    }
    let stands_for_another = depends.any(|needed| needed.starts_with("linux-image-"));
    (!stands_for_another && package == format!("linux-image-{version}")).then(|| package.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_of_a_version_is_the_image_that_it_stands_for() {
        let meta = "linux-image-6.12-amd64\n  Depends: linux-image-6.12.117+deb12-amd64\n";
        let chosen_image = Some("linux-image-6.12.117+deb12-amd64".to_owned());
        assert_eq!(chosen("linux-image-6.12-amd64", meta, "6.12"), chosen_image);
        let latest = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n";
        assert_eq!(chosen("linux-image-amd64", latest, "6.1"), Some("linux-image-6.1.0-56-amd64".to_owned()));
        assert_eq!(chosen("linux-image-amd64", latest, "6.12"), None);
    }

    #[test]
    fn package_of_a_release_is_itself() {
        let image = "linux-image-6.1.0-50-amd64\n  Depends: kmod\n |Depends: initramfs-tools\n";
        let chosen_image = Some("linux-image-6.1.0-50-amd64".to_owned());
        assert_eq!(chosen("linux-image-6.1.0-50-amd64", image, "6.1.0-50-amd64"), chosen_image);
        assert_eq!(chosen("linux-image-6.1.0-50-amd64", "", "6.1.0-50-amd64"), None);
    }
}
