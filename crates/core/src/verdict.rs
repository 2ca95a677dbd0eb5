//! Judgements about the discards of a storage stack, and findings that say how to mend them.

use serde::{Deserialize, Serialize};

/// Whether discards reach the flash, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All do, rounded to the granularity at most.
    Reaches,
    /// It can't be told.
    Unknown,
    /// Some do: one branch of several, or only those of a certain size.
    Partial,
    /// None does.
    Blocked,
}

/// A layer's handling of discards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Passes {
    /// Hands it down unchanged.
    Yes,
    /// Hands down none.
    No,
    /// Splits it, rounds it, delays it, or drops it below a size.
    Reshaped,
    /// It can't be told.
    Unknown,
}

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Discards don't reach the flash.
    Critical,
    /// Some don't, or they cost more than they have to.
    Warning,
    /// Worth knowing; changes no exit code.
    Note,
}

/// Something that stands in the way of discards, or is worth changing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The finding's name, such as `luks-no-discards`; the same in all versions.
    pub id: String,
    /// How grave it is.
    pub severity: Severity,
    /// The name of the layer, or the file, that it is about.
    pub layer: String,
    /// The problem, in a sentence.
    pub message: String,
    /// Why that matters, in a sentence.
    pub why: String,
    /// The commands or configuration lines that mend it, one a line; none where nothing does.
    pub fix: Option<String>,
    /// The cost of the fix, or what it discloses; none where it costs nothing.
    pub cost: Option<String>,
    /// The command that shows whether it is mended.
    pub check: String,
}
