//! Pauses: until when no file system, or one, may be trimmed by the service or `trimtab trim`.
//!
//! Each is a file in the directory `pauses` of the service's run directory, which a reboot empties. Their times are those of the
//! clock that also runs while the machine sleeps.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use trimtab_core::shell::quoted;
use trimtab_linux::file::{Output, OutputError, read_regular};
use xxhash_rust::xxh3::xxh3_64;

/// The name of the directory.
const DIRECTORY: &str = "pauses";
/// The maximum size of a file in bytes.
const MAX_SIZE: u64 = 1 << 16;

/// The directory of the pauses.
#[derive(Debug, Clone)]
pub struct Pauses(PathBuf);

/// A pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// The mount points of the file system when it began; none for all file systems.
    mounts: Vec<PathBuf>,
    /// When it ends, in seconds since boot.
    until_s: u64,
}

/// Why a pause can't be set or ended.
#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    /// The directory can't be created.
    #[error("cannot create {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The file can't be written.
    #[error(transparent)]
    Write(#[from] OutputError),
    /// The file can't be removed.
    #[error("cannot remove {}", path.display())]
    Remove {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

impl Pauses {
    /// The pauses below the service's run directory `run`.
    pub fn of(run: &Path) -> Self {
        Self(run.join(DIRECTORY))
    }

    /// Pauses the trims of the file system with these mount points, or of all if there are none, for `length`. An earlier pause of
    /// the same that ends later stays.
    ///
    /// # Errors
    /// [`PauseError`].
    pub fn set(&self, mounts: &[PathBuf], length: Duration) -> Result<(), PauseError> {
        let failed = |source| PauseError::Directory { path: self.0.clone(), source };
        fs::create_dir_all(&self.0).map_err(failed)?;
        let until = since_boot().saturating_add(length);
        let until_s = until.as_secs().saturating_add(u64::from(until.subsec_nanos() > 0));
        if self.read().iter().any(|other| other.mounts == mounts && other.until_s >= until_s) {
            return Ok(());
        }
        let pause = Pause { mounts: mounts.to_vec(), until_s };
        let text = serde_json::to_vec(&pause).map_err(|error| failed(error.into()))?;
        let name = serde_json::to_vec(&pause.mounts).map_err(|error| failed(error.into()))?;
        let file = self.0.join(format!("{:016x}.json", xxh3_64(&name)));
        Ok(Output::open_private(&file)?.replace(&text)?)
    }

    /// Ends the pauses of the file system with these mount points, or those of all if there are none. Returns whether there was
    /// one.
    ///
    /// # Errors
    /// [`PauseError::Remove`].
    pub fn end(&self, mounts: &[PathBuf]) -> Result<bool, PauseError> {
        let mut was_paused = false;
        for (path, pause) in self.files().filter(|(_, pause)| pause.is_of(mounts)) {
            match fs::remove_file(&path) {
                Ok(()) => was_paused |= !pause.rest().is_zero(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(PauseError::Remove { path, source }),
            }
        }
        Ok(was_paused)
    }

    /// Returns the pauses that have not ended.
    pub fn read(&self) -> Vec<Pause> {
        let mut pauses = Vec::new();
        for (path, pause) in self.files() {
            if pause.rest().is_zero() {
                _ = fs::remove_file(path);
            } else {
                pauses.push(pause);
            }
        }
        pauses
    }

    fn files(&self) -> impl Iterator<Item = (PathBuf, Pause)> {
        let files = fs::read_dir(&self.0).into_iter().flatten().flatten().map(|entry| entry.path());
        files.filter_map(|path| {
            let pause = serde_json::from_slice(&read_regular(&path, MAX_SIZE).ok()?).ok()?;
            Some((path, pause))
        })
    }
}

impl Pause {
    /// Returns the first mount point of the paused file system, or nothing if all are paused.
    pub fn mount(&self) -> Option<&Path> {
        self.mounts.first().map(PathBuf::as_path)
    }

    /// Returns for how long it goes on.
    pub fn rest(&self) -> Duration {
        Duration::from_secs(self.until_s).saturating_sub(since_boot())
    }

    /// Returns the command that ends it.
    pub fn resumption(&self) -> String {
        resumption(self.mount())
    }

    /// Returns true if it is for the file system with these mount points, or if both mean all file systems.
    fn is_of(&self, mounts: &[PathBuf]) -> bool {
        self.mounts.is_empty() && mounts.is_empty() || self.mounts.iter().any(|mount| mounts.contains(mount))
    }

    /// Returns the one of `pauses` that keeps the file system mounted at `targets` from being trimmed for the longest time.
    pub fn longest<'a>(pauses: &'a [Self], targets: &[PathBuf]) -> Option<&'a Self> {
        let holds = |pause: &&Self| pause.mounts.is_empty() || pause.is_of(targets);
        pauses.iter().filter(holds).max_by_key(|pause| pause.until_s)
    }

    /// Returns for how long `pauses` keep the file system mounted at `targets` from being trimmed; zero if they don't.
    pub fn left(pauses: &[Self], targets: &[PathBuf]) -> Duration {
        Self::longest(pauses, targets).map_or(Duration::ZERO, Self::rest)
    }
}

/// Returns the command that ends the pause of the file system at `mount`, or of all.
pub fn resumption(mount: Option<&Path>) -> String {
    mount.map_or("trimtab resume".to_owned(), |mount| format!("trimtab resume {}", quoted(mount.display())))
}

/// Returns the text for a time, in whole seconds.
pub fn in_seconds(time: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(time.as_secs().max(1)))
}

