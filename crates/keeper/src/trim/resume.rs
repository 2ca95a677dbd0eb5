//! The progress of a trim, from which the next one resumes after an interruption; and which trims run.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use trimtab_core::{Bytes, Extent};
use trimtab_linux::PROCFS;
use trimtab_linux::file::{open_regular, read_regular_text};
use xxhash_rust::xxh3::xxh3_64;

/// The directory of the files, unless the service manager sets another one.
const DIRECTORY: &str = "/run/trimtab";

/// How the names of journals begin, and those of announced trims.
const TRIM: &str = "trim-";
const FSTRIM: &str = "fstrim-";

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
    /// The address that was reached; none if the trim is complete.
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
        let file = open(directory, &path).map_err(failed)?;
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

/// Makes a trim without a [`Journal`] known to [`end_running`] until it is dropped.
#[derive(Debug)]
pub struct Announced {
    /// Its lock is shared by all trims that name this mount point.
    _file: File,
}

impl Announced {
    /// Announces a trim by this process of the file system mounted at `mount`.
    ///
    /// # Errors
    /// The kernel's error, such as without the rights of root; then no pause ends the trim.
    pub fn new(mount: &Path) -> io::Result<Self> {
        Self::new_in(&directory(), mount)
    }

    fn new_in(directory: &Path, mount: &Path) -> io::Result<Self> {
        let name = format!("{FSTRIM}{:016x}.json", xxh3_64(mount.as_os_str().as_encoded_bytes()));
        let file = open(directory, &directory.join(name))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared)?;
        // All write the same.
        file.write_all_at(&serde_json::to_vec(&Place { mount: mount.to_owned() })?, 0)?;
        Ok(Self { _file: file })
    }
}

/// What is read of the file of a trim that runs.
#[derive(Debug, Serialize, Deserialize)]
struct Place {
    mount: PathBuf,
}

/// Asks the running trims of the file system at these mount points, or of all, to end: those of `trimtab trim`, also by the name
/// of fstrim. Returns how many run, with those of which it is not known yet what they trim.
pub fn end_running(mounts: Option<&[PathBuf]>) -> usize {
    let (known, unknown) = running_in(&directory(), Path::new(PROCFS), mounts);
    known.iter().for_each(|process| _ = kill_process(*process, Signal::TERM));
    known.len() + unknown
}

/// Returns the processes that hold the lock of a file in `directory`, and the number of those that have not written yet what
/// they trim.
fn running_in(directory: &Path, procfs: &Path, mounts: Option<&[PathBuf]>) -> (Vec<Pid>, usize) {
    let locks = fs::read_to_string(procfs.join("locks")).unwrap_or_default();
    let (mut known, mut unknown) = (Vec::new(), 0);
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        // The service's own files lie there, too.
        let name = entry.file_name();
        let is_of_trim =
            [TRIM, FSTRIM].iter().any(|kind| name.as_encoded_bytes().starts_with(kind.as_bytes()));
        let Some(found) = entry.metadata().ok().filter(|found| is_of_trim && found.is_file()) else {
            continue;
        };
        let mut holders = holders(&locks, found.ino()).peekable();
        if holders.peek().is_none() {
            continue;
        }
        let text = read_regular_text(&entry.path(), MAX_SIZE).unwrap_or_default();
        match serde_json::from_str::<Place>(&text) {
            Ok(place) if mounts.is_none_or(|mounts| mounts.contains(&place.mount)) => known.extend(holders),
            Ok(_) => {}
            Err(_) => unknown += holders.count(),
        }
    }
    (known, unknown)
}

/// Returns the processes that hold a lock of the file with this number, by the kernel's list:
/// `1: FLOCK  ADVISORY  WRITE 4711 00:1b:1234 0 EOF`. A file of the same number elsewhere has no such name, and no trim holds it.
fn holders(locks: &str, file: u64) -> impl Iterator<Item = Pid> {
    locks.lines().filter_map(move |line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "FLOCK").skip(3);
        let process = words.next()?.parse().ok()?;
        let number = words.next()?.rsplit(':').next()?.parse::<u64>().ok()?;
        Pid::from_raw(process).filter(|_| number == file)
    })
}

/// Opens the file `path` in `directory`, or creates both.
fn open(directory: &Path, path: &Path) -> io::Result<File> {
    fs::create_dir_all(directory)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    open_regular(path, &mut options)
}

fn directory() -> PathBuf {
    let given = std::env::var_os("RUNTIME_DIRECTORY");
    let first = given.as_deref().and_then(|list| std::env::split_paths(list).next());
    first.unwrap_or_else(|| PathBuf::from(DIRECTORY))
}

fn file_of(directory: &Path, id: &str) -> PathBuf {
    directory.join(format!("{TRIM}{id}.json"))
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
    fn trims_that_run_are_found_by_their_locks() {
        let root = tempfile::tempdir().unwrap();
        let running = |mounts: Option<&[PathBuf]>| running_in(root.path(), Path::new(PROCFS), mounts);
        let own = rustix::process::getpid();
        let service = File::create(root.path().join("daemon.lock")).unwrap();
        rustix::fs::flock(&service, FlockOperation::LockExclusive).unwrap();
        assert_eq!(running(None), (vec![], 0));
        let mut journal = Journal::open_in(root.path(), "a", Path::new("/mnt")).unwrap();
        // It is about to trim something.
        assert_eq!(running(Some(&["/other".into()])), (vec![], 1));
        journal.write(&progress("a")).unwrap();
        assert_eq!(running(Some(&["/bind".into(), "/mnt".into()])), (vec![own], 0));
        assert_eq!(running(None), (vec![own], 0));
        assert_eq!(running(Some(&["/other".into()])), (vec![], 0));
        let both = [(); 2].map(|()| Announced::new_in(root.path(), Path::new("/other")).unwrap());
        assert_eq!(running(Some(&["/other".into()])), (vec![own; 2], 0));
        assert_eq!(running(None), (vec![own; 3], 0));
        drop(journal);
        drop(both);
        assert_eq!(running(None), (vec![], 0));
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
