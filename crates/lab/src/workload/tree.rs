//! Unpacking and deleting a source tree: what the seeds measured, or a tree of the user's.
//!
//! After "Impact of ext4's discard option on my SSD": unpack, sync, delete, sync of the kernel
//! sources, 36 706 files that amount to 493 MB.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::document::WorkloadDescription;
use walkdir::WalkDir;

use super::Workload;
use super::shape::{footprint, sizes};
use crate::error::{LabError, io_at};
use crate::stage::Stage;
use crate::work::Work;
use trimtab_core::interrupt::Interrupt;
use trimtab_guest::program::{ProgramError, Reason, run};

/// Files of the seed's kernel tree.
pub const FILES: usize = 36_706;
/// The bytes of all files together: 493 MB.
pub const TOTAL: Bytes = Bytes(493_000_000);
/// Directories, calibrated to the 16 files a directory of Linux 2.6.39.
pub const DIRECTORIES: usize = 2_300;
/// How deep they nest, calibrated to Linux 2.6.39.
const DEPTH: usize = 7;
/// The spread of the files' sizes (standard deviation of their logarithm), calibrated to the
/// median of 5 KiB at the mean of 13 KiB of Linux 2.6.39.
const SPREAD: f64 = 1.35;

/// A file, directory or symbolic link of a tree.
#[derive(Debug, PartialEq)]
pub struct Entry {
    /// Where, relative to the root.
    pub path: PathBuf,
    kind: Kind,
}

#[derive(Debug, PartialEq)]
enum Kind {
    Directory,
    Link(PathBuf),
    File { length: Bytes, source: Option<PathBuf> },
}

impl Entry {
    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        matches!(self.kind, Kind::File { .. })
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self.kind, Kind::Directory)
    }

    /// Returns about how much space it needs on a file system of 4 KiB blocks.
    pub fn footprint(&self) -> Bytes {
        match self.kind {
            Kind::File { length, .. } => footprint(length),
            Kind::Directory | Kind::Link(_) => footprint(Bytes(1)),
        }
    }

    /// Makes it; all directories above must exist.
    pub fn create(&self, work: &mut Work) -> Result<(), LabError> {
        match &self.kind {
            Kind::Directory => work.make_dir(&self.path),
            Kind::Link(target) => work.link(target, &self.path),
            Kind::File { source: Some(source), .. } => work.copy(source, &self.path),
            Kind::File { length, source: None } => work.write(&self.path, *length),
        }
    }

    fn delete(&self, work: &mut Work) -> Result<(), LabError> {
        match self.kind {
            Kind::Directory => work.delete_dir(&self.path),
            Kind::Link(_) | Kind::File { .. } => work.delete(&self.path),
        }
    }
}

/// Lists the files, directories and symbolic links below `root`, each directory before its entries, in order
/// of name.
pub fn entries(root: &Path) -> Result<Vec<Entry>, LabError> {
    let mut found = Vec::new();
    for entry in WalkDir::new(root).min_depth(1).sort_by_file_name() {
        let entry = entry.map_err(|error| {
            let path = error.path().unwrap_or(root).to_owned();
            io_at(&path, "read")(error.into())
        })?;
        let full = entry.path();
        let kind = if entry.file_type().is_dir() {
            Kind::Directory
        } else if entry.file_type().is_symlink() {
            Kind::Link(full.read_link().map_err(io_at(full, "read the link"))?)
        } else if entry.file_type().is_file() {
            let length = entry.metadata().map_err(|error| io_at(full, "look at")(error.into()))?.len();
            Kind::File { length: Bytes(length), source: Some(full.to_owned()) }
        } else {
            continue;
        };
        let path = full.strip_prefix(root).unwrap_or(full).to_owned();
        found.push(Entry { path, kind });
    }
    Ok(found)
}

/// How much there is in a synthetic tree.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// How many files.
    pub files: usize,
    /// The bytes of all files together.
    pub total: Bytes,
    /// How many directories.
    pub directories: usize,
}

/// A tree below `tree` with the kernel's nesting and its spread of sizes, each directory before what is
/// in it, drawn from `seed`.
pub fn synthetic(seed: u64, shape: Shape) -> Vec<Entry> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut directories: Vec<(PathBuf, usize)> = vec![("tree".into(), 1)];
    while directories.len() < shape.directories {
        let (parent, depth) = &directories[random.random_range(0..directories.len())];
        if *depth < DEPTH {
            directories.push((parent.join(format!("d{}", directories.len())), depth + 1));
        }
    }
    let lengths = sizes(&mut random, shape.files, shape.total, SPREAD);
    let mut entries: Vec<Entry> =
        directories.iter().map(|(path, _)| Entry { path: path.clone(), kind: Kind::Directory }).collect();
    for (file, length) in lengths.into_iter().enumerate() {
        let (directory, _) = &directories[random.random_range(0..directories.len())];
        let kind = Kind::File { length, source: None };
        entries.push(Entry { path: directory.join(format!("f{file}")), kind });
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries
}

/// The workload `tree`.
pub struct TreeWorkload {
    what: String,
    is_built_in: bool,
    seed: u64,
    entries: Vec<Entry>,
    /// Holds the tarball's files for as long as they are copied from.
    _unpacked: Option<TempDir>,
}

