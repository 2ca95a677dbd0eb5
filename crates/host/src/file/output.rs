//! A file that results go to.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::draft::Draft;
use super::error::OutputError;
use super::walk::{find, look_again};

/// The permissions of a new file, less the umask, and those that others never have.
const PUBLIC: u32 = 0o666;
const PRIVATE: u32 = 0o600;

/// A file that results go to, named by its open directory: it stays the same one wherever the path leads
/// later.
///
/// It is replaced as a whole, and keeps its owner and permissions. A symbolic link stays, and the file that
/// it leads to is replaced. Another user's symbolic link or file is refused in a sticky directory that several
/// users can write to, such as `/tmp`, as the kernel does with `fs.protected_symlinks` and
/// `fs.protected_regular`; and another user's link at the end of the path everywhere, but for root's.
#[derive(Debug)]
pub struct Output {
    directory: OwnedFd,
    name: OsString,
    path: PathBuf,
    mode: u32,
}

impl Output {
    /// Opens the directory of the file at `path`, and makes sure that the file can be written there: all that
    /// can be refused is refused now. What is there stays.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn open(path: &Path) -> Result<Self, OutputError> {
        Self::with_mode(path, PUBLIC)
    }

    /// Does the same; only its owner can read or write the file if it is a new one.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn open_private(path: &Path) -> Result<Self, OutputError> {
        Self::with_mode(path, PRIVATE)
    }

    fn with_mode(path: &Path, mode: u32) -> Result<Self, OutputError> {
        let (directory, name) = find(path)?;
        let output = Self { directory, name, path: path.to_owned(), mode };
        output.draft()?.prepare()?;
        Ok(output)
    }

    /// The path as it was named.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is a file now.
    ///
    /// # Errors
    /// [`OutputError`], such as of something else that has its name.
    pub fn exists(&self) -> Result<bool, OutputError> {
        Ok(look_again(&self.directory, &self.name, &self.path)?.is_some())
    }

    /// A new file that can take its name. Others cannot read it before it has the permissions of the one that
    /// it replaces.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn draft(&self) -> Result<Draft, OutputError> {
        let mode = if self.exists()? { PRIVATE } else { self.mode };
        let directory = self.directory.try_clone().map_err(|source| self.failed(source))?;
        Draft::new(directory, self.name.clone(), self.path.clone(), mode)
    }

    /// Replaces the file, so that a reader sees the old or the new one and nothing between.
    ///
    /// # Errors
    /// [`OutputError`]; the old file is still there.
    pub fn replace(&self, bytes: &[u8]) -> Result<(), OutputError> {
        self.written(bytes)?.replace()
    }

    /// Does the same, and returns once the file is on the storage: after a power failure there is the old or
    /// the new one.
    ///
    /// # Errors
    /// [`OutputError`]; the old file is still there.
    pub fn replace_durably(&self, bytes: &[u8]) -> Result<(), OutputError> {
        self.written(bytes)?.replace_durably()
    }

    fn written(&self, bytes: &[u8]) -> Result<Draft, OutputError> {
        let draft = self.draft()?;
        let mut file: &File = draft.file();
        file.write_all(bytes).map_err(|source| self.failed(source))?;
        Ok(draft)
    }

    fn failed(&self, source: io::Error) -> OutputError {
        OutputError::Io { path: self.path.clone(), source }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
