//! Copies of a trace side by side, as one trace.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use trimtab_core::document::sim::{TileOrder, Tiling};
use trimtab_core::trace::{DeviceIndex, EventKind, TraceEvent, TraceHeader, TraceSource};
use trimtab_core::{Bytes, Extent, Nanos};

/// Into how many parts the trace is cut where copies write one at a time.
const SLICES: u64 = 64;
/// Copies begin at multiples of this, so that they are aligned as the original.
const ALIGNMENT: Bytes = Bytes::MIB;
/// Events in a batch.
const BATCH: usize = 4096;

/// Where copies lie on the drive, and when their events come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TileLayout {
    tiling: Tiling,
    /// Bytes from the start of one copy to the next one's.
    pitch: Bytes,
    /// How long one copy takes at the speed of the trace, in nanoseconds: longer than any of its times, and whole slices where
    /// copies write one at a time.
    span: u64,
}

impl TileLayout {
    /// Copies of a trace of a device of `traced` bytes whose times are at most `span`.
    pub(crate) fn new(tiling: Tiling, traced: Bytes, span: Nanos) -> Self {
        let span = match tiling.order {
            TileOrder::Slice => (span.0 / SLICES + 1).saturating_mul(SLICES),
            TileOrder::Interleave => span.0.saturating_add(1),
        };
        Self { tiling, pitch: Bytes(traced.0.div_ceil(ALIGNMENT.0).saturating_mul(ALIGNMENT.0)), span }
    }

    /// The size of the drive.
    pub(crate) fn size(&self) -> Bytes {
        Bytes(self.pitch.0.saturating_mul(self.copies()))
    }

    /// How long a pass of all copies takes.
    pub(crate) fn pass_span(&self) -> Nanos {
        Nanos(self.span.saturating_mul(self.copies()))
    }

    fn copies(&self) -> u64 {
        self.tiling.copies.into()
    }

    /// When the event at `at` in the `lap`th replay of copy `tile` comes, after the start of the first pass.
    fn time(&self, tile: u64, lap: u64, at: Nanos) -> u64 {
        let copies = self.copies();
        match self.tiling.order {
            TileOrder::Interleave => {
                let own = lap.saturating_mul(self.span).saturating_add(at.0);
                own.saturating_mul(copies).saturating_add(tile.saturating_mul(self.span))
            }
            TileOrder::Slice => {
                let slice = self.span / SLICES;
                let turn = lap * SLICES + at.0 / slice + tile * SLICES / copies;
                (turn * copies + tile).saturating_mul(slice).saturating_add(at.0 % slice)
            }
        }
    }
}

/// One copy.
struct Tile<S> {
    source: S,
    batch: Vec<TraceEvent>,
    /// The place of the next event in the batch.
    next: usize,
    /// How often the trace was replayed to its end.
    laps: u64,
    /// Whether only unused space was named so far.
    at_head: bool,
}

/// Copies of a trace as a source of events. At the end of each pass it returns an empty batch once, and goes on.
pub(crate) struct Tiles<'a, S: TraceSource> {
    layout: TileLayout,
    device: DeviceIndex,
    open: &'a dyn Fn() -> Result<S, S::Error>,
    tiles: Vec<Tile<S>>,
    /// When the next event of each copy comes, and its number; the earliest first.
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    /// When the pass began.
    began: u64,
}

impl<'a, S: TraceSource> Tiles<'a, S> {
    /// Copies of what `open` returns, of its `device` alone.
    ///
    /// # Errors
    /// The errors of `open` and of its source.
    pub(crate) fn new(
        layout: TileLayout,
        device: DeviceIndex,
        open: &'a dyn Fn() -> Result<S, S::Error>,
    ) -> Result<Self, S::Error> {
        let mut this = Self { layout, device, open, tiles: Vec::new(), queue: BinaryHeap::new(), began: 0 };
        for tile in 0..layout.tiling.copies as usize {
            this.tiles.push(Tile { source: open()?, batch: Vec::new(), next: 0, laps: 0, at_head: true });
            this.enqueue(tile)?;
        }
        Ok(this)
    }

    /// Enqueues the next event of a copy, which begins anew where it has ended.
    fn enqueue(&mut self, number: usize) -> Result<(), S::Error> {
        let tile = &mut self.tiles[number];
        let mut is_first_reading = true;
        loop {
            if let Some(event) = tile.batch.get(tile.next) {
                if event.device != self.device {
                    tile.next += 1;
                    continue;
                }
                tile.at_head &= tile.laps == 0 && event.kind == EventKind::Unused;
                // Space that was unused when recording began is so from the start, also in copies that begin later.
                let at = if tile.at_head { 0 } else { self.layout.time(number as u64, tile.laps, event.at) };
                self.queue.push(Reverse((at, number)));
                return Ok(());
            }
            tile.next = 0;
            tile.source.next_batch(&mut tile.batch)?;
            if tile.batch.is_empty() {
                // A trace without events of this device would be read for ever.
                if !is_first_reading {
                    return Ok(());
                }
                is_first_reading = false;
                tile.laps += 1;
                tile.source = (self.open)()?;
            }
        }
    }
}

