//! Mount namespaces of other processes.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Why this process can't see the mounts that another one sees.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The process is this one.
    #[error(
        "process {process} is trimtab itself; let it see the host's processes (hostPID: true, podman run --pid=host)"
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

/// Refuses this process itself, as process 1 of a container that has its own process ids is.
///
/// # Errors
/// [`NamespaceError::Own`].
pub fn check_is_other(process: u32) -> Result<(), NamespaceError> {
    if process == std::process::id() { Err(NamespaceError::Own { process }) } else { Ok(()) }
}

/// Enters the mount namespace of `process`: from now on this process sees that one's mounts and files, and its root is
/// the namespace's. Has to be called before any thread is started.
///
/// # Errors
/// [`NamespaceError`].
pub fn enter_mounts_of(procfs: &Path, process: u32) -> Result<(), NamespaceError> {
    check_is_other(process)?;
    let path = procfs.join(process.to_string()).join("ns/mnt");
    let namespace =
        File::open(&path).map_err(|source| NamespaceError::Open { process, path: path.clone(), source })?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(|errno| NamespaceError::Enter { path, source: errno.into() })
}
