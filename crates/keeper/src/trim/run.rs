//! Carries out a plan, slice by slice, so that those who use the drive don't feel it.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use trimtab_core::policy::{Pacer, Worth};
use trimtab_core::{Bytes, Extent};
use trimtab_linux::block::{BlockCounters, BlockError};
use trimtab_linux::trim::TrimError;

use super::plan::{Limits, Plan};
use crate::policy_driver::load;
use crate::trimmer::Trimmer;

/// How long slices are while nobody else uses the drive: somebody may begin to.
const IDLE_SLICE: Duration = Duration::from_millis(250);
/// How long nobody may have used a busy drive until it is idle, and how often it is looked at until then.
const QUIET: Duration = Duration::from_millis(500);
/// How often an idle drive is looked at: at once when a slice is over.
const GLANCE: Duration = Duration::from_millis(10);
/// How long the drive is watched before the first slice.
const FIRST_LOOK: Duration = Duration::from_millis(100);
/// How long it may take until an interrupt is heard of.
const NAP: Duration = Duration::from_millis(50);

/// How a trim goes about it.
pub struct Manner {
    /// Free pieces that are shorter are left alone.
    pub minimum: Bytes,
    /// Holds the goals; none where the trim is as fast as it can be, whoever waits.
    pub pacer: Option<Pacer>,
    /// How long discards take on the drive, as far as that is known; it learns.
    pub cost: Worth,
    /// The longest discard that the kernel sends as one command.
    pub longest_command: Bytes,
    /// Ranges past the end are refused, and nobody knows where that is.
    pub is_blind: bool,
}

/// What a trim is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// The file system was asked for a slice, and has not answered.
    Trimming,
    /// It waits for its turn, or for an idle drive.
    Waiting,
}

/// Who is told of a trim, and may end it.
pub trait Watcher {
    /// It does this now; `left` bytes are left to be trimmed. Returns whether it shall go on.
    fn at(&mut self, doing: Doing, left: Bytes) -> bool;

    /// All before `address` is trimmed.
    fn reached(&mut self, address: Bytes);
}

/// What came of a trim.
#[derive(Debug)]
pub struct Ran {
    /// How many ranges the file system was asked for.
    pub slices: u64,
    /// Discards that the devices completed while they were asked.
    pub discards: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Discards that they completed between: those of others.
    pub others_discards: u64,
    /// Their bytes.
    pub others_bytes: Bytes,
    /// How long slices held the drive.
    pub held: Duration,
    /// How long it took, with all waiting.
    pub took: Duration,
    /// By how much the mean latency of the others' reads and writes grew in the last span with slices.
    pub latency_added: Duration,
    /// How it ended.
    pub end: End,
}

/// How a trim ended.
#[derive(Debug)]
pub enum End {
    /// All is trimmed.
    Done,
    /// It was stopped.
    Stopped,
    /// The file system refused a slice.
    Refused(TrimError),
    /// A device doesn't tell any more what it does.
    Lost(BlockError),
}

/// Trimmer what is left of `plan`.
pub fn run(plan: &mut Plan, trimmer: &mut dyn Trimmer, manner: Manner, watcher: &mut dyn Watcher) -> Ran {
    let ran = Ran {
        slices: 0,
        discards: 0,
        bytes: Bytes::ZERO,
        others_discards: 0,
        others_bytes: Bytes::ZERO,
        held: Duration::ZERO,
        took: Duration::ZERO,
        latency_added: Duration::ZERO,
        end: End::Done,
    };
    let started = Instant::now();
    let looked = (Duration::ZERO, BlockCounters::default());
    let mut runner = Runner { trimmer, manner, watcher, started, looked, ran };
    runner.ran.end = runner.all(plan);
    runner.ran.took = started.elapsed();
    runner.ran.latency_added = runner.manner.pacer.as_ref().map(Pacer::latency_added).unwrap_or_default();
    runner.ran
}

struct Runner<'a> {
    trimmer: &'a mut dyn Trimmer,
    manner: Manner,
    watcher: &'a mut dyn Watcher,
    started: Instant,
    /// When the load was last looked at, and what the counters were.
    looked: (Duration, BlockCounters),
    ran: Ran,
}

