//! The files that a trace's requests are taken for.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::f64::consts::TAU;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use trimtab_core::extent::Extent;
use trimtab_core::trace::{DeviceIndex, EventKind, TraceEvent};
use trimtab_core::units::{Bytes, Nanos};

use super::{SynthError, SynthOptions};

/// A file, by the order of first writes.
type Number = usize;

/// A guessed file.
#[derive(Debug, Clone, Copy)]
struct File {
    born: Nanos,
    /// When its life ends, by the draw; none for a file that is kept.
    due: Option<Nanos>,
    /// When its last read or write was done.
    used: Nanos,
}

/// The end of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Death {
    pub(super) at: Nanos,
    pub(super) file: Number,
    /// From its first write.
    pub(super) life: Nanos,
}

/// The files, and which bytes are whose.
pub(super) struct Model {
    share: f64,
    /// The natural logarithm of the median, in nanoseconds.
    middle: f64,
    spread: f64,
    gap: Nanos,
    random: SmallRng,
    files: Vec<File>,
    /// How many of them were born in this look.
    born: usize,
    /// Whether this is the second look, which must find the files of the first.
    is_again: bool,
    /// Of each device, the start of each extent with its end and its file. Extents of one file don't touch.
    owners: HashMap<DeviceIndex, BTreeMap<u64, (u64, Number)>>,
    /// The extents that each mortal file has had; kept in the second look only.
    extents: HashMap<Number, Vec<(DeviceIndex, Extent)>>,
    /// The file that a write at this address continues, and since when.
    tails: HashMap<(DeviceIndex, u64), (Number, Nanos)>,
    /// The same in the order of time, so that old ones can be dropped.
    recent: VecDeque<(Nanos, (DeviceIndex, u64))>,
    taken: Bytes,
}

impl Model {
    pub(super) fn new(options: &SynthOptions) -> Self {
        Self {
            share: options.share,
            middle: (options.median.0.max(1) as f64).ln(),
            spread: options.spread,
            gap: options.gap,
            random: SmallRng::seed_from_u64(options.seed),
            files: Vec::new(),
            born: 0,
            is_again: false,
            owners: HashMap::new(),
            extents: HashMap::new(),
            tails: HashMap::new(),
            recent: VecDeque::new(),
            taken: Bytes::ZERO,
        }
    }

    /// Ends the first look at a trace whose last event is at `end`: returns the model for the second, and the deaths
    /// until then in the order of time.
    pub(super) fn again(self, end: Nanos) -> (Self, Vec<Death>) {
        let death = |(file, it): (Number, &File)| {
            let at = it.due?.max(it.used);
            (at < end).then(|| Death { at, file, life: Nanos(at.0 - it.born.0) })
        };
        let mut deaths: Vec<_> = self.files.iter().enumerate().filter_map(death).collect();
        deaths.sort_unstable();
        let again = Self {
            born: 0,
            is_again: true,
            owners: HashMap::new(),
            tails: HashMap::new(),
            recent: VecDeque::new(),
            taken: Bytes::ZERO,
            ..self
        };
        (again, deaths)
    }

    /// Returns true if this look has seen all files of the first.
    pub(super) fn is_whole(&self) -> bool {
        self.born == self.files.len()
    }

    /// The files so far.
    pub(super) fn files(&self) -> u64 {
        self.born as u64
    }

    /// The bytes that files took so far; bytes that were changed in place don't count again.
    pub(super) fn taken(&self) -> Bytes {
        self.taken
    }

    /// Takes the next event of the trace.
    ///
    /// # Errors
    /// [`SynthError::Changed`] if the second look sees more files than the first.
    pub(super) fn take(&mut self, event: &TraceEvent) -> Result<(), SynthError> {
        if event.error != 0 || event.extent.is_empty() {
            return Ok(());
        }
        let done = Nanos(event.at.0.saturating_add(event.latency.unwrap_or_default().0));
        match event.kind {
            EventKind::Read => {
                for (_, file) in self.pieces(event.device, event.extent) {
                    self.touch(file, done);
                }
            }
            EventKind::Write | EventKind::WriteZeroes => self.write(event, done)?,
            EventKind::Discard | EventKind::SecureErase => self.disown(event.device, event.extent),
            EventKind::Flush | EventKind::Free | EventKind::Allocate | EventKind::Unused => {}
        }
        Ok(())
    }

    fn touch(&mut self, file: Option<Number>, done: Nanos) {
        if let Some(file) = file {
            let used = &mut self.files[file].used;
            *used = (*used).max(done);
        }
    }

    fn is_alive(&self, file: Number, at: Nanos) -> bool {
        self.files[file].due.is_none_or(|due| at < due)
    }

