//! Counts current discards, frees, writes and reads, and the processes behind them.
//!
//! [`Watch`] adds up events and makes a [`Report`] for every interval and one for the whole time; a
//! [`Session`] feeds it from the kernel. Requests are counted by device, because the kernel doesn't report
//! which file system sent them. Frees and allocations are counted by file system.

mod causes;
mod pending;
mod report;
mod session;
mod span;

use std::collections::BTreeMap;

use trimtab_core::Nanos;
use trimtab_core::trace::{DeviceIndex, EventKind, FsIndex, TraceEvent, TraceHeader};

use pending::Pending;
pub use report::{
    CommandReport, DeviceReport, FileSystemReport, Flow, PendingReport, ProcessReport, Report, Scope,
    SettledReport, WATCH_SCHEMA,
};
pub use session::{Session, WatchError};
use span::Span;

/// Adds up events, interval by interval.
#[derive(Debug, Default)]
pub struct Watch {
    interval: Span,
    whole: Span,
    pending: BTreeMap<(DeviceIndex, FsIndex), Pending>,
    /// When the interval began.
    since: Nanos,
    /// The events that were lost before the watch.
    lost_before: u64,
    /// The events that were lost before the interval.
    lost_since: u64,
}

impl Watch {
    /// Starts a watch when `lost` events of its recording have been lost already.
    pub fn after(lost: u64) -> Self {
        Self { lost_before: lost, lost_since: lost, ..Self::default() }
    }

    /// Counts one event.
    pub fn record(&mut self, event: &TraceEvent) {
        self.interval.record(event);
        match (event.kind, event.fs) {
            (EventKind::Free, Some(fs)) => {
                self.pending.entry((event.device, fs)).or_default().free(event.extent);
            }
            (EventKind::Allocate, Some(fs)) => {
                self.pending.entry((event.device, fs)).or_default().take(event.extent);
            }
            (EventKind::Discard | EventKind::SecureErase | EventKind::Write | EventKind::WriteZeroes, _)
                if event.error == 0 =>
            {
                let of_device = (event.device, FsIndex(0))..=(event.device, FsIndex(u16::MAX));
                self.pending.range_mut(of_device).for_each(|(_, pending)| pending.take(event.extent));
            }
            _ => {}
        }
    }

    /// Ends the interval, returns its report and starts the next one. `header` is the events' header, `now`
    /// the wall time since the watch started.
    pub fn interval(&mut self, header: &TraceHeader, now: Nanos) -> Report {
        let lost = header.lost - self.lost_since;
        let report = self.report(Scope::Interval, &self.interval, header, self.since..now, lost);
        self.whole.merge(&std::mem::take(&mut self.interval));
        (self.since, self.lost_since) = (now, header.lost);
        report
    }

    /// Returns the report from the start to `now`.
    pub fn summary(&mut self, header: &TraceHeader, now: Nanos) -> Report {
        self.whole.merge(&std::mem::take(&mut self.interval));
        self.report(Scope::Summary, &self.whole, header, Nanos::ZERO..now, header.lost - self.lost_before)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop, prop_assert_eq, proptest};
    use trimtab_core::trace::{Comm, TraceDevice, TraceFileSystem};
    use trimtab_core::{Bytes, Extent};

    use super::*;

    const BLOCK: u64 = 4096;

    fn header() -> TraceHeader {
        let device = |name: &str| TraceDevice { name: name.to_owned(), ..TraceDevice::default() };
        let file_system = |mount_point: &str| TraceFileSystem {
            kind: "ext4".to_owned(),
            mount_point: mount_point.to_owned(),
            options: String::new(),
            source: String::new(),
        };
        TraceHeader {
            devices: vec![device("loop0"), device("loop1")],
            file_systems: vec![file_system("/a"), file_system("/b")],
            ..TraceHeader::new("record")
        }
    }

    fn event(kind: EventKind, device: u16, start: u64, blocks: u64) -> TraceEvent {
        TraceEvent {
            at: Nanos(0),
            device: DeviceIndex(device),
            kind,
            extent: Extent::at(Bytes(start * BLOCK), Bytes(blocks * BLOCK)),
            latency: kind.is_request().then_some(Nanos(blocks * 1000)),
            process: Comm::new(b"rm"),
            error: 0,
            fs: (!kind.is_request()).then_some(FsIndex(device)),
        }
    }

    fn events() -> impl Strategy<Value = TraceEvent> {
        let kinds = prop::sample::select(vec![
            EventKind::Discard,
            EventKind::Write,
            EventKind::Read,
            EventKind::Free,
            EventKind::Allocate,
        ]);
        let parts = (kinds, 0..2u16, 0..50u64, 1..9u64, any::<bool>(), any::<bool>());
        parts.prop_map(|(kind, device, start, blocks, failed, other)| TraceEvent {
            error: if failed && kind.is_request() { 5 } else { 0 },
            process: Comm::new(if other { b"jbd2" } else { b"rm" }),
            ..event(kind, device, start, blocks)
        })
    }

