//! The host in front of a drive, in model time.

use std::collections::VecDeque;

use trimtab_core::Nanos;

use crate::device::{Command, Device, Op};

/// When a command went to the drive and when it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// When the host sent it.
    pub arrival: Nanos,
    /// When the drive was done with it.
    pub done: Nanos,
}

/// A host that keeps a number of commands in flight: it sends the next one the moment that one of
/// them is done, never thinks, and waits for all of them before and after a flush. Its clock is
/// the model clock, so that results don't depend on the machine the model runs on.
pub struct ClosedLoop {
    queue_depth: usize,
    /// When the commands in flight are done, rising.
    in_flight: VecDeque<Nanos>,
    now: Nanos,
}

impl ClosedLoop {
    /// A host with `queue_depth` commands in flight; 0 is taken for 1.
    pub fn new(queue_depth: u32) -> Self {
        let queue_depth = queue_depth.max(1) as usize;
        Self { queue_depth, in_flight: VecDeque::with_capacity(queue_depth), now: Nanos::ZERO }
    }

    /// Sends a command as soon as fewer than the queue depth are in flight.
    pub fn submit(&mut self, device: &mut Device, command: Command) -> Completion {
        let flush = command.op == Op::Flush;
        let room = if flush { 0 } else { self.queue_depth - 1 };
        while self.in_flight.len() > room
            && let Some(done) = self.in_flight.pop_front()
        {
            self.now = self.now.max(done);
        }
        let arrival = self.now;
        let done = device.submit(arrival, command);
        if flush {
            self.now = done;
        } else {
            let place = self.in_flight.iter().rev().take_while(|other| **other > done).count();
            self.in_flight.insert(self.in_flight.len() - place, done);
        }
        Completion { arrival, done }
    }

    /// Sends these commands one after the other, as [`submit`](Self::submit) does. Their mapping
    /// entries are touched first, so that cache misses overlap: some hundred small commands at a
    /// time run faster than one by one.
    pub fn submit_each(&mut self, device: &mut Device, commands: &[Command]) {
        device.touch(commands);
        for command in commands {
            self.submit(device, *command);
        }
    }

    /// When the host sent its last command; after a flush, when that was done and all before it.
    pub fn now(&self) -> Nanos {
        self.now
    }
}
