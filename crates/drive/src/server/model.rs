//! The flash model and its time: when commands come to it, and when the host gets its answers.

use std::time::{Duration, Instant};

use trimtab_core::Nanos;
use trimtab_ftl::{ClosedLoop, Command, Device, Op};

use super::turns::Turns;
use crate::protocol::{Clock, PathTimes, UNTIL_STARTED};

/// The flash model and its time.
pub(crate) struct Model {
    pub(crate) device: Device,
    pub(crate) turns: Turns,
    time: Time,
    clock: Clock,
}

enum Time {
    /// The block device is being set up: nothing counts yet.
    NotStarted,
    /// The host keeps the queue full, in model time.
    Closed(ClosedLoop),
    /// Wall time.
    Real(RealTime),
}

/// Wall time since `start`, `speed` times as fast.
struct RealTime {
    start: Instant,
    speed: f64,
    path: PathTimes,
}

impl RealTime {
    fn now(&self) -> Nanos {
        Nanos::from_seconds(self.start.elapsed().as_secs_f64() * self.speed)
    }

    /// When to reply to a command that is done at `done`, so that the host sees the model's time:
    /// earlier by what its way to the model took and the way of the reply takes.
    fn reply_at(&self, op: Op, done: Nanos) -> Instant {
        let way = match op {
            Op::Read | Op::Write => self.path.transfer,
            Op::Discard | Op::Flush => self.path.discard,
        };
        self.start + Duration::from_secs_f64(done.seconds() / self.speed) - way
    }
}

impl Model {
    pub(crate) fn new(device: Device, clock: Clock) -> Self {
        Self { device, turns: Turns::default(), time: Time::NotStarted, clock }
    }

    /// From here on commands count and take time.
    pub(crate) fn start(&mut self, queue_depth: u32, path: PathTimes) {
        self.time = match self.clock {
            Clock::Model => Time::Closed(ClosedLoop::new(queue_depth)),
            Clock::Real { speed } => Time::Real(RealTime { start: Instant::now(), speed, path }),
        };
    }

    /// Has the model do `command`; returns when to reply, where that is not at once.
    pub(crate) fn submit(&mut self, command: Command) -> Option<Instant> {
        match &mut self.time {
            Time::NotStarted => match self.clock {
                Clock::Model => None,
                Clock::Real { .. } => Some(Instant::now() + UNTIL_STARTED),
            },
            Time::Closed(host) => {
                host.submit(&mut self.device, command);
                None
            }
            Time::Real(time) => {
                let done = self.device.submit(time.now(), command);
                Some(time.reply_at(command.op, done))
            }
        }
    }
}
