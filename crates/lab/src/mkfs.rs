//! Making, checking and growing the file systems that experiments run on.

use std::path::Path;
use std::process::{Command, Stdio};

use trimtab_core::Bytes;
use trimtab_core::interrupt::Interrupt;

use crate::error::LabError;
use crate::fs::FileSystem;
use trimtab_guest::program::{Reason, run};

/// The option of mkfs.ext4 that leaves nothing to chance.
const EXT4: &str = "hash_seed=7ac1a0e2-6f0c-4c53-9d0e-2f0f5f5a5eed";

/// The unit of the sizes that mkfs.f2fs takes.
const SECTOR: u64 = 512;

/// How a file system is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MakeOptions {
    /// Whether the program discards the device first, as all do unless they are asked not to.
    pub discards: bool,
    /// Its size, if it is not to take the whole device.
    pub size: Option<Bytes>,
    /// Whether inode tables and the log are left as they are until they are used, which takes seconds on a large drive. Of
    /// ext4 only: the others write none in advance. Mount it with [`FileSystem::lazy_option`].
    pub is_lazy: bool,
}

impl FileSystem {
    /// Makes a file system on `device`, the same at every call: no background initialisation, and no
    /// choices drawn from its random identity. Nothing is discarded: on a drive that was discarded as a
    /// whole at the start, later discards gain nothing (Datalight, "Optimizing Trim Commands to Improve
    /// Flash Storage Performance in Embedded Systems", undated white paper, section "The Benefits of
    /// Discards").
    ///
    /// # Errors
    /// [`LabError::MissingProgram`] names the package; [`LabError::Program`] has the maker's message.
    pub fn make(self, device: &Path) -> Result<(), LabError> {
        self.make_as(device, &MakeOptions { discards: false, size: None, is_lazy: false })
    }

    /// Makes a file system on `device` as [`make`](Self::make) does, with these options.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn make_as(self, device: &Path, options: &MakeOptions) -> Result<(), LabError> {
        let (program, _) = self.maker();
        let discards = options.discards;
        let mut command = Command::new(program);
        command.arg("-q");
        match self {
            Self::Ext4 => {
                let discard = if discards { "discard" } else { "nodiscard" };
                let lazy = u8::from(options.is_lazy);
                let lazy = format!("lazy_itable_init={lazy},lazy_journal_init={lazy}");
                command.args(["-F", "-E", &format!("{discard},{lazy},{EXT4}")])
            }
            Self::Xfs | Self::Btrfs if discards => command.arg("-f"),
            Self::Xfs | Self::Btrfs => command.args(["-f", "-K"]),
            Self::F2fs => command.args(["-f", "-t", if discards { "1" } else { "0" }]),
        };
        match (self, options.size) {
            (_, None) => command.arg(device),
            (Self::Ext4, Some(size)) => command.arg(device).arg(format!("{}k", size.0 >> 10)),
            (Self::Xfs, Some(size)) => command.arg("-d").arg(format!("size={}", size.0)).arg(device),
            (Self::Btrfs, Some(size)) => command.arg("-b").arg(size.0.to_string()).arg(device),
            (Self::F2fs, Some(size)) => command.arg(device).arg((size.0 / SECTOR).to_string()),
        };
        self.require_maker()?;
        Ok(run(command.stdin(Stdio::null()), Reason::First, &Interrupt::never())?)
    }

    /// Checks the file system on `device`, which is not mounted, and discards what is free if its program can and
    /// `discards` asks for it.
    ///
    /// # Errors
    /// [`LabError::Program`] has the program's message, also of a file system that has errors.
    pub fn check(self, device: &Path, discards: bool, interrupt: &Interrupt) -> Result<(), LabError> {
        let mut command = Command::new(self.maintainers()[0]);
        match self {
            Self::Ext4 => {
                let discard = if discards { "discard" } else { "nodiscard" };
                command.args(["-f", "-y", "-E", discard]).arg(device)
            }
            Self::Xfs => command.arg(device),
            Self::Btrfs => command.arg("check").arg(device),
            Self::F2fs => command.arg("-f").arg(device),
        };
        Ok(run(command.stdin(Stdio::null()), Reason::Last, interrupt)?)
    }

    /// Whether it grows while it is mounted here; if not, it is unmounted.
    pub const fn grows_mounted(self) -> bool {
        match self {
            Self::Ext4 | Self::F2fs => false,
            Self::Xfs | Self::Btrfs => true,
        }
    }

    /// Grows the file system to its whole device: on `place`, the device of one that is not mounted, or the mount
    /// point of one that [grows mounted](Self::grows_mounted).
    ///
    /// # Errors
    /// [`LabError::Program`] has the program's message.
    pub fn grow(self, place: &Path, interrupt: &Interrupt) -> Result<(), LabError> {
        let mut command = Command::new(self.maintainers()[1]);
        match self {
            // It refuses one that was mounted since its last check; unmounted a moment ago, this one is clean.
            Self::Ext4 => command.arg("-f").arg(place),
            Self::Xfs | Self::F2fs => command.arg(place),
            Self::Btrfs => command.args(["filesystem", "resize", "max"]).arg(place),
        };
        Ok(run(command.stdin(Stdio::null()), Reason::Last, interrupt)?)
    }

    /// Checks that the program that makes one is there.
    ///
    /// # Errors
    /// [`LabError::MissingProgram`] names the package.
    pub fn require_maker(self) -> Result<(), LabError> {
        let (program, package) = self.maker();
        find_program(program).then_some(()).ok_or(LabError::MissingProgram { program, package })
    }

    /// Returns the first line in which its maker prints its version.
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
