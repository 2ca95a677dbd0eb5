//! Workloads: real file operations on a mounted file system, the same at every run of a seed.

mod exec;
mod fragment;
mod tree;

use std::ffi::OsString;
use std::path::PathBuf;

use trimtab_core::document::WorkloadDescription;

use crate::compare::Stage;
use crate::error::LabError;
use crate::interrupt::Interrupt;

/// A sequence of activities and pauses.
pub trait Workload {
    /// What it is, for the result document.
    fn description(&self) -> WorkloadDescription;

    /// Does it once, in an empty directory.
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
    },
    /// Fill, delete, write interleaved files, delete them one by one, write one large file.
    Fragment,
    /// The user's own command, with `{dir}` replaced by the mount.
    Exec {
        /// The program and its arguments.
        command: Vec<OsString>,
    },
}

/// A workload name that isn't one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no workload {name:?}; there are fragment, tree, and -- COMMAND for your own")]
pub struct UnknownWorkload {
    /// What was asked for.
    pub name: String,
}

impl WorkloadOptions {
    /// The arguments of `trimtab compare` that ask for it.
    pub fn arguments(&self) -> Vec<OsString> {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect();
        match self {
            Self::Tree { source: None } => words(&["--workload", "tree"]),
            Self::Tree { source: Some(path) } => {
                let mut arguments: Vec<OsString> = words(&["--workload", "tree", "--tree"]);
                arguments.push(std::path::absolute(path).unwrap_or_else(|_| path.clone()).into());
                arguments
            }
            Self::Fragment => words(&["--workload", "fragment"]),
            Self::Exec { command } => {
                [OsString::from("--")].into_iter().chain(command.iter().cloned()).collect()
            }
        }
    }

    /// The workload that these options describe, with what it needs made ready.
    ///
    /// # Errors
    /// A source tree that can't be read or unpacked.
    pub fn prepare(self, seed: u64, interrupt: &Interrupt) -> Result<Box<dyn Workload>, LabError> {
        Ok(match self {
            Self::Tree { source: Some(path) } => {
                Box::new(tree::TreeWorkload::from_path(&path, seed, interrupt)?)
            }
            Self::Tree { source: None } => Box::new(tree::TreeWorkload::synthetic(seed)),
            Self::Fragment => Box::new(fragment::FragmentWorkload::new(seed)),
            Self::Exec { command } => Box::new(exec::ExecWorkload::new(command, seed)),
        })
    }
}
