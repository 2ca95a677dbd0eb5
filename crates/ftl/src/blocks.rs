//! The erase blocks: which are free, which are closed, and which is cleaned next.
//!
//! Closed blocks hang in doubly linked lists by their number of valid pages (FIFO: all in one
//! list), each in the order of arrival. Losing pages moves a block down as many lists, so the greedy
//! victim is at the head of the lowest list that isn't empty, and no search, sort or heap is
//! needed on the write path. d-choices draws among all blocks and needs no lists.

use std::collections::VecDeque;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::profile::GcPolicy;

use crate::geometry::FtlConfig;
use crate::mapping::WearConfig;

/// Stands for the previous block of one that is not in a list of closed ones: it is free or open.
const UNLISTED: u32 = u32::MAX;

/// A member of a circular list; the list's own head is one too. Free blocks make a queue by `next`
/// alone.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Link {
    previous: u32,
    next: u32,
}

/// All erase blocks of a model.
#[derive(Debug, PartialEq)]
pub(crate) struct Blocks {
    policy: GcPolicy,
    rng: Xoshiro256PlusPlus,
    /// All blocks: the first `data` can be cleaned, the others are the cache's own.
    count: u32,
    data: u32,
    pages_per_block: u32,
    /// One a block, then one head for each number of valid pages from none to all.
    links: Vec<Link>,
    /// No list below this one has a member.
    lowest: u32,
    valid: Vec<u32>,
    erases: Vec<u32>,
    /// When each block last changed, in blocks closed so far; cost-benefit only.
    changed: Vec<u32>,
    closed: u32,
    /// When each block was last closed, counted in blocks closed so far; wear levelling only.
    closed_at: Vec<u32>,
    /// Blocks and when they were closed, the earliest first: all that are closed, and some that have been erased since.
    /// Wear levelling only.
    closings: VecDeque<(u32, u32)>,
    /// The fewest erases of a block that is not bad, and the first such block, when last looked for.
    least_erased: (u32, u32),
    /// The erases after which each block turns bad, 0 of one that has; empty where none does.
    lives: Vec<u32>,
    bad: u32,
    free: u32,
    first_free: u32,
    last_free: u32,
}

impl Blocks {
    /// The blocks of a model, and `cached` more that are only ever the cache's.
    pub(crate) fn new(config: &FtlConfig, cached: u32, wear: WearConfig) -> Self {
        let (data, count, lists) = (config.blocks, config.blocks + cached, config.pages_per_block + 1);
        let free = (1..=count).map(|next| Link { previous: UNLISTED, next });
        let closed = (count..count + lists).map(|head| Link { previous: head, next: head });
        let stamps = if config.policy == GcPolicy::CostBenefit { count as usize } else { 0 };
        Self {
            policy: config.policy,
            rng: Xoshiro256PlusPlus::seed_from_u64(config.seed),
            count,
            data,
            pages_per_block: config.pages_per_block,
            links: free.chain(closed).collect(),
            lowest: config.pages_per_block,
            valid: vec![0; count as usize],
            erases: vec![0; count as usize],
            changed: vec![0; stamps],
            closed: 0,
            closed_at: vec![0; if wear.levels() { count as usize } else { 0 }],
            closings: VecDeque::with_capacity(if wear.levels() { 2 * data as usize } else { 0 }),
            least_erased: (0, 0),
            lives: wear.lives(data, config.seed),
            bad: 0,
            free: data,
            first_free: 0,
            last_free: data - 1,
        }
    }

    /// The number of free blocks.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// The number of valid pages in each block.
    pub(crate) fn valid(&self) -> &[u32] {
        &self.valid
    }

    /// How often each block was erased.
    pub(crate) fn erases(&self) -> &[u32] {
        &self.erases
    }

