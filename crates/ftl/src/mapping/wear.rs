//! Blocks that turn bad, and static wear levelling.
//!
//! Data that nobody writes over keep their block from being erased, so that the others wear out for it. With
//! levelling, a block that garbage collection has just erased takes the data of the block that was filled
//! longest ago, if that has this many fewer erases; the other is erased and free in its place. So the most worn
//! blocks rest below the data that change least (Chang, Hsieh and Kuo, "Endurance Enhancement of Flash-Memory
//! Storage Systems: An Efficient Static Wear Leveling Design", DAC 2007, for the aim; the pair is chosen as by
//! Chang, "On Efficient Wear Leveling for Large-Scale Flash-Memory Storage Systems", SAC 2007).

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::profile::Profile;

use super::{Frontier, Ftl};
use crate::flash::{Cause, Flash};

/// How blocks wear out.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct WearConfig {
    /// The erases that an average block lasts, and how far single ones lie from that at most; none where no
    /// block turns bad.
    lives: Option<(u32, f64)>,
    /// The erases by which two blocks differ when data are moved for it.
    level_at: Option<u32>,
}

impl WearConfig {
    /// The wear of a drive.
    pub(crate) fn of_drive(profile: &Profile) -> Self {
        let Some(wear) = &profile.wear else { return Self::default() };
        let lives = wear.endurance.as_ref().zip(wear.variation.as_ref());
        Self {
            lives: lives.map(|(endurance, variation)| (endurance.value, variation.value)),
            level_at: wear.level_at.as_ref().map(|count| count.value),
        }
    }

    /// The erases that each of `blocks` blocks lasts; none at all where no block turns bad.
    pub(crate) fn lives(self, blocks: u32, seed: u64) -> Vec<u32> {
        let Some((endurance, variation)) = self.lives else { return Vec::new() };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut life = || f64::from(endurance) * (1.0 + variation * (2.0 * rng.random::<f64>() - 1.0));
        (0..blocks).map(|_| (life().round() as u32).max(1)).collect()
    }

    /// Whether data are moved to level the wear.
    pub(crate) fn levels(self) -> bool {
        self.level_at.is_some()
    }

    /// Levelling with nothing erased yet.
    pub(super) fn levelling(self) -> Option<Levelling> {
        Some(Levelling { gap: self.level_at?, least: 0 })
    }
}

/// Static wear levelling.
pub(super) struct Levelling {
    /// The erases by which two blocks differ when data are moved for it.
    gap: u32,
    /// No block has fewer erases.
    least: u32,
}

impl Levelling {
    /// Whether data may be moved for a block that was erased once.
    pub(super) fn levels_first_erases(&self) -> bool {
        self.gap <= 1
    }

    /// No block has fewer erases.
    #[cfg(test)]
    pub(super) fn least(&self) -> u32 {
        self.least
    }
}

impl Ftl {
    /// The blocks that have turned bad.
    pub fn bad_blocks(&self) -> u32 {
        self.blocks.bad()
    }

    /// Erases a block that garbage collection has emptied, and levels the wear with it where that is due.
    pub(super) fn recycle(&mut self, block: u32, flash: &mut impl Flash) {
        let Some(resting) = self.resting_for(block) else { return self.erase(block, flash) };
        self.wipe(block, flash);
        self.blocks.wipe(block);
        self.move_into(block, resting, flash);
        self.erase(resting, flash);
    }

    /// The block whose data this one takes when it is erased, if that levels the wear.
    fn resting_for(&mut self, block: u32) -> Option<u32> {
        let levelling = self.levelling.as_mut()?;
        let erases = self.blocks.erases()[block as usize] + 1;
        if erases < levelling.least + levelling.gap {
            return None;
        }
        levelling.least = self.blocks.least_erases();
        if erases < levelling.least + levelling.gap {
            return None;
        }
        let oldest = self.blocks.oldest_closed()?;
        (erases >= self.blocks.erases()[oldest as usize] + levelling.gap).then_some(oldest)
    }

    /// Moves what is valid in `from` to the erased block `to`. The rest of that stays empty.
    fn move_into(&mut self, to: u32, from: u32, flash: &mut impl Flash) {
        self.blocks.unlist(from);
        if let Some(stream) = self.streams.get(from as usize).copied() {
            self.streams[to as usize] = stream;
        }
        let frontier = self.frontiers.len() - 1;
        let (next, pages) = (self.layout.first(to), self.config.pages_per_block);
        self.frontiers[frontier] = Frontier { next, end: next + pages };
        let moving = self.collect_valid(from, flash);
        self.totals.copied += moving.len() as u64;
        self.append::<true>(frontier, Cause::Copy, moving.iter().copied(), flash);
        self.moving = moving;
        let Frontier { next, end } = std::mem::take(&mut self.frontiers[frontier]);
        self.unfilled += u64::from(end - next);
        self.blocks.close(to);
    }

    /// Whether this block turns bad with its next erase: it has reached its life, the reserve is kept without
    /// it, and the data fit into the others. A drive without spare blocks keeps using them.
    ///
    /// The host opens a block first and reclaims the reserve after that. So in idle work, which no reclaim follows, one
    /// more erased block is kept.
    pub(super) fn turns_bad(&self, block: u32) -> bool {
        let config = &self.config;
        let kept = config.reserve_blocks + u32::from(!self.is_reclaiming);
        if !self.blocks.is_worn_out(block) || self.blocks.free() < kept {
            return false;
        }
        let left = config.blocks - self.blocks.bad() - config.set_aside();
        u64::from(left.saturating_sub(1)) * u64::from(config.pages_per_block) > config.used().0
    }
}
