//! Streams whose blocks stay apart when garbage collection moves them, beside published figures and a naive model.

use std::collections::VecDeque;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::Pages;
use trimtab_core::profile::GcPolicy;
use trimtab_ftl::synthetic::SyntheticOptions;
use trimtab_ftl::{Ftl, FtlConfig, Untimed, Workload};

const PAGES_PER_BLOCK: u32 = 64;

/// Nine tenths of the writes go to a tenth of the space.
fn hot_cold(blocks: u32, streams: u32) -> f64 {
    let options = SyntheticOptions {
        workload: Workload::HotCold { writes: 0.9, space: 0.1 },
        blocks,
        pages_per_block: PAGES_PER_BLOCK,
        spare: 0.10,
        gc: GcPolicy::Greedy,
        streams,
        drive_writes: 4.0,
        seed: 1,
    };
    let outcome = options.run().unwrap();
    assert!(outcome.steady, "{:?}", outcome.waf_windows);
    outcome.waf
}

/// One frontier for all that garbage collection moves gave 4.94.
#[test]
fn streams_of_their_own_reach_the_figures_of_other_simulators() {
    let (together, apart) = (hot_cold(8192, 1), hot_cold(8192, 2));
    assert!((4.54..=4.77).contains(&apart), "{apart}");
    assert!(together > 5.1, "{together}");
}

/// A block of the naive model: the logical pages that it holds, none where the data are elsewhere by now.
#[derive(Clone, Default)]
struct Block {
    stream: usize,
    pages: Vec<Option<u32>>,
}

impl Block {
    fn valid(&self) -> usize {
        self.pages.iter().flatten().count()
    }
}

/// A flash translation layer that looks through all blocks for its victim.
struct Naive {
    blocks: Vec<Block>,
    /// The block and page of each logical page.
    place: Vec<Option<(usize, usize)>>,
    free: VecDeque<usize>,
    /// Closed blocks, in the order in which they were closed.
    closed: Vec<usize>,
    /// Open blocks: two for the host's streams, two for what is moved of them.
    open: [Option<usize>; 4],
    reserve: usize,
    programmed: u64,
}

impl Naive {
    fn write(&mut self, frontier: usize, page: u32) {
        let block = self.open[frontier].unwrap_or_else(|| {
            let block = self.free.pop_front().unwrap();
            self.blocks[block] = Block { stream: frontier % 2, pages: Vec::new() };
            self.open[frontier] = Some(block);
            while frontier < 2 && self.free.len() <= self.reserve {
                self.clean();
            }
            block
        });
        if let Some((block, at)) = self.place[page as usize] {
            self.blocks[block].pages[at] = None;
        }
        self.place[page as usize] = Some((block, self.blocks[block].pages.len()));
        self.blocks[block].pages.push(Some(page));
        self.programmed += 1;
        if self.blocks[block].pages.len() == PAGES_PER_BLOCK as usize {
            self.closed.push(block);
            self.open[frontier] = None;
        }
    }

    fn clean(&mut self) {
        let valid = |at: &usize| self.blocks[self.closed[*at]].valid();
        let at = (0..self.closed.len()).min_by_key(valid).unwrap();
        let victim = self.closed.remove(at);
        let Block { stream, pages } = self.blocks[victim].clone();
        pages.into_iter().flatten().for_each(|page| self.write(2 + stream, page));
        self.free.push_back(victim);
    }
}

#[test]
fn two_streams_amplify_writes_as_a_naive_model_does() {
    const BLOCKS: u32 = 256;
    for (seed, hot_writes) in [(1, 0.9), (2, 0.6)] {
        let mut config = FtlConfig {
            logical: Pages(1),
            map_entries: None,
            blocks: BLOCKS,
            pages_per_block: PAGES_PER_BLOCK,
            reserve_blocks: 1,
            streams: 2,
            policy: GcPolicy::Greedy,
            seed: 1,
        };
        assert_eq!(config.set_aside(), 1 + 2 * 2);
        let logical = (config.data_pages().0 as f64 * 0.9) as u32;
        config.logical = Pages(logical.into());
        let mut ftl = Ftl::new(&config).unwrap();
        let mut naive = Naive {
            blocks: vec![Block::default(); BLOCKS as usize],
            place: vec![None; logical as usize],
            free: (0..BLOCKS as usize).collect(),
            closed: Vec::new(),
            open: [None; 4],
            reserve: 1,
            programmed: 0,
        };
        let hot = logical / 10;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let write = |ftl: &mut Ftl, naive: &mut Naive, page: u32| {
            let stream = u32::from(page >= hot);
            ftl.write(stream, page, 1, &mut Untimed);
            naive.write(stream as usize, page);
        };
        (0..logical).for_each(|page| write(&mut ftl, &mut naive, page));
        let mut random = |ftl: &mut Ftl, naive: &mut Naive| {
            for _ in 0..10 * logical {
                let page = if rng.random_bool(hot_writes) {
                    rng.random_range(0..hot)
                } else {
                    rng.random_range(hot..logical)
                };
                write(ftl, naive, page);
            }
        };
        random(&mut ftl, &mut naive);
        let (before, naive_before) = (ftl.totals(), naive.programmed);
        random(&mut ftl, &mut naive);
        ftl.assert_sound();
        let waf = ftl.totals().since(&before).waf();
        let expected = (naive.programmed - naive_before) as f64 / f64::from(10 * logical);
        assert!((waf / expected - 1.0).abs() < 0.01, "{waf} for {expected}");
    }
}
