//! Trims on their way, and the discards they send.

use std::collections::VecDeque;

use trimtab_core::policy::{LONGEST_TRIM, TrimRequest, TrimScope};
use trimtab_core::profile::Profile;
use trimtab_core::{Bytes, Extent, ExtentSet, Nanos};

use super::pending::Pending;

/// Pending extents, and the trims that work on them: one discard after the other, each when the one
/// before is done, as the kernel's own trims go. Each discards what it finds free when it gets there. Where a
/// command can name several extents, it takes what waits at that time, as Linux merges discards that are
/// queued (`blk_rq_nr_discard_segments` up to `max_discard_segments`).
pub(super) struct Trims {
    pending: Pending,
    queue: VecDeque<Stretch>,
    /// Whether the policy asks again for what is refused, for how long its request has held the drive, and the extents
    /// that were refused.
    may_refuse: bool,
    held: Nanos,
    refused: Vec<Extent>,
    /// When the next discard can be sent.
    ready: Nanos,
    drive: Extent,
    /// The longest discard.
    limit: Bytes,
    /// The most extents of one discard.
    ranges: usize,
    /// The extents of the discard that was sent last.
    sent: Vec<Extent>,
    /// The length below which a full trim leaves free extents alone, because the drive could do nothing with
    /// them.
    least: Bytes,
}

/// A stretch of the drive that is still to be trimmed.
struct Stretch {
    extent: Extent,
    /// The shortest extent that is trimmed.
    least: Bytes,
}

impl Trims {
    pub(super) fn new(profile: &Profile, size: Bytes, may_refuse: bool) -> Self {
        Self {
            pending: Pending::new(size),
            queue: VecDeque::new(),
            may_refuse,
            held: Nanos::ZERO,
            refused: Vec::new(),
            ready: Nanos::ZERO,
            drive: Extent::new(Bytes::ZERO, size),
            limit: profile.discard.command_limit.value,
            ranges: profile.discard.ranges_per_command.as_ref().map_or(1, |ranges| ranges.value as usize),
            sent: Vec::new(),
            least: profile.discard.advertised_granularity.value,
        }
    }

    /// Free bytes that have not been discarded since.
    pub(super) fn pending(&self) -> Bytes {
        self.pending.len()
    }

    /// Touches what is kept of these places, as [`Pending::touch`] does.
    pub(super) fn touch(&self, starts: impl Iterator<Item = Bytes>) {
        self.pending.touch(starts);
    }

    pub(super) fn freed(&mut self, extent: Extent) {
        self.pending.insert(extent);
    }

    /// The whole units of this size that are free and that the free `extent` names a part of.
    pub(super) fn units_of(&self, extent: Extent, unit: Bytes) -> Extent {
        self.pending.units_of(extent, unit)
    }

    /// The bytes are in use, or discarded by somebody else.
    pub(super) fn taken(&mut self, extent: Extent) {
        self.pending.remove(extent);
    }

    /// Puts what `request` asks for behind the trims on their way, from `now` on.
    pub(super) fn request(&mut self, now: Nanos, request: &TrimRequest) {
        self.ready = self.ready.max(now);
        self.held = Nanos::ZERO;
        match &request.scope {
            TrimScope::Everything => {
                let least = self.least.max(request.min_length);
                self.queue.push_back(Stretch { extent: self.drive, least });
            }
            TrimScope::Within(extents) => {
                let least = request.min_length;
                self.queue.extend(extents.iter().map(|extent| Stretch { extent, least }));
            }
        }
    }

    /// When the next discard is sent, if there is one and that is not after `until`: its extents are
    /// [`sent`](Self::sent). It names as many of those that wait as one command can.
    pub(super) fn next(&mut self, until: Nanos) -> Option<Nanos> {
        self.sent.clear();
        let mut room = self.limit;
        while self.ready <= until && self.sent.len() < self.ranges && room > Bytes::ZERO {
            let Some(extent) = self.next_extent(room) else { break };
            room -= extent.len();
            self.sent.push(extent);
        }
        (!self.sent.is_empty()).then_some(self.ready)
    }

    /// The extents of the discard that was sent last.
    pub(super) fn sent(&self) -> &[Extent] {
        &self.sent
    }

