//! Making the file systems that experiments run on.

use std::path::Path;
use std::process::{Command, Stdio};

use trimtab_core::interrupt::Interrupt;

use crate::error::LabError;
use crate::fs::FileSystem;
use crate::program::{Reason, run};

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
