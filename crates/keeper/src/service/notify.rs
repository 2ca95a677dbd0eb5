//! What the service manager is told.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Tells the service manager, where there is one.
///
/// The watchdog watches only while there is work: a service that sleeps until something is freed would
/// otherwise have to wake just to say that it is well.
#[derive(Debug)]
pub(super) struct Manager {
    /// How long the manager waits for a sign of life; none where it doesn't.
    watchdog: Option<Duration>,
    watched: bool,
    told: Instant,
    said: String,
}

/// What ends the watch: a span that never ends, in microseconds.
const UNWATCHED: &str = "WATCHDOG_USEC=18446744073709551615";

impl Manager {
    /// As the manager asked for in the environment.
    pub fn of_environment() -> Self {
        let watchdog = sd_notify::watchdog_enabled();
        Self { watchdog, watched: watchdog.is_some(), told: Instant::now(), said: String::new() }
    }

    /// The service does its work.
    pub fn ready(&mut self) {
        tell(&[NotifyState::Ready]);
    }

    /// It reads its configuration again; [`Self::ready`] follows.
    pub fn reloading(&self) {
        let now = NotifyState::monotonic_usec_now().ok();
        tell(&[Some(NotifyState::Reloading), now].into_iter().flatten().collect::<Vec<_>>());
    }

    /// It is about to end.
    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// What it does, in a sentence; told where that is news.
    pub fn status(&mut self, sentence: String) {
        if sentence != self.said {
            tell(&[NotifyState::Status(&sentence)]);
            self.said = sentence;
        }
    }

    /// It is well, and looks again after `sleep`, or only when something happens. Where that is long, the
    /// manager stops to watch until then.
    pub fn alive(&mut self, sleep: Option<Duration>) {
        let Some(watchdog) = self.watchdog else { return };
        let now = Instant::now();
        let soon = sleep.is_some_and(|sleep| sleep < watchdog / 2);
        match (soon, self.watched) {
            (false, true) => tell(&[NotifyState::Custom(UNWATCHED)]),
            (true, false) => {
                tell(&[NotifyState::Custom(&format!("WATCHDOG_USEC={}", watchdog.as_micros()))]);
            }
            (true, true) if now - self.told > watchdog / 4 => tell(&[NotifyState::Watchdog]),
            (true, true) | (false, false) => return,
        }
        (self.watched, self.told) = (soon, now);
    }
}

/// A manager that doesn't listen is not told.
fn tell(states: &[NotifyState]) {
    let _ = sd_notify::notify(states);
}
