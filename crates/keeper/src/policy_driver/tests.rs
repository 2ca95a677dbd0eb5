//! Tests of the driver beside devices that fail, are slow or vanish.

mod pool;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::thread;

use trimtab_core::profile::Profile;

use super::*;
use crate::trimmer::TrimSeries;
use trimtab_linux::block::BlockCounters;

const SIZE: Bytes = Bytes(8 << 30);
const SECOND: Duration = Duration::from_secs(1);
/// How long one trim takes.
const TRIM_TIME: Duration = Duration::from_millis(20);

/// A device without other load. One of its trims may fail or not be answered in time, or it may be gone after one.
#[derive(Clone, Default)]
struct Faulty {
    calls: Rc<Cell<u64>>,
    fails_at: Option<u64>,
    late: Answer,
    gone_after: Option<u64>,
    is_slow: bool,
    /// The bytes that it holds back of those that were discarded, if it holds any.
    held: Option<Rc<Cell<Bytes>>>,
    /// Widens each trim to this range, as btrfs needs it.
    chunk: Option<Extent>,
    /// Bytes written so far, and the free extents; without them, everything is free.
    written: Rc<Cell<Bytes>>,
    /// How long reading the map of free space takes, and how often it was read.
    map_time: Duration,
    maps: Rc<Cell<u32>>,
    free: Rc<RefCell<Option<ExtentSet>>>,
}

/// Whether trims are answered.
#[derive(Clone, Default)]
enum Answer {
    #[default]
    InTime,
    NextTakesLong,
    /// A trim of these ranges is under way.
    UnderWay(ExtentSet),
    Ended(ExtentSet),
}

impl Trimmer for Faulty {
    fn trim(&mut self, mut ranges: ExtentSet, _: Bytes) -> TrimSeries {
        match std::mem::take(&mut self.late) {
            Answer::InTime => {}
            Answer::NextTakesLong => self.late = Answer::UnderWay(ranges.clone()),
            Answer::UnderWay(late) => self.late = Answer::UnderWay(late),
            Answer::Ended(late) => ranges = late,
        }
        if let Answer::UnderWay(_) = self.late {
            return TrimSeries::failed(TrimError::NoAnswer { mount: "/mnt".into() });
        }
        let before = self.calls.get();
        let mut series = TrimSeries::of(&ranges, |_| {
            self.calls.set(self.calls.get() + 1);
            if self.fails_at == Some(self.calls.get()) {
                let source = io::Error::from_raw_os_error(5);
                return Err(TrimError::Trim { mount: "/mnt".into(), source });
            }
            Ok(if self.is_slow { SECOND } else { TRIM_TIME })
        });
        if let Some(held) = &self.held {
            series.held = Bytes((self.calls.get() - before) << 20);
            held.set(held.get() + series.held);
        }
        series
    }

    fn reaching(&mut self, extents: ExtentSet) -> Result<ExtentSet, TrimError> {
        Ok(self.chunk.map_or(extents, |chunk| ExtentSet::from_iter([chunk])))
    }

    fn counters(&mut self) -> Result<Counters, BlockError> {
        if self.gone_after.is_some_and(|last| self.calls.get() > last) {
            return Err(BlockError::Unknown { device: "/dev/gone".into() });
        }
        let held = self.held.as_ref().map_or(Bytes::ZERO, |held| held.get());
        let discards = self.calls.get() - (held.0 >> 20);
        let (discard_bytes, write_bytes) = (Bytes(discards << 20), self.written.get());
        let counters = BlockCounters { discards, discard_bytes, write_bytes, ..BlockCounters::default() };
        Ok(Counters { own: counters, disks: counters })
    }

    fn free(&mut self) -> Bytes {
        Bytes::GIB
    }

    fn take_over(&mut self, earlier: &mut Self) {
        self.late = std::mem::take(&mut earlier.late);
    }

    fn free_within(&mut self, extents: &ExtentSet, _: Freshness) -> Option<ExtentSet> {
        self.maps.set(self.maps.get() + 1);
        thread::sleep(self.map_time);
        self.free.borrow().as_ref().map(|free| free.intersect(extents))
    }
}

fn driver(trimmer: Faulty) -> PolicyDriver<Faulty> {
    let mut driver =
        PolicyDriver::new(SmartPolicy::of_drive(&Profile::named("nvme-tlc").unwrap(), SIZE), trimmer);
    driver.run(Duration::ZERO).unwrap();
    for index in 0..8 {
        driver.freed(Duration::ZERO, Extent::at(Bytes(index << 28), Bytes(64 << 20)));
    }
    driver
}

fn pending(driver: &PolicyDriver<Faulty>) -> Bytes {
    driver.pending().len()
}

#[test]
fn busy_time_is_unknown_while_anybody_discards() {
    let disks = |seconds, discards| {
        let busy_time = SECOND * seconds;
        Counters {
            disks: BlockCounters { busy_time, discards, ..BlockCounters::default() },
            ..Counters::default()
        }
    };
    let between = |before, after| load_between(SECOND * 9, &before, &after).busy;
    assert_eq!(between(disks(1, 7), disks(4, 7)), Some(SECOND * 3));
    assert_eq!(between(disks(1, 7), disks(4, 8)), None, "another partition was trimmed");
}

