//! A store that gives room back behind its host's back: freeing a GiB of memory takes a fifth of a
//! second, which the host must not take for the drive's own time.
//!
//! Giving room back takes a processor that the host may need, and so does the first write to room that was given back. Only
//! policies that discard would pay for that, so a drive that lives for one experiment takes its memory at once and keeps it.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use trimtab_core::{Bytes, Extent, ExtentSet};

use super::store::Store;
use crate::data::Identity;
use crate::protocol::Room;

/// How long nothing is punched out before room is given back: the host may be timing its discards.
const QUIET: Duration = Duration::from_millis(20);

/// From how much on room is given back all the same.
const MOST_WAITING: Bytes = Bytes::GIB;

/// How much room is given back in one go: what a write to it may have to wait for.
const STEP: Bytes = Bytes(1 << 20);

/// The priority of giving room back: after all that a host waits for.
const LAST: i32 = 19;

/// A drive's data, as [`Store`] keeps it; what was punched out reads as zeros at once, and is given
/// back soon.
pub(crate) struct LazyStore {
    shared: Arc<Shared>,
}

struct Shared {
    store: Store,
    punched: Mutex<Punched>,
    changed: Condvar,
    /// Whether room is given back only when somebody waits for it.
    keeps: bool,
    /// Whether anything is still to give back: most commands find nothing, and need no lock.
    any: AtomicBool,
    /// Whether a write failed because there was no room.
    lacked_room: AtomicBool,
}

/// Extents that are punched out and still hold old data.
struct Punched {
    waiting: ExtentSet,
    /// The extent that is being given back right now.
    current: Extent,
    /// When something was last punched out.
    last: Instant,
    /// Whether somebody waits until all is given back.
    awaited: bool,
}

impl LazyStore {
    /// A store of `size` in the new file `path`, or in memory. On failure no file is left.
    pub(crate) fn new(path: Option<&Path>, size: Bytes, room: Room) -> io::Result<Self> {
        let keeps = matches!(room, Room::Kept | Room::Pool(_));
        let store = match room {
            Room::Pool(memory) => Store::of_pool(memory)?,
            Room::Checked | Room::Kept | Room::Sparse => Store::new(path, size, room == Room::Sparse)?,
        };
        let nothing = Extent::new(Bytes::ZERO, Bytes::ZERO);
        let shared = Arc::new(Shared {
            store,
            punched: Mutex::new(Punched {
                waiting: ExtentSet::new(),
                current: nothing,
                last: Instant::now(),
                awaited: false,
            }),
            changed: Condvar::new(),
            keeps,
            any: AtomicBool::new(false),
            lacked_room: AtomicBool::new(false),
        });
        if room == Room::Kept && path.is_none() {
            shared.store.touch(size)?;
        }
        let worker = Arc::clone(&shared);
        thread::Builder::new().name("punch".to_owned()).spawn(move || worker.give_back())?;
        Ok(Self { shared })
    }

    /// Returns the identity of the data file, where there is one.
    pub(crate) fn identity(&self) -> io::Result<Identity> {
        self.shared.store.identity()
    }

    pub(crate) fn read(&self, at: Bytes, data: &mut [u8]) -> io::Result<()> {
        // Looked up first: what is given back after that reads as zeros anyway.
        let holes = self.shared.holes(Extent::at(at, Bytes(data.len() as u64)));
        self.shared.store.read(at, data)?;
        for hole in holes {
            data[(hole.start - at).0 as usize..(hole.end - at).0 as usize].fill(0);
        }
        Ok(())
    }

    pub(crate) fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
        self.shared.keep(Extent::at(at, Bytes(data.len() as u64)));
        let is_short = |written: &io::Result<()>| matches!(written, Err(error) if Errno::from_io_error(error) == Some(Errno::NOSPC));
        let mut written = self.shared.store.write(at, data);
        if is_short(&written) && self.shared.keeps {
            self.held();
            written = self.shared.store.write(at, data);
        }
        if is_short(&written) {
            self.shared.lacked_room.store(true, Ordering::Relaxed);
        }
        written
    }

    /// Returns whether a write failed because there was no room.
    pub(crate) fn lacked_room(&self) -> bool {
        self.shared.lacked_room.load(Ordering::Relaxed)
    }

    /// Lets `extent` read as zeros from now on.
    pub(crate) fn punch(&self, extent: Extent) {
        let mut punched = self.shared.lock();
        punched.waiting.insert(extent);
        punched.last = Instant::now();
        if !punched.is_empty() && !self.shared.any.swap(true, Ordering::AcqRel) {
            self.shared.changed.notify_all();
        }
    }

    /// Returns the space that it really takes, once all punched extents are given back.
    pub(crate) fn held(&self) -> Bytes {
        let mut punched = self.shared.lock();
        while !punched.is_empty() {
            // Another one that waited may have taken it back.
            punched.awaited = true;
            self.shared.changed.notify_all();
            punched = self.shared.wait(punched);
        }
        punched.awaited = false;
        self.shared.changed.notify_all();
        self.shared.store.held()
    }
}

