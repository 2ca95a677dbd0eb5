//! Devices in memory: an honest one, ones that lie, and one that fails.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use trimtab_core::document::KernelCounters;
use trimtab_core::document::bench::BenchDevice;
use trimtab_core::erase::{Engine, Operation};
use trimtab_core::profile::DiscardedReads;
use trimtab_core::{Bytes, Extent};

use super::target::{Command, CommandKind, Completion, Queue, Target};

/// The behaviour of a [`Memory`] with discards.
#[derive(Debug, Clone)]
pub(crate) struct Behaviour {
    /// Its size.
    pub(crate) size: Bytes,
    /// Its logical block.
    pub(crate) block: Bytes,
    /// Only whole grains go.
    pub(crate) grain: Bytes,
    /// Where the first grain starts.
    pub(crate) alignment: Bytes,
    /// The data that a discarded block reads as.
    pub(crate) reads: DiscardedReads,
    /// Shorter discards do nothing.
    pub(crate) least: Bytes,
    /// Every n-th discard does nothing: n.
    pub(crate) ignored_every: Option<u64>,
    /// Grains that a discard touches only in part go as well.
    pub(crate) rounds_outward: bool,
    /// When old data comes back.
    pub(crate) returns: Returns,
}

/// When the old data of discarded blocks comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Returns {
    Never,
    /// Once a block was read.
    AtSecondRead,
    /// Once the caches were dropped.
    AfterDelay,
}

impl Behaviour {
    /// A device of `size` with blocks of 512 bytes that honours every discard to the block.
    pub(crate) fn honest(size: Bytes) -> Self {
        Self {
            size,
            block: Bytes(512),
            grain: Bytes(512),
            alignment: Bytes::ZERO,
            reads: DiscardedReads::Zeros,
            least: Bytes::ZERO,
            ignored_every: None,
            rounds_outward: false,
            returns: Returns::Never,
        }
    }

    /// The grains of `extent` that a discard frees.
    fn honoured(&self, extent: Extent) -> Extent {
        let grain = self.grain.0;
        let shift = grain - self.alignment.0 % grain;
        let (start, end) = (extent.start.0 + shift, extent.end.0 + shift);
        let (start, end) = if self.rounds_outward {
            (start / grain * grain, end.next_multiple_of(grain))
        } else {
            (start.next_multiple_of(grain), end / grain * grain)
        };
        let start = start.saturating_sub(shift);
        Extent::new(Bytes(start), Bytes(end.saturating_sub(shift).clamp(start, self.size.0)))
    }
}

/// Describes a device that advertises grains of one block, as the kernel would.
pub(crate) fn device(behaviour: &Behaviour) -> BenchDevice {
    BenchDevice {
        path: "/dev/memory".to_owned(),
        model: "memory".to_owned(),
        firmware: String::new(),
        serial: "1".to_owned(),
        size: behaviour.size,
        logical_block: behaviour.block,
        physical_block: behaviour.block,
        rotational: false,
        scheduler: "none".to_owned(),
        queue_requests: 64,
        discard_granularity: behaviour.block,
        discard_alignment: Bytes::ZERO,
        discard_max: behaviour.size,
        discard_max_hardware: behaviour.size,
        write_zeroes_max: Bytes::ZERO,
    }
}

/// A device in memory.
pub(crate) struct Memory {
    behaviour: Behaviour,
    state: Mutex<State>,
}

struct State {
    data: Vec<u8>,
    /// Of each block, whether it was discarded since it was written.
    gone: Vec<bool>,
    /// Of each block, whether it was read since it was discarded.
    read: Vec<bool>,
    discards: u64,
    written: u64,
    noise: u64,
    dropped: bool,
    /// How far its clock is ahead of this machine's: pauses take no time.
    paused: Duration,
}

impl Memory {
    pub(crate) fn new(behaviour: Behaviour) -> Self {
        let blocks = (behaviour.size.0 / behaviour.block.0) as usize;
        let state = State {
            data: vec![0; behaviour.size.0 as usize],
            gone: vec![true; blocks],
            read: vec![false; blocks],
            discards: 0,
            written: 0,
            noise: 1,
            dropped: false,
            paused: Duration::ZERO,
        };
        Self { behaviour, state: Mutex::new(state) }
    }

    /// Bytes written to it so far.
    pub(crate) fn written(&self) -> Bytes {
        Bytes(self.state().written)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn blocks(&self, extent: Extent) -> std::ops::Range<usize> {
        let block = self.behaviour.block.0;
        let whole = extent.start.0.is_multiple_of(block) && extent.end.0.is_multiple_of(block);
        assert!(whole, "{extent} is not of whole blocks");
        assert!(extent.end <= self.behaviour.size, "{extent} is past the end");
        (extent.start.0 / block) as usize..(extent.end.0 / block) as usize
    }
}

impl State {
    /// A number that nobody could foresee (Marsaglia, "Xorshift RNGs", 2003).
    fn noise(&mut self) -> u64 {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        self.noise
    }
}

impl Target for Memory {
    fn logical_block(&self) -> Bytes {
        self.behaviour.block
    }

