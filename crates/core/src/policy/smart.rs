//! Trim what was freed, when it is worth it.

mod explain;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use explain::{Explanation, Why};

use crate::discard_units::DiscardUnits;
use crate::extent::{Extent, ExtentSet};
use crate::policy::loss::{LossFilter, Measurement};
use crate::policy::pending::PendingExtents;
use crate::policy::worth::{Thresholds, Worth};
use crate::policy::{Event, Goals, Load, Pacer, Policy, Sent, TrimRequest, TrimScope, Trimmed};
use crate::profile::Profile;
use crate::units::Bytes;

/// The shortest and longest time between two checks whether the drive has time, while something is pending.
/// The time doubles after each check without a trim.
const SHORTEST_LOOK: Duration = Duration::from_millis(20);
const LONGEST_LOOK: Duration = Duration::from_secs(1);
/// The first check comes after this many of the shortest commands, but no later than this: a drive counts as idle if
/// nobody used it between two checks, and a request that comes after all then waits for one of these commands.
const COMMANDS_TO_LOOK: u32 = 10;
const LATEST_FIRST_LOOK: Duration = Duration::from_millis(100);
/// The longest time for which a trim that lost time has paid for holds a drive that others use, the shortest
/// time between two, and the most lost time that counts.
const LONGEST_PAID: Duration = Duration::from_millis(50);
const SHORTEST_PAID: Duration = Duration::from_millis(10);
const MOST_LOST: Duration = Duration::from_secs(10);
/// The drive has to be idle for this many of the shortest commands before it gets discards that gain little. If
/// idle times are of all lengths alike, a request then meets such a command with a chance of 1 %.
const LEAST_IDLE: u32 = 100;
/// Trims are urgent only if they can give back this part of what the drive can have in spare.
const MATTERS: u64 = 16;
/// Trims are urgent only if at least this share of the computed loss is real: a drive may copy little although it has
/// little spare.
const LEAST_REAL: f64 = 0.25;
/// The share of the computed gain that counts even if no loss is real: a drive may copy later.
const LEAST_GAIN: f64 = 0.1;
/// The busy time shows how fast writes are only if this many times as much is written as read.
const MOSTLY_WRITES: u64 = 8;
/// The most extents that are kept apart: some 5 MiB of them.
const MOST_EXTENTS: usize = 1 << 16;
/// Pieces of free space as long as this are never left out of a trim. ext4 counts those of each of its groups apart,
/// which are 8 MiB or more, and refuses to leave out longer ones.
const LONGEST_LEFT_OUT: Bytes = Bytes(4 << 20);
/// An unused drive is held for this part of the time for which nobody has used it, but no longer than this, before its
/// load is read again: whoever comes back waits for a fifth of the time between two requests at most.
const UNUSED_PART: u32 = 5;
const IDLE_SLICE: Duration = Duration::from_millis(100);

/// The gain of discards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gain {
    /// Copies that a flash drive needn't make.
    Copies,
    /// Space in a pool that hands it out in chunks of this size (dm-thin, VDO, virtual and network
    /// disks): a full pool stops everyone, so extents that hold whole chunks are always worth it.
    Space {
        /// The size of a chunk.
        chunk: Bytes,
    },
}

/// The policy `smart`: keeps freed extents pending and trims
///
/// - extents whose discard saves the drive more time than it costs ([`Worth`]), the longest first. On an idle
///   drive, at once. Beside a foreground, if one command fits the goals, and at their pace. Once the host has
///   written as much more than was trimmed as the drive has spare, trims are urgent: they may exceed their
///   share of the time, and commands may be long, as far as the latency goal allows. Whatever the goals for
///   share and latency, a trim may begin once writes have lost as much time as a command takes, because these
///   extents are pending ([`Worth::delay_per_byte`], as far as the time for which the drive is busy shows that it is real): trims
///   then cost the foreground no more than it has lost, unless a part of their cost was taken for waits;
/// - the other extents whose discard saves anything, once the drive has been idle for as long as their
///   discards take, and for 100 times as long as a command takes. If the length of an idle time is unknown,
///   such a wait costs at most twice as much as the best choice with that knowledge (A. Karlin, M. Manasse,
///   L. Rudolph and D. Sleator, "Competitive snoopy caching", Algorithmica 3, 1988). Meanwhile neighbours may
///   be freed, so that one command replaces many;
/// - extents that have reached the highest age that the goals allow.
///
/// Where discards give back space, the parts of an extent at its ends that cover no whole unit of the storage stay pending
/// until their neighbours are free, or they reach the highest age.
///
/// The service also runs its policy `batched` by this engine: it makes all free space pending at each
/// interval, with a highest age of zero.
pub struct SmartPolicy {
    pending: PendingExtents,
    worth: Worth,
    gain: Gain,
    units: DiscardUnits,
    pacer: Pacer,
    free: Bytes,
    /// The bytes that the host wrote beyond those that trims discarded.
    written: Bytes,
    /// The time by which writes took longer because worthwhile extents were pending, less the time of the trims
    /// which it paid for.
    lost: Duration,
    /// How fast that grew in the last span, in seconds a second.
    loss_rate: f64,
    /// The share of the computed loss that is real.
    loss: LossFilter,
    /// The busy time of the last span, which counts once it is known that no discard was under way in it.
    unconfirmed: Option<Measurement>,
    /// Since when something is pending: while nothing is, it does not look at the load.
    pending_since: Duration,
    /// Since when the drive is idle.
    idle_since: Option<Duration>,
    under_way: Option<UnderWay>,
    wake: Option<Duration>,
    look: Duration,
}

