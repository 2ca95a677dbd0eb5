//! The file operations that workloads are made of.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, StatVfs};
use trimtab_core::Bytes;
use trimtab_core::aligned::Aligned;
use trimtab_core::contents::{Contents, PAGE, WriteError};

use crate::error::{LabError, io_at};
use crate::ledger::{self, Expected, Ledger, open_direct};
use crate::share::Share;
use crate::space::SpaceRetry;
use trimtab_core::interrupt::Interrupt;

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
    retry: SpaceRetry,
    files_named: u64,
    share: Share,
}

impl Work {
    /// Works in `dir`, with contents from `seed`, on at most `room` bytes.
    pub fn new(dir: PathBuf, room: Bytes, seed: u64, interrupt: Interrupt) -> Self {
        let (contents, ledger) = (Contents::new(seed), Ledger::default());
        let retry = SpaceRetry::new(interrupt.clone());
        Self { dir, contents, ledger, room, interrupt, retry, files_named: 0, share: Share::WHOLE }
    }

    /// The work of one of several writers: in a directory of its own in this one, with contents from its own
    /// seed, on its share of the space, until `interrupt` is set. Operations that are tried again count for this
    /// work, too.
    ///
    /// # Errors
    /// [`LabError::File`] if the directory can't be made.
    pub fn of_writer(&mut self, share: Share, seed: u64, interrupt: Interrupt) -> Result<Self, LabError> {
        let name = PathBuf::from(format!("writer-{:02}", share.number()));
        self.make_dir(&name)?;
        Ok(Self {
            dir: self.dir.join(name),
            contents: Contents::new(share.seed(seed)),
            ledger: Ledger::default(),
            room: self.room,
            retry: self.retry.until(interrupt.clone()),
            interrupt,
            files_named: 0,
            share,
        })
    }

