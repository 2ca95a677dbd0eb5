//! Draws conclusions from the measurements of a bench.
//!
//! # From which size a discard pays
//!
//! A drive that is full rewrites at its steady rate, one with room at its fresh rate: by how much
//! they differ is what room is worth. Each byte that a discard frees lets one byte be written at the
//! fresh rate instead of the steady one, so a discard of s bytes gives back s × (1 / steady - 1 /
//! fresh) of time and takes command + s × per_gib. It pays where it gives back more than it takes:
//!
//! s > command / (1 / steady - 1 / fresh - per_gib)
//!
//! and never where the denominator is not above zero. A discard below the granularity that the drive
//! honours frees nothing, so it doesn't pay either.

use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_core::document::bench::{
    BenchDocument, DegradationStep, Estimate, Fit, Passage, Pattern, SweepCell,
};
use trimtab_core::erase::Operation;
use trimtab_core::fit::{Cell, Cost, cliffs, cost};
use trimtab_core::stats::median;

/// The patterns that tell what a discard costs: of data first, then of next to none.
const PATTERNS: [&[Pattern]; 2] =
    [&[Pattern::Sequential, Pattern::Random], &[Pattern::Unaligned, Pattern::Discarded, Pattern::Unwritten]];

/// The patterns over areas without data whose cost is compared with the cost of data.
const NO_DATA: [Pattern; 2] = [Pattern::Discarded, Pattern::Unwritten];

/// Data matter where they make up more than this part of the cost of a GiB.
const LEAST_OF_DATA: f64 = 0.1;

/// Discards run beside each other where several in flight raise their rate this many times.
const LEAST_GAIN: f64 = 1.5;

/// Returns the conclusions; none until the latency sweep has three sizes of one pattern.
pub fn fit(document: &BenchDocument) -> Option<Fit> {
    let curve = curve(document);
    let cells: Vec<_> = curve.iter().map(|cell| as_sent(cell)).collect();
    let cost = cost(&cells)?;
    let (pays_from_bytes, pays_note) = match pays(document, &cost) {
        Ok((from, note)) => (Some(from), note),
        Err(reason) => (None, reason.to_string()),
    };
    let verify = document.verify.as_ref();
    Some(Fit {
        command_us: cost.command_us,
        per_gib_ms: cost.per_gib_ms,
        per_mapped_gib_ms: per_mapped(document, &cost),
        at_once: at_once(document),
        residual: cost.residual,
        cliffs: cliffs(&cells),
        honoured_granularity: verify.and_then(|verify| verify.granularity.honoured),
        queued: document.queueing.as_ref().map(|queueing| queueing.queued),
        reads: verify.and_then(|verify| verify.reads),
        pays_from_bytes,
        pays_note,
    })
}

/// The cells that tell what a discard costs: of one pattern, one discard at a time. Of the patterns
/// over data, or where none was measured, of the others, it is the one with the most sizes.
pub(super) fn curve(document: &BenchDocument) -> Vec<&SweepCell> {
    PATTERNS
        .iter()
        .map(|patterns| longest(document, patterns))
        .find(|cells| !cells.is_empty())
        .unwrap_or_default()
}

/// The cells of one discard at a time, of the pattern in `patterns` that has the most sizes.
fn longest<'a>(document: &'a BenchDocument, patterns: &[Pattern]) -> Vec<&'a SweepCell> {
    let of = |pattern: Pattern| -> Vec<&SweepCell> {
        let cells: Vec<_> = document
            .sweeps
            .iter()
            .filter(|cell| cell.operation == Operation::Discard && cell.pattern == pattern)
            .filter(|cell| cell.depth == 1 && cell.latency.n > 0)
            .collect();
        // Where the kernel counts discards at all, those it didn't send tell nothing of the drive.
        let is_counted = cells.iter().any(|cell| matches!(cell.passage, Passage::Whole | Passage::Split));
        let reached = |cell: &&SweepCell| match cell.passage {
            Passage::Whole | Passage::Split | Passage::Unknown => true,
            Passage::Uncounted => !is_counted,
            Passage::Shrunk => false,
        };
        cells.into_iter().filter(reached).collect()
    };
    patterns.iter().rev().map(|pattern| of(*pattern)).max_by_key(Vec::len).unwrap_or_default()
}

