//! When the next slice of a trim may begin, so that those who use the drive don't feel it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Load;

/// The most that trims may cost other users of the drive.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Goals {
    /// The most by which the mean latency of the foreground's commands may grow, and the longest that
    /// one slice may hold the drive while there is a foreground.
    #[serde(with = "duration")]
    pub max_latency_added: Duration,
    /// The largest share of the time in which trims may hold the drive while there is a foreground,
    /// above 0 and at most 1; trims that are urgent may take more. A foreground whose p99 shall not grow
    /// needs less than 0.01: then fewer than one command in a hundred meets a trim.
    pub max_busy_share: f64,
    /// Trim only while there is no foreground.
    pub idle_only: bool,
    /// The age at which pending extents are trimmed even if that is not worth it.
    #[serde(with = "duration")]
    pub max_age: Duration,
}

impl Default for Goals {
    /// A millisecond, 0.5 % of the time, an hour.
    fn default() -> Self {
        Self {
            max_latency_added: Duration::from_millis(1),
            max_busy_share: 0.005,
            idle_only: false,
            max_age: Duration::from_secs(3600),
        }
    }
}

mod duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(*value))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text).map_err(|error| D::Error::custom(format!("{text:?}: {error}")))
    }
}

/// The part of its share that the control loop gives up at once when the added latency exceeds the goal, and
/// regains in steps.
const SHRINK: f64 = 0.5;
const STEPS: f64 = 16.0;
/// By how much the share grows in each span while trims are urgent: 200-fold in 24 spans.
const URGENT_GROWTH: f64 = 1.25;
/// After this many spans with trims in a row, the foreground's latency without them is measured again.
const MOST_SPANS_BESIDE: u32 = 16;
/// The smallest share of the goal that is left: without trims, their effect cannot be measured.
const LEAST: f64 = 1.0 / 256.0;
/// How much one span counts in the mean latency of the foreground by itself.
const WEIGHT: f64 = 0.125;
/// The share of the time below which commands of others are no foreground: a drive that answers a
/// few reads a second is idle all the same.
const LIGHT: f64 = 0.05;
/// The time over which that share is averaged: a span may be as short as one command.
const AVERAGED: f64 = 1.0;
/// The largest share of the time that trims get beside such commands.
const MOST_BESIDE_LIGHT: f64 = 0.5;

/// Holds the goals by measuring. While there is a foreground, trims get a share of the time. The share
/// shrinks when they add more latency than the goal allows, and grows otherwise: up to the goal for the
/// share, and beyond it while trims are urgent.
///
/// The drive is idle if nothing is in flight and commands of others took less than 5 % of the last second.
/// If no command of others completed, trims follow each other without a pause. If some did, each trim is one
/// command, followed by a pause. The pause is so long that a command arriving at a random time waits
/// `max_latency_added` on average: its chance of meeting a trim is the trims' share of the time, and it then
/// waits for half of that trim.
///
/// Times are spans since the host started, on its own clock.
#[derive(Debug, Clone)]
pub struct Pacer {
    goals: Goals,
    /// The share of the time that trims get.
    share: f64,
    urgent: bool,
    idle: bool,
    /// For how long nobody else has used the drive at all.
    unused_for: Duration,
    /// The share of the time that commands of others take, averaged.
    busy: f64,
    /// The share below which they are no foreground.
    light: f64,
    /// The foreground's mean latency in spans without trims, in seconds.
    latency_without_trims: Option<f64>,
    /// How far that is from the mean in a span, on average, in seconds: I/O of mixed sizes varies by itself.
    variation: f64,
    /// Spans with trims since the last one without.
    spans_beside: u32,
    /// The mean time that the foreground waits longer because of trims, in seconds.
    added: f64,
    /// Its commands since the last span with trims.
    between: u64,
    /// The time that trims took since the last load was observed.
    trim_time: Duration,
    /// When the next may begin while there is a foreground.
    next: Duration,
    /// When the next may begin beside a few commands of others.
    next_beside_light: Duration,
    ended: Duration,
}

impl Pacer {
    /// A pacer that knows nothing of the foreground yet: there may be one.
    pub fn new(goals: Goals) -> Self {
        Self {
            goals,
            share: goals.max_busy_share,
            urgent: false,
            idle: false,
            unused_for: Duration::ZERO,
            busy: 1.0,
            light: LIGHT,
            latency_without_trims: None,
            variation: 0.0,
            spans_beside: 0,
            added: 0.0,
            between: 0,
            trim_time: Duration::ZERO,
            next: Duration::ZERO,
            next_beside_light: Duration::ZERO,
            ended: Duration::ZERO,
        }
    }

