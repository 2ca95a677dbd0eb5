//! Stopping early, on the user's word.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The user asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// How often the user has asked to stop, which every loop of an experiment looks at. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    asked: AtomicU32,
    parent: Option<Interrupt>,
    /// The interrupts that are set with this one; waits hold this lock, too.
    children: Mutex<Vec<Weak<Shared>>>,
    changed: Condvar,
}

impl Interrupt {
    /// One on which nobody asks.
    pub fn never() -> Self {
        Self::default()
    }

    /// One that is set where this one is, and can be set without setting this one: for work that ends
    /// early when another part of it fails.
    pub fn child(&self) -> Self {
        let shared = Arc::new(Shared { parent: Some(self.clone()), ..Shared::default() });
        let mut children = self.shared.children.lock().unwrap_or_else(PoisonError::into_inner);
        children.retain(|child| child.strong_count() > 0);
        children.push(Arc::downgrade(&shared));
        Self { shared }
    }

    /// The user asks to stop; returns how often that makes.
    pub fn ask(&self) -> u32 {
        let asked = self.shared.asked.fetch_add(1, Ordering::SeqCst) + 1;
        self.shared.wake();
        asked
    }

    fn count(&self) -> u32 {
        let inherited = self.shared.parent.as_ref().map_or(0, Self::count);
        self.shared.asked.load(Ordering::SeqCst).saturating_add(inherited)
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

    /// Sleeps until `at`, without waking up before.
    ///
    /// # Errors
    /// [`Interrupted`] as soon as the user asks to stop.
    pub fn sleep_until(&self, at: Instant) -> Result<(), Interrupted> {
        let mut children = self.shared.children.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            self.check()?;
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let woken = self.shared.changed.wait_timeout(children, left);
            children = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sleeps for `length`, without waking up before.
    ///
    /// # Errors
    /// [`Interrupted`] as soon as the user asks to stop.
    pub fn sleep(&self, length: Duration) -> Result<(), Interrupted> {
        self.sleep_until(Instant::now() + length)
    }
}

impl Shared {
    /// Wakes those who sleep on this one and on its children.
    fn wake(&self) {
        let children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed.notify_all();
        children.iter().filter_map(Weak::upgrade).for_each(|child| child.wake());
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

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

    #[test]
    fn sleep_lasts_until_its_time() {
        let started = Instant::now();
        Interrupt::never().sleep(Duration::from_millis(3)).unwrap();
        assert!(started.elapsed() >= Duration::from_millis(3));
    }

    #[test]
    fn sleepers_are_woken_by_any_ancestor() {
        let grandparent = Interrupt::default();
        let parent = grandparent.child();
        let sleepers: Vec<_> = [grandparent.clone(), parent.clone(), parent.child()]
            .into_iter()
            .map(|interrupt| thread::spawn(move || interrupt.sleep(Duration::from_secs(3600))))
            .collect();
        // Most of the time all of them sleep by then; that none of them misses it is asserted in any case.
        thread::sleep(Duration::from_millis(20));
        grandparent.ask();
        for sleeper in sleepers {
            assert_eq!(sleeper.join().unwrap(), Err(Interrupted));
        }
    }
}
