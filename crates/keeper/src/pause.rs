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
    /// The mount point; none for all file systems.
    mount: Option<PathBuf>,
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
    /// Those below the service's run directory `run`.
    pub fn of(run: &Path) -> Self {
        Self(run.join(DIRECTORY))
    }

    /// Pauses the trims of the file system at `mount`, or of all, for `length`. Replaces an earlier pause of the same.
    ///
    /// # Errors
    /// [`PauseError`].
    pub fn set(&self, mount: Option<&Path>, length: Duration) -> Result<(), PauseError> {
        let failed = |source| PauseError::Directory { path: self.0.clone(), source };
        fs::create_dir_all(&self.0).map_err(failed)?;
        let until = since_boot().saturating_add(length);
        let until_s = until.as_secs().saturating_add(u64::from(until.subsec_nanos() > 0));
        let pause = Pause { mount: mount.map(Path::to_owned), until_s };
        let text = serde_json::to_vec(&pause).map_err(|error| failed(error.into()))?;
        Ok(Output::open_private(&self.file(mount))?.replace(&text)?)
    }

    /// Ends the pause of the file system at `mount`, or that of all. Returns whether there was one.
    ///
    /// # Errors
    /// [`PauseError::Remove`].
    pub fn end(&self, mount: Option<&Path>) -> Result<bool, PauseError> {
        let path = self.file(mount);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(PauseError::Remove { path, source }),
        }
    }

    /// Returns the pauses that have not ended.
    pub fn read(&self) -> Vec<Pause> {
        let now = since_boot().as_secs();
        let files = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let pauses = files.filter_map(|entry| {
            let pause: Pause = serde_json::from_slice(&read_regular(&entry.path(), MAX_SIZE).ok()?).ok()?;
            if pause.until_s <= now {
                _ = fs::remove_file(entry.path());
            }
            Some(pause)
        });
        pauses.filter(|pause| pause.until_s > now).collect()
    }

    fn file(&self, mount: Option<&Path>) -> PathBuf {
        let name = mount.map_or_else(
            || "all".to_owned(),
            |mount| format!("{:016x}", xxh3_64(mount.as_os_str().as_encoded_bytes())),
        );
        self.0.join(name).with_extension("json")
    }
}

impl Pause {
    /// Returns for how long `pauses` keep the file system mounted at `targets` from being trimmed; zero if they don't.
    pub fn left<'a>(pauses: &[Self], targets: impl IntoIterator<Item = &'a PathBuf>) -> Duration {
        let targets: Vec<_> = targets.into_iter().collect();
        let holds = |pause: &&Self| pause.mount.as_ref().is_none_or(|mount| targets.contains(&mount));
        let until = pauses.iter().filter(holds).map(|pause| pause.until_s).max().unwrap_or(0);
        Duration::from_secs(until).saturating_sub(since_boot())
    }
}

/// The time since boot, with that in which the machine slept.
fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_of_one_mount_holds_no_other() {
        let run = tempfile::tempdir().unwrap();
        let pauses = Pauses::of(run.path());
        let left =
            |target: &str| Pause::left(&pauses.read(), &[PathBuf::from("/other"), target.into()]).as_secs();
        assert_eq!(left("/a"), 0);
        pauses.set(Some(Path::new("/a")), Duration::from_secs(600)).unwrap();
        assert!((598..=601).contains(&left("/a")), "{}", left("/a"));
        assert_eq!(left("/b"), 0);
        pauses.set(None, Duration::from_secs(60)).unwrap();
        assert!((58..=61).contains(&left("/b")) && left("/a") > 61);
        assert!(pauses.end(Some(Path::new("/a"))).unwrap() && !pauses.end(Some(Path::new("/a"))).unwrap());
        assert!(left("/a") <= 61);
        assert!(pauses.end(None).unwrap());
        assert_eq!(left("/a"), 0);
    }

    #[test]
    fn pause_lasts_as_long_as_it_was_asked_for() {
        let run = tempfile::tempdir().unwrap();
        let pauses = Pauses::of(run.path());
        for length in [Duration::from_millis(1), Duration::from_millis(700), Duration::from_secs(1)] {
            let begun = since_boot();
            pauses.set(None, length).unwrap();
            let [pause] = &pauses.read()[..] else { panic!("there is one") };
            let until = Duration::from_secs(pause.until_s);
            assert!(until >= begun + length && until <= since_boot() + length + Duration::from_secs(1));
        }
    }

    #[test]
    fn pause_that_is_over_is_removed_and_damaged_files_are_ignored() {
        let run = tempfile::tempdir().unwrap();
        let pauses = Pauses::of(run.path());
        fs::create_dir(&pauses.0).unwrap();
        fs::write(pauses.0.join("all.json"), r#"{"mount":null,"until_s":0}"#).unwrap();
        fs::write(pauses.0.join("x.json"), "{").unwrap();
        assert_eq!(pauses.read(), []);
        assert_eq!(fs::read_dir(&pauses.0).unwrap().count(), 1);
    }
}
