//! A database on a log-structured merge tree: tables written in one go, merged and deleted under reads.
//!
//! After RocksDB's leveled compaction and its defaults (wiki "Leveled Compaction"; change log of
//! the default options, 4.7.0): memory tables and tables of 64 MiB (`write_buffer_size`,
//! `target_file_size_base`), four tables of level 0 start a compaction
//! (`level0_file_num_compaction_trigger`), level 1 holds four tables (`max_bytes_for_level_base`, 256
//! MiB); tables are read and written past the page cache (`use_direct_reads`,
//! `use_direct_io_for_flush_and_compaction`), each is synced, and so is every change of the
//! manifest. The fan-out is 4 and not 10, and tables are smaller on drives that 48 of them do not
//! fit on, so that three levels come to their steady state within a few rounds: both chosen. There
//! is no write-ahead log (`disableWAL`), and keys are drawn evenly: once the last level is full, what
//! goes into it replaces what is there.

use std::path::{Path, PathBuf};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use trimtab_core::Bytes;
use trimtab_core::document::WorkloadDescription;

use super::Workload;
use super::shape::{fill_once, percent, scale};
use crate::error::LabError;
use crate::stage::Stage;
use crate::work::Work;

/// How often tables are ingested and compacted.
const ROUNDS: u32 = 6;
/// The share of the space, in percent, for the first file, which makes the drive a used one.
const FILL: u64 = 85;
/// The largest tables.
const MOST_TABLE: Bytes = Bytes(64 << 20);
/// Tables that fit into the space: 16 of level 2, and 8 of levels 0 and 1 that are merged into 8, with
/// a third to spare. ext4 holds the free space of a group that is being trimmed, up to 128 MiB: with less
/// to spare, drives of 512 MiB would be full at times.
const TABLES: u64 = 48;
/// Tables that are ingested in each round, which starts the compaction.
const INGESTED: usize = 4;
/// The most tables of level 1.
const LEVEL_1: usize = 4;
/// Tables of a level for each table of the level above.
const FAN_OUT: usize = 4;
/// Pages that are read, each from a table drawn at random, after every table that is written.
const READS: usize = 32;
/// Bytes that a change adds to the manifest.
const EDIT: Bytes = Bytes(200);
/// The least space: tables are of 1 MiB or more.
const LEAST: Bytes = Bytes(TABLES << 20);
/// The record of the tables of each level.
const MANIFEST: &str = "db/MANIFEST";

/// The workload `database`.
pub struct DatabaseWorkload {
    seed: u64,
}

impl DatabaseWorkload {
    /// With contents and reads from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }
}

/// The size of tables on this space.
fn table_size(space: Bytes) -> Bytes {
    let mib = Bytes::MIB.0;
    Bytes((space.0 / TABLES).max(mib) / mib * mib).min(MOST_TABLE)
}

/// The tree: level by level, the numbers of its tables in the order of their keys.
struct Tree {
    table: Bytes,
    levels: [Vec<u64>; 3],
    numbered: u64,
    /// Where in level 1 the next table is taken from: round robin.
    cursor: usize,
    random: SmallRng,
}

fn path(table: u64) -> PathBuf {
    format!("db/{table:06}.sst").into()
}

impl Tree {
    fn new(table: Bytes, seed: u64) -> Self {
        let random = SmallRng::seed_from_u64(seed ^ 0x6c73_6d74);
        Self { table, levels: Default::default(), numbered: 0, cursor: 0, random }
    }

    fn write_table(&mut self, work: &mut Work) -> Result<u64, LabError> {
        self.numbered += 1;
        work.write_direct(&path(self.numbered), self.table)?;
        self.read_some(work)?;
        Ok(self.numbered)
    }

    /// Reads single pages of live tables.
    fn read_some(&mut self, work: &mut Work) -> Result<(), LabError> {
        let live: Vec<_> = self.levels.iter().flatten().copied().collect();
        if live.is_empty() {
            return Ok(());
        }
        for _ in 0..READS {
            let table = live[self.random.random_range(0..live.len())];
            let page = self.random.random_range(0..self.table.0 / 4096);
            work.read_page(&path(table), page)?;
        }
        Ok(())
    }

    fn record(work: &mut Work) -> Result<(), LabError> {
        work.append(Path::new(MANIFEST), EDIT)?;
        work.fsync(Path::new(MANIFEST))
    }

    fn ingest(&mut self, work: &mut Work) -> Result<(), LabError> {
        for _ in 0..INGESTED {
            let table = self.write_table(work)?;
            self.levels[0].push(table);
            Self::record(work)?;
        }
        Ok(())
    }

