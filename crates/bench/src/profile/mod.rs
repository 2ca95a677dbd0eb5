//! The drive profile that a bench measured.
//!
//! Values that a bench can see from outside are taken from it; others, such as the number of dies, are
//! typical of an SSD and says so. The two are fitted to each other: the flash programs at the rate of
//! the fill, and the over-provisioning is the one that slows random writes as measured.

mod background;
mod text;

use trimtab_core::document::background::LazyFit;
use trimtab_core::document::bench::{BenchDocument, DegradationStep, Estimate, Fit};
use trimtab_core::profile::{
    Discard, DiscardedReads, Gc, GcPolicy, Geometry, LARGEST_GRANULARITY, Profile, Sourced, Timing,
};
use trimtab_core::stats::median;
use trimtab_core::{Bytes, Nanos, Rate, SECTOR};
use trimtab_ftl::theory::greedy_spare;

use super::fit::curve;
use background::{fitted, programming_s};

/// Why a bench gives no profile.
#[derive(Debug, thiserror::Error)]
pub enum MeasuredProfileError {
    /// A profile without the cost of discards would not be one of this drive.
    #[error(
        "what discards cost was not measured: the latency sweep has fewer than three sizes; \
         let the bench run on, or give it more time or sizes"
    )]
    NoCost,
}

const PROGRAM_UNIT: Bytes = Bytes(16 << 10);
const ERASE_BLOCK: Bytes = Bytes(2 << 20);
const DIES: u32 = 8;
/// Erasing a block, where nothing tells.
const ERASE: Nanos = Nanos(3_000_000);
/// The largest mapping page: what nearly all drives have.
const PAGE: Bytes = Bytes(4 << 10);
/// Limits above this are not of this world, and a file can't hold them exactly.
const LARGEST: Bytes = Bytes(1 << 40);
/// The over-provisioning where nothing tells: the difference of a binary and a decimal GB.
const SPARE: f64 = 0.07;
/// The spare area that a slow-down can stand for; below, a small emulated drive can't work.
const SPARES: std::ops::RangeInclusive<f64> = 0.02..=1.0;
/// Random writes that slow by less are not slowed by garbage collection.
const LEAST_SLOWDOWN: f64 = 1.1;

/// The part of the drive that random writes must have filled before they show its spare area.
const MOST_OF_IT: f64 = 0.95;

/// The source of what reads show of the work after a discard.
const AFTER_DISCARDS: &str = "how long and how much reads are slowed after one large discard";

/// The shares that a profile takes.
const SHARES: std::ops::RangeInclusive<f64> = 0.001..=0.99;

/// The profile of the drive that `document` measured, and its text as a file.
///
/// # Errors
/// [`MeasuredProfileError::NoCost`] where the document has no fit.
pub fn profile(document: &BenchDocument) -> Result<(Profile, String), MeasuredProfileError> {
    let fit = document.fit.as_ref().ok_or(MeasuredProfileError::NoCost)?;
    let device = &document.device;
    let run = Run { document, fit };
    let lazy = run.background().and_then(|background| background.lazy.as_ref());
    let granularity = run.honoured();
    let page = page_of(granularity.value);
    let geometry = run.geometry(page);
    let spare = geometry.over_provisioning.value;
    let profile = Profile {
        name: name_of(&device.model),
        model: device.model.clone(),
        notes: format!(
            "Measured by trimtab {} on {}: {} of {}, firmware {:?}.\n\
             What says \"not measured\" can't be seen from outside or was left out of that run. It is\n\
             typical of an SSD and there so that the flash model can run.",
            document.version,
            document.started,
            document.plan.range.len(),
            device.size,
            device.firmware
        ),
        interface: None,
        geometry,
        timing: run.timing(),
        gc: Gc { policy: unmeasured(GcPolicy::Greedy, "firmware is closed") },
        idle: run.idle(spare),
        slc: run.slc(spare),
        map_cache: None,
        suspend: None,
        aging: None,
        discard: run.discard(granularity, page, lazy),
        wear: None,
    };
    let text = text::text(&profile);
    Ok((profile, text))
}

