//! Counts of pages programmed and blocks erased by a mapping.

/// Flash pages programmed and blocks erased, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Pages that host writes programmed.
    pub host: u64,
    /// Pages that garbage collection moved.
    pub copied: u64,
    /// Pages that were folded: moved out of the cache.
    pub folded: u64,
    /// Pages of mapping journal.
    pub journal: u64,
    /// Pages of the map.
    pub map: u64,
    /// Erase blocks erased.
    pub erases: u64,
}

impl Totals {
    /// Pages programmed in all.
    pub fn programmed(&self) -> u64 {
        self.host + self.copied + self.folded + self.journal + self.map
    }

    /// Write amplification: pages programmed / pages the host wrote; not a number without any.
    pub fn waf(&self) -> f64 {
        self.programmed() as f64 / self.host as f64
    }

    /// Returns the totals after `earlier` was taken from the same model.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            host: self.host - earlier.host,
            copied: self.copied - earlier.copied,
            folded: self.folded - earlier.folded,
            journal: self.journal - earlier.journal,
            map: self.map - earlier.map,
            erases: self.erases - earlier.erases,
        }
    }
}