impl Runner<'_> {
    fn all(&mut self, plan: &mut Plan) -> End {
        let mut before = match self.trimmer.counters() {
            Ok(counters) => counters,
            Err(error) => return End::Lost(error),
        };
        self.looked.1 = before;
        while plan.left() > Bytes::ZERO {
            match self.wait(plan.left()) {
                Ok(true) => {}
                Ok(false) => return End::Stopped,
                Err(error) => return End::Lost(error),
            }
            match self.slice(plan, &mut before) {
                Ok(()) => {}
                Err(end) => return end,
            }
        }
        End::Done
    }

    /// Waits for the next turn; returns whether to go on.
    fn wait(&mut self, left: Bytes) -> Result<bool, BlockError> {
        loop {
            let Some(pacer) = &mut self.manner.pacer else {
                return Ok(self.watcher.at(Doing::Trimming, left));
            };
            let now = self.started.elapsed();
            let span = now - self.looked.0;
            let is_first = self.looked.0.is_zero();
            let enough = match pacer.is_idle() {
                _ if is_first => FIRST_LOOK,
                true => GLANCE,
                false => QUIET,
            };
            if span >= enough {
                let counters = self.trimmer.counters()?;
                pacer.observe(&load(span, &self.looked.1, &counters));
                self.looked = (now, counters);
                continue;
            }
            let start = if is_first { Some(enough) } else { pacer.next_start() };
            if start.is_some_and(|start| start <= now) {
                return Ok(self.watcher.at(Doing::Trimming, left));
            }
            if !self.watcher.at(Doing::Waiting, left) {
                return Ok(false);
            }
            let until = start.map_or(NAP, |start| start - now);
            thread::sleep(until.min(enough - span).min(NAP));
        }
    }

    /// Trimmer the next slice. `before` is what the counters were after the last.
    fn slice(&mut self, plan: &mut Plan, before: &mut BlockCounters) -> Result<(), End> {
        let pacer = self.manner.pacer.as_ref();
        let longest = pacer.filter(|pacer| !pacer.is_idle()).map(|pacer| pacer.goals().max_latency_added);
        let cost = &self.manner.cost;
        let limits = Limits {
            time: &|length| cost.time(length),
            longest: longest.unwrap_or(IDLE_SLICE),
            command: self.manner.longest_command,
            whole_groups: pacer.is_none(),
        };
        let Some(slice) = plan.next(&limits) else { return Ok(()) };
        let begun = self.trimmer.counters().map_err(End::Lost)?;
        let others = begun.since(before);
        self.ran.others_discards += others.discards;
        self.ran.others_bytes += others.discard_bytes;
        let took = self.trim(slice.range);
        let ended = self.trimmer.counters().map_err(End::Lost)?;
        let ours = ended.since(&begun);
        self.ran.discards += ours.discards;
        self.ran.bytes += ours.discard_bytes;
        *before = ended;
        let took = match took.map_err(End::Refused)? {
            Some(took) => took,
            None => return Ok(()),
        };
        self.ran.slices += 1;
        self.ran.held += took;
        self.watcher.reached(slice.range.end);
        if let Some(time) = slice.time
            && ours.discards > 0
        {
            self.manner.cost.learn(time, took);
        }
        if let Some(pacer) = &mut self.manner.pacer {
            pacer.trimmed(self.started.elapsed(), took, took);
        }
        Ok(())
    }

    /// How long the range held the drive; none where it lies past the end of all.
    fn trim(&mut self, range: Extent) -> Result<Option<Duration>, TrimError> {
        let series = self.trimmer.trim([range].into_iter().collect(), self.manner.minimum);
        match series.outcome {
            Err(TrimError::Trim { source, .. })
                if self.manner.is_blind
                    && self.ran.slices > 0
                    && source.kind() == io::ErrorKind::InvalidInput =>
            {
                Ok(None)
            }
            outcome => outcome.map(|()| Some(series.took)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use trimtab_core::ExtentSet;
    use trimtab_core::policy::Goals;
    use trimtab_core::profile::Profile;

    use super::super::plan::Scope;
    use super::*;
    use crate::free_space::{Division, FreeSpace};
    use crate::trimmer::TrimSeries;

    const MIB: u64 = 1 << 20;

    /// A drive that takes no time, of which somebody else may read, and that fails at an address.
    #[derive(Default)]
    struct Fake {
        counters: BlockCounters,
        free: ExtentSet,
        /// Reads that complete whenever somebody looks.
        reads: u64,
        /// Discards of others that complete whenever somebody looks.
        others: u64,
        fails: Option<(Bytes, fn() -> TrimError)>,
        ranges: Vec<Extent>,
    }

    impl Trimmer for Fake {
        fn trim(&mut self, ranges: ExtentSet, _: Bytes) -> TrimSeries {
            TrimSeries::of(&ranges, |range| {
                if let Some((at, error)) = self.fails
                    && range.end > at
                {
                    return Err(error());
                }
                self.ranges.push(range);
                for extent in self.free.inside(range) {
                    self.counters.discards += 1;
                    self.counters.discard_bytes += extent.len();
                }
                Ok(Duration::from_millis(1))
            })
        }

        fn reaching(&mut self, extents: ExtentSet) -> Result<ExtentSet, TrimError> {
            Ok(extents)
        }

        fn counters(&mut self) -> Result<BlockCounters, BlockError> {
            self.counters.reads += self.reads;
            self.counters.discards += self.others;
            Ok(self.counters)
        }

        fn free(&mut self) -> Bytes {
            self.free.len()
        }
    }

    /// Stops after some looks.
    struct Patience {
        looks: u64,
        reached: Bytes,
        waited: bool,
    }

    impl Watcher for Patience {
        fn at(&mut self, doing: Doing, _: Bytes) -> bool {
            self.waited |= doing == Doing::Waiting;
            self.looks = self.looks.saturating_sub(1);
            self.looks > 0
        }

        fn reached(&mut self, address: Bytes) {
            self.reached = address;
        }
    }

    fn patience(looks: u64) -> Patience {
        Patience { looks, reached: Bytes::ZERO, waited: false }
    }

    fn extents() -> Vec<Extent> {
        (0..20).map(|n| Extent::at(Bytes(n * 300 * MIB), Bytes(200 * MIB))).collect()
    }

    fn fake() -> Fake {
        Fake { free: extents().into_iter().collect(), ..Fake::default() }
    }

    fn trimmed(fake: &mut Fake, goals: Option<Goals>, watcher: &mut Patience) -> Ran {
        let free = FreeSpace::new(extents(), &Division::Anywhere { inside_extents: false });
        let everything = Extent::new(Bytes(0), Bytes(u64::MAX));
        let division = Division::Anywhere { inside_extents: false };
        let mut plan = Plan::new(&division, Some(&free), &Scope::Everything, everything, Bytes(0));
        let profile = Profile::named("micron-m500it").unwrap();
        let manner = Manner {
            minimum: Bytes::ZERO,
            pacer: goals.map(Pacer::for_one_trim),
            cost: Worth::new(&profile, Bytes(8 << 30)),
            longest_command: Bytes::GIB,
            is_blind: false,
        };
        run(&mut plan, fake, manner, watcher)
    }

    #[test]
    fn all_is_trimmed_and_counted_once() {
        for goals in [None, Some(Goals::default())] {
            let (mut fake, mut watcher) = (fake(), patience(u64::MAX));
            let ran = trimmed(&mut fake, goals, &mut watcher);
            assert!(matches!(ran.end, End::Done));
            assert_eq!((ran.discards, ran.bytes), (20, Bytes(4000 * MIB)));
            assert_eq!((ran.others_discards, watcher.reached), (0, Bytes(u64::MAX)));
            assert!(ran.slices > 1 && ran.slices <= 20);
        }
    }

    #[test]
    fn discards_between_slices_are_others() {
        let mut fake = Fake { others: 3, ..fake() };
        let ran = trimmed(&mut fake, None, &mut patience(u64::MAX));
        assert!(ran.others_discards >= 3 * ran.slices);
    }

    #[test]
    fn readers_are_waited_for_and_an_idle_drive_is_all_it_takes_where_asked() {
        let mut fake = Fake { reads: 5, ..fake() };
        let mut watcher = patience(30);
        let goals = Goals { idle_only: true, ..Goals::default() };
        let ran = trimmed(&mut fake, Some(goals), &mut watcher);
        assert!(matches!(ran.end, End::Stopped) && watcher.waited);
        assert_eq!((ran.slices, ran.discards), (0, 0));
    }

    #[test]
    fn a_busy_drive_gets_short_slices() {
        let mut fake = Fake { reads: 5, ..fake() };
        let goals = Goals { max_busy_share: 0.5, ..Goals::default() };
        trimmed(&mut fake, Some(goals), &mut patience(u64::MAX));
        assert_eq!(fake.ranges.len(), 20, "one free extent each");
    }

    #[test]
    fn what_was_done_before_a_failure_is_kept() {
        let errors: [fn() -> TrimError; 2] = [
            || TrimError::Trim { mount: PathBuf::from("/mnt"), source: io::Error::from_raw_os_error(5) },
            || TrimError::Unsupported { mount: PathBuf::from("/mnt") },
        ];
        for error in errors {
            let mut fake = Fake { fails: Some((Bytes(3000 * MIB), error)), ..fake() };
            let goals = Goals { max_busy_share: 1.0, ..Goals::default() };
            let mut watcher = patience(u64::MAX);
            let ran = trimmed(&mut fake, Some(goals), &mut watcher);
            let End::Refused(refused) = ran.end else { panic!("it was refused") };
            assert_eq!(refused.to_string(), error().to_string());
            assert_eq!(ran.bytes, Bytes(ran.discards * 200 * MIB));
            assert!(watcher.reached <= Bytes(3000 * MIB) && ran.slices as usize == fake.ranges.len());
        }
    }
}
