//! Runs a plan slice by slice, paced to limit its effect on other I/O.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use trimtab_core::policy::{Pacer, Sent, Worth};
use trimtab_core::{Bytes, DiscardUnits, Extent};
use trimtab_linux::block::BlockError;
use trimtab_linux::trim::TrimError;

use super::plan::{Limits, RemainingTrim};
use crate::policy_driver::load_between;
use crate::trimmer::{Counters, Trimmer};

/// The longest slice on an idle drive; other I/O may start at any time.
const IDLE_SLICE: Duration = Duration::from_millis(250);
/// How long a busy drive must be without other I/O to count as idle.
const IDLE_AFTER: Duration = Duration::from_millis(500);
/// How often the load of an idle drive is measured.
const IDLE_INTERVAL: Duration = Duration::from_millis(10);
/// How long the load is measured before the first slice.
const FIRST_INTERVAL: Duration = Duration::from_millis(100);
/// The longest sleep, so that an interrupt is noticed soon.
const MAX_SLEEP: Duration = Duration::from_millis(50);

/// The parameters of a trim.
pub struct Manner {
    /// Free extents that are shorter are skipped.
    pub minimum: Bytes,
    /// Holds the goals; none to trim as fast as possible.
    pub pacer: Option<Pacer>,
    /// Predicts the duration of discards, and learns from measurements.
    pub cost: Worth,
    /// The longest discard that the kernel sends as one command.
    pub longest_command: Bytes,
    /// The units in which the device takes discards.
    pub units: DiscardUnits,
    /// Whether the end of the trim addresses is not known; ranges beyond it are refused.
    pub is_blind: bool,
}

/// The activity of a trim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It waits for FITRIM.
    Trimming,
    /// It pauses because others use the drive.
    Waiting,
}

/// Observes a trim, and may stop it.
pub trait Watcher {
    /// Called with the current activity and the bytes left; returns whether to continue.
    fn at(&mut self, doing: Doing, left: Bytes) -> bool;

    /// Called when everything before `address` is trimmed.
    fn reached(&mut self, address: Bytes);
}

/// The result of a trim.
#[derive(Debug)]
pub struct Ran {
    /// The number of FITRIM calls.
    pub slices: u64,
    /// Discards that the devices completed during these calls.
    pub discards: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// The sum of the kernel's figures for the calls, which mean different things; see [`trimtab_linux::trim::Done`].
    pub reported: Bytes,
    /// Discards that the devices completed between the calls: those of others.
    pub others_discards: u64,
    /// Their bytes.
    pub others_bytes: Bytes,
    /// How long the drive was busy with slices.
    pub held: Duration,
    /// The total time, including pauses.
    pub took: Duration,
    /// The increase in the mean latency of other reads and writes in the last interval with slices.
    pub latency_added: Duration,
    /// How it ended.
    pub end: End,
}

/// How a trim ended.
#[derive(Debug)]
pub enum End {
    /// Everything is trimmed.
    Done,
    /// The watcher stopped it.
    Stopped,
    /// A slice failed.
    Refused(TrimError),
    /// The counters of a device can't be read any more.
    Lost(BlockError),
}

/// Trims what is left of `plan`.
pub fn run(
    plan: &mut RemainingTrim,
    trimmer: &mut dyn Trimmer,
    manner: Manner,
    watcher: &mut dyn Watcher,
) -> Ran {
    let ran = Ran {
        slices: 0,
        discards: 0,
        bytes: Bytes::ZERO,
        reported: Bytes::ZERO,
        others_discards: 0,
        others_bytes: Bytes::ZERO,
        held: Duration::ZERO,
        took: Duration::ZERO,
        latency_added: Duration::ZERO,
        end: End::Done,
    };
    let started = Instant::now();
    let measured = (Duration::ZERO, Counters::default());
    let mut runner = Runner { trimmer, manner, watcher, started, measured, ran };
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
    /// When the load was last measured, and the counters then.
    measured: (Duration, Counters),
    ran: Ran,
}

