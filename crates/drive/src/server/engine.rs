//! Data and flash model together: what each command does, and when it is done.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use trimtab_core::profile::DiscardedReads;
use trimtab_core::stats::{DriveCounters, EraseSpread};
use trimtab_core::{Bytes, Extent, Nanos, Pages};
use trimtab_ftl::{ClosedLoop, Command, Device, GeometryError, Op};

use super::store::Store;
use crate::protocol::{Clock, Latencies, Spec};

/// Why a drive can't be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    #[error("cannot make the store for the drive's data: {0}")]
    Store(#[from] io::Error),
}

/// A drive without a kernel: commands in, data and times out.
///
/// The lock is held for the model's bookkeeping only, never while data is copied.
pub(crate) struct Engine {
    store: Store,
    model: Mutex<Model>,
    page: Bytes,
    honoured: Bytes,
    reads: DiscardedReads,
    /// Makes garbage different at every read.
    garbage: AtomicU64,
}

/// What the model says of itself.
pub(crate) struct Figures {
    pub(crate) effective_spare: f64,
    pub(crate) counters: DriveCounters,
    pub(crate) erase_spread: EraseSpread,
    pub(crate) latency: Latencies,
}

/// The flash model and its time.
struct Model {
    device: Device,
    time: Time,
    clock: Clock,
}

enum Time {
    /// The block device is being set up: nothing counts yet.
    NotStarted,
    /// The host keeps the queue full, in model time.
    Closed(ClosedLoop),
    /// Wall time since `start`, `speed` times as fast.
    Real { start: Instant, speed: f64 },
}

impl Model {
    /// Has the model do `command`; returns when to reply, where that is not at once.
    fn submit(&mut self, command: Command) -> Option<Instant> {
        match &mut self.time {
            Time::NotStarted => None,
            Time::Closed(host) => {
                host.submit(&mut self.device, command);
                None
            }
            Time::Real { start, speed } => {
                let arrival = Nanos::from_seconds(start.elapsed().as_secs_f64() * *speed);
                let done = self.device.submit(arrival, command);
                Some(*start + Duration::from_secs_f64(done.seconds() / *speed))
            }
        }
    }
}

impl Engine {
    pub(crate) fn new(spec: &Spec) -> Result<Self, EngineError> {
        let mut device = Device::new(&spec.profile, spec.size)?;
        if spec.preconditioned {
            device.precondition();
        }
        let store = Store::new(spec.data.as_deref(), spec.size)?;
        Ok(Self {
            store,
            model: Mutex::new(Model { device, time: Time::NotStarted, clock: spec.clock }),
            page: spec.profile.geometry.mapping_page.value,
            honoured: spec.profile.discard.honoured_granularity.value,
            reads: spec.profile.discard.reads.value,
            garbage: AtomicU64::new(0),
        })
    }

    /// From here on commands count and take time.
    pub(crate) fn start(&self, queue_depth: u32) {
        let mut model = self.model();
        model.time = match model.clock {
            Clock::Model => Time::Closed(ClosedLoop::new(queue_depth)),
            Clock::Real { speed } => Time::Real { start: Instant::now(), speed },
        };
    }

    /// A model that panicked has a bug, but its data is not in doubt: go on serving.
    fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads from `at` on into `data`; returns when to reply, where that is not at once.
    pub(crate) fn read(&self, at: Bytes, data: &mut [u8]) -> io::Result<Option<Instant>> {
        let extent = Extent::at(at, Bytes(data.len() as u64));
        let mut unmapped = Vec::new();
        let reply_at = {
            let mut model = self.model();
            if self.reads == DiscardedReads::Garbage {
                unmapped.extend(self.pages_of(extent).filter(|page| !model.device.is_mapped(*page)));
            }
            model.submit(Command { op: Op::Read, extent })
        };
        self.store.read(at, data)?;
        for page in unmapped {
            let start = Bytes(page.0 * self.page.0);
            let from = start.saturating_sub(at).0 as usize;
            let to = ((start + self.page).saturating_sub(at).0 as usize).min(data.len());
            self.fill_with_garbage(&mut data[from..to]);
        }
        Ok(reply_at)
    }

    fn pages_of(&self, extent: Extent) -> impl Iterator<Item = Pages> + use<> {
        (extent.start.0 / self.page.0..extent.end.0.div_ceil(self.page.0)).map(Pages)
    }

    /// Fills `data` with the numbers of splitmix64 (Steele, Lea and Flood, "Fast Splittable
    /// Pseudorandom Number Generators", 2014), from another state each time.
    fn fill_with_garbage(&self, data: &mut [u8]) {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        for word in data.chunks_mut(size_of::<u64>()) {
            let mut z = self.garbage.fetch_add(GAMMA, Ordering::Relaxed);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..word.len()]);
        }
    }

    /// Writes `data` from `at` on; returns when to reply, where that is not at once.
    pub(crate) fn write(&self, at: Bytes, data: &[u8]) -> io::Result<Option<Instant>> {
        self.store.write(at, data)?;
        let extent = Extent::at(at, Bytes(data.len() as u64));
        Ok(self.model().submit(Command { op: Op::Write, extent }))
    }

    /// Discards `extent`; returns when to reply, where that is not at once. The data of a drive
    /// that reads old data after a discard stays: its flash still has it.
    pub(crate) fn discard(&self, extent: Extent) -> io::Result<Option<Instant>> {
        let reply_at = self.model().submit(Command { op: Op::Discard, extent });
        if self.reads != DiscardedReads::Old {
            self.store.punch(extent.aligned_inside(self.honoured))?;
        }
        Ok(reply_at)
    }

    /// Flushes; returns when to reply, where that is not at once. The store needs none: a drive's
    /// data doesn't outlive its server.
    pub(crate) fn flush(&self) -> Option<Instant> {
        let extent = Extent::new(Bytes::ZERO, Bytes::ZERO);
        self.model().submit(Command { op: Op::Flush, extent })
    }

    pub(crate) fn figures(&self) -> Figures {
        let model = self.model();
        let latency = |op| model.device.latency(op);
        Figures {
            effective_spare: model.device.effective_spare(),
            counters: model.device.counters(),
            erase_spread: model.device.erase_spread(),
            latency: Latencies {
                read: latency(Op::Read),
                write: latency(Op::Write),
                discard: latency(Op::Discard),
                flush: latency(Op::Flush),
            },
        }
    }

    /// What the data really takes.
    pub(crate) fn data_held(&self) -> Bytes {
        self.store.held()
    }
}
