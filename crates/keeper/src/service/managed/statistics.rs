//! The trims of a managed file system: how many bytes, when, and how many failed.

use std::collections::BTreeMap;
use std::time::SystemTime;

use trimtab_core::Bytes;

use crate::policy_driver::Totals;

/// The totals of a file system; those of the running policy driver are its own.
#[derive(Debug, Default)]
pub(super) struct Statistics {
    /// How many trims failed or were delayed, by reason.
    pub failures: BTreeMap<&'static str, u64>,
    /// Bytes trimmed before the service started to manage it, as far as known.
    pub restored_bytes: Bytes,
    /// The time of the last trim.
    pub last_trim: Option<SystemTime>,
    /// Totals of its former policy drivers.
    former: Totals,
}

impl Statistics {
    /// Adds the totals of a policy driver that ends.
    pub fn add(&mut self, ended: &Totals) {
        self.former = sum(&self.former, ended);
    }

    /// Returns all totals, with those of the policy driver that runs, if one does.
    pub fn with(&self, running: Option<&Totals>) -> Totals {
        let totals = running.map_or(self.former, |running| sum(&self.former, running));
        Totals { bytes: self.restored_bytes + totals.bytes, ..totals }
    }
}

fn sum(one: &Totals, other: &Totals) -> Totals {
    Totals {
        discards: one.discards + other.discards,
        bytes: one.bytes + other.bytes,
        took: one.took + other.took,
        failed: one.failed + other.failed,
        last: other.last.or(one.last),
    }
}
