//! Finding the directory that a file is written to.
//!
//! The kernel can refuse to follow another user's symbolic link in a sticky directory that several users can
//! write to (`fs.protected_symlinks`), and to open another user's file there for writing
//! (`fs.protected_regular`; Documentation/admin-guide/sysctl/fs.rst). A file that is written beside its
//! target and renamed evades both. This module therefore applies both rules itself, to each component of the
//! path and whatever the machine's settings are.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::error::OutputError;

/// The most symbolic links that a path may lead through, as in the kernel (`MAXSYMLINKS`).
const MOST_LINKS: u32 = 40;
/// Write permission for the group or for everybody.
const OTHERS_WRITE: u32 = 0o022;
/// The sticky bit: entries are removed and renamed by their owners only.
const STICKY: u32 = 0o1000;

/// Finds the directory of the file at `path` and its name there: symbolic links are followed, but for those of
/// other users in sticky directories, and at the end of the path.
pub(super) fn find(path: &Path) -> Result<(OwnedFd, OsString), OutputError> {
    let mut walk = Walk::new(path, false)?;
    while let Some(name) = walk.left.pop() {
        if !walk.left.is_empty() || !is_name(&name) {
            walk.enter(&name)?;
            continue;
        }
        let Some(entry) = walk.look(&name)? else { return Ok((walk.directory, name)) };
        match FileType::from_raw_mode(entry.stat.st_mode) {
            // The kernel would follow it outside of sticky directories: root may be in another user's.
            FileType::Symlink if ![0, geteuid().as_raw()].contains(&entry.stat.st_uid) => {
                return Err(OutputError::ForeignLink {
                    path: path.to_owned(),
                    name: name.to_string_lossy().into_owned(),
                    owner: entry.stat.st_uid,
                });
            }
            FileType::Symlink => walk.follow(&entry)?,
            FileType::RegularFile => return Ok((walk.directory, name)),
            _ => break,
        }
    }
    Err(OutputError::NotAFile { path: path.to_owned() })
}

/// Creates the directory at `path`, unless it exists. Symbolic links are followed as
/// [`Output::open`](super::Output::open) follows them.
///
/// # Errors
/// [`OutputError`].
pub fn create_directory(path: &Path) -> Result<(), OutputError> {
    let mut walk = Walk::new(path, true)?;
    while let Some(name) = walk.left.pop() {
        walk.enter(&name)?;
    }
    Ok(())
}

/// Looks at the entry `name` of `directory` again, which [`find`] found for `path`; none where there is none.
pub(super) fn look_again(
    directory: &OwnedFd,
    name: &OsStr,
    path: &Path,
) -> Result<Option<Stat>, OutputError> {
    let Some(entry) = look(directory, name, path)? else { return Ok(None) };
    match FileType::from_raw_mode(entry.stat.st_mode) {
        FileType::RegularFile => Ok(Some(entry.stat)),
        _ => Err(OutputError::NotAFile { path: path.to_owned() }),
    }
}

/// A walk along a path, a component at a time.
struct Walk<'a> {
    path: &'a Path,
    directory: OwnedFd,
    /// The way walked so far, for messages.
    walked: PathBuf,
    /// The components that are left, the next one last.
    left: Vec<OsString>,
    links: u32,
    /// Whether the last component is created if it is missing.
    creates: bool,
}

/// An entry of a directory, open.
struct Entry {
    fd: OwnedFd,
    stat: Stat,
}

impl<'a> Walk<'a> {
    fn new(path: &'a Path, creates: bool) -> Result<Self, OutputError> {
        let directory = open(CWD, OsStr::new("."), OFlags::DIRECTORY).map_err(failed(path))?;
        if path.as_os_str().is_empty() {
            return Err(failed(path)(Errno::NOENT));
        }
        let mut walk = Self { path, directory, walked: PathBuf::new(), left: Vec::new(), links: 0, creates };
        walk.push(path);
        Ok(walk)
    }

    /// Puts the components of `path` before those that are left.
    fn push(&mut self, path: &Path) {
        let steps = path.components().filter(|component| *component != Component::CurDir);
        self.left.extend(steps.rev().map(|component| component.as_os_str().to_owned()));
    }

    /// Goes into the directory `name`, or puts what the symbolic link of that name says in its place.
    fn enter(&mut self, name: &OsStr) -> Result<(), OutputError> {
        let mut opened = open(&self.directory, name, OFlags::DIRECTORY);
        if self.creates && self.left.is_empty() && opened.as_ref().err() == Some(&Errno::NOENT) {
            match mkdirat(&self.directory, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => opened = open(&self.directory, name, OFlags::DIRECTORY),
                Err(errno) => return Err(failed(self.path)(errno)),
            }
        }
        match opened {
            Ok(directory) => {
                self.directory = directory;
                self.walked.push(name);
                Ok(())
            }
            Err(Errno::NOTDIR | Errno::LOOP) => match self.look(name)? {
                Some(entry) if FileType::from_raw_mode(entry.stat.st_mode) == FileType::Symlink => {
                    self.follow(&entry)
                }
                _ => Err(self.missing(name)),
            },
            Err(Errno::NOENT) => Err(self.missing(name)),
            Err(errno) => Err(failed(self.path)(errno)),
        }
    }

    fn look(&self, name: &OsStr) -> Result<Option<Entry>, OutputError> {
        look(&self.directory, name, self.path)
    }

    /// Puts what the symbolic link says before the components that are left.
    fn follow(&mut self, link: &Entry) -> Result<(), OutputError> {
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(failed(self.path)(Errno::LOOP));
        }
        let target = readlinkat(&link.fd, "", Vec::new()).map_err(failed(self.path))?;
        self.push(Path::new(&OsString::from_vec(target.into_bytes())));
        Ok(())
    }

    fn missing(&self, name: &OsStr) -> OutputError {
        OutputError::NoDirectory { path: self.path.to_owned(), directory: self.walked.join(name) }
    }
}

/// Opens the entry `name` of `directory`, unless there is none.
fn look(directory: &OwnedFd, name: &OsStr, path: &Path) -> Result<Option<Entry>, OutputError> {
    let fd = match open(directory, name, OFlags::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(failed(path)(errno)),
    };
    let stat = fstat(&fd).map_err(failed(path))?;
    let parent = fstat(directory).map_err(failed(path))?;
    if is_foreign(&parent, &stat, geteuid().as_raw()) {
        return Err(OutputError::Foreign {
            path: path.to_owned(),
            name: name.to_string_lossy().into_owned(),
            owner: stat.st_uid,
        });
    }
    Ok(Some(Entry { fd, stat }))
}

/// Whether the file or symbolic link `entry` of the directory `parent` may be the trap of a user other than
/// `user`.
fn is_foreign(parent: &Stat, entry: &Stat, user: u32) -> bool {
    let is_shared = parent.st_mode & STICKY != 0 && parent.st_mode & OTHERS_WRITE != 0;
    is_shared && entry.st_uid != user && entry.st_uid != parent.st_uid
}

/// Whether `name` is one that a file can have.
fn is_name(name: &OsStr) -> bool {
    !matches!(name.as_bytes(), b"/" | b"." | b"..")
}

/// Opens an entry of a directory as a place only, and never what a symbolic link leads to.
fn open(directory: impl AsFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(directory, name, flags | OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn failed(path: &Path) -> impl Fn(Errno) -> OutputError {
    move |errno| OutputError::Io { path: path.to_owned(), source: errno.into() }
}
