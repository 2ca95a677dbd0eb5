//! Fetches Debian's kernels, once, into a cache.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use rustix::process::geteuid;
use tempfile::TempDir;

use super::error::{GuestError, at};
use super::kernel_choice::KernelChoice;
use crate::program::{self, ProgramError, Reason};
use trimtab_core::interrupt::Interrupt;

/// Fetches kernels into a cache.
#[derive(Debug)]
pub(super) struct Fetcher {
    cache: PathBuf,
    apt_cache: PathBuf,
    apt_get: PathBuf,
    dpkg_deb: PathBuf,
}

/// The directory that keeps kernels: `$XDG_CACHE_HOME/trimtab`, or if that isn't set, `~/.cache/trimtab`, or
/// `/var/cache/trimtab` for root.
pub(super) fn cache() -> PathBuf {
    let named = |variable| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = named("XDG_CACHE_HOME").unwrap_or_else(|| match named("HOME") {
        Some(home) if !geteuid().is_root() => home.join(".cache"),
        _ => PathBuf::from("/var/cache"),
    });
    base.join("trimtab")
}

impl Fetcher {
    /// A fetcher that uses this machine's programs and [`cache`].
    pub(super) fn new() -> Self {
        Self {
            cache: cache(),
            apt_cache: "apt-cache".into(),
            apt_get: "apt-get".into(),
            dpkg_deb: "dpkg-deb".into(),
        }
    }

    /// Returns the path of the image of Debian's kernel `version`; its modules are where the package has
    /// them. The package is fetched and unpacked into the cache once, and never replaced by a newer one, so
    /// that results stay comparable.
    ///
    /// # Errors
    /// [`GuestError::NoFetcher`], [`GuestError::NoPackage`], [`GuestError::Fetch`], or [`GuestError::File`].
    pub(super) fn kernel(&self, version: &str, interrupt: &Interrupt) -> Result<PathBuf, GuestError> {
        let unpacked = self.cache.join(format!("debian-{version}"));
        if !unpacked.is_dir() {
            fs::create_dir_all(&self.cache).map_err(at(&self.cache, "make"))?;
            self.fetch(version, &unpacked, interrupt)?;
        }
        image(&unpacked.join("boot"))
    }

    fn fetch(&self, version: &str, unpacked: &Path, interrupt: &Interrupt) -> Result<(), GuestError> {
        let package = self.package(version)?;
        let room = TempDir::with_prefix_in("new-", &self.cache).map_err(at(&self.cache, "make a file in"))?;
        let run = |program: &Path, arguments: &[&OsStr]| {
            let mut command = Command::new(program);
            command.args(arguments).current_dir(room.path()).env("LC_ALL", "C").stdin(Stdio::null());
            program::run(&mut command, Reason::Last, interrupt).map_err(|error| match error {
                ProgramError::Interrupted(interrupted) => interrupted.into(),
                ProgramError::Failed { stderr, .. } => {
                    GuestError::Fetch { package: package.clone(), program: program.to_owned(), said: stderr }
                }
                _ => no_fetcher(version, program),
            })
        };
        run(&self.apt_get, &["download".as_ref(), "-q".as_ref(), package.as_ref()])?;
        let entries = fs::read_dir(room.path()).map_err(at(room.path(), "list"))?;
        let fetched =
            entries.flatten().map(|entry| entry.path()).find(|path| path.extension() == Some("deb".as_ref()));
        let fetched =
            fetched.ok_or_else(|| at(room.path(), "find a package in")(ErrorKind::NotFound.into()))?;
        run(&self.dpkg_deb, &["-x".as_ref(), fetched.as_ref(), "tree".as_ref()])?;
        match fs::rename(room.path().join("tree"), unpacked) {
            // Of two that fetch at once, the second finds the work done.
            Err(_) if unpacked.is_dir() => Ok(()),
            renamed => renamed.map_err(at(unpacked, "make")),
        }
    }

    /// Returns the package with the image itself.
    fn package(&self, version: &str) -> Result<String, GuestError> {
        let named = [
            format!("linux-image-{version}"),
            format!("linux-image-{version}-amd64"),
            "linux-image-amd64".into(),
        ];
        for package in named {
            if let Some(image) = chosen(&package, &self.relations(version, &package)?, version) {
                return Ok(image);
            }
        }
        Err(GuestError::NoPackage { kernel: KernelChoice::Debian(version.to_owned()) })
    }

