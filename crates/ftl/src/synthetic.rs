//! Synthetic workloads on a bare flash model, run to their steady state.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use trimtab_core::profile::GcPolicy;
use trimtab_core::stats::{EraseSpread, is_steady};
use trimtab_core::{Bytes, Pages};

use crate::flash::Untimed;
use crate::geometry::{FtlConfig, GeometryError};
use crate::mapping::Ftl;
use crate::theory;
use crate::workload::{Host, Workload};

/// Erase blocks set aside for garbage collection.
const RESERVE_BLOCKS: u32 = 1;
/// How often garbage collection goes through all blocks, on average, before the first window.
const SETTLING_CYCLES: u64 = 10;
/// Windows that the measured writes are cut into.
const WINDOWS: usize = 20;
/// Pages written between two looks at whether to go on: whole batches of the host, whose draws it leaves the same.
const STRETCH: u64 = 1 << 20;
/// The most pages of a simulated drive; it takes 8 GiB of memory.
const MAX_PAGES: u64 = 1 << 30;
/// The most drive writes of a run: those of the largest drive are far from what a count can hold.
const MAX_DRIVE_WRITES: f64 = 1e6;
/// The least effective spare factor; below, a run is all copying and never ends.
const MIN_SPARE: f64 = 0.005;

/// The options of a simulation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SyntheticOptions {
    /// The host's workload.
    pub workload: Workload,
    /// Erase blocks in all, reserve and open ones among them.
    pub blocks: u32,
    /// Mapping pages in an erase block.
    pub pages_per_block: u32,
    /// The effective spare factor S = 1 - U / T; U follows from it.
    pub spare: f64,
    /// How garbage collection picks its victim.
    pub gc: GcPolicy,
    /// Host frontiers: 2 keep the hot writes of a hot and cold workload apart from the cold.
    pub streams: u32,
    /// How often the measured part writes as many pages as the drive has.
    pub drive_writes: f64,
    /// Seeds every draw.
    pub seed: u64,
}

/// Why a simulation can't be run.
#[derive(Debug, thiserror::Error)]
pub enum SyntheticError {
    /// The spare factor is out of range.
    #[error("a spare factor of {0} is not possible; it must be from {MIN_SPARE} to below 1")]
    Spare(f64),
    /// Nothing, or no number of drive writes.
    #[error("{0} drive writes are not possible; it must be a number above 0 and at most {MAX_DRIVE_WRITES}")]
    DriveWrites(f64),
    /// More than one frontier for writes that are all alike, or more than two.
    #[error("{streams} streams are not possible with {workload}; it must be 1, or 2 with hotcold:R/F")]
    Streams {
        /// The value that was given.
        streams: u32,
        /// The workload.
        workload: Workload,
    },
    /// No data block is left beside reserve and open frontiers.
    #[error("{blocks} erase blocks are too few; it must be {least} or more")]
    FewBlocks {
        /// The value that was given.
        blocks: u32,
        /// The least that works.
        least: u32,
    },
    /// More pages than the memory of a usual machine can model.
    #[error("{0} pages are more than the {MAX_PAGES} a simulation can have; take fewer blocks")]
    TooLarge(u64),
    /// A hot or cold part without a page.
    #[error("{workload} leaves no page in one part of {logical}; take more blocks")]
    EmptyPart {
        /// The workload.
        workload: Workload,
        /// The pages to part.
        logical: Pages,
    },
    /// The flash model refused.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
}

/// The results of a simulation. All but `host_pages_per_second` is model; counts are of the measured
/// part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SyntheticOutcome {
    /// The options of the simulation.
    #[serde(flatten)]
    pub options: SyntheticOptions,
    /// U: pages the host can address.
    pub logical_pages: u64,
    /// Erase blocks kept free for garbage collection.
    pub reserve_blocks: u32,
    /// The spare factor it really has, after rounding U to whole pages.
    pub effective_spare: f64,
    /// Steady-state write amplification: flash pages programmed / host pages written, over all
    /// windows; the transient after the fill lies before them.
    pub waf: f64,
    /// The prediction of the closed form, where there is one.
    pub predicted_waf: Option<f64>,
    /// Write amplification in each window.
    pub waf_windows: Vec<f64>,
    /// Whether the last five windows are steady by SNIA PTS.
    pub steady: bool,
    /// Pages the host wrote.
    pub host_pages: u64,
    /// Pages the host trimmed.
    pub trimmed_pages: u64,
    /// Pages programmed, host and copies together.
    pub flash_pages: u64,
    /// Erase-block erases.
    pub erases: u64,
    /// How all erases since the drive was new spread over its blocks.
    pub erase_spread: EraseSpread,
    /// How fast the model ran: host pages per second of wall time.
    pub host_pages_per_second: f64,
    /// Memory of the model in bytes per physical page.
    pub bytes_per_page: f64,
}

/// Writes `count` pages, unless `goes_on` returns false in between; returns whether all were written.
fn write_while(host: &mut Host, ftl: &mut Ftl, mut count: u64, goes_on: &dyn Fn() -> bool) -> bool {
    while count > 0 && goes_on() {
        host.write(ftl, count.min(STRETCH));
        count -= count.min(STRETCH);
    }
    count == 0
}

impl SyntheticOptions {
    /// Checks the options without running anything.
    ///
    /// # Errors
    /// The first option that can't be.
    pub fn check(&self) -> Result<(), SyntheticError> {
        self.config().map(drop)
    }

