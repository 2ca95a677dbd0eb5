//! Which physical pages hold data: a bit for each address.

/// A bit for each page address; every block begins a new word.
pub(crate) struct Validity(Vec<u64>);

impl Validity {
    /// For this many addresses, a multiple of 64; none is valid.
    pub(crate) fn new(addresses: u32) -> Self {
        Self(vec![0; addresses as usize / 64])
    }

    /// `count` pages of one block from `first` are valid now.
    pub(crate) fn set(&mut self, first: u32, count: u32) {
        let (mut next, end) = (first, first + count);
        while next < end {
            let bits = (64 - next % 64).min(end - next);
            self.0[(next / 64) as usize] |= (u64::MAX >> (64 - bits)) << (next % 64);
            next += bits;
        }
    }

    /// One page isn't valid any more.
    #[inline]
    pub(crate) fn clear(&mut self, address: u32) {
        self.0[(address / 64) as usize] &= !(1 << (address % 64));
    }

    /// No page of the block at `first` is valid any more.
    pub(crate) fn clear_block(&mut self, first: u32, pages: u32) {
        self.0[(first / 64) as usize..][..pages.div_ceil(64) as usize].fill(0);
    }

    /// The bits of the block at `first`.
    pub(crate) fn words(&self, first: u32, pages: u32) -> &[u64] {
        &self.0[(first / 64) as usize..][..pages.div_ceil(64) as usize]
    }

    /// The valid pages of the block at `first`, numbered from its start, rising.
    pub(crate) fn offsets(&self, first: u32, pages: u32) -> impl Iterator<Item = u32> {
        (0..).step_by(64).zip(self.words(first, pages)).flat_map(|(base, word)| {
            let mut bits = *word;
            std::iter::from_fn(move || {
                let offset = base + bits.trailing_zeros();
                (bits != 0).then(|| {
                    bits &= bits - 1;
                    offset
                })
            })
        })
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