    fn read(&self, at: Bytes, into: &mut [u8]) -> io::Result<()> {
        let blocks = self.blocks(Extent::at(at, Bytes(into.len() as u64)));
        let (mut state, size) = (self.state(), self.behaviour.block.0 as usize);
        for (index, bytes) in blocks.zip(into.chunks_exact_mut(size)) {
            let returned = match self.behaviour.returns {
                Returns::Never => false,
                Returns::AtSecondRead => state.read[index],
                Returns::AfterDelay => state.dropped,
            };
            let source = match self.behaviour.reads {
                _ if !state.gone[index] || returned => Some(index),
                DiscardedReads::Old => Some(index),
                DiscardedReads::Other => Some((index + 1) % state.gone.len()),
                DiscardedReads::Zeros => None,
                DiscardedReads::Garbage => {
                    bytes
                        .chunks_exact_mut(8)
                        .for_each(|word| word.copy_from_slice(&state.noise().to_le_bytes()));
                    continue;
                }
            };
            match source {
                Some(source) => bytes.copy_from_slice(&state.data[source * size..][..size]),
                None => bytes.fill(0),
            }
            state.read[index] = state.gone[index];
        }
        Ok(())
    }

    fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
        let blocks = self.blocks(Extent::at(at, Bytes(data.len() as u64)));
        let mut state = self.state();
        state.data[at.0 as usize..][..data.len()].copy_from_slice(data);
        state.written += data.len() as u64;
        state.gone[blocks.clone()].fill(false);
        state.read[blocks].fill(false);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn erase(&self, _operation: Operation, extent: Extent) -> io::Result<()> {
        let mut state = self.state();
        state.discards += 1;
        let ignored = self.behaviour.ignored_every.is_some_and(|n| state.discards.is_multiple_of(n));
        if ignored || extent.len() < self.behaviour.least {
            return Ok(());
        }
        state.gone[self.blocks(self.behaviour.honoured(extent))].fill(true);
        Ok(())
    }

    fn drop_caches(&self) -> io::Result<()> {
        self.state().dropped = true;
        Ok(())
    }

    fn counters(&self) -> Option<KernelCounters> {
        None
    }

    fn now(&self) -> Instant {
        Instant::now() + self.state().paused
    }

    fn pause(&self, span: Duration) {
        self.state().paused += span;
    }

    fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue + '_>> {
        Ok(Box::new(MemoryQueue { memory: self, depth, done: VecDeque::new() }))
    }
}

/// Commands that are done when they are sent; their latencies are made up, as flash would have
/// them: a block without data needs no flash to be read.
struct MemoryQueue<'a> {
    memory: &'a Memory,
    depth: u32,
    done: VecDeque<Completion>,
}

impl Queue for MemoryQueue<'_> {
    fn engine(&self, _kind: CommandKind) -> Engine {
        Engine::Threads
    }

    fn submit(&mut self, tag: u64, command: Command) -> io::Result<()> {
        assert!((self.done.len() as u32) < self.depth, "the queue is full");
        let Command { kind, extent } = command;
        let length = extent.len().0 as usize;
        let (result, flash_us) = match kind {
            CommandKind::Read => {
                let gone = self.memory.state().gone[self.memory.blocks(extent)].iter().all(|gone| *gone);
                (self.memory.read(extent.start, &mut vec![0; length]), if gone { 0 } else { 60 })
            }
            CommandKind::Write => (self.memory.write(extent.start, &vec![1; length]), 0),
            CommandKind::Erase(operation) => (self.memory.erase(operation, extent), 0),
        };
        let latency = Duration::from_micros(40 + flash_us + self.memory.state().noise() % 20);
        self.done.push_back(Completion { tag, latency, at: self.memory.now(), result });
        Ok(())
    }

    fn wait(&mut self, _until: Option<Instant>) -> io::Result<Option<Completion>> {
        Ok(self.done.pop_front())
    }
}

/// A device whose `n`-th command, counted from 1, and all after it fail.
pub(crate) struct Failing<T> {
    inner: T,
    left: AtomicU64,
}

impl<T> Failing<T> {
    pub(crate) fn at(n: u64, inner: T) -> Self {
        Self { inner, left: AtomicU64::new(n) }
    }

    fn count(&self) -> io::Result<()> {
        let left = self.left.update(Ordering::Relaxed, Ordering::Relaxed, |left| left.saturating_sub(1));
        if left > 1 { Ok(()) } else { Err(io::Error::from_raw_os_error(5)) }
    }
}

impl<T: Target> Target for Failing<T> {
    fn logical_block(&self) -> Bytes {
        self.inner.logical_block()
    }

    fn read(&self, at: Bytes, into: &mut [u8]) -> io::Result<()> {
        self.count()?;
        self.inner.read(at, into)
    }

    fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
        self.count()?;
        self.inner.write(at, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.count()?;
        self.inner.flush()
    }

    fn erase(&self, operation: Operation, extent: Extent) -> io::Result<()> {
        self.count()?;
        self.inner.erase(operation, extent)
    }

    fn drop_caches(&self) -> io::Result<()> {
        self.count()?;
        self.inner.drop_caches()
    }

    fn counters(&self) -> Option<KernelCounters> {
        self.inner.counters()
    }

    fn now(&self) -> Instant {
        self.inner.now()
    }

    fn pause(&self, span: Duration) {
        self.inner.pause(span);
    }

    fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue + '_>> {
        self.count()?;
        self.inner.queue(depth)
    }
}
