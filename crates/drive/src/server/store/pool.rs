//! Keeps the data of a large drive in a pool of memory that is taken at once.
//!
//! A page of data takes the next free place in the pool when it is written, wherever it lies on the drive. So every write costs
//! the host the same, whether a file system writes to old or to new addresses: memory that is taken later takes a processor as
//! long as the write itself.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::io::Errno;
use trimtab_core::{Bytes, Extent};

/// The unit that takes a place.
const PAGE: u64 = 4096;
/// The pages of a region, whose places are kept together.
const REGION: u64 = 256;
/// No place.
const NOWHERE: u32 = u32::MAX;
/// The most that is written at once while the pool takes its memory.
const STEP: u64 = 1 << 20;

/// A pool of memory, and which page of the drive is where in it.
#[derive(Debug)]
pub(super) struct Pool {
    memory: File,
    /// How many pages it has.
    pages: u32,
    places: RwLock<Places>,
}

#[derive(Debug, Default)]
struct Places {
    /// Where the pages of each region are.
    regions: BTreeMap<u64, Box<[u32; REGION as usize]>>,
    /// Places that were taken and are free again.
    free: Vec<u32>,
    /// The first place that was never taken.
    next: u32,
}

impl Places {
    fn get(&self, page: u64) -> Option<u32> {
        let place = self.regions.get(&(page / REGION))?[(page % REGION) as usize];
        (place != NOWHERE).then_some(place)
    }

    /// Returns the place of `page`, a new one among `pages` if it has none, and whether it is new.
    fn take(&mut self, page: u64, pages: u32) -> io::Result<(u32, bool)> {
        if let Some(place) = self.get(page) {
            return Ok((place, false));
        }
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.next < pages => {
                self.next += 1;
                self.next - 1
            }
            None => return Err(Errno::NOSPC.into()),
        };
        let region =
            self.regions.entry(page / REGION).or_insert_with(|| Box::new([NOWHERE; REGION as usize]));
        region[(page % REGION) as usize] = place;
        Ok((place, true))
    }

    fn release(&mut self, page: u64) {
        let std::collections::btree_map::Entry::Occupied(mut region) = self.regions.entry(page / REGION)
        else {
            return;
        };
        let place = std::mem::replace(&mut region.get_mut()[(page % REGION) as usize], NOWHERE);
        if place != NOWHERE {
            self.free.push(place);
            if region.get().iter().all(|place| *place == NOWHERE) {
                region.remove();
            }
        }
    }
}

/// The part of a request that lies in one page.
struct Part {
    page: u64,
    /// Where it begins in the page.
    within: u64,
    /// Where it is in the request.
    range: std::ops::Range<usize>,
}

fn parts(at: Bytes, length: usize) -> impl Iterator<Item = Part> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let address = at.0 + done as u64;
        let within = address % PAGE;
        let range = done..length.min(done + (PAGE - within) as usize);
        done = range.end;
        (!range.is_empty()).then_some(Part { page: address / PAGE, within, range })
    })
}

impl Pool {
    /// A pool in the empty file `memory`, which takes `size` bytes at once.
    pub(super) fn new(memory: File, size: Bytes) -> io::Result<Self> {
        let pages = u32::try_from(size.0 / PAGE).unwrap_or(NOWHERE - 1);
        let zeros = vec![0; STEP as usize];
        let length = u64::from(pages) * PAGE;
        for at in (0..length).step_by(STEP as usize) {
            memory.write_all_at(&zeros[..(length - at).min(STEP) as usize], at)?;
        }
        Ok(Self { memory, pages, places: RwLock::default() })
    }

    /// Reads from `at` on; what has no place reads as zeros.
    pub(super) fn read(&self, at: Bytes, data: &mut [u8]) -> io::Result<()> {
        // Held until all is read: a place that is released meanwhile is not taken by another page.
        let places = self.read_places();
        for (place, range) in runs(parts(at, data.len()).map(|part| {
            let place = places.get(part.page).map(|place| u64::from(place) * PAGE + part.within);
            (place, part.range)
        })) {
            match place {
                Some(place) => self.memory.read_exact_at(&mut data[range], place)?,
                None => data[range].fill(0),
            }
        }
        Ok(())
    }