    /// The memory it holds, in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&self.links[..])
            + size_of_val(&self.valid[..])
            + size_of_val(&self.erases[..])
            + size_of_val(&self.changed[..])
            + size_of_val(&self.closed_at[..])
            + self.closings.capacity() * size_of::<(u32, u32)>()
            + size_of_val(&self.lives[..])
    }

    /// Takes the free block that was erased first.
    ///
    /// # Panics
    /// If none is free; the reserve rules that out.
    pub(crate) fn open(&mut self) -> u32 {
        self.free = self.free.checked_sub(1).expect("the reserve keeps a block free");
        let block = self.first_free;
        self.first_free = self.links[block as usize].next;
        block
    }

    /// The free block that [`open`](Self::open) will take.
    pub(crate) fn next_open(&self) -> u32 {
        self.first_free
    }

    /// `count` valid pages were programmed into an open block.
    pub(crate) fn fill(&mut self, block: u32, count: u32) {
        self.valid[block as usize] += count;
    }

    /// An open block is full: from now on it can be cleaned.
    pub(crate) fn close(&mut self, block: u32) {
        self.closed = self.closed.wrapping_add(1);
        let valid = self.valid[block as usize];
        if let Some(changed) = self.changed.get_mut(block as usize) {
            *changed = self.closed;
        }
        if let Some(at) = self.closed_at.get_mut(block as usize) {
            *at = self.closed;
            if self.closings.len() >= 2 * self.data as usize {
                let (links, closed_at) = (&self.links, &self.closed_at);
                self.closings.retain(|closing| is_still_closed(links, closed_at, *closing));
            }
            self.closings.push_back((block, self.closed));
        }
        let list = match self.policy {
            GcPolicy::Fifo | GcPolicy::DChoices(_) => 0,
            GcPolicy::Greedy | GcPolicy::CostBenefit => valid,
        };
        self.link(block, list);
    }

    /// `count` pages of a block became invalid.
    #[inline]
    pub(crate) fn invalidate(&mut self, block: u32, count: u32) {
        let valid = self.valid[block as usize] - count;
        self.valid[block as usize] = valid;
        if matches!(self.policy, GcPolicy::Greedy | GcPolicy::CostBenefit)
            && self.links[block as usize].previous != UNLISTED
        {
            self.unlink(block);
            self.link(block, valid);
            if let Some(changed) = self.changed.get_mut(block as usize) {
                *changed = self.closed;
            }
        }
    }

    /// Whether the block to clean next is known to have no valid page.
    pub(crate) fn has_empty(&self) -> bool {
        let first = self.first(0);
        match self.policy {
            GcPolicy::Greedy => first.is_some(),
            GcPolicy::Fifo => first.is_some_and(|block| self.valid[block as usize] == 0),
            GcPolicy::DChoices(_) | GcPolicy::CostBenefit => false,
        }
    }

    /// Takes the block to clean next out of its list.
    ///
    /// # Panics
    /// If no block is closed; a geometry that was checked rules that out.
    pub(crate) fn victim(&mut self) -> u32 {
        let victim = match self.policy {
            GcPolicy::Greedy | GcPolicy::Fifo => self.head_of_lowest(),
            GcPolicy::DChoices(choices) => self.best_of(choices),
            GcPolicy::CostBenefit => self.best_benefit(),
        };
        self.unlist(victim);
        victim
    }

    /// Takes a closed block out of its list.
    pub(crate) fn unlist(&mut self, block: u32) {
        self.unlink(block);
        self.links[block as usize].previous = UNLISTED;
    }

    /// A block whose pages have been moved is erased, and neither free nor closed.
    pub(crate) fn wipe(&mut self, block: u32) {
        self.valid[block as usize] = 0;
        self.erases[block as usize] += 1;
    }

    /// A block whose pages have been moved is erased, and free unless it is the cache's own or turns bad.
    pub(crate) fn erase(&mut self, block: u32, turns_bad: bool) {
        self.wipe(block);
        if turns_bad {
            self.lives[block as usize] = 0;
            self.bad += 1;
            return;
        }
        if block >= self.data {
            return;
        }
        if self.free == 0 {
            self.first_free = block;
        } else {
            self.links[self.last_free as usize].next = block;
        }
        self.last_free = block;
        self.free += 1;
    }

    /// The number of blocks that have turned bad.
    pub(crate) fn bad(&self) -> u32 {
        self.bad
    }

    /// Whether a block reaches its life with the next erase.
    pub(crate) fn is_worn_out(&self, block: u32) -> bool {
        self.lives.get(block as usize).is_some_and(|life| self.erases[block as usize] + 1 >= *life)
    }

    /// The fewest erases of a block that is not bad.
    ///
    /// The first such block is kept. Blocks before it have more erases, so that a look at the blocks from it on finds
    /// the next one, as long as there is one.
    pub(crate) fn least_erases(&mut self) -> u32 {
        let (least, first) = self.least_erased;
        let is_good = |block: &u32| self.lives.get(*block as usize).is_none_or(|life| *life > 0);
        let mut good = (first..self.data).filter(is_good);
        let next = good.find(|block| self.erases[*block as usize] == least).map(|block| (least, block));
        let fewest =
            || (0..self.data).filter(is_good).map(|block| (self.erases[block as usize], block)).min();
        self.least_erased = next.or_else(fewest).unwrap_or_default();
        self.least_erased.0
    }

    /// The block that was closed longest ago of those that are closed.
    pub(crate) fn oldest_closed(&mut self) -> Option<u32> {
        while let Some(closing) = self.closings.front().copied() {
            if is_still_closed(&self.links, &self.closed_at, closing) {
                return Some(closing.0);
            }
            self.closings.pop_front();
        }
        None
    }

    fn head_of_lowest(&mut self) -> u32 {
        self.lowest = (self.lowest..=self.pages_per_block)
            .find(|list| self.first(*list).is_some())
            .expect("a checked geometry has closed blocks");
        self.links[(self.count + self.lowest) as usize].next
    }

    /// The block with the fewest valid pages among some drawn at random, with replacement.
    fn best_of(&mut self, choices: u32) -> u32 {
        (0..choices)
            .map(|_| {
                let block = self.any_closed();
                (self.valid[block as usize], block)
            })
            .min()
            .map(|(_, block)| block)
            .expect("a policy draws at least one block")
    }

    fn any_closed(&mut self) -> u32 {
        loop {
            let block = self.rng.random_range(0..self.data);
            if self.links[block as usize].previous != UNLISTED {
                return block;
            }
        }
    }

    /// The block with the largest (1 - u) x age / (1 + u), where u is its valid fraction and age
    /// the time since it last lost a page (Rosenblum and Ousterhout, TOCS 1992, for the ratio;
    /// Kawaguchi, Nishioka and Motoda, USENIX 1995, for the age). Lists are in order of arrival,
    /// so the head of each is its oldest, and only heads need a look.
    fn best_benefit(&self) -> u32 {
        let pages = f64::from(self.pages_per_block);
        (0..=self.pages_per_block)
            .filter_map(|list| self.first(list).map(|block| (f64::from(list) / pages, block)))
            .map(|(used, block)| {
                let age = self.closed.wrapping_sub(self.changed[block as usize]);
                ((1.0 - used) * (f64::from(age) + 1.0) / (1.0 + used), block)
            })
            .max_by(|(left, _), (right, _)| left.total_cmp(right))
            .map(|(_, block)| block)
            .expect("a checked geometry has closed blocks")
    }

    /// The block that came into a list first.
    fn first(&self, list: u32) -> Option<u32> {
        let next = self.links[(self.count + list) as usize].next;
        (next < self.count).then_some(next)
    }

    #[inline]
    fn unlink(&mut self, block: u32) {
        let Link { previous, next } = self.links[block as usize];
        self.links[previous as usize].next = next;
        self.links[next as usize].previous = previous;
    }

    /// Puts a block at the end of a list.
    #[inline]
    fn link(&mut self, block: u32, list: u32) {
        let head = self.count + list;
        let last = self.links[head as usize].previous;
        self.links[last as usize].next = block;
        self.links[block as usize] = Link { previous: last, next: head };
        self.links[head as usize].previous = block;
        self.lowest = self.lowest.min(list);
    }
}

/// Whether a block is closed and has been since then.
fn is_still_closed(links: &[Link], closed_at: &[u32], (block, at): (u32, u32)) -> bool {
    links[block as usize].previous != UNLISTED && closed_at[block as usize] == at
}
