//! Blocks that say what they are, so that any block read back can be classified.

use std::ops::Range;

use trimtab_core::Bytes;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The fields at the start of a block: each is eight bytes, little-endian.
const CHECKSUM: Range<usize> = 0..8;
const RUN: Range<usize> = 8..16;
const ADDRESS: Range<usize> = 16..24;
const GENERATION: Range<usize> = 24..32;

/// The order of what is written: a block that is written again carries a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub(crate) struct Generation(pub(crate) u64);

/// The class of a block's contents when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Nothing but zeros.
    Zero,
    /// The data that was written to it last.
    Unchanged,
    /// The data that this run wrote to another address.
    Misplaced,
    /// Anything else, older data of this address among it.
    Changed,
}

/// Makes and recognizes the blocks of one run.
///
/// A block holds a checksum of the rest, the run, its own address, its generation, and numbers
/// that can't be compressed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contents {
    /// Tells the blocks of this run from those of others.
    run: u64,
    block: usize,
}

impl Contents {
    /// The contents of run `run` on a device with logical blocks of `block`.
    pub(crate) fn new(run: u64, block: Bytes) -> Self {
        Self { run, block: block.0 as usize }
    }

    /// Fills `buffer` with the blocks that belong to the addresses from `at` on.
    pub(crate) fn fill(&self, at: Bytes, generation: Generation, buffer: &mut [u8]) {
        for (address, block) in (at.0..).step_by(self.block).zip(buffer.chunks_exact_mut(self.block)) {
            let seed = xxh3_64_with_seed(&address.to_le_bytes(), self.run ^ generation.0);
            fill_with_noise(seed, &mut block[GENERATION.end..]);
            block[RUN].copy_from_slice(&self.run.to_le_bytes());
            block[ADDRESS].copy_from_slice(&address.to_le_bytes());
            block[GENERATION].copy_from_slice(&generation.0.to_le_bytes());
            let checksum = self.checksum(block);
            block[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        }
    }

    /// Returns the class of `block`, read from address `at` that was last written as `generation`.
    pub(crate) fn classify(&self, at: Bytes, generation: Generation, block: &[u8]) -> Class {
        if block[0] == 0 && block[1..] == block[..block.len() - 1] {
            Class::Zero
        } else if block[RUN] != self.run.to_le_bytes()
            || block[CHECKSUM] != self.checksum(block).to_le_bytes()
        {
            Class::Changed
        } else if block[ADDRESS] != at.0.to_le_bytes() {
            Class::Misplaced
        } else if block[GENERATION] == generation.0.to_le_bytes() {
            Class::Unchanged
        } else {
            Class::Changed
        }
    }

    fn checksum(&self, block: &[u8]) -> u64 {
        xxh3_64_with_seed(&block[CHECKSUM.end..], self.run)
    }
}

/// Fills `bytes` with the numbers of splitmix64 (Steele, Lea and Flood, "Fast Splittable
/// Pseudorandom Number Generators", 2014).
fn fill_with_noise(seed: u64, bytes: &mut [u8]) {
    let mut state = seed;
    for word in bytes.chunks_exact_mut(size_of::<u64>()) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 512;
    const NOW: Generation = Generation(3);

    fn block_of(run: u64, at: u64, generation: Generation) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        Contents::new(run, Bytes(BLOCK as u64)).fill(Bytes(at), generation, &mut block);
        block
    }

    fn class_of(block: &[u8]) -> Class {
        Contents::new(7, Bytes(BLOCK as u64)).classify(Bytes(4096), NOW, block)
    }

    #[test]
    fn every_kind_of_block_is_recognized() {
        assert_eq!(class_of(&block_of(7, 4096, NOW)), Class::Unchanged);
        assert_eq!(class_of(&[0; BLOCK]), Class::Zero);
        assert_eq!(class_of(&[0xff; BLOCK]), Class::Changed);
        assert_eq!(class_of(&block_of(7, 4608, NOW)), Class::Misplaced);
        assert_eq!(class_of(&block_of(7, 4608, Generation(2))), Class::Misplaced);
        assert_eq!(class_of(&block_of(7, 4096, Generation(2))), Class::Changed);
        assert_eq!(class_of(&block_of(8, 4096, NOW)), Class::Changed);
    }

    #[test]
    fn flipped_bit_anywhere_is_noticed() {
        for at in 0..BLOCK {
            let mut block = block_of(7, 4096, NOW);
            block[at] ^= 1;
            assert_eq!(class_of(&block), Class::Changed, "byte {at}");
            let mut zeros = [0; BLOCK];
            zeros[at] = 1;
            assert_eq!(class_of(&zeros), Class::Changed, "byte {at}");
        }
    }

    #[test]
    fn a_buffer_holds_the_blocks_of_its_addresses() {
        let mut buffer = vec![0; 4 * BLOCK];
        Contents::new(7, Bytes(BLOCK as u64)).fill(Bytes(1024), NOW, &mut buffer);
        for (index, block) in buffer.chunks(BLOCK).enumerate() {
            assert_eq!(block, block_of(7, 1024 + (index * BLOCK) as u64, NOW));
        }
    }
}