/// The run that a profile comes from.
struct Run<'a> {
    document: &'a BenchDocument,
    fit: &'a Fit,
}

impl Run<'_> {
    fn measured<T>(&self, value: T, how: &str) -> Sourced<T> {
        let BenchDocument { device, started, .. } = self.document;
        let drive = format!("{} {}", device.model, device.serial);
        Sourced { value, source: format!("measured: trimtab bench of {}, {started}: {how}", drive.trim()) }
    }

    fn geometry(&self, page: Bytes) -> Geometry {
        Geometry {
            capacity: Some(self.capacity(page)),
            mapping_page: unmeasured(page, "4 KiB, or what the honoured granularity is a multiple of"),
            program_unit: unmeasured(PROGRAM_UNIT, "two planes of 8 KiB pages"),
            erase_block: unmeasured(ERASE_BLOCK, "small, so that a small emulated drive has enough of them"),
            over_provisioning: self.over_provisioning(page),
            reserve_blocks: unmeasured(4, "the least that keeps garbage collection fed"),
            channels: unmeasured(DIES, "8 channels"),
            dies_per_channel: unmeasured(1, "one die a channel, with `program` fitted to the fill"),
        }
    }

    /// The drive's size in whole pages.
    fn capacity(&self, page: Bytes) -> Sourced<Bytes> {
        let size = self.document.device.size;
        self.measured(Bytes(size.0 / page.0 * page.0), "the size that it reports")
    }

    fn timing(&self) -> Timing {
        let fill = self.link_rate();
        let transfers = |at_least: u64| Rate(at_least.max(fill.value.0));
        let (program_s, program_source) = match self.cache() {
            Some(cache) => {
                (programming_s(cache.slow_mib_s), fitted("when the cache is full", cache.slow_mib_s))
            }
            None => (
                programming_s(fill.value.0 as f64 / Bytes::MIB.0 as f64),
                format!("fitted: {DIES} dies that program 16 KiB at a time fill at `link_write_rate`"),
            ),
        };
        let channel_rate = unmeasured(transfers(400_000_000), "fast enough not to be what limits");
        let link_read_rate =
            unmeasured(transfers(500_000_000), "SATA 6 Gb/s, or the write rate if that is more");
        let (read, command_overhead) = self.read(&[channel_rate.value, link_read_rate.value]);
        let queue = self.document.device.queue_requests;
        Timing {
            read,
            program: Sourced { value: nanos(program_s), source: program_source },
            erase: self.erase(),
            channel_rate,
            link_read_rate,
            link_write_rate: fill,
            command_overhead,
            flush: unmeasured(Nanos(500_000), "SATA and NVMe drives with a volatile cache"),
            write_buffer: unmeasured(Bytes(1 << 20), "part of its DRAM"),
            queue_depth: self.measured(
                queue.clamp(1, 64),
                &format!("its queue holds {queue} requests; no more than 64 are kept in flight"),
            ),
        }
    }

    fn discard(&self, honoured_granularity: Sourced<Bytes>, page: Bytes, lazy: Option<&LazyFit>) -> Discard {
        let BenchDocument { device, verify, .. } = self.document;
        let estimated = |Estimate { value, low, high }: Estimate, unit_s: f64| {
            let [value, low, high] = [value, low, high].map(|figure| nanos(figure * unit_s));
            let sizes = curve(self.document).len();
            let how = format!("fitted to the p50 of n={sizes} sizes, 95 % interval {low} to {high}");
            self.measured(value, &how)
        };
        let limit = [device.discard_max_hardware, device.discard_max]
            .into_iter()
            .find(|limit| *limit >= page)
            .unwrap_or(LARGEST)
            .min(LARGEST);
        let command_limit = Bytes(limit.0 / page.0 * page.0);
        let ignored = verify.as_ref().and_then(|verify| verify.ignored_every).filter(|every| *every > 0);
        Discard {
            command: estimated(self.fit.command_us, 1e-6),
            range: unmeasured(Nanos::ZERO, "it is in `command` and `per_gib`"),
            per_gib: match (lazy, &self.fit.per_mapped_gib_ms) {
                (Some(lazy), _) => self.measured(nanos(lazy.per_gib_ms / 1e3), AFTER_DISCARDS),
                (None, None) => estimated(self.fit.per_gib_ms, 1e-3),
                (None, Some(mapped)) => {
                    let bare = nanos((self.fit.per_gib_ms.value - mapped.value).max(0.0) / 1e3);
                    self.measured(bare, "fitted to discards of no data")
                }
            },
            range_limit: unmeasured(command_limit, "a command names one range"),
            command_limit: self.measured(command_limit, "discard_max_hw_bytes, in whole mapping pages"),
            advertised_granularity: self.measured(sectors(device.discard_granularity), "discard_granularity"),
            honoured_granularity,
            queued: match self.fit.queued {
                Some(queued) => {
                    self.measured(queued, "a discard behind reads in flight, and reads behind it")
                }
                None => unmeasured(false, "the worse of the two"),
            },
            journal_per_range: unmeasured(Bytes(16), "one mapping-journal entry"),
            reads: match self.fit.reads {
                Some(reads) => self.measured(reads, "discarded areas read back"),
                None => unmeasured(DiscardedReads::Zeros, "present-day drives"),
            },
            ignored_every: ignored.map(|every| self.measured(every, "discarded areas that kept their data")),
            per_mapped_gib: match (lazy, self.fit.per_mapped_gib_ms) {
                (Some(lazy), _) if lazy.per_mapped_gib_ms > 0.0 => {
                    Some(self.measured(nanos(lazy.per_mapped_gib_ms / 1e3), AFTER_DISCARDS))
                }
                (Some(_), _) => None,
                (None, mapped) => mapped.map(|mapped| estimated(mapped, 1e-3)),
            },
            lazy_share: lazy.map(|lazy| {
                let share = significant(lazy.share).clamp(*SHARES.start(), *SHARES.end());
                self.measured(share, AFTER_DISCARDS)
            }),
            busy_share: self.busy_share(lazy),
            queue_depth: self.fit.at_once.map(|depth| {
                self.measured(depth, "how many times as many small discards it does with more in flight")
            }),
            ranges_per_command: None,
        }
    }

    /// The granularity that it honours, as far as is known.
    fn honoured(&self) -> Sourced<Bytes> {
        match self.fit.honoured_granularity {
            Some(honoured) => self.measured(sectors(honoured), "what went of discards of growing size"),
            None => unmeasured(sectors(self.document.device.discard_granularity), "what it advertises"),
        }
    }

    /// The rate of the link: the rate of writes into the cache where there is one, or else of the fill.
    fn link_rate(&self) -> Sourced<Rate> {
        match self.cache() {
            Some(cache) => {
                let rate = Rate((significant(cache.fast_mib_s * Bytes::MIB.0 as f64) as u64).max(1));
                self.measured(rate, "sequential writes into the cache; the link may be faster")
            }
            None => self.fill(),
        }
    }

    /// The rate of the first fill.
    fn fill(&self) -> Sourced<Rate> {
        match self.rate(DegradationStep::Fill) {
            Some((rate, rounds)) => {
                let rate = Rate((significant(rate * Bytes::MIB.0 as f64) as u64).max(1));
                self.measured(
                    rate,
                    &format!("sequential fill after a whole discard, p50 of n={rounds} rounds"),
                )
            }
            None => unmeasured(Rate(500_000_000), "SATA 6 Gb/s"),
        }
    }

    /// Reading a page, which is then transferred at each of `rates`, and the controller's part of it.
    fn read(&self, rates: &[Rate]) -> (Sourced<Nanos>, Sourced<Nanos>) {
        let alone = self.document.interference.iter().find(|cell| cell.discard_size.is_none());
        let Some(reads) = alone.map(|cell| &cell.reads).filter(|reads| reads.n > 0) else {
            let overhead = unmeasured(Nanos(15_000), "SATA drives");
            return (unmeasured(Nanos(50_000), "tR 50 us"), overhead);
        };
        let seconds = reads.p50_us / 1e6;
        let overhead = nanos(overhead_s(seconds));
        let transfers: Nanos = rates.iter().map(|rate| rate.time_for(PAGE)).sum();
        let how = format!(
            "p50 of n={} random 4 KiB reads without discards, {} us, less `command_overhead` and the transfers",
            reads.n, reads.p50_us
        );
        let read = self.measured(nanos(seconds - overhead.seconds() - transfers.seconds()), &how);
        (read, unmeasured(overhead, "SATA drives, and a quarter of a read at most"))
    }

    /// The spare area with which garbage collection slows random writes as they were slowed.
    fn over_provisioning(&self, page: Bytes) -> Sourced<f64> {
        // Writes into a cache are fast on a fresh drive only: those past it are slowed by garbage collection alone.
        let fresh = match self.cache() {
            Some(cache) => Some((cache.slow_mib_s, "sequential ones past the full cache")),
            None => self.rate(DegradationStep::Fresh).map(|(rate, _)| (rate, "fresh ones")),
        };
        let (Some((steady, _)), Some((fresh, beside))) = (self.rate(DegradationStep::Overwrite), fresh)
        else {
            return unmeasured(SPARE, "the difference of a binary and a decimal GB");
        };
        if self.document.plan.range.len().gib() < MOST_OF_IT * self.document.device.size.gib() {
            return unmeasured(
                SPARE,
                "a part of the drive was written, and the rest of it served as spare area",
            );
        }
        let slowdown = fresh / steady;
        if !self.document.is_steady() || slowdown < LEAST_SLOWDOWN {
            return unmeasured(SPARE, "random writes were not seen to slow to a steady rate");
        }
        let spare = greedy_spare(slowdown, (ERASE_BLOCK.0 / page.0) as u32);
        let exact = spare / (1.0 - spare);
        let over_provisioning = exact.clamp(*SPARES.start(), *SPARES.end());
        let has = if exact == over_provisioning {
            "this".to_owned()
        } else {
            format!("{:.4}, which no profile can have", significant(exact))
        };
        let how = format!(
            "steady random writes at {steady:.1} MiB/s, {beside} at {fresh:.1}; greedy garbage collection \
             that slows them {slowdown:.2} times has {has} (Desnoyers, ACM TOS 2014)"
        );
        self.measured(significant(over_provisioning), &how)
    }

    /// The throughput of a step in MiB/s, and of how many rounds: the median; of overwrites,
    /// the last.
    fn rate(&self, step: DegradationStep) -> Option<(f64, usize)> {
        let settled = match step {
            DegradationStep::Overwrite => self.document.last_overwrites(),
            step => self.document.rates(step),
        };
        Some((median(&settled)?, settled.len()))
    }
}

