//! PostMark: small files of an electronic mail server, created, read, appended to and deleted.
//!
//! After J. Katcher, "PostMark: A New File System Benchmark", NetApp TR-3022, 1997, and its source,
//! version 1.5, whose draws this follows (not its generator): a pool of files of evenly drawn sizes in
//! subdirectories; transactions, which each read a file or append to one up to the largest
//! size, and then creates a file or deletes one; at the end all files are deleted. At most twice the
//! initial files are there at a time, and transactions end early if no file is left. L. Czerner's
//! Discard-kit ran it to measure discards.
//!
//! The sizes (500 to 10 000 bytes) and the biases (5 of 10) are PostMark's own defaults. Its 500 files
//! and 500 transactions of 1997 fit into any cache: by default, the files here fill a quarter of the
//! space, with two transactions for each. Two things are new: the syncs at the end of each activity, and
//! the division of the transactions into parts with pauses between them.

mod options;
mod plan;

use std::path::{Path, PathBuf};

use trimtab_core::Bytes;
use trimtab_core::document::WorkloadDescription;

pub use options::{PostmarkOptions, PostmarkOptionsError};

use self::plan::{Operation, Plan};
use super::Workload;
use super::shape::{fill_once, percent, scale_whole};
use crate::error::LabError;
use crate::share::Share;
use crate::stage::Stage;
use crate::work::Work;

/// The number of equal parts into which the transactions are divided.
const PARTS: usize = 4;
/// The share of the space, in percent, for the first file, which makes the drive a used one.
const FILL: u64 = 85;
/// The share of the space, in percent, that the files may fill: the rest is the file system's own.
const FILES: u64 = 85;
/// The least space.
const LEAST: Bytes = Bytes(32 << 20);
/// The most space that the number of files is derived from.
const MOST: Bytes = Bytes(64 << 30);
/// The directory of the pool.
const POOL: &str = "pool";

/// The workload `postmark`.
pub struct PostmarkWorkload {
    options: PostmarkOptions,
    seed: u64,
}

impl PostmarkWorkload {
    /// With these parameters, and draws and contents from `seed`.
    pub fn new(options: PostmarkOptions, seed: u64) -> Self {
        Self { options, seed }
    }

    /// The parameters of a writer's part of a run on `whole`: the number of files is divided, not their sizes.
    fn part(&self, share: Share, whole: Bytes) -> PostmarkOptions {
        let part = |count: u32| share.count(count.into()) as u32;
        PostmarkOptions {
            files: Some(part(plan::files(&self.options, whole))),
            transactions: self.options.transactions.map(part),
            ..self.options.clone()
        }
    }

    fn directory(&self, number: u32) -> PathBuf {
        let pool = Path::new(POOL);
        // As PostMark has it: one subdirectory is none.
        if self.options.subdirectories > 1 { pool.join(format!("s{number}")) } else { pool.to_owned() }
    }

    fn directories(&self) -> impl Iterator<Item = PathBuf> + '_ {
        (0..self.options.subdirectories.max(1)).map(|number| self.directory(number))
    }

    fn apply(&self, work: &mut Work, operations: &[Operation]) -> Result<(), LabError> {
        for operation in operations {
            let file = operation.file();
            let path = self.directory(file.directory).join(file.number.to_string());
            match *operation {
                Operation::Create(_, length) => work.write(&path, length)?,
                Operation::Read(_) => work.read(&path)?,
                Operation::Append(_, length) => work.append(&path, length)?,
                Operation::Delete(_) => work.delete(&path)?,
            }
        }
        work.sync()
    }
}

impl Workload for PostmarkWorkload {
    fn description(&self) -> WorkloadDescription {
        WorkloadDescription {
            name: "postmark".to_owned(),
            summary: format!(
                "fill {FILL} % once, then PostMark with {}: create files, do transactions in {PARTS} parts, \
                 delete all files, with a pause between any two",
                self.options
            ),
            seed: self.seed,
            delete_steps: vec!["delete".to_owned()],
            write_step: Some("transactions".to_owned()),
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
        let whole = scale_whole(stage, LEAST, MOST)?;
        let share = stage.work().share();
        let space = share.bytes(whole);
        let plan = Plan::new(&self.part(share, whole), self.seed, space);
        if plan.most > percent(space, FILES) {
            let needed = Bytes(plan.most.0 / FILES * 100);
            return Err(stage.work().no_room(needed, space));
        }
        fill_once(stage, percent(space, FILL), self.seed)?;
        stage.activity("create", |work| {
            self.directories().try_for_each(|path| work.make_dir(&path))?;
            self.apply(work, &plan.create)
        })?;
        stage.pause("after-create")?;
        let part = plan.transactions.len().div_ceil(PARTS).max(1);
        for operations in plan.transactions.chunks(part) {
            stage.activity("transactions", |work| self.apply(work, operations))?;
            stage.pause("after-transactions")?;
        }
        stage.activity("delete", |work| {
            self.apply(work, &plan.delete)?;
            if self.options.subdirectories > 1 {
                self.directories().try_for_each(|path| work.delete_dir(&path))?;
            }
            work.delete_dir(Path::new(POOL))?;
            work.sync()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WorkloadOptions;
    use crate::workload::tests::{names, ran, refused};

    fn postmark(options: &str) -> WorkloadOptions {
        WorkloadOptions::Postmark(options.parse().unwrap())
    }

    #[test]
    fn postmark_runs_in_parts_with_pauses() {
        for options in ["", "files=60,transactions=400,subdirectories=1", "transactions=0,files=3"] {
            let run = ran(postmark(options), Bytes(32 << 20));
            let parts = if options.starts_with("transactions=0") { 0 } else { PARTS };
            let part = ["transactions", "after-transactions"];
            let mut expected = vec!["fill", "clear", "create", "after-create"];
            expected.extend(part.iter().cycle().take(2 * parts));
            expected.push("delete");
            assert_eq!(names(&run), expected, "{options}");
        }
    }

    #[test]
    fn postmark_says_how_much_room_it_needs() {
        let said = refused(postmark("files=10000,sizes=10K"), Bytes(32 << 20));
        assert!(said.contains("use a larger --size"), "{said}");
        assert!(refused(postmark("files=10"), Bytes(31 << 20)).contains("needs 32 MiB"));
    }
}
