//! Builds the kernel from Debian's source, once, into the cache.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirEntry, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tempfile::TempDir;
use trimtab_core::error::chain;
use trimtab_core::interrupt::Interrupt;
use trimtab_linux::child::die_with_parent;
use xxhash_rust::xxh3::xxh3_64;

use super::source::Source;
use crate::debian::cache;
use crate::error::{GuestError, at};
use crate::program::{self, ProgramError, Reason};
use crate::programs;
use trimtab_linux::environment::processors;

/// The options that the kernel is built with, in addition to `tinyconfig`.
const CONFIG: &str = include_str!("../../uml/config");
/// Our changes of the kernel.
const PATCH: &str = include_str!("../../uml/trimtab.patch");
/// The names of both while a kernel is built.
const CONFIG_FILE: &str = "trimtab.config";
const PATCH_FILE: &str = "trimtab.patch";
/// How the names of directories begin in which kernels are built.
const BUILDING: &str = "new-";
/// The name of the kernel's file.
const KERNEL: &str = "linux";
/// Programs that a build needs, and the packages that they come in.
const BUILDERS: [(&str, &str); 10] = [
    ("cc", "build-essential"),
    ("make", "build-essential"),
    ("patch", "build-essential"),
    ("strip", "build-essential"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
    ("dpkg-deb", "dpkg"),
];

/// A kernel that was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Built {
    /// The program.
    pub(crate) kernel: PathBuf,
    /// As uname gives it.
    pub(crate) release: String,
}

/// Builds a kernel in a cache.
#[derive(Debug)]
pub(crate) struct Recipe {
    cache: PathBuf,
    source: Source,
    /// The directories that have the programs.
    path: OsString,
}

impl Recipe {
    /// A recipe that uses this machine's programs and the cache of the guests' kernels.
    pub(crate) fn new() -> Self {
        let path = env::var_os("PATH").unwrap_or_default();
        Self { cache: cache(), source: Source::debian(path.clone()), path }
    }

    /// Returns the kernel, which is built first if the cache has none of this source, configuration and patch.
    ///
    /// # Errors
    /// [`GuestError::NoBuilder`], [`GuestError::Build`], [`GuestError::Fetch`], [`GuestError::File`] or
    /// [`GuestError::Interrupted`]. Nothing is left in the cache then.
    pub(crate) fn kernel(&self, interrupt: &Interrupt) -> Result<Built, GuestError> {
        let built = self.place();
        if !built.is_dir() {
            for (program, package) in BUILDERS {
                programs::find_in(&self.path, program).ok_or(GuestError::NoBuilder { program, package })?;
            }
            fs::create_dir_all(&self.cache).map_err(at(&self.cache, "make"))?;
            let _turn = self.wait_for_others(interrupt)?;
            if !built.is_dir() {
                self.build(&built, interrupt)?;
            }
        }
        let kernel = built.join(KERNEL);
        require_own(&built)?;
        require_own(&kernel)?;
        let release = release(&kernel)?;
        Ok(Built { kernel, release })
    }

    /// Whether the kernel is in the cache already.
    pub(crate) fn is_built(&self) -> bool {
        self.place().is_dir()
    }

    /// The directory of the built kernel. Its name changes with everything that the kernel is made of.
    fn place(&self) -> PathBuf {
        let hash = xxh3_64([CONFIG, PATCH].concat().as_bytes());
        self.cache.join(format!("uml-{}-{hash:016x}", self.source.version))
    }

