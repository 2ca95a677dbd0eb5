//! The seeds' own test: fill the drive, delete that, write files whose extents interleave, delete
//! them one by one, and write one large file over the same space.
//!
//! After "Optimizing Trim Commands to Improve Flash Storage Performance in Embedded Systems"
//! (Datalight), section "Demonstrating the Impact of Discards".

use std::path::{Path, PathBuf};

use trimtab_core::Bytes;
use trimtab_core::document::WorkloadDescription;

use super::Workload;
use super::shape::percent;
use crate::error::LabError;
use crate::stage::Stage;

/// Files whose extents interleave, and which are deleted.
const FILES: u64 = 256;
/// The name of a file of one such extent that lies in the middle of them and stays: it must come
/// through all discards around it unharmed.
const SURVIVOR: &str = "survivor";
/// The size of each of their extents.
const CHUNK: Bytes = Bytes(64 << 10);
/// Files deleted between two syncs.
const BATCH: usize = 32;
/// The order of deletion: every 91st file of 256, so that what one batch frees never touches.
const STRIDE: u64 = 91;
/// Of the free space, what the large file takes, in percent.
const LARGE: u64 = 90;
/// Of the free space, what the interleaved files take together, in percent.
const INTERLEAVED: u64 = 80;

/// The workload `fragment`.
pub struct FragmentWorkload {
    seed: u64,
}

impl FragmentWorkload {
    /// With contents from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }
}

impl Workload for FragmentWorkload {
    fn description(&self) -> WorkloadDescription {
        WorkloadDescription {
            name: "fragment".to_owned(),
            summary: format!(
                "fill {LARGE} % with one file, delete it, write {FILES} files whose {CHUNK} extents \
                 interleave over {INTERLEAVED} %, delete them with a sync every {BATCH} files, \
                 pause, and write one large file over the same space"
            ),
            seed: self.seed,
            delete_steps: vec!["delete".to_owned()],
            write_step: Some("write".to_owned()),
            has_pauses: true,
        }
    }

    fn names_its_pauses(&self) -> bool {
        true
    }

    fn unmounts(&self) -> bool {
        false
    }

    fn run(&self, stage: &mut Stage) -> Result<(), LabError> {
        let space = stage.work().space()?;
        let large = percent(space, LARGE);
        let chunks = percent(space, INTERLEAVED).0 / (FILES * CHUNK.0);
        let each = Bytes(chunks * CHUNK.0);
        if chunks == 0 {
            let dir = stage.work().dir().to_owned();
            return Err(LabError::NoRoom { needed: Bytes(FILES * CHUNK.0 * 2), space, dir });
        }
        let files: Vec<PathBuf> = (0..FILES).map(|file| format!("part-{file}").into()).collect();

        stage.activity("fill", |work| work.write_direct(Path::new("fill"), large))?;
        stage.activity("clear", |work| {
            work.delete(Path::new("fill"))?;
            work.sync()
        })?;
        stage.activity("fragment", |work| {
            work.allocate_interleaved(&files, CHUNK, 0..chunks / 2)?;
            work.write_direct(Path::new(SURVIVOR), CHUNK)?;
            work.allocate_interleaved(&files, CHUNK, chunks / 2..chunks)?;
            files.iter().try_for_each(|file| work.write_direct(file, each))?;
            work.sync()
        })?;
        stage.activity("delete", |work| {
            let order: Vec<_> = (0..FILES).map(|turn| turn * STRIDE % FILES).collect();
            for batch in order.chunks(BATCH) {
                batch.iter().try_for_each(|file| work.delete(&files[*file as usize]))?;
                work.sync()?;
            }
            Ok(())
        })?;
        stage.pause("after-delete")?;
        stage.activity("write", |work| {
            work.write_direct(Path::new("large"), large)?;
            work.sync()
        })
    }
}
