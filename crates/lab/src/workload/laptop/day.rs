//! A laptop's file operations: the state of its files, and each event that changes them.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use trimtab_core::Bytes;

use super::schedule::{SAVES, VISITS};
use crate::error::LabError;
use crate::work::Work;
use crate::workload::shape::{count, percent, sizes};

/// Of the space, what photographs and the like take, in percent.
const MEDIA: u64 = 30;
/// The size of each.
const PHOTOGRAPH: Bytes = Bytes(4 << 20);
/// Of the space, what packages take, in percent.
const PACKAGES: u64 = 15;
/// The mean size of their files, and the standard deviation of the sizes' logarithm: Debian 12.
const PACKAGED: (Bytes, f64) = (Bytes(48_700), 2.54);
/// Files to a package.
const TO_A_PACKAGE: usize = 32;
/// Every how many-th package is updated.
const UPDATED: usize = 3;
/// How many times smaller the archive of a package is than its files.
const COMPRESSION: u64 = 3;
/// The share of the space, in percent, that the browser's cache fills.
const CACHE: u64 = 3;
/// The share of the space, in percent, that the browser writes into it in a day.
const CACHED: u64 = 6;
/// The mean size of cached responses, and the standard deviation of the sizes' logarithm.
const RESPONSE: (Bytes, f64) = (Bytes(37_350), 1.7);
/// The size of the browser's record of open pages, which is replaced at every visit.
const SESSION: Bytes = Bytes(32 << 10);
/// Documents that are worked on.
const DOCUMENTS: usize = 12;
/// The share of the space, in percent, that documents saved in a day fill.
const SAVED: u64 = 2;
/// The standard deviation of the logarithm of their sizes.
const SAVED_SPREAD: f64 = 1.0;
/// The share of the space, in percent, that the output of a build fills.
const BUILT: u64 = 3;
/// The mean size of a build's files, and the standard deviation of the sizes' logarithm.
const OBJECT: (Bytes, f64) = (Bytes(64 << 10), 1.2);
/// The share of the space, in percent, that the download fills.
const DOWNLOADED: u64 = 6;

/// The files of a laptop, and the work of one day after the other on them.
pub struct Day {
    space: Bytes,
    random: SmallRng,
    /// The sizes of the files of each package.
    packages: Vec<Vec<Bytes>>,
    /// The responses that the browser will cache today, and their number at each visit.
    responses: VecDeque<Bytes>,
    to_a_visit: usize,
    /// The sizes that documents will be saved with today.
    saves: Vec<Bytes>,
    /// The browser's cache, oldest first.
    cached: VecDeque<(u64, Bytes)>,
    cached_bytes: Bytes,
    cached_files: u64,
    built: Vec<PathBuf>,
}

fn packaged(package: usize, file: usize) -> PathBuf {
    format!("usr/p{package}/f{file}").into()
}

fn archive(package: usize) -> PathBuf {
    format!("archives/p{package}.deb").into()
}

