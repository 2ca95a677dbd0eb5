//! `trimtab trim`: trims the free space of a mounted file system in slices that fit between other I/O,
//! resumes interrupted trims, and predicts their duration.

mod listed;
mod plan;
mod resume;
mod run;
mod running;
mod target;
mod types;

use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use trimtab_core::document::trim as document;
use trimtab_core::interrupt::Interrupt;
use trimtab_core::policy::{Goals, Pacer, Worth};
use trimtab_core::profile::{Profile, ProfileError};
use trimtab_core::{Bytes, DiscardUnits, Extent, ExtentSet, Nanos};
use trimtab_linux::block::BlockError;
use trimtab_linux::forked::Ender;
use trimtab_linux::stack::Machine;
use trimtab_linux::tracefs::FreesOptions;
use trimtab_linux::trim::{EVERYTHING, TrimError};

pub use listed::{ListedError, Listing, Selected, listed, mounted, selected};
pub use plan::{Limits, RemainingTrim, Scope, Slice};
pub use resume::{Journal, JournalError, Progress};
pub use run::{Doing, End, Manner, Ran, Watcher, run};
pub use running::{Announced, RunningTrims};
pub use target::{RefusedError, Target, mount_from};

use crate::failures::Failures;
use crate::free_space::{Division, FreeSpace, FreeSpaceError};
use crate::trimmer::{Counters, MountedTrimmer, TrimSeries, Trimmer};

/// The profile that is assumed until measured if none is given: a slow drive's.
const ASSUMED: &str = "micron-m500it";
/// How long a thread waits for an interrupt at once.
const LONG: Duration = Duration::from_secs(3600);
/// How often the progress is saved.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// The parameters of a trim.
#[derive(Debug, Clone)]
pub struct Request {
    /// The trim addresses to cover.
    pub range: Extent,
    /// The shortest free extent to trim; none for the length that covers 99 % of the free bytes.
    pub minimum: Option<Bytes>,
    /// The bytes to trim.
    pub scope: Scope,
    /// Start at the beginning of the range, and trim again what was trimmed before.
    pub full: bool,
    /// The limits for its effect on others; none to trim as fast as possible.
    pub goals: Option<Goals>,
    /// The profile of the drive, if known.
    pub profile: Option<Profile>,
}

/// Why a trim can't be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The free space can't be read.
    #[error(transparent)]
    FreeSpace(#[from] FreeSpaceError),
    /// The properties of the devices can't be read.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The profile is not valid.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The range begins past the end.
    #[error("{}: the range begins at {start}, and the file system ends at {size} or before; lower --offset", mount.display())]
    PastEnd {
        /// The mount point.
        mount: PathBuf,
        /// The start of the range.
        start: Bytes,
        /// The size of the devices.
        size: Bytes,
    },
    /// The range is shorter than a block.
    #[error("{}: the range has {length}, less than a block of the file system ({block}); raise --length", mount.display())]
    BelowBlock {
        /// The mount point.
        mount: PathBuf,
        /// The length of the range.
        length: Bytes,
        /// The block size.
        block: Bytes,
    },
}

/// A prepared trim: what it covers.
pub struct PreparedTrim {
    minimum: Bytes,
    resumed_at: Option<Bytes>,
    free: Option<FreeSpace>,
    /// The free extents that are discarded, some of them past the end of the range.
    reached: Option<FreeSpace>,
    plan: RemainingTrim,
    longest_command: Bytes,
    units: DiscardUnits,
    cost: Worth,
    /// Whether to trim again what was trimmed before.
    again: bool,
}