    /// Merges the tables `from` of a level with the tables `into` of the next one, which keeps its
    /// other tables.
    fn merge(
        &mut self,
        work: &mut Work,
        (level, from): (usize, std::ops::Range<usize>),
        into: std::ops::Range<usize>,
        most: usize,
    ) -> Result<(), LabError> {
        let inputs = [&self.levels[level][from.clone()], &self.levels[level + 1][into.clone()]].concat();
        inputs.iter().try_for_each(|table| work.read_direct(&path(*table)))?;
        let kept = self.levels[level + 1].len() - into.len();
        // Where the level is full, keys replace those that are there.
        let outputs = inputs.len().min(most.saturating_sub(kept)).max(into.len());
        let outputs = (0..outputs).map(|_| self.write_table(work)).collect::<Result<Vec<_>, _>>()?;
        self.levels[level].drain(from);
        self.levels[level + 1].splice(into, outputs);
        Self::record(work)?;
        inputs.iter().try_for_each(|table| work.delete(&path(*table)))
    }

    fn compact(&mut self, work: &mut Work) -> Result<(), LabError> {
        let (above, below) = (self.levels[0].len(), self.levels[1].len());
        self.merge(work, (0, 0..above), 0..below, usize::MAX)?;
        while self.levels[1].len() > LEVEL_1 {
            let (above, below) = (self.levels[1].len(), self.levels[2].len());
            let taken = self.cursor % above;
            // The keys of one table of level 1 are an even share of those of level 2.
            let overlap = taken * below / above..((taken + 1) * below).div_ceil(above);
            self.merge(work, (1, taken..taken + 1), overlap, LEVEL_1 * FAN_OUT)?;
            self.cursor = taken;
        }
        self.cursor += 1;
        work.sync()
    }
}

impl Workload for DatabaseWorkload {
    fn description(&self) -> WorkloadDescription {
        WorkloadDescription {
            name: "database".to_owned(),
            summary: format!(
                "fill {FILL} % once, then {ROUNDS} times: write {INGESTED} tables (a {TABLES}th of the space \
                 each, at most {MOST_TABLE}), merge them into a tree of three levels, delete what was \
                 merged, and pause"
            ),
            seed: self.seed,
            delete_steps: vec!["compact".to_owned()],
            write_step: Some("ingest".to_owned()),
            has_pauses: true,
            divisible: true,
        }
    }

    fn names_its_pauses(&self) -> bool {
        true
    }

    fn unmounts(&self) -> bool {
        false
    }

    fn run(&self, stage: &mut Stage) -> Result<(), LabError> {
        let space = scale(stage, LEAST, Bytes(u64::MAX))?;
        let table = table_size(space);
        fill_once(stage, percent(space, FILL), self.seed)?;
        let mut tree = Tree::new(table, self.seed);
        stage.work().make_dir(Path::new("db"))?;
        stage.work().write(Path::new(MANIFEST), EDIT)?;
        for round in 1..=ROUNDS {
            stage.activity("ingest", |work| tree.ingest(work))?;
            stage.activity("compact", |work| tree.compact(work))?;
            if round < ROUNDS {
                stage.pause("after-compaction")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WorkloadOptions;
    use crate::workload::tests::{names, ran, refused};
    use trimtab_core::interrupt::Interrupt;

    #[test]
    fn tables_are_64_mib_where_all_of_them_fit() {
        let sizes = [48 << 20, 500 << 20, 2 << 30, 3 << 30, 1 << 40].map(|space| table_size(Bytes(space)));
        assert_eq!(sizes, [1, 10, 42, 64, 64].map(|mib| Bytes(mib << 20)));
    }

    #[test]
    fn levels_come_to_a_steady_state_within_their_space() {
        let dir = tempfile::tempdir().unwrap();
        let mut work = Work::new(dir.path().to_owned(), Bytes(1 << 30), 1, Interrupt::never());
        work.make_dir(Path::new("db")).unwrap();
        work.write(Path::new(MANIFEST), EDIT).unwrap();
        let mut tree = Tree::new(Bytes(64 << 10), 1);
        let mut held = Vec::new();
        for _ in 0..ROUNDS + 2 {
            tree.ingest(&mut work).unwrap();
            tree.compact(&mut work).unwrap();
            held.push(tree.levels.each_ref().map(Vec::len));
            let files = std::fs::read_dir(dir.path().join("db")).unwrap().count();
            assert_eq!(files, tree.levels.iter().flatten().count() + 1, "tables that were merged are gone");
        }
        assert_eq!(held[..3], [[0, 4, 0], [0, 4, 4], [0, 4, 8]]);
        assert_eq!(held[held.len() - 2..], [[0, 4, 16]; 2]);
        work.verify().unwrap();
    }

    #[test]
    fn rounds_are_apart_by_pauses() {
        let run = ran(WorkloadOptions::Database, Bytes(48 << 20));
        let round = ["ingest", "compact", "after-compaction"];
        let rounds = round.iter().cycle().take(3 * ROUNDS as usize - 1);
        assert_eq!(names(&run), ["fill", "clear"].iter().chain(rounds).copied().collect::<Vec<_>>());
        assert!(refused(WorkloadOptions::Database, Bytes(47 << 20)).contains("needs 48 MiB"));
    }
}
