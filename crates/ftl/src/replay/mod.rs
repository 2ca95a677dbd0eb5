//! Replays a trace on a drive, under a policy.
//!
//! **Time.** A request comes as long after the one that was done last before it, as it did in the
//! trace: the host's think times are kept, and a slower drive slows it down. A request whose latency
//! the trace doesn't tell comes at its own time, or, where the drive is behind, once fewer than the
//! profile's queue depth are in flight. What file systems say happens between the requests it came
//! between. Think times can be scaled. A policy goes by the trace's time, which for a user is the wall's:
//! its timers count the trace's hours, not the model's; or by the model's time, as a service does that runs beside
//! the drive.
//!
//! **Discards.** Either the trace's own are sent, or a policy makes them of what was freed, allocated and
//! written, and the trace's own are left out. Both go beside the host's requests, which don't follow from
//! them: a request waits for a discard only where the drive makes it wait. Trims of a policy go one discard
//! after the other (several extents in each where the drive takes them), the trace's own as in the trace; these take effect where they stand in it, however late
//! a slow drive spends their time. What was free before the recording is pending from
//! the start. For the bound of all policies the drive forgets what is free at once, and no discard is sent.
//!
//! **The rest.** A "write zeroes" is a write, as on drives of ours; a secure erase is a discard.
//! Requests that had failed are left out. Passes follow one another on the same drive: nothing is
//! undone in between.

mod addresses;
mod arrivals;
mod meter;
mod pending;
mod recorded;
mod series;
mod source;
mod survey;
mod trims;

use std::time::Duration;

use trimtab_core::document::sim::{Clocks, PolicyClock, ReplayOutcome, ReservePoint};
use trimtab_core::policy::{Event, Sent, Trimmed};
use trimtab_core::profile::Profile;
use trimtab_core::stats::{DriveCounters, EraseSpread};
use trimtab_core::trace::{DeviceIndex, EventKind, TraceEvent, TraceSource};
use trimtab_core::{Bytes, Extent, ExtentSet, Nanos};

use crate::command::{Command, Op};
use crate::device::Device;
use crate::geometry::GeometryError;
pub use addresses::Scale;
pub use source::Discards;
pub use survey::{DeviceSurvey, TraceSurvey};

use addresses::Addresses;
use arrivals::Arrivals;
use meter::Meter;
use recorded::Discarded;
use series::{Phases, Series};
use source::Source;
use trims::Trims;

/// Events whose cache misses are made to overlap.
const AHEAD: usize = 64;

/// The options of a replay.
#[derive(Debug, Clone)]
pub struct ReplayOptions<'a> {
    /// How the drive behaves.
    pub profile: &'a Profile,
    /// Its size.
    pub size: Bytes,
    /// Whether all of it was written before.
    pub preconditioned: bool,
    /// The device of the trace.
    pub device: DeviceIndex,
    /// How its addresses are scaled; none to keep them.
    pub scale: Option<Scale>,
    /// How long a pass takes in the trace's time: [`TraceSurvey::span`].
    pub span: Nanos,
    /// How the host and the policy go by time.
    pub clocks: Clocks,
}

/// Why a replay ended early.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError<E: std::error::Error + 'static> {
    /// The trace can't be read.
    #[error(transparent)]
    Source(E),
    /// An extent reaches past the drive's end.
    #[error("row {row} of the trace names the bytes {extent}, but the drive ends at {size}")]
    PastEnd {
        /// The row, from 1.
        row: u64,
        /// The extent on the drive.
        extent: Extent,
        /// The drive's size.
        size: Bytes,
    },
    /// Whoever watched ended it.
    #[error("stopped")]
    Stopped,
}

/// Trims under way.
#[derive(Clone, Copy)]
struct Trimming {
    /// When they were asked for, in the trace's time and in the model's.
    since: (Nanos, Nanos),
    /// How long they have held the drive.
    took: Nanos,
    /// The discards that were sent.
    sent: Sent,
}

/// A drive, and what of a trace was replayed on it.
pub struct Replay {
    device: Device,
    traced_device: DeviceIndex,
    addresses: Addresses,
    span: Nanos,
    arrivals: Arrivals,
    source: Source,
    clock: PolicyClock,
    /// When the policy wants to be woken, on its clock.
    wake: Option<Nanos>,
    meter: Meter,
    trims: Trims,
    /// Trims that the policy has not been told the end of.
    trimming: Option<Trimming>,
    series: Series,
    phases: Phases,
    /// Erases of each block before the replay.
    erased_before: Vec<u32>,
    passes: u32,
    waf_passes: Vec<Option<f64>>,
    /// The drive's totals when the pass began.
    before_pass: DriveCounters,
    events: u64,
    failed: u64,
}

