//! The trims that run on this machine, but for those of the service: a pause ends them.
//!
//! Each is a file in the directory `trims` of the service's run directory, locked until the trim and its process in FITRIM have
//! ended.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use trimtab_linux::PROCFS;
use trimtab_linux::file::{open_regular, read_regular};

/// The name of the directory.
const DIRECTORY: &str = "trims";
/// The maximum size of a file in bytes.
const MAX_SIZE: u64 = 1 << 16;

/// Makes a trim by this process known to [`RunningTrims`] until it is dropped.
#[derive(Debug)]
pub struct Announced {
    path: PathBuf,
    /// Processes that have it open share its lock.
    file: Option<Arc<File>>,
}

/// The most that is read of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Trim {
    process: i32,
    /// A mount point of the file system.
    mount: PathBuf,
}

impl Announced {
    /// Announces a trim by this process of the file system mounted at `mount`; `run` is the service's run directory.
    ///
    /// # Errors
    /// The kernel's error, such as without the rights of root; then no pause ends the trim.
    pub fn new(run: &Path, mount: &Path) -> io::Result<Self> {
        let directory = run.join(DIRECTORY);
        fs::create_dir_all(&directory)?;
        let process = rustix::process::getpid().as_raw_nonzero().get();
        let text = serde_json::to_vec(&Trim { process, mount: mount.to_owned() })?;
        let mut number = 0_u32;
        loop {
            let path = directory.join(format!("{process}-{number}.json"));
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let file = open_regular(&path, &mut options)?;
            // Held by another one of this process, or looked at just now.
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                number += 1;
                continue;
            }
            // Somebody took it for one that was left behind.
            if !is_at(&file, &path) {
                continue;
            }
            file.set_len(0)?;
            file.write_all_at(&text, 0)?;
            return Ok(Self { path, file: Some(Arc::new(file)) });
        }
    }

    /// Returns the file, for processes that trim as well.
    pub fn file(&self) -> Option<Arc<File>> {
        self.file.clone()
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        drop(self.file.take());
        // One that is still in FITRIM is to be found.
        _ = locked(&self.path);
    }
}

/// Returns the file at `path` if a trim holds its lock. Removes it if none does.
fn locked(path: &Path) -> Option<File> {
    let file = open_regular(path, OpenOptions::new().read(true)).ok()?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Some(file);
    }
    if is_at(&file, path) {
        _ = fs::remove_file(path);
    }
    None
}

/// Returns whether `file` is what is at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    let number = |found: fs::Metadata| (found.dev(), found.ino());
    file.metadata().map(number).ok() == path.metadata().map(number).ok()
}

/// The trims that run. Each is told to end once.
#[derive(Debug)]
pub struct RunningTrims {
    directory: PathBuf,
    told: Vec<Pid>,
}

impl RunningTrims {
    /// The trims whose files are below the service's run directory `run`.
    pub fn of(run: &Path) -> Self {
        Self { directory: run.join(DIRECTORY), told: Vec::new() }
    }

    /// Asks the trims of the file system at these mount points, or of all, to end. Returns the number of those that run. Trims
    /// that have not written their mount point yet count as well.
    pub fn end(&mut self, mounts: Option<&[PathBuf]>) -> usize {
        let (known, unknown) = self.find(mounts);
        for process in &known {
            // The next signals would end it before its process in FITRIM.
            if !self.told.contains(process) {
                self.told.push(*process);
                _ = kill_process(*process, Signal::TERM);
            }
        }
        known.len() + unknown
    }

    fn find(&self, mounts: Option<&[PathBuf]>) -> (Vec<Pid>, usize) {
        let (mut known, mut unknown) = (Vec::new(), 0);
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let Some(file) = locked(&path) else { continue };
            let text = read_regular(&path, MAX_SIZE).unwrap_or_default();
            match serde_json::from_slice::<Trim>(&text) {
                Ok(trim) if mounts.is_none_or(|mounts| mounts.contains(&trim.mount)) => {
                    match Pid::from_raw(trim.process).filter(|process| holds(*process, &file)) {
                        Some(process) => known.push(process),
                        // Only its process in FITRIM is left.
                        None => unknown += 1,
                    }
                }
                Ok(_) => {}
                Err(_) => unknown += 1,
            }
        }
        (known, unknown)
    }
}

/// Returns whether `process` has that file open: the number of a process may be another one's by now, or be that in a container.
fn holds(process: Pid, file: &File) -> bool {
    let files = Path::new(PROCFS).join(process.as_raw_nonzero().to_string()).join("fd");
    fs::read_dir(files).into_iter().flatten().flatten().any(|entry| is_at(file, &entry.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trims_that_run_are_found_by_their_locks() {
        let run = tempfile::tempdir().unwrap();
        let running = RunningTrims::of(run.path());
        let own = rustix::process::getpid();
        assert_eq!(running.find(None), (vec![], 0));
        let first = Announced::new(run.path(), Path::new("/mnt")).unwrap();
        let other = Announced::new(run.path(), Path::new("/other")).unwrap();
        assert_eq!(running.find(Some(&["/bind".into(), "/mnt".into()])), (vec![own], 0));
        assert_eq!(running.find(None), (vec![own; 2], 0));
        assert_eq!(running.find(Some(&["/third".into()])), (vec![], 0));
        // It has not written yet what it trims.
        other.file.as_ref().unwrap().set_len(0).unwrap();
        assert_eq!(running.find(Some(&["/third".into()])), (vec![], 1));
        drop(other);
        assert_eq!(running.find(None), (vec![own], 0));
        // Its process in FITRIM is left.
        let file = first.file();
        drop(first);
        assert_eq!(running.find(Some(&["/mnt".into()])), (vec![own], 0));
        drop(file);
        assert_eq!(running.find(None), (vec![], 0));
        assert_eq!(fs::read_dir(run.path().join(DIRECTORY)).unwrap().count(), 0, "no file is left behind");
    }

    #[test]
    fn processes_that_hold_another_file_are_not_told_to_end() {
        let run = tempfile::tempdir().unwrap();
        let directory = run.path().join(DIRECTORY);
        fs::create_dir(&directory).unwrap();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let path = directory.join("1-0.json");
        let process = i32::try_from(child.id()).unwrap();
        fs::write(&path, serde_json::to_vec(&Trim { process, mount: "/mnt".into() }).unwrap()).unwrap();
        let lock = File::open(&path).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        assert_eq!(RunningTrims::of(run.path()).end(None), 1);
        assert!(child.try_wait().unwrap().is_none(), "it lives on");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
