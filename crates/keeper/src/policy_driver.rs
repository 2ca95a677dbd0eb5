//! Runs the policy `smart` or `batched` for one mounted file system.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use trimtab_core::policy::{
    Event, Load, PendingExtents, Policy, Sent, SmartPolicy, TrimRequest, TrimScope, Trimmed,
};
use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::block::BlockError;
use trimtab_linux::trim::TrimError;

use crate::decision_log::DecisionLog;
use crate::free_space::windows::Freshness;
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

/// The time after which a device that holds discards back, such as a thin pool, has counted them.
const COUNTED_AFTER: Duration = Duration::from_secs(3);

/// After the map of free space was read, it is not read again for this many times as long as that took.
const MAP_PAUSE: u32 = 50;

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
    /// When the map of free space may be read again.
    next_map: Duration,
    /// A trim that was begun and has not been answered yet.
    unanswered: Option<Unanswered>,
    /// The extents freed a moment ago, which the map of free space may not show yet.
    recent: VecDeque<(Duration, Extent)>,
    totals: Totals,
    /// The discards that the device holds back.
    held: Option<Held>,
    /// Where the decisions are logged; `None` if they are not, or if that failed.
    log: Option<DecisionLog>,
    log_error: Option<io::Error>,
}

/// A trim that was not answered in time. [`Trimmer::trim`] returns its result when it has ended.
struct Unanswered {
    /// The counters of the devices before it.
    before: Counters,
    /// The least length of the free space that it discards.
    minimum: Bytes,
    /// The extents freed since it began.
    freed: ExtentSet,
}

