//! Builds without end: check out a tree, compile it, delete everything, again and again and without
//! a pause, so that a policy that needs idle time gets none.
//!
//! The sources have the shape of the workload `tree`, a kernel's. The rest is chosen: two files of
//! five are compiled (the others are headers, makefiles and documentation); every compilation reads
//! its source, writes the assembler's input to a temporary file, then an object and a file of its
//! dependencies, and deletes the temporary file, as `gcc -MD` does without `-pipe`; eight run at a
//! time, as with `make -j8`, and end in another order than they began; at the end everything is
//! linked. Objects amount to a fixed share of the space, so that large drives are worked on as hard as
//! small ones: from 90 KiB each on 512 MiB to at most 1 MiB, as with debug information.

use std::path::{Path, PathBuf};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use trimtab_core::Bytes;
use trimtab_core::document::WorkloadDescription;

use super::Workload;
use super::shape::{count, fill_once, percent, scale_whole, sizes};
use super::tree::{self, Entry};
use crate::error::LabError;
use crate::share::Share;
use crate::stage::Stage;
use crate::work::Work;

/// How often a tree is checked out and compiled.
const ROUNDS: u32 = 4;
/// The share of the space, in percent, for the first file, which makes the drive a used one.
const FILL: u64 = 85;
/// Of the space, what the sources take, in percent.
const SOURCES: u64 = 12;
/// The mean size of a source in the kernel tree.
const SOURCE: Bytes = Bytes(tree::TOTAL.0 / tree::FILES as u64);
/// The most sources.
const MOST_SOURCES: usize = 4000;
/// Sources to a directory, as in the kernel tree.
const TO_A_DIRECTORY: usize = tree::FILES / tree::DIRECTORIES;
/// Of five sources, how many are compiled.
const COMPILED_OF_FIVE: usize = 2;
/// Of the space, what the objects take, in percent.
const OBJECTS: u64 = 30;
/// The largest mean size of objects.
const MOST_OBJECT: Bytes = Bytes(1 << 20);
/// The spread of the objects' sizes (standard deviation of their logarithm).
const SPREAD: f64 = 1.2;
/// The mean size of a file of dependencies.
const DEPENDENCIES: Bytes = Bytes(3 << 10);
/// Of what the objects take, what is linked from them, in percent.
const LINKED: u64 = 25;
/// Compilations at a time.
const JOBS: usize = 8;
/// The least space that is enough for the rounds: sources, objects and metadata in whole MiB.
const LEAST: Bytes = Bytes(64 << 20);
/// The most space that the shares are of.
const MOST: Bytes = Bytes(64 << 30);

/// The workload `builds`.
pub struct BuildsWorkload {
    seed: u64,
}

/// The sources, and what is compiled from them.
#[derive(Debug, PartialEq)]
struct Project {
    sources: Vec<Entry>,
    units: Vec<Unit>,
    /// When each compilation begins and ends.
    order: Vec<Job>,
    linked: Bytes,
}

