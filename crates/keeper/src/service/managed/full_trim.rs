//! Periodic trims of all free space.

use std::time::{Duration, SystemTime};

/// The service's clock stands still while the machine is suspended, so the wall clock is looked at this often.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// When all free space of a file system becomes pending.
#[derive(Debug, Clone, Copy)]
pub(super) struct FullTrim {
    every: Duration,
    /// When the last one ended; `None` if that is not known.
    last: Option<SystemTime>,
    /// When to look whether one is due.
    next: Duration,
    /// Since when one is under way.
    under_way: Option<Duration>,
}

impl FullTrim {
    /// One for each interval `every`, where the last ended at `last`.
    pub fn new(every: Duration, last: Option<SystemTime>, now: Duration) -> Self {
        let mut trim = Self { every, last, next: now, under_way: None };
        let left = trim.left(SystemTime::now());
        trim.look_after(left, now);
        trim
    }

    /// When to look whether one is due.
    pub fn next(&self) -> Duration {
        self.next
    }

    /// Returns whether one is due. If not, the next look is later.
    pub fn is_due(&mut self, now: Duration, wall: SystemTime) -> bool {
        if now < self.next {
            return false;
        }
        let is_under_way = self.under_way.is_some_and(|since| now < since + self.every);
        let left = if is_under_way { self.every } else { self.left(wall) };
        if !left.is_zero() {
            self.look_after(left, now);
        }
        left.is_zero()
    }

    /// Records that all free space became pending.
    pub fn begin(&mut self, now: Duration) {
        self.under_way = Some(now);
        self.look_after(self.every, now);
    }

    /// Records that nothing is pending any more. Returns whether that ends a full trim.
    pub fn end(&mut self, now: Duration, wall: SystemTime) -> bool {
        let ends = self.under_way.take().is_some();
        if ends {
            self.last = Some(wall);
            self.look_after(self.every, now);
        }
        ends
    }

    fn look_after(&mut self, left: Duration, now: Duration) {
        self.next = now + left.min(LONGEST_WAIT);
    }

    /// The time until one is due by the wall clock. If that was set back by less than the interval since the last,
    /// the last counts as just done; if by more, one is due now.
    fn left(&mut self, wall: SystemTime) -> Duration {
        let Some(last) = self.last else { return Duration::ZERO };
        match wall.duration_since(last) {
            Ok(ago) => self.every.saturating_sub(ago),
            Err(ahead) if ahead.duration() < self.every => {
                self.last = Some(wall);
                self.every
            }
            Err(_) => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const DAY: Duration = Duration::from_secs(86_400);
    const START: SystemTime = SystemTime::UNIX_EPOCH;

    fn weekly(last: SystemTime) -> FullTrim {
        FullTrim { every: DAY * 7, last: Some(last), next: Duration::ZERO, under_way: None }
    }

    #[test]
    fn changed_clock_delays_no_trim_beyond_its_interval() {
        let wall = START + DAY * 1000;
        let left = |last| weekly(last).left(wall);
        assert_eq!(left(wall - DAY * 2), DAY * 5);
        assert_eq!(left(wall - DAY * 30), Duration::ZERO);
        assert_eq!(left(wall + DAY * 2), DAY * 7);
        assert_eq!(left(wall + DAY * 30), Duration::ZERO);
    }

    #[test]
    fn clock_that_was_set_back_delays_a_trim_by_an_interval_at_most() {
        let mut trim = weekly(START + DAY * 6);
        let due = (0..30).find(|day| trim.is_due(DAY * *day, START + DAY * *day));
        assert_eq!(due, Some(7));
    }

    #[test]
    fn time_in_which_the_machine_is_suspended_counts() {
        let mut trim = weekly(START);
        // The machine runs for an hour a day.
        let due = (0..30).find(|day| trim.is_due(Duration::from_secs(3600) * *day, START + DAY * *day));
        assert_eq!(due, Some(7));
    }

    #[test]
    fn full_trim_is_due_again_an_interval_after_it_ended() {
        let mut trim = FullTrim::new(DAY, None, SECOND);
        let wall = SystemTime::now();
        assert!(trim.is_due(SECOND, wall), "nothing is known of an earlier one");
        trim.begin(SECOND);
        assert!(!trim.is_due(DAY / 2, wall + DAY / 2), "it is under way");
        assert!(trim.end(DAY / 2, wall + DAY / 2));
        assert!(!trim.end(DAY / 2, wall + DAY / 2), "only once");
        assert!(!trim.is_due(DAY * 3 / 2 - SECOND, wall + DAY * 3 / 2 - SECOND));
        assert!(trim.is_due(DAY * 3 / 2 + LONGEST_WAIT, wall + DAY * 3 / 2 + SECOND));
    }

    #[test]
    fn full_trim_without_an_end_is_begun_again_after_an_interval() {
        let mut trim = FullTrim::new(DAY, None, SECOND);
        let wall = SystemTime::now();
        trim.begin(SECOND);
        assert!(trim.is_due(SECOND + DAY, wall + DAY));
    }
}
