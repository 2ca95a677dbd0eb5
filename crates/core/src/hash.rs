//! A fast hash for maps whose keys come from the kernel and are small.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map that uses [`Mix`].
pub type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// Multiplies by a large odd number and folds the high half, which depends on every bit, into the low.
#[derive(Debug, Default, Clone, Copy)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
