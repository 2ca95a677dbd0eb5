//! The sums of the arena: one cell at a time.

use trimtab_core::document::arena::{ArenaCell, ArenaDocument, ArenaRun};

use trimtab_core::{Nanos, distinct};

use super::{MOST_ERASES, MOST_READ_P99, MOST_WAIT};
use crate::number::{seconds, times};

const SMART: &str = "smart";
const IDEAL: &str = "ideal";
const NONE: &str = "none";

/// Copies, discarded bytes or times within this factor count as the same when a reason is looked for.
const ALIKE: f64 = 1.02;
/// The part of a longer wait that the time of discards must make up to be its reason.
const PART: f64 = 0.25;
/// The part of a read's longer p99 that a discard must take to be its reason.
const PART_OF_READ: f64 = 0.5;

/// A bar that a cell does not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The foreground waits longer than [`MOST_WAIT`] allows.
    Wait,
    /// More erases than [`MOST_ERASES`] allows.
    Erases,
    /// Slower reads than [`MOST_READ_P99`] allows.
    ReadP99,
}

/// Where `smart` stands in one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// The cell.
    pub cell: ArenaCell,
    /// The other policy with the least foreground wait.
    pub best: String,
    /// The foreground's wait over its wait with `best`.
    pub wait: f64,
    /// The foreground's wait over its wait with `ideal`; `None` if the bound was not replayed.
    pub wait_over_ideal: Option<f64>,
    /// The erases over the fewest of the other policies.
    pub erases: f64,
    /// The read p99 over the larger one of `none` and `best`.
    pub read_p99: f64,
    /// The bars that it does not meet.
    pub losses: Vec<Loss>,
    /// The reasons of the losses, as far as the figures tell them; empty if there are none.
    pub reason: String,
}

/// The standing of each cell in which `smart` and another policy were replayed, in the document's order.
pub fn standings(document: &ArenaDocument) -> Vec<Standing> {
    let mut cells: Vec<Vec<&ArenaRun>> = Vec::new();
    for run in &document.runs {
        match cells.last_mut().filter(|cell| cell[0].cell == run.cell) {
            Some(cell) => cell.push(run),
            None => match cells.iter_mut().find(|cell| cell[0].cell == run.cell) {
                Some(cell) => cell.push(run),
                None => cells.push(vec![run]),
            },
        }
    }
    cells.iter().filter_map(|runs| Standing::of(runs)).collect()
}

impl Standing {
    /// Of the replays of one cell; none without `smart` or without another policy.
    fn of(runs: &[&ArenaRun]) -> Option<Self> {
        let named = |name: &str| runs.iter().copied().find(|run| run.policy == name);
        let smart = named(SMART)?;
        let others = || runs.iter().copied().filter(|run| run.policy != SMART && run.policy != IDEAL);
        let best = others().min_by_key(|run| run.waited_ns)?;
        let fewest = others().min_by_key(|run| run.erases)?;
        let none_p99 = named(NONE).map_or(0, |run| run.read_p99_ns.0);
        let mut standing = Self {
            cell: smart.cell.clone(),
            best: best.policy.clone(),
            wait: over(smart.waited_ns.0, best.waited_ns.0),
            wait_over_ideal: named(IDEAL).map(|ideal| over(smart.waited_ns.0, ideal.waited_ns.0)),
            erases: over(smart.erases, fewest.erases),
            read_p99: over(smart.read_p99_ns.0, best.read_p99_ns.0.max(none_p99)),
            losses: Vec::new(),
            reason: String::new(),
        };
        let bars = [
            (Loss::Wait, standing.wait, MOST_WAIT),
            (Loss::Erases, standing.erases, MOST_ERASES),
            (Loss::ReadP99, standing.read_p99, MOST_READ_P99),
        ];
        standing.losses.extend(bars.iter().filter(|(_, ratio, most)| ratio > most).map(|(loss, ..)| *loss));
        let reasons = standing.losses.iter().map(|loss| match loss {
            Loss::Wait => reason(smart, best),
            Loss::Erases => reason(smart, fewest),
            Loss::ReadP99 => reason_of_reads(smart, best, best.read_p99_ns.0.max(none_p99)),
        });
        standing.reason = distinct(reasons).join("; ");
        Some(standing)
    }

