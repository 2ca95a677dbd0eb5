//! Writes the archives that a kernel unpacks into its memory: cpio in the "newc" format, as described in
//! the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;
const TRAILER: &str = "TRAILER!!!";
/// Length of an archive is a multiple of this, so that another can follow.
const PADDING: u64 = 512;

/// An archive being written. All files belong to root and carry no time, so that the same contents give
/// the same bytes.
#[derive(Debug)]
pub(super) struct Archive<W> {
    out: W,
    written: u64,
    entries: u32,
    directories: BTreeSet<PathBuf>,
}

impl<W: Write> Archive<W> {
    /// An empty archive.
    pub(super) fn new(out: W) -> Self {
        Self { out, written: 0, entries: 0, directories: BTreeSet::new() }
    }

    /// Adds a regular file at an absolute path, and the directories above it.
    ///
    /// # Errors
    /// `FileTooLarge` from 4 GiB on; else the error of writing.
    pub(super) fn file(&mut self, path: &Path, mode: u32, data: &[u8]) -> io::Result<()> {
        self.parents(path)?;
        self.entry(path.as_os_str(), REGULAR | mode, data)
    }

    /// Adds a symbolic link, which counts as a directory for what is added below it later.
    ///
    /// # Errors
    /// The error of writing.
    pub(super) fn symlink(&mut self, path: &Path, target: &Path) -> io::Result<()> {
        self.parents(path)?;
        self.directories.insert(path.to_owned());
        self.entry(path.as_os_str(), SYMLINK | 0o777, target.as_os_str().as_bytes())
    }

    /// Adds a directory, and those above it.
    ///
    /// # Errors
    /// The error of writing.
    pub(super) fn directory(&mut self, path: &Path) -> io::Result<()> {
        if path.parent().is_none() || !self.directories.insert(path.to_owned()) {
            return Ok(());
        }
        self.parents(path)?;
        self.entry(path.as_os_str(), DIRECTORY | 0o755, &[])
    }

    /// Ends the archive.
    ///
    /// # Errors
    /// The error of writing.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.entry(OsStr::new(TRAILER), 0, &[])?;
        self.pad(PADDING)?;
        Ok(self.out)
    }

    fn parents(&mut self, path: &Path) -> io::Result<()> {
        path.parent().map_or(Ok(()), |parent| self.directory(parent))
    }

    fn entry(&mut self, name: &OsStr, mode: u32, data: &[u8]) -> io::Result<()> {
        let size = u32::try_from(data.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let name = name.as_bytes();
        let name = name.strip_prefix(b"/").unwrap_or(name);
        self.entries += 1;
        let links = if mode & DIRECTORY == 0 { 1 } else { 2 };
        // The number, mode, owner, group, links, time, size, four device numbers, the name's length, and no
        // checksum.
        let fields = [self.entries, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        let mut header = String::from("070701");
        for field in fields {
            header += &format!("{field:08x}");
        }
        self.write(header.as_bytes())?;
        self.write(name)?;
        self.write(&[0])?;
        self.pad(4)?;
        self.write(data)?;
        self.pad(4)
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.written += data.len() as u64;
        self.out.write_all(data)
    }

    fn pad(&mut self, unit: u64) -> io::Result<()> {
        let missing = self.written.next_multiple_of(unit) - self.written;
        self.write(&[0; PADDING as usize][..missing as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The entries of an archive: name, mode, data.
    fn read(mut archive: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let whole = archive.len();
        let mut entries = Vec::new();
        loop {
            assert_eq!(&archive[..6], b"070701");
            let field = |index: usize| {
                let text = std::str::from_utf8(&archive[6 + index * 8..14 + index * 8]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let (mode, size, name_length) = (field(1), field(6) as usize, field(11) as usize);
            let name = String::from_utf8(archive[110..110 + name_length - 1].to_vec()).unwrap();
            let data = (110 + name_length).next_multiple_of(4);
            if name == TRAILER {
                assert_eq!(whole % PADDING as usize, 0);
                return entries;
            }
            entries.push((name, mode, archive[data..data + size].to_vec()));
            archive = &archive[(data + size).next_multiple_of(4)..];
        }
    }

    #[test]
    fn archive_holds_each_directory_once_and_before_its_files() {
        let mut archive = Archive::new(Vec::new());
        archive.file(Path::new("/a/b/one"), 0o755, b"first").unwrap();
        archive.symlink(Path::new("/l"), Path::new("a/b")).unwrap();
        archive.file(Path::new("/l/two"), 0o644, b"").unwrap();
        archive.directory(Path::new("/a/b")).unwrap();
        let entries = read(&archive.finish().unwrap());
        let shape: Vec<_> = entries.iter().map(|(name, mode, _)| (name.as_str(), *mode)).collect();
        assert_eq!(
            shape,
            [
                ("a", 0o040_755),
                ("a/b", 0o040_755),
                ("a/b/one", 0o100_755),
                ("l", 0o120_777),
                ("l/two", 0o100_644)
            ]
        );
        assert_eq!((entries[2].2.as_slice(), entries[3].2.as_slice()), (&b"first"[..], &b"a/b"[..]));
    }

    #[test]
    fn same_contents_give_the_same_bytes() {
        let write = || {
            let mut archive = Archive::new(Vec::new());
            archive.file(Path::new("/x"), 0o644, b"data").unwrap();
            archive.finish().unwrap()
        };
        assert_eq!(write(), write());
    }
}