    /// The part of the workload that is done here.
    pub fn share(&self) -> Share {
        self.share
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Set once the user asks to stop.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Operations so far that found no space at first, and were tried again: a trim may hold free space.
    pub fn retried(&self) -> u64 {
        self.retry.retried()
    }

    /// Bytes that this writer can use: its share of [`Self::whole_space`].
    pub fn space(&self) -> Result<Bytes, LabError> {
        Ok(self.share.bytes(self.whole_space()?))
    }

    /// Bytes that all writers together can use: what is free on the file system, and no more than the
    /// workload's room.
    pub fn whole_space(&self) -> Result<Bytes, LabError> {
        let stat = self.statvfs()?;
        Ok(Bytes(stat.f_bavail * stat.f_frsize).min(self.room))
    }

    /// The error of a writer that needs `needed` and has `space`.
    pub fn no_room(&self, needed: Bytes, space: Bytes) -> LabError {
        match self.share.writers() {
            1 => LabError::NoRoom { needed, space, dir: self.dir.clone() },
            writers => LabError::NoRoomForWriter { needed, space, writers },
        }
    }

    /// The size of the file system.
    pub fn size(&self) -> Result<Bytes, LabError> {
        let stat = self.statvfs()?;
        Ok(Bytes(stat.f_blocks * stat.f_frsize))
    }

    /// Forgets all live files: a new file system was made.
    pub fn forget_all(&mut self) {
        self.ledger = Ledger::default();
    }

    fn statvfs(&self) -> Result<StatVfs, LabError> {
        rustix::fs::statvfs(&self.dir).map_err(|errno| io_at(&self.dir, "look at")(errno.into()))
    }

    /// Makes a directory, and those above it.
    pub fn make_dir(&mut self, path: &Path) -> Result<(), LabError> {
        let full = self.dir.join(path);
        self.tried(&full, "create", || fs::create_dir_all(&full))
    }

    /// Writes a new file of `length` bytes, through the page cache.
    pub fn write(&mut self, path: &Path, length: Bytes) -> Result<(), LabError> {
        let full = self.dir.join(path);
        let mut file = self.tried(&full, "create", || File::create(&full))?;
        self.write_open(&mut file, path, length)
    }

    /// Writes a new or an existing file of `length` bytes, a multiple of 4 KiB, past the page
    /// cache, and waits until all of it is on the device.
    pub fn write_direct(&mut self, path: &Path, length: Bytes) -> Result<(), LabError> {
        let full = self.dir.join(path);
        let mut file =
            self.tried(&full, "open", || open_direct(OpenOptions::new().write(true).create(true), &full))?;
        self.write_open(&mut file, path, length)?;
        self.tried(&full, "sync", || file.sync_all())
    }

    /// Writes a new file in pieces of `piece` bytes, a multiple of 4 KiB, past the page cache: the pieces
    /// of the numbers `order`, each of them once, in that order. Waits until all of it is on the
    /// device.
    pub fn write_pieces(&mut self, path: &Path, piece: Bytes, order: &[u64]) -> Result<(), LabError> {
        let full = self.dir.join(path);
        let length = Bytes(piece.0 * order.len() as u64);
        let mut file =
            self.tried(&full, "open", || open_direct(OpenOptions::new().write(true).create(true), &full))?;
        self.allocate(&file, &full, 0..length.0)?;
        self.files_named += 1;
        for number in order {
            let start = number * piece.0;
            file.seek(SeekFrom::Start(start)).map_err(io_at(&full, "write"))?;
            self.write_span(&mut file, path, self.files_named, start..start + piece.0)?;
        }
        self.ledger.record(path.to_owned(), Expected::Made(self.files_named, length));
        self.tried(&full, "sync", || file.sync_all())
    }

    /// Allocates the bytes `span` of `file`.
    fn allocate(&self, file: &File, full: &Path, span: Range<u64>) -> Result<(), LabError> {
        self.tried(full, "allocate space for", || {
            rustix::fs::fallocate(file, FallocateFlags::empty(), span.start, span.end - span.start)
                .map_err(io::Error::from)
        })
    }

    /// Does `operation`, and tries again while it finds no space.
    fn tried<T>(
        &self,
        full: &Path,
        action: &'static str,
        operation: impl FnMut() -> io::Result<T>,
    ) -> Result<T, LabError> {
        self.interrupt.check()?;
        self.retry.run(operation).map_err(|source| self.failed(full, action, source))
    }

    /// Returns the error of an operation: [`LabError::Interrupted`] if the user asked to stop.
    fn failed(&self, full: &Path, action: &'static str, source: io::Error) -> LabError {
        self.interrupt.check().map_or_else(LabError::from, |()| io_at(full, action)(source))
    }

    /// Copies the file at `source` to `path`.
    pub fn copy(&mut self, source: &Path, path: &Path) -> Result<(), LabError> {
        self.interrupt.check()?;
        let full = self.dir.join(path);
        let mut from = File::open(source).map_err(io_at(source, "open"))?;
        let file = self.tried(&full, "create", || File::create(&full))?;
        let digest = ledger::copy(&mut from, &mut self.retry.writer(file), &self.interrupt)
            .map_err(|source| self.failed(&full, "write", source))?;
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
            let open = || OpenOptions::new().create(true).write(true).truncate(false).open(&full);
            self.tried(&full, "create", open).map(|file| (file, full.clone()))
        };
        let files = paths.iter().map(create).collect::<Result<Vec<_>, _>>()?;
        for index in chunks {
            self.interrupt.check()?;
            let start = index * chunk.0;
            files.iter().try_for_each(|(file, full)| self.allocate(file, full, start..start + chunk.0))?;
        }
        Ok(())
    }

    /// Appends `length` bytes to a live file, through the page cache.
    pub fn append(&mut self, path: &Path, length: Bytes) -> Result<(), LabError> {
        let full = self.dir.join(path);
        let (number, before) = self.made(path)?;
        let mut file = OpenOptions::new().append(true).open(&full).map_err(io_at(&full, "open"))?;
        self.write_span(&mut file, path, number, before.0..before.0 + length.0)
    }

    fn write_open(&mut self, file: &mut File, path: &Path, length: Bytes) -> Result<(), LabError> {
        self.files_named += 1;
        self.write_span(file, path, self.files_named, 0..length.0)
    }