    /// Returns count, bytes, errors and median of the events that pass.
    fn naive(events: &[TraceEvent], pass: impl Fn(&TraceEvent) -> bool) -> (u64, u64, u64, Option<Bytes>) {
        let passing: Vec<_> = events.iter().filter(|event| pass(event)).collect();
        let mut lengths: Vec<_> = passing.iter().map(|event| event.extent.len()).collect();
        lengths.sort();
        let errors = passing.iter().filter(|event| event.error != 0).count() as u64;
        let median = lengths.get(lengths.len().saturating_sub(1) / 2).copied();
        (lengths.len() as u64, lengths.iter().map(|length| length.0).sum(), errors, median)
    }

    fn figures(flow: &Flow) -> (u64, u64, u64, Option<Bytes>) {
        (flow.count, flow.bytes.0, flow.errors, flow.median_bytes)
    }

    fn check(report: &Report, events: &[TraceEvent]) {
        for (index, device) in (0..).zip(&report.devices) {
            let of = |kind| naive(events, |event| event.device.0 == index && event.kind == kind);
            assert_eq!(figures(&device.discards), of(EventKind::Discard));
            assert_eq!(figures(&device.writes), of(EventKind::Write));
            assert_eq!(figures(&device.reads), of(EventKind::Read));
            assert_eq!(device.discards.sizes.total(), device.discards.count);
        }
        for file_system in &report.file_systems {
            let index = u16::from(file_system.device == "loop1");
            let of = |kind| naive(events, |event| event.device.0 == index && event.kind == kind);
            assert_eq!(figures(&file_system.frees), of(EventKind::Free));
            assert_eq!(figures(&file_system.allocations), of(EventKind::Allocate));
        }
        for process in &report.processes {
            let of = |kind| {
                let named = |event: &TraceEvent| event.process.to_string() == process.name;
                let (count, bytes, ..) = naive(events, |event| named(event) && event.kind == kind);
                (count, Bytes(bytes))
            };
            assert_eq!((process.discards, process.discard_bytes), of(EventKind::Discard));
            assert_eq!((process.frees, process.free_bytes), of(EventKind::Free));
            assert_eq!((process.writes, process.write_bytes), of(EventKind::Write));
            assert_eq!((process.reads, process.read_bytes), of(EventKind::Read));
        }
    }

    proptest! {
        #[test]
        fn intervals_and_their_sum_equal_the_events(
            first in prop::collection::vec(events(), 0..60),
            second in prop::collection::vec(events(), 0..60),
        ) {
            let (mut watch, header) = (Watch::default(), header());
            first.iter().for_each(|event| watch.record(event));
            check(&watch.interval(&header, Nanos(1_000_000_000)), &first);
            second.iter().for_each(|event| watch.record(event));
            check(&watch.interval(&header, Nanos(3_000_000_000)), &second);
            let all = [first, second].concat();
            check(&watch.summary(&header, Nanos(3_000_000_000)), &all);
        }

        #[test]
        fn pending_extents_were_freed_and_neither_discarded_nor_used(
            events in prop::collection::vec(events(), 0..80),
        ) {
            let mut watch = Watch::default();
            let mut naive = [[false; 64]; 2];
            for event in &events {
                watch.record(event);
                let blocks = (event.extent.start.0 / BLOCK) as usize..(event.extent.end.0 / BLOCK) as usize;
                let blocks = &mut naive[usize::from(event.device.0)][blocks];
                match event.kind {
                    EventKind::Free => blocks.fill(true),
                    EventKind::Allocate => blocks.fill(false),
                    EventKind::Discard | EventKind::Write if event.error == 0 => blocks.fill(false),
                    _ => {}
                }
            }
            let report = watch.summary(&header(), Nanos(1));
            for file_system in &report.file_systems {
                let blocks = naive[usize::from(file_system.device == "loop1")];
                let bytes = blocks.iter().filter(|pending| **pending).count() as u64 * BLOCK;
                prop_assert_eq!(file_system.pending.bytes, Bytes(bytes));
            }
        }
    }

    #[test]
    fn rates_are_those_of_the_interval() {
        let (mut watch, mut header) = (Watch::after(3), header());
        header.lost = 3;
        watch.record(&event(EventKind::Discard, 0, 0, 1));
        watch.interval(&header, Nanos(5_000_000_000));
        header.lost = 10;
        (0..4).for_each(|start| watch.record(&event(EventKind::Discard, 0, start, 2)));
        let report = watch.interval(&header, Nanos(7_000_000_000));
        let discards = &report.devices[0].discards;
        assert_eq!((report.start_wall_s, report.wall_s, report.lost), (5.0, 2.0, 7));
        assert_eq!((discards.per_s, discards.bytes_per_s), (2.0, 4.0 * BLOCK as f64));
        assert_eq!(discards.latency.unwrap().p50_ns.0 / 10, 200);
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
        let summary = watch.summary(&header, Nanos(10_000_000_000));
        assert_eq!(
            (summary.devices[0].discards.count, summary.lost, summary.devices[1].discards.count),
            (5, 7, 0)
        );
        assert_eq!(summary.devices[0].discards.per_s, 0.5);
    }
}
