//! Synthetic frees beside a list of blocks.

use proptest::prelude::{Just, Strategy, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use trimtab_core::trace::{TraceDevice, TraceSource};

use super::*;
use crate::counts::ReadCounts;

const BLOCK: u64 = 4096;
const BLOCKS: usize = 48;

/// A trace in memory, handed out in batches of five.
struct Memory {
    header: TraceHeader,
    events: Vec<TraceEvent>,
    counts: ReadCounts,
}

impl TraceSource for Memory {
    type Error = TraceError;

    fn header(&self) -> &TraceHeader {
        &self.header
    }

    fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<(), TraceError> {
        batch.clear();
        batch.extend(self.events.drain(..self.events.len().min(5)));
        Ok(())
    }
}

impl TraceReader for Memory {
    fn counts(&self) -> &ReadCounts {
        &self.counts
    }
}

fn device(name: &str) -> TraceDevice {
    TraceDevice {
        name: name.to_owned(),
        number: (8, 0),
        model: String::new(),
        size: Bytes(BLOCKS as u64 * BLOCK),
        logical_block: Bytes(512),
        rotational: false,
        discard_granularity: Bytes(BLOCK),
        discard_max: Bytes(BLOCK * BLOCKS as u64),
        discard_max_hardware: Bytes(BLOCK * BLOCKS as u64),
    }
}

fn event(at: u64, device: u16, kind: EventKind, start: u64, length: u64) -> TraceEvent {
    TraceEvent {
        at: Nanos(at),
        device: DeviceIndex(device),
        kind,
        extent: Extent::at(Bytes(start * BLOCK), Bytes(length * BLOCK)),
        latency: Some(Nanos(30)),
        process: Comm::default(),
        error: 0,
        fs: None,
    }
}

/// Returns the header, the events and the counts of the result.
fn synthesised(
    events: &[TraceEvent],
    options: &SynthOptions,
) -> Result<(TraceHeader, Vec<TraceEvent>, Synthesised), SynthError> {
    let header = TraceHeader { devices: vec![device("a"), device("b")], ..TraceHeader::new("test") };
    let (mut out, mut written) = (Vec::new(), None);
    let mut open = || -> Result<Box<dyn TraceReader + Send>, TraceError> {
        let events = events.to_vec();
        Ok(Box::new(Memory { header: header.clone(), events, counts: ReadCounts::default() }))
    };
    let made = synthesise(options, &mut open, &mut |header, batch| {
        written = Some(header.clone());
        out.extend_from_slice(batch);
        Ok(())
    })?;
    Ok((written.expect("the header is written"), out, made))
}

fn options(share: f64, median: u64) -> SynthOptions {
    SynthOptions { share, median: Nanos(median), spread: 1.0, gap: Nanos(50), seed: 1 }
}

fn events() -> impl Strategy<Value = Vec<TraceEvent>> {
    let kind = prop_oneof![
        6 => Just(EventKind::Write),
        2 => Just(EventKind::Read),
        1 => Just(EventKind::Discard),
        1 => Just(EventKind::Flush),
    ];
    let one = (0_u64..200, 0_u16..2, kind, 0..BLOCKS as u64 - 8, 1_u64..8);
    prop::collection::vec(one, 0..150).prop_map(|drawn| {
        let mut now = 0;
        let at = |(wait, device, kind, start, length)| {
            now += wait;
            event(now, device, kind, start, length)
        };
        drawn.into_iter().map(at).collect()
    })
}

proptest! {
    #[test]
    fn frees_cover_written_blocks_that_nobody_reads_before_they_are_written_or_discarded(
        events in events(),
        share in prop_oneof![Just(0.0), Just(0.5), Just(1.0)],
        median in 1_u64..5000,
    ) {
        let options = options(share, median);
        let (_, out, made) = synthesised(&events, &options).unwrap();
        let requests: Vec<_> = out.iter().filter(|event| event.kind != EventKind::Free).copied().collect();
        prop_assert_eq!(requests, events.clone());
        prop_assert!(out.is_sorted_by_key(|event| event.at));
        let (mut written, mut freed) = (vec![false; 2 * BLOCKS], vec![false; 2 * BLOCKS]);
        let mut bytes = Bytes::ZERO;
        for event in &out {
            let first = event.device.0 as usize * BLOCKS + (event.extent.start.0 / BLOCK) as usize;
            for block in first..first + (event.extent.len().0 / BLOCK) as usize {
                match event.kind {
                    EventKind::Write => (written[block], freed[block]) = (true, false),
                    EventKind::Discard => (written[block], freed[block]) = (false, false),
                    EventKind::Read => prop_assert!(!freed[block], "block {} is read after its free", block),
                    EventKind::Free => {
                        prop_assert!(written[block] && !freed[block], "block {} has nothing to free", block);
                        freed[block] = true;
                        bytes += Bytes(BLOCK);
                    }
                    _ => {}
                }
            }
        }
        prop_assert_eq!(bytes, made.freed);
        prop_assert!(share > 0.0 || made.freed == Bytes::ZERO);
        prop_assert_eq!(synthesised(&events, &options).unwrap(), synthesised(&events, &options).unwrap());
    }
}

#[test]
fn runs_of_writes_are_files_that_live_for_the_median() {
    // A file of two adjoining writes each millisecond, in places of its own; the last event lets all lives end.
    let file = |number: u64| {
        let (at, start) = (number * 1_000_000, number * 8);
        [event(at, 0, EventKind::Write, start, 4), event(at + 40, 0, EventKind::Write, start + 4, 4)]
    };
    let mut events: Vec<_> = (0..400).flat_map(file).collect();
    events.push(event(1_000_000_000_000, 0, EventKind::Flush, 0, 0));
    let median = 20_000_000;
    let (header, out, made) = synthesised(&events, &options(1.0, median)).unwrap();
    assert_eq!((made.files, made.freed_files, made.freed), (400, 400, Bytes(400 * 8 * BLOCK)));
    // The median of 400 draws lies within a tenth of the log-normal's more often than not; a quarter is three sigma.
    assert!((made.median.0 as f64 / median as f64 - 1.0).abs() < 0.25, "{}", made.median);
    assert_eq!(out.iter().filter(|event| event.kind == EventKind::Free).count(), 400, "each is one extent");
    assert!(header.has_frees && header.gaps[0].starts_with("its frees are synthetic"), "{:?}", header.gaps);
    let (_, _, half) = synthesised(&events, &options(0.5, median)).unwrap();
    assert!((140..260).contains(&half.freed_files), "{}", half.freed_files);
}
