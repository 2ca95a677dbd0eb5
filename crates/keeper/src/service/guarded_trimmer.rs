//! Trims that can't block the service, and that fail if a disk failed their discards.

use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::block::BlockError;
use trimtab_linux::stack::Stack;
use trimtab_linux::trim::TrimError;

use super::context::Context;
use super::timeout::{SingleCall, TIMEOUT, spawn};
use crate::failures::FailureCounts;
use crate::free_space::windows::Freshness;
use crate::trimmer::{Counters, MountedTrimmer, TrimSeries, Trimmer};

/// Trims a managed file system.
pub(super) struct GuardedTrimmer {
    trimmer: MountedTrimmer,
    /// The layers below the file system.
    stack: Stack,
    context: Rc<Context>,
    /// Trims that timed out and still run.
    late: Option<Late>,
    /// The query of free space, which may still run.
    free_space: SingleCall<Option<ExtentSet>>,
}

/// Trims in a thread of their own, which has not ended.
struct Late {
    answer: Receiver<TrimSeries>,
    /// The failures of disks before them.
    failures: FailureCounts,
}

impl GuardedTrimmer {
    pub fn new(trimmer: MountedTrimmer, stack: Stack, context: Rc<Context>) -> Self {
        Self { trimmer, stack, context, late: None, free_space: SingleCall::default() }
    }

    /// Uses another mount of the same file system from now on.
    pub fn set_trimmer(&mut self, trimmer: MountedTrimmer) {
        self.trimmer = trimmer.after(&self.trimmer);
    }

    /// Returns whether trims are under way, or one waits for the thaw of the file system.
    pub fn is_running(&self) -> bool {
        self.trimmer.ender().is_running() || self.trimmer.waits_for_thaw()
    }

    /// Returns whether trims have been under way for so long that the drive is slow or hangs.
    pub fn is_late(&self) -> bool {
        self.late.is_some() && self.is_running()
    }

    /// Ends the trims that are under way.
    pub fn end(&self) {
        self.trimmer.ender().end();
    }
}

impl Trimmer for GuardedTrimmer {
    /// Widens the ranges as [`MountedTrimmer`] does and trims them, in a thread of its own. While earlier
    /// trims that timed out still run, starts no others. Once they end, returns their result, as if they had taken
    /// no longer than until they timed out: the drive may have hung.
    fn trim(&mut self, ranges: ExtentSet, minimum: Bytes) -> TrimSeries {
        let mount = self.trimmer.mount().to_owned();
        let late = self.late.take();
        let is_late = late.is_some();
        let (late, timeout) = match late {
            Some(late) => (late, Duration::ZERO),
            None => {
                // Discards that failed earlier don't belong to these trims.
                let failures = self.context.failures.counts();
                let mut trimmer = self.trimmer.clone();
                let reach_and_trim = move || match trimmer.reaching(ranges) {
                    Ok(ranges) => trimmer.trim(ranges, minimum),
                    Err(error) => TrimSeries::failed(error),
                };
                match spawn(reach_and_trim) {
                    Ok(answer) => (Late { answer, failures }, TIMEOUT),
                    Err(source) => return TrimSeries::failed(TrimError::Trim { mount, source }),
                }
            }
        };
        match late.answer.recv_timeout(timeout) {
            Ok(mut series) => {
                series.took = series.took.mul_f64(self.context.speed);
                if is_late {
                    series.took = series.took.min(TIMEOUT);
                }
                self.context.failures.check(&self.stack, &mount, &late.failures, series)
            }
            Err(error) => {
                self.late = (error == RecvTimeoutError::Timeout).then_some(late);
                TrimSeries::failed(TrimError::NoAnswer { mount })
            }
        }
    }

    /// Returns `extents` unchanged: [`Self::trim`] widens them, because that may block too.
    fn reaching(&mut self, extents: ExtentSet) -> Result<ExtentSet, TrimError> {
        Ok(extents)
    }

    fn counters(&mut self) -> Result<Counters, BlockError> {
        let mut counters = self.trimmer.counters()?;
        let disks = &mut counters.disks;
        for time in [&mut disks.read_time, &mut disks.write_time, &mut disks.busy_time] {
            *time = time.mul_f64(self.context.speed);
        }
        Ok(counters)
    }

    fn free(&mut self) -> Bytes {
        self.trimmer.free()
    }

    fn freed(&mut self, extent: Extent) {
        self.trimmer.freed(extent);
    }

    fn take_over(&mut self, earlier: &mut Self) {
        self.trimmer = self.trimmer.clone().after(&earlier.trimmer);
        self.late = earlier.late.take();
        self.free_space = std::mem::take(&mut earlier.free_space);
    }

    /// Reads the map in a thread of its own; `None` if it takes too long, and while earlier trims or queries that
    /// timed out still run.
    fn free_within(&mut self, extents: &ExtentSet, freshness: Freshness) -> Option<ExtentSet> {
        if self.late.is_some() {
            return None;
        }
        let (mut trimmer, extents) = (self.trimmer.clone(), extents.clone());
        self.free_space.run_anew(move || trimmer.free_within(&extents, freshness)).ok()?
    }
}
