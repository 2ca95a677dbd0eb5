//! Plans a bench before anything is written.

use std::str::FromStr;

use trimtab_core::document::bench::{BenchDevice, BenchPlan, Part, Pattern};
use trimtab_core::erase::Operation;
use trimtab_core::units::UnitError;
use trimtab_core::{Bytes, Extent};

/// Why a plan can't be carried out on a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The range isn't on the device.
    #[error("the range {range} reaches past the end of the device, at {size} ({} B)", size.0)]
    OffTheEnd {
        /// The value that was given.
        range: Extent,
        /// The device's size.
        size: Bytes,
    },
    /// An address or a size isn't whole logical blocks.
    #[error(
        "{what} {found} is not a whole number of logical blocks of {block}; choose a multiple of {block}"
    )]
    OffTheGrid {
        /// The setting that does not suit the device.
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
        /// The purpose that they are too few for.
        needed: String,
    },
    /// The device's blocks are larger than what the parts beside the sweep read and write.
    #[error("the device has logical blocks of {block}; a bench can measure those of up to {LARGEST_BLOCK}")]
    LargeBlocks {
        /// The device's logical block.
        block: Bytes,
    },
    /// A figure makes no sense.
    #[error("{what} must be {least} to {most}")]
    OutOfBounds {
        /// Which.
        what: &'static str,
        /// The least it can be.
        least: u32,
        /// The most it can be.
        most: u32,
    },
    /// Nothing to do.
    #[error("there is nothing to measure; name at least one {0}")]
    Nothing(&'static str),
}

/// The largest logical block that can be measured.
const LARGEST_BLOCK: Bytes = Bytes(4 << 10);

/// The least range that the parts beside the sweep need.
const LEAST_RANGE: Bytes = Bytes(16 << 20);

/// One cell of the latency sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// The operation that is sent.
    pub operation: Operation,
    /// Where.
    pub pattern: Pattern,
    /// How many in flight.
    pub depth: u32,
    /// The bytes each command names.
    pub size: Bytes,
}

impl Cell {
    /// Returns its name for users.
    pub fn name(&self) -> String {
        format!("{}, {}", self.kind(), self.size)
    }

    /// Returns the name of all cells that differ in size only, for users.
    pub fn kind(&self) -> String {
        format!("{} {}, depth {}", self.operation.name(), self.pattern.name(), self.depth)
    }

    /// How many commands of it `range` holds side by side.
    pub fn places(&self, range: Extent, block: Bytes) -> u64 {
        let shift = if self.pattern == Pattern::Unaligned { block } else { Bytes::ZERO };
        range.len().saturating_sub(shift).0 / self.size.0
    }
}

/// The sizes of a sweep, as users write them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    /// From one size to another, which may be the logical block, halving: `2G..512`, `2G..`.
    Halving(Bytes, Option<Bytes>),
    /// These: `4K,64K,1M`, or in equal steps `64K..1M+64K`.
    These(Vec<Bytes>),
}

/// The most sizes of a sweep.
const MOST_SIZES: u64 = 1000;

/// Why a text doesn't name sizes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizesError {
    /// One of them is no size.
    #[error(transparent)]
    Size(#[from] UnitError),
    /// They run the wrong way, or are far too many.
    #[error(
        "{0:?} names no sizes; write them like \"2G..512\" (halving), \"64K..1M+64K\" (in equal steps) or \"4K,64K,1M\""
    )]
    Shape(String),
}

impl FromStr for Sizes {
    type Err = SizesError;
    fn from_str(text: &str) -> Result<Self, SizesError> {
        let shape = || SizesError::Shape(text.to_owned());
        let Some((first, rest)) = text.split_once("..") else {
            return Ok(Self::These(text.split(',').map(str::parse).collect::<Result<_, _>>()?));
        };
        let first: Bytes = first.parse()?;
        match rest.split_once('+') {
            None if rest.is_empty() => Ok(Self::Halving(first, None)),
            None => {
                let last = rest.parse()?;
                if last > first || last == Bytes::ZERO {
                    Err(shape())
                } else {
                    Ok(Self::Halving(first, Some(last)))
                }
            }
            Some((last, step)) => {
                let (last, step): (Bytes, Bytes) = (last.parse()?, step.parse()?);
                if step == Bytes::ZERO || last < first || (last - first).0 / step.0 >= MOST_SIZES {
                    return Err(shape());
                }
                Ok(Self::These((first.0..=last.0).step_by(step.0 as usize).map(Bytes).collect()))
            }
        }
    }
}

impl Sizes {
    /// 2 GiB, halving to the logical block.
    pub const FULL: Self = Self::Halving(Bytes(2 << 30), None);

    /// 64 MiB down to 4 KiB in a few steps, and the logical block.
    pub fn quick(block: Bytes) -> Self {
        let sizes = [26, 23, 20, 16, 12].map(|power| Bytes(1 << power));
        Self::These(sizes.into_iter().filter(|size| *size > block).chain([block]).collect())
    }

    /// All of them on a device with this logical block, largest first.
    pub fn list(&self, block: Bytes) -> Vec<Bytes> {
        let mut sizes = match self {
            Self::These(sizes) => sizes.clone(),
            Self::Halving(first, last) => {
                let last = last.unwrap_or(block).max(block);
                let halves = std::iter::successors(Some(*first), |size| Some(Bytes(size.0 / 2)));
                halves.take_while(|size| *size >= last).collect()
            }
        };
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.dedup();
        sizes
    }
}