    /// Writes the bytes `span` of file number `number`, which then ends there.
    fn write_span(
        &mut self,
        file: &mut File,
        path: &Path,
        number: u64,
        span: Range<u64>,
    ) -> Result<(), LabError> {
        let length = Bytes(span.end);
        let mut file = self.retry.writer(file);
        let written = self.contents.write_span(&mut file, number, span, &self.interrupt);
        written.map_err(|error| match error {
            WriteError::Interrupted(stop) => stop.into(),
            WriteError::Io(source) => self.failed(&self.dir.join(path), "write", source),
        })?;
        self.ledger.record(path.to_owned(), Expected::Made(number, length));
        Ok(())
    }

    /// The number and the length of a live file that this wrote.
    fn made(&self, path: &Path) -> Result<(u64, Bytes), LabError> {
        match self.ledger.expected(path) {
            Some(Expected::Made(number, length)) => Ok((number, length)),
            Some(Expected::Hash(_)) | None => {
                Err(io_at(&self.dir.join(path), "find the contents of")(io::ErrorKind::NotFound.into()))
            }
        }
    }

    /// Waits until what was written to a live file is on the device (fsync).
    pub fn fsync(&self, path: &Path) -> Result<(), LabError> {
        self.interrupt.check()?;
        let full = self.dir.join(path);
        let file = File::open(&full).map_err(io_at(&full, "open"))?;
        self.tried(&full, "sync", || file.sync_all())
    }

    /// Renames a live file; one that has the new name is deleted.
    pub fn rename(&mut self, from: &Path, to: &Path) -> Result<(), LabError> {
        self.interrupt.check()?;
        let full = self.dir.join(from);
        self.tried(&full, "rename", || fs::rename(&full, self.dir.join(to)))?;
        self.ledger.rename(from, to.to_owned());
        Ok(())
    }

    /// Reads a live file that this wrote, through the page cache, and compares it with what was
    /// written.
    ///
    /// # Errors
    /// [`LabError::Damaged`] or [`LabError::Unreadable`].
    pub fn read(&mut self, path: &Path) -> Result<(), LabError> {
        self.read_with(path, |full| File::open(full))
    }

    /// Does the same past the page cache.
    ///
    /// # Errors
    /// [`LabError::Damaged`] or [`LabError::Unreadable`].
    pub fn read_direct(&mut self, path: &Path) -> Result<(), LabError> {
        self.read_with(path, |full| open_direct(OpenOptions::new().read(true), full))
    }

    fn read_with(
        &mut self,
        path: &Path,
        open: impl FnOnce(&Path) -> io::Result<File>,
    ) -> Result<(), LabError> {
        self.interrupt.check()?;
        let (number, length) = self.made(path)?;
        let full = self.dir.join(path);
        let is_same = open(&full)
            .and_then(|mut file| self.contents.matches(&mut file, number, length, &self.interrupt))
            .map_err(|source| LabError::Unreadable { path: full.clone(), source })?;
        if is_same { Ok(()) } else { Err(LabError::Damaged { path: full }) }
    }

    /// Reads page number `page`, of 4 KiB, of a live file that this wrote, past the page cache, and
    /// compares it with what was written.
    ///
    /// # Errors
    /// [`LabError::Damaged`] or [`LabError::Unreadable`].
    pub fn read_page(&mut self, path: &Path, page: u64) -> Result<(), LabError> {
        self.interrupt.check()?;
        let (number, _) = self.made(path)?;
        let full = self.dir.join(path);
        let mut buffer = Aligned::zeroed(PAGE);
        open_direct(OpenOptions::new().read(true), &full)
            .and_then(|file| file.read_exact_at(&mut buffer, page * PAGE as u64))
            .map_err(|source| LabError::Unreadable { path: full.clone(), source })?;
        if self.contents.is_page(number, page, &buffer) {
            Ok(())
        } else {
            Err(LabError::Damaged { path: full })
        }
    }