    fn build(&self, built: &Path, interrupt: &Interrupt) -> Result<(), GuestError> {
        self.remove_abandoned();
        let room =
            TempDir::with_prefix_in(BUILDING, &self.cache).map_err(at(&self.cache, "make a file in"))?;
        let tree = self.source.unpack(room.path(), interrupt)?;
        let write = |name: &str, text: &str| {
            let path = room.path().join(name);
            fs::write(&path, text).map_err(at(&path, "write"))
        };
        write(CONFIG_FILE, CONFIG)?;
        write(PATCH_FILE, PATCH)?;
        let run = |program: &'static str, arguments: &[&OsStr]| {
            let mut command = Command::new(program);
            // Variables such as MAKEFLAGS or KCFLAGS would make another kernel.
            command.args(arguments).current_dir(&tree).env_clear().env("LC_ALL", "C").env("PATH", &self.path);
            let kept = ["HOME", "TMPDIR"].into_iter().filter_map(|name| Some((name, env::var_os(name)?)));
            command.envs(kept);
            die_with_parent(&mut command);
            let failed = |said| GuestError::Build { release: self.source.version.clone(), program, said };
            program::run(command.stdin(Stdio::null()), Reason::First, interrupt).map_err(
                |error| match error {
                    ProgramError::Interrupted(interrupted) => interrupted.into(),
                    ProgramError::Failed { stderr, .. } => failed(stderr),
                    error => failed(chain(&error)),
                },
            )
        };
        let file = |name: &str| room.path().join(name).into_os_string();
        let with = |option: &str, path: &OsStr| {
            let mut word = OsString::from(option);
            word.push(path);
            word
        };
        let (patch, config, out) = (file(PATCH_FILE), file(CONFIG_FILE), file("out"));
        let (out_option, jobs) = (with("O=", &out), format!("-j{}", processors()));
        let merged = Path::new(&out).join(".config");
        let make = |target: &'static str| ["-s", "ARCH=um", target].map(OsStr::new);
        run("patch", &["-p1".as_ref(), "-s".as_ref(), "-i".as_ref(), &patch])?;
        run("make", &[&make("tinyconfig")[..], &[&out_option]].concat())?;
        let merge = ["scripts/kconfig/merge_config.sh", "-m", "-O"].map(OsStr::new);
        run("sh", &[&merge[..], &[&out, merged.as_ref(), &config]].concat())?;
        run("make", &[&make("olddefconfig")[..], &[&out_option]].concat())?;
        let build = [&["make".as_ref()][..], &make(KERNEL), &[&out_option, jobs.as_ref()]].concat();
        run("nice", &build)?;
        let done = room.path().join("done");
        fs::create_dir(&done).map_err(at(&done, "make"))?;
        let kernel = Path::new(&out).join(KERNEL);
        run("strip", &["-o".as_ref(), done.join(KERNEL).as_ref(), kernel.as_ref()])?;
        match fs::rename(&done, built) {
            // Of two that build at once, the second finds the work done.
            Err(_) if built.is_dir() => Ok(()),
            renamed => renamed.map_err(at(built, "make")),
        }
    }
}

/// A build that was begun so long ago was killed.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// The file in the cache that whoever builds holds locked.
const LOCK: &str = "uml.lock";
/// How long a build waits before it asks again for the lock.
const PATIENCE: Duration = Duration::from_millis(200);