impl Runner<'_> {
    fn all(&mut self, plan: &mut RemainingTrim) -> End {
        let mut before = match self.trimmer.counters() {
            Ok(counters) => counters,
            Err(error) => return End::Lost(error),
        };
        self.measured.1 = before;
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

    /// Waits until the next slice may start; returns whether to continue.
    fn wait(&mut self, left: Bytes) -> Result<bool, BlockError> {
        loop {
            let Some(pacer) = &mut self.manner.pacer else {
                return Ok(self.watcher.at(Doing::Trimming, left));
            };
            let now = self.started.elapsed();
            let span = now - self.measured.0;
            let is_first = self.measured.0.is_zero();
            let enough = if is_first {
                FIRST_INTERVAL
            } else if pacer.is_idle() {
                IDLE_INTERVAL
            } else {
                IDLE_AFTER
            };
            if span >= enough {
                let counters = self.trimmer.counters()?;
                pacer.observe(&load_between(span, &self.measured.1, &counters));
                self.measured = (now, counters);
                continue;
            }
            let start = if is_first { Some(enough) } else { pacer.next_start() };
            if start.is_some_and(|start| start <= now) {
                return Ok(self.watcher.at(Doing::Trimming, left));
            }
            if !self.watcher.at(Doing::Waiting, left) {
                return Ok(false);
            }
            let until = start.map_or(MAX_SLEEP, |start| start - now);
            thread::sleep(until.min(enough - span).min(MAX_SLEEP));
        }
    }

    /// Trims the next slice. `before` are the counters after the last one.
    fn slice(&mut self, plan: &mut RemainingTrim, before: &mut Counters) -> Result<(), End> {
        let pacer = self.manner.pacer.as_ref();
        // Until a slice was measured, the drive may be slower than its profile says.
        let may_be_long = |pacer: &&Pacer| pacer.is_idle() && self.ran.slices > 0;
        let longest = pacer.filter(|pacer| !may_be_long(pacer)).map(|pacer| pacer.goals().max_latency_added);
        let cost = &self.manner.cost;
        let limits = Limits {
            time: &|length| cost.time(length),
            longest: longest.unwrap_or(IDLE_SLICE),
            command: self.manner.longest_command,
            units: self.manner.units,
            minimum: self.manner.minimum,
            whole_groups: pacer.is_none(),
        };
        let Some(slice) = plan.next(&limits) else { return Ok(()) };
        let begun = self.trimmer.counters().map_err(End::Lost)?;
        let others = begun.own.since(&before.own);
        self.ran.others_discards += others.discards;
        self.ran.others_bytes += others.discard_bytes;
        let took = self.trim(slice.range);
        let ended = self.trimmer.counters().map_err(End::Lost)?;
        let ours = ended.own.since(&begun.own);
        self.ran.discards += ours.discards;
        self.ran.bytes += ours.discard_bytes;
        *before = ended;
        let took = match took {
            // The user asked to stop.
            Err(TrimError::Ended { .. }) => return Err(End::Stopped),
            took => took.map_err(End::Refused)?,
        };
        let took = match took {
            Some(took) => took,
            None => return Ok(()),
        };
        self.ran.slices += 1;
        self.ran.held += took;
        self.watcher.reached(slice.range.end);
        if slice.time.is_some() {
            self.manner.cost.learn(Sent { discards: ours.discards, bytes: ours.discard_bytes }, took);
        }
        if let Some(pacer) = &mut self.manner.pacer {
            pacer.slice_ended(self.started.elapsed(), took, took);
        }
        Ok(())
    }

    /// Trims the range and returns how long the drive was busy; `None` if the range lies beyond the end.
    fn trim(&mut self, range: Extent) -> Result<Option<Duration>, TrimError> {
        let series = self.trimmer.trim([range].into_iter().collect(), self.manner.minimum);
        self.ran.reported += series.reported;
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

    /// A drive with short trims, optional I/O of others, and an optional failure at an address.
    #[derive(Default)]
    struct Fake {
        counters: Counters,
        free: ExtentSet,
        /// Reads that complete with each reading of the counters.
        reads: u64,
        /// Discards of others that complete with each reading of the counters.
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
                    self.counters.own.discards += 1;
                    self.counters.own.discard_bytes += extent.len();
                }
                Ok(Duration::from_millis(1))
            })
        }

        fn reaching(&mut self, extents: ExtentSet) -> Result<ExtentSet, TrimError> {
            Ok(extents)
        }

        fn counters(&mut self) -> Result<Counters, BlockError> {
            self.counters.disks.reads += self.reads;
            self.counters.own.discards += self.others;
            Ok(self.counters)
        }

        fn free(&mut self) -> Bytes {
            self.free.len()
        }
    }

    /// Stops after a number of calls.
    struct StopAfter {
        calls: u64,
        reached: Bytes,
        waited: bool,
    }

    impl Watcher for StopAfter {
        fn at(&mut self, doing: Doing, _: Bytes) -> bool {
            self.waited |= doing == Doing::Waiting;
            self.calls = self.calls.saturating_sub(1);
            self.calls > 0
        }

        fn reached(&mut self, address: Bytes) {
            self.reached = address;
        }
    }

    fn stop_after(calls: u64) -> StopAfter {
        StopAfter { calls, reached: Bytes::ZERO, waited: false }
    }

    fn extents() -> Vec<Extent> {
        (0..20).map(|n| Extent::at(Bytes(n * 300 * MIB), Bytes(200 * MIB))).collect()
    }

    fn fake() -> Fake {
        Fake { free: extents().into_iter().collect(), ..Fake::default() }
    }

    fn trimmed(fake: &mut Fake, goals: Option<Goals>, watcher: &mut StopAfter) -> Ran {
        let free = FreeSpace::new(extents(), &Division::Anywhere { inside_extents: false });
        let everything = Extent::new(Bytes(0), Bytes(u64::MAX));
        let division = Division::Anywhere { inside_extents: false };
        let mut plan = RemainingTrim::new(&division, Some(&free), &Scope::Everything, everything, Bytes(0));
        let profile = Profile::named("micron-m500it").unwrap();
        let manner = Manner {
            minimum: Bytes::ZERO,
            pacer: goals.map(Pacer::for_one_trim),
            cost: Worth::new(&profile, Bytes(8 << 30)),
            longest_command: Bytes::GIB,
            units: DiscardUnits::default(),
            is_blind: false,
        };
        run(&mut plan, fake, manner, watcher)
    }

    #[test]
    fn everything_is_trimmed_and_counted_once() {
        for goals in [None, Some(Goals::default())] {
            let (mut fake, mut watcher) = (fake(), stop_after(u64::MAX));
            let ran = trimmed(&mut fake, goals, &mut watcher);
            assert!(matches!(ran.end, End::Done));
            assert_eq!((ran.discards, ran.bytes), (20, Bytes(4000 * MIB)));
            assert_eq!((ran.others_discards, watcher.reached), (0, Bytes(u64::MAX)));
            assert!(ran.slices > 1 && ran.slices <= 20);
        }
    }

    #[test]
    fn discards_between_slices_count_as_those_of_others() {
        let mut fake = Fake { others: 3, ..fake() };
        let ran = trimmed(&mut fake, None, &mut stop_after(u64::MAX));
        assert!(ran.others_discards >= 3 * ran.slices);
    }

    #[test]
    fn idle_only_trim_waits_for_readers() {
        let mut fake = Fake { reads: 5, ..fake() };
        let mut watcher = stop_after(30);
        let goals = Goals { idle_only: true, ..Goals::default() };
        let ran = trimmed(&mut fake, Some(goals), &mut watcher);
        assert!(matches!(ran.end, End::Stopped) && watcher.waited);
        assert_eq!((ran.slices, ran.discards), (0, 0));
    }

    #[test]
    fn busy_drive_gets_short_slices() {
        let mut fake = Fake { reads: 5, ..fake() };
        let goals = Goals { max_busy_share: 0.5, ..Goals::default() };
        trimmed(&mut fake, Some(goals), &mut stop_after(u64::MAX));
        assert_eq!(fake.ranges.len(), 20, "one free extent each");
    }

    #[test]
    fn first_slice_is_short_as_nothing_is_known_of_the_drive() {
        let mut fake = fake();
        trimmed(&mut fake, Some(Goals::default()), &mut stop_after(u64::MAX));
        let [first, second, ..] = fake.ranges[..] else { panic!("{:?}", fake.ranges) };
        assert!(first.len() < Bytes(300 * MIB) && second.len() > Bytes(500 * MIB), "{first:?}, {second:?}");
    }

    #[test]
    fn failed_trim_reports_what_was_done_before() {
        let errors: [fn() -> TrimError; 2] = [
            || TrimError::Trim { mount: PathBuf::from("/mnt"), source: io::Error::from_raw_os_error(5) },
            || TrimError::Unsupported { mount: PathBuf::from("/mnt") },
        ];
        for error in errors {
            let mut fake = Fake { fails: Some((Bytes(3000 * MIB), error)), ..fake() };
            let goals = Goals { max_busy_share: 1.0, ..Goals::default() };
            let mut watcher = stop_after(u64::MAX);
            let ran = trimmed(&mut fake, Some(goals), &mut watcher);
            let End::Refused(refused) = ran.end else { panic!("it was refused") };
            assert_eq!(refused.to_string(), error().to_string());
            assert_eq!(ran.bytes, Bytes(ran.discards * 200 * MIB));
            assert!(watcher.reached <= Bytes(3000 * MIB) && ran.slices as usize == fake.ranges.len());
        }
    }
}
