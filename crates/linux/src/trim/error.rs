//! Why a file system is not trimmed.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::PROCFS;
use crate::mount::{is_gone, mounts};

/// Why a mounted file system can't be trimmed or synced.
#[derive(Debug, thiserror::Error)]
pub enum TrimError {
    /// The file system or the device below it takes no discards.
    #[error("{} takes no discards: its file system or its device doesn't support them", mount.display())]
    Unsupported {
        /// The mount point.
        mount: PathBuf,
    },
    /// The kernel's FITRIM of its file system discards data that is in use.
    #[error("{} is not trimmed: the FITRIM of its file system, NTFS, discards data that is in use", mount.display())]
    LosesData {
        /// The mount point.
        mount: PathBuf,
    },
    /// The trim failed.
    #[error("cannot trim {}", mount.display())]
    Trim {
        /// The mount point.
        mount: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// Its file system found itself damaged.
    #[error("cannot trim {}: its {fstype} is damaged; unmount it, and run {checker} on its device", mount.display())]
    Damaged {
        /// The mount point.
        mount: PathBuf,
        /// The file system's name.
        fstype: String,
        /// The command that checks and repairs it.
        checker: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A disk failed a discard of it, which file systems keep to themselves.
    #[error("cannot trim {}: {disk} fails to discard", mount.display())]
    Failed {
        /// The mount point.
        mount: PathBuf,
        /// The disk's name.
        disk: String,
    },
    /// The kernel has not answered yet.
    #[error("cannot trim {}: the kernel doesn't answer; its drive is slow or hangs, or it is frozen (fsfreeze --unfreeze)", mount.display())]
    NoAnswer {
        /// The mount point.
        mount: PathBuf,
    },
    /// It is frozen.
    #[error("{} is frozen (fsfreeze, or a snapshot below it); nothing is trimmed there until that ends", mount.display())]
    Frozen {
        /// The mount point.
        mount: PathBuf,
    },
    /// A call of it took too long and was ended.
    #[error("the trim of {} took too long and was ended: its drive is slow", mount.display())]
    TooLong {
        /// The mount point.
        mount: PathBuf,
    },
    /// Writers need all free space, which a trim would take from them for a moment.
    #[error("{} is nearly full: while btrfs discards free space, nobody can write there; it is trimmed once there is more", mount.display())]
    Full {
        /// The mount point.
        mount: PathBuf,
    },
    /// It was ended, because somebody wants to unmount or freeze a file system, asked for a pause, or stopped trimtab.
    #[error("the trim of {} was ended before it was done", mount.display())]
    Ended {
        /// The mount point.
        mount: PathBuf,
    },
    /// The file system was unmounted.
    #[error("{} was unmounted", mount.display())]
    Unmounted {
        /// The mount point.
        mount: PathBuf,
    },
    /// The file system can't be synced.
    #[error("cannot sync {}", mount.display())]
    Sync {
        /// The mount point.
        mount: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

impl TrimError {
    /// Returns the error of a query before a trim of what is mounted at `mount`.
    pub fn of_query(mount: &Path, source: io::Error) -> Self {
        let errno = source.raw_os_error().map(Errno::from_raw_os_error);
        let is_damaged = matches!(errno, Some(Errno::UCLEAN | Errno::BADMSG));
        let at = mount.to_owned();
        if is_gone(&source) {
            Self::Unmounted { mount: at }
        } else if is_damaged {
            let fstype = fstype_of(mount).unwrap_or_else(|| "file system".to_owned());
            Self::Damaged { mount: at, checker: checker(&fstype), fstype, source }
        } else {
            Self::Trim { mount: at, source }
        }
    }

    /// Returns whether nothing failed: somebody needs the file system for something else, it is gone, or less is trimmed at
    /// once next time.
    pub fn is_no_failure(&self) -> bool {
        matches!(
            self,
            Self::Ended { .. } | Self::Unmounted { .. } | Self::Frozen { .. } | Self::TooLong { .. }
        )
    }
}

/// Returns the name of the file system that is mounted at `mount`.
fn fstype_of(mount: &Path) -> Option<String> {
    let mounts = mounts(Path::new(PROCFS)).ok()?;
    mounts.into_iter().rfind(|found| found.target == mount).map(|found| found.fstype)
}

/// Returns the command that repairs a file system of this name.
fn checker(fstype: &str) -> &'static str {
    match fstype {
        "ext2" | "ext3" | "ext4" => "e2fsck -f",
        "xfs" => "xfs_repair",
        "btrfs" => "btrfs check",
        "f2fs" => "fsck.f2fs",
        "vfat" | "msdos" => "fsck.fat",
        "exfat" => "fsck.exfat",
        "jfs" => "jfs_fsck",
        "ocfs2" => "fsck.ocfs2",
        "gfs2" => "fsck.gfs2",
        "bcachefs" => "bcachefs fsck",
        _ => "fsck",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_file_system_is_named_with_its_checker() {
        for errno in [Errno::UCLEAN, Errno::BADMSG] {
            let error = TrimError::of_query(Path::new("/"), errno.into());
            let TrimError::Damaged { checker, fstype, .. } = &error else { panic!("{error:?}") };
            assert!(error.to_string().contains(*checker) && !fstype.is_empty(), "{error}");
        }
        let full = TrimError::of_query(Path::new("/"), Errno::NOSPC.into());
        assert!(matches!(full, TrimError::Trim { .. }));
        assert_eq!((checker("xfs"), checker("ext4")), ("xfs_repair", "e2fsck -f"));
    }
}
