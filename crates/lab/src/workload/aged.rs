//! A file system that has been in use: filled, and then files deleted and others created for a while.
//!
//! In the manner of N. Agrawal et al., "Generating Realistic Impressions for File-System Benchmarking" (FAST
//! 2009), which draws the sizes of files from a log-normal distribution, and S. Kadekodi et al., "Geriatrix:
//! Aging what you see and what you don't see" (USENIX ATC 2018), which ages by creations and deletions at a
//! steady utilisation, and most of them hit young files. Neither program is used here; the distributions are
//! simpler than theirs.

use std::path::{Path, PathBuf};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use trimtab_core::Bytes;
use trimtab_core::document::WorkloadDescription;

use super::Workload;
use super::shape::{count, footprint, percent, scale, sizes};
use crate::error::LabError;
use crate::stage::Stage;
use crate::work::Work;

/// The share of the space that files take, in percent: as on P. Nagel's file system.
pub(super) const UTILISATION: u64 = 60;
/// The mean size of a file.
const MEAN: Bytes = Bytes(128 << 10);
/// The standard deviation of the logarithm of the files' sizes: near the one of Impressions' bodies of files.
const SPREAD: f64 = 1.8;
/// The times that files are deleted and others created.
const ROUNDS: u32 = 4;
/// The share of the files that are deleted in a round, in percent.
const TURNOVER: usize = 30;
/// Of ten deletions, how many hit the younger half of the files.
const YOUNG: u32 = 7;
/// Directories.
const DIRECTORIES: usize = 40;
/// The least space.
const LEAST: Bytes = Bytes(48 << 20);
/// The most space that the files are scaled to.
const MOST: Bytes = Bytes(8 << 30);
/// Of the free space, what the large file at the end takes, in percent.
const LARGE: u64 = 80;

/// Files that live now, oldest first.
pub(super) struct Aged {
    random: SmallRng,
    live: Vec<(PathBuf, Bytes)>,
    named: usize,
}

impl Aged {
    /// Fills the file system of `stage` and ages it: the activity `fill`, and then `age` several times.
    ///
    /// # Errors
    /// [`LabError::NoRoom`], or the first operation that fails.
    pub fn make(stage: &mut Stage, seed: u64) -> Result<Self, LabError> {
        let space = scale(stage, LEAST, MOST)?;
        let target = percent(space, UTILISATION);
        let mut aged = Self { random: SmallRng::seed_from_u64(seed), live: Vec::new(), named: 0 };
        stage.activity("fill", |work| {
            (0..DIRECTORIES).try_for_each(|number| work.make_dir(&directory(number)))?;
            aged.fill_to(work, target)
        })?;
        for _ in 0..ROUNDS {
            stage.activity("age", |work| {
                aged.delete(work, TURNOVER)?;
                aged.fill_to(work, target)
            })?;
        }
        Ok(aged)
    }

    /// Creates files until all take `target`, and brings them to the device.
    fn fill_to(&mut self, work: &mut Work, target: Bytes) -> Result<(), LabError> {
        let taken = self.live.iter().map(|(_, length)| footprint(*length)).sum();
        let missing = target.saturating_sub(taken);
        for length in sizes(&mut self.random, count(missing, MEAN), missing, SPREAD) {
            let path = directory(self.random.random_range(0..DIRECTORIES)).join(self.named.to_string());
            self.named += 1;
            work.write(&path, length)?;
            self.live.push((path, length));
        }
        work.sync()
    }

    /// Deletes `share` percent of the files, most of them young ones.
    pub fn delete(&mut self, work: &mut Work, share: usize) -> Result<(), LabError> {
        for _ in 0..self.live.len() * share / 100 {
            let young = self.random.random_range(0..10) < YOUNG;
            let from = if young { self.live.len() / 2 } else { 0 };
            let (path, _) = self.live.remove(self.random.random_range(from..self.live.len()));
            work.delete(&path)?;
        }
        Ok(())
    }
}

fn directory(number: usize) -> PathBuf {
    PathBuf::from(format!("aged-{number}"))
}

/// Writes a file that takes most of what is free: the activity `write`.
pub(super) fn write_large(stage: &mut Stage) -> Result<(), LabError> {
    let large = percent(stage.work().space()?, LARGE);
    stage.activity("write", |work| {
        work.write_direct(Path::new("large"), large)?;
        work.sync()
    })
}

/// The ageing in words.
pub(super) fn words() -> String {
    format!("fill {UTILISATION} % with files, {ROUNDS} times delete {TURNOVER} % of them and create others")
}

/// The workload `aged`.
pub struct AgedWorkload {
    seed: u64,
}

impl AgedWorkload {
    /// With files drawn from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }
}

impl Workload for AgedWorkload {
    fn description(&self) -> WorkloadDescription {
        WorkloadDescription {
            name: "aged".to_owned(),
            summary: format!(
                "{}, pause, write one file over {LARGE} % of the free space, delete half of the other files",
                words()
            ),
            seed: self.seed,
            delete_steps: vec!["delete".to_owned()],
            write_step: Some("write".to_owned()),
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
        let mut aged = Aged::make(stage, self.seed)?;
        stage.pause("after-ageing")?;
        write_large(stage)?;
        stage.activity("delete", |work| {
            aged.delete(work, 50)?;
            work.sync()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WorkloadOptions;
    use crate::workload::tests::{names, ran, refused};

    #[test]
    fn aged_files_take_their_share_and_turn_over() {
        let run = ran(WorkloadOptions::Aged, Bytes(64 << 20));
        let expected = ["fill", "age", "age", "age", "age", "after-ageing", "write", "delete"];
        assert_eq!(names(&run), expected);
        assert!(refused(WorkloadOptions::Aged, Bytes(20 << 20)).contains("needs 48 MiB"));
    }
}
