//! The policies that a simulation can replay, with the bound of all policies.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{PolicyChoice, PolicyChoiceError, PolicyKind};

/// The name of [`SimPolicy::Ideal`].
const IDEAL: &str = "ideal";

/// A policy as `trimtab sim` replays it, or the bound that none of them can be better than.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SimPolicy {
    /// A policy that machines can use.
    Real(PolicyChoice),
    /// No policy, but a drive that knows of every free at once and takes no time for it.
    Ideal,
}

/// Why a text is no [`SimPolicy`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SimPolicyError {
    /// There is no such policy.
    #[error(
        "there is no policy {0:?} to simulate; there are none, online, batched, batched:1h, smart, ideal"
    )]
    Unknown(String),
    /// Only `batched` goes by a timer.
    #[error("ideal has no interval; only batched has, as in batched:1h")]
    NoInterval,
    /// It is no policy as users ask for it elsewhere either.
    #[error(transparent)]
    Choice(PolicyChoiceError),
}

impl SimPolicy {
    /// The policy that machines can use; none for the bound.
    pub fn real(self) -> Option<PolicyChoice> {
        match self {
            Self::Real(choice) => Some(choice),
            Self::Ideal => None,
        }
    }

    /// Whether it is a policy of this kind.
    pub fn is(self, kind: PolicyKind) -> bool {
        self.real().is_some_and(|choice| choice.kind() == kind)
    }

    /// Its name for readers, who are not to take the bound for a policy.
    pub fn label(self) -> String {
        match self {
            Self::Real(choice) => choice.to_string(),
            Self::Ideal => "(ideal)".to_owned(),
        }
    }
}

impl From<PolicyChoice> for SimPolicy {
    fn from(choice: PolicyChoice) -> Self {
        Self::Real(choice)
    }
}

impl From<PolicyKind> for SimPolicy {
    fn from(kind: PolicyKind) -> Self {
        Self::Real(kind.into())
    }
}

impl FromStr for SimPolicy {
    type Err = SimPolicyError;
    fn from_str(text: &str) -> Result<Self, SimPolicyError> {
        match text.split_once(':') {
            None if text == IDEAL => return Ok(Self::Ideal),
            Some((IDEAL, _)) => return Err(SimPolicyError::NoInterval),
            _ => {}
        }
        text.parse().map(Self::Real).map_err(|error| match error {
            PolicyChoiceError::Unknown(unknown) => SimPolicyError::Unknown(unknown.name),
            error => SimPolicyError::Choice(error),
        })
    }
}

impl fmt::Display for SimPolicy {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Real(choice) => choice.fmt(f),
            Self::Ideal => f.pad(IDEAL),
        }
    }
}

impl TryFrom<String> for SimPolicy {
    type Error = SimPolicyError;
    fn try_from(text: String) -> Result<Self, SimPolicyError> {
        text.parse()
    }
}

impl From<SimPolicy> for String {
    fn from(policy: SimPolicy) -> Self {
        policy.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_policies_round_trip_and_refuse_other_names() {
        for text in ["none", "online", "batched", "batched:1h", "smart", "ideal"] {
            let policy: SimPolicy = text.parse().unwrap();
            assert_eq!(policy.to_string(), text);
            let json = serde_json::to_string(&policy).unwrap();
            assert_eq!((serde_json::from_str(&json).ok(), json), (Some(policy), format!("{text:?}")));
            assert_eq!(policy.real().is_none(), text == "ideal");
            assert_eq!(policy.label() == text, text != "ideal", "the bound has a label of its own");
        }
        let none = "to simulate; there are none, online, batched, batched:1h, smart, ideal";
        for (text, message) in [
            ("fast", format!("there is no policy \"fast\" {none}")),
            ("ideal:1h", "ideal has no interval; only batched has, as in batched:1h".to_owned()),
            ("online:1h", "online has no interval; only batched has, as in batched:1h".to_owned()),
        ] {
            assert_eq!(text.parse::<SimPolicy>().unwrap_err().to_string(), message);
        }
    }
}
