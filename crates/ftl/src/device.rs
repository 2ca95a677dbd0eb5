//! A whole drive in model time: the mapping, the flash array, and what lies before them.
//!
//! Every command first takes the controller for the command overhead, one after the other.
//! A **write** crosses the link and is done when all of it is in the write buffer; a page leaves
//! the buffer when it is programmed. Garbage collection runs in the foreground: its reads,
//! programs and erases occupy the dies, and the host feels them when the buffer is full. A
//! **read** waits for its dies like everything else, and is done when it has crossed the link;
//! pages without data cost no flash. A **flush** waits until all that was written is on flash. A
//! **discard** that isn't queued begins when every command before it is done, and no other begins
//! before its end; queued discards only wait for each other. Only whole aligned grains are
//! unmapped. Each honoured range leaves an entry of mapping journal, and full pages of journal are
//! programmed after it. Partial pages are read and written as whole ones.

use std::ops::Range;

use hdrhistogram::Histogram;
use trimtab_core::profile::{Discard, Profile};
use trimtab_core::stats::{DriveCounters, EraseSpread, LatencySummary};
use trimtab_core::{Bytes, Extent, Nanos, Pages};

use crate::array::{Array, Unit};
use crate::buffer::WriteBuffer;
use crate::flash::{Cause, Flash, Untimed};
use crate::geometry::{FtlConfig, GeometryError};
use crate::mapping::{Ftl, Totals};

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Reads its extent.
    Read,
    /// Writes its extent.
    Write,
    /// Tells the drive that its extent holds nothing of use.
    Discard,
    /// Brings all that was written to flash; its extent doesn't matter.
    Flush,
}

/// A command to a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    /// What it does.
    pub op: Op,
    /// The bytes it names, inside the drive.
    pub extent: Extent,
}

/// An emulated drive: flash model and timing, from one profile.
pub struct Device {
    size: Bytes,
    page: Bytes,
    /// The power of two that a page is.
    page_shift: u32,
    ftl: Ftl,
    backend: Backend,
    discard: Discard,
    overhead: Nanos,
    flush: Nanos,
    link_read_page: Nanos,
    /// When the controller can begin the next command.
    controller: Nanos,
    link_read: Nanos,
    link_write: Nanos,
    /// When the last discard ends.
    discarded: Nanos,
    /// When every command so far is done.
    all_done: Nanos,
    journal: Bytes,
    counters: DriveCounters,
    /// What the flash had done before the first command.
    preconditioned: Totals,
    latencies: [Histogram<u64>; 4],
}

impl Device {
    /// A drive of `size` bytes that behaves as the profile says, with nothing written.
    ///
    /// # Errors
    /// If a drive of this size can't work with the profile's geometry.
    pub fn new(profile: &Profile, size: Bytes) -> Result<Self, GeometryError> {
        let (page, timing) = (profile.geometry.mapping_page.value, &profile.timing);
        Ok(Self {
            size,
            page,
            page_shift: page.0.trailing_zeros(),
            ftl: Ftl::new(&FtlConfig::of_drive(profile, size)?)?,
            backend: Backend {
                array: Array::new(profile),
                buffer: WriteBuffer::new(Pages(timing.write_buffer.value.0 / page.0)),
                link_page: timing.link_write_rate.value.time_for(page),
                now: Nanos::ZERO,
                collected: Nanos::ZERO,
                host_unit: Unit::default(),
                copy_unit: Unit::default(),
            },
            discard: profile.discard.clone(),
            overhead: timing.command_overhead.value,
            flush: timing.flush.value,
            link_read_page: timing.link_read_rate.value.time_for(page),
            controller: Nanos::ZERO,
            link_read: Nanos::ZERO,
            link_write: Nanos::ZERO,
            discarded: Nanos::ZERO,
            all_done: Nanos::ZERO,
            journal: Bytes::ZERO,
            counters: DriveCounters::default(),
            preconditioned: Totals::default(),
            latencies: std::array::from_fn(|_| latency_histogram()),
        })
    }

    /// Makes a new drive a used one: every page is written twice, in sequence, as the workload
    /// independent preconditioning of the SNIA Performance Test Specification does. It takes no
    /// model time, and only the erase spread counts it.
    pub fn precondition(&mut self) {
        let pages = (self.size.0 / self.page.0) as u32;
        for _ in 0..2 {
            self.ftl.write(0, 0, pages, &mut Untimed);
        }
        self.preconditioned = self.ftl.totals();
    }

    /// Hands a command to the drive at `arrival`; returns when it is done. Commands are handed
    /// over in the order of their arrival.
    ///
    /// # Panics
    /// If the extent reaches past the drive's end.
    pub fn submit(&mut self, arrival: Nanos, command: Command) -> Nanos {
        let Command { op, extent } = command;
        assert!(op == Op::Flush || extent.end <= self.size, "{extent} is past the drive's {}", self.size);
        let done = match op {
            Op::Read => self.read(arrival, extent),
            Op::Write => self.write(arrival, extent),
            Op::Discard => self.discard(arrival, extent),
            Op::Flush => self.flush(arrival),
        };
        self.all_done = self.all_done.max(done);
        self.latencies[op as usize].saturating_record((done - arrival).0);
        done
    }

    /// Touches the mapping entries where these commands begin, which changes nothing.
    pub(crate) fn touch(&self, commands: &[Command]) {
        self.ftl.touch(commands.iter().map(|command| self.pages(command.extent).start));
    }

    /// The drive's size.
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// Whether a mapping page has data.
    pub fn is_mapped(&self, page: Pages) -> bool {
        self.ftl.is_mapped(page)
    }

