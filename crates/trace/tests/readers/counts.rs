//! Counts of traces from which lines are missing, against counts of the lines that are there.

use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};
use trimtab_core::trace::EventKind::{self, Discard, Read, Write};

use super::{Trace, text};

/// A request of bios: contiguous ones, which are merged, or the ranges of a discard.
#[derive(Debug, Clone)]
struct Request {
    kind: u8,
    bios: Vec<u64>,
}

/// A step in a trace: action, letter, first sector, sectors.
type Step = (char, char, u64, u64);

fn steps(requests: &[Request]) -> Vec<Step> {
    let mut steps = Vec::new();
    for (number, request) in requests.iter().enumerate() {
        let letter = ['R', 'W', 'D'][usize::from(request.kind % 3)];
        let start = number as u64 * 100_000;
        let mut at = start;
        for (place, sectors) in request.bios.iter().enumerate() {
            steps.push(('Q', letter, at, *sectors));
            if place > 0 && letter != 'D' {
                steps.push(('M', letter, at, *sectors));
            }
            at += sectors + if letter == 'D' { 1000 } else { 0 };
        }
        let all = request.bios.iter().sum();
        steps.extend([('D', letter, start, all), ('C', letter, start, all)]);
    }
    steps
}

fn lines(steps: &[Step]) -> String {
    let line = |(number, (action, letter, start, sectors)): (usize, &Step)| {
        format!("8,0  0  {number}  0.{:09}  7  {action}  {letter} {start} + {sectors} [0]\n", number * 1000)
    };
    steps.iter().enumerate().map(line).collect()
}

/// The bytes of a kind of event.
fn bytes(trace: &Trace, kind: EventKind) -> u64 {
    trace.of(kind).iter().map(|event| event.extent.len().0).sum()
}

proptest! {
    #[test]
    fn bytes_are_those_of_the_lines_that_are_there(
        requests in prop::collection::vec((any::<u8>(), prop::collection::vec(1_u64..500, 1..5)), 1..40),
        dropped in prop::collection::vec(any::<u8>(), 400),
        actions in 0..6_usize,
        rate in 0..3_u8,
    ) {
        let requests: Vec<_> = requests.into_iter().map(|(kind, bios)| Request { kind, bios }).collect();
        let kept = ["QMDC", "QM", "C", "D", "QMC", "DC"][actions];
        let mut dropped = dropped.into_iter().cycle();
        let mut there = steps(&requests);
        there.retain(|(action, ..)| kept.contains(*action) && dropped.next().unwrap_or(0) >= rate * 20);
        // The layer whose lines are the events.
        let has = |action| there.iter().any(|step| step.0 == action);
        let layer = ['D', 'Q', 'C'].into_iter().find(|layer| has(*layer));
        let read = text(&lines(&there));
        let Some(layer) = layer else {
            prop_assert_eq!(read.map(|_| ()).map_err(|_| ()), Err(()));
            return Ok(());
        };
        let trace = read.unwrap();
        for (letter, kind) in [('R', Read), ('W', Write), ('D', Discard)] {
            let of = there.iter().filter(|step| step.0 == layer && step.1 == letter);
            let expected: u64 = of.map(|step| step.3 * 512).sum();
            let found = bytes(&trace, kind);
            if kept == "QMDC" && rate > 0 {
                // The issue of a request whose other lines are there may lack.
                let of = steps(&requests).into_iter().filter(|step| step.0 == 'D' && step.1 == letter);
                let most: u64 = of.map(|step| step.3 * 512).sum();
                prop_assert!((expected..=most).contains(&found), "{found} of {expected} to {most}: {there:?}");
            } else {
                prop_assert_eq!(found, expected, "{} {:?}", kept, there);
            }
        }
        // With nothing missing, each range of a discard is in its place.
        if rate == 0 && kept.starts_with("QM") && !kept.ends_with('M') {
            let ranges: Vec<_> = steps(&requests).into_iter().filter(|step| step.0 == 'Q' && step.1 == 'D').collect();
            let mut found: Vec<_> = trace.of(Discard).iter().map(|event| (event.extent.start.0 / 512, event.extent.len().0 / 512)).collect();
            found.sort_unstable();
            let expected: Vec<_> = ranges.iter().map(|step| (step.2, step.3)).collect();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(trace.of(Write).len() + trace.of(Read).len(), requests.iter().filter(|it| it.kind % 3 < 2).count());
        }
    }

    /// A byte of a table of numbers changes: all its rows are read, or it is refused.
    #[test]
    fn mutated_tables_keep_their_counts(row in 0..50_usize, column in 0..5_usize, digit in 0..12_usize) {
        let rows = |changed: bool| -> String {
            let line = |number: usize| {
                let mut fields = [number * 1000, number % 2, number * 8, 8 + number % 5, number % 2].map(|it| it.to_string());
                if changed && number == row {
                    fields[column] = ["0", "1", "7", "x", "-1", "", "1.5", "99999999999999999999", "1e3", "0x1", "+1", " "][digit].to_owned();
                }
                fields.join(" ") + "\n"
            };
            (0..50).map(line).collect()
        };
        let whole = text(&rows(false)).unwrap();
        prop_assert_eq!(whole.events.len(), 50);
        if let Ok(changed) = text(&rows(true)) {
            prop_assert_eq!(changed.events.len(), 50);
            let others = |trace: &Trace| trace.events.iter().map(|event| event.extent.start.0).sum::<u64>();
            prop_assert_eq!(column != 2 && others(&changed) != others(&whole), false);
        }
    }
}
