//! The share of a workload that one of several writers does.

use trimtab_core::Bytes;

/// One of several equal shares. The shares of any amount add up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    number: u32,
    of: u32,
}

impl Share {
    /// The share of a writer that works alone: all of it.
    pub const WHOLE: Self = Self { number: 0, of: 1 };

    /// The shares of `writers` writers, in order.
    pub fn all(writers: u32) -> impl Iterator<Item = Self> {
        (0..writers).map(move |number| Self { number, of: writers })
    }

    /// Its number, from 0.
    pub fn number(self) -> u32 {
        self.number
    }

    /// How many writers share the work.
    pub fn writers(self) -> u32 {
        self.of
    }

    /// Its part of `whole` items: all parts differ by one at most.
    pub fn count(self, whole: u64) -> u64 {
        let before = |number: u32| u128::from(whole) * u128::from(number) / u128::from(self.of);
        (before(self.number + 1) - before(self.number)) as u64
    }

    /// Its part of `whole` bytes.
    pub fn bytes(self, whole: Bytes) -> Bytes {
        Bytes(self.count(whole.0))
    }

    /// The seed of this writer where the first one has `seed`.
    pub fn seed(self, seed: u64) -> u64 {
        seed.wrapping_add(self.number.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shares_add_up_and_differ_by_one_at_most(whole in any::<u64>(), writers in 1_u32..=64) {
            let shares: Vec<u64> = Share::all(writers).map(|share| share.count(whole)).collect();
            prop_assert_eq!(shares.len(), writers as usize);
            prop_assert_eq!(shares.iter().copied().map(u128::from).sum::<u128>(), u128::from(whole));
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            prop_assert!(most - least <= 1);
        }

        #[test]
        fn seeds_of_writers_differ(seed in any::<u64>()) {
            let mut seeds: Vec<u64> = Share::all(64).map(|share| share.seed(seed)).collect();
            prop_assert_eq!(seeds[0], seed);
            seeds.sort_unstable();
            seeds.dedup();
            prop_assert_eq!(seeds.len(), 64);
        }
    }

    #[test]
    fn one_writer_has_all() {
        assert_eq!(Share::all(1).collect::<Vec<_>>(), [Share::WHOLE]);
        assert_eq!(Share::WHOLE.bytes(Bytes(u64::MAX)), Bytes(u64::MAX));
    }
}
