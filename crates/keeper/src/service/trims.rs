//! Trims that neither hold the service up for ever nor pass for done where a disk failed them.

use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use trimtab_core::{Bytes, ExtentSet};
use trimtab_linux::block::{BlockCounters, BlockError};
use trimtab_linux::stack::Stack;
use trimtab_linux::trim::TrimError;

use super::context::Context;
use super::patience::{PATIENCE, begin};
use crate::trims::{MountedTrims, Series, Trims};

/// Trims of a file system in the service's care.
pub(super) struct GuardedTrims {
    mounted: MountedTrims,
    /// What the file system lies on.
    stack: Stack,
    context: Rc<Context>,
    /// What will come of trims that were not answered in time.
    late: Option<Receiver<Series>>,
}

impl GuardedTrims {
    pub fn new(mounted: MountedTrims, stack: Stack, context: Rc<Context>) -> Self {
        Self { mounted, stack, context, late: None }
    }

    /// Trims by this mount of the file system from now on.
    pub fn set_mounted(&mut self, mounted: MountedTrims) {
        self.mounted = mounted;
    }
}

impl Trims for GuardedTrims {
    /// Trims what [reaches](Trims::reaching) the ranges, which may take as long. Where earlier trims were not
    /// answered in time, nothing more is asked for until they are, and then it is them that it tells of: nothing
    /// counts as trimmed, as more may have been freed there since.
    fn trim(&mut self, ranges: ExtentSet, minimum: Bytes) -> Series {
        let mount = self.mounted.mount().to_owned();
        let late = self.late.take();
        let is_late = late.is_some();
        let (answer, patience) = match late {
            Some(late) => (late, Duration::ZERO),
            None => {
                // What failed before is not of these trims.
                _ = self.context.failures.below(&self.stack);
                let mut mounted = self.mounted.clone();
                let reach_and_trim = move || match mounted.reaching(ranges) {
                    Ok(ranges) => mounted.trim(ranges, minimum),
                    Err(error) => Series::refused(error),
                };
                match begin(reach_and_trim) {
                    Ok(answer) => (answer, PATIENCE),
                    Err(source) => return Series::refused(TrimError::Trim { mount, source }),
                }
            }
        };
        match answer.recv_timeout(patience) {
            Ok(mut series) => {
                series.took = series.took.mul_f64(self.context.speed);
                if is_late {
                    series.trimmed = ExtentSet::new();
                    series.took = series.took.min(PATIENCE);
                }
                self.context.failures.heed(&self.stack, &mount, series)
            }
            Err(timeout) => {
                self.late = (timeout == RecvTimeoutError::Timeout).then_some(answer);
                Series::refused(TrimError::NoAnswer { mount })
            }
        }
    }

    fn counters(&mut self) -> Result<BlockCounters, BlockError> {
        let counters = self.mounted.counters()?;
        Ok(BlockCounters {
            read_time: counters.read_time.mul_f64(self.context.speed),
            write_time: counters.write_time.mul_f64(self.context.speed),
            ..counters
        })
    }

    fn free(&mut self) -> Bytes {
        self.mounted.free()
    }
}
