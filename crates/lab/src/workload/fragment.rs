//! The seeds' own test: fill the drive, delete that, write files whose extents interleave, delete
//! them one by one, and write one large file over the same space.
//!
//! After "Optimizing Trim Commands to Improve Flash Storage Performance in Embedded Systems"
//! (Datalight), section "Demonstrating the Impact of Discards".

use std::ops::Range;
use std::path::{Path, PathBuf};

use trimtab_core::Bytes;
use trimtab_core::document::WorkloadDescription;

use super::Workload;
use super::shape::percent;
use crate::error::LabError;
use crate::share::Share;
use crate::stage::Stage;
use crate::work::Work;

/// The size of the drive with [`FILES`] files. Larger drives have more files of the same size, smaller ones as many
/// smaller files.
const REFERENCE: Bytes = Bytes(512 << 20);
/// Files on the reference drive, whose extents interleave, and which are deleted.
const FILES: u64 = 256;
/// Files of all writers that are open at a time while their extents are allocated in turn: the kernel lets a process
/// have 1024 by default.
const OPEN: u64 = 256;
/// The name of a file of one such extent that lies in the middle of them and stays: it must come
/// through all discards around it unharmed.
const SURVIVOR: &str = "survivor";
/// The size of each of their extents.
const CHUNK: Bytes = Bytes(64 << 10);
/// Files deleted between two syncs.
const BATCH: usize = 32;
/// The order of deletion on the reference drive: every 91st file of 256, so that what one batch frees never touches.
const STRIDE: u64 = 91;
/// Of the free space, what the large file takes, in percent.
const LARGE: u64 = 90;
/// Of the free space, what the interleaved files take together, in percent.
const INTERLEAVED: u64 = 80;

/// The workload `fragment`.
pub struct FragmentWorkload {
    files: u64,
    seed: u64,
}

impl FragmentWorkload {
    /// For a drive of `size`, with contents from `seed`.
    pub fn new(size: Bytes, seed: u64) -> Self {
        Self { files: files(size), seed }
    }
}

/// Returns how many files there are on a drive of `size`.
fn files(size: Bytes) -> u64 {
    (u128::from(size.0) * u128::from(FILES) / u128::from(REFERENCE.0)).max(FILES.into()) as u64
}

/// The files of a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Plan {
    /// The length of the first file, and of the last.
    large: Bytes,
    /// Files whose extents interleave.
    files: u64,
    /// Files that are open at a time.
    open: usize,
    /// Extents of each file.
    chunks: u64,
}

impl Plan {
    /// The files of a writer with `share` where all writers have `files` files on `space`; `None` if that is too small for
    /// an extent of each.
    fn new(share: Share, files: u64, space: Bytes) -> Option<Self> {
        let chunks = percent(space, INTERLEAVED).0 / (files * CHUNK.0);
        let large = Bytes(share.count(percent(space, LARGE).0 / CHUNK.0) * CHUNK.0);
        let open = share.count(OPEN) as usize;
        (chunks > 0).then(|| Self { large, files: share.count(files), open, chunks })
    }
}

