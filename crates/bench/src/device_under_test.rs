//! The range of a device that is measured. Every part of a bench writes it, discards it, and runs commands
//! over it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use trimtab_core::document::bench::{Latency, LatencyBucket, LatencyHistogram};
use trimtab_core::erase::{Engine, Operation};
use trimtab_core::{Bytes, Extent};

use super::error::BenchError;
use super::target::{Command, CommandKind, Completion, Queue, Target};
use trimtab_core::interrupt::Interrupt;

/// The writes that lay data down: this large, and this many in flight.
const FILL: (Bytes, u32) = (Bytes::MIB, 8);

/// The least sequential write that tells a device's write rate.
const RATED: Bytes = Bytes(16 << 20);

/// The assumed write rate in bytes a second until a first write was measured: as fast as the slowest flash of
/// today.
const SLOW: f64 = 20e6;

/// The longest wait for a command, or part of a pause, before it checks whether the user pressed Ctrl-C.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A device, and which of its bytes may be written and discarded.
pub(crate) struct DeviceUnderTest<'a> {
    pub(crate) target: &'a dyn Target,
    pub(crate) range: Extent,
    pub(crate) interrupt: &'a Interrupt,
    /// The rate of the last large write, in bytes a second.
    pub(crate) write_rate: f64,
    /// Whether nothing was written since the whole range was discarded.
    pub(crate) blank: bool,
}

/// The times of a row of commands.
pub(crate) struct Measured {
    pub(crate) engine: Engine,
    pub(crate) latencies: Latencies,
    pub(crate) wall: Duration,
    pub(crate) bytes: Bytes,
}

impl<'a> DeviceUnderTest<'a> {
    pub(crate) fn new(target: &'a dyn Target, range: Extent, interrupt: &'a Interrupt) -> Self {
        Self { target, range, interrupt, write_rate: SLOW, blank: false }
    }

    /// Writes all of `extents`, one after the other, and flushes.
    pub(crate) fn fill(&mut self, extents: &[Extent]) -> Result<(), BenchError> {
        let (size, depth) = FILL;
        self.blank = false;
        let begun = self.target.now();
        let writes = extents.iter().flat_map(|extent| pieces(*extent, size));
        let commands = writes.map(|extent| Command { kind: CommandKind::Write, extent });
        let bytes = self.run(depth, commands, None)?.bytes;
        self.flush()?;
        if bytes >= RATED && extents.len() == 1 {
            self.write_rate = bytes.0 as f64 / (self.target.now() - begun).as_secs_f64().max(1e-9);
        }
        Ok(())
    }

    /// Writes the first bytes of the range, to know how long laying data down takes.
    pub(crate) fn measure_write_rate(&mut self) -> Result<(), BenchError> {
        self.fill(&[Extent::at(self.range.start, RATED.min(self.range.len()))])
    }

    /// Brings what was written to stable storage.
    pub(crate) fn flush(&self) -> Result<(), BenchError> {
        self.target.flush().map_err(BenchError::device("flush"))
    }

    /// Sends nothing for `span`, unless the user presses Ctrl-C.
    pub(crate) fn pause(&self, span: Duration) -> Result<(), BenchError> {
        let mut left = span;
        while !left.is_zero() {
            self.interrupt.check()?;
            let piece = left.min(POLL_INTERVAL);
            self.target.pause(piece);
            left -= piece;
        }
        Ok(())
    }

    /// Discards all of `extent`, in pieces that the user's Ctrl-C can come between.
    pub(crate) fn discard(&mut self, extent: Extent) -> Result<(), BenchError> {
        for piece in pieces(extent, Bytes::GIB) {
            self.interrupt.check()?;
            let failed = BenchError::io(CommandKind::Erase(Operation::Discard), piece);
            self.target.erase(Operation::Discard, piece).map_err(failed)?;
        }
        self.blank |= extent == self.range;
        Ok(())
    }

    /// Keeps `depth` of `commands` in flight until they are all done, or until `deadline`, from
    /// when on no more are sent than fit into the queue once.
    pub(crate) fn run(
        &self,
        depth: u32,
        commands: impl Iterator<Item = Command>,
        deadline: Option<Instant>,
    ) -> Result<Measured, BenchError> {
        let mut flight = Flight::new(self, depth)?;
        let mut kind = CommandKind::Read;
        let mut latencies = Latencies::new();
        let mut bytes = Bytes::ZERO;
        let begun = self.target.now();
        let mut commands = commands.peekable();
        let in_time = |sent| sent < u64::from(depth) || deadline.is_none_or(|at| Instant::now() < at);
        while let Some(command) = commands.next_if(|_| in_time(flight.sent)) {
            if flight.is_full() {
                latencies.record(flight.next()?.latency);
            }
            kind = command.kind;
            bytes += command.extent.len();
            flight.send(command)?;
        }
        while !flight.is_empty() {
            latencies.record(flight.next()?.latency);
        }
        // Asked at the end: a ring may have turned out not to take them.
        let engine = flight.engine(kind);
        Ok(Measured { engine, latencies, wall: self.target.now() - begun, bytes })
    }
}