/// The trim that is under way.
#[derive(Debug, Clone, Copy)]
struct UnderWay {
    bytes: Bytes,
    extents: u64,
    /// Since when the oldest of it is free.
    since: Option<Duration>,
}

impl SmartPolicy {
    /// A policy without pending extents, on a drive whose discards are worth `worth`.
    pub fn new(goals: Goals, worth: Worth, gain: Gain) -> Self {
        Self {
            pending: PendingExtents::new(MOST_EXTENTS),
            worth,
            gain,
            units: DiscardUnits::default(),
            pacer: Pacer::new(goals),
            free: Bytes::ZERO,
            written: Bytes::ZERO,
            lost: Duration::ZERO,
            loss_rate: 0.0,
            loss: LossFilter::new(),
            unconfirmed: None,
            pending_since: Duration::ZERO,
            idle_since: None,
            under_way: None,
            wake: None,
            look: LATEST_FIRST_LOOK,
        }
    }

    /// The policy of a flash drive of `size` bytes that behaves like `profile`, with the default goals.
    pub fn of_drive(profile: &Profile, size: Bytes) -> Self {
        Self::new(Goals::default(), Worth::new(profile, size), Gain::Copies)
    }

    /// Returns this policy, of storage that gives back space in these units only.
    pub fn with_units(self, units: DiscardUnits) -> Self {
        Self { units, ..self }
    }

    /// Returns the units in which the storage gives back space; any byte is one where discards gain something else.
    pub fn units(&self) -> DiscardUnits {
        match self.gain {
            Gain::Copies => DiscardUnits::default(),
            Gain::Space { .. } => self.units,
        }
    }

    /// Returns whether no pending extent has a whole unit, so that only frees or the highest age lead to a trim.
    pub fn is_settled(&self) -> bool {
        self.from(Some(self.units().size())).next().is_none()
    }

    /// Returns the pending extents.
    pub fn pending(&self) -> &PendingExtents {
        &self.pending
    }

    /// Returns the costs and the gain of discards as far as they are known.
    pub fn worth(&self) -> &Worth {
        &self.worth
    }

    /// Returns the pacer, which holds the goals.
    pub fn pacer(&self) -> &Pacer {
        &self.pacer
    }

    /// Returns the trims to make now.
    fn decide(&mut self, at: Duration) -> Vec<TrimRequest> {
        if self.under_way.is_some() {
            return Vec::new();
        }
        let goals = *self.pacer.goals();
        if self.pacer.needs_baseline() {
            return Vec::new();
        }
        let paid = self.is_paid();
        let due = self.pacer.next_start().is_some_and(|start| start <= at);
        let chosen = if paid {
            self.fill(self.lost.min(LONGEST_PAID), self.from(self.least(|thresholds| thresholds.busy)))
        } else if due {
            let slice = (self.pacer.unused_for() / UNUSED_PART).min(IDLE_SLICE).max(goals.max_latency_added);
            let overdue = at.checked_sub(goals.max_age).map(|before| self.pending.older(before));
            let candidates = overdue.unwrap_or_default().into_iter();
            self.fill(slice, candidates.chain(self.worthwhile(slice)).chain(self.rest(at)))
        } else {
            ExtentSet::new()
        };
        if chosen.is_empty() {
            return Vec::new();
        }
        let since = chosen.iter().filter_map(|extent| self.pending.since(extent.start)).min();
        let min_length = self.shortest_to_discard(at, &chosen);
        chosen.iter().for_each(|extent| self.pending.remove(extent));
        self.under_way = Some(UnderWay { bytes: chosen.len(), extents: chosen.count() as u64, since });
        vec![TrimRequest { scope: TrimScope::Within(chosen), min_length }]
    }

