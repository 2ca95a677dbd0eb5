//! The judgement of one layer of a stack, and what it is judged by.

use trimtab_core::Bytes;
use trimtab_core::verdict::{Finding, Passes, Verdict};
use trimtab_linux::stack::{self, LayerKind};

/// A layer with larger discard units than this drops most discards, because few freed extents contain a whole
/// unit.
const LARGE_UNIT: Bytes = super::ASSUMED_ERASE_BLOCK;

/// Names the blocking layer in the reason of a layer above it, if nothing more is known.
pub(super) const BELOW: &str = "what is below";

/// The judgement of one layer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Opinion {
    pub(super) passes: Passes,
    /// The layer's own effect, regardless of the layers below.
    pub(super) effect: Verdict,
    pub(super) reason: String,
    pub(super) finding: Option<Finding>,
}

impl Opinion {
    pub(super) fn passes(reason: impl Into<String>) -> Self {
        Self { passes: Passes::Yes, effect: Verdict::Reaches, reason: reason.into(), finding: None }
    }

    pub(super) fn reshapes(effect: Verdict, reason: impl Into<String>) -> Self {
        Self { passes: Passes::Reshaped, effect, reason: reason.into(), finding: None }
    }

    pub(super) fn stops(reason: impl Into<String>) -> Self {
        Self { passes: Passes::No, effect: Verdict::Blocked, reason: reason.into(), finding: None }
    }

    /// A layer that would pass discards on, but takes none because `below` takes none.
    pub(super) fn starved(below: &str) -> Self {
        let reason = format!("it would hand them on, but {below} takes none");
        Self { effect: Verdict::Blocked, ..Self::passes(reason) }
    }

    pub(super) fn unknown(reason: impl Into<String>) -> Self {
        Self { passes: Passes::Unknown, effect: Verdict::Unknown, reason: reason.into(), finding: None }
    }

    pub(super) fn found(self, finding: Finding) -> Self {
        Self { finding: Some(finding), ..self }
    }

    /// A layer that passes discards on only in whole units of `unit`, which is a finding if they are large.
    pub(super) fn in_units(unit: Bytes, reason: String, finding: impl FnOnce() -> Finding) -> Self {
        if unit > LARGE_UNIT {
            Self::reshapes(Verdict::Partial, reason).found(finding())
        } else {
            Self::reshapes(Verdict::Reaches, reason)
        }
    }
}

/// A layer, the layers around it, and the fate of discards below.
pub(super) struct LayerInStack<'a> {
    pub(super) layer: &'a stack::Layer,
    /// The layers directly above.
    pub(super) above: Vec<&'a stack::Layer>,
    /// The layers below that hold its data, and the fate of discards there.
    pub(super) below: Vec<(&'a stack::Layer, Verdict)>,
}

impl LayerInStack<'_> {
    /// Returns true if only file systems or swap lie on it: it is the target, or an overlay or swap file on
    /// it is.
    pub(super) fn is_target(&self) -> bool {
        self.above.iter().all(|upper| matches!(upper.kind, LayerKind::FileSystem(_) | LayerKind::Swap))
    }

    /// Returns whether its own queue takes discards; `None` if sysfs doesn't show it.
    pub(super) fn takes(&self) -> Option<bool> {
        self.layer.limits.map(|limits| limits.max > Bytes::ZERO)
    }

    /// Returns true if a layer directly below takes no discards, so that this one can't either.
    pub(super) fn is_stopped_below(&self) -> bool {
        let takes_none = |layer: &stack::Layer| layer.limits.is_some_and(|limits| limits.max == Bytes::ZERO);
        self.below.iter().any(|(layer, _)| takes_none(layer))
    }

    /// Returns true if all layers directly below are known to take discards.
    pub(super) fn is_opened_below(&self) -> bool {
        let takes = |layer: &stack::Layer| layer.limits.is_some_and(|limits| limits.max > Bytes::ZERO);
        !self.below.is_empty() && self.below.iter().all(|(layer, _)| takes(layer))
    }

    /// Returns the smallest discard that its queue takes.
    pub(super) fn granularity(&self) -> Bytes {
        self.layer.limits.map_or(Bytes::ZERO, |limits| limits.granularity)
    }
}
