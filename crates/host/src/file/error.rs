//! Why a file cannot be written.

use std::io;
use std::path::PathBuf;

/// Why a result file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The path leads to a directory, device, pipe or socket.
    #[error("cannot write {}: it is not a regular file", path.display())]
    NotAFile {
        /// The path as it was named.
        path: PathBuf,
    },
    /// The directory is missing, or a component of its path is not a directory.
    #[error("cannot write {}: there is no directory {}", path.display(), directory.display())]
    NoDirectory {
        /// The path as it was named.
        path: PathBuf,
        /// The directory.
        directory: PathBuf,
    },
    /// Another user put a file or a symbolic link there, in a directory that several users can write to.
    #[error(
        "cannot write {}: {name:?} belongs to user {owner} and is in a sticky directory that several \
         users can write to; name another path",
        path.display()
    )]
    Foreign {
        /// The path as it was named.
        path: PathBuf,
        /// The component that belongs to the other user.
        name: String,
        /// The user's number.
        owner: u32,
    },
    /// The path ends with another user's symbolic link, which may lead anywhere.
    #[error(
        "cannot write {}: {name:?} is a symbolic link of user {owner}; name the file that it leads to, or another path",
        path.display()
    )]
    ForeignLink {
        /// The path as it was named.
        path: PathBuf,
        /// The link's name.
        name: String,
        /// The user's number.
        owner: u32,
    },
    /// The file exists, and its replacement cannot be given the same owner.
    #[error(
        "cannot write {}: user {owner} and group {group} cannot be kept as its owners; remove it or name \
         another file",
        path.display()
    )]
    Owner {
        /// The path as it was named.
        path: PathBuf,
        /// The number of the user who owns it.
        owner: u32,
        /// The number of the group that owns it.
        group: u32,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A file was to be created, and there is one.
    #[error("cannot write {}: it exists", path.display())]
    Exists {
        /// The path as it was named.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot write {}", path.display())]
    Io {
        /// The path as it was named.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}
