//! Notifications to the service manager.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Notifies the service manager, if there is one.
///
/// The watchdog is active only while there is work. Otherwise a service that sleeps until something is freed
/// would have to wake up just to send keep-alive messages.
#[derive(Debug)]
pub(super) struct Manager {
    /// The watchdog timeout; `None` if there is no watchdog.
    watchdog: Option<Duration>,
    /// Whether the watchdog is active.
    watched: bool,
    /// When the watchdog was last notified.
    notified: Instant,
    /// The last status sentence.
    sentence: String,
}

/// Disables the watchdog: the longest possible timeout in microseconds.
const UNWATCHED: &str = "WATCHDOG_USEC=18446744073709551615";

impl Manager {
    /// Reads the settings of the manager from the environment.
    pub fn of_environment() -> Self {
        let watchdog = sd_notify::watchdog_enabled();
        Self { watchdog, watched: watchdog.is_some(), notified: Instant::now(), sentence: String::new() }
    }

    /// Reports that the service is ready.
    pub fn ready(&mut self) {
        notify(&[NotifyState::Ready]);
    }

    /// Reports that the service reads its configuration again; [`Self::ready`] must follow.
    pub fn reloading(&self) {
        let now = NotifyState::monotonic_usec_now().ok();
        notify(&[Some(NotifyState::Reloading), now].into_iter().flatten().collect::<Vec<_>>());
    }

    /// Reports that the service is about to end.
    pub fn stopping(&self) {
        notify(&[NotifyState::Stopping]);
    }

    /// Reports a status sentence if it has changed.
    pub fn status(&mut self, sentence: String) {
        if sentence != self.sentence {
            notify(&[NotifyState::Status(&sentence)]);
            self.sentence = sentence;
        }
    }

    /// Reports that the service is alive and about to sleep, for `sleep` or until an event. Disables the
    /// watchdog during a long sleep.
    pub fn alive(&mut self, sleep: Option<Duration>) {
        let Some(watchdog) = self.watchdog else { return };
        let now = Instant::now();
        let soon = sleep.is_some_and(|sleep| sleep < watchdog / 2);
        match (soon, self.watched) {
            (false, true) => notify(&[NotifyState::Custom(UNWATCHED)]),
            (true, false) => {
                notify(&[NotifyState::Custom(&format!("WATCHDOG_USEC={}", watchdog.as_micros()))]);
            }
            (true, true) if now - self.notified > watchdog / 4 => notify(&[NotifyState::Watchdog]),
            (true, true) | (false, false) => return,
        }
        (self.watched, self.notified) = (soon, now);
    }
}

/// Sends the notification, and ignores failures.
fn notify(states: &[NotifyState]) {
    let _ = sd_notify::notify(states);
}
