//! What a bench is to do, laid out before anything is written.

use trimtab_core::document::bench::{BenchDevice, BenchPlan, Operation, Part, Pattern};
use trimtab_core::{Bytes, Extent};

/// Why a plan can't be carried out on a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The range isn't on the device.
    #[error("the range {range} reaches past the end of the device, at {size} ({} B)", size.0)]
    OffTheEnd {
        /// What was asked for.
        range: Extent,
        /// The device's size.
        size: Bytes,
    },
    /// An address or a size isn't whole logical blocks.
    #[error(
        "{what} {found} is not a whole number of logical blocks of {block}; choose a multiple of {block}"
    )]
    OffTheGrid {
        /// What isn't.
        what: &'static str,
        /// Its value.
        found: String,
        /// The device's logical block.
        block: Bytes,
    },
    /// The range holds less than what each part needs.
    #[error("{available} are too few for {needed}; choose a larger range, or smaller sizes (--sizes)")]
    TooSmall {
        /// The bytes there are.
        available: Bytes,
        /// What they are too few for.
        needed: String,
    },
    /// Nothing to do.
    #[error("there is nothing to measure; name at least one {0}")]
    Nothing(&'static str),
}

/// The least range that the parts beside the sweep need.
const LEAST_RANGE: Bytes = Bytes(16 << 20);

/// One cell of the latency sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// What is sent.
    pub operation: Operation,
    /// Where.
    pub pattern: Pattern,
    /// How many in flight.
    pub depth: u32,
    /// The bytes each command names.
    pub size: Bytes,
}

impl Cell {
    /// What users call it.
    pub fn name(&self) -> String {
        let Self { operation, pattern, depth, size } = self;
        format!("{} {}, depth {depth}, {size}", operation.name(), pattern.name())
    }

    /// How many commands of it `range` holds side by side.
    pub fn places(&self, range: Extent, block: Bytes) -> u64 {
        let shift = if self.pattern == Pattern::Unaligned { block } else { Bytes::ZERO };
        range.len().saturating_sub(shift).0 / self.size.0
    }
}

/// The sizes of a full sweep: 2 GiB, halving to one logical block.
pub fn halving_sizes(block: Bytes) -> Vec<Bytes> {
    (block.0.ilog2()..=31).rev().map(|power| Bytes(1 << power)).collect()
}

/// The sizes of a quick sweep: 256 MiB, quartering to 4 KiB, and one logical block.
pub fn quick_sizes(block: Bytes) -> Vec<Bytes> {
    let quarters = (12..=28).rev().step_by(2).map(|power| Bytes(1 << power));
    let mut sizes: Vec<_> = quarters.filter(|size| *size > block).collect();
    sizes.push(block);
    sizes
}

/// Checks that `plan` can be carried out on `device`.
///
/// # Errors
/// What can't.
pub fn check(plan: &BenchPlan, device: &BenchDevice) -> Result<(), PlanError> {
    let block = device.logical_block;
    let BenchPlan { range, sizes, .. } = plan;
    if range.end > device.size {
        return Err(PlanError::OffTheEnd { range: *range, size: device.size });
    }
    let whole = |bytes: Bytes| bytes.0.is_multiple_of(block.0);
    if !whole(range.start) || !whole(range.end) {
        return Err(PlanError::OffTheGrid { what: "the range", found: range.to_string(), block });
    }
    if let Some(size) = sizes.iter().find(|size| !whole(**size) || size.0 == 0) {
        return Err(PlanError::OffTheGrid { what: "the size", found: size.to_string(), block });
    }
    let lists = [
        ("part", plan.parts.is_empty()),
        ("size", sizes.is_empty()),
        ("pattern", plan.patterns.is_empty()),
        ("depth", plan.depths.is_empty()),
        ("operation", plan.operations.is_empty()),
    ];
    if let Some((what, _)) = lists.into_iter().find(|(_, empty)| *empty) {
        return Err(PlanError::Nothing(what));
    }
    let largest = sizes.iter().copied().max().unwrap_or_default();
    let sweeps = plan.parts.contains(&Part::Latency);
    if sweeps && largest > range.len() {
        let needed = format!("a command of {largest}, the largest size");
        return Err(PlanError::TooSmall { available: range.len(), needed });
    }
    if range.len() < LEAST_RANGE {
        let needed = format!("a bench, which needs {LEAST_RANGE}");
        return Err(PlanError::TooSmall { available: range.len(), needed });
    }
    Ok(())
}

/// The cells of the sweep in the order they run: those on an unwritten range first, as nothing has
/// been written yet; small sizes before large ones, so that what takes longest comes last. Cells
/// whose commands the range can't hold side by side, as many as are in flight, are left out.
pub fn cells(plan: &BenchPlan, block: Bytes) -> Vec<Cell> {
    if !plan.parts.contains(&Part::Latency) {
        return Vec::new();
    }
    let mut patterns = plan.patterns.clone();
    patterns.sort_by_key(|pattern| (*pattern != Pattern::Unwritten, *pattern));
    let mut sizes = plan.sizes.clone();
    sizes.sort_unstable();
    let (unwritten, written): (Vec<_>, Vec<_>) =
        patterns.into_iter().partition(|pattern| *pattern == Pattern::Unwritten);
    let mut cells = Vec::new();
    for group in [unwritten, written] {
        for &size in &sizes {
            for &operation in &plan.operations {
                for &pattern in &group {
                    for &depth in &plan.depths {
                        cells.push(Cell { operation, pattern, depth, size });
                    }
                }
            }
        }
    }
    cells.retain(|cell| cell.places(plan.range, block) >= u64::from(cell.depth));
    cells
}

/// How much a bench writes and discards at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amounts {
    /// The cells of the sweep.
    pub cells: usize,
    /// Bytes written in the sweep at most, where time allows.
    pub sweep_written: Bytes,
    /// Commands sent in the sweep at most.
    pub sweep_commands: u64,
}

/// What [`BenchPlan`] comes to at most; the time budget may end it sooner.
pub fn amounts(plan: &BenchPlan, block: Bytes) -> Amounts {
    let cells = cells(plan, block);
    let commands = |cell: &Cell| cell.places(plan.range, block).min(super::sweep::SAMPLES);
    let writes = |cell: &&Cell| !matches!(cell.pattern, Pattern::Discarded | Pattern::Unwritten);
    let written = |cell: &Cell| Bytes(commands(cell) * cell.size.0);
    Amounts {
        sweep_written: cells.iter().filter(writes).map(written).sum(),
        sweep_commands: cells.iter().map(commands).sum(),
        cells: cells.len(),
    }
}
