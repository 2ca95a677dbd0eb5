//! The host in front of a drive, in model time.

use trimtab_core::Nanos;

use crate::command::{Command, Op};
use crate::controller::CommandSender;
use crate::device::Device;

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
    /// A ring, as long as the queue is deep: when each command in flight is done, rising from `next`
    /// round to the place before it.
    done: Vec<Nanos>,
    next: usize,
    now: Nanos,
}

impl ClosedLoop {
    /// A host with `queue_depth` commands in flight; 0 is taken for 1.
    pub fn new(queue_depth: u32) -> Self {
        Self { done: vec![Nanos::ZERO; queue_depth.max(1) as usize], next: 0, now: Nanos::ZERO }
    }

    /// Sends a command as soon as fewer than the queue depth are in flight.
    pub fn submit(&mut self, device: &mut Device, command: Command) -> Completion {
        if command.op == Op::Flush {
            self.now = self.now.max(self.done[self.before(self.next)]);
            let arrival = self.now;
            self.now = device.submit(arrival, command);
            return Completion { arrival, done: self.now };
        }
        let arrival = self.send();
        let done = device.submit(arrival, command);
        self.finish(done);
        Completion { arrival, done }
    }

    /// Sends these commands one after the other, as [`submit`](Self::submit) does. Writes of one
    /// page in a row go to the mapping as one batch, in which cache misses overlap: some hundred
    /// commands at a time run faster than one by one.
    ///
    /// # Panics
    /// If an extent reaches past the drive's end.
    pub fn submit_each(&mut self, device: &mut Device, commands: &[Command]) {
        let page_shift = device.page_shift();
        let is_page_write = |command: &Command| command.is_page_write(page_shift);
        for run in commands.chunk_by(|left, right| is_page_write(left) && is_page_write(right)) {
            match run {
                [command] => _ = self.submit(device, *command),
                page_writes => device.write_pages(self, page_writes),
            }
        }
    }

    /// Waits until `arrival`, and for room in flight; returns when the next command is sent.
    pub(crate) fn send_from(&mut self, arrival: Nanos) -> Nanos {
        self.now = self.now.max(arrival);
        self.send()
    }

    fn before(&self, place: usize) -> usize {
        if place == 0 { self.done.len() - 1 } else { place - 1 }
    }

    /// When the host sent its last command; after a flush, when that was done and all before it.
    pub fn now(&self) -> Nanos {
        self.now
    }
}

impl CommandSender for ClosedLoop {
    /// Waits for room in flight.
    fn send(&mut self) -> Nanos {
        self.now = self.now.max(self.done[self.next]);
        self.now
    }

    fn finish(&mut self, done: Nanos) {
        let first = if self.next + 1 == self.done.len() { 0 } else { self.next + 1 };
        let mut place = self.next;
        while place != first && self.done[self.before(place)] > done {
            self.done[place] = self.done[self.before(place)];
            place = self.before(place);
        }
        self.done[place] = done;
        self.next = first;
    }
}
