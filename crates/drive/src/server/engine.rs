//! Data and flash model together: what each command does, and when it is done.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use trimtab_core::profile::DiscardedReads;
use trimtab_core::stats::{DriveCounters, EraseSpread};
use trimtab_core::{Bytes, Extent, Pages};
use trimtab_ftl::{Command, Device, GeometryError, Op};

use super::model::Model;
use super::store::Store;
use crate::protocol::{Latencies, PathTimes, Spec};

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
    reads: DiscardedReads,
    /// Makes garbage different at every read.
    garbage: AtomicU64,
}

/// What a page without data reads as, where that is not what the store holds.
enum Lie {
    /// Something else at every read.
    Garbage,
    /// What this page holds.
    Other(Pages),
}

/// What the model says of itself.
pub(crate) struct Figures {
    pub(crate) effective_spare: f64,
    pub(crate) counters: DriveCounters,
    pub(crate) erase_spread: EraseSpread,
    pub(crate) latency: Latencies,
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
            model: Mutex::new(Model::new(device, spec.clock)),
            page: spec.profile.geometry.mapping_page.value,
            reads: spec.profile.discard.reads.value,
            garbage: AtomicU64::new(0),
        })
    }

    /// From here on commands count and take time.
    pub(crate) fn start(&self, queue_depth: u32, path: PathTimes) {
        self.model().start(queue_depth, path);
    }

    /// A model that panicked has a bug, but its data is not in doubt: go on serving.
    fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads from `at` on into `data`; returns when to reply, where that is not at once.
    pub(crate) fn read(&self, at: Bytes, data: &mut [u8]) -> io::Result<Option<Instant>> {
        let extent = Extent::at(at, Bytes(data.len() as u64));
        let (lies, reply_at) = {
            let mut model = self.model();
            (self.lies_about(extent, &model.device), model.submit(Command { op: Op::Read, extent }))
        };
        self.store.read(at, data)?;
        for (page, lie) in lies {
            let start = Bytes(page.0 * self.page.0);
            let from = start.saturating_sub(at).0 as usize;
            let to = ((start + self.page).saturating_sub(at).0 as usize).min(data.len());
            let data = &mut data[from..to];
            match lie {
                Lie::Garbage => self.fill_with_garbage(data),
                Lie::Other(other) => {
                    let within = at.saturating_sub(start);
                    self.store.read(Bytes(other.0 * self.page.0) + within, data)?;
                }
            }
        }
        Ok(reply_at)
    }

    /// The pages of `extent` without data that don't read as what the store holds.
    fn lies_about(&self, extent: Extent, device: &Device) -> Vec<(Pages, Lie)> {
        let unmapped = self.pages_of(extent).filter(|page| !device.is_mapped(*page));
        match self.reads {
            DiscardedReads::Zeros | DiscardedReads::Old => Vec::new(),
            DiscardedReads::Garbage => unmapped.map(|page| (page, Lie::Garbage)).collect(),
            DiscardedReads::Other => {
                let other = device.mapped_from(Pages(extent.end.0.div_ceil(self.page.0)));
                other.map_or(Vec::new(), |other| unmapped.map(|page| (page, Lie::Other(other))).collect())
            }
        }
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
        let (honoured, reply_at) = {
            let mut model = self.model();
            (model.device.honoured(extent), model.submit(Command { op: Op::Discard, extent }))
        };
        if self.reads != DiscardedReads::Old {
            self.store.punch(honoured)?;
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