    /// The next extent to discard, no longer than `room`.
    fn next_extent(&mut self, room: Bytes) -> Option<Extent> {
        loop {
            let Stretch { extent, least } = self.queue.front_mut()?;
            let Some(free) = self.pending.first_inside(*extent) else {
                self.queue.pop_front();
                continue;
            };
            extent.start = free.end;
            if free.len() < *least {
                continue;
            }
            let discard = Extent::new(free.start, free.end.min(free.start + room));
            if discard.end < free.end {
                let rest = Extent::new(discard.end, free.end);
                self.queue.push_front(Stretch { extent: rest, least: Bytes::ZERO });
            }
            self.pending.remove(discard);
            return Some(discard);
        }
    }

    /// When they ended, if nothing is under way at `now`.
    pub(super) fn ended(&self, now: Nanos) -> Option<Nanos> {
        (self.queue.is_empty() && self.ready <= now).then_some(self.ready)
    }

    /// The discard that was sent last is done. Once a request has held the drive for [`LONGEST_TRIM`], the rest of it
    /// is refused, if the policy takes that.
    pub(super) fn done(&mut self, at: Nanos) {
        self.held += at.saturating_sub(self.ready);
        self.ready = at;
        if !self.may_refuse || u128::from(self.held.0) < LONGEST_TRIM.as_nanos() {
            return;
        }
        self.refused.extend(self.queue.drain(..).map(|stretch| stretch.extent));
    }

    /// Returns the extents that were refused since the last call.
    pub(super) fn take_refused(&mut self) -> ExtentSet {
        let mut left = ExtentSet::new();
        for mut extent in self.refused.drain(..) {
            // Files may have taken some of it since it was asked for.
            while let Some(free) = self.pending.first_inside(extent) {
                left.insert(free);
                extent.start = free.end;
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVE: Bytes = Bytes(1 << 30);
    const DISCARD: Nanos = Nanos(150_000_000);

    /// Trims of a drive whose first, third, fifth and seventh MiB are free.
    fn trims(may_refuse: bool) -> (Trims, Vec<Extent>) {
        let mut trims = Trims::new(&Profile::named("micron-m500it").unwrap(), DRIVE, may_refuse);
        let extents: Vec<_> = [0, 2, 4, 6].map(|mib| Extent::at(Bytes(mib << 20), Bytes::MIB)).into();
        extents.iter().for_each(|extent| trims.freed(*extent));
        (trims, extents)
    }

    /// Sends all discards to a drive on which each takes 150 ms, and returns what was discarded.
    fn carried_out(trims: &mut Trims) -> Vec<Extent> {
        let mut discarded = Vec::new();
        while let Some(at) = trims.next(Nanos(u64::MAX)) {
            discarded.extend_from_slice(trims.sent());
            trims.done(at + DISCARD);
        }
        discarded
    }

    #[test]
    fn request_that_takes_too_long_is_refused_in_part() {
        let (mut trims, extents) = trims(true);
        for again in [false, true] {
            trims.request(Nanos::ZERO, &TrimRequest::within(extents.iter().copied().collect()));
            let (discarded, rest) = if again { (&extents[2..], &[][..]) } else { extents.split_at(2) };
            assert_eq!(carried_out(&mut trims), discarded, "the limit is passed within the second");
            assert_eq!(trims.take_refused(), rest.iter().copied().collect());
        }
    }

    #[test]
    fn space_that_files_took_meanwhile_is_not_refused() {
        let (mut trims, extents) = trims(true);
        trims.request(Nanos::ZERO, &TrimRequest::within(extents.iter().copied().collect()));
        trims.taken(Extent::new(extents[2].start, extents[2].end - Bytes(4096)));
        carried_out(&mut trims);
        // While the last discard is under way.
        trims.taken(Extent::new(extents[3].start + Bytes(4096), extents[3].end));
        let left = [
            Extent::new(extents[2].end - Bytes(4096), extents[2].end),
            Extent::new(extents[3].start, extents[3].start + Bytes(4096)),
        ];
        assert_eq!(trims.take_refused(), left.into_iter().collect());
    }

    #[test]
    fn policies_that_do_not_ask_again_are_refused_nothing() {
        let (mut trims, extents) = trims(false);
        extents
            .iter()
            .for_each(|it| trims.request(Nanos::ZERO, &TrimRequest::within([*it].into_iter().collect())));
        assert_eq!(carried_out(&mut trims), extents);
        assert_eq!(trims.take_refused(), ExtentSet::new());
    }
}