/// The cost that data add to each GiB, in milliseconds: the cost of discards of data (`cost`) less the cost of discards of
/// areas without data. None where they differ by no more than the noise.
fn per_mapped(document: &BenchDocument, cost_of_data: &Cost) -> Option<Estimate> {
    if longest(document, PATTERNS[0]).is_empty() {
        return None;
    }
    let cells: Vec<_> = longest(document, &NO_DATA).into_iter().map(as_sent).collect();
    let (data, bare) = (cost_of_data.per_gib_ms, cost(&cells)?.per_gib_ms);
    let value = data.value - bare.value;
    let found = Estimate { value, low: data.low - bare.high, high: data.high - bare.low };
    (found.low > 0.0 && value > LEAST_OF_DATA * data.value).then_some(found)
}

/// How many discards the drive works on at once: by how much the rate of those in flight together exceeds the rate of one
/// at a time. None where they do not run beside each other, or no such rates were measured.
fn at_once(document: &BenchDocument) -> Option<u32> {
    let rate = |of: &SweepCell, depth: u32| {
        let same = document.sweeps.iter().find(|cell| {
            (cell.operation, cell.pattern, cell.size, cell.depth)
                == (of.operation, of.pattern, of.size, depth)
        });
        same.map(|cell| cell.commands_s).filter(|rate| *rate > 0.0)
    };
    let discards = || document.sweeps.iter().filter(|cell| cell.operation == Operation::Discard);
    let mut depths: Vec<_> = discards().map(|cell| cell.depth).filter(|depth| *depth > 1).collect();
    depths.sort_unstable();
    depths.dedup();
    let gain = |depth: u32| {
        let cells = discards().filter(|cell| cell.depth == depth && cell.passage != Passage::Split);
        let gains: Vec<_> = cells.filter_map(|cell| Some(rate(cell, depth)? / rate(cell, 1)?)).collect();
        median(&gains).map(|gain| gain.min(f64::from(depth)))
    };
    let most = depths.into_iter().filter_map(gain).fold(0.0, f64::max);
    let is_queued = document.queueing.as_ref().is_none_or(|queueing| queueing.queued);
    (is_queued && most >= LEAST_GAIN).then_some(most.round() as u32)
}

/// A cell with the commands that the kernel made of each discard.
fn as_sent(cell: &SweepCell) -> Cell<'_> {
    let sent = cell.kernel.filter(|_| cell.passage == Passage::Split).map(|kernel| kernel.discards);
    let commands = sent.map_or(1.0, |sent| sent as f64 / cell.latency.n as f64);
    Cell { size: cell.size, commands, latencies: &cell.latency.histogram }
}

/// Why there is no size from which a discard pays.
#[derive(Debug, thiserror::Error)]
enum NoSize {
    #[error(
        "from what size on a discard pays is not known: how random writes slow on a full drive was not measured"
    )]
    NotMeasured,
    #[error("no size pays: {costs}")]
    None { costs: String },
    #[error("no size that the drive holds pays: {costs}")]
    LargerThanDrive { costs: String },
}

/// Returns the size in bytes from which a discard pays, with the costs that it follows from in words.
fn pays(document: &BenchDocument, cost: &Cost) -> Result<(Estimate, String), NoSize> {
    let (last, fresh) = (document.last_overwrites(), document.rates(DegradationStep::Fresh));
    let (Some(steady_s), Some(fresh_s)) = (seconds_per_gib(&last), seconds_per_gib(&fresh)) else {
        return Err(NoSize::NotMeasured);
    };
    let command_s = scaled(cost.command_us, 1e-6);
    let per_gib_s = scaled(cost.per_gib_ms, 1e-3);
    let costs = format!(
        "a GiB of random writes takes {} on the full drive ({}) and {} on one with room, its discard {} and \
         {} for each command",
        wall(steady_s.value),
        if document.is_steady() { "steady" } else { "not steady yet" },
        wall(fresh_s.value),
        wall(per_gib_s.value),
        wall(command_s.value),
    );
    let gain = steady_s.value - fresh_s.value - per_gib_s.value;
    if gain <= 0.0 {
        return Err(NoSize::None { costs });
    }
    let gib = command_s.value / gain;
    let most = document.device.size.gib();
    if gib > most {
        return Err(NoSize::LargerThanDrive { costs });
    }
    let dearer = [
        command_s.high / gain,
        command_s.value / (gain - (per_gib_s.high - per_gib_s.value)),
        command_s.value / (gain - (steady_s.value - steady_s.low)),
        command_s.value / (gain - (fresh_s.high - fresh_s.value)),
    ];
    let cheaper = [
        command_s.low / gain,
        command_s.value / (gain + (per_gib_s.value - per_gib_s.low)),
        command_s.value / (gain + (steady_s.high - steady_s.value)),
        command_s.value / (gain + (fresh_s.value - fresh_s.low)),
    ];
    let together = |ends: [f64; 4]| ends.map(|end| (end - gib).powi(2)).iter().sum::<f64>().sqrt();
    let is_certain = dearer.iter().all(|end| *end > 0.0);
    let high = if is_certain { gib + together(dearer) } else { most };
    let least = document.verify.as_ref().and_then(|verify| verify.granularity.honoured).unwrap_or_default();
    let bytes = |gib: f64| (gib.clamp(0.0, most) * Bytes::GIB.0 as f64).max(least.0 as f64);
    let from = Estimate { value: bytes(gib), low: bytes(gib - together(cheaper)), high: bytes(high) };
    Ok((from, format!("from {} on a discard pays: {costs}", Bytes(from.value.round() as u64))))
}

