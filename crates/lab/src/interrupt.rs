//! Stopping early, on the user's word.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The user asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// How often the user has asked to stop, which every loop of an experiment looks at. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicU32>);

impl Interrupt {
    /// One on which nobody asks.
    pub fn never() -> Self {
        Self::default()
    }

    /// The user asks to stop; returns how often that makes.
    pub fn ask(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether the user asked to stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Whether the user asked again, and waits for nothing but what has to be cleaned up.
    pub fn is_urgent(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 1
    }

    /// Goes on, unless the user asked to stop.
    ///
    /// # Errors
    /// [`Interrupted`] once the user did.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.is_set() { Err(Interrupted) } else { Ok(()) }
    }
}
