//! The flash array in time: channels and dies, each with the instant until which it is busy.
//!
//! Program units are dealt to the dies in order, so an erase block is striped over all of them;
//! dies are dealt to the channels in the same way. Programming a unit is spread evenly over the
//! mapping pages it holds. Channels are reserved in the order of requests.

use std::ops::Range;

use trimtab_core::Nanos;
use trimtab_core::profile::Profile;

/// Channels and dies.
pub(crate) struct Array {
    pages_per_unit: u32,
    read: Nanos,
    program_page: Nanos,
    erase: Nanos,
    transfer_page: Nanos,
    dies: Vec<Nanos>,
    channels: Vec<Nanos>,
}

impl Array {
    pub(crate) fn new(profile: &Profile) -> Self {
        let (geometry, timing) = (&profile.geometry, &profile.timing);
        let page = geometry.mapping_page.value;
        let pages_per_unit = (geometry.program_unit.value.0 / page.0) as u32;
        Self {
            pages_per_unit,
            read: timing.read.value,
            program_page: Nanos(timing.program.value.0.div_ceil(pages_per_unit.into())),
            erase: timing.erase.value,
            transfer_page: timing.channel_rate.value.time_for(page),
            dies: vec![Nanos::ZERO; profile.dies() as usize],
            channels: vec![Nanos::ZERO; geometry.channels.value as usize],
        }
    }

    /// Splits pages of one block where a program unit ends.
    pub(crate) fn units(&self, pages: Range<u32>) -> impl Iterator<Item = Range<u32>> + use<> {
        let (size, mut next) = (self.pages_per_unit, pages.start);
        std::iter::from_fn(move || {
            let start = next;
            next = (start - start % size + size).min(pages.end);
            (start < pages.end).then_some(start..next)
        })
    }

    /// The pages of the program unit that a page is in.
    pub(crate) fn unit_of(&self, page: u32) -> Range<u32> {
        let start = page - page % self.pages_per_unit;
        start..start + self.pages_per_unit
    }

    /// Programs pages of one unit whose data are there at `ready`; returns when they are on flash.
    pub(crate) fn program(&mut self, unit: Range<u32>, ready: Nanos) -> Nanos {
        let pages = unit.len() as u64;
        let (die, channel) = self.place(unit.start);
        let there = self.transfer(channel, pages, ready);
        self.occupy(die, Nanos(self.program_page.0 * pages), there)
    }

    /// Reads `pages` pages of the unit that `page` is in, from `start`; returns when they are out.
    pub(crate) fn read(&mut self, page: u32, pages: u32, start: Nanos) -> Nanos {
        let (die, channel) = self.place(page);
        let sensed = self.occupy(die, self.read, start);
        let reserved = self.transfer(channel, pages.into(), start);
        reserved.max(sensed + Nanos(self.transfer_page.0 * u64::from(pages)))
    }

    /// Reads these pages of one block, rising; returns when all are out.
    pub(crate) fn collect(&mut self, pages: impl Iterator<Item = u32>, start: Nanos) -> Nanos {
        let mut pages = pages.peekable();
        let mut out = start;
        while let Some(first) = pages.next() {
            let unit = self.unit_of(first);
            let mut count = 1;
            while pages.next_if(|page| unit.contains(page)).is_some() {
                count += 1;
            }
            out = out.max(self.read(first, count, start));
        }
        out
    }

    /// Erases the block of these pages: each of its dies does its part after what it has to do.
    pub(crate) fn erase(&mut self, pages: Range<u32>, start: Nanos) {
        let units = pages.len().div_ceil(self.pages_per_unit as usize);
        let parts = units.min(self.dies.len());
        for part in 0..parts as u32 {
            let (die, _) = self.place(pages.start + part * self.pages_per_unit);
            self.occupy(die, self.erase, start);
        }
    }

    /// The die and the channel of a page.
    fn place(&self, page: u32) -> (usize, usize) {
        let die = (page / self.pages_per_unit) as usize % self.dies.len();
        (die, die % self.channels.len())
    }

    fn occupy(&mut self, die: usize, span: Nanos, start: Nanos) -> Nanos {
        let end = self.dies[die].max(start) + span;
        self.dies[die] = end;
        end
    }

    fn transfer(&mut self, channel: usize, pages: u64, start: Nanos) -> Nanos {
        let end = self.channels[channel].max(start) + Nanos(self.transfer_page.0 * pages);
        self.channels[channel] = end;
        end
    }
}
