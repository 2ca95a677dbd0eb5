//! Why the layers of a stack can't be told.

use std::io;
use std::path::PathBuf;

use crate::block::BlockError;
use crate::mount::MountError;

/// Why the layers of a stack, or a captured tree, can't be read.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// There is nothing at the path, or it may not be looked at.
    #[error("cannot look at {}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// There is nothing at the path, but a device node of that name.
    #[error("there is no {}; for the device, name {}", path.display(), node.display())]
    Node {
        /// The path.
        path: PathBuf,
        /// The device node.
        node: PathBuf,
    },
    /// The captured machine doesn't have it, or may not have had it at this path.
    #[error(
        "{} is no mount point, swap or block device of the captured machine; it can be asked for {known}, and for \
         the devices below", path.display()
    )]
    NotCaptured {
        /// The path.
        path: PathBuf,
        /// The known targets, separated by commas.
        known: String,
    },
    /// A device without blocks.
    #[error("{} is not a block device; name a block device, a mount point or a file", path.display())]
    NotBlock {
        /// The path.
        path: PathBuf,
    },
    /// Another mount namespace's file.
    #[error("{} is on a mount of another mount namespace; run this in there (nsenter -m)", path.display())]
    OtherNamespace {
        /// The path.
        path: PathBuf,
    },
    /// A device that lies on itself.
    #[error("sysfs says that {name} lies on itself")]
    Cyclic {
        /// The device's name.
        name: String,
    },
    /// More layers than there may be.
    #[error("there are more than {0} layers, or branches of them, below the target")]
    TooDeep(usize),
    /// Sysfs can't be read or makes no sense.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The mounts can't be listed.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The list of active swap can't be read.
    #[error("cannot read the list of swap {}", path.display())]
    Swaps {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A directory or a link of a captured tree can't be read.
    #[error("cannot read {} of the captured tree", path.display())]
    Tree {
        /// The directory or link.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A link out of a captured tree.
    #[error("{} leads out of the captured tree", path.display())]
    Outside {
        /// The link.
        path: PathBuf,
    },
    /// The captured tree holds a file that it may not hold.
    #[error("{} is no small file, directory or link, as all in a captured tree are", path.display())]
    Special {
        /// The file.
        path: PathBuf,
    },
    /// Too much for a captured tree.
    #[error("{} holds more than {most} files: it is no captured tree", root.display())]
    TooLarge {
        /// The tree's root.
        root: PathBuf,
        /// The most files.
        most: usize,
    },
}