    /// Writes `data` from `at` on.
    ///
    /// # Errors
    /// `ENOSPC` if the pool is full: nothing is written then.
    pub(super) fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
        loop {
            // Held until all is written: a place that is released meanwhile is not taken by another page.
            let places = self.read_places();
            let known = parts(at, data.len()).map(|part| {
                let place = u64::from(places.get(part.page)?) * PAGE + part.within;
                Some((Some(place), part.range))
            });
            if let Some(known) = known.collect::<Option<Vec<_>>>() {
                return runs(known.into_iter()).into_iter().try_for_each(|(place, range)| {
                    self.memory.write_all_at(&data[range], place.unwrap_or_default())
                });
            }
            drop(places);
            self.take(at, data.len())?;
        }
    }

    /// Takes places for all pages from `at` on that have none.
    fn take(&self, at: Bytes, length: usize) -> io::Result<()> {
        let mut places = self.write_places();
        let mut new: Vec<u64> = Vec::new();
        for part in parts(at, length) {
            let taken = places.take(part.page, self.pages).and_then(|(place, is_new)| {
                if is_new {
                    new.push(part.page);
                }
                // What the request does not cover has to read as zeros.
                let is_partial = is_new && part.range.len() < PAGE as usize;
                if is_partial {
                    self.memory.write_all_at(&[0; PAGE as usize], u64::from(place) * PAGE)
                } else {
                    Ok(())
                }
            });
            if let Err(error) = taken {
                new.into_iter().for_each(|page| places.release(page));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Releases the pages of `extent`, which read as zeros from then on. Of a page that is only touched, the part becomes zeros.
    pub(super) fn punch(&self, extent: Extent) -> io::Result<()> {
        let whole = extent.start.0.div_ceil(PAGE)..(extent.end.0 / PAGE).max(extent.start.0.div_ceil(PAGE));
        for edge in [
            extent.intersect(Extent::new(Bytes::ZERO, Bytes(whole.start * PAGE))),
            extent.intersect(Extent::new(Bytes(whole.end * PAGE), Bytes(u64::MAX))),
        ] {
            if !edge.is_empty() && self.read_places().get(edge.start.0 / PAGE).is_some() {
                self.write(edge.start, &vec![0; edge.len().0 as usize])?;
            }
        }
        let mut places = self.write_places();
        let regions = whole.start / REGION..=whole.end / REGION;
        let held: Vec<u64> = places.regions.range(regions).map(|(region, _)| *region).collect();
        for region in held {
            let pages = whole.start.max(region * REGION)..whole.end.min((region + 1) * REGION);
            pages.for_each(|page| places.release(page));
        }
        Ok(())
    }

    /// Returns the first place from `at` on that takes room, to a region.
    pub(super) fn held_from(&self, at: Bytes) -> Option<Bytes> {
        let places = self.read_places();
        let (region, _) = places.regions.range(at.0 / PAGE / REGION..).next()?;
        Some(Bytes(region * REGION * PAGE).max(at))
    }

    /// Returns the bytes of all pages that have a place.
    pub(super) fn held(&self) -> Bytes {
        let places = self.read_places();
        Bytes(u64::from(places.next - places.free.len() as u32) * PAGE)
    }

    fn read_places(&self) -> RwLockReadGuard<'_, Places> {
        self.places.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_places(&self) -> RwLockWriteGuard<'_, Places> {
        self.places.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Joins neighbours: parts of a request whose places follow each other, or that have none.
fn runs(
    parts: impl Iterator<Item = (Option<u64>, std::ops::Range<usize>)>,
) -> Vec<(Option<u64>, std::ops::Range<usize>)> {
    let mut runs: Vec<(Option<u64>, std::ops::Range<usize>)> = Vec::new();
    for (place, range) in parts {
        match runs.last_mut() {
            Some((last, before)) if place == last.map(|last| last + before.len() as u64) => {
                before.end = range.end
            }
            _ => runs.push((place, range)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, prop, prop_assert, prop_assert_eq, proptest};

    use super::super::memory;
    use super::*;

    const SIZE: usize = 2 << 20;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn pool_holds_what_was_written_as_an_array_does(
            steps in prop::collection::vec((0..3_u8, 0..SIZE, 1..200_000_usize, 1..255_u8), 1..60),
            is_aligned: bool,
        ) {
            let pool = Pool::new(memory().unwrap(), Bytes(SIZE as u64)).unwrap();
            let mut expected = vec![0; SIZE];
            for (step, start, length, byte) in steps {
                let unit = if is_aligned { PAGE as usize } else { 512 };
                let start = start / unit * unit;
                let end = (start + length).next_multiple_of(unit).min(SIZE);
                let at = Bytes(start as u64);
                match step {
                    0 => {
                        expected[start..end].fill(byte);
                        pool.write(at, &expected[start..end]).unwrap();
                    }
                    1 => {
                        expected[start..end].fill(0);
                        pool.punch(Extent::new(at, Bytes(end as u64))).unwrap();
                    }
                    _ => {
                        let mut found = vec![1; end - start];
                        pool.read(at, &mut found).unwrap();
                        prop_assert!(found == expected[start..end]);
                    }
                }
                let held = expected.chunks(PAGE as usize).filter(|page| page.iter().any(|byte| *byte != 0)).count();
                prop_assert!(pool.held().0 >= held as u64 * PAGE);
                if is_aligned {
                    prop_assert_eq!(pool.held().0, held as u64 * PAGE);
                }
            }
        }
    }

    #[test]
    fn full_pool_refuses_new_pages_and_takes_old_ones() {
        let pool = Pool::new(memory().unwrap(), Bytes(8 * PAGE)).unwrap();
        let page = [7; PAGE as usize];
        for number in 0..8 {
            pool.write(Bytes(number << 30), &page).unwrap();
        }
        assert_eq!(pool.write(Bytes(9 << 30), &page).unwrap_err().kind(), io::ErrorKind::StorageFull);
        pool.punch(Extent::at(Bytes(7 << 30), Bytes(PAGE))).unwrap();
        let two = [9; 2 * PAGE as usize];
        assert!(pool.write(Bytes(9 << 30), &two).is_err());
        assert_eq!(pool.held(), Bytes(7 * PAGE), "a request that does not fit takes nothing");
        pool.write(Bytes(7 << 30), &page).unwrap();
        pool.write(Bytes(3 << 30), &page).unwrap();
        pool.punch(Extent::at(Bytes(3 << 30), Bytes::GIB)).unwrap();
        pool.write(Bytes(9 << 30), &page).unwrap();
        assert_eq!(pool.held_from(Bytes((3 << 30) + 1)), Some(Bytes(4 << 30)));
        let mut found = [1; PAGE as usize];
        pool.read(Bytes(3 << 30), &mut found).unwrap();
        assert_eq!(found, [0; PAGE as usize]);
    }
}
