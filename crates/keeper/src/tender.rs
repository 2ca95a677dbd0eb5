//! One file system, tended: what is freed on it is pending until the policy has it trimmed.

use std::time::Duration;

use trimtab_core::policy::{Event, Load, Pending, Policy, SmartPolicy, TrimRequest, TrimScope, Trimmed};
use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::block::{BlockCounters, BlockError};
use trimtab_linux::trim::TrimError;

use crate::trims::Trims;

/// Hosts the smart policy for one mounted file system: tells it what is freed and what the foreground
/// gets from the device, and carries out the trims that it asks for. Whoever drives it hands over the
/// time, as the span since it was made, and calls [`Self::turn`] when [`Self::next_turn`] says so.
pub struct Tender<T> {
    policy: SmartPolicy,
    trims: T,
    looked: Option<(Duration, BlockCounters)>,
    totals: Totals,
}

/// What was trimmed so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Discards that the device completed meanwhile.
    pub discards: u64,
    /// Bytes that the device discarded meanwhile.
    pub bytes: Bytes,
    /// How long they held the device.
    pub took: Duration,
    /// Turns that failed.
    pub refused: u64,
    /// When the last one ended.
    pub last: Option<Duration>,
}

/// Why a turn ended early.
#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    /// A trim was refused. What it was for is pending still; how soon it is tried again is up to the host.
    #[error(transparent)]
    Trim(#[from] TrimError),
    /// The device doesn't tell what it does, such as where it is gone.
    #[error(transparent)]
    Block(#[from] BlockError),
}

impl<T: Trims> Tender<T> {
    /// Nothing is pending.
    pub fn new(policy: SmartPolicy, trims: T) -> Self {
        Self { policy, trims, looked: None, totals: Totals::default() }
    }

    /// The file system gave up `extent`, at `at`.
    pub fn freed(&mut self, at: Duration, extent: Extent) {
        self.policy.on_event(at, &Event::Freed(extent));
    }

    /// What is pending.
    pub fn pending(&self) -> &Pending {
        self.policy.pending()
    }

    /// The policy, and with it how the goals are held.
    pub fn policy(&self) -> &SmartPolicy {
        &self.policy
    }

    /// How it trims.
    pub fn trims_mut(&mut self) -> &mut T {
        &mut self.trims
    }

    /// What was trimmed so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Takes all that is pending out, for somebody else to trim.
    pub fn take_pending(&mut self, at: Duration) -> ExtentSet {
        let taken: ExtentSet = self.pending().iter().map(|(extent, _)| extent).collect();
        taken.iter().for_each(|extent| _ = self.policy.on_event(at, &Event::Discarded(extent)));
        taken
    }

    /// When the next turn is due; never where nothing is pending.
    pub fn next_turn(&self) -> Option<Duration> {
        self.policy.next_wake()
    }

    /// Looks what the foreground gets, and trims what the policy asks for, which may be nothing. Returns
    /// whether it trimmed.
    ///
    /// # Errors
    /// Any [`TurnError`]; what was not trimmed is pending.
    pub fn turn(&mut self, now: Duration) -> Result<bool, TurnError> {
        let before = self.look(now)?;
        let mut requests = self.policy.on_event(now, &Event::Wake);
        let Some(TrimRequest { scope: TrimScope::Within(extents), min_length }) = requests.pop() else {
            return Ok(false);
        };
        let mut trimmed = Trimmed { took: Duration::ZERO, refused: extents };
        let outcome = self.carry_out(now, before, min_length, &mut trimmed);
        let end = now + trimmed.took;
        self.totals.took += trimmed.took;
        self.totals.last = Some(end);
        self.policy.on_event(end, &Event::Trimmed(trimmed));
        self.totals.refused += u64::from(outcome.is_err());
        outcome.map(|()| true)
    }

    /// Trims what counts as refused so far, as far as that gets.
    /// `before` is what the devices counted until now.
    fn carry_out(
        &mut self,
        now: Duration,
        before: BlockCounters,
        minimum: Bytes,
        trimmed: &mut Trimmed,
    ) -> Result<(), TurnError> {
        let ranges = self.trims.reaching(trimmed.refused.clone())?;
        let series = self.trims.trim(ranges, minimum);
        trimmed.took = series.took;
        for extent in series.trimmed.iter() {
            trimmed.refused.remove(extent);
            // It may reach beyond what was asked for.
            self.policy.on_event(now, &Event::Discarded(extent));
        }
        // Devices count the discards that fail, too.
        series.outcome?;
        let after = self.trims.counters()?;
        self.totals.discards += after.discards.saturating_sub(before.discards);
        self.totals.bytes += after.discard_bytes.saturating_sub(before.discard_bytes);
        Ok(())
    }

    /// Tells the policy what the foreground got since the last look. Returns what the devices counted.
    fn look(&mut self, now: Duration) -> Result<BlockCounters, BlockError> {
        let counters = self.trims.counters()?;
        let free = self.trims.free();
        self.policy.on_event(now, &Event::Space { free });
        if let Some((since, before)) = self.looked.replace((now, counters)) {
            self.policy.on_event(now, &Event::Load(load(now - since, &before, &counters)));
        }
        Ok(counters)
    }
}

/// What the foreground got between two looks at a device, which took `span`.
pub(crate) fn load(span: Duration, before: &BlockCounters, after: &BlockCounters) -> Load {
    let completed = (after.reads + after.writes).saturating_sub(before.reads + before.writes);
    let waited = (after.read_time + after.write_time).saturating_sub(before.read_time + before.write_time);
    let latency = waited.checked_div(u32::try_from(completed).unwrap_or(u32::MAX)).unwrap_or_default();
    let written = after.write_bytes.saturating_sub(before.write_bytes);
    Load { span, in_flight: after.in_flight, completed, latency, written }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io;
    use std::rc::Rc;

    use trimtab_core::profile::Profile;

    use super::*;
    use crate::trims::Series;

    const SIZE: Bytes = Bytes(8 << 30);
    const SECOND: Duration = Duration::from_secs(1);
    /// What one call holds the device for.
    const HELD: Duration = Duration::from_millis(20);

    /// A device that nobody else uses, of which a call fails, or that is gone after one.
    #[derive(Clone, Default)]
    struct Faulty {
        calls: Rc<Cell<u64>>,
        fails_at: Option<u64>,
        gone_after: Option<u64>,
        is_slow: bool,
    }

    impl Trims for Faulty {
        fn trim(&mut self, ranges: ExtentSet, _: Bytes) -> Series {
            Series::of(&ranges, |_| {
                self.calls.set(self.calls.get() + 1);
                if self.fails_at == Some(self.calls.get()) {
                    let source = io::Error::from_raw_os_error(5);
                    return Err(TrimError::Trim { mount: "/mnt".into(), source });
                }
                Ok(if self.is_slow { SECOND } else { HELD })
            })
        }

        fn counters(&mut self) -> Result<BlockCounters, BlockError> {
            if self.gone_after.is_some_and(|last| self.calls.get() > last) {
                return Err(BlockError::Unknown { device: "/dev/gone".into() });
            }
            let discards = self.calls.get();
            Ok(BlockCounters { discards, discard_bytes: Bytes(discards << 20), ..BlockCounters::default() })
        }

        fn free(&mut self) -> Bytes {
            Bytes::GIB
        }
    }

    fn tender(trims: Faulty) -> Tender<Faulty> {
        let mut tender =
            Tender::new(SmartPolicy::of_drive(&Profile::named("nvme-tlc").unwrap(), SIZE), trims);
        tender.turn(Duration::ZERO).unwrap();
        for place in 0..8 {
            tender.freed(Duration::ZERO, Extent::at(Bytes(place << 28), Bytes(64 << 20)));
        }
        tender
    }

    fn pending(tender: &Tender<Faulty>) -> Bytes {
        tender.pending().len()
    }

    #[test]
    fn an_idle_device_gets_what_was_freed() {
        let mut tender = tender(Faulty::default());
        assert!(tender.turn(SECOND).unwrap());
        let mut now = SECOND;
        while pending(&tender) > Bytes::ZERO {
            now = tender.next_turn().expect("something is pending").max(now + HELD);
            tender.turn(now).unwrap();
        }
        let totals = tender.totals();
        assert_eq!((totals.discards, totals.bytes), (8, Bytes(8 << 20)));
        assert_eq!((totals.took, totals.refused), (HELD * 8, 0));
        assert_eq!(tender.next_turn(), None);
    }

    #[test]
    fn a_slow_device_does_not_keep_the_host_from_others() {
        let mut tender = tender(Faulty { is_slow: true, ..Faulty::default() });
        let before = pending(&tender);
        assert!(tender.turn(SECOND).unwrap());
        assert_eq!((tender.totals().discards, tender.totals().took), (1, SECOND));
        assert_eq!(pending(&tender) + Bytes(64 << 20), before);
        assert!(tender.next_turn().is_some());
    }

    #[test]
    fn what_is_refused_stays_pending() {
        let mut tender = tender(Faulty { fails_at: Some(2), ..Faulty::default() });
        let before = pending(&tender);
        let error = tender.turn(SECOND).unwrap_err();
        assert!(matches!(error, TurnError::Trim(_)), "{error}");
        assert_eq!(pending(&tender), Bytes(before.0 - (64 << 20)), "the first was trimmed");
        let retry = tender.next_turn().unwrap();
        assert!(tender.turn(retry).unwrap());
        assert_eq!(tender.totals().refused, 1);
    }

    #[test]
    fn a_device_that_goes_in_the_middle_is_an_error_and_nothing_is_lost() {
        let device = Faulty { gone_after: Some(0), ..Faulty::default() };
        let mut tender = tender(device.clone());
        let before = pending(&tender);
        assert!(matches!(tender.turn(SECOND), Err(TurnError::Block(_))));
        assert!(matches!(tender.turn(SECOND * 60), Err(TurnError::Block(_))));
        let trimmed = Bytes(device.calls.get() * (64 << 20));
        assert_eq!(pending(&tender) + trimmed, before);
    }
}