    /// Takes a file into the ledger that another program wrote.
    pub fn adopt(&mut self, path: &Path) -> Result<(), LabError> {
        self.interrupt.check()?;
        let full = self.dir.join(path);
        let digest = ledger::digest_of(&full, &self.interrupt).map_err(io_at(&full, "read"))?;
        self.ledger.record(path.to_owned(), Expected::Hash(digest.digest128()));
        Ok(())
    }

    /// Makes a symbolic link at `path` that says `target`.
    pub fn link(&mut self, target: &Path, path: &Path) -> Result<(), LabError> {
        let full = self.dir.join(path);
        self.tried(&full, "create", || std::os::unix::fs::symlink(target, &full))
    }

    /// Deletes a file.
    pub fn delete(&mut self, path: &Path) -> Result<(), LabError> {
        self.interrupt.check()?;
        let full = self.dir.join(path);
        self.tried(&full, "delete", || fs::remove_file(&full))?;
        self.ledger.forget(path);
        Ok(())
    }

    /// Deletes a directory that is empty.
    pub fn delete_dir(&mut self, path: &Path) -> Result<(), LabError> {
        let full = self.dir.join(path);
        self.tried(&full, "delete", || fs::remove_dir(&full))
    }

    /// Waits until everything on the file system is on the device.
    pub fn sync(&self) -> Result<(), LabError> {
        let dir = File::open(&self.dir).map_err(io_at(&self.dir, "open"))?;
        self.tried(&self.dir, "sync", || rustix::fs::syncfs(&dir).map_err(io::Error::from))
    }

    /// Reads every live file back and compares it with what was written.
    ///
    /// # Errors
    /// [`LabError::Damaged`] or [`LabError::Unreadable`] name the first file that differs.
    pub fn verify(&mut self) -> Result<(), LabError> {
        self.ledger.verify(&mut self.contents, &self.dir, &self.interrupt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(dir: &Path) -> Work {
        Work::new(dir.to_owned(), Bytes(1 << 30), 1, Interrupt::never())
    }

    #[test]
    fn appended_and_renamed_files_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut work = work(dir.path());
        let [old, new] = ["old", "new"].map(Path::new);
        work.write(old, Bytes(100)).unwrap();
        work.write(new, Bytes(5000)).unwrap();
        work.append(new, Bytes(3)).unwrap();
        work.append(new, Bytes(2 << 20)).unwrap();
        work.fsync(new).unwrap();
        work.rename(new, old).unwrap();
        assert_eq!(dir.path().join(old).metadata().unwrap().len(), 5003 + (2 << 20));
        work.read(old).unwrap();
        work.read_direct(old).unwrap();
        work.read_page(old, 300).unwrap();
        work.verify().unwrap();
        assert!(matches!(work.append(new, Bytes(1)), Err(LabError::File { .. })), "the name is gone");
    }

    #[test]
    fn pieces_in_any_order_are_the_whole_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut work = work(dir.path());
        work.write_pieces(Path::new("file"), Bytes(PAGE as u64), &[2, 0, 3, 1]).unwrap();
        assert_eq!(dir.path().join("file").metadata().unwrap().len(), 4 * PAGE as u64);
        work.verify().unwrap();
    }

    #[test]
    fn every_way_to_read_notices_damage() {
        let dir = tempfile::tempdir().unwrap();
        let mut work = work(dir.path());
        let path = Path::new("file");
        work.write(path, Bytes(3 * PAGE as u64)).unwrap();
        let file = OpenOptions::new().write(true).open(dir.path().join(path)).unwrap();
        file.write_all_at(b"?", PAGE as u64 + 100).unwrap();
        work.read_page(path, 0).unwrap();
        for read in [work.read_page(path, 1), work.read(path), work.read_direct(path), work.verify()] {
            assert!(matches!(read, Err(LabError::Damaged { .. })), "{read:?}");
        }
        std::fs::remove_file(dir.path().join(path)).unwrap();
        assert!(matches!(work.read(path), Err(LabError::Unreadable { .. })));
    }
}
