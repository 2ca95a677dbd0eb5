//! The lock by which there is one service at a time.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use rustix::process::geteuid;
use trimtab_linux::file::open_regular;

use super::DoorError;
use crate::service::control::CONTROL;

/// The file that is locked, and the one that is while the first is replaced.
const LOCK: &str = "daemon.lock";
const MENDING: &str = "daemon.lock.mending";

/// Held as long as the service runs. Only its own user can open the file, so that nobody else can hold the lock:
/// earlier versions made one that everybody could read, and thereby lock.
#[derive(Debug)]
pub(super) struct Lock {
    _files: Vec<File>,
}

impl Lock {
    /// Takes the lock in `directory`, which belongs to this user.
    ///
    /// # Errors
    /// [`DoorError::Runs`] where another service holds it, and [`DoorError::Make`].
    pub fn take(directory: &Path) -> Result<Self, DoorError> {
        let path = directory.join(LOCK);
        let file = open(&path)?;
        if is_private(&file).map_err(made(&path))? {
            return Self::held(file, path);
        }
        Self::mend(directory, path)
    }

    /// Replaces a lock file that others can open. Whoever of them holds the old one holds nothing then.
    fn mend(directory: &Path, path: PathBuf) -> Result<Self, DoorError> {
        let mending = directory.join(MENDING);
        let guard = open(&mending)?;
        flock(&guard, FlockOperation::LockExclusive).map_err(|errno| made(&mending)(errno.into()))?;
        // Another service may have mended it meanwhile.
        let old = open(&path)?;
        if is_private(&old).map_err(made(&path))? {
            return Self::held(old, path);
        }
        // A service of an earlier version may hold it, and then listens, too.
        let is_held = !try_lock(&old, &path)?;
        if is_held && listens(directory) {
            return Err(DoorError::Runs { lock: path });
        }
        fs::remove_file(&path).map_err(made(&path))?;
        let mut lock = Self::held(open(&path)?, path)?;
        // An earlier version that has just opened the old one finds it locked.
        lock._files.push(old);
        Ok(lock)
    }

    fn held(file: File, path: PathBuf) -> Result<Self, DoorError> {
        match try_lock(&file, &path)? {
            true => Ok(Self { _files: vec![file] }),
            false => Err(DoorError::Runs { lock: path }),
        }
    }
}

fn open(path: &Path) -> Result<File, DoorError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    open_regular(path, &mut options).map_err(made(path))
}

/// Whether only this user and root can open the file, and always could.
fn is_private(file: &File) -> io::Result<bool> {
    let found = file.metadata()?;
    Ok(found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0)
}

/// Returns whether this process holds the lock now.
fn try_lock(file: &File, path: &Path) -> Result<bool, DoorError> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(made(path)(errno.into())),
    }
}

/// Whether a service of this user listens in `directory`, whether it answers or not.
fn listens(directory: &Path) -> bool {
    let connected = || {
        let address = SocketAddrUnix::new(directory.join(CONTROL))?;
        let stream = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        ioctl_fionbio(&stream, true)?;
        match connect(&stream, &address) {
            Ok(()) => Ok(socket_peercred(&stream)?.uid == geteuid()),
            // There are more who wait for it than can.
            Err(Errno::AGAIN) => Ok(true),
            Err(errno) => Err(errno),
        }
    };
    connected().unwrap_or(false)
}

fn made(path: &Path) -> impl FnOnce(io::Error) -> DoorError {
    let path = path.to_owned();
    move |source| DoorError::Make { path, source }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_lock_is_taken_once_and_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path()).unwrap();
        assert_eq!(fs::metadata(dir.path().join(LOCK)).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(Lock::take(dir.path()).unwrap_err(), DoorError::Runs { .. }));
        drop(lock);
        Lock::take(dir.path()).unwrap();
    }

    /// A lock file of an earlier version, that somebody holds.
    fn held_by_others(directory: &Path) -> File {
        let path = directory.join(LOCK);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let held = File::open(&path).unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        held
    }

    #[test]
    fn a_lock_that_others_could_hold_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let _held = held_by_others(dir.path());
        let _lock = Lock::take(dir.path()).unwrap();
        assert_eq!(fs::metadata(dir.path().join(LOCK)).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(Lock::take(dir.path()).unwrap_err(), DoorError::Runs { .. }));
    }

    #[test]
    fn a_service_of_an_earlier_version_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let held = held_by_others(dir.path());
        let listener = UnixListener::bind(dir.path().join(CONTROL)).unwrap();
        assert!(matches!(Lock::take(dir.path()).unwrap_err(), DoorError::Runs { .. }));
        drop((held, listener));
        Lock::take(dir.path()).unwrap();
    }
}
