//! A drive's data file, known by device and inode: what its path leads to may be another's by now.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use serde::{Deserialize, Serialize};

/// The identity of a file, whatever its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

/// The outcome of removing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// It is removed, or was before.
    Gone,
    /// Its path leads to another file, which is left alone.
    Another,
}

impl Identity {
    /// Returns the identity of an open file.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        Ok(rustix::fs::fstat(file)?.into())
    }

    /// Writes it to a new file.
    pub(crate) fn save(self, path: &Path) -> io::Result<()> {
        fs::write(path, serde_json::to_vec(&self)?)
    }

    /// Reads the identity that [`save`](Self::save) wrote.
    pub(crate) fn load(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }
}

impl From<Stat> for Identity {
    fn from(stat: Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// A drive's data file, held until the drive is removed.
#[derive(Debug)]
pub(crate) enum DataFile {
    /// Nothing is at its path.
    Gone,
    /// Its path leads to another file, or nobody knows which it was.
    Another,
    /// It is there. As long as it is held, no other file gets its inode.
    Held { directory: OwnedFd, name: OsString, identity: Identity, _file: OwnedFd },
}

impl DataFile {
    /// Holds the file at `path` if it is the one of this identity.
    pub(crate) fn hold(path: &Path, identity: Option<Identity>) -> io::Result<Self> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(Self::Another);
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened =
            rustix::fs::open(directory, flags | OFlags::DIRECTORY, Mode::empty()).and_then(|directory| {
                let file = rustix::fs::openat(&directory, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
                Ok((directory, file))
            });
        let (directory, file) = match opened {
            Err(errno) if errno.kind() == io::ErrorKind::NotFound => return Ok(Self::Gone),
            opened => opened?,
        };
        let found = Identity::from(rustix::fs::fstat(&file)?);
        if Some(found) != identity {
            return Ok(Self::Another);
        }
        Ok(Self::Held { directory, name: name.to_owned(), identity: found, _file: file })
    }

    /// Removes it, unless its path leads to another file by now. Nothing changes on the way there: the
    /// directory is the one that was opened.
    pub(crate) fn remove(self) -> io::Result<Removal> {
        let (directory, name, identity) = match &self {
            Self::Gone => return Ok(Removal::Gone),
            Self::Another => return Ok(Removal::Another),
            Self::Held { directory, name, identity, .. } => (directory, name, identity),
        };
        match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(errno) if errno.kind() == io::ErrorKind::NotFound => return Ok(Removal::Gone),
            found if Identity::from(found?) != *identity => return Ok(Removal::Another),
            _ => {}
        }
        rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
        Ok(Removal::Gone)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn remove(path: &Path, identity: Option<Identity>) -> io::Result<Removal> {
        DataFile::hold(path, identity)?.remove()
    }

    #[test]
    fn only_the_file_itself_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let [data, moved, other] = ["data", "moved", "other"].map(|name| directory.path().join(name));
        let open = File::create(&data).unwrap();
        let identity = Identity::of(&open).unwrap();
        fs::rename(&data, &moved).unwrap();
        assert_eq!(remove(&data, Some(identity)).unwrap(), Removal::Gone, "nothing is there");
        fs::write(&data, "precious").unwrap();
        assert_eq!(remove(&data, Some(identity)).unwrap(), Removal::Another);
        fs::remove_file(&data).unwrap();
        symlink(&moved, &data).unwrap();
        assert_eq!(remove(&data, Some(identity)).unwrap(), Removal::Another, "a link to it is not it");
        assert_eq!(remove(&moved, None).unwrap(), Removal::Another, "nobody knows which it was");
        assert_eq!(remove(&other.join("below"), Some(identity)).unwrap(), Removal::Gone);
        assert!(moved.exists() && data.is_symlink());

        let held = DataFile::hold(&moved, Some(identity)).unwrap();
        fs::rename(&moved, &other).unwrap();
        fs::write(&moved, "precious").unwrap();
        assert_eq!(held.remove().unwrap(), Removal::Another, "it was moved meanwhile");
        fs::rename(&other, &moved).unwrap();

        let saved = directory.path().join("identity");
        identity.save(&saved).unwrap();
        assert_eq!(remove(&moved, Some(Identity::load(&saved).unwrap())).unwrap(), Removal::Gone);
        assert!(!moved.exists() && data.is_symlink());
    }
}