    /// A pacer for which every command of others counts as a foreground: for a trim that somebody started
    /// while others read, and that need not hurry.
    pub fn for_one_trim(goals: Goals) -> Self {
        Self { light: 0.0, ..Self::new(goals) }
    }

    /// The goals that it holds.
    pub fn goals(&self) -> &Goals {
        &self.goals
    }

    /// Sets whether trims are now worth more than the goal for their share of the time. The latency goal
    /// still holds: it is measured.
    pub fn set_urgent(&mut self, urgent: bool) {
        self.urgent = urgent;
        self.share = self.share.min(self.most());
    }

    /// Returns true if the foreground's latency without trims is out of date because each of the last spans had
    /// some: a span without trims has to come first.
    pub fn needs_baseline(&self) -> bool {
        self.spans_beside >= MOST_SPANS_BESIDE && !self.idle
    }

    /// The share of the time that trims get beside a foreground.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// The share of the last second in which commands of others were under way; above 1 if several were at once.
    pub fn busy(&self) -> f64 {
        self.busy
    }

    /// The most that trims may get of the time.
    fn most(&self) -> f64 {
        if self.urgent { 1.0 } else { self.goals.max_busy_share }
    }

    /// Takes in the load of the foreground since the last call.
    pub fn observe(&mut self, load: &Load) {
        let is_unused = load.in_flight == 0 && load.completed == 0;
        self.unused_for = if is_unused { self.unused_for.saturating_add(load.span) } else { Duration::ZERO };
        let span = load.span.as_secs_f64();
        let busy = load.latency.as_secs_f64() * load.completed as f64;
        // Not below zero by rounding.
        self.busy = (self.busy + (busy - self.busy * span) / span.max(AVERAGED)).max(0.0);
        let is_light = load.in_flight == 0 && self.busy < self.light;
        self.idle = is_unused || is_light;
        let trim_time = std::mem::take(&mut self.trim_time);
        self.spans_beside = if trim_time.is_zero() { 0 } else { self.spans_beside + 1 };
        if load.completed == 0 {
            return;
        }
        let latency = load.latency.as_secs_f64();
        let Some(without) = &mut self.latency_without_trims else {
            self.latency_without_trims = trim_time.is_zero().then_some(latency);
            return;
        };
        if trim_time.is_zero() {
            self.variation += ((latency - *without).abs() - self.variation) * WEIGHT;
            *without += (latency - *without) * WEIGHT;
            self.between += load.completed;
            return;
        }
        let commands = std::mem::take(&mut self.between) + load.completed;
        let part = load.completed as f64 / commands as f64;
        self.added = (latency - *without).max(0.0) * part;
        let goal = self.goals.max_busy_share;
        // Trims do not cause the variation that the latency has without them.
        let most = self.goals.max_latency_added.as_secs_f64() + self.variation * part;
        self.share = if self.added > most {
            self.share * SHRINK
        } else if self.urgent {
            self.share * URGENT_GROWTH + goal / STEPS
        } else {
            self.share + goal / STEPS
        };
        self.share = self.share.clamp(goal * LEAST, self.most());
    }

    /// Records that a slice ended at `at` and held the drive for `took`. One command takes at most about
    /// `command`.
    pub fn slice_ended(&mut self, at: Duration, took: Duration, command: Duration) {
        self.trim_time += took;
        self.ended = at;
        self.next = at.saturating_add(pause_after(took, self.share));
        // A slice on an idle drive may have been many commands; beside light use the next is one.
        let last = took.min(command);
        self.next_beside_light = at.saturating_add(pause_after(last, self.share_beside_light(last)));
    }

    /// The share of the time for trims of this length at which a command arriving at a random time waits for
    /// the latency goal on average.
    fn share_beside_light(&self, took: Duration) -> f64 {
        let goal = self.goals.max_latency_added.as_secs_f64();
        (2.0 * goal / took.as_secs_f64().max(f64::MIN_POSITIVE)).min(MOST_BESIDE_LIGHT)
    }

    /// When the next slice may begin under the current load; `None` if it has to wait for an idle drive.
    pub fn next_start(&self) -> Option<Duration> {
        if !self.unused_for.is_zero() {
            Some(self.ended)
        } else {
            let next = if self.idle { self.next.min(self.next_beside_light) } else { self.next };
            (self.idle || !self.goals.idle_only).then_some(next)
        }
    }

    /// Whether others used the drive for so little of the last span that it has time for trims.
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// Returns true if trims held the drive in the last span whose load was observed.
    pub fn last_span_had_trims(&self) -> bool {
        self.spans_beside > 0
    }

