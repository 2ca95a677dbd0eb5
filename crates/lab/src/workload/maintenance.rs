//! The work of administrators on a whole file system, with the real programs: make it (`mkfs`), check it (`fsck`),
//! grow it (`resize`), and trim parts of it (`fitrim`); each on one that was in use before.
//!
//! After L. Czerner, "Performance evaluation of Linux Discard Support" (2011), the part "Discard Support in
//! user-space": mke2fs, e2fsck and resize2fs discard what they find free. With a policy by which the file system
//! itself discards, such as `online`, the programs are asked to discard too; with all others, not to.

use trimtab_core::document::WorkloadDescription;
use trimtab_core::{Bytes, Extent};
use trimtab_linux::trim::{EVERYTHING, trim};

use super::Workload;
use super::aged::{Aged, words, write_large};
use crate::error::LabError;
use crate::stage::Stage;

/// The share of the files that are deleted before the check, in percent.
const DELETED: usize = 50;
/// The shortest free extent that the third trim of `fitrim` discards.
const MINIMUM: Bytes = Bytes::MIB;

/// Work on a whole file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maintenance {
    /// A new file system is made over the used one.
    Mkfs,
    /// It is checked.
    Fsck,
    /// Made on half of the drive and used, it is grown to the whole drive.
    Resize,
    /// Parts of its free space are trimmed.
    Fitrim,
}

impl Maintenance {
    /// Its name as a workload.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mkfs => "mkfs",
            Self::Fsck => "fsck",
            Self::Resize => "resize",
            Self::Fitrim => "fitrim",
        }
    }
}

/// The workloads `mkfs`, `fsck`, `resize` and `fitrim`.
pub struct MaintenanceWorkload {
    what: Maintenance,
    seed: u64,
}

impl MaintenanceWorkload {
    /// With files drawn from `seed`.
    pub fn new(what: Maintenance, seed: u64) -> Self {
        Self { what, seed }
    }
}

impl Workload for MaintenanceWorkload {
    fn description(&self) -> WorkloadDescription {
        let then = match self.what {
            Maintenance::Mkfs => "make a new file system over it, pause, write one large file".to_owned(),
            Maintenance::Fsck => {
                format!(
                    "delete {DELETED} % of the files, unmount, check it, mount, pause, write one large file"
                )
            }
            Maintenance::Resize => "grow it to the whole drive, pause, write one large file".to_owned(),
            Maintenance::Fitrim => format!(
                "trim all that is free in the first half, in the second half, then in pieces of {MINIMUM} or more, \
                 and all again"
            ),
        };
        let on = if self.what == Maintenance::Resize { "on half of the drive: " } else { "" };
        WorkloadDescription {
            name: self.what.name().to_owned(),
            summary: format!("{on}{}; {then}", words()),
            seed: self.seed,
            delete_steps: Vec::new(),
            write_step: (self.what != Maintenance::Fitrim).then(|| "write".to_owned()),
            has_pauses: self.what != Maintenance::Fitrim,
            divisible: false,
        }
    }

    fn names_its_pauses(&self) -> bool {
        true
    }

    fn unmounts(&self) -> bool {
        self.what != Maintenance::Fitrim
    }

    fn run(&self, stage: &mut Stage) -> Result<(), LabError> {
        match self.what {
            Maintenance::Mkfs => {
                Aged::make(stage, self.seed)?;
                stage.make_file_system("mkfs", None)?;
            }
            Maintenance::Fsck => {
                let mut aged = Aged::make(stage, self.seed)?;
                stage.activity("delete", |work| {
                    aged.delete(work, DELETED)?;
                    work.sync()
                })?;
                stage.check_file_system("fsck")?;
            }
            Maintenance::Resize => {
                stage.make_file_system("mkfs", Some(2))?;
                Aged::make(stage, self.seed)?;
                stage.grow_file_system("resize")?;
            }
            Maintenance::Fitrim => {
                Aged::make(stage, self.seed)?;
                return trims(stage);
            }
        }
        stage.pause(&format!("after-{}", self.what.name()))?;
        write_large(stage)
    }
}

/// Trims parts of the free space, and all of it.
fn trims(stage: &mut Stage) -> Result<(), LabError> {
    let half = Bytes(stage.work().size()?.0 / 2);
    // The halves come first: ext4 passes over a group of blocks that was trimmed, even if only its long extents were.
    let parts = [
        ("trim-front", Extent::new(Bytes::ZERO, half), Bytes::ZERO),
        ("trim-back", Extent::new(half, EVERYTHING.end), Bytes::ZERO),
        ("trim-large", EVERYTHING, MINIMUM),
        ("trim-again", EVERYTHING, Bytes::ZERO),
    ];
    for (name, extent, minimum) in parts {
        stage.activity(name, |work| Ok(trim(work.dir(), extent, minimum).map(drop)?))?;
    }
    Ok(())
}