    /// Returns whether writes have lost as much time as the next trim takes beside them.
    fn is_paid(&self) -> bool {
        self.lost >= self.price() && !self.pacer.is_idle() && !self.pacer.goals().idle_only
    }

    /// The length below which free space within `chosen` is left alone. Extents that were joined, or that files
    /// use in part, may hold thousands of short pieces, each a discard of its own: only those that
    /// pay are discarded, unless an extent is overdue.
    fn shortest_to_discard(&self, at: Duration, chosen: &ExtentSet) -> Bytes {
        let before = at.checked_sub(self.pacer.goals().max_age);
        let is_overdue = |extent: Extent| {
            let since = self.pending.since(extent.start);
            since.is_some_and(|since| before.is_some_and(|before| since <= before))
        };
        if chosen.iter().any(is_overdue) {
            return Bytes::ZERO;
        }
        let is_idle = self.pacer.is_idle();
        let pays = self.least(|thresholds| thresholds.busy.filter(|_| !is_idle).or(Some(thresholds.idle)));
        let shortest = chosen.iter().map(|extent| extent.len()).min();
        pays.min(shortest).unwrap_or(Bytes::ZERO).min(LONGEST_LEFT_OUT)
    }

    /// Returns the extents that are worth their time now, if a slice of this length may be used for them.
    fn worthwhile(&self, slice: Duration) -> impl Iterator<Item = Extent> {
        let fits = self.pacer.is_idle() || self.is_urgent() || self.worth.shortest() <= slice;
        self.from(self.least(|thresholds| thresholds.busy).filter(|_| fits))
    }

    /// The lost time from which on a trim is paid for: the time of the longest extent, but no more than twice the
    /// time of the shortest command.
    fn price(&self) -> Duration {
        let longest = self.pending.longest(Bytes(1)).next().map_or(Bytes::ZERO, |extent| extent.len());
        self.worth.time(longest).min(self.worth.shortest() * 2)
    }

    /// Returns true if the host has written as much more than was trimmed as the drive has spare, writes were seen to
    /// lose time, and trims can give back a part of the spare which matters: a host that overwrites its files does
    /// not make them urgent.
    fn is_urgent(&self) -> bool {
        self.loss.real_share() >= LEAST_REAL
            && self.written >= self.worth.spare(self.free, self.pending.len())
            && self.worthwhile_bytes().0 >= self.worth.spare(self.free, Bytes::ZERO).0 / MATTERS
    }

    /// Returns how much is pending in extents whose discard is worth its time on a busy drive.
    fn worthwhile_bytes(&self) -> Bytes {
        let least = self.least(|thresholds| thresholds.busy);
        least.map_or(Bytes::ZERO, |least| self.pending.bytes_from(least))
    }

    /// Returns the extents that are worth a discard to a drive that has been idle for long enough.
    fn rest(&self, at: Duration) -> impl Iterator<Item = Extent> {
        let least = self.idle_since.and_then(|since| {
            let least = self.least(|thresholds| Some(thresholds.idle))?;
            let idle = at.saturating_sub(since);
            idle.checked_sub(self.worth.shortest() * LEAST_IDLE)?;
            let mut extents = self.from(Some(least));
            extents.try_fold(idle, |left, extent| left.checked_sub(self.worth.time(extent.len())))?;
            Some(least)
        });
        self.from(least)
    }

    /// Returns the pending extents of `least` bytes or more that have a whole unit, the longest first; nothing without a least
    /// length.
    fn from(&self, least: Option<Bytes>) -> impl Iterator<Item = Extent> {
        let units = self.units();
        let extents = least.into_iter().flat_map(|least| self.pending.longest(least));
        extents.filter(move |extent| !units.inside(*extent).is_empty())
    }

    /// The shortest extent that is worth it, or a chunk of the pool below.
    fn least(&self, of_flash: impl Fn(Thresholds) -> Option<Bytes>) -> Option<Bytes> {
        match self.gain {
            Gain::Copies => of_flash(self.worth.thresholds(self.free, self.pending.len())),
            Gain::Space { chunk } => Some(chunk),
        }
    }

