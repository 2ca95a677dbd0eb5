//! The controller of a drive, with its link to the host and its write buffer.

use std::ops::Range;

use trimtab_core::profile::Profile;
use trimtab_core::stats::{Latencies, LatencySummary};
use trimtab_core::{Nanos, Pages};

use crate::array::{Array, Cell, Unit};
use crate::buffer::WriteBuffer;
use crate::command::Op;
use crate::flash::{Cause, Flash};

/// Controller, link, write buffer and flash array, each with the instant until which it is busy.
pub(crate) struct Controller {
    array: Array,
    buffer: WriteBuffer,
    overhead: Nanos,
    link_read_page: Nanos,
    link_write_page: Nanos,
    /// When the controller can begin the next command.
    next_command: Nanos,
    link_read: Nanos,
    link_write: Nanos,
    /// When the last written page was in the buffer.
    now: Nanos,
    /// When the pages that garbage collection moves are read.
    collected: Nanos,
    /// When the map is known of the pages that the host writes.
    mapped: Nanos,
    /// When every command so far is done.
    all_done: Nanos,
    /// The units that were programmed last, by the host and by garbage collection.
    host_unit: Unit,
    copy_unit: Unit,
    latencies: [Latencies; 4],
}

/// The time of one page on the link and on its die.
#[derive(Clone, Copy)]
struct PageTimes {
    link: Nanos,
    program: Nanos,
    /// The earliest that it can be programmed.
    mapped: Nanos,
}

impl Controller {
    pub(crate) fn new(profile: &Profile) -> Self {
        let (page, timing) = (profile.geometry.mapping_page.value, &profile.timing);
        Self {
            array: Array::new(profile),
            buffer: WriteBuffer::new(Pages(timing.write_buffer.value.0 / page.0)),
            overhead: timing.command_overhead.value,
            link_read_page: timing.link_read_rate.value.time_for(page),
            link_write_page: timing.link_write_rate.value.time_for(page),
            next_command: Nanos::ZERO,
            link_read: Nanos::ZERO,
            link_write: Nanos::ZERO,
            now: Nanos::ZERO,
            collected: Nanos::ZERO,
            mapped: Nanos::ZERO,
            all_done: Nanos::ZERO,
            host_unit: Unit::default(),
            copy_unit: Unit::default(),
            latencies: std::array::from_fn(|_| Latencies::default()),
        }
    }

    /// Takes the controller for one command; returns when it has dealt with it.
    pub(crate) fn begin(&mut self, arrival: Nanos) -> Nanos {
        self.next_command = self.next_command.max(arrival) + self.overhead;
        self.next_command
    }

    /// The time that the controller spends on every command.
    pub(crate) fn overhead(&self) -> Nanos {
        self.overhead
    }

    /// Begins no command before `until`.
    pub(crate) fn hold(&mut self, until: Nanos) {
        self.next_command = self.next_command.max(until);
    }

    /// Begins a write, whose pages then come by [`Flash::program`].
    pub(crate) fn begin_write(&mut self, arrival: Nanos) {
        self.now = self.begin(arrival).max(self.link_write);
    }

    /// Ends a write; returns when its last page was in the buffer.
    pub(crate) fn end_write(&mut self) -> Nanos {
        self.link_write = self.now;
        self.now
    }

    /// The time of pages of this cause that come into the buffer; those of a command occupy the link.
    fn page_times(&self, cause: Cause) -> PageTimes {
        let is_own = matches!(cause, Cause::Journal | Cause::Map);
        let (link, mapped) =
            if is_own { (Nanos::ZERO, Nanos::ZERO) } else { (self.link_write_page, self.mapped) };
        let cell = if cause == Cause::Cache { Cell::Single } else { Cell::Full };
        PageTimes { link, program: self.array.page_time(cell), mapped }
    }

    /// Takes `count` pages of the host's unit into the buffer.
    #[inline]
    fn take(&mut self, times: PageTimes, count: u32) {
        let crossed = self.now + times.link * u64::from(count);
        self.now = crossed.max(self.buffer.room_at(count));
        let ready = self.now.max(times.mapped);
        let drained = self.array.program(&self.host_unit, count, ready, times.program);
        self.buffer.fill(count, drained);
    }