/// Returns the distance from one deleted file to the next among `files`: all are deleted in the end, and those of a
/// batch are not neighbours if there are enough files.
fn stride(files: u64) -> u64 {
    let is_complete = |stride: &u64| gcd(*stride, files) == 1;
    let is_near = |at: u64| at == 1 || at == files - 1;
    let is_apart = |stride: &u64| (1..BATCH as u64).all(|turns| !is_near(turns * stride % files));
    let first = (files * STRIDE / FILES).max(1);
    let candidates = || (first..first + files).filter(is_complete);
    candidates().find(is_apart).or_else(|| candidates().next()).unwrap_or(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Workload for FragmentWorkload {
    fn description(&self) -> WorkloadDescription {
        WorkloadDescription {
            name: "fragment".to_owned(),
            summary: format!(
                "fill {LARGE} % with one file, delete it, write {} files whose {CHUNK} extents \
                 interleave over {INTERLEAVED} %, delete them with a sync every {BATCH} files, \
                 pause, and write one large file over the same space",
                self.files
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
        let (share, space) = (stage.work().share(), stage.work().whole_space()?);
        let Some(plan) = Plan::new(share, self.files, space) else {
            let needed = share.bytes(Bytes(self.files * CHUNK.0 * 2));
            return Err(stage.work().no_room(needed, share.bytes(space)));
        };
        let Plan { large, chunks, .. } = plan;
        let each = Bytes(chunks * CHUNK.0);
        let files: Vec<PathBuf> = (0..plan.files).map(|file| format!("part-{file}").into()).collect();

        stage.activity("fill", |work| work.write_direct(Path::new("fill"), large))?;
        stage.activity("clear", |work| {
            work.delete(Path::new("fill"))?;
            work.sync()
        })?;
        stage.activity("fragment", |work| {
            // One extent of every file, then the next of every file: across the whole space, and not group by group.
            let allocate = |work: &mut Work, chunks: Range<u64>| match files.as_slice() {
                few if few.len() <= plan.open => work.allocate_interleaved(few, CHUNK, chunks),
                many => chunks.clone().try_for_each(|chunk| {
                    let mut groups = many.chunks(plan.open);
                    groups.try_for_each(|group| work.allocate_interleaved(group, CHUNK, chunk..chunk + 1))
                }),
            };
            allocate(work, 0..chunks / 2)?;
            work.write_direct(Path::new(SURVIVOR), CHUNK)?;
            allocate(work, chunks / 2..chunks)?;
            files.iter().try_for_each(|file| work.write_direct(file, each))?;
            work.sync()
        })?;
        stage.activity("delete", |work| {
            let stride = stride(plan.files);
            let order: Vec<_> = (0..plan.files).map(|turn| turn * stride % plan.files).collect();
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::workload::WorkloadOptions;
    use crate::workload::tests::{names, ran_by, refused};

    #[test]
    fn files_of_larger_drives_are_more_and_not_larger() {
        let mib = |mib: u64| Bytes(mib << 20);
        assert_eq!([64, 512, 768, 2048, 16_384].map(|size| files(mib(size))), [256, 256, 384, 1024, 8192]);
        // Nine tenths of a drive are free on a new file system.
        let chunks =
            |size: u64| Plan::new(Share::WHOLE, files(mib(size)), mib(size * 9 / 10)).unwrap().chunks;
        assert_eq!([256, 512, 768, 2048, 16_384].map(chunks), [11, 22, 23, 23, 23]);
    }

    #[test]
    fn freed_files_of_a_batch_never_touch() {
        assert_eq!(stride(FILES), STRIDE);
        for files in (256..1100).chain([2048, 4096, 8192]) {
            let stride = stride(files);
            let mut order: Vec<u64> = (0..files).map(|turn| turn * stride % files).collect();
            for batch in order.chunks(BATCH) {
                let mut batch = batch.to_vec();
                batch.sort_unstable();
                assert!(
                    batch.windows(2).all(|pair| pair[1] - pair[0] > 1),
                    "{files} files, {stride}: {batch:?}"
                );
            }
            order.sort_unstable();
            assert_eq!(order, (0..files).collect::<Vec<_>>(), "{stride}");
        }
        for files in 1..256 {
            assert_eq!(gcd(stride(files), files), 1, "{files}");
        }
    }

    proptest! {
        #[test]
        fn parts_add_up_to_the_whole(mib in 32_u64..1 << 20, writers in 1_u32..=64) {
            let (size, space) = (Bytes(mib << 20), Bytes((mib << 20) / 10 * 9));
            let whole = Plan::new(Share::WHOLE, files(size), space).unwrap();
            let parts: Vec<_> = Share::all(writers).map(|share| Plan::new(share, files(size), space).unwrap()).collect();
            prop_assert!(parts.iter().all(|part| part.files > 0 && part.chunks == whole.chunks));
            prop_assert_eq!(parts.iter().map(|part| part.files).sum::<u64>(), whole.files);
            prop_assert_eq!(parts.iter().map(|part| part.large).sum::<Bytes>().0, whole.large.0 / CHUNK.0 * CHUNK.0);
        }
    }

    #[test]
    fn writers_go_through_the_steps_together() {
        let run = ran_by(5, WorkloadOptions::Fragment, Bytes(64 << 20));
        assert_eq!(names(&run), ["fill", "clear", "fragment", "delete", "after-delete", "write"]);
        for step in &run.steps {
            let is_activity = step.kind == trimtab_core::document::StepKind::Activity;
            assert_eq!(step.writers_s.len(), if is_activity { 5 } else { 0 }, "{}", step.name);
            // No writer takes longer than all together.
            assert!(step.writers_s.iter().all(|span| *span <= step.length_s), "{step:?}");
        }
        assert!(refused(WorkloadOptions::Fragment, Bytes(8 << 20)).contains("needs 32 MiB"));
    }
}
