//! The errors of experiments.

use std::io;
use std::path::{Path, PathBuf};

use trimtab_core::Bytes;
use trimtab_core::policy::PolicyKind;

use trimtab_core::interrupt::Interrupted;
use trimtab_guest::GuestError;
use trimtab_guest::program::ProgramError;

use crate::fs::FileSystem;

/// An experiment failed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A file operation failed.
    #[error("cannot {action} {}", path.display())]
    File {
        /// The action that failed, such as `read`.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A live file can't be read back.
    #[error("data lost: {} can no longer be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A live file doesn't hold what was written.
    #[error("data damaged: {} doesn't hold what was written to it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// A program that the experiment needs isn't there.
    #[error(
        "{program} is not in PATH; install {package} (apt-get install {package}) or add /usr/sbin to PATH"
    )]
    MissingProgram {
        /// The program.
        program: &'static str,
        /// The Debian package it comes in.
        package: &'static str,
    },
    /// A program did not do its work.
    #[error(transparent)]
    Program(ProgramError),
    /// The drive is too small for the file system.
    #[error("{size} is too small for {fs}, which needs {least} here; use a larger --size")]
    TooSmall {
        /// The drive's size.
        size: Bytes,
        /// The file system.
        fs: FileSystem,
        /// The least it needs.
        least: Bytes,
    },
    /// The workload needs more room than there is.
    #[error("the workload needs {needed} but {} has {space} free; use a larger --size", dir.display())]
    NoRoom {
        /// The space that it needs.
        needed: Bytes,
        /// The space that there is.
        space: Bytes,
        /// Where.
        dir: PathBuf,
    },
    /// A writer's share is less than its part of the workload needs.
    #[error(
        "each of {writers} writers needs {needed} and has {space}; use a larger --size, free some space or use fewer --writers"
    )]
    NoRoomForWriter {
        /// The space that a writer needs.
        needed: Bytes,
        /// Its share of the space.
        space: Bytes,
        /// How many writers there are.
        writers: u32,
    },
    /// A file system that was filled has less space than the workload shall have.
    #[error(
        "{left} are free on a {file_system} that is {percent} % full, and the workload's room is {room}; choose a smaller \
         --full or --room"
    )]
    NoRoomLeft {
        /// The space that there is.
        left: Bytes,
        /// The file system.
        file_system: FileSystem,
        /// How full it is.
        percent: u32,
        /// The space that the workload shall have.
        room: Bytes,
    },
    /// The workload wrote more to new addresses than the emulated drive has memory for.
    #[error(
        "the drive has no memory left for what was written to new addresses; give a larger --room, which gives it three times as \
         much memory"
    )]
    DriveLacksRoom,
    /// The workload's room is larger than the drive.
    #[error("the workload's room of {room} is larger than the drive of {size}; choose a smaller --room")]
    RoomAboveDrive {
        /// The room.
        room: Bytes,
        /// The drive's size.
        size: Bytes,
    },
    /// The workload makes file systems of its own.
    #[error(
        "{workload} makes and checks whole file systems; leave out --full, --room and sizes above 16 GiB"
    )]
    NeedsNewFileSystem {
        /// The workload.
        workload: String,
    },
    /// The workload can't be divided among writers.
    #[error("{workload} cannot be divided among writers; leave out --writers")]
    OneWriter {
        /// The workload.
        workload: String,
    },
    /// There are fewer files than writers.
    #[error("{files} files are fewer than {writers} writers; ask for more files or fewer --writers")]
    FewerThanWriters {
        /// The files that were asked for.
        files: u32,
        /// How many writers there are.
        writers: u32,
    },
    /// The file system has no such policy.
    #[error(
        "{fs} has no {policy} discards of its own; only btrfs has: use one of none, online, batched, smart"
    )]
    NoSuchPolicy {
        /// The file system.
        fs: FileSystem,
        /// The policy.
        policy: PolicyKind,
    },
    /// The user's directory is mounted in a way that rules the policy out.
    #[error(
        "{} is mounted with options that rule out {policy}, and --on does not mount anything: remount it, or \
         use --policy {}",
        dir.display(),
        names(possible)
    )]
    FixedByMount {
        /// The directory.
        dir: PathBuf,
        /// The policy.
        policy: PolicyKind,
        /// The possible policies.
        possible: &'static [PolicyKind],
    },
    /// The workload unmounts the file system, and the mount is the user's.
    #[error("this workload makes or unmounts its file system, which --on never does; leave out --on")]
    MountIsUsers,
    /// The service manages the user's file system.
    #[error(
        "the service manages {mount}, and its trims would count: stop it (systemctl stop trimtab), or give \
         {mount} the policy none in its configuration"
    )]
    Managed {
        /// The mount point.
        mount: String,
    },
    /// FITRIM needs root.
    #[error(
        "the policy {policy} trims the file system, which needs root; run it with sudo or ask for --policy none"
    )]
    TrimNeedsRoot {
        /// The policy.
        policy: PolicyKind,
    },
    /// The profile has no drive of this size.
    #[error("profile {profile} cannot be scaled to {size}")]
    Geometry {
        /// The profile's name.
        profile: String,
        /// The size asked for.
        size: Bytes,
        /// Why.
        source: trimtab_ftl::GeometryError,
    },
    /// The emulated drive.
    #[error(transparent)]
    Drive(#[from] trimtab_drive::DriveError),
    /// A mount.
    #[error(transparent)]
    Mount(#[from] trimtab_linux::mount::MountError),
    /// A device's counters.
    #[error(transparent)]
    Block(#[from] trimtab_linux::block::BlockError),
    /// A trim or a sync.
    #[error(transparent)]
    Trim(#[from] trimtab_linux::trim::TrimError),
    /// The kernel's events.
    #[error(transparent)]
    Tracing(#[from] trimtab_linux::tracefs::TracefsError),
    /// The service could not manage the run's file system.
    #[error("the service does not manage {}: {reason}", mount.display())]
    Service {
        /// The mount point.
        mount: PathBuf,
        /// The service's reason.
        reason: String,
    },
    /// A guest could not be made, or failed.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// A run in a guest failed.
    #[error("the run in the guest failed: {reason}")]
    InGuest {
        /// The reason, as the guest's trimtab gave it.
        reason: String,
    },
    /// A guest does not fit into memory.
    #[error(
        "a guest with this drive and these files needs {needed} of memory, and {available} are available; use a smaller --size or fewer files"
    )]
    GuestMemory {
        /// The guest's memory.
        needed: Bytes,
        /// The memory that this machine has left.
        available: Bytes,
    },
    /// The built-in profile for the service is missing or wrong, which a test rules out.
    #[error(transparent)]
    Profile(#[from] trimtab_core::profile::ProfileError),
    /// The machine can't be examined.
    #[error(transparent)]
    Environment(#[from] trimtab_linux::environment::EnvironmentError),
}

impl From<ProgramError> for LabError {
    fn from(error: ProgramError) -> Self {
        match error {
            ProgramError::Interrupted(interrupted) => interrupted.into(),
            error => Self::Program(error),
        }
    }
}

fn names(policies: &[PolicyKind]) -> String {
    policies.iter().map(|policy| policy.name()).collect::<Vec<_>>().join(",")
}

/// Wraps an I/O error with the file it happened on.
pub(crate) fn io_at<'a>(path: &'a Path, action: &'static str) -> impl FnOnce(io::Error) -> LabError + 'a {
    move |source| LabError::File { action, path: path.to_owned(), source }
}