    /// The effective spare factor, as [`FtlConfig::effective_spare`] defines it.
    pub fn effective_spare(&self) -> f64 {
        self.ftl.config().effective_spare()
    }

    /// What it did so far; the model time is when the last command was done.
    pub fn counters(&self) -> DriveCounters {
        let totals = self.ftl.totals().since(&self.preconditioned);
        DriveCounters {
            model_ns: self.all_done,
            host_pages: totals.host,
            copied_pages: totals.copied,
            journal_pages: totals.journal,
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
        let latencies = &self.latencies[op as usize];
        let at = |quantile| Nanos(latencies.value_at_quantile(quantile));
        LatencySummary {
            count: latencies.len(),
            min_ns: Nanos(latencies.min()),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: Nanos(latencies.max()),
        }
    }

    /// The mapping behind it.
    pub fn ftl(&self) -> &Ftl {
        &self.ftl
    }

    fn read(&mut self, arrival: Nanos, extent: Extent) -> Nanos {
        self.counters.reads += 1;
        self.counters.read_bytes += extent.len();
        let start = self.begin(arrival);
        let pages = self.pages(extent);
        let crossed = self.link_read.max(start) + Nanos(self.link_read_page.0 * pages.len() as u64);
        self.link_read = crossed;
        let physical = pages.filter_map(|page| self.ftl.physical_page(page));
        let out = self.backend.array.read(physical, start);
        crossed.max(out + self.link_read_page)
    }

    fn write(&mut self, arrival: Nanos, extent: Extent) -> Nanos {
        self.counters.writes += 1;
        self.counters.write_bytes += extent.len();
        let start = self.begin(arrival);
        let pages = self.pages(extent);
        self.backend.now = self.link_write.max(start);
        self.ftl.write(0, pages.start, pages.len() as u32, &mut self.backend);
        self.link_write = self.backend.now;
        self.link_write
    }

    fn discard(&mut self, arrival: Nanos, extent: Extent) -> Nanos {
        let Discard { command, range, per_gib, range_limit, queued, .. } = &self.discard;
        let ranges = extent.len().0.div_ceil(range_limit.value.0);
        let cost = command.value
            + Nanos(range.value.0 * ranges)
            + Nanos::from_seconds(per_gib.value.seconds() * extent.len().gib());
        let queued = queued.value;
        let begun = self.begin(if queued { arrival } else { arrival.max(self.all_done) });
        let done = begun.max(self.discarded) + cost;
        self.discarded = done;
        if !queued {
            self.controller = done;
        }
        self.counters.discards += 1;
        self.counters.discard_bytes += extent.len();
        self.counters.discard_sizes.record(extent.len());
        self.counters.discard_busy_ns += cost;
        self.unmap(extent, done);
        done
    }

    /// Unmaps the whole grains of an extent, and programs the journal that this fills at `done`.
    fn unmap(&mut self, extent: Extent, done: Nanos) {
        let honoured = extent.aligned_inside(self.discard.honoured_granularity.value);
        let pages = self.pages(honoured);
        self.ftl.discard(pages.start, pages.len() as u32);
        let ranges = honoured.len().0.div_ceil(self.discard.range_limit.value.0);
        self.journal += Bytes(self.discard.journal_per_range.value.0 * ranges);
        while self.journal >= self.page {
            self.journal -= self.page;
            self.backend.now = done;
            self.ftl.write_journal(&mut self.backend);
        }
    }

    fn flush(&mut self, arrival: Nanos) -> Nanos {
        self.counters.flushes += 1;
        self.begin(arrival).max(self.backend.buffer.empty_at()) + self.flush
    }

    /// Takes the controller for one command; returns when it has dealt with it.
    fn begin(&mut self, arrival: Nanos) -> Nanos {
        self.controller = self.controller.max(arrival) + self.overhead;
        self.controller
    }

    /// The mapping pages that an extent touches.
    fn pages(&self, extent: Extent) -> Range<u32> {
        let start = extent.start.0 >> self.page_shift;
        let end = if extent.is_empty() { start } else { ((extent.end.0 - 1) >> self.page_shift) + 1 };
        start as u32..end as u32
    }
}

/// The flash behind the write buffer.
struct Backend {
    array: Array,
    buffer: WriteBuffer,
    /// What the link takes for a page.
    link_page: Nanos,
    /// When the last page was in the buffer.
    now: Nanos,
    /// When the pages that garbage collection moves are read.
    collected: Nanos,
    /// The units that were programmed last, by the host and by garbage collection.
    host_unit: Unit,
    copy_unit: Unit,
}

impl Flash for Backend {
    fn program(&mut self, cause: Cause, mut pages: Range<u32>) {
        while !pages.is_empty() {
            let count = if cause == Cause::Copy {
                let count = self.array.seek(&mut self.copy_unit, &pages);
                self.array.program(&self.copy_unit, count, self.collected);
                count
            } else {
                let count = self.array.seek(&mut self.host_unit, &pages);
                let link = if cause == Cause::Host { self.link_page } else { Nanos::ZERO };
                let crossed = self.now + Nanos(link.0 * u64::from(count));
                self.now = crossed.max(self.buffer.room_at(count));
                let drained = self.array.program(&self.host_unit, count, self.now);
                self.buffer.fill(count, drained);
                count
            };
            pages.start += count;
        }
    }

    fn collect(&mut self, pages: impl Iterator<Item = u32>) {
        self.collected = self.array.read(pages, self.now);
    }

    fn erase(&mut self, pages: Range<u32>) {
        self.array.erase(pages, self.now);
    }
}

/// A histogram of fixed size: nanoseconds up to an hour, to three digits.
fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("these bounds are valid")
}
