//! A drive in model time as the target of a bench: the same flash model that the emulated drives have, without a kernel
//! in between. Commands take what the model says, and pauses take no time of this machine.

use std::io;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use trimtab_core::document::KernelCounters;
use trimtab_core::erase::{Engine, Operation};
use trimtab_core::profile::Profile;
use trimtab_core::{Bytes, Extent, Nanos};
use trimtab_ftl::{Device, Op};

use super::target::{Command, CommandKind, Completion, Queue, Target};

/// A drive in model time.
pub(crate) struct Model {
    state: Mutex<State>,
    /// The time of this machine that counts as the start of the model's.
    start: Instant,
}

struct State {
    device: Device,
    now: Nanos,
}

impl Model {
    /// A new drive of `size` as `profile` says.
    pub(crate) fn new(profile: &Profile, size: Bytes) -> Self {
        let device = Device::new(profile, size).expect("the drive works");
        Self { state: Mutex::new(State { device, now: Nanos::ZERO }), start: Instant::now() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn instant(&self, at: Nanos) -> Instant {
        self.start + Duration::from_nanos(at.0)
    }

    /// Sends a command and waits for it.
    fn wait_for(&self, op: Op, extent: Extent) -> io::Result<()> {
        let mut state = self.state();
        let now = state.now;
        state.now = state.device.submit(now, trimtab_ftl::Command { op, extent });
        Ok(())
    }
}

impl Target for Model {
    fn logical_block(&self) -> Bytes {
        Bytes(512)
    }

    fn read(&self, at: Bytes, into: &mut [u8]) -> io::Result<()> {
        self.wait_for(Op::Read, Extent::at(at, Bytes(into.len() as u64)))
    }

    fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
        self.wait_for(Op::Write, Extent::at(at, Bytes(data.len() as u64)))
    }

    fn flush(&self) -> io::Result<()> {
        self.wait_for(Op::Flush, Extent::at(Bytes::ZERO, Bytes::ZERO))
    }

    fn erase(&self, _operation: Operation, extent: Extent) -> io::Result<()> {
        self.wait_for(Op::Discard, extent)
    }

    fn drop_caches(&self) -> io::Result<()> {
        Ok(())
    }

    fn counters(&self) -> Option<KernelCounters> {
        None
    }

    fn now(&self) -> Instant {
        self.instant(self.state().now)
    }

    fn pause(&self, span: Duration) {
        self.state().now += Nanos(span.as_nanos() as u64);
    }

    fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue + '_>> {
        Ok(Box::new(ModelQueue { model: self, depth, in_flight: Vec::new() }))
    }
}

struct ModelQueue<'a> {
    model: &'a Model,
    depth: u32,
    /// When each is done, its tag, and when it was sent.
    in_flight: Vec<(Nanos, u64, Nanos)>,
}

impl Queue for ModelQueue<'_> {
    fn engine(&self, _kind: CommandKind) -> Engine {
        Engine::IoUring
    }

    fn submit(&mut self, tag: u64, command: Command) -> io::Result<()> {
        assert!((self.in_flight.len() as u32) < self.depth, "the queue is full");
        let op = match command.kind {
            CommandKind::Read => Op::Read,
            CommandKind::Write => Op::Write,
            CommandKind::Erase(_) => Op::Discard,
        };
        let mut state = self.model.state();
        let now = state.now;
        let done = state.device.submit(now, trimtab_ftl::Command { op, extent: command.extent });
        self.in_flight.push((done, tag, now));
        Ok(())
    }

    fn wait(&mut self, until: Option<Instant>) -> io::Result<Option<Completion>> {
        let next = (0..self.in_flight.len()).min_by_key(|at| self.in_flight[*at]);
        let Some(next) = next else { return Ok(None) };
        let mut state = self.model.state();
        let until =
            until.map(|until| Nanos(until.saturating_duration_since(self.model.start).as_nanos() as u64));
        if let Some(until) = until.filter(|until| *until < self.in_flight[next].0) {
            state.now = state.now.max(until);
            return Ok(None);
        }
        let (done, tag, sent) = self.in_flight.swap_remove(next);
        state.now = state.now.max(done);
        let latency = Duration::from_nanos((done - sent).0);
        Ok(Some(Completion { tag, latency, at: self.model.instant(done), result: Ok(()) }))
    }
}