/// One compilation.
#[derive(Debug, PartialEq)]
struct Unit {
    source: PathBuf,
    temporary: PathBuf,
    object: (PathBuf, Bytes),
    dependencies: (PathBuf, Bytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Job {
    Begin(usize),
    End(usize),
}

impl BuildsWorkload {
    /// With trees and contents from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }
}

impl Project {
    /// A writer's part of a project for `space`: files are as large as those of the whole.
    fn new(seed: u64, space: Bytes, share: Share) -> Self {
        let files = count(percent(space, SOURCES), SOURCE).min(MOST_SOURCES);
        let files = share.count(files as u64) as usize;
        let total = Bytes(files as u64 * SOURCE.0);
        let directories = (files / TO_A_DIRECTORY).max(1);
        let sources = tree::synthetic(seed, tree::Shape { files, total, directories });
        let mut random = SmallRng::seed_from_u64(seed ^ 0x6275_696c_6473);
        let compiled: Vec<_> =
            sources.iter().filter(|entry| entry.is_file()).map(|entry| entry.path.clone()).collect();
        let compiled: Vec<_> = compiled
            .into_iter()
            .enumerate()
            .filter(|(index, _)| index % 5 < COMPILED_OF_FIVE)
            .map(|(_, path)| path)
            .collect();
        let most = Bytes(compiled.len() as u64 * MOST_OBJECT.0);
        let objects = share.bytes(percent(space, OBJECTS)).min(most);
        let lengths = sizes(&mut random, compiled.len(), objects, SPREAD);
        let dependencies = Bytes(compiled.len() as u64 * DEPENDENCIES.0);
        let dependencies = sizes(&mut random, compiled.len(), dependencies, 0.5);
        let units = compiled.into_iter().zip(lengths).zip(dependencies).enumerate();
        let units: Vec<_> = units
            .map(|(index, ((source, object), dependencies))| Unit {
                temporary: format!("tmp/cc{index}.s").into(),
                object: (source.with_extension("o"), object),
                dependencies: (source.with_extension("d"), dependencies),
                source,
            })
            .collect();
        let order = order(&mut random, units.len());
        Self { sources, units, order, linked: Bytes(objects.0 / 100 * LINKED) }
    }

    fn check_out(&self, work: &mut Work) -> Result<(), LabError> {
        self.sources.iter().try_for_each(|entry| entry.create(work))?;
        work.sync()
    }

    fn compile(&self, work: &mut Work) -> Result<(), LabError> {
        work.make_dir(Path::new("tmp"))?;
        for job in &self.order {
            match *job {
                Job::Begin(index) => {
                    let unit = &self.units[index];
                    work.read(&unit.source)?;
                    work.write(&unit.temporary, unit.object.1)?;
                }
                Job::End(index) => {
                    let unit = &self.units[index];
                    work.write(&unit.object.0, unit.object.1)?;
                    work.write(&unit.dependencies.0, unit.dependencies.1)?;
                    work.delete(&unit.temporary)?;
                }
            }
        }
        self.units.iter().try_for_each(|unit| work.read(&unit.object.0))?;
        let [linking, linked] = ["tree/linked.tmp", "tree/linked"].map(Path::new);
        work.write(linking, self.linked)?;
        work.rename(linking, linked)?;
        work.delete_dir(Path::new("tmp"))?;
        work.sync()
    }

    /// `rm -rf`.
    fn clean(&self, work: &mut Work) -> Result<(), LabError> {
        let made = self.units.iter().flat_map(|unit| [&unit.object.0, &unit.dependencies.0]);
        let made = made.map(|path| (path.as_path(), false));
        let sources = self.sources.iter().map(|entry| (entry.path.as_path(), entry.is_directory()));
        let mut all: Vec<_> = made.chain(sources).collect();
        all.push((Path::new("tree/linked"), false));
        // Whatever is in a directory comes after it in this order.
        all.sort_unstable();
        for (path, is_directory) in all.into_iter().rev() {
            if is_directory {
                work.delete_dir(path)?;
            } else {
                work.delete(path)?;
            }
        }
        work.sync()
    }
}

/// When each of `units` compilations begins and ends: [`JOBS`] at a time.
fn order(random: &mut SmallRng, units: usize) -> Vec<Job> {
    let (mut order, mut running, mut next) = (Vec::new(), Vec::new(), 0..units);
    loop {
        if running.len() < JOBS
            && let Some(index) = next.next()
        {
            order.push(Job::Begin(index));
            running.push(index);
        } else if running.is_empty() {
            return order;
        } else {
            order.push(Job::End(running.remove(random.random_range(0..running.len()))));
        }
    }
}

impl Workload for BuildsWorkload {
    fn description(&self) -> WorkloadDescription {
        WorkloadDescription {
            name: "builds".to_owned(),
            summary: format!(
                "fill {FILL} % once, then {ROUNDS} times without a pause: check out sources over {SOURCES} % of \
                 the space, compile them to objects over {OBJECTS} %, {JOBS} at a time, link, and delete all of it"
            ),
            seed: self.seed,
            delete_steps: vec!["clean".to_owned()],
            write_step: Some("compile".to_owned()),
            has_pauses: false,
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
        let space = scale_whole(stage, LEAST, MOST)?;
        let share = stage.work().share();
        let project = Project::new(self.seed, space, share);
        fill_once(stage, percent(share.bytes(space), FILL), self.seed)?;
        for round in 1..=ROUNDS {
            stage.activity("checkout", |work| project.check_out(work))?;
            stage.activity("compile", |work| project.compile(work))?;
            // The last one stays, to be verified.
            if round < ROUNDS {
                stage.activity("clean", |work| project.clean(work))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WorkloadOptions;
    use crate::workload::shape::footprint;
    use crate::workload::tests::{names, ran, refused};

    /// The most space that its files need on a file system at a time.
    fn taken(project: &Project) -> Bytes {
        let units = project.units.iter();
        let made: Bytes = units.map(|unit| footprint(unit.object.1) + footprint(unit.dependencies.1)).sum();
        let sources: Bytes = project.sources.iter().map(Entry::footprint).sum();
        made + sources + footprint(project.linked)
    }

    #[test]
    fn a_project_fits_the_space_it_is_made_for() {
        for space in [64 << 20, 500 << 20, 2 << 30, 64 << 30].map(Bytes) {
            let project = Project::new(1, space, Share::WHOLE);
            let taken = taken(&project);
            assert!(taken < percent(space, 60), "{taken} of {space}");
            assert!(project.units.len() > 100 && project.sources.len() < 5000, "{space}");
            assert_eq!(project, Project::new(1, space, Share::WHOLE));
            assert_ne!(project, Project::new(2, space, Share::WHOLE));
        }
    }

    #[test]
    fn compilations_end_once_after_they_begin() {
        let order = order(&mut SmallRng::seed_from_u64(1), 100);
        let (mut running, mut ended) = (Vec::new(), Vec::new());
        for job in order {
            match job {
                Job::Begin(index) => running.push(index),
                Job::End(index) => {
                    let at = running.iter().position(|other| *other == index).expect("it began");
                    ended.push(running.remove(at));
                }
            }
            assert!(running.len() <= JOBS);
        }
        assert!(running.is_empty() && !ended.is_sorted());
        ended.sort_unstable();
        assert_eq!(ended, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn builds_repeat_without_a_pause() {
        let run = ran(WorkloadOptions::Builds, Bytes(64 << 20));
        let round = ["checkout", "compile", "clean"];
        let rounds = round.iter().cycle().take(3 * ROUNDS as usize - 1);
        assert_eq!(names(&run), ["fill", "clear"].iter().chain(rounds).copied().collect::<Vec<_>>());
        assert!(refused(WorkloadOptions::Builds, Bytes(63 << 20)).contains("needs 64 MiB"));
    }
}
