//! The file operations that workloads are made of.

use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, StatVfs};
use trimtab_core::Bytes;

use crate::content::{Contents, Expected, Ledger, WriteError, open_direct};
use crate::error::{LabError, io_at};
use crate::interrupt::Interrupt;

/// A directory that a workload works in, the contents it writes, and the ledger of its live files.
///
/// Paths are relative to the directory. Every operation stops with [`LabError::Interrupted`] once
/// the user asks to stop.
pub struct Work {
    dir: PathBuf,
    contents: Contents,
    ledger: Ledger,
    room: Bytes,
    interrupt: Interrupt,
    files_named: u64,
}

impl Work {
    /// Works in `dir`, with contents from `seed`, on at most `room` bytes.
    pub fn new(dir: PathBuf, room: Bytes, seed: u64, interrupt: Interrupt) -> Self {
        let (contents, ledger) = (Contents::new(seed), Ledger::default());
        Self { dir, contents, ledger, room, interrupt, files_named: 0 }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What tells whether the user asked to stop.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Bytes that the workload can use: what is free on the file system, and no more than its
    /// room.
    pub fn space(&self) -> Result<Bytes, LabError> {
        let stat = self.statvfs()?;
        Ok(Bytes(stat.f_bavail * stat.f_frsize).min(self.room))
    }

    fn statvfs(&self) -> Result<StatVfs, LabError> {
        rustix::fs::statvfs(&self.dir).map_err(|errno| io_at(&self.dir, "look at")(errno.into()))
    }

    /// Makes a directory, and those above it.
    pub fn make_dir(&mut self, path: &Path) -> Result<(), LabError> {
        let full = self.dir.join(path);
        fs::create_dir_all(&full).map_err(io_at(&full, "create"))
    }

    /// Writes a new file of `length` bytes, through the page cache.
    pub fn write(&mut self, path: &Path, length: Bytes) -> Result<(), LabError> {
        let full = self.dir.join(path);
        let mut file = File::create(&full).map_err(io_at(&full, "create"))?;
        self.write_open(&mut file, path, length)
    }

    /// Writes a new or an existing file of `length` bytes, a multiple of 4 KiB, past the page
    /// cache, and waits until all of it is on the device.
    pub fn write_direct(&mut self, path: &Path, length: Bytes) -> Result<(), LabError> {
        let full = self.dir.join(path);
        let mut file =
            open_direct(OpenOptions::new().write(true).create(true), &full).map_err(io_at(&full, "open"))?;
        self.write_open(&mut file, path, length)?;
        file.sync_all().map_err(io_at(&full, "sync"))
    }

    /// Copies the file at `source` to `path`.
    pub fn copy(&mut self, source: &Path, path: &Path) -> Result<(), LabError> {
        self.interrupt.check()?;
        let full = self.dir.join(path);
        let mut from = File::open(source).map_err(io_at(source, "open"))?;
        let mut file = File::create(&full).map_err(io_at(&full, "create"))?;
        let digest =
            crate::content::copy(&mut from, &mut file, &self.interrupt).map_err(io_at(&full, "write"))?;
        self.ledger.record(path.to_owned(), Expected::Hash(digest.digest128()));
        Ok(())
    }

    /// Allocates the chunks `chunks` of `chunk` bytes each for every one of `paths` in turn, so that
    /// their extents interleave on the device, and writes nothing into them.
    pub fn allocate_interleaved(
        &mut self,
        paths: &[PathBuf],
        chunk: Bytes,
        chunks: Range<u64>,
    ) -> Result<(), LabError> {
        let create = |path: &PathBuf| {
            let full = self.dir.join(path);
            OpenOptions::new()
                .create(true)
                .write(true)
                .truncate(false)
                .open(&full)
                .map(|file| (file, full.clone()))
                .map_err(io_at(&full, "create"))
        };
        let files = paths.iter().map(create).collect::<Result<Vec<_>, _>>()?;
        for index in chunks {
            self.interrupt.check()?;
            for (file, full) in &files {
                rustix::fs::fallocate(file, FallocateFlags::empty(), index * chunk.0, chunk.0)
                    .map_err(|errno| io_at(full, "allocate space for")(errno.into()))?;
            }
        }
        Ok(())
    }

    fn write_open(&mut self, file: &mut File, path: &Path, length: Bytes) -> Result<(), LabError> {
        self.files_named += 1;
        self.contents.write(file, self.files_named, length, &self.interrupt).map_err(
            |error| match error {
                WriteError::Interrupted(stop) => stop.into(),
                WriteError::Io(source) => io_at(&self.dir.join(path), "write")(source),
            },
        )?;
        self.ledger.record(path.to_owned(), Expected::Made(self.files_named, length));
        Ok(())
    }

    /// Takes a file into the ledger that another program wrote.
    pub fn adopt(&mut self, path: &Path) -> Result<(), LabError> {
        self.interrupt.check()?;
        let full = self.dir.join(path);
        let digest = crate::content::digest_of(&full, &self.interrupt).map_err(io_at(&full, "read"))?;
        self.ledger.record(path.to_owned(), Expected::Hash(digest.digest128()));
        Ok(())
    }

    /// Makes a symbolic link at `path` that says `target`.
    pub fn link(&mut self, target: &Path, path: &Path) -> Result<(), LabError> {
        let full = self.dir.join(path);
        std::os::unix::fs::symlink(target, &full).map_err(io_at(&full, "create"))
    }

    /// Deletes a file.
    pub fn delete(&mut self, path: &Path) -> Result<(), LabError> {
        self.interrupt.check()?;
        let full = self.dir.join(path);
        fs::remove_file(&full).map_err(io_at(&full, "delete"))?;
        self.ledger.forget(path);
        Ok(())
    }

    /// Deletes a directory that is empty.
    pub fn delete_dir(&mut self, path: &Path) -> Result<(), LabError> {
        let full = self.dir.join(path);
        fs::remove_dir(&full).map_err(io_at(&full, "delete"))
    }

    /// Waits until everything on the file system is on the device.
    pub fn sync(&self) -> Result<(), LabError> {
        self.interrupt.check()?;
        Ok(trimtab_linux::trim::sync(&self.dir)?)
    }

    /// Reads every live file back and compares it with what was written.
    ///
    /// # Errors
    /// [`LabError::Damaged`] or [`LabError::Unreadable`] name the first file that differs.
    pub fn verify(&mut self) -> Result<(), LabError> {
        self.ledger.verify(&mut self.contents, &self.dir, &self.interrupt)
    }
}
