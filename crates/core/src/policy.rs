//! The policy engine: what to trim, and when.
//!
//! A [`Policy`] is pure. Its host (the simulator, an experiment, the service) hands it every
//! [`Event`] with the time it happened, and carries out the [`TrimRequest`]s it answers with. The
//! time is the span since the host started, on the host's own clock: model time in the simulator,
//! wall time in the service. A policy never compares it with any other clock.

mod choice;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use choice::{PolicyChoice, PolicyChoiceError};

use crate::extent::{Extent, ExtentSet};
use crate::units::Bytes;

/// Something a policy may want to react to.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The file system gave up these bytes.
    Freed(Extent),
    /// The host wrote these bytes, so they are no longer free.
    Written(Extent),
    /// Somebody discarded these bytes, this policy or another program.
    Discarded(Extent),
    /// The workload named a pause: nobody waits for the drive now.
    Pause,
    /// The workload is over.
    End,
    /// How busy the drive was over the span since the last such event.
    Load(Load),
    /// The time that [`Policy::next_wake`] asked for has come.
    Wake,
}

/// What the foreground got from the drive over a span.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Commands in flight at the end of the span.
    pub in_flight: u32,
    /// Commands that completed in the span.
    pub completed: u64,
    /// The 99th percentile of their latency.
    pub p99: Duration,
}

/// What the host shall trim now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrimRequest {
    /// Which bytes.
    pub scope: TrimScope,
    /// Free extents shorter than this are left alone.
    pub min_length: Bytes,
}

/// Which free bytes a [`TrimRequest`] covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrimScope {
    /// All that is free.
    Everything,
    /// What is free of these extents.
    Within(ExtentSet),
}

impl TrimRequest {
    /// A trim of all free bytes, however short their extents.
    pub fn everything() -> Self {
        Self { scope: TrimScope::Everything, min_length: Bytes::ZERO }
    }

    /// A trim of what is free within `extents`, however short the pieces.
    pub fn within(extents: ExtentSet) -> Self {
        Self { scope: TrimScope::Within(extents), min_length: Bytes::ZERO }
    }
}

/// Decides when pending extents are trimmed.
pub trait Policy: Send {
    /// Takes in one event and answers with what to trim at once, in this order.
    fn on_event(&mut self, at: Duration, event: &Event) -> Vec<TrimRequest>;

    /// When it wants an [`Event::Wake`], if nothing else happens before.
    fn next_wake(&self) -> Option<Duration> {
        None
    }
}

/// The policies, by the names users give them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyKind {
    /// Never trim.
    None,
    /// Discard what is freed as it is freed (`-o discard`).
    Online,
    /// Leave it to the file system's own delayed discards (btrfs `discard=async`).
    Async,
    /// Trim all free space in the workload's pauses and at its end (`fstrim`).
    Batched,
}

/// A policy name that isn't one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy {name:?}; there are {}", PolicyKind::names())]
pub struct UnknownPolicy {
    /// What was asked for.
    pub name: String,
}

impl PolicyKind {
    /// All of them, in the order tables show them.
    pub const ALL: [Self; 4] = [Self::None, Self::Online, Self::Async, Self::Batched];

    /// The name users give it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Online => "online",
            Self::Async => "async",
            Self::Batched => "batched",
        }
    }

    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// The engine that decides, or nothing where a file system does it by itself and on its own
    /// schedule, as for [`PolicyKind::Async`].
    pub fn engine(self) -> Option<Box<dyn Policy>> {
        PolicyChoice::from(self).engine()
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;
    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| UnknownPolicy { name: name.to_owned() })
    }
}

struct NonePolicy;

impl Policy for NonePolicy {
    fn on_event(&mut self, _: Duration, _: &Event) -> Vec<TrimRequest> {
        Vec::new()
    }
}

struct OnlinePolicy;

impl Policy for OnlinePolicy {
    fn on_event(&mut self, _: Duration, event: &Event) -> Vec<TrimRequest> {
        match event {
            Event::Freed(extent) => vec![TrimRequest::within(ExtentSet::from_iter([*extent]))],
            _ => Vec::new(),
        }
    }
}

struct BatchedPolicy;

impl Policy for BatchedPolicy {
    fn on_event(&mut self, _: Duration, event: &Event) -> Vec<TrimRequest> {
        match event {
            Event::Pause | Event::End => vec![TrimRequest::everything()],
            _ => Vec::new(),
        }
    }
}

/// Trims all that is free whenever its interval is over, as a timer that runs `fstrim` does.
struct TimedPolicy {
    interval: Duration,
    next: Duration,
}