impl<S: TraceSource> TraceSource for Tiles<'_, S> {
    type Error = S::Error;

    fn header(&self) -> &TraceHeader {
        self.tiles[0].source.header()
    }

    fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<(), S::Error> {
        batch.clear();
        let end = self.began.saturating_add(self.layout.pass_span().0);
        while batch.len() < BATCH
            && let Some(&Reverse((time, number))) = self.queue.peek()
            && time < end
        {
            self.queue.pop();
            let tile = &mut self.tiles[number];
            let event = tile.batch[tile.next];
            tile.next += 1;
            let start = self.layout.pitch.0.saturating_mul(number as u64);
            // A request that failed may name anything.
            let moved = |address: Bytes| Bytes(address.0.saturating_add(start));
            let extent = Extent { start: moved(event.extent.start), end: moved(event.extent.end) };
            batch.push(TraceEvent { at: Nanos(time - self.began), extent, ..event });
            self.enqueue(number)?;
        }
        if batch.is_empty() {
            self.began = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::*;

    const SIZE: Bytes = Bytes(3 << 20);

    /// A trace in memory, handed out two events at a time.
    struct Memory<I> {
        header: TraceHeader,
        events: I,
    }

    impl<I: Iterator<Item = TraceEvent>> TraceSource for Memory<I> {
        type Error = Infallible;

        fn header(&self) -> &TraceHeader {
            &self.header
        }

        fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<(), Infallible> {
            batch.clear();
            batch.extend(self.events.by_ref().take(2));
            Ok(())
        }
    }

    fn event(at: u64, kind: EventKind, start: u64, device: u16) -> TraceEvent {
        TraceEvent {
            at: Nanos(at),
            device: DeviceIndex(device),
            kind,
            extent: Extent::at(Bytes(start), Bytes(4096)),
            latency: None,
            process: Default::default(),
            error: 0,
            fs: None,
        }
    }

    /// The events of each pass as (time, copy, place in the copy).
    fn passes(tiling: Tiling, span: u64, events: &[TraceEvent], passes: usize) -> Vec<Vec<(u64, u64, u64)>> {
        let open = || Ok(Memory { header: TraceHeader::new("test"), events: events.iter().copied() });
        let layout = TileLayout::new(tiling, SIZE, Nanos(span));
        let mut tiles = Tiles::new(layout, DeviceIndex(0), &open).unwrap();
        let mut pass = || {
            let (mut all, mut batch) = (Vec::new(), Vec::new());
            loop {
                tiles.next_batch(&mut batch).unwrap();
                if batch.is_empty() {
                    return all;
                }
                let line = |event: &TraceEvent| {
                    (event.at.0, event.extent.start.0 / SIZE.0, event.extent.start.0 % SIZE.0)
                };
                all.extend(batch.iter().map(line));
            }
        };
        (0..passes).map(|_| pass()).collect()
    }

    #[test]
    fn copies_write_in_turns_or_at_once() {
        let events = [event(0, EventKind::Write, 0, 0), event(127, EventKind::Write, 4096, 0)];
        // Two nanoseconds a slice: the second copy begins half a trace later.
        let slice = passes(Tiling { copies: 2, order: TileOrder::Slice }, 127, &events, 2);
        assert_eq!(slice[0], [(0, 0, 0), (32 * 4 + 2, 1, 0), (63 * 4 + 1, 0, 4096)]);
        assert_eq!(slice[1], [(0, 0, 0), (31 * 4 + 3, 1, 4096), (32 * 4 + 2, 1, 0), (63 * 4 + 1, 0, 4096)]);
        let at_once = passes(Tiling { copies: 2, order: TileOrder::Interleave }, 127, &events, 2);
        assert_eq!(at_once[0], [(0, 0, 0), (128, 1, 0), (254, 0, 4096)]);
        assert_eq!(at_once[1], [(0, 0, 0), (126, 1, 4096), (128, 1, 0), (254, 0, 4096)]);
    }

    #[test]
    fn unused_space_of_all_copies_is_known_from_the_start() {
        let events = [
            event(0, EventKind::Unused, 0, 0),
            event(0, EventKind::Unused, 4096, 0),
            event(9, EventKind::Write, 0, 0),
        ];
        let at_once = passes(Tiling { copies: 2, order: TileOrder::Interleave }, 9, &events, 1);
        assert_eq!(at_once[0], [(0, 0, 0), (0, 0, 4096), (0, 1, 0), (0, 1, 4096), (18, 0, 0)]);
    }

    #[test]
    fn trace_without_events_of_the_device_ends() {
        let other = [event(0, EventKind::Write, 0, 1)];
        assert_eq!(passes(Tiling { copies: 3, order: TileOrder::Slice }, 9, &other, 1), [[]; 1]);
    }

    proptest! {
        #[test]
        fn each_copy_replays_the_trace_in_order(
            copies in 1..9_u32, slice in any::<bool>(),
            mut times in proptest::collection::vec((0..1000_u64, 0..2_u16), 1..40),
        ) {
            times.sort_unstable();
            times[0].1 = 0;
            let span = times.last().unwrap().0;
            let events: Vec<_> = (0..).zip(&times).map(|(n, (at, device))| {
                event(*at, EventKind::Write, n * 4096, *device)
            }).collect();
            let order = if slice { TileOrder::Slice } else { TileOrder::Interleave };
            let all = passes(Tiling { copies, order }, span, &events, 3);
            let own: Vec<_> =
                events.iter().filter(|event| event.device.0 == 0).map(|it| it.extent.start.0).collect();
            for pass in &all {
                prop_assert!(pass.is_sorted_by_key(|event| event.0));
            }
            // Three passes hold at least two replays of each copy, and three of the first.
            for copy in 0..u64::from(copies) {
                let placed: Vec<_> =
                    all.iter().flatten().filter(|event| event.1 == copy).map(|event| event.2).collect();
                let expected: Vec<_> = own.iter().cycle().copied().take(placed.len()).collect();
                prop_assert_eq!(&placed, &expected);
                let least = if copy == 0 { 3 } else { 2 };
                prop_assert!(placed.len() >= own.len() * least);
            }
        }
    }
}