    /// Returns the `candidates` that fit into `slice`, cut to the longest that one command can discard within
    /// it. Returns at least one; if none fits, it is cut to twice the time of the shortest command: then
    /// neither that time nor the time of all commands together is more than twice the lowest possible.
    fn fill(&self, slice: Duration, candidates: impl Iterator<Item = Extent>) -> ExtentSet {
        let longest = self.worth.longest_within(slice.max(self.worth.shortest() * 2));
        let (mut chosen, mut left) = (ExtentSet::new(), slice);
        for candidate in candidates {
            let part = self.cut(candidate, longest);
            let time = self.worth.time(part.len());
            if time > left && !chosen.is_empty() {
                break;
            }
            left = left.saturating_sub(time);
            chosen.insert(part);
        }
        chosen
    }

    /// Returns the first part of an extent, of at most `longest`, or of one unit if that is longer. It ends between two units if
    /// anything is left.
    fn cut(&self, candidate: Extent, longest: Bytes) -> Extent {
        let part = self.worth.cut(candidate, longest);
        let whole = self.units().inside(candidate);
        if part == candidate || whole.is_empty() {
            return part;
        }
        let end = self.units().start_of(part.end).max(whole.start + self.units().size().max(Bytes(1)));
        Extent::new(part.start, end.clamp(part.start, candidate.end))
    }

    /// Records the load of the foreground.
    fn observe(&mut self, at: Duration, load: &Load) {
        self.pacer.observe(load);
        let (mut span, mut written) = (load.span, load.written);
        let pending_for = at.saturating_sub(self.pending_since);
        if pending_for < span {
            // Writes while nothing was pending lost nothing.
            let part = pending_for.as_secs_f64() / span.as_secs_f64();
            (span, written) = (pending_for, Bytes((written.0 as f64 * part) as u64));
            self.unconfirmed = None;
        } else {
            self.measure_loss(load);
        }
        self.written += written;
        self.lose(span, written);
        self.pacer.set_urgent(self.is_urgent());
        let idle_since = self.idle_since.or(Some(at.saturating_sub(load.span)));
        self.idle_since = idle_since.filter(|_| self.pacer.is_idle());
    }

    /// Learns from the time for which the drive was busy which share of the computed loss is real, if nothing was
    /// discarded meanwhile. With a highest age of zero, all that is pending is trimmed at once, whatever it gains.
    fn measure_loss(&mut self, load: &Load) {
        if self.gain != Gain::Copies || self.pacer.goals().max_age.is_zero() {
            return;
        }
        let had_trims = self.pacer.last_span_had_trims();
        // A discard of others that ended in this span may have been under way in the last.
        if let Some(last) = self.unconfirmed.take()
            && (had_trims || load.busy.is_some())
        {
            self.loss.learn(&last);
            self.worth.set_flash_factor(self.loss.flash_factor());
            self.worth.set_real_share(self.loss.real_share().max(LEAST_GAIN));
        }
        let Some(busy) = load.busy.filter(|_| !had_trims && self.under_way.is_none()) else { return };
        let parts =
            self.worth.write_parts_by_profile(load.completed, load.written, self.free, self.pending.len());
        let mostly_writes = load.written.0 >= load.read.0.saturating_mul(MOSTLY_WRITES);
        self.unconfirmed = Some(Measurement { parts, busy: busy.as_secs_f64(), mostly_writes });
    }

    /// Records the time that this many written bytes took longer in a span, because of extents whose discard is worth it.
    fn lose(&mut self, span: Duration, written: Bytes) {
        let kept = if self.gain == Gain::Copies { self.worthwhile_bytes() } else { Bytes::ZERO };
        if kept == Bytes::ZERO {
            (self.lost, self.loss_rate) = (Duration::ZERO, 0.0);
            return;
        }
        let delay = self.worth.delay_per_byte(self.free, self.pending.len(), kept);
        let lost = written.0 as f64 * delay * self.loss.real_share();
        self.loss_rate = lost / span.as_secs_f64().max(1e-3);
        let lost = Duration::try_from_secs_f64(lost).unwrap_or(MOST_LOST);
        self.lost = self.lost.saturating_add(lost).min(MOST_LOST);
    }

