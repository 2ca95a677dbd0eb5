//! Reads of the host that go before what a die has to do.
//!
//! A die that is idle or reads already serves the next read at once or after the others. One that programs or
//! erases gives way after some time, unless it is done before, and goes on when the reads are done; what it has
//! to do takes longer by the reads and by the interruption. Transfers of reads go before those of programs too.
//! No read waits for longer than one operation takes: those behind it have not begun.

use trimtab_core::Nanos;
use trimtab_core::profile::Profile;

use super::{Array, Unit};

/// How long reads wait for operations, and until when each die and channel serves reads.
pub(super) struct Priority {
    /// The longest that a read waits for what a die does.
    wait: Nanos,
    /// The time that an interruption costs the operation.
    lost: Nanos,
    dies: Vec<Nanos>,
    channels: Vec<Nanos>,
}

impl Priority {
    /// Returns the priority of reads on a drive, if its profile has one.
    pub(super) fn new(profile: &Profile) -> Option<Self> {
        let suspend = profile.suspend.as_ref()?;
        let (latency, resume) = (suspend.latency.value, suspend.resume.value);
        let cached = profile.slc.as_ref().map_or(Nanos::ZERO, |slc| slc.program.value);
        let longest = profile.timing.program.value.max(profile.timing.erase.value).max(cached);
        // A die that gives way later than it is done is not interrupted.
        let interrupts = latency < longest;
        Some(Self {
            wait: latency.min(longest),
            lost: if interrupts { latency + resume } else { Nanos::ZERO },
            dies: vec![Nanos::ZERO; profile.dies() as usize],
            channels: vec![Nanos::ZERO; profile.geometry.channels.value as usize],
        })
    }
}

impl Array {
    /// Reads this many pages of a unit for the host from `start`; returns when they are out.
    #[inline]
    pub(super) fn read_for_host(&mut self, unit: &Unit, pages: u32, start: Nanos) -> Nanos {
        if pages == 0 {
            return start;
        }
        if self.priority.is_some() {
            return self.read_first(unit, pages, start);
        }
        self.read_unit(unit, pages, start)
    }

    #[cold]
    fn read_first(&mut self, unit: &Unit, pages: u32, start: Nanos) -> Nanos {
        let priority = self.priority.as_mut().expect("reads go first on this drive");
        let (die, reads) = (&mut self.dies[unit.die], &mut priority.dies[unit.die]);
        let (begun, lost) = if *reads > start {
            (*reads, Nanos::ZERO)
        } else if die.busy <= start + priority.wait {
            (die.busy.max(start), Nanos::ZERO)
        } else {
            (start + priority.wait, priority.lost)
        };
        let delay = if begun < self.other.end { self.other.delay(begun, self.read) } else { Nanos::ZERO };
        let end = begun + self.read + delay;
        *reads = end;
        die.busy = if die.busy <= begun { end } else { die.busy + (end - begun) + lost };

        let transfer = self.transfer_page * u64::from(pages);
        let channel = &mut self.channels[die.channel];
        *channel = (*channel).max(start) + transfer;
        let channel = &mut priority.channels[die.channel];
        *channel = (*channel).max(start) + transfer;
        (*channel).max(end + transfer)
    }
}

#[cfg(test)]
mod tests {
    use trimtab_core::profile::{Sourced, Suspend};
    use trimtab_core::{Bytes, Rate};

    use super::*;
    use crate::array::Cell;

    const READ: Nanos = Nanos(50_000);
    const PROGRAM: Nanos = Nanos(640_000);
    const ERASE: Nanos = Nanos(3_000_000);
    const TRANSFER: Nanos = Nanos(10_240);
    const LATENCY: Nanos = Nanos(20_000);
    const RESUME: Nanos = Nanos(5_000);

    /// One die, with four pages in a program unit and sixteen in a block.
    fn array(suspends: bool) -> Array {
        array_giving_way(suspends.then_some(LATENCY))
    }

    /// The same, which gives way after `latency`.
    fn array_giving_way(latency: Option<Nanos>) -> Array {
        let mut profile = Profile::named("nvme-tlc").unwrap();
        let sourced = |value| Sourced { value, source: "a test".to_owned() };
        profile.geometry.program_unit.value = Bytes(16 << 10);
        profile.geometry.channels.value = 1;
        profile.geometry.dies_per_channel.value = 1;
        profile.timing.read.value = READ;
        profile.timing.program.value = PROGRAM;
        profile.timing.erase.value = ERASE;
        profile.timing.channel_rate.value = Rate(400_000_000);
        profile.suspend = latency.map(|time| Suspend { latency: sourced(time), resume: sourced(RESUME) });
        Array::new(&profile)
    }

    fn read(array: &mut Array, at: Nanos) -> Nanos {
        array.read(std::iter::once(3), at) - at
    }

    /// When a program that comes now is done.
    fn programmed(array: &mut Array, now: Nanos) -> Nanos {
        let mut unit = Unit::default();
        array.seek(&mut unit, &(0..4));
        array.program(&unit, 4, now, array.page_time(Cell::Full))
    }

    #[test]
    fn a_read_waits_for_the_latency_and_not_for_an_erase() {
        let at = Nanos(100_000);
        let mut plain = array(false);
        plain.erase(0..16, Nanos::ZERO);
        assert_eq!(read(&mut plain, at), ERASE - at + READ + TRANSFER);
        let mut suspending = array(true);
        suspending.erase(0..16, Nanos::ZERO);
        assert_eq!(read(&mut suspending, at), LATENCY + READ + TRANSFER);
        // The erase goes on afterwards, and what comes behind it waits for all of that.
        let after = ERASE + LATENCY + READ + RESUME + PROGRAM;
        assert_eq!(programmed(&mut suspending, at), after);
    }

    #[test]
    fn a_die_that_is_idle_or_nearly_done_is_not_interrupted() {
        let mut array = array(true);
        assert_eq!(read(&mut array, Nanos::ZERO), READ + TRANSFER);
        assert_eq!(programmed(&mut array, Nanos(1_000_000)), Nanos(1_000_000) + TRANSFER * 4 + PROGRAM);
        let end = Nanos(1_000_000) + TRANSFER * 4 + PROGRAM;
        assert_eq!(read(&mut array, end - Nanos(7_000)), Nanos(7_000) + READ + TRANSFER);
        assert_eq!(programmed(&mut array, end), end + READ + PROGRAM);
    }

    #[test]
    fn a_die_that_gives_way_late_finishes_one_operation_only() {
        for latency in [ERASE, ERASE * 3, Nanos(3_600_000_000_000)] {
            let mut array = array_giving_way(Some(latency));
            for _ in 0..4 {
                array.erase(0..16, Nanos::ZERO);
            }
            assert_eq!(read(&mut array, Nanos::ZERO), ERASE + READ + TRANSFER);
            // Nothing was interrupted, so that the rest is later by the read alone.
            assert_eq!(programmed(&mut array, Nanos::ZERO), ERASE * 4 + READ + PROGRAM);
        }
    }

    #[test]
    fn reads_in_a_row_interrupt_once() {
        let mut array = array(true);
        array.erase(0..16, Nanos::ZERO);
        let took: Vec<_> = (0..4).map(|_| read(&mut array, Nanos(500_000))).collect();
        let nth = |number: u64| LATENCY + READ * number + TRANSFER;
        assert_eq!(took, [nth(1), nth(2), nth(3), nth(4)]);
        let after = ERASE + LATENCY + READ * 4 + RESUME + PROGRAM;
        assert_eq!(programmed(&mut array, Nanos(500_000)), after);
    }
}