    /// Returns the relations of a package, as apt-cache lists them; empty if it knows no such package.
    fn relations(&self, version: &str, package: &str) -> Result<String, GuestError> {
        let mut command = Command::new(&self.apt_cache);
        command.args(["depends", package]).env("LC_ALL", "C").stdin(Stdio::null());
        let output = command.output().map_err(|_| no_fetcher(version, &self.apt_cache))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn no_fetcher(version: &str, program: &Path) -> GuestError {
    GuestError::NoFetcher { kernel: KernelChoice::Debian(version.to_owned()), program: program.to_owned() }
}

/// The only kernel image in a package's `boot` directory.
fn image(boot: &Path) -> Result<PathBuf, GuestError> {
    let entries = fs::read_dir(boot).map_err(at(boot, "list"))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    let is_image =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"vmlinuz-"));
    paths.find(is_image).ok_or_else(|| at(boot, "find a kernel in")(ErrorKind::NotFound.into()))
}

/// Returns the package that holds a kernel of `version`, given a package and its relations: the package
/// itself, or the image that it depends on.
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
    use crate::executable::make_executable;

    /// A fetcher whose programs are these lines of a shell.
    fn fetcher(room: &Path, apt_cache: &str, apt_get: &str, dpkg_deb: &str) -> Fetcher {
        let script = |name: &str, lines: &str| {
            let path = room.join(name);
            make_executable(&path, format!("#!/bin/sh\n{lines}\n").as_bytes());
            path
        };
        Fetcher {
            cache: room.join("cache"),
            apt_cache: script("apt-cache", apt_cache),
            apt_get: script("apt-get", apt_get),
            dpkg_deb: script("dpkg-deb", dpkg_deb),
        }
    }

    const KNOWS: &str = "[ $2 = linux-image-6.1-amd64 ] || exit 100
        printf '%s\\n  Depends: linux-image-6.1.0-9-amd64\\n' $2";
    const DOWNLOADS: &str = "echo \"$3\" >\"$3_1.deb\"";
    const UNPACKS: &str = "mkdir -p $3/boot; cp $2 $3/boot/vmlinuz-1";

    #[test]
    fn kernel_is_fetched_once() {
        let room = tempfile::tempdir().unwrap();
        let kernel = |fetcher: Fetcher| fetcher.kernel("6.1", &Interrupt::never());
        let image = kernel(fetcher(room.path(), KNOWS, DOWNLOADS, UNPACKS)).unwrap();
        assert_eq!(fs::read_to_string(&image).unwrap(), "linux-image-6.1.0-9-amd64\n");
        assert_eq!(image, room.path().join("cache/debian-6.1/boot/vmlinuz-1"));
        assert_eq!(kernel(fetcher(room.path(), "exit 1", "exit 1", "exit 1")).unwrap(), image);
        let left = fs::read_dir(room.path().join("cache")).unwrap().count();
        assert_eq!(left, 1);
    }

    #[test]
    fn fetch_that_fails_leaves_nothing_and_says_why() {
        let room = tempfile::tempdir().unwrap();
        let error = |fetcher: Fetcher| fetcher.kernel("6.1", &Interrupt::never()).unwrap_err().to_string();
        let says = |apt_cache, apt_get, dpkg_deb| error(fetcher(room.path(), apt_cache, apt_get, dpkg_deb));
        let offline = "echo Err; echo 'E: Failed to fetch' >&2; exit 100";
        let said = says(KNOWS, offline, UNPACKS);
        assert!(said.starts_with("cannot fetch linux-image-6.1.0-9-amd64: "), "{said}");
        assert!(said.ends_with("apt-get said: E: Failed to fetch"), "{said}");
        let said = says(KNOWS, DOWNLOADS, "mkdir tree; echo 'no space left' >&2; exit 2");
        assert!(said.ends_with("dpkg-deb said: no space left"), "{said}");
        let said = says("exit 100", DOWNLOADS, UNPACKS);
        assert!(said.contains("have no kernel debian:6.1; as root, run apt-get update"), "{said}");
        assert_eq!(fs::read_dir(room.path().join("cache")).unwrap().count(), 0);
        let gone = Fetcher { apt_cache: room.path().join("none"), ..fetcher(room.path(), "", "", "") };
        assert!(error(gone).starts_with("cannot fetch kernel debian:6.1: there is no "));
    }

    #[test]
    fn package_of_a_version_names_its_image() {
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