/// The time since boot, with the time for which the machine slept.
fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(paths: &[&str]) -> Vec<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn pause_of_one_mount_holds_no_other() {
        let run = tempfile::tempdir().unwrap();
        let pauses = Pauses::of(run.path());
        let left = |target: &str| Pause::left(&pauses.read(), &paths(&["/other", target])).as_secs();
        let (bound, all) = (paths(&["/a", "/bind"]), Vec::new());
        assert_eq!(left("/a"), 0);
        pauses.set(&bound, Duration::from_secs(600)).unwrap();
        assert!((598..=601).contains(&left("/a")), "{}", left("/a"));
        assert_eq!((left("/b"), left("/bind") > 500), (0, true), "any mount point stands for it");
        pauses.set(&all, Duration::from_secs(60)).unwrap();
        assert!((58..=61).contains(&left("/b")) && left("/a") > 61);
        assert!(!pauses.end(&paths(&["/b"])).unwrap());
        let bind = paths(&["/bind", "/elsewhere"]);
        assert!(pauses.end(&bind).unwrap() && !pauses.end(&bind).unwrap());
        assert!(left("/a") <= 61);
        assert!(pauses.end(&all).unwrap());
        assert_eq!(left("/a"), 0);
    }

    #[test]
    fn pause_lasts_as_long_as_it_was_asked_for() {
        let run = tempfile::tempdir().unwrap();
        let pauses = Pauses::of(run.path());
        for length in [Duration::from_millis(1), Duration::from_millis(700), Duration::from_secs(1)] {
            _ = pauses.end(&[]);
            let begun = since_boot();
            pauses.set(&[], length).unwrap();
            let [pause] = &pauses.read()[..] else { panic!("there is one") };
            let until = Duration::from_secs(pause.until_s);
            assert!(until >= begun + length && until <= since_boot() + length + Duration::from_secs(1));
        }
        pauses.set(&[], Duration::from_secs(3600)).unwrap();
        pauses.set(&[], Duration::from_secs(60)).unwrap();
        assert!(pauses.read()[0].rest() > Duration::from_secs(3500), "the later end holds");
    }

    #[test]
    fn pause_that_is_over_is_removed_and_damaged_files_are_ignored() {
        let run = tempfile::tempdir().unwrap();
        let pauses = Pauses::of(run.path());
        fs::create_dir(&pauses.0).unwrap();
        fs::write(pauses.0.join("all.json"), r#"{"mounts":[],"until_s":0}"#).unwrap();
        fs::write(pauses.0.join("x.json"), "{").unwrap();
        assert_eq!(pauses.read(), []);
        assert_eq!(fs::read_dir(&pauses.0).unwrap().count(), 1);
    }
}
