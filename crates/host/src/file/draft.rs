//! A file that gets its name when it is whole.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, Uid, fchmod, fchown, fstat, linkat, openat, renameat,
    renameat_with, unlinkat,
};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::error::OutputError;
use super::walk::look_again;

/// How many random names are tried.
const TRIES: usize = 16;

/// A new file in the directory of an [`Output`](super::Output). It has no name until [`Self::replace`] or
/// [`Self::create`], or a unique one where the file system knows no files without a name; dropping it
/// leaves nothing behind.
#[derive(Debug)]
pub struct Draft {
    directory: OwnedFd,
    target: OsString,
    path: PathBuf,
    file: File,
    /// The unique name, while it has that.
    temporary: Option<OsString>,
}

impl Draft {
    /// One that is to be called `target` in `directory`, with the permissions `mode` less the umask. `path` is
    /// how the user named it.
    pub(super) fn new(
        directory: OwnedFd,
        target: OsString,
        path: PathBuf,
        mode: u32,
    ) -> Result<Self, OutputError> {
        let mode = Mode::from_raw_mode(mode);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let (fd, temporary) = match openat(&directory, ".", flags | OFlags::TMPFILE, mode) {
            Ok(fd) => (Ok(fd), None),
            // Not every file system knows files without a name.
            Err(_) => {
                let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                match with_unique_name(|name| openat(&directory, name, flags, mode)) {
                    Ok((fd, name)) => (Ok(fd), Some(name)),
                    Err(errno) => (Err(errno), None),
                }
            }
        };
        match fd {
            Ok(fd) => Ok(Self { directory, target, path, file: fd.into(), temporary }),
            Err(errno) => Err(OutputError::Io { path, source: errno.into() }),
        }
    }

    /// The file, to be written.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its name in the place of one that has it, whose owner and permissions it takes over. A
    /// reader sees the old file or the new one and nothing between.
    ///
    /// # Errors
    /// [`OutputError`]; then the old file is as it was.
    pub fn replace(mut self) -> Result<(), OutputError> {
        self.prepare()?;
        let Some(name) = &self.temporary else { return Ok(()) };
        renameat(&self.directory, name, &self.directory, &self.target).map_err(|errno| self.failed(errno))?;
        self.temporary = None;
        Ok(())
    }

    /// Does the same, and returns once file and name are on the storage.
    ///
    /// # Errors
    /// As [`Self::replace`].
    pub fn replace_durably(self) -> Result<(), OutputError> {
        let (path, failed) = (self.path.clone(), |path| move |source| OutputError::Io { path, source });
        self.file.sync_all().map_err(failed(path.clone()))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(&self.directory, ".", flags, Mode::empty());
        let directory = File::from(directory.map_err(|errno| self.failed(errno))?);
        self.replace()?;
        directory.sync_all().map_err(failed(path))
    }

    /// Gives the file its name, which no other may have.
    ///
    /// # Errors
    /// [`OutputError::Exists`] and [`OutputError::Io`].
    pub fn create(mut self) -> Result<(), OutputError> {
        let created = match &self.temporary {
            None => link(&self.file, &self.directory, &self.target),
            Some(name) => {
                let (from, to) = ((&self.directory, name), (&self.directory, &self.target));
                match renameat_with(from.0, from.1, to.0, to.1, RenameFlags::NOREPLACE) {
                    Err(Errno::INVAL | Errno::NOSYS) => {
                        // The second name goes when this is dropped.
                        linkat(from.0, from.1, to.0, to.1, AtFlags::empty())
                    }
                    Ok(()) => {
                        self.temporary = None;
                        Ok(())
                    }
                    Err(errno) => Err(errno),
                }
            }
        };
        match created {
            Err(Errno::EXIST) => Err(OutputError::Exists { path: self.path.clone() }),
            created => created.map_err(|errno| self.failed(errno)),
        }
    }

    /// Gives it the owner and the permissions of the file that it is to replace, and a unique name.
    ///
    /// # Errors
    /// [`OutputError`]: it could not replace the file.
    pub(super) fn prepare(&mut self) -> Result<(), OutputError> {
        if let Some(old) = look_again(&self.directory, &self.target, &self.path)? {
            let new = fstat(&self.file).map_err(|errno| self.failed(errno))?;
            if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid) {
                let (owner, group) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
                fchown(&self.file, Some(owner), Some(group)).map_err(|errno| OutputError::Owner {
                    path: self.path.clone(),
                    owner: old.st_uid,
                    group: old.st_gid,
                    source: errno.into(),
                })?;
            }
            // Writing into a file takes the set-user-ID and set-group-ID bits away.
            let mode = old.st_mode & 0o777;
            if new.st_mode & 0o7777 != mode {
                fchmod(&self.file, Mode::from_raw_mode(mode)).map_err(|errno| self.failed(errno))?;
            }
        }
        if self.temporary.is_none() {
            let named = with_unique_name(|name| link(&self.file, &self.directory, name));
            self.temporary = Some(named.map_err(|errno| self.failed(errno))?.1);
        }
        Ok(())
    }

    fn failed(&self, errno: Errno) -> OutputError {
        OutputError::Io { path: self.path.clone(), source: errno.into() }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(name) = &self.temporary {
            _ = unlinkat(&self.directory, name, AtFlags::empty());
        }
    }
}

/// Gives a file without a name the name `name` in `directory`.
fn link(file: &File, directory: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    match linkat(file, "", directory, name, AtFlags::EMPTY_PATH) {
        // Before Linux 6.10 this takes CAP_DAC_READ_SEARCH.
        Err(Errno::NOENT | Errno::PERM) => {
            let file = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
            linkat(CWD, file, directory, name, AtFlags::SYMLINK_FOLLOW)
        }
        outcome => outcome,
    }
}

/// Calls `take` with random names until one is free; returns what it returned, and the name.
fn with_unique_name<T>(mut take: impl FnMut(&OsStr) -> Result<T, Errno>) -> Result<(T, OsString), Errno> {
    for _ in 0..TRIES {
        let mut random = [0; 8];
        let filled = getrandom(&mut random[..], GetRandomFlags::empty())?;
        if filled < random.len() {
            continue;
        }
        let name = OsString::from(format!(".trimtab-{:016x}", u64::from_le_bytes(random)));
        match take(&name) {
            Err(Errno::EXIST) => {}
            outcome => return outcome.map(|taken| (taken, name)),
        }
    }
    Err(Errno::EXIST)
}