impl Recipe {
    /// Waits until no other process builds, which would take processors from this one for the same result. Returns the locked file;
    /// `None` where there can be no lock.
    fn wait_for_others(&self, interrupt: &Interrupt) -> Result<Option<File>, GuestError> {
        let path = self.cache.join(LOCK);
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let Ok(file) = file else { return Ok(None) };
        loop {
            interrupt.check()?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(file)),
                Err(Errno::WOULDBLOCK | Errno::INTR) => thread::sleep(PATIENCE),
                Err(_) => return Ok(None),
            }
        }
    }

    /// Removes what killed builds left.
    fn remove_abandoned(&self) {
        let entries = fs::read_dir(&self.cache).into_iter().flatten().flatten();
        let is_new = |entry: &DirEntry| entry.file_name().to_string_lossy().starts_with(BUILDING);
        for entry in entries.filter(is_new) {
            let age =
                entry.metadata().and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age > ABANDONED) {
                // What cannot be removed harms nobody.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Checks that nobody but the user who runs it, or root, can have written what is executed.
fn require_own(path: &Path) -> Result<(), GuestError> {
    let found = fs::symlink_metadata(path).map_err(at(path, "look at"))?;
    let is_own = [0, rustix::process::geteuid().as_raw()].contains(&found.uid());
    if !is_own || found.mode() & 0o002 != 0 {
        let reason =
            format!("{} belongs to another user, or others can write to it; remove it", path.display());
        return Err(GuestError::NoUml { reason });
    }
    Ok(())
}

/// The release of a kernel, as it prints it.
fn release(kernel: &Path) -> Result<String, GuestError> {
    let mut command = Command::new(kernel);
    let output = command.arg("--version").stdin(Stdio::null()).output().map_err(at(kernel, "run"))?;
    let release = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || release.is_empty() {
        let reason =
            String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("no message").to_owned();
        return Err(GuestError::NoUml { reason });
    }
    Ok(release)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::executable::make_executable;

    /// A recipe whose programs are lines of a shell: they do nothing but what `lines` says.
    fn recipe(room: &Path, lines: &[(&str, &str)]) -> Recipe {
        let bin = room.join("bin");
        fs::create_dir_all(&bin).unwrap();
        let others = [
            ("apt-get", "touch linux-source.deb"),
            ("dpkg-deb", "mkdir -p package/usr/src; touch package/usr/src/linux.tar.xz"),
            (
                "tar",
                "cd source && mkdir -p linux-source-1/scripts/kconfig && touch linux-source-1/scripts/kconfig/merge_config.sh",
            ),
            ("strip", "printf '#!/bin/sh\\necho 1-trimtab\\n' >\"$2\"; chmod +x \"$2\""),
        ];
        for (program, _) in BUILDERS.iter().chain(&[("apt-get", ""), ("nice", "")]) {
            let line =
                lines.iter().chain(&others).find(|(name, _)| name == program).map_or("", |(_, line)| line);
            make_executable(&bin.join(program), format!("#!/bin/sh\n{line}\n").as_bytes());
        }
        let mut path = bin.into_os_string();
        path.push(":/usr/bin:/bin");
        Recipe { cache: room.join("cache"), source: Source::debian(path.clone()), path }
    }

    fn entries(recipe: &Recipe) -> usize {
        let found = fs::read_dir(&recipe.cache).into_iter().flatten().flatten();
        found.filter(|entry| entry.file_name() != LOCK).count()
    }

    #[test]
    fn kernel_is_built_once() {
        let room = tempfile::tempdir().unwrap();
        let first = recipe(room.path(), &[]);
        assert!(!first.is_built());
        let built = first.kernel(&Interrupt::never()).unwrap();
        assert_eq!(built.release, "1-trimtab");
        assert!(first.is_built());
        let fails = recipe(room.path(), &[("make", "exit 1"), ("apt-get", "exit 1")]);
        assert_eq!(fails.kernel(&Interrupt::never()).unwrap(), built);
        assert_eq!(entries(&first), 1);
    }

    #[test]
    fn builders_at_the_same_time_share_a_kernel() {
        let room = tempfile::tempdir().unwrap();
        let count = room.path().join("count");
        let line = format!(
            "echo >>{}; sleep 0.3; printf '#!/bin/sh\\necho 1-trimtab\\n' >\"$2\"; chmod +x \"$2\"",
            count.display()
        );
        let recipe = recipe(room.path(), &[("strip", &line)]);
        thread::scope(|scope| {
            let builds = [(); 3].map(|()| scope.spawn(|| recipe.kernel(&Interrupt::never()).unwrap()));
            let kernels = builds.map(|build| build.join().unwrap());
            assert!(kernels.iter().all(|kernel| *kernel == kernels[0]));
        });
        assert_eq!(fs::read_to_string(&count).unwrap(), "\n", "one builds, and the others wait");
        assert_eq!(entries(&recipe), 1);
    }

    #[test]
    fn build_that_fails_leaves_nothing_and_says_why() {
        let offline = "echo 'E: no such version' >&2; exit 100";
        for (program, line, said) in [
            (
                "patch",
                "echo 'hunk FAILED' >&2; exit 1",
                "cannot build User Mode Linux 7.3.4-1~bpo13+1: patch said: hunk FAILED",
            ),
            (
                "nice",
                "echo 'x.c:1: error: y' >&2; exit 2",
                "cannot build User Mode Linux 7.3.4-1~bpo13+1: nice said: x.c:1: error: y",
            ),
            (
                "dpkg-deb",
                "echo 'no space left' >&2; exit 2",
                "cannot fetch linux-source-7.3: dpkg-deb said: no space left",
            ),
            (
                "apt-get",
                offline,
                "cannot fetch linux-source-7.3: apt-get said: no mirror of Debian is configured on this machine",
            ),
        ] {
            let room = tempfile::tempdir().unwrap();
            let recipe = recipe(room.path(), &[(program, line)]);
            assert_eq!(recipe.kernel(&Interrupt::never()).unwrap_err().to_string(), said);
            assert_eq!(entries(&recipe), 0);
        }
    }

    #[test]
    fn missing_builder_is_named_with_its_package() {
        let room = tempfile::tempdir().unwrap();
        let recipe = Recipe { path: "/nonexistent".into(), ..recipe(room.path(), &[]) };
        let said = recipe.kernel(&Interrupt::never()).unwrap_err().to_string();
        assert_eq!(said, "building User Mode Linux needs cc; install it (apt-get install build-essential)");
        assert!(!recipe.cache.exists());
    }

    #[test]
    fn kernel_that_others_can_write_is_not_run() {
        let room = tempfile::tempdir().unwrap();
        let recipe = recipe(room.path(), &[]);
        let built = recipe.kernel(&Interrupt::never()).unwrap();
        fs::set_permissions(&built.kernel, Permissions::from_mode(0o777)).unwrap();
        let error = recipe.kernel(&Interrupt::never()).unwrap_err().to_string();
        assert!(error.contains("others can write to it; remove it"), "{error}");
    }

    #[test]
    fn lists_of_our_own_are_fetched_where_the_machine_has_no_such_source() {
        let room = tempfile::tempdir().unwrap();
        let apt_get = r#"case $1 in
            indextargets) echo "http://mirror/backports Debian Backports"; echo "http://mirror/security Debian-Security"
                echo "http://mirror/debian/ Debian";;
            update) grep -q "http://mirror/debian/ trixie-backports main" apt/sources.list && touch apt/lists/fetched;;
            download) [ -e apt/lists/fetched ] && [ "$APT_CONFIG" = "$PWD/apt/apt.conf" ] && [ "$3" = linux-source-7.3 ] &&
                touch linux-source.deb;;
            esac"#;
        let recipe = recipe(room.path(), &[("apt-get", apt_get)]);
        recipe.kernel(&Interrupt::never()).unwrap();
    }
}