    /// Whether it meets all bars.
    pub fn is_won(&self) -> bool {
        self.losses.is_empty()
    }

    /// By how much it misses the bar that it misses most; at most 1 if it meets all.
    pub fn excess(&self) -> f64 {
        (self.wait / MOST_WAIT).max(self.erases / MOST_ERASES).max(self.read_p99 / MOST_READ_P99)
    }
}

/// `part` over `whole`; 1 if both are zero.
fn over(part: u64, whole: u64) -> f64 {
    if part == whole { 1.0 } else { part as f64 / whole as f64 }
}

/// Why reads are slower with `smart` than `p99` of the others, with the figures that say so: discards that are about as
/// long as the difference, or else as for waits.
fn reason_of_reads(smart: &ArenaRun, best: &ArenaRun, p99: u64) -> String {
    let longer = smart.read_p99_ns.0.saturating_sub(p99) as f64;
    let discard = smart.discard_busy_ns.seconds() / smart.discards.max(1) as f64;
    if discard * 1e9 < PART_OF_READ * longer {
        return reason(smart, best);
    }
    format!(
        "reads met discards: {} of {} each in the mean; the p99 is {} instead of {}",
        smart.discards,
        seconds(discard),
        seconds(smart.read_p99_ns.seconds()),
        seconds(Nanos(p99).seconds()),
    )
}

