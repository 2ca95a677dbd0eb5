//! The flash model and its time: when commands come to it, and when the host gets its answers.

use std::time::{Duration, Instant};

use trimtab_core::stats::{DriveCounters, EraseSpread};
use trimtab_core::{Bytes, Extent, Nanos, Pages};
use trimtab_ftl::{ClosedLoop, Command, Device, Op};

use crate::protocol::{Clock, Latencies, PathTimes, UNTIL_STARTED};

/// The interface of a flash model. Any of its functions may panic.
pub(crate) trait Emulated: Send {
    /// From here on commands count and take time.
    fn start(&mut self, queue_depth: u32, path: PathTimes);
    /// Has the model do `command`; returns when to reply, where that is not at once.
    fn submit(&mut self, command: Command) -> Option<Instant>;
    /// Returns the part of `extent` that the next discard would unmap.
    fn honoured(&self, extent: Extent) -> Extent;
    /// Whether a mapping page has data.
    fn is_mapped(&self, page: Pages) -> bool;
    /// A mapping page with data: the first from `page` on, past the drive's end from its start on.
    fn mapped_from(&self, page: Pages) -> Option<Pages>;
    /// Returns its figures so far.
    fn figures(&self) -> Figures;
}

/// The figures of a model.
pub(crate) struct Figures {
    pub(crate) effective_spare: f64,
    pub(crate) counters: DriveCounters,
    pub(crate) erase_spread: EraseSpread,
    pub(crate) mapped: Bytes,
    pub(crate) latency: Latencies,
}

/// The flash model and its time.
pub(crate) struct Model {
    device: Device,
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
        Self { device, time: Time::NotStarted, clock }
    }
}

impl Emulated for Model {
    fn start(&mut self, queue_depth: u32, path: PathTimes) {
        self.time = match self.clock {
            Clock::Model => Time::Closed(ClosedLoop::new(queue_depth)),
            Clock::Real { speed } => Time::Real(RealTime { start: Instant::now(), speed, path }),
        };
    }

    fn submit(&mut self, command: Command) -> Option<Instant> {
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

    fn honoured(&self, extent: Extent) -> Extent {
        self.device.honoured(extent)
    }

    fn is_mapped(&self, page: Pages) -> bool {
        self.device.is_mapped(page)
    }

    fn mapped_from(&self, page: Pages) -> Option<Pages> {
        self.device.mapped_from(page)
    }

    fn figures(&self) -> Figures {
        let latency = |op| self.device.latency(op);
        Figures {
            effective_spare: self.device.effective_spare(),
            counters: self.device.counters(),
            erase_spread: self.device.erase_spread(),
            mapped: self.device.mapped(),
            latency: Latencies {
                read: latency(Op::Read),
                write: latency(Op::Write),
                discard: latency(Op::Discard),
                flush: latency(Op::Flush),
            },
        }
    }
}
