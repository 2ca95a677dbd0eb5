//! How many blocks and pages a flash model has, and whether it can work with them.

use trimtab_core::profile::{GcPolicy, Profile};
use trimtab_core::{Bytes, Pages};

/// The shape and the policy of an [`Ftl`](crate::Ftl).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FtlConfig {
    /// Pages the host can address.
    pub logical: Pages,
    /// The logical pages whose places a page of the map holds, where the map lies on the flash beside the
    /// data: 1 or more. None where memory holds all of it.
    pub map_entries: Option<u32>,
    /// Erase blocks, all of them: data, reserve and open ones.
    pub blocks: u32,
    /// Mapping pages in an erase block.
    pub pages_per_block: u32,
    /// Erase blocks kept free for garbage collection to write into; 1 or more.
    pub reserve_blocks: u32,
    /// Host frontiers: writes of different streams go to different erase blocks, and stay apart when garbage
    /// collection moves them; 1 or more.
    pub streams: u32,
    /// How garbage collection picks its victim.
    pub policy: GcPolicy,
    /// Seeds the draws of `d-choices`.
    pub seed: u64,
}

/// The fewest erase blocks for data that a drive can have. They are at most a tenth smaller than the profile's.
const LEAST_BLOCKS: u64 = 10;

/// Why a flash model of this shape can't work.
#[derive(Debug, thiserror::Error)]
pub enum GeometryError {
    /// A count that must be 1 or more is 0.
    #[error("{0} must be 1 or more")]
    Zero(&'static str),
    /// The drive's size isn't a whole number of mapping pages.
    #[error("a size of {size} is not a whole number of {page} mapping pages")]
    PartialPage {
        /// The size asked for.
        size: Bytes,
        /// The mapping page.
        page: Bytes,
    },
    /// So few erase blocks that garbage collection has no choice.
    #[error(
        "a drive of {size} has only {blocks} erase blocks of {erase_block}, where {LEAST_BLOCKS} are the least; take a larger \
         size"
    )]
    FewBlocks {
        /// The size asked for.
        size: Bytes,
        /// The blocks that data can be in.
        blocks: u64,
        /// The size of each.
        erase_block: Bytes,
    },
    /// More pages than the model can number.
    #[error(
        "{blocks} erase blocks of {pages_per_block} pages are more than the {} pages a model can have",
        u32::MAX
    )]
    TooLarge {
        /// Erase blocks asked for.
        blocks: u64,
        /// Pages in each.
        pages_per_block: u32,
    },
    /// The system has no memory for the mapping.
    #[error("there is no memory for the mapping; take a smaller drive")]
    Memory(#[from] std::io::Error),
    /// The flash without reserve and frontiers can't hold the logical pages and a page to spare.
    #[error(
        "a drive like this can't work: of its {blocks} erase blocks of {pages_per_block} pages, {set_aside} are \
         set aside (reserve, and blocks being written), which leaves {} pages for {logical} and one to spare; take \
         more over-provisioning or fewer bad blocks",
        u64::from(blocks.saturating_sub(*set_aside)) * u64::from(*pages_per_block)
    )]
    NoSpare {
        /// Logical pages asked for, and those of the map.
        logical: Pages,
        /// Erase blocks in all.
        blocks: u32,
        /// Pages in each.
        pages_per_block: u32,
        /// Reserve blocks and open frontiers.
        set_aside: u32,
    },
}

impl FtlConfig {
    /// The flash of a drive with `size` bytes for the host. Its data pages are the over-provisioned size without
    /// the blocks that are bad from the start; reserve and open blocks come on top. So the effective spare is the
    /// same at every size, up to one page a block: over-provisioning op without bad blocks or a map on the flash
    /// gives op / (1 + op).
    ///
    /// The data pages are dealt evenly to as few blocks as hold them. So the blocks of a drive with n of them are
    /// smaller than the profile's, by a part in n at most.
    ///
    /// # Errors
    /// If the size isn't whole pages, makes less than ten blocks, or such a drive can't work.
    pub fn of_drive(profile: &Profile, size: Bytes) -> Result<Self, GeometryError> {
        let geometry = &profile.geometry;
        let (page, erase_block) = (geometry.mapping_page.value, geometry.erase_block.value);
        if !size.0.is_multiple_of(page.0) {
            return Err(GeometryError::PartialPage { size, page });
        }
        let bad =
            profile.wear.as_ref().and_then(|wear| wear.bad_blocks.as_ref()).map_or(0.0, |bad| bad.value);
        let logical = Pages(size.0 / page.0);
        let physical = logical.0 as f64 * (1.0 + geometry.over_provisioning.value);
        let data = (physical * (1.0 - bad)).round() as u64;
        let blocks = data.div_ceil(Self::pages_of(profile).into());
        if blocks < LEAST_BLOCKS {
            return Err(GeometryError::FewBlocks { size, blocks, erase_block });
        }
        let pages_per_block = ((data + blocks / 2) / blocks) as u32;
        let mut config = Self {
            logical,
            map_entries: profile.map_cache.as_ref().map(|cache| cache.entries(page)),
            blocks: 0,
            pages_per_block,
            reserve_blocks: geometry.reserve_blocks.value,
            streams: 1,
            policy: profile.gc.policy.value,
            seed: 0,
        };
        let blocks = blocks + u64::from(config.set_aside());
        config.blocks = blocks.try_into().map_err(|_| GeometryError::TooLarge { blocks, pages_per_block })?;
        config.check().map(|()| config)
    }