fn response(number: u64) -> PathBuf {
    // As Firefox has it: one directory, named by a hash.
    format!("cache/{:016X}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into()
}

fn document(number: usize) -> PathBuf {
    format!("documents/d{number}").into()
}

/// Writes a file beside `path`, syncs it and renames it over `path`, as programs do that must not
/// lose the old contents before the new ones are there.
fn replace(work: &mut Work, path: &Path, length: Bytes) -> Result<(), LabError> {
    let beside = path.with_extension("tmp");
    work.write(&beside, length)?;
    work.fsync(&beside)?;
    work.rename(&beside, path)
}

impl Day {
    /// The files of a laptop with `space`, drawn from `seed`.
    pub fn new(seed: u64, space: Bytes) -> Self {
        let mut random = SmallRng::seed_from_u64(seed ^ 0x64_6179);
        let mut draw = |total, (mean, spread)| sizes(&mut random, count(total, mean), total, spread);
        let files = draw(percent(space, PACKAGES), PACKAGED);
        // What fills the cache before the first day.
        let responses = draw(percent(space, CACHE), RESPONSE);
        Self {
            space,
            random,
            packages: files.chunks(TO_A_PACKAGE).map(<[Bytes]>::to_vec).collect(),
            responses: responses.into(),
            to_a_visit: 0,
            saves: Vec::new(),
            cached: VecDeque::new(),
            cached_bytes: Bytes::ZERO,
            cached_files: 0,
            built: Vec::new(),
        }
    }

    /// Everything that is there before the first day begins.
    pub fn install(&mut self, work: &mut Work) -> Result<(), LabError> {
        for dir in ["media", "archives", "cache", "documents", "project"] {
            work.make_dir(Path::new(dir))?;
        }
        for (package, files) in self.packages.iter().enumerate() {
            work.make_dir(packaged(package, 0).parent().expect("it is in a directory"))?;
            for (file, length) in files.iter().enumerate() {
                work.write(&packaged(package, file), *length)?;
            }
        }
        for photograph in 0..percent(self.space, MEDIA).0 / PHOTOGRAPH.0 {
            work.write(Path::new(&format!("media/{photograph}")), PHOTOGRAPH)?;
        }
        while self.cached_bytes < percent(self.space, CACHE) && self.visit_one(work)? {}
        let mean = Bytes(percent(self.space, SAVED).0 / SAVES as u64);
        (0..DOCUMENTS).try_for_each(|number| work.write(&document(number), mean))?;
        work.sync()
    }

    /// Draws what the browser and the user will write today.
    pub fn begin(&mut self) {
        let (total, (mean, spread)) = (percent(self.space, CACHED), RESPONSE);
        let today = sizes(&mut self.random, count(total, mean), total, spread);
        self.to_a_visit = today.len().div_ceil(VISITS);
        self.responses.extend(today);
        self.saves = sizes(&mut self.random, SAVES, percent(self.space, SAVED), SAVED_SPREAD);
    }

    /// Downloads the archives of packages, replaces their files, and deletes the archives.
    pub fn update(&mut self, work: &mut Work) -> Result<(), LabError> {
        let updated: Vec<_> = (0..self.packages.len()).step_by(UPDATED).collect();
        for &package in &updated {
            let unpacked: Bytes = self.packages[package].iter().copied().sum();
            work.write(&archive(package), Bytes(unpacked.0 / COMPRESSION))?;
        }
        for &package in &updated {
            work.read(&archive(package))?;
            let files: Vec<_> = (0..self.packages[package].len())
                .map(|file| packaged(package, file))
                .map(|path| (path.with_extension("dpkg-new"), path))
                .collect();
            for ((new, _), length) in files.iter().zip(&self.packages[package]) {
                // New versions are a little larger or smaller.
                let changed = length.0 * self.random.random_range(90..=110) / 100;
                work.write(new, Bytes(changed))?;
            }
            files.iter().try_for_each(|(new, _)| work.fsync(new))?;
            files.iter().try_for_each(|(new, path)| work.rename(new, path))?;
        }
        updated.iter().try_for_each(|package| work.delete(&archive(*package)))?;
        work.sync()
    }

    /// Caches what the pages of a visit consist of, evicts the oldest, and records the open pages.
    pub fn browse(&mut self, work: &mut Work) -> Result<(), LabError> {
        for _ in 0..self.to_a_visit {
            self.visit_one(work)?;
        }
        while self.cached_bytes > percent(self.space, CACHE)
            && let Some((number, length)) = self.cached.pop_front()
        {
            self.cached_bytes -= length;
            work.delete(&response(number))?;
        }
        replace(work, Path::new("session"), SESSION)
    }

    /// Caches one response; returns false if the day has no more.
    fn visit_one(&mut self, work: &mut Work) -> Result<bool, LabError> {
        let Some(length) = self.responses.pop_front() else { return Ok(false) };
        self.cached_files += 1;
        work.write(&response(self.cached_files), length)?;
        self.cached.push_back((self.cached_files, length));
        self.cached_bytes += length;
        Ok(true)
    }

    /// Opens a document and saves it.
    pub fn save(&mut self, work: &mut Work) -> Result<(), LabError> {
        let path = document(self.random.random_range(0..DOCUMENTS));
        work.read(&path)?;
        let length = self.saves.pop().unwrap_or(SESSION);
        replace(work, &path, length)
    }

    /// Builds a project: many files of all sizes.
    pub fn build(&mut self, work: &mut Work) -> Result<(), LabError> {
        let total = percent(self.space, BUILT);
        let (mean, spread) = OBJECT;
        for (object, length) in sizes(&mut self.random, count(total, mean), total, spread).iter().enumerate()
        {
            let path = PathBuf::from(format!("project/{object}.o"));
            work.write(&path, *length)?;
            self.built.push(path);
        }
        work.sync()
    }

    /// Deletes what the last build made.
    pub fn clean(&mut self, work: &mut Work) -> Result<(), LabError> {
        self.built.drain(..).try_for_each(|path| work.delete(&path))?;
        work.sync()
    }

    /// Downloads a large file.
    pub fn download(&mut self, work: &mut Work) -> Result<(), LabError> {
        work.write(Path::new("download.iso"), percent(self.space, DOWNLOADED))?;
        work.sync()
    }

    /// Deletes it.
    pub fn tidy(&mut self, work: &mut Work) -> Result<(), LabError> {
        work.delete(Path::new("download.iso"))?;
        work.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::interrupt::Interrupt;

    /// The bytes of all files in `dir` together, and their number.
    fn taken(dir: &Path) -> (Bytes, usize) {
        let files = walkdir::WalkDir::new(dir).into_iter().map(Result::unwrap);
        let lengths: Vec<_> = files
            .filter(|entry| entry.file_type().is_file())
            .map(|entry| Bytes(entry.metadata().unwrap().len()))
            .collect();
        (lengths.iter().copied().sum(), lengths.len())
    }

    #[test]
    fn a_day_writes_a_quarter_of_the_space() {
        let space = Bytes(128 << 20);
        let mut day = Day::new(1, space);
        day.begin();
        let updated: Bytes = day.packages.iter().step_by(UPDATED).flatten().copied().sum();
        let browsed: Bytes = day.responses.iter().copied().sum();
        let browsed = browsed.saturating_sub(percent(space, CACHE));
        let saved: Bytes = day.saves.iter().copied().sum();
        let rest = percent(space, 2 * BUILT + DOWNLOADED);
        let written = Bytes(updated.0 + updated.0 / COMPRESSION) + browsed + saved + rest;
        let share = written.0 as f64 / space.0 as f64;
        assert!((0.2..0.3).contains(&share), "{share}");
    }

    #[test]
    fn files_of_a_day_stay_within_their_space() {
        let (dir, space) = (tempfile::tempdir().unwrap(), Bytes(128 << 20));
        let mut work = Work::new(dir.path().to_owned(), space, 1, Interrupt::never());
        let mut day = Day::new(1, space);
        day.install(&mut work).unwrap();
        day.begin();
        let (installed, _) = taken(dir.path());
        assert!((percent(space, 40)..percent(space, 55)).contains(&installed), "{installed}");
        day.update(&mut work).unwrap();
        day.download(&mut work).unwrap();
        day.build(&mut work).unwrap();
        for visit in 0..VISITS {
            day.browse(&mut work).unwrap();
            assert!(day.cached_bytes <= percent(space, CACHE), "{visit}");
        }
        assert!(day.responses.is_empty());
        (0..SAVES).for_each(|_| day.save(&mut work).unwrap());
        assert!(taken(dir.path()).0 < percent(space, 75));
        day.clean(&mut work).unwrap();
        day.tidy(&mut work).unwrap();
        assert!(!dir.path().join("download.iso").exists());
        work.verify().unwrap();
    }
}
