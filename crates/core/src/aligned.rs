//! Memory that starts where direct I/O may start.

use std::ops::{Deref, DerefMut};

/// Every device takes transfers that start on a page.
const ALIGNMENT: usize = 4096;

/// Bytes that start on a multiple of 4096, as direct I/O wants them, and never move.
#[derive(Debug, Default)]
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// `length` zeros.
    pub fn zeroed(length: usize) -> Self {
        let memory = vec![0; length + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Self { memory, start, length }
    }

    /// Whether a transfer may start at the first of `bytes`.
    pub fn holds(bytes: &[u8]) -> bool {
        bytes.as_ptr().addr().is_multiple_of(ALIGNMENT)
    }
}

impl Deref for Aligned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..][..self.length]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_to_its_end() {
        for length in [1, 512, 4096, 100_000] {
            let zeros = Aligned::zeroed(length);
            assert!(Aligned::holds(&zeros) && zeros.len() == length && zeros.iter().all(|byte| *byte == 0));
        }
        let bytes = Aligned::zeroed(100_000);
        assert!(Aligned::holds(&bytes) && !Aligned::holds(&bytes[1..]));
    }
}