    /// Learns from the time that discards of this many extents took, and returns how long the drive itself worked on
    /// them. On a busy drive each may first wait for the commands of others, once: time beyond what was expected is
    /// taken for such waits, as far as these can explain it.
    fn learn_costs(&mut self, extents: u64, sent: Sent, took: Duration) -> Duration {
        let expected = self.worth.time_of(sent).min(took);
        let waiting = u32::try_from(extents.min(sent.discards)).unwrap_or(u32::MAX);
        let without = |wait: Duration| took.saturating_sub(wait.saturating_mul(waiting)).max(expected);
        let (at_least, in_the_mean) =
            (without(self.pacer.wait_for_others()), without(self.pacer.mean_wait_for_others()));
        // A time that waits explain shows nothing of the costs.
        let waits_explain = at_least == expected && took > expected;
        if !waits_explain {
            self.worth.learn(sent, at_least);
        }
        in_the_mean
    }

    /// Records that a trim has ended.
    fn trimmed(&mut self, at: Duration, trimmed: &Trimmed) {
        let under_way = self.under_way.take();
        let mut took = trimmed.took;
        if let Some(UnderWay { bytes, extents, .. }) = under_way {
            if let Some(sent) = trimmed.sent {
                took = self.learn_costs(extents, sent, took);
            }
            self.lost = self.lost.saturating_sub(took);
            // The drive has the most spare if nothing is pending.
            let most = self.worth.spare(self.free, Bytes::ZERO);
            let is_all = self.pending.is_empty() && trimmed.refused.is_empty();
            let left = trimmed.refused.len() + trimmed.partial.len();
            let made_up = if is_all { most } else { bytes.saturating_sub(left) };
            self.written = self.written.min(most).saturating_sub(made_up);
        }
        self.pacer.slice_ended(at, took, self.worth.shortest() * 2);
        // A failed trim does not change their age.
        let since = under_way.and_then(|under_way| under_way.since).unwrap_or(at);
        trimmed.refused.iter().for_each(|extent| self.pending.insert(extent, since));
        // A trim at the highest age is the last for what other files still use in part.
        if at.checked_sub(self.pacer.goals().max_age).is_none_or(|before| since > before) {
            trimmed.partial.iter().for_each(|extent| self.pending.insert(extent, since));
        }
    }

    /// Chooses the time of the next check: soon after a trim or a free, else after twice the time since the
    /// last one.
    fn look_again(&mut self, at: Duration, soon: bool) {
        let first = (self.worth.shortest() * COMMANDS_TO_LOOK).clamp(SHORTEST_LOOK, LATEST_FIRST_LOOK);
        self.look = if soon { first } else { (self.look * 2).min(LONGEST_LOOK) };
        if self.loss_rate > 0.0 {
            let missing = self.price().saturating_sub(self.lost).as_secs_f64();
            let paid = Duration::try_from_secs_f64(missing / self.loss_rate).unwrap_or(LONGEST_LOOK);
            self.look = self.look.min(paid).max(SHORTEST_PAID);
        }
        let look = at + self.look;
        // An extent without a whole unit waits for its neighbours or the highest age.
        let overdue = self.pending.none_before().saturating_add(self.pacer.goals().max_age);
        let wake = if self.is_settled() { overdue.max(look) } else { look };
        self.wake = (!self.pending.is_empty() && self.under_way.is_none()).then_some(wake);
    }
}

impl Policy for SmartPolicy {
    fn on_event(&mut self, at: Duration, event: &Event) -> Vec<TrimRequest> {
        match event {
            Event::Freed(extent) | Event::Unused(extent) => {
                if self.pending.is_empty() && self.under_way.is_none() {
                    self.pending_since = at;
                }
                self.pending.insert(*extent, at);
                // While nothing holds a whole unit, only what was joined by this can.
                let holds_unit = || {
                    let units = self.units();
                    self.pending.sharing(*extent).any(|joined| !units.inside(joined).is_empty())
                };
                if self.wake.is_none_or(|wake| wake > at + LONGEST_LOOK && holds_unit()) {
                    self.look_again(at, true);
                }
            }
            Event::Written(extent) | Event::Discarded(extent) => self.pending.remove(*extent),
            Event::Space { free } => self.free = *free,
            Event::Load(load) => self.observe(at, load),
            Event::Trimmed(trimmed) => {
                self.trimmed(at, trimmed);
                self.look_again(at, true);
            }
            Event::Wake | Event::Pause | Event::End => {
                let requests = self.decide(at);
                self.look_again(at, !requests.is_empty());
                return requests;
            }
        }
        Vec::new()
    }

    fn takes_refusals(&self) -> bool {
        true
    }

    fn next_wake(&self) -> Option<Duration> {
        self.wake
    }
}

#[cfg(test)]
mod tests;