    fn write(&mut self, event: &TraceEvent, done: Nanos) -> Result<(), SynthError> {
        self.forget_tails(event.at);
        let tail = self.tails.remove(&(event.device, event.extent.start.0));
        let mut own = tail.map(|(file, _)| file).filter(|file| self.is_alive(*file, event.at));
        let mut last = None;
        for (piece, owner) in self.pieces(event.device, event.extent) {
            let file = match (owner.filter(|owner| self.is_alive(*owner, event.at)), own) {
                (Some(living), _) => living,
                (None, Some(own)) => {
                    self.give(event.device, piece, own);
                    own
                }
                (None, None) => {
                    let new = self.give_birth(event.at)?;
                    own = Some(new);
                    self.give(event.device, piece, new);
                    new
                }
            };
            self.touch(Some(file), done);
            last = Some(file);
        }
        if let Some(last) = last {
            let place = (event.device, event.extent.end.0);
            self.tails.insert(place, (last, event.at));
            self.recent.push_back((event.at, place));
        }
        Ok(())
    }

    fn give_birth(&mut self, at: Nanos) -> Result<Number, SynthError> {
        let number = self.born;
        self.born += 1;
        if self.is_again {
            return if number < self.files.len() { Ok(number) } else { Err(SynthError::Changed) };
        }
        // All are drawn for every file, so that a change of one option changes nothing else.
        let (dies, u, v): (f64, f64, f64) =
            (self.random.random(), self.random.random(), self.random.random());
        // Box and Muller; 1 - u is above 0.
        let normal = (-2.0 * (1.0 - u).ln()).sqrt() * (TAU * v).cos();
        let life = (self.middle + self.spread * normal).exp();
        let due = (dies < self.share).then(|| Nanos(at.0.saturating_add(life as u64)));
        self.files.push(File { born: at, due, used: at });
        Ok(number)
    }

    /// Drops the ends of files that no write can continue any more.
    fn forget_tails(&mut self, now: Nanos) {
        while let Some(&(at, place)) = self.recent.front() {
            if at.0.saturating_add(self.gap.0) >= now.0 {
                break;
            }
            self.recent.pop_front();
            if self.tails.get(&place).is_some_and(|(_, since)| *since == at) {
                self.tails.remove(&place);
            }
        }
    }

    /// Returns `extent` in pieces of one owner each.
    fn pieces(&self, device: DeviceIndex, extent: Extent) -> Vec<(Extent, Option<Number>)> {
        let mut pieces = Vec::new();
        let mut place = extent.start.0;
        if let Some(owners) = self.owners.get(&device) {
            let before = owners.range(..=place).next_back().filter(|(_, (end, _))| *end > place);
            let first = before.map_or(place, |(start, _)| *start);
            for (&start, &(end, file)) in owners.range(first..extent.end.0) {
                if start > place {
                    pieces.push((Extent::new(Bytes(place), Bytes(start)), None));
                }
                let until = end.min(extent.end.0);
                pieces.push((Extent::new(Bytes(start.max(place)), Bytes(until)), Some(file)));
                place = until;
            }
        }
        if place < extent.end.0 {
            pieces.push((Extent::new(Bytes(place), extent.end), None));
        }
        pieces
    }

    fn disown(&mut self, device: DeviceIndex, extent: Extent) {
        let Some(owners) = self.owners.get_mut(&device) else { return };
        let (from, to) = (extent.start.0, extent.end.0);
        if let Some((&start, &(end, file))) =
            owners.range(..from).next_back().filter(|(_, (end, _))| *end > from)
        {
            owners.insert(start, (from, file));
            if end > to {
                owners.insert(to, (end, file));
            }
        }
        let inside: Vec<_> = owners.range(from..to).map(|(start, value)| (*start, *value)).collect();
        for (start, (end, file)) in inside {
            owners.remove(&start);
            if end > to {
                owners.insert(to, (end, file));
            }
        }
    }

    /// Makes `extent` a part of `file`.
    fn give(&mut self, device: DeviceIndex, extent: Extent, file: Number) {
        self.taken += extent.len();
        if self.is_again && self.files[file].due.is_some() {
            let extents = self.extents.entry(file).or_default();
            match extents.last_mut() {
                Some((of, last)) if *of == device && last.end == extent.start => last.end = extent.end,
                _ => extents.push((device, extent)),
            }
        }
        self.disown(device, extent);
        let owners = self.owners.entry(device).or_default();
        let (mut start, mut end) = (extent.start.0, extent.end.0);
        if let Some((&before, _)) =
            owners.range(..start).next_back().filter(|(_, (at, of))| *at == start && *of == file)
        {
            owners.remove(&before);
            start = before;
        }
        if let Some(&(after, _)) = owners.get(&end).filter(|(_, of)| *of == file) {
            owners.remove(&end);
            end = after;
        }
        owners.insert(start, (end, file));
    }

    /// Takes the bytes that `file` still has from it, and returns them in the order in which it got them.
    pub(super) fn end(&mut self, file: Number) -> Vec<(DeviceIndex, Extent)> {
        let mut freed = Vec::new();
        for (device, extent) in self.extents.remove(&file).unwrap_or_default() {
            for (piece, owner) in self.pieces(device, extent) {
                if owner == Some(file) {
                    self.disown(device, piece);
                    freed.push((device, piece));
                }
            }
        }
        freed
    }
}
