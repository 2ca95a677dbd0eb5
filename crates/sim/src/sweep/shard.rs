//! A part of a sweep.

use std::fmt;
use std::str::FromStr;

/// One of several parts of a sweep, which different machines compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Its number, from 1.
    number: usize,
    /// Of how many.
    of: usize,
}

/// A text that is no shard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no shard; write it like 1/8 (the first of eight) up to 8/8")]
pub struct ShardError(pub String);

impl Shard {
    /// Returns true if the cell at `place` is in it. Neighbours are in different shards, so that all shards have
    /// about as much to do.
    pub fn has(self, place: usize) -> bool {
        place % self.of == self.number - 1
    }
}

impl FromStr for Shard {
    type Err = ShardError;
    fn from_str(text: &str) -> Result<Self, ShardError> {
        let parsed = text.split_once('/').and_then(|(number, of)| {
            let shard = Self { number: number.parse().ok()?, of: of.parse().ok()? };
            (1..=shard.of).contains(&shard.number).then_some(shard)
        });
        parsed.ok_or_else(|| ShardError(text.to_owned()))
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(&format!("{}/{}", self.number, self.of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_in_one_shard() {
        for of in 1..5 {
            let shards: Vec<Shard> = (1..=of).map(|i| format!("{i}/{of}").parse().unwrap()).collect();
            assert!((0..20).all(|place| shards.iter().filter(|shard| shard.has(place)).count() == 1));
        }
        for text in ["0/4", "5/4", "1", "a/b", "1/0", "-1/2", ""] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }
}