    /// Takes pages of journal or of the map, which then come by [`Flash::program`], from `start`.
    pub(crate) fn begin_own(&mut self, start: Nanos) {
        self.now = start;
    }

    /// When the last page was in the buffer, or the write that is under way began.
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// Programs the pages of the next writes no earlier than `at`, when their map is known.
    pub(crate) fn map_is_known(&mut self, at: Nanos) {
        self.mapped = at;
    }

    /// Reads `pages` pages; the `physical` ones among them have data; returns when they are read.
    pub(crate) fn read(&mut self, start: Nanos, pages: u64, physical: impl Iterator<Item = u32>) -> Nanos {
        self.link_read = self.link_read.max(start) + self.link_read_page * pages;
        let out = self.array.read(physical, start);
        self.link_read.max(out + self.link_read_page)
    }

    /// When all that was written is on flash.
    pub(crate) fn flushed(&self) -> Nanos {
        self.buffer.empty_at()
    }

    /// The channels and dies.
    pub(crate) fn array(&mut self) -> &mut Array {
        &mut self.array
    }

    /// A command is done.
    pub(crate) fn finish(&mut self, op: Op, arrival: Nanos, done: Nanos) {
        self.all_done = self.all_done.max(done);
        self.latencies[op as usize].record(done - arrival);
    }

    /// When every command so far is done.
    pub(crate) fn all_done(&self) -> Nanos {
        self.all_done
    }

    /// How long commands of this kind took, from arrival to done.
    pub(crate) fn latency(&self, op: Op) -> LatencySummary {
        self.latencies[op as usize].summary()
    }
}

impl Flash for Controller {
    fn program(&mut self, cause: Cause, mut pages: Range<u32>) {
        let times = self.page_times(cause);
        while !pages.is_empty() {
            let count = if cause.is_move() {
                let count = self.array.seek(&mut self.copy_unit, &pages);
                self.array.program(&self.copy_unit, count, self.collected, times.program);
                count
            } else {
                let count = self.array.seek(&mut self.host_unit, &pages);
                self.take(times, count);
                count
            };
            pages.start += count;
        }
    }

    fn collect(&mut self, block: Range<u32>, valid: &[u64]) {
        self.collected = self.array.collect(block, valid, self.now);
    }

    fn erase(&mut self, pages: Range<u32>) {
        self.array.erase(pages, self.now);
    }
}

/// A host that sends commands. The drive says when each is done.
pub(crate) trait CommandSender {
    /// Returns when the next command is sent.
    fn send(&mut self) -> Nanos;

    /// The command that was sent last will be done at `done`.
    fn finish(&mut self, done: Nanos);
}

/// A host's writes of one page each, in a row: the mapping takes them as one batch, and each goes
/// its own way in time.
pub(crate) struct PageWrites<'a, Host> {
    host: &'a mut Host,
    controller: &'a mut Controller,
    /// When the next of them arrived, once it has begun.
    begun: Option<Nanos>,
}

impl<'a, Host: CommandSender> PageWrites<'a, Host> {
    pub(crate) fn new(host: &'a mut Host, controller: &'a mut Controller) -> Self {
        Self { host, controller, begun: None }
    }

    /// Begins the next of them, unless it has begun; returns when it arrived.
    fn begin(&mut self) -> Nanos {
        *self.begun.get_or_insert_with(|| {
            let arrival = self.host.send();
            self.controller.begin_write(arrival);
            arrival
        })
    }
}

impl<Host: CommandSender> Flash for PageWrites<'_, Host> {
    fn program(&mut self, cause: Cause, mut pages: Range<u32>) {
        if cause.is_move() {
            return self.controller.program(cause, pages);
        }
        let times = self.controller.page_times(cause);
        while !pages.is_empty() {
            let count = self.controller.array.seek(&mut self.controller.host_unit, &pages);
            for _ in 0..count {
                let arrival = self.begin();
                self.controller.take(times, 1);
                let done = self.controller.end_write();
                self.controller.finish(Op::Write, arrival, done);
                self.host.finish(done);
                self.begun = None;
            }
            pages.start += count;
        }
    }

    fn collect(&mut self, block: Range<u32>, valid: &[u64]) {
        self.begin();
        self.controller.collect(block, valid);
    }

    fn erase(&mut self, pages: Range<u32>) {
        self.controller.erase(pages);
    }
}