    /// How long a discard waits that meets a command of others: as long as these take without trims, in the mean. Zero
    /// on an idle drive.
    pub fn wait_for_others(&self) -> Duration {
        let latency = self.latency_without_trims.filter(|_| !self.idle);
        Duration::try_from_secs_f64(latency.unwrap_or_default()).unwrap_or_default()
    }

    /// The mean time that a discard waits for commands of others, whether it meets any or not.
    pub fn mean_wait_for_others(&self) -> Duration {
        self.wait_for_others().mul_f64(self.busy.min(1.0))
    }

    /// For how long nobody else has used the drive at all; zero if somebody did in the last span.
    pub fn unused_for(&self) -> Duration {
        self.unused_for
    }

    /// The time that trims added to the foreground's mean latency, averaged over all commands since the
    /// previous span with trims.
    pub fn latency_added(&self) -> Duration {
        Duration::from_secs_f64(self.added)
    }
}

/// The pause after a slice of this length with which slices get `share` of the time.
fn pause_after(took: Duration, share: f64) -> Duration {
    // Never, if that is longer than a Duration can be.
    Duration::try_from_secs_f64(took.as_secs_f64() * (1.0 - share) / share).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    const SPAN: Duration = Duration::from_millis(100);

    fn load(completed: u64, latency: Duration) -> Load {
        Load {
            span: SPAN,
            in_flight: 0,
            completed,
            latency,
            written: Bytes::ZERO,
            read: Bytes::ZERO,
            busy: None,
        }
    }

    fn micros(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    /// Runs slices of 10 ms against a foreground whose latency grows with the share of time that
    /// trims get, for `spans`; returns the time that trims had.
    fn run(mut pacer: Pacer, spans: u32, latency: impl Fn(f64) -> Duration) -> Duration {
        let slice = Duration::from_millis(10);
        let (mut now, mut total) = (Duration::ZERO, Duration::ZERO);
        pacer.observe(&load(100, latency(0.0)));
        for _ in 0..spans {
            let (end, mut within) = (now + SPAN, Duration::ZERO);
            while pacer.next_start().is_some_and(|start| start.max(now) < end) {
                now = pacer.next_start().unwrap().max(now) + slice;
                within += slice;
                pacer.slice_ended(now, slice, slice);
            }
            now = now.max(end);
            total += within;
            pacer.observe(&load(100, latency(within.as_secs_f64() / SPAN.as_secs_f64())));
        }
        total
    }

    #[test]
    fn unaffected_foreground_leaves_trims_their_share() {
        let goals = Goals { max_busy_share: 0.1, ..Goals::default() };
        let total = run(Pacer::new(goals), 1000, |_| micros(100));
        let share = total.as_secs_f64() / (SPAN * 1000).as_secs_f64();
        assert!((0.09..0.11).contains(&share), "{share}");
    }

    #[test]
    fn slowed_foreground_makes_trims_rare() {
        let goals = Goals { max_busy_share: 0.5, ..Goals::default() };
        let total = run(Pacer::new(goals), 1000, |share| micros(100) + Duration::from_secs_f64(share * 0.1));
        let share = total.as_secs_f64() / (SPAN * 1000).as_secs_f64();
        // One slice of 10 ms in 100 ms adds 10 ms, far above the goal.
        assert!(share < 0.02, "{share}");
        assert!(share > 0.0, "it never gives up");
    }

    #[test]
    fn urgent_trims_get_the_share_that_the_latency_allows() {
        let mut pacer = Pacer::new(Goals::default());
        pacer.set_urgent(true);
        // A command that meets a slice waits for half of it: 1 ms on average is a share of 0.2.
        let total = run(pacer, 5000, |share| micros(100) + Duration::from_millis(5).mul_f64(share));
        let share = total.as_secs_f64() / (SPAN * 5000).as_secs_f64();
        assert!((0.1..0.3).contains(&share), "{share}");
    }

    #[test]
    fn urgent_trims_get_their_share_within_seconds() {
        let mut pacer = Pacer::new(Goals::default());
        pacer.set_urgent(true);
        pacer.observe(&load(100, micros(100)));
        for _ in 0..30 {
            pacer.slice_ended(SPAN, micros(10_000), micros(10_000));
            pacer.observe(&load(100, micros(100)));
        }
        assert!(pacer.share() > 0.99, "{}", pacer.share());
    }

    #[test]
    fn latency_that_varies_by_itself_does_not_collapse_the_share() {
        let goals = Goals { max_busy_share: 0.1, ..Goals::default() };
        let mut pacer = Pacer::new(goals);
        // Spans of small and of large writes in turn, whatever trims do.
        for span in 0..400 {
            if span % 3 == 0 {
                pacer.slice_ended(SPAN, micros(1000), micros(1000));
            }
            pacer.observe(&load(100, micros(if span % 2 == 0 { 500 } else { 6500 })));
        }
        assert!(pacer.share() > 0.05, "{}", pacer.share());
    }

    #[test]
    fn foreground_without_a_span_of_its_own_gets_one() {
        let mut pacer = Pacer::new(Goals::default());
        pacer.observe(&load(100, micros(100)));
        let spans = (1..100).find(|_| {
            pacer.slice_ended(SPAN, micros(10), micros(10));
            pacer.observe(&load(100, micros(100)));
            pacer.needs_baseline()
        });
        assert_eq!(spans, Some(MOST_SPANS_BESIDE));
        pacer.observe(&load(100, micros(100)));
        assert!(!pacer.needs_baseline());
    }

    #[test]
    fn latency_added_by_rare_trims_is_spread_over_all_commands() {
        let mut pacer = Pacer::new(Goals::default());
        (0..10).for_each(|_| pacer.observe(&load(100, micros(100))));
        pacer.slice_ended(SPAN, SPAN, SPAN);
        pacer.observe(&load(100, micros(5100)));
        // There was no span to compare the first one with.
        assert_eq!(pacer.latency_added(), micros(500));
    }

    #[test]
    fn idle_only_goal_trims_an_idle_drive_at_once_and_a_busy_one_never() {
        let mut pacer = Pacer::new(Goals { idle_only: true, ..Goals::default() });
        assert_eq!(pacer.next_start(), None, "nothing is known yet");
        pacer.observe(&load(100, micros(100)));
        assert_eq!(pacer.next_start(), None);
        pacer.observe(&load(0, Duration::ZERO));
        pacer.slice_ended(SPAN, SPAN, SPAN);
        assert_eq!(pacer.next_start(), Some(SPAN));
        pacer.observe(&Load { in_flight: 1, ..load(0, Duration::ZERO) });
        assert_eq!(pacer.next_start(), None);
    }

    #[test]
    fn long_pause_for_a_foreground_ends_with_the_foreground() {
        let mut pacer = Pacer::new(Goals::default());
        let second = Duration::from_secs(1);
        let beside = |completed, latency| Load { span: second, ..load(completed, latency) };
        pacer.observe(&beside(1000, micros(1000)));
        pacer.slice_ended(second, micros(500_000), micros(20_000));
        assert!(pacer.next_start().unwrap() > second * 90, "its share of a busy drive's time");
        for _ in 0..3 {
            pacer.observe(&beside(5, micros(300)));
        }
        assert!(pacer.next_start().unwrap() < second * 2, "a reader now and then");
        pacer.observe(&beside(0, Duration::ZERO));
        assert_eq!(pacer.next_start(), Some(second), "nobody");
    }

    #[test]
    fn busy_share_stays_within_bounds_for_looks_of_any_length() {
        let mut pacer = Pacer::new(Goals::default());
        pacer.observe(&Load { span: Duration::ZERO, ..load(100, micros(100)) });
        for millis in 0..5000 {
            let span = Duration::from_micros(1_000_301 + 977 * millis);
            pacer.observe(&Load { span, in_flight: 1, ..load(millis % 2, micros(millis % 3)) });
            assert!((0.0..=1.0).contains(&pacer.busy()), "{} after {span:?}", pacer.busy());
            assert!(pacer.mean_wait_for_others() <= pacer.wait_for_others());
        }
        (0..100).for_each(|_| pacer.observe(&load(0, Duration::ZERO)));
        assert!(pacer.busy() < 0.01, "{}", pacer.busy());
    }

    #[test]
    fn tiny_share_never_starts_a_trim() {
        let mut pacer = Pacer::new(Goals { max_busy_share: 1e-300, ..Goals::default() });
        pacer.slice_ended(SPAN, SPAN, SPAN);
        assert_eq!(pacer.next_start(), Some(Duration::MAX));
    }

    #[test]
    fn goals_are_parsed_in_common_notations() {
        let goals: Goals = toml::from_str("max_latency_added = \"2ms\"\nmax_busy_share = 0.1").unwrap();
        assert_eq!((goals.max_latency_added, goals.max_busy_share), (micros(2000), 0.1));
        assert_eq!(goals.max_age, Goals::default().max_age);
        assert!(toml::from_str::<Goals>("max_latency = \"2ms\"").is_err());
    }
}