impl TreeWorkload {
    /// A part of the seed's kernel tree with `files` files, drawn from `seed`: bytes and directories are in proportion.
    pub fn synthetic(seed: u64, files: usize) -> Self {
        let files = files.max(1);
        let share = |whole: u64| (whole * files as u64 / FILES as u64).max(1);
        let directories = share(DIRECTORIES as u64) as usize;
        let entries = synthetic(seed, Shape { files, total: Bytes(share(TOTAL.0)), directories });
        Self { what: "a kernel tree's shape".to_owned(), is_built_in: true, seed, entries, _unpacked: None }
    }

    /// The tree at `path`: a directory, or a tarball, which is unpacked once to a temporary
    /// directory so that no run pays for its decompression.
    ///
    /// # Errors
    /// [`LabError::File`] or what `tar` said.
    pub fn from_path(path: &Path, seed: u64, interrupt: &Interrupt) -> Result<Self, LabError> {
        let what = path.display().to_string();
        let metadata = path.metadata().map_err(io_at(path, "open the tree"))?;
        let unpacked = if metadata.is_dir() { None } else { Some(unpack(path, interrupt)?) };
        interrupt.check()?;
        let root = unpacked.as_ref().map_or(path, TempDir::path);
        Ok(Self { what, is_built_in: false, seed, entries: entries(root)?, _unpacked: unpacked })
    }

    fn files(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.entries.iter().filter_map(|entry| match entry.kind {
            Kind::File { length, .. } => Some(length),
            Kind::Directory | Kind::Link(_) => None,
        })
    }
}

fn unpack(tarball: &Path, interrupt: &Interrupt) -> Result<TempDir, LabError> {
    let dir = tempfile::Builder::new().prefix("trimtab-tree-").tempdir();
    let dir = dir.map_err(io_at(&std::env::temp_dir(), "make a directory in"))?;
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(tarball).arg("-C").arg(dir.path()).stdin(Stdio::null());
    run(&mut tar, Reason::First, interrupt).map_err(|error| match error {
        ProgramError::Failed { status, stderr, .. } => {
            ProgramError::Failed { program: format!("tar -xf {}", tarball.display()), status, stderr }
        }
        error => error,
    })?;
    Ok(dir)
}

impl Workload for TreeWorkload {
    fn description(&self) -> WorkloadDescription {
        let total: Bytes = self.files().sum();
        WorkloadDescription {
            name: "tree".to_owned(),
            summary: format!(
                "unpack, delete and unpack again a tree of {} files and {total} ({}), each with a sync, which is \
                 a step of its own but for the last, and with a pause before each but the first",
                self.files().count(),
                self.what
            ),
            seed: self.seed,
            delete_steps: ["delete", "sync-deleted"].map(str::to_owned).to_vec(),
            write_step: Some("unpack-again".to_owned()),
            has_pauses: true,
            divisible: self.is_built_in,
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
        let needed = self.entries.iter().map(Entry::footprint).sum();
        if needed > space {
            return Err(stage.work().no_room(needed, space));
        }
        let unpack = |work: &mut Work| self.entries.iter().try_for_each(|entry| entry.create(work));
        stage.activity("unpack", unpack)?;
        stage.activity("sync-unpacked", |work| work.sync())?;
        stage.pause("after-unpack")?;
        stage
            .activity("delete", |work| self.entries.iter().rev().try_for_each(|entry| entry.delete(work)))?;
        stage.activity("sync-deleted", |work| work.sync())?;
        stage.pause("after-delete")?;
        stage.activity("unpack-again", |work| {
            unpack(work)?;
            work.sync()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synthetic_tree_has_its_size_and_depends_on_its_seed() {
        let tree = TreeWorkload::synthetic(1, FILES);
        assert_eq!(tree.files().count(), FILES);
        assert_eq!(tree.files().sum::<Bytes>(), TOTAL);
        let mut lengths: Vec<_> = tree.files().collect();
        lengths.sort_unstable();
        let median = lengths[FILES / 2];
        assert!((Bytes(4 << 10)..Bytes(7 << 10)).contains(&median), "median {median}");
        let mut made = std::collections::HashSet::new();
        for entry in &tree.entries {
            let parent = entry.path.parent().expect("a relative path has one");
            assert!(parent == Path::new("") || made.contains(parent), "{} comes first", parent.display());
            assert!(made.insert(entry.path.clone()), "{} is there once", entry.path.display());
        }
    }

    #[test]
    fn smaller_tree_has_files_and_bytes_in_proportion() {
        let tree = TreeWorkload::synthetic(1, FILES / 2);
        assert_eq!(tree.files().count(), FILES / 2);
        assert_eq!(tree.files().sum::<Bytes>(), Bytes(TOTAL.0 / 2));
    }

    #[test]
    fn tarball_equals_the_directory_it_was_made_from() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("in/sub")).unwrap();
        std::fs::write(dir.path().join("in/sub/file"), "abc").unwrap();
        std::os::unix::fs::symlink("sub/file", dir.path().join("in/link")).unwrap();
        let tarball = dir.path().join("t.tar.gz");
        let mut tar = Command::new("tar");
        tar.arg("-czf").arg(&tarball).arg("-C").arg(dir.path().join("in")).arg(".");
        assert!(tar.status().unwrap().success());
        let names = |path: &Path| -> Vec<PathBuf> {
            let tree = TreeWorkload::from_path(path, 1, &Interrupt::never()).unwrap();
            tree.entries.into_iter().map(|entry| entry.path).collect()
        };
        assert_eq!(names(&tarball), names(&dir.path().join("in")));
        assert_eq!(names(&tarball), ["link", "sub", "sub/file"].map(PathBuf::from));
    }
}
