//! Blocks that are bad from the start, blocks that turn bad, and static wear levelling.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::profile::{GcPolicy, Idle, Profile, Slc, Sourced, Wear};
use trimtab_core::{Bytes, Extent, Nanos, Pages};
use trimtab_ftl::{ClosedLoop, Command, Device, Op, theory};

const PAGE: u64 = 4096;
const PAGES_PER_BLOCK: u64 = 64;
const SIZE: u64 = 64 << 20;
const PAGES: u64 = SIZE / PAGE;

fn sourced<T>(value: T) -> Option<Sourced<T>> {
    Some(Sourced { value, source: "a test".to_owned() })
}

/// A drive with blocks of 64 pages, filled in order once.
fn drive(over_provisioning: f64, wear: Wear) -> Device {
    let mut profile = Profile::named("nvme-tlc").unwrap();
    let geometry = &mut profile.geometry;
    geometry.program_unit.value = Bytes(16 << 10);
    geometry.erase_block.value = Bytes(PAGES_PER_BLOCK * PAGE);
    geometry.over_provisioning.value = over_provisioning;
    geometry.reserve_blocks.value = 1;
    profile.wear = Some(wear);
    let mut device = Device::new(&profile, Bytes(SIZE)).unwrap();
    write(&mut device, (0..PAGES / PAGES_PER_BLOCK).map(|block| (block * PAGES_PER_BLOCK, PAGES_PER_BLOCK)));
    device
}

/// Writes this many pages from each of these.
fn write(device: &mut Device, runs: impl Iterator<Item = (u64, u64)>) {
    let mut host = ClosedLoop::new(8);
    for (page, count) in runs {
        let extent = Extent::at(Bytes(page * PAGE), Bytes(count * PAGE));
        host.submit(device, Command { op: Op::Write, extent });
    }
}

/// Writes single pages drawn from all.
fn write_at_random(device: &mut Device, count: u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
    write(device, (0..count).map(|_| (rng.random_range(0..PAGES), 1)));
}

/// The write amplification of what `run` writes.
fn amplification(device: &mut Device, run: impl FnOnce(&mut Device)) -> f64 {
    let before = device.counters();
    run(device);
    device.ftl().assert_sound();
    assert_eq!(device.ftl().mapped(), Pages(PAGES), "all data are there");
    device.counters().since(&before).waf().unwrap()
}

#[test]
fn blocks_that_are_bad_from_the_start_are_missing_from_the_spare() {
    let amplified = |bad: f64| {
        let mut device = drive(39.0 / 256.0, Wear { bad_blocks: sourced(bad), ..Wear::default() });
        write_at_random(&mut device, 4 * PAGES);
        let spare = device.effective_spare();
        (spare, amplification(&mut device, |device| write_at_random(device, 8 * PAGES)))
    };
    let [(all, least), (some, most)] = [0.0, 12.0 / 295.0].map(amplified);
    // The data take 256 of 295 blocks. 12 blocks are bad.
    assert!((all - (1.0 - 256.0 / 295.0)).abs() < 1e-9 && (some - (1.0 - 256.0 / 283.0)).abs() < 1e-9);
    for (spare, waf) in [(all, least), (some, most)] {
        let closed = theory::greedy(spare, PAGES_PER_BLOCK as u32);
        assert!((waf / closed - 1.0).abs() < 0.02, "{waf} at a spare of {spare}, not {closed}");
    }
}