/// Checks that `plan` can be carried out on `device`.
///
/// # Errors
/// The part of the plan that does not suit the device.
pub fn check(plan: &BenchPlan, device: &BenchDevice) -> Result<(), PlanError> {
    let block = device.logical_block;
    let BenchPlan { range, sizes, .. } = plan;
    if block > LARGEST_BLOCK {
        return Err(PlanError::LargeBlocks { block });
    }
    let depths = || plan.depths.iter().map(|depth| f64::from(*depth));
    let figures = [
        ("the time (--time), in seconds,", plan.budget_wall_s, 1, 10_000_000),
        ("the delay of the verification, in seconds,", plan.verify_delay_wall_s, 0, 100_000),
        ("the queue depth", depths().fold(1.0, f64::min), 1, 32),
        ("the queue depth", depths().fold(1.0, f64::max), 1, 32),
    ];
    let out_of_bounds = |(_, value, least, most): &(&str, f64, u32, u32)| {
        !(f64::from(*least)..=f64::from(*most)).contains(value)
    };
    if let Some((what, _, least, most)) = figures.into_iter().find(out_of_bounds) {
        return Err(PlanError::OutOfBounds { what, least, most });
    }
    if range.start >= range.end {
        return Err(PlanError::Nothing("byte of the range"));
    }
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

/// The cells of the sweep in the order they run, what matters most first, should time run out:
/// discards before other operations, one in flight before many, the pattern that needs nothing
/// written before the others, and from small sizes to large. Cells whose commands the range can't
/// hold side by side, as many as are in flight, are left out.
pub fn cells(plan: &BenchPlan, block: Bytes) -> Vec<Cell> {
    if !plan.parts.contains(&Part::Latency) {
        return Vec::new();
    }
    let mut cells = Vec::new();
    for &operation in &plan.operations {
        for &pattern in &plan.patterns {
            for &depth in &plan.depths {
                cells.extend(plan.sizes.iter().map(|&size| Cell { operation, pattern, depth, size }));
            }
        }
    }
    cells.sort_by_key(|cell| {
        (cell.operation, cell.depth, cell.pattern != Pattern::Unwritten, cell.pattern, cell.size)
    });
    cells.retain(|cell| cell.places(plan.range, block) >= u64::from(cell.depth));
    cells
}

/// How a part of a bench weighs in the time budget.
pub(super) const fn weight(part: Part) -> f64 {
    match part {
        Part::Latency => 5.0,
        Part::Verify => 2.0,
        Part::Interference => 3.0,
        Part::Degradation => 6.0,
        Part::Background => 4.0,
    }
}

/// How fast a device has to write, in bytes per second, so that no cell of the plan's latency sweep is left out
/// because laying down the data of its least commands takes too long; 0 if none needs data.
pub fn enough_write_rate(plan: &BenchPlan, block: Bytes) -> f64 {
    let cells = cells(plan, block);
    let writing = cells.iter().filter(|cell| cell.pattern.needs_data());
    let bytes: u64 = writing.map(|cell| u64::from(cell.depth) * cell.size.0).sum();
    let weights: f64 = plan.parts.iter().map(|part| weight(*part)).sum();
    bytes as f64 / (plan.budget_wall_s * weight(Part::Latency) / weights)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Vec<u64> {
        text.parse::<Sizes>().unwrap().list(Bytes(512)).iter().map(|size| size.0).collect()
    }

    #[test]
    fn sizes_are_parsed_in_common_notations() {
        assert_eq!(sizes("4K.."), [4096, 2048, 1024, 512]);
        assert_eq!(sizes("4K..1K"), [4096, 2048, 1024]);
        assert_eq!(sizes("3K..1K"), [3072, 1536]);
        assert_eq!(sizes("1K,4K,1K"), [4096, 1024]);
        assert_eq!(sizes("1K..4K+1536"), [4096, 2560, 1024]);
        assert_eq!(Sizes::FULL.list(Bytes(4096)).len(), 20);
        assert_eq!(Sizes::quick(Bytes(4096)).list(Bytes(4096)).last(), Some(&Bytes(4096)));
        for nonsense in ["", "4K..8K", "1K..4K+0", "1..1G+1", "4K..0", "x"] {
            assert!(nonsense.parse::<Sizes>().is_err(), "{nonsense}");
        }
    }

    fn plan_of(range: u64, sizes: &[u64]) -> BenchPlan {
        BenchPlan {
            range: Extent::new(Bytes::ZERO, Bytes(range)),
            parts: Part::ALL.to_vec(),
            sizes: sizes.iter().copied().map(Bytes).collect(),
            patterns: vec![Pattern::Sequential, Pattern::Unwritten, Pattern::Unaligned],
            depths: vec![1, 4],
            operations: vec![Operation::Discard],
            budget_wall_s: 60.0,
            verify_delay_wall_s: 1.0,
            seed: 1,
        }
    }

    #[test]
    fn unwritten_cells_run_first_and_oversized_ones_are_left_out() {
        let plan = plan_of(32 << 20, &[32 << 20, 8 << 20]);
        let cells = cells(&plan, Bytes(512));
        let names: Vec<_> = cells.iter().map(Cell::name).collect();
        assert_eq!(
            names,
            [
                "discard unwritten, depth 1, 8 MiB",
                "discard unwritten, depth 1, 32 MiB",
                "discard sequential, depth 1, 8 MiB",
                "discard sequential, depth 1, 32 MiB",
                "discard unaligned, depth 1, 8 MiB",
                "discard unwritten, depth 4, 8 MiB",
                "discard sequential, depth 4, 8 MiB",
            ]
        );
    }
}
