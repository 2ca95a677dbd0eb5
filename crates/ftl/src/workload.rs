//! Synthetic workloads: what a host does to a flash model.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use trimtab_core::Pages;

use crate::flash::Untimed;
use crate::mapping::Ftl;

/// Pages written at a time, so that their cache misses overlap.
const BATCH: usize = 256;

/// The host's workload.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Workload {
    /// Writes pages drawn uniformly from all.
    Uniform,
    /// Sends a fraction of the writes to a fraction of the space, each uniformly.
    HotCold {
        /// The fraction of writes that are hot.
        writes: f64,
        /// The fraction of pages that are hot.
        space: f64,
    },
    /// Trims a page drawn from those in use with this probability, else writes one drawn from all.
    Trim {
        /// The fraction of requests that are trims.
        probability: f64,
    },
    /// Writes all pages in order, over and over.
    Sequential,
}

/// A workload name that isn't one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no workload {name:?}; there are uniform, sequential, hotcold:R/F (a fraction R of the \
     writes to a fraction F of the space, both between 0 and 1) and trim:Q (a fraction Q of the \
     requests are trims, at least 0 and below 0.5)"
)]
pub struct UnknownWorkload {
    /// The value that was given.
    pub name: String,
}

impl FromStr for Workload {
    type Err = UnknownWorkload;
    fn from_str(name: &str) -> Result<Self, UnknownWorkload> {
        let fraction = |text: &str| text.parse().ok().filter(|value: &f64| *value > 0.0 && *value < 1.0);
        let hot_cold = |text: &str| {
            let (writes, space) = text.split_once('/')?;
            Some(Self::HotCold { writes: fraction(writes)?, space: fraction(space)? })
        };
        let trim = |text: &str| {
            let probability = text.parse().ok().filter(|value| (0.0..0.5).contains(value))?;
            Some(Self::Trim { probability })
        };
        match name.split_once(':') {
            None if name == "uniform" => Some(Self::Uniform),
            None if name == "sequential" => Some(Self::Sequential),
            Some(("hotcold", fractions)) => hot_cold(fractions),
            Some(("trim", probability)) => trim(probability),
            _ => None,
        }
        .ok_or_else(|| UnknownWorkload { name: name.to_owned() })
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Uniform => f.pad("uniform"),
            Self::HotCold { writes, space } => f.pad(&format!("hotcold:{writes}/{space}")),
            Self::Trim { probability } => f.pad(&format!("trim:{probability}")),
            Self::Sequential => f.pad("sequential"),
        }
    }
}

impl From<Workload> for String {
    fn from(workload: Workload) -> Self {
        workload.to_string()
    }
}

impl TryFrom<String> for Workload {
    type Error = UnknownWorkload;
    fn try_from(name: String) -> Result<Self, UnknownWorkload> {
        name.parse()
    }
}

impl Workload {
    /// Drive writes until all but e^-5 of what was there at first has gone: every page is
    /// overwritten five times on average, the rarest written ones too, within reason.
    pub(crate) fn settling_drive_writes(self) -> f64 {
        const OVERWRITES: f64 = 5.0;
        const MOST: f64 = 50.0;
        match self {
            Self::Uniform | Self::Trim { .. } | Self::Sequential => OVERWRITES,
            Self::HotCold { writes, space } => {
                let rarest = (writes / space).min((1.0 - writes) / (1.0 - space));
                (OVERWRITES / rarest).min(MOST)
            }
        }
    }
}

/// A host that carries a workload out.
pub(crate) struct Host {
    workload: Workload,
    pages: u32,
    /// How many pages from 0 on are hot.
    hot: u32,
    /// The frontier of cold writes; hot ones go to 0.
    cold_stream: u32,
    rng: Xoshiro256PlusPlus,
    /// The next page of a sequential workload.
    next: u32,
    batch: Vec<u32>,
    /// Pages trimmed so far.
    pub(crate) trimmed: u64,
}

impl Host {
    /// A host that writes to `pages` pages, its cold ones to the last of `streams`. None if a part
    /// of them would be empty.
    pub(crate) fn new(workload: Workload, pages: u32, streams: u32, seed: u64) -> Option<Self> {
        let hot = match workload {
            Workload::HotCold { space, .. } => (f64::from(pages) * space).round() as u32,
            _ => pages,
        };
        let parted = matches!(workload, Workload::HotCold { .. });
        if parted && !(1..pages).contains(&hot) {
            return None;
        }
        Some(Self {
            workload,
            pages,
            hot,
            cold_stream: streams - 1,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            next: 0,
            batch: Vec::with_capacity(BATCH),
            trimmed: 0,
        })
    }

    /// Goes on until `count` more pages are written.
    pub(crate) fn write(&mut self, ftl: &mut Ftl, mut count: u64) {
        while count > 0 {
            let batch = count.min(BATCH as u64) as usize;
            count -= batch as u64;
            match self.workload {
                Workload::Uniform => self.write_random(ftl, 0, 0..self.pages, batch),
                Workload::HotCold { writes, .. } => {
                    let hot = (0..batch).filter(|_| self.rng.random_bool(writes)).count();
                    self.write_random(ftl, 0, 0..self.hot, hot);
                    self.write_random(ftl, self.cold_stream, self.hot..self.pages, batch - hot);
                }
                Workload::Trim { probability } => self.write_and_trim(ftl, probability, batch),
                Workload::Sequential => self.write_on(ftl, batch as u32),
            }
        }
    }

    fn write_random(&mut self, ftl: &mut Ftl, stream: u32, among: Range<u32>, count: usize) {
        self.batch.clear();
        self.batch.extend((0..count).map(|_| self.rng.random_range(among.clone())));
        ftl.write_each(stream, &self.batch, &mut Untimed);
    }

    fn write_and_trim(&mut self, ftl: &mut Ftl, probability: f64, count: usize) {
        let mut left = count;
        while left > 0 {
            let writes = (0..left).take_while(|_| !self.rng.random_bool(probability)).count();
            self.write_random(ftl, 0, 0..self.pages, writes);
            left -= writes;
            if left > 0 {
                self.trim(ftl);
            }
        }
    }

    /// Trims a page drawn from those in use, if there is one in use.
    fn trim(&mut self, ftl: &mut Ftl) {
        if ftl.mapped() == Pages::ZERO {
            return;
        }
        let page = loop {
            let page = self.rng.random_range(0..self.pages);
            if ftl.is_mapped(Pages(page.into())) {
                break page;
            }
        };
        ftl.discard(page, 1);
        self.trimmed += 1;
    }

    fn write_on(&mut self, ftl: &mut Ftl, mut count: u32) {
        while count > 0 {
            let run = count.min(self.pages - self.next);
            ftl.write(0, self.next, run, &mut Untimed);
            self.next = (self.next + run) % self.pages;
            count -= run;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in ["uniform", "sequential", "hotcold:0.9/0.1", "trim:0.25"] {
            assert_eq!(name.parse::<Workload>().unwrap().to_string(), name);
        }
        assert_eq!("hotcold:.9/.1".parse(), Ok(Workload::HotCold { writes: 0.9, space: 0.1 }));
        for name in
            ["", "random", "uniform:1", "hotcold", "hotcold:.9", "hotcold:1/.1", "trim:.5", "trim:NaN"]
        {
            assert!(name.parse::<Workload>().is_err(), "{name}");
        }
    }
}
