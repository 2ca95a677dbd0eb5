//! A whole drive in model time: the mapping, the flash array, and what lies before them.
//!
//! Every command first takes the controller for the command overhead, one after the other.
//! A **write** crosses the link and is done when all of it is in the write buffer; a page leaves
//! the buffer when it is programmed. Garbage collection runs in the foreground: its reads,
//! programs and erases occupy the dies, and the host feels them when the buffer is full. A
//! **read** waits for its dies like everything else, and is done when it has crossed the link;
//! pages without data cost no flash. A **flush** waits until all that was written is on flash. A
//! **discard** that isn't queued begins when every command before it is done, and no other begins
//! before its end; queued discards only wait for each other, as many at a time as the drive works on. Its cost, as the host sees it, includes
//! the command overhead. Only whole aligned grains are unmapped, and none by a discard that the
//! drive ignores. Each honoured range leaves an entry of mapping journal, and full pages of journal
//! are programmed after it. A discard may take a share of every die until its end. A drive that is lazy spends the time of a discard's bytes after its end, and takes
//! a share of every die for it. Partial pages are read and written as whole ones.
//!
//! A drive whose memory holds only a part of the **map** first brings the entries there that a command needs. A
//! read waits for them; a write is in the buffer meanwhile and is programmed later; a discard is done no
//! earlier, unless the drive is lazy. What leaves the memory goes through the write buffer.
//!
//! A drive whose profile says so cleans blocks and folds its cache **while it idles**: from some time after
//! the last command was done until the next one arrives, which waits for the operations that its dies have
//! begun. Writes go to the **cache** as long as it has room.

use std::ops::Range;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::profile::{Aging, Discard, Profile};
use trimtab_core::stats::{DriveCounters, EraseSpread, LatencySummary};
use trimtab_core::{Bytes, Extent, Nanos, Pages};

use crate::background::Background;
use crate::command::{Command, Op};
use crate::controller::{CommandSender, Controller, PageWrites};
use crate::discards::{Outstanding, Unmapped};
use crate::flash::Untimed;
use crate::geometry::{FtlConfig, GeometryError};
use crate::map_cache::{MapCache, Use};
use crate::mapping::{CacheConfig, Ftl, Totals, WearConfig};

/// Seeds the random writes that age a drive.
const AGING_SEED: u64 = 1;
/// Pages written at a time, so that their cache misses overlap.
const BATCH: usize = 256;

/// The random writes of an aged drive of `size`, in pages.
fn aging_pages(aging: &Aging, size: Bytes, page: Bytes) -> u64 {
    (aging.random_writes.value * (size.0 / page.0) as f64).ceil() as u64
}

/// The pages of `2^page_shift` bytes that an extent touches.
fn pages(extent: Extent, page_shift: u32) -> Range<u32> {
    let start = extent.start.0 >> page_shift;
    let end = if extent.is_empty() { start } else { ((extent.end.0 - 1) >> page_shift) + 1 };
    start as u32..end as u32
}

/// An emulated drive: flash model and timing, from one profile.
///
/// ```
/// use trimtab_core::profile::Profile;
/// use trimtab_core::{Bytes, Extent, Nanos};
/// use trimtab_ftl::{Command, Device, Op};
///
/// let mut drive = Device::new(&Profile::named("samsung-870-evo")?, Bytes(256 << 20))?;
/// let extent = Extent::at(Bytes::ZERO, Bytes::MIB * 8);
/// let written = drive.submit(Nanos::ZERO, Command { op: Op::Write, extent });
/// assert_eq!(drive.mapped(), Bytes::MIB * 8);
///
/// let discarded = drive.submit(written, Command { op: Op::Discard, extent });
/// assert!(discarded > written, "a discard takes model time");
/// assert_eq!(drive.mapped(), Bytes::ZERO);
/// assert_eq!(drive.counters().discards, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Device {
    size: Bytes,
    page: Bytes,
    /// The power of two that a page is.
    page_shift: u32,
    ftl: Ftl,
    controller: Controller,
    /// The part of the map in memory, where that is not all of it.
    map: Option<MapCache>,
    /// The work that it does while no command is under way.
    background: Option<Background>,
    discard: Discard,
    flush: Nanos,
    outstanding: Outstanding,
    journal: Bytes,
    counters: DriveCounters,
    /// The flash's totals before the first command.
    preconditioned: Totals,
    /// The random writes of an aged drive, in pages.
    aging: u64,
    seed: u64,
}

