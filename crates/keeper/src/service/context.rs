//! The state that all managed file systems share.

use std::cell::Cell;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use trimtab_core::error::chain;
use trimtab_linux::forked::{self, Enders};
use trimtab_linux::stack::Machine;

use super::timeout::{NoAnswer, TIMEOUT};
use crate::failures::Failures;
use crate::state::{SaveError, Store};

/// After a write that got no answer, others are not tried for so long.
const HUNG_FOR: Duration = Duration::from_secs(30);

/// The machine, the saved states and the failed discards.
pub(super) struct Context {
    pub machine: Machine,
    /// The saved states, kept over reboots; to be written by [`Self::write_states`] only.
    pub store: Store,
    /// When a write of them got no answer.
    pub hung: Cell<Option<Instant>>,
    /// The directory of files that are kept until the next boot.
    pub run: PathBuf,
    /// The directory of the logs of decisions; `None` if they are not logged.
    pub decisions: Option<PathBuf>,
    /// Ends the trims of all file systems.
    pub enders: Enders,
    /// The discards that disks failed.
    pub failures: Failures,
    /// The speed of the service's clock: more than 1 beside a drive that is emulated faster than real time.
    pub speed: f64,
}

/// Why the saved states could not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// A file system below them is frozen, or its drive hangs.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    /// The file or its directory can't be written.
    #[error("{0}")]
    Save(String),
    /// There is no process to write it.
    #[error("cannot start a process that saves the state")]
    Process(#[source] io::Error),
}

impl Context {
    /// Writes the saved states by `work`, in a process of its own: they may lie on a frozen file system, and a thread that waits
    /// for it would keep this process from ending.
    ///
    /// # Errors
    /// [`WriteError`]; what was saved before stays.
    pub fn write_states(&self, work: impl FnOnce(&Store) -> Result<(), SaveError>) -> Result<(), WriteError> {
        if self.hung.get().is_some_and(|hung| hung.elapsed() < HUNG_FOR) {
            return Err(NoAnswer.into());
        }
        let store = self.store.clone();
        let answer = forked::run(Some(TIMEOUT), move || match work(&store) {
            Ok(()) => Vec::new(),
            Err(error) => chain(&error).into_bytes(),
        });
        match answer.map_err(WriteError::Process)? {
            None => {
                self.hung.set(Some(Instant::now()));
                Err(NoAnswer.into())
            }
            Some(error) if error.is_empty() => Ok(()),
            Some(error) => Err(WriteError::Save(String::from_utf8_lossy(&error).into_owned())),
        }
    }
}
