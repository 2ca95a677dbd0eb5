//! The costs of discards on each drive, as the service learned them, kept over restarts.
//!
//! Each drive has one file, named by a hash of its identity. Costs are only a first estimate that trims
//! correct, so a file that cannot be read is ignored.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use trimtab_core::policy::LearnedCosts;
use trimtab_linux::file::{Output, read_regular_text};
use xxhash_rust::xxh3::xxh3_64;

use super::{SaveError, Store};

/// The maximum size of a file in bytes.
const MAX_SIZE: u64 = 1 << 16;

/// The contents of a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    drive: String,
    costs: LearnedCosts,
}

impl Store {
    /// Saves what discards cost on the drive with the identity `drive`, unless what is saved was learned from
    /// more trims: several file systems may share a drive.
    ///
    /// # Errors
    /// [`SaveError`]; costs saved before stay.
    pub fn save_costs(&self, drive: &str, costs: LearnedCosts) -> Result<(), SaveError> {
        if costs.trims == 0 || self.load_costs(drive).is_some_and(|saved| saved.trims > costs.trims) {
            return Ok(());
        }
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        created.map_err(|source| SaveError::Directory { path: self.directory.clone(), source })?;
        let written = Written { drive: drive.to_owned(), costs };
        let bytes = serde_json::to_vec(&written).expect("numbers and texts can be written as JSON");
        Ok(Output::open_private(&self.costs_path(drive))?.replace_durably(&bytes)?)
    }

    /// Returns the saved costs of discards on the drive with the identity `drive`.
    pub fn load_costs(&self, drive: &str) -> Option<LearnedCosts> {
        let text = read_regular_text(&self.costs_path(drive), MAX_SIZE).ok()?;
        let written: Written = serde_json::from_str(&text).ok()?;
        (written.drive == drive).then_some(written.costs)
    }

    fn costs_path(&self, drive: &str) -> PathBuf {
        self.directory.join(format!("{:016x}.costs", xxh3_64(drive.as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use trimtab_core::Nanos;

    use super::*;

    fn costs(command: u64, trims: u64) -> LearnedCosts {
        LearnedCosts { command: Nanos(command), per_gib: Nanos(5), trims }
    }

    #[test]
    fn costs_of_each_drive_are_kept_and_the_best_founded_win() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::at(&directory.path().join("new"));
        assert_eq!(store.load_costs("a"), None);
        store.save_costs("a", costs(1, 0)).unwrap();
        assert_eq!(store.load_costs("a"), None, "nothing was learned");
        store.save_costs("a", costs(2, 7)).unwrap();
        store.save_costs("b", costs(3, 1)).unwrap();
        store.save_costs("a", costs(4, 6)).unwrap();
        assert_eq!((store.load_costs("a"), store.load_costs("b")), (Some(costs(2, 7)), Some(costs(3, 1))));
        std::fs::write(store.costs_path("a"), "{").unwrap();
        assert_eq!(store.load_costs("a"), None, "a damaged file is ignored");
        store.save_costs("a", costs(4, 6)).unwrap();
        assert_eq!(store.load_costs("a"), Some(costs(4, 6)));
    }
}
