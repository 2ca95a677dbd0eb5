//! The tables of a profile that say what the drive does by itself: `[idle]`, `[slc]`, and the work after discards.

use trimtab_core::document::background::{Background, BurstState, CacheFit, LazyFit, Recovery};
use trimtab_core::document::bench::BenchDocument;
use trimtab_core::profile::{Idle, Slc, Sourced};
use trimtab_core::{Bytes, Nanos};

use super::{
    DIES, ERASE, ERASE_BLOCK, MOST_OF_IT, PROGRAM_UNIT, Run, SHARES, nanos, significant, unmeasured,
};

/// The bits of a cell outside the cache: those of most drives of today.
const BITS_PER_CELL: u32 = 3;

impl Run<'_> {
    /// The drive's own work, where all of the drive was written: of a part, the rest would be spare area.
    pub(super) fn background(&self) -> Option<&Background> {
        let BenchDocument { background, plan, device, .. } = self.document;
        let is_whole = plan.range.len().gib() >= MOST_OF_IT * device.size.gib();
        background.as_ref().filter(|_| is_whole)
    }

    /// The cache, if one was seen.
    pub(super) fn cache(&self) -> Option<&CacheFit> {
        self.background()?.cache.as_ref()
    }

    /// Erasing a block: what emptying the cache takes longer than writing as much without it, if that was seen.
    pub(super) fn erase(&self) -> Sourced<Nanos> {
        let Some(cache) = self.cache() else { return unmeasured(ERASE, "tBERS 3 ms") };
        let slow = cache.slow_mib_s;
        let Some(refill) = cache.refill.and_then(|refill| refill.mib_s) else {
            let part = Nanos(ERASE.0 / u64::from(DIES));
            return unmeasured(part, "3 ms for a block of 2 MiB on each of 8 dies, in proportion");
        };
        let longer_s = ERASE_BLOCK.mib() * (1.0 / refill - 1.0 / slow) / f64::from(BITS_PER_CELL);
        let source = format!(
            "fitted: the cache empties at {refill:.0} MiB/s, where {slow:.0} are written without it; 3 ms at most"
        );
        Sourced { value: nanos(longer_s.clamp(0.0, ERASE.seconds())), source }
    }

    /// The part of the drive that this many bytes are.
    fn share(&self, bytes: Bytes) -> f64 {
        bytes.0 as f64 / self.document.device.size.0 as f64
    }

    /// The share of the flash that a discard takes until it returns; none where other commands wait for a discard, and
    /// where the work follows it.
    pub(super) fn busy_share(&self, lazy: Option<&LazyFit>) -> Option<Sourced<f64>> {
        let share = significant(self.background()?.busy_share?).clamp(*SHARES.start(), *SHARES.end());
        let how = "by how much reads are slower while a large discard is in flight";
        (lazy.is_none() && self.fit.queued == Some(true)).then(|| self.measured(share, how))
    }

    /// How many bursts after pauses were written in this state.
    fn bursts(&self, state: BurstState) -> usize {
        let bursts = self.background().map_or(&[][..], |background| &background.bursts);
        bursts.iter().filter(|burst| burst.state == state).count()
    }

    /// The work while it idles; `spare` is the over-provisioning, more than which no drive keeps erased.
    pub(super) fn idle(&self, spare: f64) -> Option<Idle> {
        let after = |recovery: &Recovery, state| {
            let how = format!("n={} bursts after pauses", self.bursts(state));
            self.measured(nanos(recovery.after_wall_s), &how)
        };
        match self.cache() {
            Some(cache) => Some(Idle {
                after: match &cache.refill {
                    Some(refill) => after(refill, BurstState::Full),
                    None => unmeasured(nanos(1.0), "no pause was long enough to see the cache emptied"),
                },
                reserve: unmeasured(0.0, "the cache hides it"),
            }),
            None => self.background()?.cleaning.as_ref().map(|cleaning| {
                let reserve = significant(self.share(cleaning.most)).min(spare);
                let least = if cleaning.complete { "" } else { ", at least" };
                let how = format!(
                    "{} of random writes at full speed after a pause{least}, n={} bursts",
                    cleaning.most,
                    self.bursts(BurstState::Aged)
                );
                Idle { after: after(cleaning, BurstState::Aged), reserve: self.measured(reserve, &how) }
            }),
        }
    }

    /// The cache. On a full drive, its dynamic part can only use the spare area.
    pub(super) fn slc(&self, spare: f64) -> Option<Slc> {
        let cache = self.cache()?;
        let bits = f64::from(BITS_PER_CELL);
        let empty = self.share(cache.empty).min(1.0);
        let (fixed, source) = match &cache.refill {
            Some(refill) => {
                let full = self.share(refill.most).min(empty);
                // A cache that is no smaller on the full drive is static.
                let is_static = full > (1.0 - SAME) * empty;
                let fixed = if is_static { empty } else { (full - spare / bits).max(0.0) };
                let how = format!(
                    "{} at full speed on the full drive, {} on the empty one; what the spare area holds at \
                     `bits_per_cell` counts as dynamic",
                    refill.most, cache.empty
                );
                (significant(fixed), self.measured(significant(fixed), &how))
            }
            None => (0.0, unmeasured(0.0, "no pause was long enough to see the cache of a full drive")),
        };
        let dynamic = significant((empty - fixed).clamp(0.0, significant_below(1.0 / bits)));
        let how = format!(
            "sequential writes slow from {:.0} to {:.0} MiB/s after {}, less `static_size`",
            cache.fast_mib_s, cache.slow_mib_s, cache.empty
        );
        let program = nanos(programming_s(cache.fast_mib_s));
        (fixed + dynamic > 0.0).then(|| Slc {
            bits_per_cell: unmeasured(BITS_PER_CELL, "TLC"),
            program: Sourced { value: program, source: fitted("into the cache", cache.fast_mib_s) },
            static_size: source,
            dynamic_size: self.measured(dynamic, &how),
        })
    }
}

/// Two sizes of a cache within this part of each other are the same.
const SAME: f64 = 0.1;

/// `value` to three digits, and no more than it is.
fn significant_below(value: f64) -> f64 {
    (value * 1e3).floor() / 1e3
}

/// How long each die programs a unit where all of them together write at this rate.
pub(super) fn programming_s(mib_s: f64) -> f64 {
    f64::from(DIES) * PROGRAM_UNIT.0 as f64 / (mib_s * Bytes::MIB.0 as f64)
}

/// The source of a time that was fitted to a rate of writes.
pub(super) fn fitted(what: &str, mib_s: f64) -> String {
    format!("fitted: {DIES} dies that program 16 KiB at a time write {mib_s:.0} MiB/s {what}")
}
