//! The smallest parts that a trim can be split into.

use std::time::Duration;

use trimtab_core::{Bytes, Extent};

use super::Limits;
use crate::free_space::{Division, FreeSpace};

/// The length of a piece if the free space is not known.
const BLIND_LENGTH: Bytes = Bytes::GIB;

/// A range that can only be trimmed as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    pub range: Extent,
    /// The free extent in it; `None` if unknown.
    pub free: Option<Extent>,
    /// Its share of the progress.
    pub bytes: Bytes,
    /// The start of its group. Pieces of one group are trimmed together if that doesn't take too long.
    pub group: Bytes,
}

impl Piece {
    /// Returns the predicted duration; `None` if its free extent is not known.
    pub fn time(&self, limits: &Limits) -> Option<Duration> {
        self.free.map(|free| (limits.time)(free.len()))
    }
}

/// Returns a piece for each free extent in `wanted`. Pieces adjoin each other, so that space that is freed
/// between them is trimmed too, except in groups without free space.
pub fn of_free_space(division: &Division, free: &FreeSpace, wanted: Extent) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for extent in free.within(wanted).extents() {
        let group = match division {
            Division::Groups(groups) => groups.at(extent.start).intersect(wanted),
            _ => *extent,
        };
        let start = match (pieces.last(), division) {
            (Some(last), Division::Groups(_)) if last.group != group.start => group.start,
            (Some(last), _) => last.range.end,
            (None, Division::Groups(_)) => group.start,
            (None, _) => wanted.start,
        };
        pieces.push(Piece {
            range: Extent::new(start, extent.end),
            free: Some(*extent),
            bytes: extent.len(),
            group: group.start,
        });
    }
    let ends: Vec<_> = pieces.iter().skip(1).map(|next| (next.group, next.range.start)).collect();
    for (at, piece) in pieces.iter_mut().enumerate() {
        piece.range.end = match (ends.get(at), division) {
            (Some((group, start)), _) if *group == piece.group => *start,
            (_, Division::Groups(groups)) => groups.at(piece.range.start).end.min(wanted.end),
            (Some((_, start)), _) => *start,
            (None, _) => wanted.end,
        };
    }
    pieces
}

/// Returns a piece for each chunk that overlaps `wanted`, starting at the start of the chunk. With
/// `only_whole`, skips chunks whose start is not in `wanted`, as the kernel does.
pub fn of_chunks(chunks: &[Extent], wanted: &[Extent], only_whole: bool) -> Vec<Piece> {
    let mut sorted = chunks.to_vec();
    sorted.sort_unstable();
    let piece = |chunk: Extent| {
        let in_it = wanted.iter().map(|wanted| wanted.intersect(chunk)).filter(|part| !part.is_empty());
        let end = in_it.clone().map(|part| part.end).max()?;
        let begins = in_it.map(|part| part.start).min()? == chunk.start;
        let range = Extent::new(chunk.start, end);
        let piece = Piece { range, free: None, bytes: range.len(), group: chunk.start };
        (begins || !only_whole).then_some(piece)
    };
    sorted.into_iter().filter_map(piece).collect()
}

/// Returns the only piece of a file system that takes trims of everything alone.
pub fn whole(wanted: Extent, size: Bytes) -> Piece {
    let bytes = wanted.end.min(size).saturating_sub(wanted.start);
    Piece { range: wanted, free: None, bytes, group: wanted.start }
}

/// Returns pieces of a fixed length. The last one ends with `wanted`, which may lie beyond `size`.
pub fn blind(wanted: Extent, size: Bytes) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut start = wanted.start;
    while start < wanted.end.min(size) {
        let next = Bytes(start.0.saturating_add(BLIND_LENGTH.0));
        let end = if next >= size { wanted.end } else { next.min(wanted.end) };
        let range = Extent::new(start, end);
        pieces.push(Piece { range, free: None, bytes: end.min(size) - start, group: start });
        start = end;
    }
    pieces
}
