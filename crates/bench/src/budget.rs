//! A time budget, shared out over what is still to do.

use std::time::{Duration, Instant};

/// Wall time up to a deadline. Each step gets its share; what one leaves goes to the next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    deadline: Instant,
}

impl Budget {
    /// `span` from now.
    pub(crate) fn new(span: Duration) -> Self {
        Self { deadline: Instant::now() + span }
    }

    /// When it ends.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns the rest of it.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Whether it is used up.
    pub(crate) fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// The budget of a step that weighs `weight` among all that is left, which weighs `of`.
    pub(crate) fn share(&self, weight: f64, of: f64) -> Self {
        Self::new(self.left().mul_f64((weight / of.max(weight)).clamp(0.0, 1.0)))
    }
}
