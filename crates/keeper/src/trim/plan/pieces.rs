//! The pieces that the trim of a file system can be cut into.

use std::time::Duration;

use trimtab_core::{Bytes, Extent};

use super::Limits;
use crate::free_space::{Division, FreeSpace};

/// What is trimmed at once where it isn't known what is free.
const BLIND: Bytes = Bytes::GIB;

/// A range that one trim has to name as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    pub range: Extent,
    /// What is free in it and to be discarded; none where that isn't known.
    pub free: Option<Extent>,
    /// What it adds to the progress.
    pub bytes: Bytes,
    /// The group it is in. Those of one group are trimmed together where that isn't too long.
    pub group: Bytes,
}

impl Piece {
    /// How long it should take; none where it isn't known what is free in it.
    pub fn time(&self, limits: &Limits) -> Option<Duration> {
        self.free.map(|free| (limits.time)(free.len()))
    }
}

/// A piece for each free extent in `wanted`. They lie end to end, so that what is freed between them is
/// trimmed too, but for groups in which nothing is.
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

/// A piece for each chunk that has any of `wanted`, which has to be named from its start on: those that
/// don't begin in it are passed over where `only_whole` is wanted, as the kernel does.
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

/// Pieces of a fixed length; the last goes to the end of `wanted`, which may lie past all there is.
pub fn blind(wanted: Extent, size: Bytes) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut start = wanted.start;
    while start < wanted.end.min(size) {
        let next = Bytes(start.0.saturating_add(BLIND.0));
        let end = if next >= size { wanted.end } else { next.min(wanted.end) };
        let range = Extent::new(start, end);
        pieces.push(Piece { range, free: None, bytes: end.min(size) - start, group: start });
        start = end;
    }
    pieces
}
