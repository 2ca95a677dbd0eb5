//! Runs the policy `smart` or `batched` for one mounted file system.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use trimtab_core::policy::{
    Event, Load, PendingExtents, Policy, Sent, SmartPolicy, TrimRequest, TrimScope, Trimmed,
};
use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::block::BlockError;
use trimtab_linux::trim::TrimError;

use crate::decision_log::DecisionLog;
use crate::trimmer::{Counters, Trimmer};

/// Once the host has written this part of what is pending, files may have taken some of it, and the map of free
/// space is read.
const REUSED: u64 = 8;
/// The fewest written bytes after which that is done; 16 times as many unless more is pending than is free.
const LEAST_WRITTEN: Bytes = Bytes::MIB;
/// The time until the map of free space shows what was freed.
const SHOWN_AFTER: Duration = Duration::from_secs(2);

/// The most such extents that are kept; the oldest of more are judged early.
const MOST_RECENT: usize = 1 << 16;

/// Hosts a [`SmartPolicy`] for one mounted file system: reports frees and the load of the device to it, and
/// carries out the trims that it requests. For the policy `batched`, the caller reports all free space as
/// freed at each interval, and the highest age is zero. The caller passes the time as a span since a fixed
/// start, and calls [`Self::run`] when [`Self::next_run`] is due.
pub struct PolicyDriver<T> {
    policy: SmartPolicy,
    trimmer: T,
    last_load: Option<(Duration, Counters)>,
    /// The bytes written since the map of free space was read.
    written: Bytes,
    /// The extents freed a moment ago, which the map of free space may not show yet.
    recent: VecDeque<(Duration, Extent)>,
    totals: Totals,
    /// Where the decisions are logged; none if they are not, or if that failed.
    log: Option<DecisionLog>,
    log_error: Option<io::Error>,
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
        Self {
            policy,
            trimmer,
            last_load: None,
            written: Bytes::ZERO,
            recent: VecDeque::new(),
            totals: Totals::default(),
            log: None,
            log_error: None,
        }
    }

    /// Logs all decisions to `log`, if that could be created. Has to be called before the first event.
    pub fn log_to(&mut self, log: io::Result<DecisionLog>) {
        match log {
            Ok(log) => self.log = Some(log),
            Err(error) => self.log_error = Some(error),
        }
    }

    /// Returns why the log of decisions ended, once.
    pub fn take_log_error(&mut self) -> Option<io::Error> {
        self.log_error.take()
    }

    /// Tells the policy of `event`, and logs it with the answer.
    fn tell(&mut self, at: Duration, event: &Event) -> Vec<TrimRequest> {
        let requests = self.policy.on_event(at, event);
        if let Some(log) = &mut self.log
            && let Err(error) = log.add(at, event, &requests)
        {
            (self.log, self.log_error) = (None, Some(error));
        }
        requests
    }

    /// Records that the file system freed `extent` at `at`.
    pub fn freed(&mut self, at: Duration, extent: Extent) {
        self.tell(at, &Event::Freed(extent));
        self.forget_old(at);
        self.recent.push_back((at, extent));
    }

    fn forget_old(&mut self, now: Duration) {
        let is_old = |freed: &(Duration, Extent)| freed.0 + SHOWN_AFTER < now;
        while self.recent.len() >= MOST_RECENT || self.recent.front().is_some_and(is_old) {
            self.recent.pop_front();
        }
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
        taken.iter().for_each(|extent| _ = self.tell(at, &Event::Discarded(extent)));
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
        self.drop_reused(now);
        let mut requests = self.tell(now, &Event::Wake);
        let Some(TrimRequest { scope: TrimScope::Within(extents), min_length }) = requests.pop() else {
            return Ok(false);
        };
        let mut trimmed = Trimmed { took: Duration::ZERO, refused: extents, sent: None };
        let outcome = self.carry_out(now, before, min_length, &mut trimmed);
        let end = now + trimmed.took;
        self.totals.took += trimmed.took;
        self.totals.last = Some(end);
        self.tell(end, &Event::Trimmed(trimmed));
        self.totals.failed += u64::from(outcome.is_err());
        outcome.map(|()| true)
    }

    /// Trims the extents in `trimmed.refused` and removes those that succeeded from it.
    /// `before` are the counters of the devices before the trims.
    fn carry_out(
        &mut self,
        now: Duration,
        before: Counters,
        minimum: Bytes,
        trimmed: &mut Trimmed,
    ) -> Result<(), RunError> {
        let ranges = self.trimmer.reaching(trimmed.refused.clone())?;
        let series = self.trimmer.trim(ranges, minimum);
        trimmed.took = series.took;
        for extent in series.trimmed.iter() {
            trimmed.refused.remove(extent);
            for discarded in self.discarded(extent, minimum).iter() {
                self.tell(now, &Event::Discarded(discarded));
            }
        }
        // The devices also count failed discards, so a failed trim adds nothing.
        series.outcome?;
        let after = self.trimmer.counters()?;
        let discards = after.own.discards.saturating_sub(before.own.discards);
        let bytes = after.own.discard_bytes.saturating_sub(before.own.discard_bytes);
        trimmed.sent = Some(Sent { discards, bytes });
        self.totals.discards += discards;
        self.totals.bytes += bytes;
        Ok(())
    }

    /// Returns what a trim of `range` discarded, which may be more than the policy requested: not the pending
    /// extents that are shorter than `minimum`.
    fn discarded(&self, range: Extent, minimum: Bytes) -> ExtentSet {
        let mut discarded = ExtentSet::from_iter([range]);
        let shorter = self.pending().sharing(range).filter(|extent| extent.len() < minimum);
        shorter.for_each(|extent| discarded.remove(extent));
        discarded
    }

    /// Reports the load since the last call to the policy. Returns the counters of the devices.
    fn report_load(&mut self, now: Duration) -> Result<Counters, BlockError> {
        let counters = self.trimmer.counters()?;
        let free = self.trimmer.free();
        self.tell(now, &Event::Space { free });
        if let Some((since, before)) = self.last_load.replace((now, counters)) {
            let load = load_between(now - since, &before, &counters);
            self.written += load.written;
            self.tell(now, &Event::Load(load));
        }
        Ok(counters)
    }

    /// Drops the pending extents that files use again. The kernel's events of allocations would tell at once, but
    /// cost every allocation; so the map of free space is read after as much was written as may matter.
    fn drop_reused(&mut self, now: Duration) {
        let pending = self.pending().len();
        let matters = Bytes(pending.0 / REUSED);
        // More can't be pending than is free.
        let is_stale = self.written >= LEAST_WRITTEN && pending > self.trimmer.free();
        let is_due = is_stale || self.written >= matters.max(LEAST_WRITTEN * 16);
        if pending == Bytes::ZERO || !is_due {
            return;
        }
        let all: ExtentSet = self.pending().iter().map(|(extent, _)| extent).collect();
        let Some(free) = self.trimmer.free_within(&all) else {
            self.written = Bytes::ZERO;
            return;
        };
        let mut reused = all;
        free.iter().for_each(|extent| reused.remove(extent));
        let found = reused.len();
        self.forget_old(now);
        self.recent.iter().for_each(|freed| reused.remove(freed.1));
        // Extents that are too recent to be judged are looked at again, if they matter.
        if found - reused.len() <= matters {
            self.written = Bytes::ZERO;
        }
        reused.iter().for_each(|extent| _ = self.tell(now, &Event::Written(extent)));
    }
}

