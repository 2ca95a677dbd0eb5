//! The lock that allows only one service at a time.

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

use super::ServerError;
use crate::service::control::CONTROL;

/// The locked file.
const LOCK: &str = "daemon.lock";
/// The file that is locked while [`LOCK`] is replaced.
const REPLACING: &str = "daemon.lock.mending";

/// Held while the service runs. Only its own user can open the file, so that nobody else can hold the lock:
/// earlier versions created a file that everybody could read, and therefore lock.
#[derive(Debug)]
pub(super) struct Lock {
    _files: Vec<File>,
}

impl Lock {
    /// Takes the lock in `directory`, which belongs to this user.
    ///
    /// # Errors
    /// [`ServerError::Running`] if another service holds it, and [`ServerError::Create`].
    pub fn take(directory: &Path) -> Result<Self, ServerError> {
        let path = directory.join(LOCK);
        let file = open(&path)?;
        if is_private(&file).map_err(creating(&path))? {
            return Self::held(file, path);
        }
        Self::replace(directory, path)
    }

    /// Replaces a lock file that others can open, so that a lock they hold on it has no effect.
    fn replace(directory: &Path, path: PathBuf) -> Result<Self, ServerError> {
        let replacing = directory.join(REPLACING);
        let guard = open(&replacing)?;
        flock(&guard, FlockOperation::LockExclusive).map_err(|errno| creating(&replacing)(errno.into()))?;
        // Another service may have replaced it meanwhile.
        let old = open(&path)?;
        if is_private(&old).map_err(creating(&path))? {
            return Self::held(old, path);
        }
        // If a service of an earlier version holds it, that service also listens.
        let is_held = !try_lock(&old, &path)?;
        if is_held && listens(directory) {
            return Err(ServerError::Running { lock: path });
        }
        fs::remove_file(&path).map_err(creating(&path))?;
        let mut lock = Self::held(open(&path)?, path)?;
        // A service of an earlier version that has just opened the old file finds it locked.
        lock._files.push(old);
        Ok(lock)
    }

    fn held(file: File, path: PathBuf) -> Result<Self, ServerError> {
        if !try_lock(&file, &path)? {
            return Err(ServerError::Running { lock: path });
        }
        Ok(Self { _files: vec![file] })
    }
}

fn open(path: &Path) -> Result<File, ServerError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    open_regular(path, &mut options).map_err(creating(path))
}

/// Returns whether only this user and root can open the file.
fn is_private(file: &File) -> io::Result<bool> {
    let found = file.metadata()?;
    Ok(found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0)
}

/// Tries to take the lock; returns whether this process holds it now.
fn try_lock(file: &File, path: &Path) -> Result<bool, ServerError> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(creating(path)(errno.into())),
    }
}

/// Returns whether a service of this user listens in `directory`, even if it doesn't answer.
fn listens(directory: &Path) -> bool {
    let connected = || {
        let address = SocketAddrUnix::new(directory.join(CONTROL))?;
        let stream = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        ioctl_fionbio(&stream, true)?;
        match connect(&stream, &address) {
            Ok(()) => Ok(socket_peercred(&stream)?.uid == geteuid()),
            // The queue of waiting clients is full.
            Err(Errno::AGAIN) => Ok(true),
            Err(errno) => Err(errno),
        }
    };
    connected().unwrap_or(false)
}

fn creating(path: &Path) -> impl FnOnce(io::Error) -> ServerError {
    let path = path.to_owned();
    move |source| ServerError::Create { path, source }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn lock_is_exclusive_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path()).unwrap();
        assert_eq!(fs::metadata(dir.path().join(LOCK)).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(Lock::take(dir.path()).unwrap_err(), ServerError::Running { .. }));
        drop(lock);
        Lock::take(dir.path()).unwrap();
    }

    /// Creates a lock file as earlier versions did, and locks it.
    fn held_by_others(directory: &Path) -> File {
        let path = directory.join(LOCK);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let held = File::open(&path).unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        held
    }

    #[test]
    fn lock_file_readable_by_others_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let _held = held_by_others(dir.path());
        let _lock = Lock::take(dir.path()).unwrap();
        assert_eq!(fs::metadata(dir.path().join(LOCK)).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(Lock::take(dir.path()).unwrap_err(), ServerError::Running { .. }));
    }

    #[test]
    fn running_service_of_an_earlier_version_keeps_its_lock() {
        let dir = tempfile::tempdir().unwrap();
        let held = held_by_others(dir.path());
        let listener = UnixListener::bind(dir.path().join(CONTROL)).unwrap();
        assert!(matches!(Lock::take(dir.path()).unwrap_err(), ServerError::Running { .. }));
        drop((held, listener));
        Lock::take(dir.path()).unwrap();
    }
}
