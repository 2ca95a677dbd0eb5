//! A bit for each physical page: whether it holds valid data.

use std::ops::Range;

/// A bit for each page address; every block begins a new word.
#[derive(PartialEq)]
pub(crate) struct Validity(Vec<u64>);

impl Validity {
    /// For this many addresses, a multiple of 64; none is valid.
    pub(crate) fn new(addresses: u32) -> Self {
        Self(vec![0; addresses as usize / 64])
    }

    /// `count` pages of one block from `first` are valid now.
    pub(crate) fn set(&mut self, first: u32, count: u32) {
        for (word, bits) in masks(first.into()..(first + count).into()) {
            self.0[word] |= bits;
        }
    }

    /// These pages of one block aren't valid any more.
    #[inline]
    pub(crate) fn clear(&mut self, pages: Range<u32>) {
        for (word, bits) in masks(pages.start.into()..pages.end.into()) {
            self.0[word] &= !bits;
        }
    }

    /// The word with the bit of this page.
    pub(crate) fn word(&self, address: u32) -> u64 {
        self.0[(address / 64) as usize]
    }

    /// No page of the block at `first` is valid any more.
    pub(crate) fn clear_block(&mut self, first: u32, pages: u32) {
        self.0[(first / 64) as usize..][..pages.div_ceil(64) as usize].fill(0);
    }

    /// The bits of the block at `first`.
    pub(crate) fn words(&self, first: u32, pages: u32) -> &[u64] {
        &self.0[(first / 64) as usize..][..pages.div_ceil(64) as usize]
    }

    /// The number of valid pages.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The memory it holds, in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&self.0[..])
    }
}

/// How many of these pages are valid, in the words of their block.
#[inline]
pub(crate) fn count_valid(words: &[u64], offsets: Range<u32>) -> u32 {
    masks(offsets.start.into()..offsets.end.into())
        .map(|(word, bits)| (words[word] & bits).count_ones())
        .sum()
}

/// The words that a range of bits lies in, each with its bits set.
#[inline]
pub(crate) fn masks(bits: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    let mut next = bits.start;
    std::iter::from_fn(move || {
        let (word, bit) = (next / 64, next % 64);
        let count = (64 - bit).min(bits.end - next);
        next += count;
        (count > 0).then(|| (word as usize, (u64::MAX >> (64 - count)) << bit))
    })
}