    /// The pages of an erase block as the profile states it.
    pub(crate) fn pages_of(profile: &Profile) -> u32 {
        (profile.geometry.erase_block.value.0 / profile.geometry.mapping_page.value.0) as u32
    }

    /// The frontiers that garbage collection makes room for: one a stream, and one for the map if it lies on
    /// the flash.
    pub(crate) fn outer_frontiers(&self) -> u32 {
        self.streams.saturating_add(u32::from(self.map_entries.is_some()))
    }

    /// Reserve blocks and open frontiers: two a stream, and two for the map if it lies on the flash; one of each
    /// is for what garbage collection moves.
    pub fn set_aside(&self) -> u32 {
        self.reserve_blocks.saturating_add(self.outer_frontiers().saturating_mul(2))
    }

    /// The pages of the map that lie on the flash.
    pub(crate) fn map_pages(&self) -> Pages {
        self.map_entries.map_or(Pages::ZERO, |entries| Pages(self.logical.0.div_ceil(entries.into())))
    }

    /// U: the pages that are valid once all is written, those of the map among them.
    pub(crate) fn used(&self) -> Pages {
        self.logical + self.map_pages()
    }

    /// The erase blocks left for data beside reserve blocks and open frontiers.
    pub fn data_blocks(&self) -> u32 {
        self.blocks.saturating_sub(self.set_aside())
    }

    /// T: the pages of [`data_blocks`](Self::data_blocks).
    pub fn data_pages(&self) -> Pages {
        Pages(u64::from(self.data_blocks()) * u64::from(self.pages_per_block))
    }

    /// The effective spare factor S = 1 - U / T, with U logical pages and pages of the map, and T of
    /// [`data_pages`](Self::data_pages).
    pub fn effective_spare(&self) -> f64 {
        1.0 - self.used().0 as f64 / self.data_pages().0 as f64
    }

    /// The bits of a page's address that number it in its block: whole words of valid bits.
    pub(crate) fn block_shift(&self) -> u32 {
        self.pages_per_block.next_power_of_two().ilog2().max(6)
    }

    /// Whether a model of this shape can work.
    ///
    /// # Errors
    /// The reason why it can't.
    pub fn check(&self) -> Result<(), GeometryError> {
        let counts = [
            ("the number of pages per block", self.pages_per_block.into()),
            ("the number of logical pages", self.logical.0),
            ("the number of reserve blocks", self.reserve_blocks.into()),
            ("the number of streams", self.streams.into()),
            ("the number of entries in a page of the map", self.map_entries.unwrap_or(1).into()),
        ];
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(GeometryError::Zero(name));
        }
        let (blocks, pages_per_block) = (self.blocks, self.pages_per_block);
        self.check_blocks(blocks.into())?;
        if self.used() >= self.data_pages() {
            let (logical, set_aside) = (self.used(), self.set_aside());
            return Err(GeometryError::NoSpare { logical, blocks, pages_per_block, set_aside });
        }
        Ok(())
    }

    /// Whether the pages of this many blocks can be numbered.
    pub(crate) fn check_blocks(&self, blocks: u64) -> Result<(), GeometryError> {
        let pages_per_block = self.pages_per_block;
        let addresses = u128::from(pages_per_block.next_power_of_two().max(64)) * u128::from(blocks);
        if addresses > u128::from(u32::MAX) {
            return Err(GeometryError::TooLarge { blocks, pages_per_block });
        }
        Ok(())
    }
}