#[test]
fn idle_device_gets_all_pending_trims() {
    let mut driver = driver(Faulty::default());
    assert!(driver.run(SECOND).unwrap());
    let mut now = SECOND;
    while pending(&driver) > Bytes::ZERO {
        now = driver.next_run().expect("something is pending").max(now + TRIM_TIME);
        driver.run(now).unwrap();
    }
    let totals = driver.totals();
    assert_eq!((totals.discards, totals.bytes), (8, Bytes(8 << 20)));
    assert_eq!((totals.took, totals.failed), (TRIM_TIME * 8, 0));
    assert_eq!(driver.next_run(), None);
}

#[test]
fn discards_that_a_thin_pool_holds_back_are_counted_later() {
    let held = Rc::new(Cell::new(Bytes::ZERO));
    let mut driver = driver(Faulty { held: Some(held.clone()), ..Faulty::default() });
    let mut now = SECOND;
    driver.run(now).unwrap();
    while pending(&driver) > Bytes::ZERO {
        now = driver.next_run().unwrap().max(now + TRIM_TIME);
        driver.run(now).unwrap();
    }
    assert_eq!((driver.totals().discards, driver.totals().bytes), (0, Bytes::ZERO));
    let due = driver.next_run().expect("they are looked for");
    held.set(Bytes::ZERO);
    driver.run(due).unwrap();
    assert_eq!((driver.totals().discards, driver.totals().bytes), (8, Bytes(8 << 20)));
    assert_eq!(driver.next_run(), None);
}

#[test]
fn slow_device_gets_one_trim_per_run() {
    let mut driver = driver(Faulty { is_slow: true, ..Faulty::default() });
    let before = pending(&driver);
    assert!(driver.run(SECOND).unwrap());
    assert_eq!((driver.totals().discards, driver.totals().took), (1, SECOND));
    assert_eq!(pending(&driver) + Bytes(64 << 20), before);
    assert!(driver.next_run().is_some());
}

#[test]
fn failed_trims_stay_pending() {
    let mut driver = driver(Faulty { fails_at: Some(2), ..Faulty::default() });
    let before = pending(&driver);
    let error = driver.run(SECOND).unwrap_err();
    assert!(matches!(error, RunError::Trim(_)), "{error}");
    assert_eq!(pending(&driver), Bytes(before.0 - (64 << 20)), "the first was trimmed");
    let retry = driver.next_run().unwrap();
    assert!(driver.run(retry).unwrap());
    assert_eq!(driver.totals().failed, 1);
}

#[test]
fn trim_that_is_answered_late_counts_but_not_for_what_was_freed_meanwhile() {
    let mut driver = driver(Faulty { late: Answer::NextTakesLong, ..Faulty::default() });
    let before = pending(&driver);
    let mut now = SECOND;
    for _ in 0..2 {
        let error = driver.run(now).unwrap_err();
        assert!(matches!(error, RunError::Trim(TrimError::NoAnswer { .. })), "{error}");
        assert_eq!((pending(&driver), driver.totals().discards), (before, 0));
        now = driver.next_run().unwrap();
    }
    let Answer::UnderWay(ranges) = std::mem::take(&mut driver.trimmer.late) else {
        panic!("it is under way")
    };
    let first = ranges.iter().next().unwrap();
    let freed = Extent::at(first.start, Bytes::MIB);
    driver.freed(now, freed);
    driver.trimmer.late = Answer::Ended(ranges.clone());
    assert!(driver.run(now).unwrap());
    assert_eq!(driver.totals().discards, ranges.count() as u64, "they are counted from its beginning");
    assert_eq!(pending(&driver), before - ranges.len() + Bytes::MIB);
    assert_eq!(driver.policy().worth().learned().trims, 0, "it may have hung");
    assert!(driver.pending().sharing(first).any(|extent| extent == freed));
}

/// A driver with a trim that is not answered yet, which leaves out what is shorter than 1 MiB and ends now.
fn with_late_trim_of(chunk: Extent) -> PolicyDriver<Faulty> {
    let device = Faulty { late: Answer::Ended(ExtentSet::from_iter([chunk])), ..Faulty::default() };
    let mut driver =
        PolicyDriver::new(SmartPolicy::of_drive(&Profile::named("nvme-tlc").unwrap(), SIZE), device);
    let before = driver.trimmer.counters().unwrap();
    driver.unanswered = Some(Unanswered { before, minimum: Bytes::MIB, freed: ExtentSet::new() });
    driver
}