/// Why `smart` does worse than `best`, with the figures that say so.
fn reason(smart: &ArenaRun, best: &ArenaRun) -> String {
    let waits = over(best.waited_ns.0, smart.waited_ns.0);
    if best.erases < smart.erases && waits > MOST_WAIT {
        return format!(
            "fewer erases for longer waits: with {}, the foreground waits {}",
            best.policy,
            times(waits)
        );
    }
    let copies = over(smart.copied_pages, best.copied_pages);
    let bytes = over(smart.discard_bytes.0, best.discard_bytes.0);
    let busier = smart.discard_busy_ns.0 as f64 - best.discard_busy_ns.0 as f64;
    let longer = smart.waited_ns.0 as f64 - best.waited_ns.0 as f64;
    let cause = if copies > ALIKE && bytes * ALIKE < 1.0 {
        "discarded too little"
    } else if copies > ALIKE {
        "discarded too late"
    } else if longer > 0.0 && busier > PART * longer {
        "discarded in the way"
    } else if copies * ALIKE < 1.0 {
        "longer waits in spite of fewer copies"
    } else {
        "copies and discards do not explain it"
    };
    format!(
        "{cause}: {} the copies, {} the bytes discarded, in {} discards for {}; discards took {} for {}",
        times(copies),
        times(bytes),
        smart.discards,
        best.discards,
        seconds(smart.discard_busy_ns.seconds()),
        seconds(best.discard_busy_ns.seconds()),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use trimtab_core::document::arena::ARENA_SCHEMA;
    use trimtab_core::units::Bytes;

    use super::*;

    /// A replay with these waits, erases and read p99.
    pub fn run(trace: &str, think_scale: f64, policy: &str, [waited, erases, p99]: [u64; 3]) -> ArenaRun {
        ArenaRun {
            cell: ArenaCell {
                set: "verdict".to_owned(),
                trace: trace.to_owned(),
                profile: "nvme-tlc".to_owned(),
                think_scale,
            },
            policy: policy.to_owned(),
            waited_ns: Nanos(waited),
            read_p99_ns: Nanos(p99),
            write_p99_ns: Nanos(p99),
            erases,
            host_pages: 1000,
            copied_pages: erases,
            discards: 1,
            discard_bytes: Bytes(4096),
            discard_busy_ns: Nanos(0),
            pending: Bytes(0),
        }
    }

    pub fn document(runs: Vec<ArenaRun>) -> ArenaDocument {
        ArenaDocument {
            schema: ARENA_SCHEMA.to_owned(),
            version: String::new(),
            started: String::new(),
            command: Vec::new(),
            passes: 1,
            runs,
        }
    }

    #[test]
    fn smart_is_held_to_the_best_other_in_each_figure() {
        let standing = &standings(&document(vec![
            run("mail", 0.0, "none", [2000, 80, 500]),
            run("mail", 0.0, "online", [1000, 100, 300]),
            run("mail", 0.0, "smart", [1100, 82, 550]),
            run("mail", 0.0, "ideal", [500, 10, 1]),
        ]))[0];
        assert_eq!(
            (standing.best.as_str(), standing.wait, standing.wait_over_ideal),
            ("online", 1.1, Some(2.2))
        );
        assert_eq!(
            (standing.erases, standing.read_p99),
            (82.0 / 80.0, 1.1),
            "none has the fewest and the larger p99"
        );
        assert_eq!(standing.losses, [Loss::Wait]);
        assert!((standing.excess() - 1.1 / MOST_WAIT).abs() < 1e-12);
    }

    #[test]
    fn each_bar_can_be_missed_alone() {
        for (figures, loss) in [
            ([1021, 100, 100], Loss::Wait),
            ([1000, 106, 100], Loss::Erases),
            ([1000, 100, 121], Loss::ReadP99),
        ] {
            let runs = vec![run("a", 1.0, "none", [1000, 100, 100]), run("a", 1.0, "smart", figures)];
            assert_eq!(standings(&document(runs))[0].losses, [loss]);
        }
        let even = [1020, 105, 120];
        let runs = vec![run("a", 1.0, "none", [1000, 100, 100]), run("a", 1.0, "smart", even)];
        assert!(standings(&document(runs))[0].is_won());
    }

    #[test]
    fn cells_are_told_apart_and_incomplete_ones_left_out() {
        let runs = vec![
            run("a", 0.0, "none", [10, 0, 0]),
            run("b", 0.0, "none", [10, 0, 0]),
            run("a", 1.0, "none", [10, 0, 0]),
            run("a", 0.0, "smart", [10, 0, 0]),
            run("a", 1.0, "smart", [20, 0, 0]),
            run("c", 1.0, "smart", [20, 0, 0]),
        ];
        let waits: Vec<_> = standings(&document(runs))
            .iter()
            .map(|it| (it.cell.trace.clone(), it.wait, it.wait_over_ideal))
            .collect();
        assert_eq!(waits, [("a".to_owned(), 1.0, None), ("a".to_owned(), 2.0, None)]);
    }

    #[test]
    fn reasons_follow_from_copies_discards_and_their_time() {
        let best = ArenaRun {
            copied_pages: 100,
            discard_bytes: Bytes(1 << 20),
            ..run("a", 0.0, "none", [1000, 0, 0])
        };
        let smart = ArenaRun { waited_ns: Nanos(2000), ..best.clone() };
        let cause = |smart: ArenaRun| reason(&smart, &best).split(':').next().unwrap().to_owned();
        assert_eq!(
            cause(ArenaRun { copied_pages: 110, discard_bytes: Bytes(1 << 19), ..smart.clone() }),
            "discarded too little"
        );
        assert_eq!(cause(ArenaRun { copied_pages: 110, ..smart.clone() }), "discarded too late");
        assert_eq!(cause(ArenaRun { discard_busy_ns: Nanos(900), ..smart.clone() }), "discarded in the way");
        assert_eq!(cause(smart), "copies and discards do not explain it");
    }

    #[test]
    fn erases_are_explained_by_the_policy_with_the_fewest() {
        let reason = |fewest: [u64; 3]| {
            let runs = [("batched:1s", [1000, 150, 0]), ("none", fewest), ("smart", [1000, 150, 0])];
            let runs = runs.map(|(policy, figures)| run("a", 0.0, policy, figures));
            standings(&document(runs.to_vec()))[0].reason.clone()
        };
        assert!(reason([2000, 100, 0]).starts_with("fewer erases for longer waits: with none,"));
        assert!(reason([1010, 100, 0]).starts_with("discarded too late: 1.50× the copies"));
    }

    #[test]
    fn slower_reads_met_discards_of_that_length() {
        let reason = |busy: u64| {
            let smart = ArenaRun {
                discards: 10,
                discard_busy_ns: Nanos(busy),
                ..run("a", 0.0, "smart", [1000, 100, 15_000_000])
            };
            standings(&document(vec![run("a", 0.0, "none", [1000, 100, 5_000_000]), smart]))[0].reason.clone()
        };
        assert_eq!(
            reason(120_000_000),
            "reads met discards: 10 of 12.0 ms each in the mean; the p99 is 15.0 ms instead of 5.00 ms"
        );
        assert!(reason(120_000).starts_with("copies and discards do not explain it:"));
    }
}
