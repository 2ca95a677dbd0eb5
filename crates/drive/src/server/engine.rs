//! Data and flash model together: what each command does, and when it is done.
//!
//! A flash model that panics takes no data with it: it is never asked again, reads give what is stored,
//! and all that would change anything fails with an input/output error.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::io::Errno;
use trimtab_core::profile::DiscardedReads;
use trimtab_core::{Bytes, Extent, Pages};
use trimtab_ftl::{Command, Device, GeometryError, Op};
use trimtab_linux::environment::{EnvironmentError, available_memory};
use trimtab_linux::{CGROUPS, PROCFS};

use super::lazy::LazyStore;
use super::model::{Emulated, Figures, Model};
use super::ordering::{RequestNumber, RequestOrder, TIMEOUT};
use super::panics::{Panicked, contained};
use crate::data::Identity;
use crate::protocol::{PathTimes, Spec};

/// Why a drive can't be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    #[error(
        "the flash model of a used drive of {size} with this profile takes {needed} of memory, and {available} are available; \
         choose a smaller size"
    )]
    Memory { size: Bytes, needed: Bytes, available: Bytes },
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error("cannot make the store for the drive's data: {0}")]
    Store(#[from] io::Error),
}

/// The flash model panicked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its flash model failed ({0}): reads give what is stored, all else fails")]
pub(crate) struct ModelFailed(Panicked);

impl From<ModelFailed> for io::Error {
    fn from(_: ModelFailed) -> Self {
        Errno::IO.into()
    }
}

/// The flash model, as long as it works.
struct Guarded {
    model: Box<dyn Emulated>,
    order: RequestOrder,
    failed: Option<ModelFailed>,
}

impl Guarded {
    /// Has the model do `work`, unless it has failed.
    fn run<T>(&mut self, work: impl FnOnce(&mut dyn Emulated) -> T) -> Result<T, ModelFailed> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let model = self.model.as_mut();
        contained(|| work(model)).map_err(|panicked| self.failed.insert(ModelFailed(panicked)).clone())
    }
}

/// A drive without a kernel: commands in, data and times out.
///
/// The lock is held for the model's bookkeeping only, never while data is copied.
pub(crate) struct Engine {
    store: LazyStore,
    model: Mutex<Guarded>,
    /// Told of each request that has come to the model.
    came: Condvar,
    page: Bytes,
    reads: DiscardedReads,
    /// Makes garbage different at every read.
    garbage: AtomicU64,
}

/// The data that a page without data reads as, where it is not the store's.
enum Lie {
    /// Something else at every read.
    Garbage,
    /// The data of this page.
    Other(Pages),
}

impl Engine {
    pub(crate) fn new(spec: &Spec) -> Result<Self, EngineError> {
        let mut device = Device::new(&spec.profile, spec.size)?;
        if spec.preconditioned {
            let available = available_memory(Path::new(PROCFS), Path::new(CGROUPS))?;
            let needed = device.preconditioning_memory();
            if needed > available {
                return Err(EngineError::Memory { size: spec.size, needed, available });
            }
            device.precondition();
        }
        Self::on(Box::new(Model::new(device, spec.clock)), spec)
    }

    /// A drive that behaves as `model` does.
    fn on(model: Box<dyn Emulated>, spec: &Spec) -> Result<Self, EngineError> {
        let store = LazyStore::new(spec.data.as_deref(), spec.size, spec.room)?;
        Ok(Self {
            store,
            model: Mutex::new(Guarded { model, order: RequestOrder::default(), failed: None }),
            came: Condvar::new(),
            page: spec.profile.geometry.mapping_page.value,
            reads: spec.profile.discard.reads.value,
            garbage: AtomicU64::new(0),
        })
    }

    /// From here on commands count and take time.
    pub(crate) fn start(&self, queue_depth: u32, path: PathTimes) -> Result<(), ModelFailed> {
        self.model().run(|model| model.start(queue_depth, path))
    }