#[test]
fn late_trim_does_not_count_for_shorter_extents_of_the_next() {
    let mut driver = with_late_trim_of(Extent::new(Bytes::ZERO, SIZE));
    let (short, long) = (Extent::at(Bytes(0), Bytes(64 << 10)), Extent::at(Bytes(1 << 30), Bytes::MIB));
    let refused = ExtentSet::from_iter([short, long]);
    let mut trimmed = Trimmed { took: Duration::ZERO, refused, partial: ExtentSet::new(), sent: None };
    let before = driver.trimmer.counters().unwrap();
    driver.carry_out(SECOND, before, Bytes::ZERO, &mut trimmed).unwrap();
    assert_eq!(trimmed.refused.iter().collect::<Vec<_>>(), [short]);
}

#[test]
fn late_trim_does_not_count_for_short_extents_whose_neighbours_were_freed() {
    let mut driver = with_late_trim_of(Extent::new(Bytes::ZERO, SIZE));
    let before = driver.trimmer.counters().unwrap();
    let short = Extent::at(Bytes(0), Bytes(1000 << 10));
    driver.policy.on_event(SECOND, &Event::Freed(short));
    driver.freed(SECOND, Extent::at(short.end, Bytes::MIB));
    let mut trimmed =
        Trimmed { took: Duration::ZERO, refused: ExtentSet::new(), partial: ExtentSet::new(), sent: None };
    driver.carry_out(SECOND, before, Bytes::ZERO, &mut trimmed).unwrap();
    assert_eq!(pending(&driver), short.len() + Bytes::MIB);
}

#[test]
fn another_driver_takes_over_a_trim_that_is_answered_late() {
    let mut earlier = driver(Faulty { late: Answer::NextTakesLong, ..Faulty::default() });
    earlier.run(SECOND).unwrap_err();
    let before = pending(&earlier);
    let mut later = driver(Faulty::default());
    later.take_pending(SECOND);
    later.take_over(earlier);
    assert_eq!(pending(&later), before);
    let Answer::UnderWay(ranges) = std::mem::take(&mut later.trimmer.late) else { panic!("it is under way") };
    later.trimmer.late = Answer::Ended(ranges.clone());
    later.freed(SECOND, Extent::at(ranges.iter().next().unwrap().start, Bytes::MIB));
    let next = later.next_run().unwrap();
    later.run(next).unwrap();
    assert_eq!(pending(&later), before - ranges.len() + Bytes::MIB, "but for what was freed meanwhile");
    assert_eq!(later.policy().worth().learned().trims, 0, "it may have hung");
}

#[test]
fn extents_that_files_took_are_dropped() {
    let device = Faulty::default();
    let mut driver = driver(device.clone());
    let freed = Extent::at(Bytes(1 << 40), Bytes(64 << 20));
    let (stays, before) = (Extent::at(Bytes(0), Bytes(64 << 20)), pending(&driver));
    device.free.replace(Some(ExtentSet::from_iter([stays])));
    driver.report_load(SECOND).unwrap();
    driver.drop_reused(SECOND);
    assert_eq!(pending(&driver), before, "nobody wrote, so that nothing was taken");
    device.written.set(before);
    driver.freed(SECOND * 3, freed);
    driver.report_load(SECOND * 4).unwrap();
    driver.drop_reused(SECOND * 4);
    let left: Vec<_> = driver.pending().iter().map(|(extent, _)| extent).collect();
    assert_eq!(left, [stays, freed], "what is free, and what was freed a moment ago");
}

#[test]
fn map_of_free_space_is_read_seldom_where_that_takes_long() {
    let device = Faulty { map_time: Duration::from_millis(20), ..Faulty::default() };
    let mut driver = driver(device.clone());
    device.free.replace(Some(ExtentSet::from_iter([Extent::at(Bytes(0), SIZE)])));
    let mut maps_at = |milliseconds| {
        let now = SECOND * 10 + Duration::from_millis(milliseconds);
        device.written.set(device.written.get() + Bytes::GIB);
        driver.report_load(now).unwrap();
        driver.drop_reused(now);
        device.maps.get()
    };
    assert_eq!([0, 10, 900, 999].map(&mut maps_at), [1; 4]);
    assert_eq!(maps_at(60_000), 2);
}

#[test]
fn extents_below_the_least_length_stay_pending_beside_a_wider_trim() {
    let chunk = Extent::new(Bytes::ZERO, SIZE);
    let mut driver = driver(Faulty { chunk: Some(chunk), ..Faulty::default() });
    let short = Extent::at(Bytes(1 << 33) - Bytes(8192), Bytes(2048));
    driver.freed(Duration::ZERO, short);
    assert!(driver.run(SECOND).unwrap());
    let left: Vec<_> = driver.pending().iter().map(|(extent, _)| extent).collect();
    assert_eq!(left, [short], "the others were discarded with the chunk");
}

#[test]
fn vanished_device_is_an_error_and_keeps_extents_pending() {
    let device = Faulty { gone_after: Some(0), ..Faulty::default() };
    let mut driver = driver(device.clone());
    let before = pending(&driver);
    assert!(matches!(driver.run(SECOND), Err(RunError::Block(_))));
    assert!(matches!(driver.run(SECOND * 60), Err(RunError::Block(_))));
    let trimmed = Bytes(device.calls.get() * (64 << 20));
    assert_eq!(pending(&driver) + trimmed, before);
}
