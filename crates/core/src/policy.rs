//! The policy engine: what to trim, and when.
//!
//! A [`Policy`] is pure. Its host (the simulator, an experiment, the service) hands it every
//! [`Event`] with the time it happened, and carries out the [`TrimRequest`]s it answers with. The
//! time is the span since the host started, on the host's own clock: model time in the simulator,
//! wall time in the service. A policy never compares it with any other clock.

mod bound;
mod choice;
mod flash;
mod kalman;
mod learn;
mod loss;
mod pace;
mod pending;
mod smart;
pub mod worth;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use bound::{SimPolicy, SimPolicyError};
pub use choice::{PolicyChoice, PolicyChoiceError};
pub use learn::{LearnedCosts, Sent};
pub use pace::{Goals, Pacer};
pub use pending::PendingExtents;
pub use smart::{Explanation, Gain, SmartPolicy, Why};
pub use worth::{Thresholds, Worth};

use crate::extent::{Extent, ExtentSet};
use crate::units::Bytes;

/// Something a policy may want to react to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The file system gave up these bytes.
    Freed(Extent),
    /// These bytes were free before the host began to report frees, and may or may not have been discarded.
    Unused(Extent),
    /// The host wrote these bytes, so they are no longer free.
    Written(Extent),
    /// Somebody discarded these bytes, this policy or another program.
    Discarded(Extent),
    /// The workload named a pause: nobody waits for the drive now.
    Pause,
    /// The workload is over.
    End,
    /// The load of the foreground over the span since the last such event.
    Load(Load),
    /// How much of the file system is free.
    Space {
        /// Free bytes, pending or not.
        free: Bytes,
    },
    /// The last trim requests have been carried out.
    Trimmed(Trimmed),
    /// The time that [`Policy::next_wake`] asked for has come.
    Wake,
}

/// The load of the foreground over a span: all I/O but our own trims.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// How long the span was.
    pub span: Duration,
    /// Commands in flight at its end.
    pub in_flight: u64,
    /// Reads, writes and flushes that completed in it.
    pub completed: u64,
    /// Their mean latency; zero if there are none.
    pub latency: Duration,
    /// The bytes written in it.
    pub written: Bytes,
    /// The bytes read in it.
    #[serde(default)]
    pub read: Bytes,
    /// For how long one or more commands were under way in it, on the drive's clock; the sum over the disks if there are
    /// several. None if unknown, as while somebody discards.
    #[serde(default)]
    pub busy: Option<Duration>,
}

/// The outcome of trim requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trimmed {
    /// How long they held the drive.
    pub took: Duration,
    /// The extents that could not be trimmed, and are still pending.
    pub refused: ExtentSet,
    /// The extents that were trimmed, but are in units of the storage which files still use in part.
    #[serde(default)]
    pub partial: ExtentSet,
    /// The discards that the drive completed in that time; `None` if unknown, as after a failure.
    pub sent: Option<Sent>,
}

/// The time after which the host refuses the rest of a request, if the policy [takes](Policy::takes_refusals) that: the
/// drive may be slower than predicted, others may have begun to use it, and the host may have other work.
pub const LONGEST_TRIM: Duration = Duration::from_millis(200);

/// A trim that the host shall make now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrimRequest {
    /// The bytes to trim.
    pub scope: TrimScope,
    /// Free extents shorter than this are left alone.
    pub min_length: Bytes,
}

/// The free bytes that a [`TrimRequest`] covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrimScope {
    /// All that is free.
    Everything,
    /// The free parts of these extents.
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
    /// Handles one event and returns the trims to make at once, in this order.
    fn on_event(&mut self, at: Duration, event: &Event) -> Vec<TrimRequest>;

    /// Returns whether it asks again for extents that the host refuses. The host then ends a request after
    /// [`LONGEST_TRIM`].
    fn takes_refusals(&self) -> bool {
        false
    }

    /// Returns when the policy needs an [`Event::Wake`], if nothing else happens before.
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
    /// Leave discards to the file system, which delays and merges them (btrfs `discard=async`).
    Async,
    /// Trim all free space in the workload's pauses and at its end (`fstrim`).
    Batched,
    /// Trim freed extents when their discard is worth it and the drive has time ([`SmartPolicy`]).
    Smart,
}

/// An unknown policy name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy {name:?}; there are {}", PolicyKind::names())]
pub struct UnknownPolicy {
    /// The value that was given.
    pub name: String,
}

impl PolicyKind {
    /// All of them, in the order tables show them.
    pub const ALL: [Self; 5] = [Self::None, Self::Online, Self::Async, Self::Batched, Self::Smart];

    /// The name users give it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Online => "online",
            Self::Async => "async",
            Self::Batched => "batched",
            Self::Smart => "smart",
        }
    }

    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
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

/// Trims all free space at each interval, as a timer that runs `fstrim` does.
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

    fn engine(choice: &str) -> Box<dyn Policy> {
        choice.parse::<PolicyChoice>().unwrap().engine().expect("an engine of ours")
    }

    fn answers(kind: PolicyKind, event: Event) -> Vec<TrimRequest> {
        let mut engine = engine(kind.name());
        engine.on_event(Duration::ZERO, &event)
    }

    #[test]
    fn each_policy_trims_on_its_own_events() {
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
            assert_eq!(answers(kind, Event::Unused(freed)), vec![], "{kind}");
        }
    }

    #[test]
    fn a_timer_trims_each_time_its_interval_is_over() {
        let mut timed = engine("batched:1h");
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
    fn unknown_name_lists_the_known_ones() {
        let message = "fast".parse::<PolicyKind>().unwrap_err().to_string();
        assert_eq!(message, "there is no policy \"fast\"; there are none, online, async, batched, smart");
    }
}