impl Replay {
    /// A drive before the first event.
    ///
    /// # Errors
    /// If a drive of this size can't work with the profile's geometry.
    pub fn new(options: &ReplayOptions, discards: Discards) -> Result<Self, GeometryError> {
        Self::seeded(options, discards, 0)
    }

    /// As [`new`](Self::new), with the [seed](Device::seeded) of the drive's draws.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn seeded(options: &ReplayOptions, discards: Discards, seed: u64) -> Result<Self, GeometryError> {
        let profile = options.profile;
        let mut device = Device::seeded(profile, options.size, seed)?;
        if options.preconditioned {
            device.precondition();
        }
        let source = Source::new(discards, profile);
        Ok(Self {
            traced_device: options.device,
            addresses: Addresses::new(options.scale, profile.geometry.mapping_page.value),
            span: options.span,
            arrivals: Arrivals::new(profile.timing.queue_depth.value, options.clocks.think_scale),
            clock: options.clocks.policy,
            wake: source.next_wake(),
            trims: Trims::new(profile, options.size, source.takes_refusals()),
            source,
            meter: Meter::default(),
            trimming: None,
            series: Series::new(options.span),
            phases: Phases::new(options.span, device.ftl().totals().erases),
            erased_before: device.ftl().erases().to_vec(),
            passes: 0,
            waf_passes: Vec::new(),
            before_pass: device.counters(),
            device,
            events: 0,
            failed: 0,
        })
    }

    /// Replays the whole of `source` once. `watch` is told how many events each batch had, and ends
    /// the replay by returning false.
    ///
    /// # Errors
    /// The error of the source, an extent past the drive's end, or [`ReplayError::Stopped`].
    pub fn pass<S>(
        &mut self,
        source: &mut S,
        watch: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), ReplayError<S::Error>>
    where
        S: TraceSource<Error: std::error::Error + 'static> + ?Sized,
    {
        let began = self.span * self.passes.into();
        let (mut batch, mut extents, mut row) = (Vec::new(), Vec::with_capacity(AHEAD), 0);
        loop {
            source.next_batch(&mut batch).map_err(ReplayError::Source)?;
            if batch.is_empty() {
                break;
            }
            for run in batch.chunks(AHEAD) {
                let place = |event: &TraceEvent| self.addresses.place(event.kind, event.extent);
                extents.clear();
                extents.extend(run.iter().map(place));
                self.touch(&extents);
                for (event, &extent) in run.iter().zip(&extents) {
                    row += 1;
                    if event.device == self.traced_device {
                        // A request that failed may name anything, and is left out.
                        if event.error == 0 && extent.end > self.device.size() {
                            return Err(ReplayError::PastEnd { row, extent, size: self.device.size() });
                        }
                        self.event(began, event, extent);
                    }
                }
            }
            if !watch(batch.len() as u64) {
                return Err(ReplayError::Stopped);
            }
        }
        self.end_pass(began + self.span);
        Ok(())
    }

    /// Touches what events of these extents will need, so that cache misses overlap. Of what is far
    /// apart, that is most of the time that an event takes.
    fn touch(&self, extents: &[Extent]) {
        let starts = extents.iter().map(|extent| extent.start);
        self.trims.touch(starts.clone());
        self.device.touch(starts);
    }

    /// Write amplification of each pass so far; none where it wrote nothing.
    pub fn waf_passes(&self) -> &[Option<f64>] {
        &self.waf_passes
    }

    /// Returns its results on the drive.
    pub fn outcome(&self) -> ReplayOutcome {
        let ftl = self.device.ftl();
        let erases: Vec<_> =
            ftl.erases().iter().zip(&self.erased_before).map(|(now, before)| now - before).collect();
        let cached = &erases[ftl.config().blocks as usize..];
        ReplayOutcome {
            passes: self.passes,
            trace_ns: self.span * self.passes.into(),
            events: self.events,
            failed: self.failed,
            counters: self.device.counters(),
            waf_passes: self.waf_passes.clone(),
            erase_blocks: erases.len() as u32,
            cache_blocks: cached.len() as u32,
            cache_erases: cached.iter().map(|erases| u64::from(*erases)).sum(),
            bad_blocks: ftl.bad_blocks(),
            erase_spread: EraseSpread::of(&erases),
            erases_by_phase: self.phases.counts().to_vec(),
            reads: self.device.latency(Op::Read),
            writes: self.device.latency(Op::Write),
            discards: self.device.latency(Op::Discard),
            flushes: self.device.latency(Op::Flush),
            waited_ns: self.arrivals.waited(),
            pending: if self.source.knows_all() { Bytes::ZERO } else { self.trims.pending() },
            reserve: self.series.points().to_vec(),
        }
    }

    /// One event, in a pass that began at `began`, of an extent of the drive.
    fn event(&mut self, began: Nanos, event: &TraceEvent, extent: Extent) {
        self.events += 1;
        if event.error != 0 {
            self.failed += 1;
            return;
        }
        let traced = began + event.at;
        self.wake_until(traced);
        let now = self.arrivals.place(traced);
        self.discard_until(traced, now);
        self.look(event.at, traced);
        match event.kind {
            EventKind::Read => self.request(Op::Read, event, traced, now, extent),
            EventKind::Flush => self.request(Op::Flush, event, traced, now, extent),
            EventKind::Write | EventKind::WriteZeroes => {
                self.take(traced, now, extent);
                self.request(Op::Write, event, traced, now, extent);
            }
            EventKind::Discard | EventKind::SecureErase if extent.is_empty() => {}
            EventKind::Discard | EventKind::SecureErase => match &mut self.source {
                Source::Recorded(recorded) => {
                    let unmapped = self.device.let_discard_take_effect(now, extent);
                    recorded.add(traced, event.latency, now, Discarded { extent, unmapped });
                    self.trims.taken(extent);
                    self.discard_until(traced, now);
                }
                Source::Policy(_) => {}
                Source::Ideal { .. } => self.free(traced, now, extent, Event::Freed),
            },
            EventKind::Allocate => self.take(traced, now, extent),
            EventKind::Unused if self.passes == 0 => self.free(traced, now, extent, Event::Unused),
            EventKind::Unused => {}
            EventKind::Free => self.free(traced, now, extent, Event::Freed),
        }
    }

    /// The bytes are free from now on.
    fn free(&mut self, traced: Nanos, now: Nanos, extent: Extent, event: fn(Extent) -> Event) {
        self.trims.freed(extent);
        if let Source::Ideal { page } = self.source {
            self.device.forget(self.trims.units_of(extent, page));
        }
        self.tell(traced, now, &event(extent));
    }

    /// The bytes are in use from now on.
    fn take(&mut self, traced: Nanos, now: Nanos, extent: Extent) {
        self.trims.taken(extent);
        self.tell(traced, now, &Event::Written(extent));
    }

    fn request(&mut self, op: Op, event: &TraceEvent, traced: Nanos, now: Nanos, extent: Extent) {
        let Self { device, meter, .. } = self;
        let submit = |arrival| {
            let done = device.submit(arrival, Command { op, extent });
            meter.sent(arrival, done, op, extent.len());
            done
        };
        self.arrivals.send(traced, now, event.latency, submit);
    }

    /// Wakes the policy whenever it wants to be, up to `traced`, and tells it in between when its trims
    /// are over. Nothing of that is placed after what happens at `traced`, which it must not put off.
    fn wake_until(&mut self, traced: Nanos) {
        loop {
            let end = self.arrivals.foresee(traced);
            let by = match self.clock {
                PolicyClock::Trace => traced,
                PolicyClock::Drive => end,
            };
            let wake = self.wake.filter(|wake| *wake <= by);
            if wake.is_none() && self.trimming.is_none() {
                return;
            }
            let (stop, now) = match self.clock {
                PolicyClock::Trace => {
                    let stop = wake.unwrap_or(traced);
                    (stop, self.arrivals.foresee(stop).min(end))
                }
                PolicyClock::Drive => (traced, wake.unwrap_or(end)),
            };
            if self.trimming.is_some() && self.trim_until(stop, now) {
                continue;
            }
            if wake.is_none() {
                return;
            }
            self.trim_until(stop, now);
            self.tell_load(stop, now);
            self.tell(stop, now, &Event::Wake);
        }
    }

    /// The time of a moment on the policy's clock.
    fn policy_time(&self, traced: Nanos, now: Nanos) -> Nanos {
        match self.clock {
            PolicyClock::Trace => traced,
            PolicyClock::Drive => now,
        }
    }

    /// Tells the policy what the host gets from the drive, and what is free.
    fn tell_load(&mut self, traced: Nanos, now: Nanos) {
        let used = self.device.mapped();
        let free = self.device.size().saturating_sub(used) + self.trims.pending();
        self.tell(traced, now, &Event::Space { free });
        let (in_flight, busy) = (self.arrivals.is_busy(now).into(), self.arrivals.waited_by(now));
        let load = self.meter.take(now, self.policy_time(traced, now), in_flight, busy);
        self.tell(traced, now, &Event::Load(load));
    }

    /// Tells the policy of an event, and puts what it answers under way.
    fn tell(&mut self, traced: Nanos, now: Nanos, event: &Event) {
        let at = self.policy_time(traced, now);
        let Source::Policy(policy) = &mut self.source else { return };
        for request in policy.on_event(Duration::from_nanos(at.0), event) {
            self.trims.request(now, &request);
            self.trimming.get_or_insert(Trimming {
                since: (traced, now),
                took: Nanos::ZERO,
                sent: Sent { discards: 0, bytes: Bytes::ZERO },
            });
        }
        self.wake = self.source.next_wake();
    }

    /// Sends the discards that are due by `until`, whatever they come from.
    fn discard_until(&mut self, traced: Nanos, until: Nanos) {
        if matches!(self.source, Source::Policy(_)) {
            self.trim_until(traced, until);
        }
        let Self { source: Source::Recorded(recorded), device, arrivals, .. } = self else { return };
        while let Some(next) = recorded.next(until) {
            let done = device.spend_discard(next.arrival, next.discarded.extent, next.discarded.unmapped);
            arrivals.not_before(next.arrival);
            recorded.sent(&next, done);
        }
    }

    /// Sends the discards of trims under way that are due by `until`, and none after. Where that was the
    /// last of them, tells the policy when it ended, and says so.
    fn trim_until(&mut self, traced: Nanos, until: Nanos) -> bool {
        while let Some(arrival) = self.trims.next(until) {
            let done = self.device.discard_extents(arrival, self.trims.sent());
            self.trims.done(done);
            self.arrivals.not_before(arrival);
            if let Some(trimming) = &mut self.trimming {
                trimming.took += done - arrival;
                trimming.sent.discards += 1;
                trimming.sent.bytes += self.trims.sent().iter().map(|extent| extent.len()).sum();
            }
            for place in 0..self.trims.sent().len() {
                self.tell(traced, arrival, &Event::Discarded(self.trims.sent()[place]));
            }
        }
        let (Some(trimming), Some(ended)) = (self.trimming, self.trims.ended(until)) else { return false };
        self.trimming = None;
        let Trimming { since: (began_traced, began), took, sent } = trimming;
        let at = (began_traced + ended.saturating_sub(began)).min(traced);
        let took = Duration::from_nanos(took.0);
        let refused = self.trims.take_refused();
        let trimmed = Trimmed { took, refused, partial: ExtentSet::new(), sent: Some(sent) };
        self.tell(at, ended, &Event::Trimmed(trimmed));
        true
    }

    /// Looks at the drive where that is due, `at` into the pass.
    fn look(&mut self, at: Nanos, traced: Nanos) {
        if self.series.is_due(traced) {
            self.sample(traced);
        }
        if self.phases.is_over(at) {
            self.phases.advance(at, self.device.ftl().totals().erases);
        }
    }

    fn sample(&mut self, traced: Nanos) {
        let ftl = self.device.ftl();
        let pages = f64::from(ftl.config().blocks) * f64::from(ftl.config().pages_per_block);
        self.series.add(ReservePoint {
            trace_ns: traced,
            free_blocks: ftl.free_blocks(),
            free_share: 1.0 - ftl.mapped().0 as f64 / pages,
        });
    }

    /// A pass is over at `traced`: what is still under way is done before the next.
    fn end_pass(&mut self, traced: Nanos) {
        self.wake_until(traced);
        let now = self.arrivals.place(traced);
        self.discard_until(traced, now);
        self.tell_load(traced, now);
        self.tell(traced, now, &Event::End);
        self.discard_until(traced, Nanos(u64::MAX));
        self.sample(traced);
        self.phases.restart(self.device.ftl().totals().erases);
        let counters = self.device.counters();
        self.waf_passes.push(counters.since(&self.before_pass).waf());
        self.before_pass = counters;
        self.passes += 1;
    }
}
