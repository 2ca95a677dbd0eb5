//! The kinds of uses that keep a device from being claimed.

use std::path::{Path, PathBuf};
use std::{fmt, fs};

use trimtab_core::shell::quoted;

use crate::block::BlockDevice;

/// A use of a block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Use {
    /// It is mounted.
    Mounted(PathBuf),
    /// It is mounted in the mount namespace of this process, and not in this process' own.
    MountedElsewhere(PathBuf, u32),
    /// It is active swap; the name of the swap device.
    Swap(PathBuf),
    /// It lies below another device that is used so.
    Below(String, Box<Self>),
    /// A device is built on it.
    Held(String),
    /// The kernel has claimed it, and nothing shows for what.
    Claimed,
    /// The kernel serves it to others, without a claim, by what is set up in this directory.
    Served(PathBuf),
    /// The kernel serves a device to others, without a claim, and the path in this directory leads to none any more.
    MayBeServed(PathBuf),
    /// The device mapper's device of this name has lost a drive, which may have come back as this device.
    MayBeLost(String),
    /// The multipath device of this name has no path with a WWID, and nothing tells that this is not its drive.
    MayBePath(String),
    /// It is a pool of thin volumes: its bytes are theirs, active or not.
    Pool,
    /// It is the bitmap of this md array, kept in a file.
    Bitmap(String),
    /// It begins as an image of erofs, and one is mounted from a file out of sight.
    Erofs,
}

impl fmt::Display for Use {
    /// Writes the use and the next step, such as `is mounted on /home; unmount it first (umount /home)`.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Mounted(target) if target == Path::new("/") => {
                f.write_str("is mounted on /: this machine runs from it; name another device")
            }
            Self::Mounted(target) => {
                let (target, word) = (target.display(), quoted(target.display()));
                write!(f, "is mounted on {target}; unmount it first (umount {word})")
            }
            Self::MountedElsewhere(target, process) => {
                let (target, word) = (target.display(), quoted(target.display()));
                write!(
                    f,
                    "is mounted on {target} in the mount namespace of process {process}; unmount it there first \
                     (nsenter --target {process} --mount umount {word})"
                )
            }
            Self::Swap(path) => write!(f, "is active swap; turn it off first (swapoff {})", quoted(path.display())),
            Self::Below(upper, found) => write!(f, "is below {upper}, which {found}"),
            Self::Claimed => f.write_str("is claimed by the kernel; find out for what (dmesg, lsblk), and end that"),
            Self::Held(holder) => write!(f, "is held by {holder}; take that down first"),
            Self::MayBeServed(server) => write!(
                f,
                "may be the device that {} serves to others, whose path leads to nothing any more; take that down first",
                server.display()
            ),
            Self::MayBeLost(holder) => {
                write!(f, "may be a drive that {holder} has lost and will use again; take that down first")
            }
            Self::MayBePath(holder) => write!(
                f,
                "may be the drive of the multipath device {holder} or a path to it: their names cannot be compared; take \
                 that down first"
            ),
            Self::Pool => f.write_str("is a pool whose bytes are its thin volumes'; name a thin volume"),
            Self::Served(server) => write!(f, "is served to others by {}; take that down first", server.display()),
            Self::Bitmap(array) => write!(
                f,
                "holds the bitmap of /dev/{array}; take it out of there first (mdadm --grow --bitmap=none /dev/{array})"
            ),
            Self::Erofs => f.write_str(
                "is an image of erofs, while one is mounted from a file where no list of mounts has it; detach this \
                 device, or end what keeps that mount",
            ),
        }
    }
}

/// The path of a device, with the name that the device mapper gave it.
pub(super) fn titled(device: &BlockDevice) -> String {
    let path = device.path();
    match fs::read_to_string(device.attribute("dm/name")) {
        Ok(name) => format!("{} ({})", path.display(), name.trim()),
        Err(_) => path.display().to_string(),
    }
}
