//! Stopping early, on the user's word.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The user asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// How often the user has asked to stop, which every loop of an experiment looks at. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    asked: Arc<AtomicU32>,
    parent: Option<Box<Interrupt>>,
}

impl Interrupt {
    /// One on which nobody asks.
    pub fn never() -> Self {
        Self::default()
    }

    /// One that is set where this one is, and can be set without setting this one: for work that ends
    /// early when another part of it fails.
    pub fn child(&self) -> Self {
        Self { asked: Arc::default(), parent: Some(Box::new(self.clone())) }
    }

    /// The user asks to stop; returns how often that makes.
    pub fn ask(&self) -> u32 {
        self.asked.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn count(&self) -> u32 {
        let inherited = self.parent.as_ref().map_or(0, |parent| parent.count());
        self.asked.load(Ordering::Relaxed).saturating_add(inherited)
    }

    /// Whether the user asked to stop.
    pub fn is_set(&self) -> bool {
        self.count() > 0
    }

    /// Whether the user asked again, and waits for nothing but what has to be cleaned up.
    pub fn is_urgent(&self) -> bool {
        self.count() > 1
    }

    /// Goes on, unless the user asked to stop.
    ///
    /// # Errors
    /// [`Interrupted`] once the user did.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.is_set() { Err(Interrupted) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_follows_its_parent_and_not_the_other_way() {
        let parent = Interrupt::default();
        let (one, other) = (parent.child(), parent.child());
        one.ask();
        assert!(one.is_set() && !parent.is_set() && !other.is_set());
        parent.ask();
        assert!(other.is_set() && one.is_urgent());
    }
}