impl Policy for TimedPolicy {
    fn on_event(&mut self, at: Duration, event: &Event) -> Vec<TrimRequest> {
        match event {
            Event::Wake if at >= self.next => {
                self.next = at + self.interval;
                vec![TrimRequest::everything()]
            }
            _ => Vec::new(),
        }
    }

    fn next_wake(&self) -> Option<Duration> {
        Some(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(kind: PolicyKind, event: Event) -> Vec<TrimRequest> {
        let mut engine = kind.engine().expect("an engine of ours");
        engine.on_event(Duration::ZERO, &event)
    }

    #[test]
    fn each_policy_trims_when_its_name_says() {
        let freed = Extent::at(Bytes(4096), Bytes(8192));
        let only_freed = TrimRequest::within(ExtentSet::from_iter([freed]));
        for (kind, on_free, on_pause) in [
            (PolicyKind::None, vec![], vec![]),
            (PolicyKind::Online, vec![only_freed], vec![]),
            (PolicyKind::Batched, vec![], vec![TrimRequest::everything()]),
        ] {
            assert_eq!(answers(kind, Event::Freed(freed)), on_free, "{kind}");
            assert_eq!(answers(kind, Event::Pause), on_pause, "{kind}");
            assert_eq!(answers(kind, Event::End), on_pause, "{kind}");
            assert_eq!(answers(kind, Event::Written(freed)), vec![], "{kind}");
        }
    }

    /// The shape holds a policy that defers, coalesces and reacts to load: it collects what is
    /// freed, asks to be woken, and trims the coalesced rest once the drive is idle.
    #[test]
    fn the_trait_carries_a_deferring_policy() {
        struct Deferring {
            pending: ExtentSet,
            wake: Option<Duration>,
            idle: bool,
        }
        impl Policy for Deferring {
            fn on_event(&mut self, at: Duration, event: &Event) -> Vec<TrimRequest> {
                match event {
                    Event::Freed(extent) => {
                        self.pending.insert(*extent);
                        self.wake = Some(at + Duration::from_secs(1));
                    }
                    Event::Written(extent) | Event::Discarded(extent) => self.pending.remove(*extent),
                    Event::Load(load) => self.idle = load.in_flight == 0,
                    Event::Wake if self.idle && !self.pending.is_empty() => {
                        return vec![TrimRequest::within(std::mem::take(&mut self.pending))];
                    }
                    _ => {}
                }
                Vec::new()
            }
            fn next_wake(&self) -> Option<Duration> {
                self.wake
            }
        }
        let mut policy: Box<dyn Policy> =
            Box::new(Deferring { pending: ExtentSet::new(), wake: None, idle: false });
        let (a, b) = (Extent::at(Bytes(0), Bytes(10)), Extent::at(Bytes(10), Bytes(10)));
        let second = Duration::from_secs;
        assert!(policy.on_event(second(0), &Event::Freed(a)).is_empty());
        assert!(policy.on_event(second(1), &Event::Freed(b)).is_empty());
        assert_eq!(policy.next_wake(), Some(second(2)));
        let busy = Load { in_flight: 3, completed: 9, p99: Duration::from_millis(1) };
        policy.on_event(second(2), &Event::Load(busy));
        assert!(policy.on_event(second(2), &Event::Wake).is_empty());
        policy.on_event(second(3), &Event::Load(Load { in_flight: 0, ..busy }));
        let whole = ExtentSet::from_iter([Extent::new(a.start, b.end)]);
        assert_eq!(policy.on_event(second(3), &Event::Wake), vec![TrimRequest::within(whole)]);
    }

    #[test]
    fn a_timer_trims_each_time_its_interval_is_over() {
        let mut timed = "batched:1h".parse::<PolicyChoice>().unwrap().engine().unwrap();
        let hours = |hours: u64| Duration::from_secs(3600 * hours);
        assert_eq!(timed.next_wake(), Some(hours(1)));
        assert_eq!(timed.on_event(hours(1), &Event::Wake), [TrimRequest::everything()]);
        assert_eq!(timed.next_wake(), Some(hours(2)));
        assert_eq!(timed.on_event(hours(1), &Event::Wake), [], "too early");
        for event in [Event::Pause, Event::End, Event::Freed(Extent::at(Bytes(0), Bytes(1)))] {
            assert_eq!(timed.on_event(hours(2), &event), []);
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known() {
        let message = "fast".parse::<PolicyKind>().unwrap_err().to_string();
        assert_eq!(message, "there is no policy \"fast\"; there are none, online, async, batched");
    }
}
