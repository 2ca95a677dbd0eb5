//! What is free and not yet discarded, and the discards that are on their way.

use std::collections::VecDeque;

use trimtab_core::policy::{TrimRequest, TrimScope};
use trimtab_core::profile::Profile;
use trimtab_core::{Bytes, Extent, ExtentSet, Nanos};

/// Pending extents, and the trims that work on them: one discard after the other, each when the one
/// before is done, as the kernel's own trims go. What is written before its discard is sent is left
/// out of it.
pub(super) struct Trims {
    pending: ExtentSet,
    queue: VecDeque<Extent>,
    /// When the next discard can be sent.
    ready: Nanos,
    /// The longest discard.
    limit: Bytes,
    /// What a trim of all that is free leaves alone, because the drive could do nothing with it.
    least: Bytes,
}

impl Trims {
    pub(super) fn new(profile: &Profile) -> Self {
        Self {
            pending: ExtentSet::new(),
            queue: VecDeque::new(),
            ready: Nanos::ZERO,
            limit: profile.discard.command_limit.value,
            least: profile.discard.advertised_granularity.value,
        }
    }

    /// Free bytes that have not been discarded since.
    pub(super) fn pending(&self) -> &ExtentSet {
        &self.pending
    }

    pub(super) fn freed(&mut self, extent: Extent) {
        self.pending.insert(extent);
    }

    /// The bytes are in use, or discarded by somebody else.
    pub(super) fn taken(&mut self, extent: Extent) {
        if !self.pending.is_empty() {
            self.pending.remove(extent);
        }
    }

    /// Puts what `request` asks for behind the trims on their way, from `now` on.
    pub(super) fn request(&mut self, now: Nanos, request: &TrimRequest) {
        self.ready = self.ready.max(now);
        match &request.scope {
            TrimScope::Everything => {
                let least = self.least.max(request.min_length);
                self.queue.extend(self.pending.iter().filter(|extent| extent.len() >= least));
            }
            TrimScope::Within(extents) => {
                let wanted = |extent: &Extent| extent.len() >= request.min_length;
                self.queue
                    .extend(extents.iter().flat_map(|extent| self.pending.inside(extent)).filter(wanted));
            }
        }
    }

    /// The next discard, and when it is sent, if that is not after `until`.
    pub(super) fn next(&mut self, until: Nanos) -> Option<(Nanos, Extent)> {
        if self.ready > until {
            return None;
        }
        loop {
            let wanted = self.queue.pop_front()?;
            let Some(free) = self.pending.inside(wanted).next() else { continue };
            let discard = Extent::new(free.start, free.end.min(free.start + self.limit));
            if discard.end < wanted.end {
                self.queue.push_front(Extent::new(discard.end, wanted.end));
            }
            self.pending.remove(discard);
            return Some((self.ready, discard));
        }
    }

    /// The discard that was sent last is done.
    pub(super) fn done(&mut self, at: Nanos) {
        self.ready = at;
    }
}