impl PreparedTrim {
    /// Prepares `request` for `target`, where `last` is the progress of the last trim. Changes nothing.
    ///
    /// # Errors
    /// [`PrepareError`].
    pub fn new(target: &Target, request: &Request, last: Option<&Progress>) -> Result<Self, PrepareError> {
        let size = target.size()?;
        let is_linear = !matches!(target.division(), Division::Chunks(_));
        if is_linear && request.range.start >= size {
            return Err(PrepareError::PastEnd {
                mount: target.mount().to_owned(),
                start: request.range.start,
                size,
            });
        }
        let (length, block) = (request.range.len(), target.block_size());
        if length < block {
            return Err(PrepareError::BelowBlock { mount: target.mount().to_owned(), length, block });
        }
        // The free rest of a unit is discarded together with the pending part.
        let units = target.units();
        let scope = match &request.scope {
            Scope::Everything => Scope::Everything,
            Scope::Pending(pending) => {
                // The last unit may go on past the end, where no trim begins. A btrfs has other addresses.
                let all = if is_linear { Extent::at(Bytes::ZERO, size) } else { EVERYTHING };
                Scope::Pending(pending.iter().map(|extent| units.outside(extent).intersect(all)).collect())
            }
        };
        let wanted: ExtentSet = match &scope {
            Scope::Everything => [request.range].into_iter().collect(),
            Scope::Pending(pending) => pending.inside(request.range).collect(),
        };
        let is_resumable = |last: &&Progress| {
            !request.full
                && request.scope == Scope::Everything
                && (last.range, last.asked_minimum) == (request.range, request.minimum)
                && last.mount == target.mount()
        };
        let resumed = last.filter(is_resumable).and_then(|last| Some((last.reached?, last.minimum)));
        let free = match target.free_space() {
            Err(FreeSpaceError::Unsupported) => None,
            free => Some(free?),
        };
        let in_wanted = |free: FreeSpace| {
            let parts = wanted.iter().flat_map(|wanted| free.within(wanted).extents().to_vec());
            FreeSpace::new(parts.collect(), target.division())
        };
        let whole = free.as_ref().filter(|_| request.scope == Scope::Everything);
        let reached = whole.map(|free| free.discarded_by(request.range, target.division()));
        let free = free.map(in_wanted);
        let reached = reached.or_else(|| free.clone());
        let default = free.as_ref().map_or(Bytes::ZERO, FreeSpace::default_minimum);
        let minimum = match resumed {
            Some((_, minimum)) => minimum,
            // ntfs-3g takes no minimum above its cluster size.
            None if *target.division() == Division::Whole => request.minimum.unwrap_or_default(),
            None => request.minimum.unwrap_or(default).max(target.granularity()?),
        };
        let chosen = free.as_ref().map(|free| free.at_least(minimum));
        let mut plan = RemainingTrim::new(target.division(), chosen.as_ref(), &scope, request.range, size);
        let resumed_at = resumed.map(|(reached, _)| reached);
        resumed_at.into_iter().for_each(|reached| plan.skip_to(reached));
        let profile = request.profile.clone().map_or_else(|| Profile::named(ASSUMED), Ok)?;
        Ok(Self {
            minimum,
            resumed_at,
            free,
            reached,
            plan,
            longest_command: target.longest_command()?,
            units,
            cost: Worth::new(&profile, size),
            // ext4 remembers groups as trimmed even if only their longer extents were.
            again: request.full || last.is_some_and(|last| last.minimum > minimum),
        })
    }

    /// Returns the address that the last trim reached, from which this one resumes.
    pub fn resumed_at(&self) -> Option<Bytes> {
        self.resumed_at
    }

    /// Returns the extents that are not trimmed because they are shorter than the minimum: free extents, or
    /// those of `pending` if the free space is not known.
    pub fn skipped(&self, pending: &ExtentSet) -> ExtentSet {
        let is_short = |extent: &Extent| extent.len() < self.minimum;
        match &self.free {
            Some(free) => free.extents().iter().copied().filter(is_short).collect(),
            None => pending.iter().filter(is_short).collect(),
        }
    }

    /// Returns the bytes left to trim: free bytes, or the length of the ranges if the free space is not
    /// known.
    pub fn left(&self) -> Bytes {
        self.plan.left()
    }

    /// Returns the plan for the JSON document.
    pub fn document(&self, target: &Target, request: &Request) -> document::TrimPlan {
        let from = Extent::new(self.resumed_at.unwrap_or_default(), EVERYTHING.end);
        let free = self.reached.as_ref().map(|free| free.within(from));
        let chosen = free.as_ref().map(|free| free.at_least(self.minimum));
        let predicted = chosen.as_ref().zip(request.profile.as_ref());
        document::TrimPlan {
            fs: target.fstype().to_owned(),
            devices: target.devices().iter().map(|device| device.name()).collect(),
            only_pending: request.scope != Scope::Everything,
            start: request.range.start,
            end: Some(request.range.end).filter(|end| *end != EVERYTHING.end),
            resumed_at: self.resumed_at,
            minimum: self.minimum,
            predicted: predicted.map(|(chosen, profile)| predict(chosen, profile, self.longest_command)),
            free: free.as_ref().map(figures),
            chosen: chosen.as_ref().map(figures),
        }
    }

    /// Trims until everything is trimmed or `interrupt` is set, which ends a call that is under way. Saves the progress to
    /// `journal`, unless only pending extents are trimmed: the caller keeps those that are left. Processes that call FITRIM share
    /// the lock of `announced`.
    ///
    /// # Errors
    /// [`JournalError`]; at the start, nothing is trimmed.
    pub fn run(
        mut self,
        target: &Target,
        request: &Request,
        journal: Option<&mut Journal>,
        announced: Option<&Announced>,
        interrupt: &Interrupt,
        watcher: &mut dyn Watcher,
    ) -> Result<Ran, JournalError> {
        let mut saver = ProgressSaver {
            progress: Progress {
                file_system: target.id().to_owned(),
                mount: target.mount().to_owned(),
                range: request.range,
                asked_minimum: request.minimum,
                minimum: self.minimum,
                reached: Some(self.resumed_at.unwrap_or(request.range.start)),
            },
            // The progress of a trim of everything stays unchanged.
            journal: journal.filter(|_| request.scope == Scope::Everything),
            written: Instant::now(),
            watcher,
        };
        saver.write()?;
        let trimmer = target.trimmer();
        if let Some(file) = announced.and_then(Announced::file) {
            trimmer.ender().keep_open(file);
        }
        let ending = EndOnInterrupt::start(interrupt, trimmer.ender());
        let trimmer: Box<dyn Trimmer> =
            if self.again { Box::new(RepeatingTrimmer { trimmer, target }) } else { Box::new(trimmer) };
        let failures = Failures::listen(&Machine::live(), &FreesOptions::default());
        let mut trimmer = FailureAwareTrimmer { trimmer, failures, target };
        let manner = Manner {
            minimum: self.minimum,
            pacer: request.goals.map(Pacer::for_one_trim),
            cost: self.cost,
            longest_command: self.longest_command,
            units: self.units,
            is_blind: self.free.is_none(),
        };
        let ran = run(&mut self.plan, &mut trimmer, manner, &mut saver);
        drop(ending);
        if matches!(ran.end, End::Done) {
            saver.progress.reached = None;
        }
        saver.write()?;
        Ok(ran)
    }
}

