//! Mount namespaces of other processes.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Why this process can't see the mounts that another one sees.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The process is this one, or has the same mounts.
    #[error(
        "process {process} has the same mounts as trimtab itself; in a container, let it see the host's processes \
         (hostPID: true, podman run --pid=host), else leave out --mounts-of"
    )]
    Own {
        /// The process.
        process: u32,
    },
    /// The namespace can't be opened.
    #[error("cannot open {}; run this as root with the capability CAP_SYS_PTRACE, and see that process {process} runs", path.display())]
    Open {
        /// The process.
        process: u32,
        /// The namespace's file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kernel refuses to enter it.
    #[error("cannot enter {}; run this with the capabilities CAP_SYS_ADMIN and CAP_SYS_CHROOT", path.display())]
    Enter {
        /// The namespace's file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// Refuses a process in this one's own mount namespace, such as those of a container that has its own process ids.
///
/// # Errors
/// [`NamespaceError::Own`], and [`NamespaceError::Open`] if the namespace of `process` can't be read.
pub fn check_is_other(procfs: &Path, process: u32) -> Result<(), NamespaceError> {
    let number = |of: &str| {
        let path = procfs.join(of).join("ns/mnt");
        let found = fs::metadata(&path).map_err(|source| NamespaceError::Open { process, path, source })?;
        Ok((found.dev(), found.ino()))
    };
    if number("self")? == number(&process.to_string())? {
        return Err(NamespaceError::Own { process });
    }
    Ok(())
}

/// Enters the mount namespace of `process`: from now on this process sees that one's mounts and files, and its root is
/// the namespace's. Has to be called before any thread is started.
///
/// # Errors
/// [`NamespaceError`].
pub fn enter_mounts_of(procfs: &Path, process: u32) -> Result<(), NamespaceError> {
    check_is_other(procfs, process)?;
    let path = procfs.join(process.to_string()).join("ns/mnt");
    let namespace =
        File::open(&path).map_err(|source| NamespaceError::Open { process, path: path.clone(), source })?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(|errno| NamespaceError::Enter { path, source: errno.into() })
}
