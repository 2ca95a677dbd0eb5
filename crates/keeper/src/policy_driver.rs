//! Runs the policy `smart` or `batched` for one mounted file system.

use std::time::Duration;

use trimtab_core::policy::{
    Event, Load, PendingExtents, Policy, SmartPolicy, TrimRequest, TrimScope, Trimmed,
};
use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::block::{BlockCounters, BlockError};
use trimtab_linux::trim::TrimError;

use crate::trimmer::Trimmer;

/// Hosts a [`SmartPolicy`] for one mounted file system: reports frees and the load of the device to it, and
/// carries out the trims that it requests. For the policy `batched`, the caller reports all free space as
/// freed at each interval, and the highest age is zero. The caller passes the time as a span since a fixed
/// start, and calls [`Self::run`] when [`Self::next_run`] is due.
pub struct PolicyDriver<T> {
    policy: SmartPolicy,
    trimmer: T,
    last_load: Option<(Duration, BlockCounters)>,
    totals: Totals,
}

/// Statistics of all trims so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Discards that the device completed during trims.
    pub discards: u64,
    /// Bytes that the device discarded during trims.
    pub bytes: Bytes,
    /// How long the device was busy with them.
    pub took: Duration,
    /// Runs that failed.
    pub failed: u64,
    /// When the last trim ended.
    pub last: Option<Duration>,
}

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A trim failed. Its extents are still pending; the caller decides when to retry.
    #[error(transparent)]
    Trim(#[from] TrimError),
    /// The device's counters can't be read, for example because it is gone.
    #[error(transparent)]
    Block(#[from] BlockError),
}

impl<T: Trimmer> PolicyDriver<T> {
    /// A driver without pending extents.
    pub fn new(policy: SmartPolicy, trimmer: T) -> Self {
        Self { policy, trimmer, last_load: None, totals: Totals::default() }
    }

    /// Records that the file system freed `extent` at `at`.
    pub fn freed(&mut self, at: Duration, extent: Extent) {
        self.policy.on_event(at, &Event::Freed(extent));
    }

    /// Returns the pending extents.
    pub fn pending(&self) -> &PendingExtents {
        self.policy.pending()
    }

    /// Returns the policy.
    pub fn policy(&self) -> &SmartPolicy {
        &self.policy
    }

    /// Returns the trimmer.
    pub fn trimmer_mut(&mut self) -> &mut T {
        &mut self.trimmer
    }

    /// Returns the statistics of all trims so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Removes and returns all pending extents; the caller trims them.
    pub fn take_pending(&mut self, at: Duration) -> ExtentSet {
        let taken: ExtentSet = self.pending().iter().map(|(extent, _)| extent).collect();
        taken.iter().for_each(|extent| _ = self.policy.on_event(at, &Event::Discarded(extent)));
        taken
    }

    /// Returns when the next run is due; none if nothing is pending.
    pub fn next_run(&self) -> Option<Duration> {
        self.policy.next_wake()
    }

    /// Reports the load to the policy and trims what it requests, if anything. Returns whether it trimmed.
    ///
    /// # Errors
    /// Any [`RunError`]; extents that were not trimmed stay pending.
    pub fn run(&mut self, now: Duration) -> Result<bool, RunError> {
        let before = self.report_load(now)?;
        let mut requests = self.policy.on_event(now, &Event::Wake);
        let Some(TrimRequest { scope: TrimScope::Within(extents), min_length }) = requests.pop() else {
            return Ok(false);
        };
        let mut trimmed = Trimmed { took: Duration::ZERO, refused: extents };
        let outcome = self.carry_out(now, before, min_length, &mut trimmed);
        let end = now + trimmed.took;
        self.totals.took += trimmed.took;
        self.totals.last = Some(end);
        self.policy.on_event(end, &Event::Trimmed(trimmed));
        self.totals.failed += u64::from(outcome.is_err());
        outcome.map(|()| true)
    }

    /// Trims the extents in `trimmed.refused` and removes those that succeeded from it.
    /// `before` are the counters of the devices before the trims.
    fn carry_out(
        &mut self,
        now: Duration,
        before: BlockCounters,
        minimum: Bytes,
        trimmed: &mut Trimmed,
    ) -> Result<(), RunError> {
        let ranges = self.trimmer.reaching(trimmed.refused.clone())?;
        let series = self.trimmer.trim(ranges, minimum);
        trimmed.took = series.took;
        for extent in series.trimmed.iter() {
            trimmed.refused.remove(extent);
            // The trim may cover more than requested.
            self.policy.on_event(now, &Event::Discarded(extent));
        }
        // The devices also count failed discards, so a failed trim adds nothing.
        series.outcome?;
        let after = self.trimmer.counters()?;
        self.totals.discards += after.discards.saturating_sub(before.discards);
        self.totals.bytes += after.discard_bytes.saturating_sub(before.discard_bytes);
        Ok(())
    }

    /// Reports the load since the last call to the policy. Returns the counters of the devices.
    fn report_load(&mut self, now: Duration) -> Result<BlockCounters, BlockError> {
        let counters = self.trimmer.counters()?;
        let free = self.trimmer.free();
        self.policy.on_event(now, &Event::Space { free });
        if let Some((since, before)) = self.last_load.replace((now, counters)) {
            self.policy.on_event(now, &Event::Load(load_between(now - since, &before, &counters)));
        }
        Ok(counters)
    }
}

/// Returns the foreground load between two readings of the counters, which are `span` apart.
pub(crate) fn load_between(span: Duration, before: &BlockCounters, after: &BlockCounters) -> Load {
    let completed = (after.reads + after.writes).saturating_sub(before.reads + before.writes);
    let waited = (after.read_time + after.write_time).saturating_sub(before.read_time + before.write_time);
    let latency = waited.checked_div(u32::try_from(completed).unwrap_or(u32::MAX)).unwrap_or_default();
    let written = after.write_bytes.saturating_sub(before.write_bytes);
    Load { span, in_flight: after.in_flight, completed, latency, written }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io;
    use std::rc::Rc;

    use trimtab_core::profile::Profile;

    use super::*;
    use crate::trimmer::TrimSeries;

    const SIZE: Bytes = Bytes(8 << 30);
    const SECOND: Duration = Duration::from_secs(1);
    /// How long one trim takes.
    const TRIM_TIME: Duration = Duration::from_millis(20);

    /// A device without other load. One of its trims may fail, or it may be gone after one.
    #[derive(Clone, Default)]
    struct Faulty {
        calls: Rc<Cell<u64>>,
        fails_at: Option<u64>,
        gone_after: Option<u64>,
        is_slow: bool,
    }

    impl Trimmer for Faulty {
        fn trim(&mut self, ranges: ExtentSet, _: Bytes) -> TrimSeries {
            TrimSeries::of(&ranges, |_| {
                self.calls.set(self.calls.get() + 1);
                if self.fails_at == Some(self.calls.get()) {
                    let source = io::Error::from_raw_os_error(5);
                    return Err(TrimError::Trim { mount: "/mnt".into(), source });
                }
                Ok(if self.is_slow { SECOND } else { TRIM_TIME })
            })
        }

        fn reaching(&mut self, extents: ExtentSet) -> Result<ExtentSet, TrimError> {
            Ok(extents)
        }

        fn counters(&mut self) -> Result<BlockCounters, BlockError> {
            if self.gone_after.is_some_and(|last| self.calls.get() > last) {
                return Err(BlockError::Unknown { device: "/dev/gone".into() });
            }
            let discards = self.calls.get();
            Ok(BlockCounters { discards, discard_bytes: Bytes(discards << 20), ..BlockCounters::default() })
        }

        fn free(&mut self) -> Bytes {
            Bytes::GIB
        }
    }

    fn driver(trimmer: Faulty) -> PolicyDriver<Faulty> {
        let mut driver =
            PolicyDriver::new(SmartPolicy::of_drive(&Profile::named("nvme-tlc").unwrap(), SIZE), trimmer);
        driver.run(Duration::ZERO).unwrap();
        for index in 0..8 {
            driver.freed(Duration::ZERO, Extent::at(Bytes(index << 28), Bytes(64 << 20)));
        }
        driver
    }

    fn pending(driver: &PolicyDriver<Faulty>) -> Bytes {
        driver.pending().len()
    }

    #[test]
    fn idle_device_gets_all_pending_trims() {
        let mut driver = driver(Faulty::default());
        assert!(driver.run(SECOND).unwrap());
        let mut now = SECOND;
        while pending(&driver) > Bytes::ZERO {
            now = driver.next_run().expect("something is pending").max(now + TRIM_TIME);
            driver.run(now).unwrap();
        }
        let totals = driver.totals();
        assert_eq!((totals.discards, totals.bytes), (8, Bytes(8 << 20)));
        assert_eq!((totals.took, totals.failed), (TRIM_TIME * 8, 0));
        assert_eq!(driver.next_run(), None);
    }

    #[test]
    fn slow_device_gets_one_trim_per_run() {
        let mut driver = driver(Faulty { is_slow: true, ..Faulty::default() });
        let before = pending(&driver);
        assert!(driver.run(SECOND).unwrap());
        assert_eq!((driver.totals().discards, driver.totals().took), (1, SECOND));
        assert_eq!(pending(&driver) + Bytes(64 << 20), before);
        assert!(driver.next_run().is_some());
    }

    #[test]
    fn failed_trims_stay_pending() {
        let mut driver = driver(Faulty { fails_at: Some(2), ..Faulty::default() });
        let before = pending(&driver);
        let error = driver.run(SECOND).unwrap_err();
        assert!(matches!(error, RunError::Trim(_)), "{error}");
        assert_eq!(pending(&driver), Bytes(before.0 - (64 << 20)), "the first was trimmed");
        let retry = driver.next_run().unwrap();
        assert!(driver.run(retry).unwrap());
        assert_eq!(driver.totals().failed, 1);
    }

    #[test]
    fn vanished_device_is_an_error_and_keeps_extents_pending() {
        let device = Faulty { gone_after: Some(0), ..Faulty::default() };
        let mut driver = driver(device.clone());
        let before = pending(&driver);
        assert!(matches!(driver.run(SECOND), Err(RunError::Block(_))));
        assert!(matches!(driver.run(SECOND * 60), Err(RunError::Block(_))));
        let trimmed = Bytes(device.calls.get() * (64 << 20));
        assert_eq!(pending(&driver) + trimmed, before);
    }
}
