//! Stopping early, on the user's word.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The user asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// A flag that a signal handler sets and every loop of an experiment looks at.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Watches `flag`.
    pub fn watching(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// One that nobody sets.
    pub fn never() -> Self {
        Self(Arc::default())
    }

    /// Whether the user asked to stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Goes on, unless the user asked to stop.
    ///
    /// # Errors
    /// [`Interrupted`] once the flag is set.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.is_set() { Err(Interrupted) } else { Ok(()) }
    }
}
