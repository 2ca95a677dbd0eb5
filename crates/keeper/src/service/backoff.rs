//! Pauses between retries, each twice as long as the last.

use std::time::Duration;

/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(3600);

/// The time of the next retry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backoff {
    at: Duration,
    next_pause: Duration,
}

impl Backoff {
    /// Returns the retry after a failure at `now`: after the pause `first`, or twice the pause of `earlier`.
    pub fn after(earlier: Option<Self>, first: Duration, now: Duration) -> Self {
        let pause = earlier.map_or(first, |earlier| earlier.next_pause);
        Self { at: now + pause, next_pause: (pause * 2).min(MAX_PAUSE) }
    }

    /// Returns when to retry.
    pub fn at(self) -> Duration {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_an_hour() {
        let first = Duration::from_secs(1);
        let (mut backoff, mut now, mut pauses) = (None, first, Vec::new());
        for _ in 0..15 {
            let next = Backoff::after(backoff, first, now);
            pauses.push((next.at() - now).as_secs());
            now = next.at();
            backoff = Some(next);
        }
        assert_eq!(pauses[..4], [1, 2, 4, 8]);
        assert_eq!(pauses[11..], [2048, 3600, 3600, 3600]);
    }
}
