//! The file systems that experiments run on.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::str::FromStr;

use trimtab_core::Bytes;
use trimtab_core::policy::PolicyKind;

use crate::error::LabError;
use crate::program::{Reason, run};
use trimtab_core::interrupt::Interrupt;

/// A file system that experiments run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// The fourth extended file system.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
}

/// A file system name that isn't one of those that experiments run on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no file system {name:?} here; there are ext4, xfs, btrfs")]
pub struct UnknownFileSystem {
    /// The name that was given.
    pub name: String,
}

impl FileSystem {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    /// The name that mount knows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The program that makes one, and the Debian package it comes in.
    pub const fn maker(self) -> (&'static str, &'static str) {
        match self {
            Self::Ext4 => ("mkfs.ext4", "e2fsprogs"),
            Self::Xfs => ("mkfs.xfs", "xfsprogs"),
            Self::Btrfs => ("mkfs.btrfs", "btrfs-progs"),
        }
    }

    /// The smallest drive it is made on: mkfs.xfs refuses less than 300 MiB; the others would be
    /// mostly metadata below these.
    pub const fn least_size(self) -> Bytes {
        match self {
            Self::Ext4 => Bytes(64 << 20),
            Self::Xfs => Bytes(320 << 20),
            Self::Btrfs => Bytes(256 << 20),
        }
    }

    /// The mount option that gives this policy, or nothing where the file system doesn't have it.
    pub const fn mount_option(self, policy: PolicyKind) -> Option<&'static str> {
        match (self, policy) {
            (_, PolicyKind::None | PolicyKind::Batched | PolicyKind::Smart) => Some("nodiscard"),
            (Self::Btrfs, PolicyKind::Online) => Some("discard=sync"),
            (Self::Btrfs, PolicyKind::Async) => Some("discard=async"),
            (_, PolicyKind::Online) => Some("discard"),
            (_, PolicyKind::Async) => None,
        }
    }

    /// Makes one on `device`, the same at every call: no background initialisation, and no
    /// choices drawn from its random identity. Nothing is discarded: a drive that was told at the
    /// start that all of it is free shows nothing of what discards are for (Datalight,
    /// "Optimizing Trim Commands to Improve Flash Storage Performance in Embedded Systems", undated
    /// white paper, section "The Benefits of Discards").
    ///
    /// # Errors
    /// [`LabError::MissingProgram`] names the package; [`LabError::Program`] what the maker said.
    pub fn make(self, device: &Path) -> Result<(), LabError> {
        let (program, _) = self.maker();
        let arguments: &[&str] = match self {
            Self::Ext4 => &[
                "-q",
                "-F",
                "-E",
                "nodiscard,lazy_itable_init=0,lazy_journal_init=0,hash_seed=7ac1a0e2-6f0c-4c53-9d0e-2f0f5f5a5eed",
            ],
            Self::Xfs | Self::Btrfs => &["-q", "-f", "-K"],
        };
        self.require_maker()?;
        let mut command = Command::new(program);
        command.args(arguments).arg(device).stdin(Stdio::null());
        run(&mut command, Reason::First, &Interrupt::never())
    }

    /// Checks that the program that makes one is there.
    ///
    /// # Errors
    /// [`LabError::MissingProgram`] names the package.
    pub fn require_maker(self) -> Result<(), LabError> {
        let (program, package) = self.maker();
        find_program(program).then_some(()).ok_or(LabError::MissingProgram { program, package })
    }

    /// The first line that its maker prints of its version.
    pub fn maker_version(self) -> Option<String> {
        let output = Command::new(self.maker().0).arg("-V").output().ok()?;
        let printed = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&printed).lines().next().map(str::to_owned)
    }
}

fn find_program(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()))
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