/// The part of a read of this many seconds that is the controller's, where nothing tells: 15 us, and a quarter at most.
pub(super) fn overhead_s(read_s: f64) -> f64 {
    (read_s / 4.0).min(15e-6)
}

fn unmeasured<T>(value: T, typical: &str) -> Sourced<T> {
    Sourced { value, source: format!("not measured: {typical}") }
}

/// The largest mapping page that divides `granularity`.
fn page_of(granularity: Bytes) -> Bytes {
    Bytes(1 << granularity.0.trailing_zeros()).min(PAGE)
}

/// A granularity as whole sectors of 512 B, at least one, and at most what a profile takes.
fn sectors(granularity: Bytes) -> Bytes {
    Bytes(granularity.min(LARGEST_GRANULARITY).0.next_multiple_of(SECTOR.0)).max(SECTOR)
}

/// The span of `seconds` to three digits, an hour at most: what a profile takes.
fn nanos(seconds: f64) -> Nanos {
    Nanos::from_seconds(significant(seconds).clamp(0.0, 3600.0))
}

/// `value` to three digits.
fn significant(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// A profile's name from a drive's model: letters, digits and dashes.
fn name_of(model: &str) -> String {
    let words = model.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = words.collect::<Vec<_>>().join("-").to_ascii_lowercase();
    if name.is_empty() { "measured".to_owned() } else { name }
}

#[cfg(test)]
mod tests;