impl Measured {
    /// Adds another row of the same commands.
    pub(crate) fn add(&mut self, other: &Self) {
        self.latencies.add(&other.latencies);
        self.wall += other.wall;
        self.bytes += other.bytes;
    }
}

/// Commands in flight, so that one that fails can be named.
pub(crate) struct Flight<'a> {
    target: &'a dyn Target,
    queue: Box<dyn Queue + 'a>,
    depth: u32,
    interrupt: &'a Interrupt,
    commands: HashMap<u64, Command>,
    sent: u64,
}

impl<'a> Flight<'a> {
    pub(crate) fn new(tested: &DeviceUnderTest<'a>, depth: u32) -> Result<Self, BenchError> {
        let queue = tested.target.queue(depth).map_err(BenchError::device("queue commands to"))?;
        let DeviceUnderTest { target, interrupt, .. } = *tested;
        Ok(Self { target, queue, depth, interrupt, commands: HashMap::new(), sent: 0 })
    }

    /// How commands of kind `kind` are kept in flight.
    pub(crate) fn engine(&self, kind: CommandKind) -> Engine {
        self.queue.engine(kind)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.commands.len() as u32 >= self.depth
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Sends `command` and returns its number.
    pub(crate) fn send(&mut self, command: Command) -> Result<u64, BenchError> {
        self.interrupt.check()?;
        let tag = self.sent;
        self.sent += 1;
        self.queue.submit(tag, command).map_err(BenchError::io(command.kind, command.extent))?;
        self.commands.insert(tag, command);
        Ok(tag)
    }

    /// Waits for a command to end.
    pub(crate) fn next(&mut self) -> Result<Ended, BenchError> {
        loop {
            if let Some(ended) = self.next_until(self.target.now() + POLL_INTERVAL)? {
                return Ok(ended);
            }
            self.interrupt.check()?;
        }
    }

    /// Sends `command`, waits for all in flight, and returns how long this one took.
    pub(crate) fn latency_of(&mut self, command: Command) -> Result<Duration, BenchError> {
        let tag = self.send(command)?;
        let mut latency = Duration::ZERO;
        while !self.is_empty() {
            let ended = self.next()?;
            if ended.tag == tag {
                latency = ended.latency;
            }
        }
        Ok(latency)
    }

    /// Waits for a command to end, but no longer than until `until` by the target's clock.
    pub(crate) fn next_until(&mut self, until: Instant) -> Result<Option<Ended>, BenchError> {
        if self.is_empty() {
            self.target.pause(until.saturating_duration_since(self.target.now()));
            return Ok(None);
        }
        let waited = self.queue.wait(Some(until)).map_err(BenchError::device("wait for commands of"))?;
        let Some(Completion { tag, latency, at, result }) = waited else { return Ok(None) };
        let command = self.commands.remove(&tag).expect("only what was sent comes back");
        result.map_err(BenchError::io(command.kind, command.extent))?;
        Ok(Some(Ended { tag, latency, at }))
    }
}

/// A command that ended well.
pub(crate) struct Ended {
    pub(crate) tag: u64,
    pub(crate) latency: Duration,
    pub(crate) at: Instant,
}

/// `extent` in pieces of `size`; the last may be shorter.
pub(crate) fn pieces(extent: Extent, size: Bytes) -> impl Iterator<Item = Extent> {
    (extent.start.0..extent.end.0)
        .step_by(size.0 as usize)
        .map(move |start| Extent::new(Bytes(start), (Bytes(start) + size).min(extent.end)))
}

/// Latencies as they come in: an HDR histogram of three digits.
#[derive(Clone)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Self {
        Self(Histogram::new(3).expect("three digits are possible"))
    }

    pub(crate) fn record(&mut self, latency: Duration) {
        self.0.record(latency.as_nanos() as u64).expect("a histogram that resizes holds all");
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("a histogram that resizes holds all");
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    pub(crate) fn median_us(&self) -> f64 {
        self.0.value_at_quantile(0.5) as f64 / 1e3
    }

    pub(crate) fn summary(&self) -> Latency {
        let buckets = self.0.iter_recorded();
        let buckets = buckets
            .map(|value| LatencyBucket { ns: value.value_iterated_to(), count: value.count_at_value() });
        Latency::of(LatencyHistogram(buckets.collect()))
    }
}
