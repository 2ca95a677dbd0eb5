//! The progress of a trim, from which the next one resumes after an interruption.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use trimtab_core::{Bytes, Extent};
use trimtab_linux::file::{open_regular, read_regular_text};

/// The directory of the files, unless the service manager sets another one.
const DIRECTORY: &str = "/run/trimtab";

/// The maximum size of such a file in bytes.
const MAX_SIZE: u64 = 1 << 20;

/// Why the progress of a trim can't be saved.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another trim of the same file system runs.
    #[error("another trimtab trim of {} is running", mount.display())]
    Busy {
        /// The mount point.
        mount: PathBuf,
    },
    /// The file can't be created, read or written.
    #[error("cannot save the progress of the trim in {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// The request of a trim and its progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// The identifier of the file system.
    pub file_system: String,
    /// Its mount point.
    pub mount: PathBuf,
    /// The requested range.
    pub range: Extent,
    /// The requested minimum; none for the default.
    pub asked_minimum: Option<Bytes>,
    /// The minimum that was used.
    pub minimum: Bytes,
    /// The address that was reached; `None` if the trim is complete.
    pub reached: Option<Bytes>,
}

/// The progress file of one file system, locked until it is dropped.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    last: Option<Progress>,
}

impl Journal {
    /// Opens and locks the file of the file system `id`, mounted at `mount`, in the first directory of
    /// `RUNTIME_DIRECTORY` or in `/run/trimtab`.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open(id: &str, mount: &Path) -> Result<Self, JournalError> {
        Self::open_in(&directory(), id, mount)
    }

    /// Returns the progress of the last trim of the file system `id`, without a lock.
    pub fn peek(id: &str) -> Option<Progress> {
        let text = read_regular_text(&file_of(&directory(), id), MAX_SIZE).ok()?;
        parse(&text, id)
    }

    fn open_in(directory: &Path, id: &str, mount: &Path) -> Result<Self, JournalError> {
        let path = file_of(directory, id);
        let failed = |source| JournalError::File { path: path.clone(), source };
        fs::create_dir_all(directory).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = open_regular(&path, &mut options).map_err(failed)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            Errno::WOULDBLOCK => JournalError::Busy { mount: mount.to_owned() },
            errno => failed(errno.into()),
        })?;
        // The file is invalid if a trim was killed while it wrote; then there is nothing to resume.
        let last = io::read_to_string((&file).take(MAX_SIZE)).ok().and_then(|text| parse(&text, id));
        Ok(Self { file, path, last })
    }

    /// Returns the progress of the last trim.
    pub fn last(&self) -> Option<&Progress> {
        self.last.as_ref()
    }

    /// Saves the progress.
    ///
    /// # Errors
    /// [`JournalError::File`].
    pub fn write(&mut self, progress: &Progress) -> Result<(), JournalError> {
        let failed = |source| JournalError::File { path: self.path.clone(), source };
        let text = serde_json::to_vec(progress).map_err(|error| failed(error.into()))?;
        self.file.set_len(0).and_then(|()| self.file.write_all_at(&text, 0)).map_err(failed)
    }
}

fn directory() -> PathBuf {
    let given = std::env::var_os("RUNTIME_DIRECTORY");
    let first = given.as_deref().and_then(|list| std::env::split_paths(list).next());
    first.unwrap_or_else(|| PathBuf::from(DIRECTORY))
}

fn file_of(directory: &Path, id: &str) -> PathBuf {
    directory.join(format!("trim-{id}.json"))
}

fn parse(text: &str, id: &str) -> Option<Progress> {
    serde_json::from_str(text).ok().filter(|last: &Progress| last.file_system == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(id: &str) -> Progress {
        Progress {
            file_system: id.to_owned(),
            mount: PathBuf::from("/mnt"),
            range: Extent::at(Bytes(0), Bytes(u64::MAX)),
            asked_minimum: None,
            minimum: Bytes(4096),
            reached: Some(Bytes(1 << 30)),
        }
    }

    #[test]
    fn progress_is_saved_and_locked() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("new");
        let open = |id: &str| Journal::open_in(&directory, id, Path::new("/mnt"));
        let mut journal = open("a").unwrap();
        assert_eq!(journal.last(), None);
        journal.write(&Progress { reached: Some(Bytes(1 << 60)), ..progress("a") }).unwrap();
        journal.write(&progress("a")).unwrap();
        let busy = open("a").unwrap_err().to_string();
        assert_eq!(busy, "another trimtab trim of /mnt is running");
        assert_eq!(open("b").unwrap().last(), None);
        drop(journal);
        assert_eq!(open("a").unwrap().last(), Some(&progress("a")));
    }

    #[test]
    fn torn_or_foreign_progress_is_ignored() {
        let root = tempfile::tempdir().unwrap();
        let whole = serde_json::to_string(&progress("a")).unwrap();
        for length in 0..whole.len() {
            fs::write(root.path().join("trim-a.json"), &whole[..length]).unwrap();
            assert_eq!(Journal::open_in(root.path(), "a", Path::new("/mnt")).unwrap().last(), None);
        }
        fs::write(root.path().join("trim-b.json"), &whole).unwrap();
        assert_eq!(Journal::open_in(root.path(), "b", Path::new("/mnt")).unwrap().last(), None);
    }

    #[test]
    fn pipe_is_refused_without_blocking() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let root = tempfile::tempdir().unwrap();
        mknodat(CWD, root.path().join("trim-a.json"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let refused = Journal::open_in(root.path(), "a", Path::new("/mnt")).unwrap_err();
        assert!(matches!(refused, JournalError::File { .. }), "{refused}");
    }
}
