//! Fetches a kernel's source as Debian packages it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use trimtab_core::interrupt::Interrupt;

use crate::error::{GuestError, at};
use crate::program::{self, ProgramError, Reason};

/// The series, the version and the suite of the source. A later version of the same series is taken where Debian no
/// longer has this one; the release in every document says which it was.
const SERIES: &str = "7.3";
const VERSION: &str = "7.3.4-1~bpo13+1";
const SUITE: &str = "trixie-backports";
const APT_GET: &str = "apt-get";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The package of a kernel's source.
#[derive(Debug)]
pub(super) struct Source {
    series: String,
    pub(super) version: String,
    /// The directories that have the programs.
    path: OsString,
}

impl Source {
    /// The source that the recipe is pinned to.
    pub(super) fn debian(path: OsString) -> Self {
        Self { series: SERIES.to_owned(), version: VERSION.to_owned(), path }
    }

    /// Fetches the package and unpacks the source below `room`. Returns the directory of the source.
    ///
    /// The package lists of this machine may not have the suite. Then lists of our own are fetched from this machine's
    /// own mirror, into `room`: nothing of this machine changes, and no root is needed.
    ///
    /// # Errors
    /// [`GuestError::Fetch`], [`GuestError::File`], or [`GuestError::Interrupted`].
    pub(super) fn unpack(&self, room: &Path, interrupt: &Interrupt) -> Result<PathBuf, GuestError> {
        let package = format!("linux-source-{}", self.series);
        let exact = format!("{package}={}", self.version);
        let get = |arguments: &[&str], config: Option<&Path>| {
            let arguments: Vec<_> = arguments.iter().map(OsStr::new).collect();
            self.run(&package, Path::new(APT_GET), &arguments, room, config, interrupt)
        };
        let interrupted = |error: &GuestError| matches!(error, GuestError::Interrupted(_));
        match get(&["download", "-q", &exact], None) {
            Ok(()) => {}
            Err(error) if interrupted(&error) => return Err(error),
            Err(_) => {
                let config = self.own_lists(room)?;
                get(&["update", "-q"], Some(&config))?;
                match get(&["download", "-q", &exact], Some(&config)) {
                    Err(error) if !interrupted(&error) => get(&["download", "-q", &package], Some(&config))?,
                    outcome => outcome?,
                }
            }
        }
        let fetched = only(room, |name| name.ends_with(".deb"))?;
        let unpack = |program: &Path, arguments: &[&OsStr]| {
            self.run(&package, program, arguments, room, None, interrupt)
        };
        unpack(Path::new("dpkg-deb"), &["-x".as_ref(), fetched.as_ref(), "package".as_ref()])?;
        let archive = only(&room.join("package/usr/src"), |name| name.ends_with(".tar.xz"))?;
        let source = room.join("source");
        fs::create_dir(&source).map_err(at(&source, "make"))?;
        unpack(Path::new("tar"), &["-xf".as_ref(), archive.as_ref(), "-C".as_ref(), source.as_ref()])?;
        only(&source, |name| name.starts_with("linux-source-"))
    }

    fn run(
        &self,
        package: &str,
        program: &Path,
        arguments: &[&OsStr],
        room: &Path,
        config: Option<&Path>,
        interrupt: &Interrupt,
    ) -> Result<(), GuestError> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(room)
            .env("LC_ALL", "C")
            .env("PATH", &self.path)
            .stdin(Stdio::null());
        if let Some(config) = config {
            command.env("APT_CONFIG", config);
        }
        program::run(&mut command, Reason::Last, interrupt).map_err(|error| match error {
            ProgramError::Interrupted(interrupted) => interrupted.into(),
            ProgramError::Failed { stderr, .. } => {
                GuestError::Fetch { package: package.to_owned(), program: program.to_owned(), said: stderr }
            }
            error => {
                let said = error.to_string();
                GuestError::Fetch { package: package.to_owned(), program: program.to_owned(), said }
            }
        })
    }

    /// Writes a configuration of apt with package lists of its own, for the suite on this machine's mirror.
    fn own_lists(&self, room: &Path) -> Result<PathBuf, GuestError> {
        let mirror = self.mirror()?;
        let directories = ["apt/lists/partial", "apt/cache/archives/partial"].map(|name| room.join(name));
        for dir in &directories {
            fs::create_dir_all(dir).map_err(at(dir, "make"))?;
        }
        let apt = room.join("apt");
        let list = format!("deb [signed-by={KEYRING}] {mirror} {SUITE} main\n");
        let config = format!(
            "Dir::Etc::sourcelist \"{0}/sources.list\";\nDir::Etc::sourceparts \"-\";\nDir::State::lists \"{0}/lists\";\n\
             Dir::Cache \"{0}/cache\";\nAPT::Sandbox::User \"\";\nAcquire::Languages \"none\";\n",
            apt.display()
        );
        for (name, text) in [("sources.list", &list), ("apt.conf", &config)] {
            let path = apt.join(name);
            fs::write(&path, text).map_err(at(&path, "write"))?;
        }
        Ok(apt.join("apt.conf"))
    }

    /// The address of this machine's mirror of Debian.
    fn mirror(&self) -> Result<String, GuestError> {
        let mut command = Command::new(APT_GET);
        command.env("PATH", &self.path).args([
            "indextargets",
            "--format",
            "$(REPO_URI) $(LABEL)",
            "Created-By: Packages",
        ]);
        let failed = |said: &str| GuestError::Fetch {
            package: format!("linux-source-{}", self.series),
            program: APT_GET.into(),
            said: said.to_owned(),
        };
        let output = command.env("LC_ALL", "C").stdin(Stdio::null()).output();
        let output = output.map_err(|error| failed(&error.to_string()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let mirror = said.lines().find_map(|line| line.strip_suffix(" Debian"));
        mirror.map(str::to_owned).ok_or_else(|| failed("no mirror of Debian is configured on this machine"))
    }
}

/// The only entry of `dir` with a name that `wanted` accepts.
fn only(dir: &Path, wanted: impl Fn(&str) -> bool) -> Result<PathBuf, GuestError> {
    let entries = fs::read_dir(dir).map_err(at(dir, "list"))?;
    let mut paths = entries.flatten().filter(|entry| wanted(&entry.file_name().to_string_lossy()));
    let found = paths.next().map(|entry| entry.path());
    found.ok_or_else(|| at(dir, "find the source in")(ErrorKind::NotFound.into()))
}