/// Discards of the last trim that the device has not counted.
#[derive(Debug, Clone, Copy)]
struct Held {
    bytes: Bytes,
    /// When they are looked for, and the counters when the trim ended.
    due: Duration,
    before: Counters,
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
            next_map: Duration::ZERO,
            unanswered: None,
            recent: VecDeque::new(),
            totals: Totals::default(),
            held: None,
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
        self.trimmer.freed(extent);
        self.tell(at, &Event::Freed(extent));
        self.forget_old(at);
        self.recent.push_back((at, extent));
        if let Some(unanswered) = &mut self.unanswered {
            unanswered.freed.insert(extent);
            if unanswered.freed.count() > MOST_RECENT {
                // Too many to be kept: nothing counts as trimmed.
                unanswered.freed = ExtentSet::from_iter([Extent::new(Bytes::ZERO, Bytes(u64::MAX))]);
            }
        }
    }

    /// Takes over the pending extents of `earlier`, and the trim of it that has not ended yet.
    pub fn take_over(&mut self, mut earlier: Self) {
        self.trimmer.take_over(&mut earlier.trimmer);
        earlier.pending().iter().for_each(|(extent, since)| self.freed(since, extent));
        self.unanswered = earlier.unanswered.take();
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
    pub fn trimmer(&self) -> &T {
        &self.trimmer
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

    /// Returns when the next run is due; `None` if nothing is pending.
    pub fn next_run(&self) -> Option<Duration> {
        let held = self.held.map(|held| held.due);
        self.policy.next_wake().into_iter().chain(held).min()
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
        let mut trimmed =
            Trimmed { took: Duration::ZERO, refused: extents, partial: ExtentSet::new(), sent: None };
        let was_unanswered = self.unanswered.is_some();
        let outcome = self.carry_out(now, before, min_length, &mut trimmed);
        let end = if was_unanswered { now } else { now + trimmed.took };
        self.totals.took += trimmed.took;
        self.totals.last = Some(end);
        self.tell(end, &Event::Trimmed(trimmed));
        let has_failed = |error: &RunError| !matches!(error, RunError::Trim(error) if error.is_no_failure());
        self.totals.failed += u64::from(outcome.as_ref().is_err_and(has_failed));
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
        let mut series = self.trimmer.trim(ranges, minimum);
        let earlier = self.unanswered.take();
        if let Err(error @ TrimError::NoAnswer { .. }) = series.outcome {
            let begun = || Unanswered { before, minimum, freed: ExtentSet::new() };
            self.unanswered = Some(earlier.unwrap_or_else(begun));
            return Err(error.into());
        }
        if let Some(earlier) = &earlier {
            earlier.freed.iter().for_each(|freed| series.trimmed.remove(freed));
        }
        // An earlier trim is answered: it may have left out longer pieces, and counts from its own beginning.
        let minimum = earlier.as_ref().map_or(minimum, |earlier| earlier.minimum.max(minimum));
        let before = earlier.as_ref().map_or(before, |earlier| earlier.before);
        trimmed.took = series.took;
        trimmed.partial = self.partial(&series.trimmed, &trimmed.refused);
        for extent in series.trimmed.iter() {
            // An earlier trim left out what is shorter, also of what is requested now.
            let is_left = |part: &Extent| earlier.is_some() && part.len() < minimum;
            let left: Vec<Extent> = trimmed.refused.inside(extent).filter(is_left).collect();
            trimmed.refused.remove(extent);
            left.into_iter().for_each(|part| trimmed.refused.insert(part));
            for discarded in self.discarded(extent, minimum).iter() {
                self.tell(now, &Event::Discarded(discarded));
            }
        }
        // The devices also count failed discards, so a failed trim adds nothing.
        series.outcome?;
        let after = self.trimmer.counters()?;
        let discards = after.own.discards.saturating_sub(before.own.discards);
        let bytes = after.own.discard_bytes.saturating_sub(before.own.discard_bytes);
        // Of an earlier trim it is only known that it took too long.
        trimmed.sent = earlier.is_none().then_some(Sent { discards, bytes });
        self.totals.discards += discards;
        self.totals.bytes += bytes;
        if series.held > Bytes::ZERO {
            let earlier = self.held.map_or(Bytes::ZERO, |held| held.bytes);
            self.held = Some(Held { bytes: earlier + series.held, due: now + COUNTED_AFTER, before: after });
        }
        Ok(())
    }

    /// Returns the parts of the extents that were requested or pending within the ranges `trimmed` that cover no whole unit of
    /// the storage, unless all of their unit is free.
    fn partial(&mut self, trimmed: &ExtentSet, requested: &ExtentSet) -> ExtentSet {
        let units = self.policy.units();
        let mut partial = ExtentSet::new();
        if units.size() == Bytes::ZERO {
            return partial;
        }
        let mut around = ExtentSet::new();
        for range in trimmed.iter() {
            let mut known: ExtentSet = requested.inside(range).collect();
            self.pending().sharing(range).for_each(|extent| known.insert(extent.intersect(range)));
            for extent in known.iter() {
                let whole = units.inside(extent);
                let ends = if whole.is_empty() {
                    [extent, Extent::new(extent.end, extent.end)]
                } else {
                    [Extent::new(extent.start, whole.start), Extent::new(whole.end, extent.end)]
                };
                for end in ends.into_iter().filter(|end| !end.is_empty()) {
                    around.insert(units.outside(end));
                    partial.insert(end);
                }
            }
        }
        let free =
            if partial.is_empty() { None } else { self.trimmer.free_within(&around, Freshness::Recent) };
        for free in free.iter().flat_map(ExtentSet::iter) {
            partial.remove(units.inside(free));
        }
        partial
    }

    /// Returns what a trim of `range` discarded, which may be more than the policy requested: not the pending
    /// extents that are shorter than `minimum` there.
    fn discarded(&self, range: Extent, minimum: Bytes) -> ExtentSet {
        let mut discarded = ExtentSet::from_iter([range]);
        let parts = self.pending().sharing(range).map(|extent| extent.intersect(range));
        let shorter = parts.filter(|part| part.len() < minimum);
        shorter.for_each(|extent| discarded.remove(extent));
        discarded
    }

    /// Reports the load since the last call to the policy. Returns the counters of the devices.
    fn report_load(&mut self, now: Duration) -> Result<Counters, BlockError> {
        let counters = self.trimmer.counters()?;
        self.count_held(now, &counters);
        let free = self.trimmer.free();
        self.tell(now, &Event::Space { free });
        if let Some((since, before)) = self.last_load.replace((now, counters)) {
            let load = load_between(now - since, &before, &counters);
            self.written += load.written;
            self.tell(now, &Event::Load(load));
        }
        Ok(counters)
    }

    /// Adds the discards of earlier trims that the device has counted meanwhile.
    fn count_held(&mut self, now: Duration, counters: &Counters) {
        let Some(held) = &mut self.held else { return };
        let late = counters.own.discard_bytes.saturating_sub(held.before.own.discard_bytes).min(held.bytes);
        if late > Bytes::ZERO {
            self.totals.bytes += late;
            self.totals.discards += counters.own.discards.saturating_sub(held.before.own.discards);
            (held.bytes, held.before) = (held.bytes - late, *counters);
        }
        self.held.take_if(|held| held.bytes == Bytes::ZERO || now >= held.due);
    }

    /// Drops the pending extents that files use again. The kernel's events of allocations would tell at once, but
    /// cost every allocation; so the map of free space is read after as much was written as may matter, and seldom
    /// where that takes long.
    fn drop_reused(&mut self, now: Duration) {
        let pending = self.pending().len();
        let matters = Bytes(pending.0 / REUSED);
        // More can't be pending than is free.
        let is_stale = self.written >= LEAST_WRITTEN && pending > self.trimmer.free();
        let is_due = is_stale || self.written >= matters.max(LEAST_WRITTEN * 16);
        if pending == Bytes::ZERO || !is_due || now < self.next_map {
            return;
        }
        let begun = Instant::now();
        self.read_map(now, matters);
        self.next_map = now + begun.elapsed() * MAP_PAUSE;
    }

    /// Drops the pending extents that the map of free space does not show. Some may be too recent to be judged: if these
    /// are more than `matters`, the map is due again.
    fn read_map(&mut self, now: Duration, matters: Bytes) {
        let all: ExtentSet = self.pending().iter().map(|(extent, _)| extent).collect();
        let Some(free) = self.trimmer.free_within(&all, Freshness::Now) else {
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
    // The busy time also counts discards, whoever sends them.
    let is_known = before.discards == after.discards;
    let busy = is_known.then(|| after.busy_time.saturating_sub(before.busy_time));
    let read = after.read_bytes.saturating_sub(before.read_bytes);
    Load { span, in_flight: after.in_flight, completed, latency, written, read, busy }
}

#[cfg(test)]
mod tests;