#[test]
fn blocks_turn_bad_as_their_lives_are_spread_until_the_spare_is_used_up() {
    const ENDURANCE: f64 = 100.0;
    const VARIATION: f64 = 0.5;
    let wear =
        || Wear { endurance: sourced(ENDURANCE as u32), variation: sourced(VARIATION), ..Wear::default() };
    // In order, all good blocks are erased alike: those whose life is over are the lower part of an even spread.
    let in_order = |device: &mut Device| write(device, (0..PAGES / 64).map(|block| (block * 64, 64)));
    let mut device = drive(1.0, wear());
    let blocks = device.ftl().erases().len() as f64;
    let mut before = 0;
    for _ in 0..170 {
        in_order(&mut device);
        let most = f64::from(*device.ftl().erases().iter().max().unwrap());
        let expected = ((most / ENDURANCE - (1.0 - VARIATION)) / (2.0 * VARIATION)).max(0.0) * blocks;
        let bad = device.ftl().bad_blocks();
        assert!(bad >= before, "a bad block stays bad");
        assert!((f64::from(bad) - expected).abs() < 0.04 * blocks, "{bad} are bad, not {expected}");
        before = bad;
    }
    assert!(before > 150, "{before}");
    device.ftl().assert_sound();

    // A drive that has used up its spare keeps using worn blocks.
    let mut device = drive(0.2, wear());
    let begun = amplification(&mut device, |device| write_at_random(device, 8 * PAGES));
    let ended = amplification(&mut device, |device| {
        (0..25).for_each(|_| write_at_random(device, 4 * PAGES));
        assert!(device.ftl().bad_blocks() > 40);
    });
    assert!(ended > 3.0 * begun, "{begun} with good blocks, {ended} without a spare");
    let bad = device.ftl().bad_blocks();
    let left = device.ftl().erases().len() as u64 - u64::from(bad) - 3;
    assert!(
        left * PAGES_PER_BLOCK > PAGES && (left - 2) * PAGES_PER_BLOCK <= PAGES,
        "{left} blocks are left"
    );
}

#[test]
fn idle_cleaning_keeps_a_block_for_the_host_while_blocks_turn_bad() {
    for (choices, slc) in [(1, false), (2, false), (2, true)] {
        let mut profile = Profile::named("nvme-tlc").unwrap();
        let geometry = &mut profile.geometry;
        geometry.program_unit.value = Bytes(16 << 10);
        geometry.erase_block.value = Bytes(PAGES_PER_BLOCK * PAGE);
        geometry.over_provisioning.value = 0.3;
        geometry.reserve_blocks.value = 1;
        profile.gc.policy.value = GcPolicy::DChoices(choices);
        profile.idle =
            Some(Idle { after: sourced(Nanos(1_000_000)).unwrap(), reserve: sourced(0.01).unwrap() });
        profile.slc = slc.then(|| Slc {
            bits_per_cell: sourced(3).unwrap(),
            program: sourced(Nanos(200_000)).unwrap(),
            static_size: sourced(0.02).unwrap(),
            dynamic_size: sourced(0.05).unwrap(),
        });
        profile.wear = Some(Wear { endurance: sourced(10), variation: sourced(0.5), ..Wear::default() });
        let mut device = Device::new(&profile, Bytes(SIZE)).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut now = Nanos::ZERO;
        for _ in 0..PAGES {
            // Writes of up to three blocks, and pauses that end in the midst of idle work.
            now += Nanos(rng.random_range(0..8_000_000));
            let count = [1, 4, 16, 200][rng.random_range(0..4)];
            let page = rng.random_range(0..=PAGES - count);
            let extent = Extent::at(Bytes(page * PAGE), Bytes(count * PAGE));
            now = device.submit(now, Command { op: Op::Write, extent });
        }
        device.ftl().assert_sound();
        assert!(device.ftl().bad_blocks() > 50, "{} blocks are bad", device.ftl().bad_blocks());
    }
}

#[test]
fn levelling_moves_resting_data_as_seldom_as_its_closed_form_says_and_bounds_the_spread() {
    // The first half of the drive is never written again, the second half in order.
    let hot = |device: &mut Device, rounds: u64| {
        let half = PAGES / 128..PAGES / 64;
        (0..rounds).for_each(|_| write(device, half.clone().map(|block| (block * 64, 64))));
    };
    let mut device = drive(0.1, Wear::default());
    assert_eq!(amplification(&mut device, |device| hot(device, 100)), 1.0);
    let spread = device.erase_spread();
    assert!(spread.min == 0 && spread.max >= 80, "resting blocks are never erased: {spread:?}");

    for gap in [8, 16] {
        let mut device = drive(0.1, Wear { level_at: sourced(gap), ..Wear::default() });
        hot(&mut device, 10 * u64::from(gap));
        let waf = amplification(&mut device, |device| hot(device, 40 * u64::from(gap)));
        // Each resting block is moved once while an average block is erased `gap` times: of all erases the
        // part c / gap, where c is the part of all blocks that rest.
        let resting = PAGES as f64 / 2.0 / 64.0 / device.ftl().erases().len() as f64;
        let closed = 1.0 / (1.0 - resting / f64::from(gap));
        let copies = (waf - 1.0) / (closed - 1.0);
        assert!((copies - 1.0).abs() < 0.1, "at {gap}: {waf}, the closed form says {closed}");
        let spread = device.erase_spread();
        assert!(spread.max - spread.min <= 2 * gap, "at {gap}: {spread:?}");
    }
}