impl Device {
    /// A drive of `size` bytes that behaves as the profile says, with nothing written. The profile
    /// keeps the rules of [`Profile::parse`]: pages are powers of two, units hold whole pages.
    ///
    /// # Errors
    /// If a drive of this size can't work with the profile's geometry.
    pub fn new(profile: &Profile, size: Bytes) -> Result<Self, GeometryError> {
        Self::seeded(profile, size, 0)
    }

    /// As [`new`](Self::new), with the seed of its draws: where an aged drive was written, how long blocks last, and
    /// the victims of garbage collection that draws them.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn seeded(profile: &Profile, size: Bytes, seed: u64) -> Result<Self, GeometryError> {
        let page = profile.geometry.mapping_page.value;
        Ok(Self {
            size,
            page,
            page_shift: page.0.trailing_zeros(),
            ftl: Ftl::of_drive(
                &FtlConfig { seed, ..FtlConfig::of_drive(profile, size)? },
                FtlConfig::pages_of(profile),
                CacheConfig::of_drive(profile, size),
                WearConfig::of_drive(profile),
            )?,
            controller: Controller::new(profile),
            map: MapCache::new(profile, size),
            background: Background::new(profile, size),
            discard: profile.discard.clone(),
            flush: profile.timing.flush.value,
            outstanding: Outstanding::new(&profile.discard),
            journal: Bytes::ZERO,
            counters: DriveCounters::default(),
            preconditioned: Totals::default(),
            seed,
            aging: profile.aging.as_ref().map_or(0, |aging| aging_pages(aging, size, page)),
        })
    }

    /// Makes a new drive a used one: every page is written twice, in sequence, as the workload
    /// independent preconditioning of the SNIA Performance Test Specification does, and a cache is folded. A drive
    /// whose profile says so ages: pages drawn from all are written then, as the workload dependent
    /// preconditioning does. It takes no model time, and only the erase spread counts it.
    ///
    /// A new drive without a cache and without a map on the flash takes time and memory by its blocks for that, not by
    /// its pages, unless it ages.
    pub fn precondition(&mut self) {
        let pages = (self.size.0 / self.page.0) as u32;
        if !self.ftl.fill_twice() {
            self.write_twice(pages);
        }
        self.age(pages);
        self.preconditioned = self.ftl.totals();
    }

    /// The memory that the tables take when [`precondition`](Self::precondition) writes every page; none for a drive
    /// that takes memory by its blocks for that.
    pub fn preconditioning_memory(&self) -> Bytes {
        if self.ftl.fills_by_blocks() && self.aging == 0 {
            return Bytes::ZERO;
        }
        Bytes(self.ftl.whole_tables() as u64)
    }

    /// Writes every page twice in sequence, and folds the cache.
    fn write_twice(&mut self, pages: u32) {
        self.ftl.expect_many_writes();
        let stretch = self.map.as_ref().map_or(pages, MapCache::entries);
        for _ in 0..2 {
            for first in (0..pages).step_by(stretch as usize) {
                self.ftl.write(0, first, stretch.min(pages - first), &mut Untimed);
                if self.map.is_some() {
                    self.ftl.write_map_page(first / stretch, &mut Untimed);
                }
            }
        }
        self.ftl.empty_cache(&mut Untimed);
    }

    /// Writes pages at random, as long as the profile says, and then each page of the map.
    fn age(&mut self, pages: u32) {
        if self.aging == 0 {
            return;
        }
        self.ftl.expect_many_writes();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(AGING_SEED.wrapping_add(self.seed));
        let (mut left, mut batch) = (self.aging, Vec::with_capacity(BATCH));
        while left > 0 {
            batch.clear();
            batch.extend((0..left.min(BATCH as u64)).map(|_| rng.random_range(0..pages)));
            self.ftl.write_each(0, &batch, &mut Untimed);
            left -= batch.len() as u64;
        }
        if let Some(map) = &self.map {
            (0..pages.div_ceil(map.entries())).for_each(|page| self.ftl.write_map_page(page, &mut Untimed));
        }
        self.ftl.empty_cache(&mut Untimed);
    }

    /// Hands a command to the drive at `arrival`; returns when it is done. Commands are handed
    /// over in the order of their arrival.
    ///
    /// # Panics
    /// If the extent reaches past the drive's end.
    pub fn submit(&mut self, arrival: Nanos, command: Command) -> Nanos {
        let Command { op, extent } = command;
        assert!(op == Op::Flush || extent.end <= self.size, "{extent} is past the drive's {}", self.size);
        self.idle_until(arrival);
        let done = match op {
            Op::Read => self.read(arrival, extent),
            Op::Write => self.write(arrival, extent),
            Op::Discard => self.discard(arrival, &[extent]),
            Op::Flush => self.flush(arrival),
        };
        self.controller.finish(op, arrival, done);
        done
    }

    /// Hands a discard of several extents, one command, to the drive at `arrival`; returns when it is done. See
    /// [`submit`](Self::submit).
    ///
    /// # Panics
    /// If an extent reaches past the drive's end.
    pub fn discard_extents(&mut self, arrival: Nanos, extents: &[Extent]) -> Nanos {
        let past = extents.iter().find(|extent| extent.end > self.size);
        assert_eq!(past, None, "an extent is past the drive's {}", self.size);
        self.idle_until(arrival);
        let done = self.discard(arrival, extents);
        self.controller.finish(Op::Discard, arrival, done);
        done
    }

    /// Does what the drive does while it idles, from when the last command was done until `arrival`.
    fn idle_until(&mut self, arrival: Nanos) {
        if let Some(background) = &mut self.background {
            let done = self.controller.all_done();
            background.run(&mut self.ftl, self.controller.array(), done, arrival);
        }
    }

    /// Forgets whole mapping pages that hold nothing of use, at no cost in time, commands or journal: no drive
    /// can, but [`replay`](crate::replay)'s bound does.
    pub(crate) fn forget(&mut self, extent: Extent) {
        let pages = self.pages(extent);
        self.ftl.discard(pages.start, pages.len() as u32);
    }

    /// The power of two that a mapping page is.
    pub(crate) fn page_shift(&self) -> u32 {
        self.page_shift
    }

    /// Takes commands from `host` that write one page each, as [`submit`](Self::submit) would take
    /// them one by one.
    pub(crate) fn write_pages(&mut self, host: &mut impl CommandSender, commands: &[Command]) {
        let pages: Vec<_> = commands.iter().map(|command| self.pages(command.extent).start).collect();
        if self.background.is_some() || self.map.is_some() {
            // The drive may idle between any two of them, and each needs its own page of the map.
            self.ftl.touch(pages.into_iter());
            for command in commands {
                let done = self.submit(host.send(), *command);
                host.finish(done);
            }
            return;
        }
        self.counters.writes += commands.len() as u64;
        self.counters.write_bytes += commands.iter().map(|command| command.extent.len()).sum::<Bytes>();
        self.ftl.write_each(0, &pages, &mut PageWrites::new(host, &mut self.controller));
    }

    /// Touches what commands that begin at these places will need, as [`Ftl::touch`] does.
    pub(crate) fn touch(&self, starts: impl Iterator<Item = Bytes>) {
        self.ftl.touch(starts.map(|start| (start.0 >> self.page_shift) as u32));
    }

    /// The drive's size.
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// Returns the bytes that it holds data for, in whole mapping pages.
    pub fn mapped(&self) -> Bytes {
        Bytes(self.ftl.mapped().0 * self.page.0)
    }

    /// Whether a mapping page has data.
    ///
    /// # Panics
    /// If the drive has no such page.
    pub fn is_mapped(&self, page: Pages) -> bool {
        self.ftl.is_mapped(page)
    }

    /// A mapping page with data: the first from `page` on, past the drive's end from its start on.
    ///
    /// # Panics
    /// If the drive has no page before `page`.
    pub fn mapped_from(&self, page: Pages) -> Option<Pages> {
        self.ftl.mapped_from(page)
    }

    /// Returns the part of `extent` that the next discard would unmap: whole aligned grains, or nothing where
    /// it is one that the drive ignores.
    pub fn honoured(&self, extent: Extent) -> Extent {
        let ignored_every = self.discard.ignored_every.as_ref();
        if ignored_every.is_some_and(|every| (self.counters.discards + 1).is_multiple_of(every.value.into()))
        {
            return Extent::new(extent.start, extent.start);
        }
        extent.aligned_inside(self.discard.honoured_granularity.value)
    }

    /// The effective spare factor, as [`FtlConfig::effective_spare`] defines it.
    pub fn effective_spare(&self) -> f64 {
        self.ftl.config().effective_spare()
    }

    /// Returns its totals so far; the model time is when the last command was done.
    pub fn counters(&self) -> DriveCounters {
        let totals = self.ftl.totals().since(&self.preconditioned);
        DriveCounters {
            model_ns: self.controller.all_done(),
            host_pages: totals.host,
            copied_pages: totals.copied + totals.folded,
            journal_pages: totals.journal,
            map_pages: totals.map,
            map_reads: self.map.as_ref().map_or(0, MapCache::reads),
            erases: totals.erases,
            ..self.counters.clone()
        }
    }

    /// How erases spread over its blocks.
    pub fn erase_spread(&self) -> EraseSpread {
        self.ftl.erase_spread()
    }

    /// How long commands of this kind took, from arrival to done.
    pub fn latency(&self, op: Op) -> LatencySummary {
        self.controller.latency(op)
    }

    /// The memory that the maps of the model hold, in bytes a physical page: of large tables, the part that was
    /// written.
    pub fn bytes_per_page(&self) -> f64 {
        let memory = self.ftl.memory() + self.map.as_ref().map_or(0, MapCache::memory);
        memory as f64 / self.ftl.physical_pages() as f64
    }

    /// The mapping behind it.
    pub fn ftl(&self) -> &Ftl {
        &self.ftl
    }

    fn read(&mut self, arrival: Nanos, extent: Extent) -> Nanos {
        self.counters.reads += 1;
        self.counters.read_bytes += extent.len();
        let pages = self.pages(extent);
        let start = self.controller.begin(arrival);
        let start = self.look_up(start, Use::Read, pages.clone());
        let count = pages.len() as u64;
        self.controller.read(start, count, pages.filter_map(|page| self.ftl.physical_page(page)))
    }

    fn write(&mut self, arrival: Nanos, extent: Extent) -> Nanos {
        self.counters.writes += 1;
        self.counters.write_bytes += extent.len();
        let pages = self.pages(extent);
        self.controller.begin_write(arrival);
        if self.map.is_some() {
            let known = self.look_up(self.controller.now(), Use::Change, pages.clone());
            self.controller.map_is_known(known);
        }
        self.ftl.write(0, pages.start, pages.len() as u32, &mut self.controller);
        self.controller.end_write()
    }

    /// Brings the map of these pages into memory from `start`; returns when it is there.
    #[inline]
    fn look_up(&mut self, start: Nanos, how: Use, pages: Range<u32>) -> Nanos {
        let Some(map) = &mut self.map else { return start };
        map.bring(&mut self.ftl, &mut self.controller, start, (how, pages))
    }

    fn discard(&mut self, arrival: Nanos, extents: &[Extent]) -> Nanos {
        let unmapped = self.count_and_unmap(arrival, extents);
        let done = self.hold_for_discard(arrival, extents, unmapped);
        self.write_journal(unmapped.ranges, done);
        done
    }

    /// Spends the time of a discard with this effect, and changes nothing that the drive holds; returns when it
    /// is done. The work that a lazy drive does afterwards begins then.
    #[inline]
    fn hold_for_discard(&mut self, arrival: Nanos, extents: &[Extent], unmapped: Unmapped) -> Nanos {
        let cost = self.discard.time_of_extents(extents.iter().map(|extent| extent.len()), unmapped.bytes);
        let queued = self.discard.queued.value;
        let dealt_with =
            self.controller.begin(if queued { arrival } else { arrival.max(self.controller.all_done()) });
        let taken = dealt_with - self.controller.overhead();
        let known = if self.discard.lazy_share.is_some() { Nanos::ZERO } else { unmapped.known };
        let ends = self.outstanding.add(taken, cost);
        let done = ends.max(dealt_with).max(known);
        if !queued {
            self.controller.hold(done);
        }
        if let Some(share) = &self.discard.lazy_share {
            let length = extents.iter().map(|extent| extent.len()).sum();
            let work = self.discard.work(length, unmapped.bytes);
            self.controller.array().add_work(work, share.value, done);
        }
        if let Some(share) = &self.discard.busy_share {
            let work = Nanos::from_seconds(cost.seconds() * share.value);
            self.controller.array().add_work(work, share.value, ends - cost);
        }
        self.counters.discard_busy_ns += cost;
        done
    }

    /// Lets a discard take effect at `at`, apart from its time; returns the effect.
    pub(crate) fn let_discard_take_effect(&mut self, at: Nanos, extent: Extent) -> Unmapped {
        self.idle_until(at);
        let unmapped = self.count_and_unmap(at, &[extent]);
        self.write_journal(unmapped.ranges, at);
        unmapped
    }

    /// Spends the time of a discard that comes at `arrival` and had this effect before; returns when it is done.
    pub(crate) fn spend_discard(&mut self, arrival: Nanos, extent: Extent, unmapped: Unmapped) -> Nanos {
        self.idle_until(arrival);
        let done = self.hold_for_discard(arrival, &[extent], unmapped);
        self.controller.finish(Op::Discard, arrival, done);
        done
    }

    /// Counts a discard that comes at `arrival` and unmaps the whole grains of it; brings the map of them into
    /// memory from then on.
    #[inline]
    fn count_and_unmap(&mut self, arrival: Nanos, extents: &[Extent]) -> Unmapped {
        let length = extents.iter().map(|extent| extent.len()).sum();
        let alone = if self.discard.queued.value { arrival } else { arrival.max(self.controller.all_done()) };
        let begun = alone + self.controller.overhead();
        let mut unmapped = Unmapped { known: begun, ..Unmapped::default() };
        for extent in extents {
            let honoured = self.honoured(*extent);
            let pages = self.pages(honoured);
            unmapped.bytes += self.page * self.ftl.discard(pages.start, pages.len() as u32).0;
            unmapped.ranges += honoured.len().0.div_ceil(self.discard.range_limit.value.0);
            unmapped.known = unmapped.known.max(self.look_up(begun, Use::Change, pages));
        }
        self.counters.discards += 1;
        self.counters.discard_bytes += length;
        self.counters.discard_sizes.record(length);
        unmapped
    }

    /// Programs the journal that this many ranges fill at `done`: no more pages than they have, or those of one
    /// entry, as a range's entry is no larger than the range.
    fn write_journal(&mut self, ranges: u64, done: Nanos) {
        self.journal += self.discard.journal_per_range.value * ranges;
        while self.journal >= self.page {
            self.journal -= self.page;
            self.controller.begin_own(done);
            self.ftl.write_journal(&mut self.controller);
        }
    }

    fn flush(&mut self, arrival: Nanos) -> Nanos {
        self.counters.flushes += 1;
        self.controller.begin(arrival).max(self.controller.flushed()) + self.flush
    }

    /// The mapping pages that an extent touches.
    fn pages(&self, extent: Extent) -> Range<u32> {
        pages(extent, self.page_shift)
    }
}
