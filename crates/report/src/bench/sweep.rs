//! The cells of a sweep, by what was sent where.

use std::cmp::Reverse;

use trimtab_core::document::BenchDocument;
use trimtab_core::document::bench::{Passage, Pattern, SweepCell};
use trimtab_core::erase::Operation;

/// The settings that the cells of one curve have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub operation: Operation,
    pub pattern: Pattern,
    pub depth: u32,
}

impl Kind {
    /// `discard, sequential, depth 1`.
    pub fn name(self) -> String {
        format!("{}, {}, depth {}", self.operation.name(), self.pattern.name(), self.depth)
    }

    fn of(cell: &SweepCell) -> Self {
        Self { operation: cell.operation, pattern: cell.pattern, depth: cell.depth }
    }
}

/// The kinds of cells that `document` has: discards first, then by pattern and depth.
pub fn kinds(document: &BenchDocument) -> Vec<Kind> {
    let mut kinds: Vec<_> = document.sweeps.iter().map(Kind::of).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// The kind that most of `documents` have, the plainest of several; none where no document has
/// cells.
pub fn main_kind(documents: &[&BenchDocument]) -> Option<Kind> {
    let all: Vec<_> = documents.iter().flat_map(|document| kinds(document)).collect();
    let having = |kind: &Kind| all.iter().filter(|other| *other == kind).count();
    all.iter().min_by_key(|kind| (Reverse(having(kind)), **kind)).copied()
}

/// The cells of `kind`, smallest size first.
pub fn cells(document: &BenchDocument, kind: Kind) -> Vec<&SweepCell> {
    let mut cells: Vec<_> = document.sweeps.iter().filter(|cell| Kind::of(cell) == kind).collect();
    cells.sort_by_key(|cell| cell.size);
    cells
}

/// The kernel's handling of the commands of a cell, where it is not as asked for.
pub fn mark(passage: Passage) -> &'static str {
    match passage {
        Passage::Whole | Passage::Unknown => "",
        Passage::Split => "split",
        Passage::Shrunk => "shrunk",
        Passage::Uncounted => "not counted",
    }
}
