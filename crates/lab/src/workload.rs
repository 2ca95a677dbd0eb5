//! Workloads: real file operations on a mounted file system, the same at every run of a seed.

mod aged;
mod builds;
mod database;
mod exec;
mod fragment;
mod laptop;
mod maintenance;
mod postmark;
mod shape;
mod tree;
mod writers;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_core::document::WorkloadDescription;

use crate::error::LabError;
use crate::share::Share;
use crate::stage::Stage;
use trimtab_core::interrupt::Interrupt;

pub use maintenance::Maintenance;
pub use postmark::{PostmarkOptions, PostmarkOptionsError};

/// How many files the built-in tree has: those of the seed's.
pub fn tree_files() -> u32 {
    tree::FILES as u32
}

/// A sequence of activities and pauses. Writers do theirs in threads.
pub trait Workload: Send + Sync {
    /// Describes it for the result document.
    fn description(&self) -> WorkloadDescription;

    /// Returns true if it announces every pause. If not, the policy `batched` watches the device for quiet
    /// times.
    fn names_its_pauses(&self) -> bool;

    /// Returns true if it unmounts the file system. Then no file is kept open to be read by a probe, and none is
    /// written before the first step.
    fn unmounts(&self) -> bool;

    /// Does it once, in an empty directory. On the stage of one of several writers it does the part of that writer.
    ///
    /// # Errors
    /// The first operation that fails, or [`LabError::Interrupted`].
    fn run(&self, stage: &mut Stage) -> Result<(), LabError>;
}

/// A workload and its parameters, as a user asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkloadOptions {
    /// Unpack a tree, sync, delete it, sync.
    Tree {
        /// A directory or a tarball; the built-in tree without one.
        source: Option<PathBuf>,
        /// How many files the built-in tree has; those of the seed's without a number.
        files: Option<u32>,
    },
    /// A file system in use: filled, and files deleted and created for a while.
    Aged,
    /// The work of administrators on a whole file system in use.
    Maintenance(Maintenance),
    /// Fill, delete, write interleaved files, delete them one by one, write one large file.
    Fragment,
    /// Days of a laptop, with pauses of its own.
    Laptop {
        /// How many.
        days: u32,
    },
    /// A log-structured merge tree: tables written, compacted and deleted under reads.
    Database,
    /// Check out, compile, delete, again and again without a pause.
    Builds,
    /// PostMark's transactions on small files.
    Postmark(PostmarkOptions),
    /// The user's own command, with `{dir}` replaced by a directory of its own.
    Exec {
        /// The program and its arguments.
        command: Vec<OsString>,
    },
}

/// How much of a workload there is, and who does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// Makes contents and draws the same at every run.
    pub seed: u64,
    /// The size of the drive, or the most space that the workload may use.
    pub size: Bytes,
    /// How many writers do it at the same time, each a part.
    pub writers: u32,
}

/// A workload name that isn't one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no workload {name:?}; there are fragment, tree, laptop, database, builds, postmark, aged, mkfs, fsck, \
     resize, fitrim, and -- COMMAND for your own"
)]
pub struct UnknownWorkload {
    /// The name that was given.
    pub name: String,
}

impl WorkloadOptions {
    /// The arguments of `trimtab compare` that ask for it.
    pub fn arguments(&self) -> Vec<OsString> {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect();
        match self {
            Self::Tree { source: None, files: None } => words(&["--workload", "tree"]),
            Self::Tree { source: None, files: Some(files) } => {
                words(&["--workload", "tree", "--tree-files", &files.to_string()])
            }
            Self::Tree { source: Some(path), .. } => {
                let mut arguments: Vec<OsString> = words(&["--workload", "tree", "--tree"]);
                arguments.push(std::path::absolute(path).unwrap_or_else(|_| path.clone()).into());
                arguments
            }
            Self::Fragment => words(&["--workload", "fragment"]),
            Self::Laptop { days } => words(&["--workload", "laptop", "--days", &days.to_string()]),
            Self::Database => words(&["--workload", "database"]),
            Self::Builds => words(&["--workload", "builds"]),
            Self::Postmark(options) => words(&["--workload", "postmark", "--postmark", &options.to_string()]),
            Self::Aged => words(&["--workload", "aged"]),
            Self::Maintenance(what) => words(&["--workload", what.name()]),
            Self::Exec { command } => {
                [OsString::from("--")].into_iter().chain(command.iter().cloned()).collect()
            }
        }
    }

    /// The workload that these options describe, with what it needs made ready.
    ///
    /// # Errors
    /// A source tree that can't be read or unpacked, or [`LabError::OneWriter`] or [`LabError::FewerThanWriters`] for
    /// several writers.
    pub fn prepare(self, scope: Scope, interrupt: &Interrupt) -> Result<Box<dyn Workload>, LabError> {
        let Scope { seed, writers, .. } = scope;
        let whole = self.part(scope, Share::WHOLE, interrupt)?;
        if writers == 1 {
            return Ok(whole);
        }
        let WorkloadDescription { name, divisible, .. } = whole.description();
        if !divisible {
            let workload = match self {
                Self::Exec { .. } => "a command of your own".to_owned(),
                Self::Tree { .. } => "a tree of your own".to_owned(),
                _ => format!("the workload {name}"),
            };
            return Err(LabError::OneWriter { workload });
        }
        if let Some(files) = self.files().filter(|files| *files < writers) {
            return Err(LabError::FewerThanWriters { files, writers });
        }
        let parts = Share::all(writers).map(|share| self.part(scope, share, interrupt));
        let parts = parts.collect::<Result<_, _>>()?;
        Ok(Box::new(writers::WritersWorkload::new(whole, parts, seed)))
    }