/// The seconds that a GiB takes, from the MiB/s of some rounds: their median, with the interval
/// that their spread gives it (the standard error of a median is 1.2533 times a mean's, and
/// 1.4826 times the median distance from it estimates the standard deviation).
fn seconds_per_gib(rounds: &[f64]) -> Option<Estimate> {
    let seconds: Vec<_> = rounds.iter().map(|mib_s| 1024.0 / mib_s).collect();
    let value = median(&seconds)?;
    let distances: Vec<_> = seconds.iter().map(|second| (second - value).abs()).collect();
    let error = 1.2533 * 1.4826 * median(&distances)? / (seconds.len() as f64).sqrt();
    Some(Estimate { value, low: (value - 1.96 * error).max(0.0), high: value + 1.96 * error })
}

fn scaled(Estimate { value, low, high }: Estimate, by: f64) -> Estimate {
    Estimate { value: value * by, low: low * by, high: high * by }
}

/// Seconds as people write them: `53.2 ms`.
fn wall(seconds: f64) -> String {
    format!("{:.1?}", Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Measured, document};
    use super::*;

    fn degraded(steady_mib_s: f64, fresh_mib_s: f64) -> BenchDocument {
        document(&Measured { steady_mib_s, fresh_mib_s, ..Measured::default() })
    }

    #[test]
    fn discard_pays_from_the_size_that_repays_its_cost() {
        // 10 ms of command, 50 ms a GiB; 1024 / 10 - 1024 / 100 = 92.16 s a GiB are won.
        let fit = fit(&degraded(10.0, 100.0)).unwrap();
        let from = fit.pays_from_bytes.unwrap();
        let expected = 0.010 / (92.16 - 0.050) * Bytes::GIB.0 as f64;
        assert!((from.value / expected - 1.0).abs() < 0.05, "{from:?} is not {expected}");
        assert!(from.low < from.value && from.value < from.high, "{from:?}");
        let size = Bytes(from.value.round() as u64);
        assert!(fit.pays_note.starts_with(&format!("from {size} on a discard pays: ")), "{}", fit.pays_note);
    }

    #[test]
    fn note_says_why_no_size_pays() {
        let note = |document: &BenchDocument| {
            let fit = fit(document).unwrap();
            assert_eq!(fit.pays_from_bytes, None);
            fit.pays_note
        };
        assert!(note(&degraded(100.0, 90.0)).starts_with("no size pays: "));
        let slow = document(&Measured { command_us: 5e8, ..Measured::default() });
        assert!(note(&slow).starts_with("no size that the drive holds pays: "));
        let mut unmeasured = degraded(10.0, 100.0);
        unmeasured.degradation.clear();
        assert!(note(&unmeasured).contains("not known: "));
    }

    #[test]
    fn sizes_below_the_granularity_never_pay() {
        let mut document = degraded(10.0, 100.0);
        document.verify.as_mut().unwrap().granularity.honoured = Some(Bytes::MIB);
        assert_eq!(fit(&document).unwrap().pays_from_bytes.unwrap().value, Bytes::MIB.0 as f64);
    }

    #[test]
    fn curve_uses_written_data_and_discards_that_reached_the_drive() {
        let mut document = degraded(10.0, 100.0);
        let all = document.sweeps.len();
        assert_eq!(curve(&document).len(), all);
        document.sweeps[0].passage = Passage::Uncounted;
        document.sweeps[1].passage = Passage::Shrunk;
        assert_eq!(curve(&document).len(), all - 2);
        for cell in &mut document.sweeps[..6] {
            cell.pattern = Pattern::Unwritten;
        }
        assert!(curve(&document).iter().all(|cell| cell.pattern == Pattern::Sequential));
        for cell in &mut document.sweeps[6..] {
            cell.depth = 4;
        }
        assert_eq!(curve(&document).len(), 4);
    }
}