/// Returns the load of the disks between two readings of the counters, which are `span` apart.
pub(crate) fn load_between(span: Duration, before: &Counters, after: &Counters) -> Load {
    let (before, after) = (&before.disks, &after.disks);
    let completed = (after.reads + after.writes).saturating_sub(before.reads + before.writes);
    let waited = (after.read_time + after.write_time).saturating_sub(before.read_time + before.write_time);
    let latency = waited.checked_div(u32::try_from(completed).unwrap_or(u32::MAX)).unwrap_or_default();
    let written = after.write_bytes.saturating_sub(before.write_bytes);
    // The busy time also counts that of discards, whoever sends them.
    let is_known = before.discards == after.discards;
    let busy = is_known.then(|| after.busy_time.saturating_sub(before.busy_time));
    let read = after.read_bytes.saturating_sub(before.read_bytes);
    Load { span, in_flight: after.in_flight, completed, latency, written, read, busy }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::io;
    use std::rc::Rc;

    use trimtab_core::profile::Profile;

    use super::*;
    use crate::trimmer::TrimSeries;
    use trimtab_linux::block::BlockCounters;

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
        /// Widens each trim to this range, as btrfs needs it.
        chunk: Option<Extent>,
        /// Bytes written so far, and the free extents; without them, everything is free.
        written: Rc<Cell<Bytes>>,
        free: Rc<RefCell<Option<ExtentSet>>>,
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
            Ok(self.chunk.map_or(extents, |chunk| ExtentSet::from_iter([chunk])))
        }

        fn counters(&mut self) -> Result<Counters, BlockError> {
            if self.gone_after.is_some_and(|last| self.calls.get() > last) {
                return Err(BlockError::Unknown { device: "/dev/gone".into() });
            }
            let discards = self.calls.get();
            let (discard_bytes, write_bytes) = (Bytes(discards << 20), self.written.get());
            let counters = BlockCounters { discards, discard_bytes, write_bytes, ..BlockCounters::default() };
            Ok(Counters { own: counters, disks: counters })
        }

        fn free(&mut self) -> Bytes {
            Bytes::GIB
        }

        fn free_within(&mut self, extents: &ExtentSet) -> Option<ExtentSet> {
            self.free.borrow().as_ref().map(|free| free.intersect(extents))
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
    fn busy_time_is_unknown_while_anybody_discards() {
        let disks = |seconds, discards| {
            let busy_time = SECOND * seconds;
            Counters {
                disks: BlockCounters { busy_time, discards, ..BlockCounters::default() },
                ..Counters::default()
            }
        };
        let between = |before, after| load_between(SECOND * 9, &before, &after).busy;
        assert_eq!(between(disks(1, 7), disks(4, 7)), Some(SECOND * 3));
        assert_eq!(between(disks(1, 7), disks(4, 8)), None, "another partition was trimmed");
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
    fn extents_that_files_took_are_dropped() {
        let device = Faulty::default();
        let mut driver = driver(device.clone());
        let freed = Extent::at(Bytes(1 << 40), Bytes(64 << 20));
        let (stays, before) = (Extent::at(Bytes(0), Bytes(64 << 20)), pending(&driver));
        device.free.replace(Some(ExtentSet::from_iter([stays])));
        driver.report_load(SECOND).unwrap();
        driver.drop_reused(SECOND);
        assert_eq!(pending(&driver), before, "nobody wrote, so that nothing was taken");
        device.written.set(before);
        driver.freed(SECOND * 3, freed);
        driver.report_load(SECOND * 4).unwrap();
        driver.drop_reused(SECOND * 4);
        let left: Vec<_> = driver.pending().iter().map(|(extent, _)| extent).collect();
        assert_eq!(left, [stays, freed], "what is free, and what was freed a moment ago");
    }

    #[test]
    fn extents_below_the_least_length_stay_pending_beside_a_wider_trim() {
        let chunk = Extent::new(Bytes::ZERO, SIZE);
        let mut driver = driver(Faulty { chunk: Some(chunk), ..Faulty::default() });
        let short = Extent::at(Bytes(1 << 33) - Bytes(8192), Bytes(2048));
        driver.freed(Duration::ZERO, short);
        assert!(driver.run(SECOND).unwrap());
        let left: Vec<_> = driver.pending().iter().map(|(extent, _)| extent).collect();
        assert_eq!(left, [short], "the others were discarded with the chunk");
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