    /// A panic of the model doesn't get past [`Guarded::run`], and any other ends the server: nobody meets
    /// a lock that one has poisoned.
    fn model(&self) -> MutexGuard<'_, Guarded> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The model, once those requests that were handed out before this one have come to it.
    fn model_in(&self, number: RequestNumber) -> MutexGuard<'_, Guarded> {
        let mut model = self.model();
        if model.order.is_early(number) {
            let early = |model: &mut Guarded| model.order.is_early(number);
            let (came, waited) =
                self.came.wait_timeout_while(model, TIMEOUT, early).unwrap_or_else(PoisonError::into_inner);
            model = came;
            model.order.waited(waited.timed_out());
        }
        model.order.came(number);
        self.came.notify_all();
        model
    }

    /// Reads from `at` on into `data`; returns when to reply, where that is not at once. Of a drive whose
    /// model has failed, reads what is stored.
    pub(crate) fn read(
        &self,
        number: RequestNumber,
        at: Bytes,
        data: &mut [u8],
    ) -> io::Result<Option<Instant>> {
        let extent = Extent::at(at, Bytes(data.len() as u64));
        let answer = self
            .model_in(number)
            .run(|model| (self.lies_about(extent, model), model.submit(Command { op: Op::Read, extent })));
        let (lies, reply_at) = answer.unwrap_or_default();
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
    fn lies_about(&self, extent: Extent, model: &dyn Emulated) -> Vec<(Pages, Lie)> {
        let unmapped = self.pages_of(extent).filter(|page| !model.is_mapped(*page));
        match self.reads {
            DiscardedReads::Zeros | DiscardedReads::Old => Vec::new(),
            DiscardedReads::Garbage => unmapped.map(|page| (page, Lie::Garbage)).collect(),
            DiscardedReads::Other => {
                let other = model.mapped_from(Pages(extent.end.0.div_ceil(self.page.0)));
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
    pub(crate) fn write(&self, number: RequestNumber, at: Bytes, data: &[u8]) -> io::Result<Option<Instant>> {
        let extent = Extent::at(at, Bytes(data.len() as u64));
        let reply_at = self.model_in(number).run(|model| model.submit(Command { op: Op::Write, extent }))?;
        self.store.write(at, data)?;
        Ok(reply_at)
    }

    /// Discards `extent`; returns when to reply, where that is not at once. The data of a drive
    /// that reads old data after a discard stays: its flash still has it.
    pub(crate) fn discard(
        &self,
        number: RequestNumber,
        extent: Extent,
    ) -> Result<Option<Instant>, ModelFailed> {
        let (honoured, reply_at) = self
            .model_in(number)
            .run(|model| (model.honoured(extent), model.submit(Command { op: Op::Discard, extent })))?;
        if self.reads != DiscardedReads::Old {
            self.store.punch(honoured);
        }
        Ok(reply_at)
    }

    /// Flushes; returns when to reply, where that is not at once. The store needs none: a drive's
    /// data doesn't outlive its server.
    pub(crate) fn flush(&self, number: RequestNumber) -> Result<Option<Instant>, ModelFailed> {
        let extent = Extent::new(Bytes::ZERO, Bytes::ZERO);
        self.model_in(number).run(|model| model.submit(Command { op: Op::Flush, extent }))
    }

    /// Returns the model's figures so far.
    pub(crate) fn figures(&self) -> Result<Figures, ModelFailed> {
        self.model().run(|model| model.figures())
    }

    /// Returns the identity of the data file, where there is one.
    pub(crate) fn data_identity(&self) -> io::Result<Identity> {
        self.store.identity()
    }

    /// Returns whether a write failed because there was no room for its data.
    pub(crate) fn lacked_room(&self) -> bool {
        self.store.lacked_room()
    }

    /// Returns the space that the data really takes.
    pub(crate) fn data_held(&self) -> Bytes {
        self.store.held()
    }
}

#[cfg(test)]
mod failing;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use trimtab_core::Nanos;
    use trimtab_core::profile::{Profile, Sourced};

    use super::*;
    use crate::protocol::{Clock, Room};

    const PAGE: usize = 4096;
    const SECTOR: usize = 512;
    const SIZE: Bytes = Bytes(512 << 20);

    fn profile() -> Profile {
        Profile::named("nvme-tlc").unwrap()
    }

    fn engine(profile: Profile, clock: Clock, path: PathTimes) -> Engine {
        let spec = Spec {
            profile,
            size: SIZE,
            preconditioned: false,
            clock,
            data: None,
            owned: false,
            room: Room::default(),
        };
        let engine = Engine::new(&spec).unwrap();
        engine.start(1, path).unwrap();
        engine
    }

    fn in_model_time(profile: Profile) -> Engine {
        engine(profile, Clock::Model, PathTimes::default())
    }

    fn page(number: u64) -> Extent {
        Extent::at(Bytes(number * PAGE as u64), Bytes(PAGE as u64))
    }

    /// A page in which every sector is another.
    fn content(number: u64) -> Vec<u8> {
        (0..PAGE).map(|at| number as u8 * 16 + (at / SECTOR) as u8 + 1).collect()
    }

    fn write(engine: &Engine, pages: std::ops::Range<u64>) {
        for number in pages {
            engine.write(RequestNumber::default(), page(number).start, &content(number)).unwrap();
        }
    }

    fn read(engine: &Engine, at: usize, length: usize) -> Vec<u8> {
        let mut data = vec![255; length];
        engine.read(RequestNumber::default(), Bytes(at as u64), &mut data).unwrap();
        data
    }

    #[test]
    fn replies_are_due_earlier_by_the_round_trip() {
        const COST: Duration = Duration::from_secs(5);
        const OVERHEAD: Duration = Duration::from_secs(2);
        let mut profile = profile();
        profile.timing.command_overhead.value = Nanos(OVERHEAD.as_nanos() as u64);
        profile.discard.command.value = Nanos(COST.as_nanos() as u64);
        profile.discard.range.value = Nanos::ZERO;
        profile.discard.per_gib.value = Nanos::ZERO;
        let path = PathTimes { transfer: Duration::from_millis(3), discard: Duration::from_millis(7) };
        for speed in [1.0, 0.5] {
            let engine = engine(profile.clone(), Clock::Real { speed }, path);
            let before = Instant::now();
            let discard = engine.discard(RequestNumber::default(), page(0)).unwrap().unwrap();
            let read = engine.read(RequestNumber::default(), Bytes::ZERO, &mut [0; SECTOR]).unwrap().unwrap();
            let after = Instant::now();
            let due = |model: Duration, way: Duration| {
                let rounding = Duration::from_micros(1);
                let least = before + model.div_f64(speed) - way;
                least - rounding..=least + (after - before) + Duration::from_millis(1)
            };
            assert!(due(COST, path.discard).contains(&discard), "{speed}");
            assert!(due(2 * OVERHEAD, path.transfer).contains(&read), "{speed}");
        }
    }

    #[test]
    fn other_data_comes_from_a_mapped_page() {
        let mut liar = profile();
        liar.discard.reads.value = DiscardedReads::Other;
        let engine = in_model_time(liar);
        write(&engine, 0..4);
        engine.discard(RequestNumber::default(), Extent::new(page(1).start, page(2).end)).unwrap();
        let others = [content(0), content(3)];
        for (at, length) in [(PAGE, PAGE), (PAGE + SECTOR, SECTOR), (2 * PAGE - SECTOR, 2 * SECTOR)] {
            for (sector, data) in read(&engine, at, length).chunks(SECTOR).enumerate() {
                let within = (at + sector * SECTOR) % PAGE;
                assert!(others.iter().any(|other| other[within..within + SECTOR] == *data), "{at} {sector}");
            }
        }
        assert_eq!(read(&engine, 0, PAGE), content(0));
        assert_eq!(read(&engine, 3 * PAGE, PAGE), content(3));
        engine.discard(RequestNumber::default(), Extent::new(page(0).start, page(3).end)).unwrap();
        assert_eq!(read(&engine, 0, 4 * PAGE), [0; 4 * PAGE], "no page has data");
    }

    #[test]
    fn an_ignored_discard_leaves_the_data() {
        let mut liar = profile();
        liar.discard.ignored_every = Some(Sourced { value: 3, source: "a test".to_owned() });
        let engine = in_model_time(liar);
        write(&engine, 0..7);
        for number in 0..7 {
            engine.discard(RequestNumber::default(), page(number)).unwrap();
            let expected = if matches!(number, 2 | 5) { content(number) } else { vec![0; PAGE] };
            assert_eq!(read(&engine, number as usize * PAGE, PAGE), expected, "discard {number}");
        }
        assert_eq!(engine.figures().unwrap().counters.discards, 7);
    }
}