    /// The part of the workload that the writer with `share` does.
    fn part(&self, scope: Scope, share: Share, interrupt: &Interrupt) -> Result<Box<dyn Workload>, LabError> {
        let seed = share.seed(scope.seed);
        Ok(match self {
            Self::Tree { source: Some(path), .. } => {
                Box::new(tree::TreeWorkload::from_path(path, seed, interrupt)?)
            }
            Self::Tree { source: None, files } => {
                let files = files.unwrap_or_else(tree_files);
                Box::new(tree::TreeWorkload::synthetic(seed, share.count(files.into()) as usize))
            }
            Self::Fragment => Box::new(fragment::FragmentWorkload::new(scope.size, seed)),
            Self::Laptop { days } => Box::new(laptop::LaptopWorkload::new(*days, scope.seed, seed)),
            Self::Database => Box::new(database::DatabaseWorkload::new(seed)),
            Self::Builds => Box::new(builds::BuildsWorkload::new(seed)),
            Self::Postmark(options) => Box::new(postmark::PostmarkWorkload::new(options.clone(), seed)),
            Self::Aged => Box::new(aged::AgedWorkload::new(seed)),
            Self::Maintenance(what) => Box::new(maintenance::MaintenanceWorkload::new(*what, seed)),
            Self::Exec { command } => Box::new(exec::ExecWorkload::new(command.clone(), seed)),
        })
    }

    /// Whether it works on whole file systems, which it makes itself.
    pub fn needs_new_file_system(&self) -> bool {
        matches!(self, Self::Maintenance(_))
    }

    /// The number of files that the user asked for.
    fn files(&self) -> Option<u32> {
        match self {
            Self::Tree { source: None, files } => *files,
            Self::Postmark(options) => options.files,
            Self::Tree { source: Some(_), .. }
            | Self::Aged
            | Self::Maintenance(_)
            | Self::Fragment
            | Self::Laptop { .. }
            | Self::Database
            | Self::Builds
            | Self::Exec { .. } => None,
        }
    }

    /// Drive time from one read of the probe to the next that suits the length of this workload.
    pub fn probe_interval(&self) -> Duration {
        match self {
            Self::Laptop { .. } => laptop::PROBE_INTERVAL,
            Self::Tree { .. }
            | Self::Fragment
            | Self::Database
            | Self::Builds
            | Self::Postmark(_)
            | Self::Aged
            | Self::Maintenance(_)
            | Self::Exec { .. } => Duration::from_millis(100),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use trimtab_core::Bytes;
    use trimtab_core::document::{CompareDocument, Run};
    use trimtab_core::policy::PolicyChoice;

    use super::*;
    use crate::compare::{CompareOptions, Place, SmartProfile, Timing, compare};
    use crate::progress::Progress;
    use crate::testbed::{mount_of, possible_policies};

    struct Silent;

    impl Progress for Silent {
        fn note(&mut self, _: &str) {}
        fn planned(&mut self, _: usize) {}
        fn run_started(&mut self, _: &str, _: PolicyChoice, _: Duration, _: u32) {}
        fn step(&mut self, _: &str) {}
        fn run_finished(&mut self) {}
    }

    /// Runs a workload in a temporary directory, with pauses a million times shorter than real ones.
    /// The policy is one that needs no rights and that the mount allows.
    fn compared(workload: WorkloadOptions, room: Bytes, writers: u32) -> CompareDocument {
        let dir = tempfile::tempdir().unwrap();
        let policy = possible_policies(&mount_of(dir.path()).unwrap())[0];
        let options = CompareOptions {
            place: Place::Directory { dir: dir.path().to_owned(), room, service: dir.path().to_owned() },
            policies: vec![policy.into()],
            idle: vec![Duration::from_secs(1)],
            workload,
            runs: 1,
            writers,
            seed: 1,
            probe_interval: None,
            smart_profile: SmartProfile::Guessed,
            merges: true,
            timing: Timing::Real { speed: 1e6 },
            program: PathBuf::new(),
            command: Vec::new(),
        };
        let mut save = |_: &CompareDocument| -> io::Result<()> { Ok(()) };
        compare(options, &Interrupt::never(), &mut Silent, &mut save).unwrap()
    }

    /// Runs a workload in a directory with this room, and verifies its data.
    pub fn ran(workload: WorkloadOptions, room: Bytes) -> Run {
        ran_by(1, workload, room)
    }

    /// Has this many writers run a workload in a directory with this room, and verifies their data.
    pub fn ran_by(writers: u32, workload: WorkloadOptions, room: Bytes) -> Run {
        let mut document = compared(workload, room, writers);
        assert_eq!(document.stopped, None);
        let run = document.runs.remove(0);
        assert!(run.verified);
        run
    }

    /// Why a workload is refused this room.
    pub fn refused(workload: WorkloadOptions, room: Bytes) -> String {
        compared(workload, room, 1).stopped.expect("it needs more")
    }

    /// The names of the steps, without the pauses that every run starts and ends with.
    pub fn names(run: &Run) -> Vec<&str> {
        let [start, steps @ .., end] = &run.steps[..] else { panic!("a run has steps of its own") };
        assert_eq!((start.name.as_str(), end.name.as_str()), ("start", "end"));
        steps.iter().map(|step| step.name.as_str()).collect()
    }
}
