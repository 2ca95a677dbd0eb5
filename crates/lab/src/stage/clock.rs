//! Drive time.

use std::time::{Duration, Instant};

use trimtab_core::interrupt::{Interrupt, Interrupted};

/// Drive time since the run's first step: this machine's monotonic clock times a speed. In a guest
/// with virtual time the machine's clock is the guest's, and the speed is 1.
#[derive(Debug, Clone, Copy)]
pub struct DriveClock {
    start: Instant,
    speed: f64,
}

impl DriveClock {
    /// A clock that starts now; `speed` is drive seconds per second of this machine's clock.
    pub fn start(speed: f64) -> Self {
        Self { start: Instant::now(), speed }
    }

    /// Drive time since the start.
    pub fn now(&self) -> Duration {
        self.drive(self.start.elapsed())
    }

    /// The time by this machine's clock that a span of drive time takes.
    pub fn wall(&self, span: Duration) -> Duration {
        span.div_f64(self.speed)
    }

    /// The drive time that passes in a span by this machine's clock.
    pub fn drive(&self, wall: Duration) -> Duration {
        wall.mul_f64(self.speed)
    }

    /// Sleeps until the drive time `at`, without waking up before: in virtual time idle hours cost nothing.
    ///
    /// # Errors
    /// [`Interrupted`] once the user asks to stop.
    pub fn sleep_until(&self, at: Duration, interrupt: &Interrupt) -> Result<(), Interrupted> {
        interrupt.sleep_until(self.start + self.wall(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drive_time_runs_faster_by_the_speed() {
        let clock = DriveClock::start(1000.0);
        clock.sleep_until(Duration::from_secs(20), &Interrupt::never()).unwrap();
        assert!(clock.now() >= Duration::from_secs(20));
        assert!(clock.start.elapsed() >= Duration::from_millis(20));
        assert_eq!(clock.wall(Duration::from_secs(1)), Duration::from_millis(1));
    }

    #[test]
    fn interrupt_ends_a_sleep() {
        let interrupt = Interrupt::default();
        interrupt.ask();
        let clock = DriveClock::start(1.0);
        assert!(clock.sleep_until(Duration::from_secs(3600), &interrupt).is_err());
    }
}