#[test]
fn levelling_keeps_the_spread_of_a_skewed_load_that_a_naive_model_has() {
    const GAP: u32 = 8;
    // Nine tenths of the writes go to a tenth of the pages, none to the upper half.
    let pages = |count: u64| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let draw = move |_| {
            let span = if rng.random_bool(0.9) { 0..PAGES / 10 } else { PAGES / 10..PAGES / 2 };
            rng.random_range(span)
        };
        (0..count).map(draw)
    };
    let mut device = drive(36.0 / 256.0, Wear { level_at: sourced(GAP), ..Wear::default() });
    let blocks = device.ftl().erases().len();
    write(&mut device, pages(40 * PAGES).map(|page| (page, 1)));
    device.ftl().assert_sound();
    let found = device.counters().waf().unwrap();

    let mut naive = Naive::new(blocks, GAP);
    (0..PAGES).chain(pages(40 * PAGES)).for_each(|page| naive.write(page as usize));
    let expected = naive.programmed as f64 / (41 * PAGES) as f64;
    assert!((found / expected - 1.0).abs() < 0.01, "{found}, the naive model says {expected}");
    let (spread, expected) = (device.erase_spread(), naive.spread());
    assert!(spread.max - spread.min <= expected + 2, "{spread:?}, the naive model's spread is {expected}");
}

/// A drive as lists: greedy cleaning, one block in reserve, and levelling as the module of the model says.
struct Naive {
    /// The logical page in each place of each block; none where it is stale or was never written.
    blocks: Vec<Vec<Option<usize>>>,
    erases: Vec<u32>,
    /// The place of each logical page.
    places: Vec<Option<(usize, usize)>>,
    /// Erased blocks, those erased first in front.
    free: Vec<usize>,
    /// Closed blocks, those closed first in front.
    closed: Vec<usize>,
    host: Option<usize>,
    copies: Option<usize>,
    gap: u32,
    programmed: u64,
}

impl Naive {
    fn new(blocks: usize, gap: u32) -> Self {
        Self {
            blocks: vec![Vec::new(); blocks],
            erases: vec![0; blocks],
            places: vec![None; PAGES as usize],
            free: (0..blocks).collect(),
            closed: Vec::new(),
            host: None,
            copies: None,
            gap,
            programmed: 0,
        }
    }

    fn write(&mut self, page: usize) {
        let block = match self.host {
            Some(block) => block,
            None => {
                let block = self.free.remove(0);
                while self.free.len() <= 1 {
                    self.clean();
                }
                block
            }
        };
        self.host = self.put(block, page);
    }

    /// Puts a page into a block; returns the block unless it is full, and closed then.
    fn put(&mut self, block: usize, page: usize) -> Option<usize> {
        self.programmed += 1;
        if let Some((old, place)) = self.places[page] {
            self.blocks[old][place] = None;
        }
        self.places[page] = Some((block, self.blocks[block].len()));
        self.blocks[block].push(Some(page));
        if self.blocks[block].len() < PAGES_PER_BLOCK as usize {
            return Some(block);
        }
        self.closed.push(block);
        None
    }

    fn valid(&self, block: usize) -> usize {
        self.blocks[block].iter().flatten().count()
    }

    fn erase(&mut self, block: usize) {
        self.blocks[block].clear();
        self.erases[block] += 1;
    }

    fn clean(&mut self) {
        let place = (0..self.closed.len()).min_by_key(|place| self.valid(self.closed[*place])).unwrap();
        let victim = self.closed.remove(place);
        for page in self.blocks[victim].clone().into_iter().flatten() {
            let block = self.copies.unwrap_or_else(|| self.free.remove(0));
            self.copies = self.put(block, page);
        }
        self.erase(victim);
        let oldest = self.closed[0];
        if self.erases[victim] < self.erases[oldest] + self.gap {
            return self.free.push(victim);
        }
        self.closed.remove(0);
        let mut open = true;
        for page in self.blocks[oldest].clone().into_iter().flatten() {
            open = self.put(victim, page).is_some();
        }
        if open {
            self.closed.push(victim);
        }
        self.erase(oldest);
        self.free.push(oldest);
    }

    fn spread(&self) -> u32 {
        self.erases.iter().max().unwrap() - self.erases.iter().min().unwrap()
    }
}
