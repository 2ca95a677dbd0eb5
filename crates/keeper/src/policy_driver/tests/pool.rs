//! Trims above a thin pool, which frees a unit only if one discard covers all of it.

use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};
use trimtab_core::DiscardUnits;
use trimtab_core::policy::{Gain, Goals, Worth};

use super::*;

const BLOCK: u64 = 4096;

/// An XFS on a thin volume whose chunks are all allocated.
#[derive(Clone)]
struct Pool {
    units: DiscardUnits,
    free: Rc<RefCell<ExtentSet>>,
    held: Rc<RefCell<ExtentSet>>,
}

impl Trimmer for Pool {
    fn trim(&mut self, ranges: ExtentSet, minimum: Bytes) -> TrimSeries {
        TrimSeries::of(&ranges, |range| {
            for extent in self.free.borrow().inside(range).filter(|extent| extent.len() >= minimum) {
                self.held.borrow_mut().remove(self.units.inside(extent));
            }
            Ok(Duration::from_millis(1))
        })
    }

    fn reaching(&mut self, extents: ExtentSet) -> Result<ExtentSet, TrimError> {
        Ok(extents.iter().map(|extent| self.units.outside(extent)).collect())
    }

    fn counters(&mut self) -> Result<Counters, BlockError> {
        Ok(Counters::default())
    }

    fn free(&mut self) -> Bytes {
        self.free.borrow().len()
    }

    fn free_within(&mut self, extents: &ExtentSet, _: Freshness) -> Option<ExtentSet> {
        Some(self.free.borrow().intersect(extents))
    }
}

/// A volume of `size` bytes, and the service's driver of the file system on it.
fn volume(units: DiscardUnits, size: Bytes) -> (Pool, PolicyDriver<Pool>) {
    let all = ExtentSet::from_iter([Extent::new(Bytes::ZERO, size)]);
    let pool = Pool { units, free: Rc::default(), held: Rc::new(RefCell::new(all)) };
    let worth = Worth::new(&Profile::named("nvme-tlc").unwrap(), SIZE);
    let gain = Gain::Space { chunk: units.size() };
    let policy = SmartPolicy::new(Goals::default(), worth, gain).with_units(units);
    let mut driver = PolicyDriver::new(policy, pool.clone());
    driver.run(Duration::ZERO).unwrap();
    (pool, driver)
}

/// Runs the driver whenever it is due, until `end`.
fn run_until(driver: &mut PolicyDriver<Pool>, mut now: Duration, end: Duration) {
    while let Some(next) = driver.next_run().filter(|next| *next <= end) {
        now = next.max(now + Duration::from_millis(1));
        driver.run(now).unwrap();
    }
}

#[test]
fn part_of_a_unit_is_kept_until_the_rest_is_free() {
    let units = DiscardUnits::new(Bytes(256 << 10), Bytes(128 << 10));
    let (pool, mut driver) = volume(units, Bytes(8 << 20));
    let at = |start: u64, end: u64| Extent::new(Bytes(start << 10), Bytes(end << 10));
    let mut free = |now: u64, extent: Extent| {
        pool.free.borrow_mut().insert(extent);
        driver.freed(SECOND * now as u32, extent);
        run_until(&mut driver, SECOND * now as u32, SECOND * (now as u32 + 10));
        (driver.pending().len(), pool.held.borrow().len())
    };
    let size = 8 << 20;
    // It has the unit from 384 to 640 KiB, and parts of those beside it.
    assert_eq!(free(10, at(300, 700)), (Bytes(144 << 10), Bytes(size - (256 << 10))));
    assert_eq!(free(30, at(128, 300)), (Bytes(60 << 10), Bytes(size - (512 << 10))), "the first is free now");
    assert_eq!(free(50, at(702, 896)), (Bytes(254 << 10), Bytes(size - (512 << 10))), "2 KiB are missing");
    assert_eq!(free(70, at(700, 702)), (Bytes(0), Bytes(size - (768 << 10))));
    assert_eq!(driver.next_run(), None);
}

#[test]
fn part_of_a_unit_is_given_up_at_the_highest_age() {
    let units = DiscardUnits::new(Bytes(256 << 10), Bytes::ZERO);
    let (pool, mut driver) = volume(units, Bytes(8 << 20));
    let (part, rest) = (Extent::new(Bytes(0), Bytes(BLOCK)), Extent::new(Bytes(BLOCK), Bytes(256 << 10)));
    let mut free = |now: Duration, extent: Extent| {
        pool.free.borrow_mut().insert(extent);
        driver.freed(now, extent);
        run_until(&mut driver, now, now + SECOND * 4000);
        (driver.pending().len(), pool.held.borrow().contains(Bytes(0)))
    };
    assert_eq!(free(SECOND, part), (Bytes(0), true), "a file keeps the rest of its unit");
    // The trim covers all of the unit, although only the rest of it is pending.
    assert_eq!(free(SECOND * 5000, rest), (Bytes(0), false));
}

#[test]
fn driver_sleeps_while_only_parts_of_units_are_pending() {
    let (pool, mut driver) = volume(DiscardUnits::new(Bytes(1 << 20), Bytes::ZERO), Bytes(8 << 20));
    let part = Extent::new(Bytes(BLOCK), Bytes(1 << 20));
    pool.free.borrow_mut().insert(part);
    driver.freed(SECOND, part);
    run_until(&mut driver, SECOND, SECOND * 10);
    assert_eq!(driver.next_run(), Some(SECOND + Goals::default().max_age));
    assert!(driver.policy().is_settled());
}

proptest! {
    /// In whatever order files are deleted, and wherever their units begin: the pool gets back all that it can.
    #[test]
    fn deleted_files_leave_no_unit_behind(
        lengths in prop::collection::vec(1..200_u64, 1..40),
        order in prop::collection::vec(prop::num::u64::ANY, 40),
        pauses in prop::collection::vec(0..3000_u64, 40),
        unit in 1..300_u64,
        first in 0..300_u64,
        kept in 0..40_usize,
    ) {
        let units = DiscardUnits::new(Bytes(unit * BLOCK), Bytes(first * BLOCK));
        let mut end = 0;
        let mut files: Vec<Extent> = lengths.iter().map(|length| {
            let start = end;
            end += length * BLOCK;
            Extent::new(Bytes(start), Bytes(end))
        }).collect();
        let size = Bytes(end);
        let kept = (kept < files.len()).then(|| files.remove(kept));
        let mut keyed: Vec<_> = order.into_iter().zip(files).collect();
        keyed.sort();
        let (pool, mut driver) = volume(units, size);
        let mut now = SECOND;
        for ((_, file), pause) in keyed.into_iter().zip(pauses) {
            pool.free.borrow_mut().insert(file);
            driver.freed(now, file);
            run_until(&mut driver, now, now + Duration::from_millis(pause));
            now += Duration::from_millis(pause);
        }
        run_until(&mut driver, now, now + SECOND * 60);
        let mut held = ExtentSet::from_iter([Extent::new(Bytes::ZERO, size)]);
        for free in pool.free.borrow().iter() {
            held.remove(units.inside(free));
        }
        prop_assert_eq!(&*pool.held.borrow(), &held, "as after a plain fstrim");
        let pending: ExtentSet = driver.pending().iter().map(|(extent, _)| extent).collect();
        prop_assert!(pending.iter().all(|extent| held.intersect(&ExtentSet::from_iter([extent])).len() == extent.len()));
        prop_assert!(kept.is_some() || pending.len() < units.size() + units.size());
    }
}