    /// The shape of the flash model.
    ///
    /// # Errors
    /// The first option that can't be.
    fn config(&self) -> Result<FtlConfig, SyntheticError> {
        if !(MIN_SPARE..1.0).contains(&self.spare) {
            return Err(SyntheticError::Spare(self.spare));
        }
        if !(self.drive_writes > 0.0 && self.drive_writes <= MAX_DRIVE_WRITES) {
            return Err(SyntheticError::DriveWrites(self.drive_writes));
        }
        let most = if matches!(self.workload, Workload::HotCold { .. }) { 2 } else { 1 };
        if !(1..=most).contains(&self.streams) {
            return Err(SyntheticError::Streams { streams: self.streams, workload: self.workload });
        }
        let pages = u64::from(self.blocks) * u64::from(self.pages_per_block);
        if pages > MAX_PAGES {
            return Err(SyntheticError::TooLarge(pages));
        }
        let mut config = FtlConfig {
            logical: Pages(1),
            map_entries: None,
            blocks: self.blocks,
            pages_per_block: self.pages_per_block,
            reserve_blocks: RESERVE_BLOCKS,
            streams: self.streams,
            policy: self.gc,
            seed: self.seed,
        };
        if self.blocks <= config.set_aside() {
            return Err(SyntheticError::FewBlocks { blocks: self.blocks, least: config.set_aside() + 1 });
        }
        config.logical = Pages((config.data_pages().0 as f64 * (1.0 - self.spare)).round() as u64);
        config.check()?;
        Ok(config)
    }

    /// The memory that the model takes at most: both maps and valid bits of each page, and what is kept of
    /// each block.
    pub fn memory(&self) -> Bytes {
        let of_block = Bytes(u64::from(self.pages_per_block) * 17 / 2 + 32);
        of_block * u64::from(self.blocks)
    }

    /// The closed form's prediction of the steady state, where there is one.
    fn predicted_waf(&self, spare: f64) -> Option<f64> {
        let spare = match self.workload {
            Workload::Uniform => spare,
            Workload::Trim { probability } => theory::spare_with_trims(spare, probability),
            Workload::Sequential => return Some(1.0),
            Workload::HotCold { writes, space } => {
                let has_form = self.gc == GcPolicy::Fifo && self.streams == 1;
                return has_form.then(|| theory::fifo_hot_cold(spare, writes, space));
            }
        };
        theory::write_amplification(self.gc, spare, self.pages_per_block)
    }

    /// Fills a new drive in order, lets the workload settle, and measures it in windows.
    ///
    /// # Errors
    /// The first option that can't be.
    pub fn run(&self) -> Result<SyntheticOutcome, SyntheticError> {
        Ok(self.run_while(&|| true)?.expect("nothing ended it"))
    }

    /// As [`run`](Self::run), but ends early, with nothing, once `goes_on` returns false.
    ///
    /// # Errors
    /// The first option that can't be.
    pub fn run_while(&self, goes_on: &dyn Fn() -> bool) -> Result<Option<SyntheticOutcome>, SyntheticError> {
        let config = self.config()?;
        let logical = config.logical.0 as u32;
        let mut ftl = Ftl::new(&config)?;
        let mut host = Host::new(self.workload, logical, self.streams, self.seed)
            .ok_or(SyntheticError::EmptyPart { workload: self.workload, logical: config.logical })?;
        ftl.write(0, 0, logical, &mut Untimed);
        let settling = (f64::from(logical) * self.workload.settling_drive_writes()) as u64;
        if !write_while(&mut host, &mut ftl, settling, goes_on) {
            return Ok(None);
        }
        while ftl.totals().programmed() < SETTLING_CYCLES * config.data_pages().0 {
            if !write_while(&mut host, &mut ftl, config.logical.0, goes_on) {
                return Ok(None);
            }
        }

        let (before, trimmed_before) = (ftl.totals(), host.trimmed);
        let started = Instant::now();
        let pages = ((f64::from(logical) * self.drive_writes).ceil() as u64).max(WINDOWS as u64);
        let mut rounds = vec![before];
        for window in 0..WINDOWS as u64 {
            let target = pages * (window + 1) / WINDOWS as u64;
            let left = before.host + target - ftl.totals().host;
            if !write_while(&mut host, &mut ftl, left, goes_on) {
                return Ok(None);
            }
            rounds.push(ftl.totals());
        }
        let wall = started.elapsed();

        let total = ftl.totals().since(&before);
        let waf_windows: Vec<_> = rounds.windows(2).map(|pair| pair[1].since(&pair[0]).waf()).collect();
        Ok(Some(SyntheticOutcome {
            options: self.clone(),
            logical_pages: config.logical.0,
            reserve_blocks: config.reserve_blocks,
            effective_spare: config.effective_spare(),
            waf: total.waf(),
            predicted_waf: self.predicted_waf(config.effective_spare()),
            steady: is_steady(&waf_windows),
            waf_windows,
            host_pages: total.host,
            trimmed_pages: host.trimmed - trimmed_before,
            flash_pages: total.programmed(),
            erases: total.erases,
            erase_spread: ftl.erase_spread(),
            host_pages_per_second: total.host as f64 / wall.as_secs_f64(),
            bytes_per_page: ftl.bytes_per_page(),
        }))
    }
}
