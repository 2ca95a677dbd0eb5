//! The file systems that experiments run on.

use std::fmt;
use std::str::FromStr;

use trimtab_core::Bytes;
use trimtab_core::policy::PolicyKind;

/// A file system that experiments run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// The fourth extended file system.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// The flash-friendly file system.
    F2fs,
}

/// A file system name that isn't one of those that experiments run on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no file system {name:?} here; there are ext4, xfs, btrfs, f2fs")]
pub struct UnknownFileSystem {
    /// The name that was given.
    pub name: String,
}

impl FileSystem {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ext4, Self::Xfs, Self::Btrfs, Self::F2fs];

    /// The name that mount knows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::F2fs => "f2fs",
        }
    }

    /// The program that makes one, and the Debian package it comes in.
    pub const fn maker(self) -> (&'static str, &'static str) {
        match self {
            Self::Ext4 => ("mkfs.ext4", "e2fsprogs"),
            Self::Xfs => ("mkfs.xfs", "xfsprogs"),
            Self::Btrfs => ("mkfs.btrfs", "btrfs-progs"),
            Self::F2fs => ("mkfs.f2fs", "f2fs-tools"),
        }
    }

    /// The programs that check and grow one; they come in the package of its maker.
    pub const fn maintainers(self) -> [&'static str; 2] {
        match self {
            Self::Ext4 => ["e2fsck", "resize2fs"],
            Self::Xfs => ["xfs_repair", "xfs_growfs"],
            Self::Btrfs => ["btrfs", "btrfs"],
            Self::F2fs => ["fsck.f2fs", "resize.f2fs"],
        }
    }

    /// The names of the program that makes one and, for `maintenance`, of those that check and grow one.
    pub fn programs(self, maintenance: bool) -> Vec<String> {
        let maintainers = self.maintainers().into_iter().filter(|_| maintenance);
        [self.maker().0].into_iter().chain(maintainers).map(str::to_owned).collect()
    }

    /// The smallest drive it is made on: mkfs.xfs refuses less than 300 MiB; the others would be
    /// mostly metadata below these.
    pub const fn least_size(self) -> Bytes {
        match self {
            Self::Ext4 => Bytes(64 << 20),
            Self::Xfs => Bytes(320 << 20),
            Self::Btrfs => Bytes(256 << 20),
            Self::F2fs => Bytes(128 << 20),
        }
    }

    /// The mount option that gives this policy, or `None` if the file system doesn't have it.
    pub const fn mount_option(self, policy: PolicyKind) -> Option<&'static str> {
        match (self, policy) {
            (_, PolicyKind::None | PolicyKind::Batched | PolicyKind::Smart) => Some("nodiscard"),
            (Self::Btrfs, PolicyKind::Online) => Some("discard=sync"),
            (Self::Btrfs, PolicyKind::Async) => Some("discard=async"),
            (_, PolicyKind::Online) => Some("discard"),
            (_, PolicyKind::Async) => None,
        }
    }
}

impl FileSystem {
    /// The mount option that keeps the kernel from writing in the background what a lazy mkfs left; none where nothing is left.
    pub const fn lazy_option(self) -> Option<&'static str> {
        match self {
            Self::Ext4 => Some("noinit_itable"),
            Self::Xfs | Self::Btrfs | Self::F2fs => None,
        }
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for FileSystem {
    type Err = UnknownFileSystem;
    fn from_str(name: &str) -> Result<Self, UnknownFileSystem> {
        Self::ALL
            .into_iter()
            .find(|fs| fs.name() == name)
            .ok_or_else(|| UnknownFileSystem { name: name.to_owned() })
    }
}