/// A thread that ends a trim when the user asks to stop. Dropping this ends the thread.
struct EndOnInterrupt {
    over: Interrupt,
    thread: Option<JoinHandle<()>>,
}

impl EndOnInterrupt {
    fn start(interrupt: &Interrupt, ender: &Ender) -> Self {
        let (asked, over, ender) = (interrupt.clone(), interrupt.child(), ender.clone());
        let awaited = over.clone();
        let wait = move || {
            while awaited.sleep(LONG).is_ok() {}
            if asked.is_set() {
                ender.end();
            }
        };
        Self { over, thread: thread::Builder::new().spawn(wait).ok() }
    }
}

impl Drop for EndOnInterrupt {
    fn drop(&mut self) {
        self.over.ask();
        _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Saves the progress of a trim, and forwards to another watcher.
struct ProgressSaver<'a> {
    progress: Progress,
    journal: Option<&'a mut Journal>,
    written: Instant,
    watcher: &'a mut dyn Watcher,
}

impl ProgressSaver<'_> {
    fn write(&mut self) -> Result<(), JournalError> {
        self.written = Instant::now();
        self.journal.as_mut().map_or(Ok(()), |journal| journal.write(&self.progress))
    }
}

impl Watcher for ProgressSaver<'_> {
    fn at(&mut self, doing: Doing, left: Bytes) -> bool {
        self.watcher.at(doing, left)
    }

    fn reached(&mut self, address: Bytes) {
        self.progress.reached = Some(address);
        if self.written.elapsed() >= SAVE_INTERVAL {
            // The trim doesn't depend on it; the save at the end reports its error.
            let _ = self.write();
        }
        self.watcher.reached(address);
    }
}

/// Reports a trim as failed if a disk failed its discards.
struct FailureAwareTrimmer<'a> {
    trimmer: Box<dyn Trimmer + 'a>,
    failures: Failures,
    target: &'a Target,
}

impl Trimmer for FailureAwareTrimmer<'_> {
    fn trim(&mut self, ranges: ExtentSet, minimum: Bytes) -> TrimSeries {
        // Discards that failed earlier don't belong to this trim.
        let failures = self.failures.counts();
        let series = self.trimmer.trim(ranges, minimum);
        self.failures.check(self.target.stack(), self.target.mount(), &failures, series)
    }

    fn reaching(&mut self, extents: ExtentSet) -> Result<ExtentSet, TrimError> {
        self.trimmer.reaching(extents)
    }

    fn counters(&mut self) -> Result<Counters, BlockError> {
        self.trimmer.counters()
    }

    fn free(&mut self) -> Bytes {
        self.trimmer.free()
    }
}

/// Makes ext4 trim again what it has trimmed before.
struct RepeatingTrimmer<'a> {
    trimmer: MountedTrimmer,
    target: &'a Target,
}

impl Trimmer for RepeatingTrimmer<'_> {
    fn trim(&mut self, ranges: ExtentSet, minimum: Bytes) -> TrimSeries {
        match self.target.forget(self.trimmer.ender()) {
            Ok(()) => self.trimmer.trim(ranges, minimum),
            Err(error) => TrimSeries::failed(error),
        }
    }

    fn reaching(&mut self, extents: ExtentSet) -> Result<ExtentSet, TrimError> {
        self.trimmer.reaching(extents)
    }

    fn counters(&mut self) -> Result<Counters, BlockError> {
        self.trimmer.counters()
    }

    fn free(&mut self) -> Bytes {
        self.trimmer.free()
    }
}

fn figures(free: &FreeSpace) -> document::Free {
    document::Free { extents: free.extents().len() as u64, bytes: free.bytes(), sizes: free.sizes() }
}

/// Predicts a trim of `free` from `profile`, with commands of at most `longest`.
fn predict(free: &FreeSpace, profile: &Profile, longest: Bytes) -> document::Predicted {
    let longest = longest.min(profile.discard.command_limit.value);
    let (mut discards, mut time) = (0, Nanos::ZERO);
    for extent in free.extents() {
        let (whole, rest) = (extent.len().0 / longest.0, extent.len().0 % longest.0);
        discards += whole + u64::from(rest > 0);
        time += Nanos(profile.discard.time(longest).0 * whole);
        if rest > 0 {
            time += profile.discard.time(Bytes(rest));
        }
    }
    document::Predicted { profile: profile.name.clone(), discards, wall_s: time.seconds() }
}
