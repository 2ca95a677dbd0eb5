//! Policies as users ask for them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{BatchedPolicy, NonePolicy, OnlinePolicy, Policy, PolicyKind, TimedPolicy, UnknownPolicy};

/// The shortest interval: with a timer much faster than its trims, the host would do nothing else.
const LEAST_INTERVAL: Duration = Duration::from_millis(1);

/// A policy as users ask for it: its name, and for `batched` how often, as in `batched:1h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PolicyChoice {
    kind: PolicyKind,
    interval: Option<Duration>,
}

/// Why a text is no [`PolicyChoice`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PolicyChoiceError {
    /// There is no such policy.
    #[error(transparent)]
    Unknown(#[from] UnknownPolicy),
    /// Only `batched` goes by a timer.
    #[error("{0} has no interval; only batched has, as in batched:1h")]
    NoInterval(PolicyKind),
    /// The interval is none, or too short.
    #[error("{text:?} is not an interval of 1ms or more; write it like batched:1h or batched:30m")]
    Interval {
        /// The value that was given.
        text: String,
        /// The reason; `None` if it is too short.
        source: Option<humantime::DurationError>,
    },
}

impl PolicyChoice {
    /// The policy.
    pub fn kind(self) -> PolicyKind {
        self.kind
    }

    /// Returns the time from one trim to the next; `None` if no timer starts its trims.
    pub fn interval(self) -> Option<Duration> {
        self.interval
    }

    /// Returns the engine of a policy that needs no facts about the drive. Returns none for
    /// [`PolicyKind::Smart`], which needs them, and for [`PolicyKind::Async`]: with it, a file system
    /// discards by itself, on its own schedule.
    pub fn engine(self) -> Option<Box<dyn Policy>> {
        match (self.kind, self.interval) {
            (PolicyKind::None, _) => Some(Box::new(NonePolicy)),
            (PolicyKind::Online, _) => Some(Box::new(OnlinePolicy)),
            (PolicyKind::Async | PolicyKind::Smart, _) => None,
            (PolicyKind::Batched, None) => Some(Box::new(BatchedPolicy)),
            (PolicyKind::Batched, Some(interval)) => Some(Box::new(TimedPolicy { interval, next: interval })),
        }
    }
}

impl From<PolicyKind> for PolicyChoice {
    fn from(kind: PolicyKind) -> Self {
        Self { kind, interval: None }
    }
}

impl FromStr for PolicyChoice {
    type Err = PolicyChoiceError;
    fn from_str(text: &str) -> Result<Self, PolicyChoiceError> {
        let Some((name, interval)) = text.split_once(':') else {
            return Ok(text.parse::<PolicyKind>()?.into());
        };
        let kind = name.parse()?;
        if kind != PolicyKind::Batched {
            return Err(PolicyChoiceError::NoInterval(kind));
        }
        let refused = |source| PolicyChoiceError::Interval { text: text.to_owned(), source };
        match humantime::parse_duration(interval) {
            Ok(interval) if interval < LEAST_INTERVAL => Err(refused(None)),
            Ok(interval) => Ok(Self { kind, interval: Some(interval) }),
            Err(error) => Err(refused(Some(error))),
        }
    }
}

impl fmt::Display for PolicyChoice {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.interval {
            None => self.kind.fmt(f),
            Some(interval) => {
                let interval = humantime::format_duration(interval).to_string().replace(' ', "");
                f.pad(&format!("{}:{interval}", self.kind))
            }
        }
    }
}

impl TryFrom<String> for PolicyChoice {
    type Error = PolicyChoiceError;
    fn try_from(text: String) -> Result<Self, PolicyChoiceError> {
        text.parse()
    }
}

impl From<PolicyChoice> for String {
    fn from(choice: PolicyChoice) -> Self {
        choice.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_round_trip_and_invalid_ones_are_refused() {
        for text in ["none", "online", "async", "batched", "batched:1h", "batched:1h30m", "batched:100ms"] {
            let choice: PolicyChoice = text.parse().unwrap();
            assert_eq!(choice.to_string(), text);
            let json = serde_json::to_string(&choice).unwrap();
            assert_eq!((serde_json::from_str(&json).ok(), json), (Some(choice), format!("{text:?}")));
        }
        for (text, message) in [
            ("fast:1h", "there is no policy \"fast\"; there are none, online, async, batched, smart"),
            ("online:1h", "online has no interval; only batched has, as in batched:1h"),
            (
                "batched:0s",
                "\"batched:0s\" is not an interval of 1ms or more; write it like batched:1h or batched:30m",
            ),
            (
                "batched:1ns",
                "\"batched:1ns\" is not an interval of 1ms or more; write it like batched:1h or batched:30m",
            ),
            (
                "batched:soon",
                "\"batched:soon\" is not an interval of 1ms or more; write it like batched:1h or batched:30m",
            ),
        ] {
            assert_eq!(text.parse::<PolicyChoice>().unwrap_err().to_string(), message);
        }
    }
}