impl Punched {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.current.is_empty()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Punched> {
        self.punched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, punched: MutexGuard<'a, Punched>) -> MutexGuard<'a, Punched> {
        self.changed.wait(punched).unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the parts of `extent` that are punched out and may hold old data.
    fn holes(&self, extent: Extent) -> Vec<Extent> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let punched = self.lock();
        let current = punched.current.intersect(extent);
        punched.waiting.inside(extent).chain([current]).filter(|hole| !hole.is_empty()).collect()
    }

    /// Keeps `extent` from being given back, since it is about to be written.
    fn keep(&self, extent: Extent) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut punched = self.lock();
        while !punched.current.intersect(extent).is_empty() {
            punched = self.wait(punched);
        }
        punched.waiting.remove(extent);
    }

    /// Gives room back for ever; for a thread of its own.
    fn give_back(&self) {
        // Without it, hosts only wait a little longer.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), LAST);
        let mut punched = self.lock();
        loop {
            let Some(first) = punched.waiting.iter().next() else {
                self.any.store(false, Ordering::Release);
                punched = self.wait(punched);
                continue;
            };
            // What takes no room needs no call: the discards of a large drive are mostly that. Nobody writes there now, as who
            // writes has taken the extent out of those that wait.
            let held = self.store.held_from(first.start).unwrap_or(first.end).min(first.end);
            if held > first.start {
                punched.waiting.remove(Extent::new(first.start, held));
                self.changed.notify_all();
                continue;
            }
            if self.keeps && !punched.awaited {
                punched = self.wait(punched);
                continue;
            }
            let quiet = punched.last.elapsed();
            if quiet < QUIET && !punched.awaited && punched.waiting.len() < MOST_WAITING {
                let woken = self.changed.wait_timeout(punched, QUIET - quiet);
                punched = woken.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let step = Extent::at(first.start, first.len().min(STEP));
            punched.waiting.remove(step);
            punched.current = step;
            drop(punched);
            // A panic ends the server: its host gets errors, and never old data.
            self.store.punch(step).expect("what could be punched before still can");
            punched = self.lock();
            punched.current = Extent::new(Bytes::ZERO, Bytes::ZERO);
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 8 << 20;

    #[test]
    fn punched_extents_read_as_zeros_at_once_and_later_writes_stay() {
        for room in [Room::Checked, Room::Kept, Room::Sparse, Room::Pool(Bytes(SIZE as u64))] {
            let store = LazyStore::new(None, Bytes(SIZE as u64), room).unwrap();
            let mut expected = vec![7; SIZE];
            store.write(Bytes::ZERO, &expected).unwrap();
            for round in 0..200 {
                let start = round * 37_777 % (SIZE / 2);
                store.punch(Extent::at(Bytes(start as u64), Bytes((SIZE / 2) as u64)));
                expected[start..start + SIZE / 2].fill(0);
                let at = start + round * 4_099 % (SIZE / 2);
                store.write(Bytes(at as u64), &[round as u8 | 1; 10_000]).unwrap();
                expected[at..at + 10_000].fill(round as u8 | 1);
                let mut found = vec![1; SIZE];
                store.read(Bytes::ZERO, &mut found).unwrap();
                assert!(found == expected, "round {round}");
            }
            store.punch(Extent::at(Bytes::ZERO, Bytes(SIZE as u64)));
            assert_eq!(store.held(), Bytes::ZERO);
        }
    }

    #[test]
    fn room_that_is_kept_is_taken_at_once_and_not_given_back_unasked() {
        let store = LazyStore::new(None, Bytes(SIZE as u64), Room::Kept).unwrap();
        assert_eq!(store.shared.store.held(), Bytes(SIZE as u64));
        store.punch(Extent::at(Bytes::ZERO, Bytes(SIZE as u64 / 2)));
        thread::sleep(QUIET * 5);
        assert_eq!(store.shared.store.held(), Bytes(SIZE as u64));
        let mut found = [1; 4096];
        store.read(Bytes::ZERO, &mut found).unwrap();
        assert_eq!(found, [0; 4096]);
        assert_eq!(store.held(), Bytes(SIZE as u64 / 2));
    }
    #[test]
    fn full_pool_gives_discarded_pages_back() {
        let store = LazyStore::new(None, Bytes::GIB, Room::Pool(Bytes(1 << 20))).unwrap();
        store.write(Bytes::ZERO, &[7; 1 << 20]).unwrap();
        store.punch(Extent::at(Bytes::ZERO, Bytes(1 << 19)));
        thread::sleep(QUIET * 5);
        assert_eq!(store.shared.store.held(), Bytes(1 << 20));
        store.write(Bytes(1 << 29), &[8; 1 << 18]).unwrap();
        let mut found = [1; 4096];
        store.read(Bytes::ZERO, &mut found).unwrap();
        assert_eq!(found, [0; 4096]);
        assert_eq!(store.held(), Bytes((1 << 19) + (1 << 18)));
        assert!(!store.lacked_room());
        assert!(store.write(Bytes(1 << 28), &[9; 1 << 19]).is_err());
        assert!(store.lacked_room());
    }
}
