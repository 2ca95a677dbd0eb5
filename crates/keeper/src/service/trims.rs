//! Trims that neither hold the service up for ever nor pass for done where a disk failed them.

use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::block::{BlockCounters, BlockError};
use trimtab_linux::stack::Stack;
use trimtab_linux::trim::TrimError;

use super::patience::{PATIENCE, begin};
use super::site::Site;
use crate::trims::{MountedTrims, Trims};

/// Trims of a file system in the service's care.
pub(super) struct GuardedTrims {
    mounted: MountedTrims,
    /// What the file system lies on.
    stack: Stack,
    site: Rc<Site>,
    /// What was asked for and not answered in time.
    late: Option<(Extent, Answer)>,
}

type Answer = Receiver<Result<Duration, TrimError>>;

impl GuardedTrims {
    pub fn new(mounted: MountedTrims, stack: Stack, site: Rc<Site>) -> Self {
        Self { mounted, stack, site, late: None }
    }

    /// The answer to a trim that has begun, where it comes in time and no disk failed it.
    fn await_answer(
        &mut self,
        asked: Extent,
        answer: Answer,
        patience: Duration,
    ) -> Result<Duration, TrimError> {
        let mount = self.mounted.mount().to_owned();
        let took = match answer.recv_timeout(patience) {
            Ok(outcome) => outcome?,
            Err(RecvTimeoutError::Timeout) => {
                self.late = Some((asked, answer));
                return Err(TrimError::NoAnswer { mount });
            }
            Err(RecvTimeoutError::Disconnected) => return Err(TrimError::NoAnswer { mount }),
        };
        self.site.failures.heed(&self.stack, &mount, took)
    }
}

impl Trims for GuardedTrims {
    fn trim(&mut self, range: Extent, minimum: Bytes) -> Result<Duration, TrimError> {
        // What hasn't answered yet is asked for nothing more.
        if let Some((asked, answer)) = self.late.take() {
            let took = self.await_answer(asked, answer, Duration::ZERO)?;
            if asked.intersect(range) == range {
                return Ok(took);
            }
        }
        // What failed before is not of this trim.
        _ = self.site.failures.below(&self.stack);
        let mut mounted = self.mounted.clone();
        let answer = begin(move || mounted.trim(range, minimum));
        let answer =
            answer.map_err(|source| TrimError::Trim { mount: self.mounted.mount().to_owned(), source })?;
        self.await_answer(range, answer, PATIENCE)
    }

    fn reaching(&mut self, extents: ExtentSet) -> Result<ExtentSet, TrimError> {
        self.mounted.reaching(extents)
    }

    fn counters(&mut self) -> Result<BlockCounters, BlockError> {
        self.mounted.counters()
    }

    fn free(&mut self) -> Bytes {
        self.mounted.free()
    }
}
