//! The cost of a discard, and its gain.
//!
//! Garbage collection copies the pages that count as valid. A page that the host has freed and not
//! discarded is one of them. Let u be the share of the flash's data pages that count as valid. When the
//! block that was filled first is cleaned, the share v of its pages is valid, with
//!
//! ```text
//! u = (v - 1) / ln v,    A = 1 / (1 - v)
//! ```
//!
//! and A is the write amplification (J. Menon, "A performance comparison of RAID-5 and log-structured
//! arrays", HPDC 1995; P. Desnoyers, "Analytic Models of SSD Write Performance", ACM Transactions on
//! Storage 10(2), 2014, has the same in another form). Discarding p of the T pages lowers u by p / T,
//! and with it A by p / T times
//!
//! ```text
//! dA/du = (dA/dv) / (du/dv),    dA/dv = 1 / (1 - v)^2,    du/dv = (ln v - 1 + 1/v) / (ln v)^2
//! ```
//!
//! The gain lasts until the file system writes to these pages again. If F pages are free, an allocator that
//! goes round its free space writes F pages until then. So a discard of p pages saves
//!
//! ```text
//! copies = F * p / T * dA/du
//! ```
//!
//! copies of a page, and time for as many reads and programs, and their share of erases. A discard is worth
//! its cost if it saves more time than the command takes.

use std::time::Duration;

use super::learn::{CostFilter, LearnedCosts, Sent};
use crate::extent::Extent;
use crate::profile::{Discard, Profile};
use crate::units::{Bytes, Nanos};

/// Halvings of an interval until only rounding is left.
const HALVINGS: u32 = 50;

/// The cost and the gain of discards on one drive.
#[derive(Debug, Clone)]
pub struct Worth {
    discard: Discard,
    page: Bytes,
    /// The length below which the drive or the kernel ignores discards: a page, or the granularity.
    granule: Bytes,
    /// T, in bytes.
    data: f64,
    /// The drive's size.
    size: Bytes,
    /// The time to copy a page, with all dies at work, in seconds.
    copy_s: f64,
    /// The time to program a unit, in seconds.
    program_s: f64,
    /// The least time to write a page, with all dies at work and into the cache, if there is one, in seconds.
    write_s: f64,
    /// The learned costs of discards.
    costs: CostFilter,
    /// How many times as long as by the profile the flash takes.
    flash_factor: f64,
    /// The share of the computed gain that is real.
    real_share: f64,
}

/// The shortest extents that are worth a discard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// While others wait for the drive: the discard saves more time than it takes. None if no length does.
    pub busy: Option<Bytes>,
    /// While nobody does: the discard saves more pages than it makes the drive write into its journal.
    pub idle: Bytes,
}

impl Worth {
    /// The worth of discards on a drive of `size` bytes that behaves like `profile`.
    pub fn new(profile: &Profile, size: Bytes) -> Self {
        let (geometry, timing) = (&profile.geometry, &profile.timing);
        let page = geometry.mapping_page.value;
        let dies = f64::from(profile.dies());
        let pages_in = |bytes: Bytes| (bytes.0 / page.0).max(1) as f64;
        let program = timing.program.value.seconds() / pages_in(geometry.program_unit.value);
        let erase = timing.erase.value.seconds() / pages_in(geometry.erase_block.value);
        // A pseudo-SLC cache is written faster.
        let in_cache =
            profile.slc.as_ref().map(|slc| slc.program.value.seconds() / timing.program.value.seconds());
        let fastest = in_cache.unwrap_or(1.0).min(1.0);
        let discard = &profile.discard;
        let granule = discard.honoured_granularity.value.max(discard.advertised_granularity.value);
        let physical = size.0 as f64 * (1.0 + geometry.over_provisioning.value);
        Self {
            discard: profile.discard.clone(),
            page,
            granule: granule.max(page),
            // A drive always has a page to spare.
            data: physical.max((size.0 + page.0) as f64),
            size,
            copy_s: (timing.read.value.seconds() + program) / dies + erase,
            program_s: timing.program.value.seconds(),
            write_s: (program / dies + erase) * fastest,
            costs: CostFilter::new(),
            flash_factor: 1.0,
            real_share: 1.0,
        }
    }

    /// Returns how long the drive needs to discard a free extent of `length` bytes, with all commands that
    /// the kernel splits it into.
    pub fn time(&self, length: Bytes) -> Duration {
        Duration::from_secs_f64(self.learned_seconds(self.parts(length)))
    }

    /// The seconds that these parts take by what was learned.
    fn learned_seconds(&self, [command, bytes]: [f64; 2]) -> f64 {
        command * self.costs.command() + bytes * self.costs.bytes()
    }

    /// The time in seconds of the commands of a discard by the profile, and the time of its bytes.
    fn parts(&self, length: Bytes) -> [f64; 2] {
        let commands = length.0.div_ceil(self.discard.command_limit.value.0);
        let command = ((self.discard.command.value + self.discard.range.value) * commands).seconds();
        [command, (self.discard.time(length).seconds() - command).max(0.0)]
    }

    /// Returns how long the shortest command takes that discards anything. Twice that time suffices for two
    /// granules, so that an extent which is cut to it holds a whole one wherever it starts.
    pub fn shortest(&self) -> Duration {
        self.time(self.granule)
    }

    /// Returns the most bytes that one command can discard within `limit`; a page if even that takes longer.
    pub fn longest_within(&self, limit: Duration) -> Bytes {
        let within = |length: Bytes| self.time(length) <= limit;
        let (least, most) = (self.page, self.discard.command_limit.value);
        if within(most) {
            return most;
        }
        let mut bounds = (least.0, most.0);
        while bounds.1 - bounds.0 > 1 {
            let middle = bounds.0 + (bounds.1 - bounds.0) / 2;
            if within(Bytes(middle)) { bounds.0 = middle } else { bounds.1 = middle }
        }
        Bytes(bounds.0)
    }

    /// Returns the first part of an extent, of at most `longest`. If anything is left behind it, it ends between two
    /// granules where it can: a granule on both sides of a cut is discarded by neither part.
    pub fn cut(&self, extent: Extent, longest: Bytes) -> Extent {
        let end = extent.start.0.saturating_add(longest.0);
        if extent.end.0 <= end {
            return extent;
        }
        let between = end - end % self.granule.0;
        Extent::new(extent.start, Bytes(if between > extent.start.0 { between } else { end }))
    }

    /// Learns that the discards `sent` took the drive `took`.
    pub fn learn(&mut self, sent: Sent, took: Duration) {
        if sent.discards > 0 && sent.bytes > Bytes::ZERO {
            self.costs.learn(self.parts_of(sent), took.as_secs_f64());
        }
    }

    /// As [`parts`](Self::parts), of discards that were sent.
    fn parts_of(&self, sent: Sent) -> [f64; 2] {
        let mean = Bytes((sent.bytes.0 / sent.discards.max(1)).max(1));
        self.parts(mean).map(|part| part * sent.discards as f64)
    }

    /// Returns how long the drive needs for these discards.
    pub fn time_of(&self, sent: Sent) -> Duration {
        Duration::try_from_secs_f64(self.learned_seconds(self.parts_of(sent))).unwrap_or(Duration::MAX)
    }

    /// Returns the costs of discards as far as they were learned; those of the profile before the first trim.
    pub fn learned(&self) -> LearnedCosts {
        let [command, per_gib] = self.profile_costs();
        LearnedCosts {
            command: Nanos::from_seconds(command * self.costs.command()),
            per_gib: Nanos::from_seconds(per_gib * self.costs.bytes()),
            trims: self.costs.trims(),
        }
    }

    /// Takes over the costs that an earlier run learned of the same drive, whatever profile it started from.
    pub fn remember(&mut self, learned: LearnedCosts) {
        let [command, per_gib] = self.profile_costs();
        let factor = |learned: Nanos, own: f64| if own > 0.0 { learned.seconds() / own } else { 1.0 };
        let factors = [factor(learned.command, command), factor(learned.per_gib, per_gib)];
        self.costs = CostFilter::remembering(factors, learned.trims);
    }

    /// The profile's seconds for a command, and for each GiB.
    fn profile_costs(&self) -> [f64; 2] {
        let command = (self.discard.command.value + self.discard.range.value).seconds();
        let ranges = Bytes::GIB.0 as f64 / self.discard.range_limit.value.0 as f64;
        let work = self.discard.work(Bytes::GIB, Bytes::GIB).seconds();
        [command, self.discard.range.value.seconds() * ranges + work]
    }

    /// Returns the shortest extents that are worth it, if `free` bytes are free and `pending` of them not
    /// discarded.
    pub fn thresholds(&self, free: Bytes, pending: Bytes) -> Thresholds {
        let copies = self.copies(free, pending);
        let page = self.page.0 as f64;
        let saved_s = copies * self.copy_s * self.flash_factor * self.real_share / page;
        let [command_s, per_gib_s] = self.profile_costs();
        let range_s = per_gib_s / Bytes::GIB.0 as f64 * self.costs.bytes();
        let command_s = command_s * self.costs.command();
        let busy = (saved_s > range_s).then(|| Bytes((command_s / (saved_s - range_s)).ceil() as u64));
        let idle = Bytes((self.discard.journal_per_range.value.0 as f64 / copies).ceil() as u64);
        Thresholds { busy: busy.map(|length| length.max(self.granule)), idle: idle.max(self.granule) }
    }

    /// Returns how much longer each byte that the host writes takes the drive, in seconds, because `kept` of the
    /// `pending` bytes are not discarded.
    pub fn delay_per_byte(&self, free: Bytes, pending: Bytes, kept: Bytes) -> f64 {
        self.copies_per_page(free, pending, kept) * self.copy_s * self.flash_factor / self.page.0 as f64
    }

    /// Returns how many pages more the drive copies for each that the host writes, because `kept` of the `pending` bytes
    /// are not discarded.
    fn copies_per_page(&self, free: Bytes, pending: Bytes, kept: Bytes) -> f64 {
        let amplification = |pending| (1.0 - self.victim(free, pending)).recip();
        amplification(pending) - amplification(pending.saturating_sub(kept))
    }

    /// Returns three times in seconds by the profile: for this many commands that each program one unit, one after the
    /// other, for this many written bytes with all dies at work, and for the copies for these bytes because
    /// `pending` bytes are not discarded.
    pub fn write_parts_by_profile(
        &self,
        commands: u64,
        written: Bytes,
        free: Bytes,
        pending: Bytes,
    ) -> [f64; 3] {
        let pages = written.0 as f64 / self.page.0 as f64;
        let copies = pages * self.copies_per_page(free, pending, pending);
        [commands as f64 * self.program_s, pages * self.write_s, copies * self.copy_s]
    }

    /// From now on, the flash takes this many times as long as by the profile.
    pub fn set_flash_factor(&mut self, factor: f64) {
        self.flash_factor = factor;
    }

    /// From now on, a discard saves this share of the time that the formulas tell.
    pub fn set_real_share(&mut self, share: f64) {
        self.real_share = share;
    }

    /// Returns how much time of the drive the discard of all `pending` bytes saves, in copies.
    pub fn time_saved(&self, free: Bytes, pending: Bytes) -> Duration {
        let seconds = self.delay_per_byte(free, pending, pending) * self.real_share * free.0 as f64;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Returns the bytes that the drive can write before it has to clean: the flash that holds no valid data,
    /// if `free` bytes are free and `pending` of them not discarded.
    pub fn spare(&self, free: Bytes, pending: Bytes) -> Bytes {
        Bytes(self.data as u64) - self.used(free, pending)
    }

    /// Returns the bytes that count as valid on the drive.
    fn used(&self, free: Bytes, pending: Bytes) -> Bytes {
        self.size.saturating_sub(free.saturating_sub(pending))
    }

    /// The share of valid pages in the blocks that are cleaned.
    fn victim(&self, free: Bytes, pending: Bytes) -> f64 {
        victim(self.used(free, pending).0 as f64 / self.data)
    }

    /// How many copies a discarded page saves.
    fn copies(&self, free: Bytes, pending: Bytes) -> f64 {
        let valid = self.victim(free, pending);
        let amplification = (1.0 - valid).powi(-2);
        let log = valid.ln();
        let share = (log - 1.0 + valid.recip()) / (log * log);
        free.0 as f64 / self.data * amplification / share
    }
}

/// Returns the share v of valid pages in the blocks that are cleaned, if the share `used` of all pages is
/// valid.
fn victim(used: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if (middle - 1.0) / f64::ln(middle) < used { low = middle } else { high = middle }
    }
    // The derivatives are not defined at the ends.
    f64::midpoint(low, high).clamp(1e-9, 1.0 - 1e-9)
}

impl Discard {
    /// Returns how long a discard of `length` bytes that all have data takes for the host, with all commands
    /// that the kernel splits it into.
    pub fn time(&self, length: Bytes) -> Nanos {
        self.time_of(length, length)
    }

    /// As [`time`](Self::time), where `mapped` of the bytes have data and are unmapped.
    pub fn time_of(&self, length: Bytes, mapped: Bytes) -> Nanos {
        self.time_of_extents([length], mapped)
    }

    /// As [`time_of`](Self::time_of), of one command that names extents of these lengths.
    #[inline]
    pub fn time_of_extents(&self, lengths: impl IntoIterator<Item = Bytes>, mapped: Bytes) -> Nanos {
        let add =
            |(length, ranges), one: Bytes| (length + one, ranges + one.0.div_ceil(self.range_limit.value.0));
        let (length, ranges) = lengths.into_iter().fold((Bytes::ZERO, 0), add);
        let commands = length.0.div_ceil(self.command_limit.value.0);
        let at_once = self.command.value * commands + self.range.value * ranges;
        if self.lazy_share.is_some() { at_once } else { at_once + self.work(length, mapped) }
    }

    /// The time that the bytes themselves take the drive, before or after the command returns.
    pub fn work(&self, length: Bytes, mapped: Bytes) -> Nanos {
        let of_mapped = self.per_mapped_gib.as_ref().map_or(0.0, |time| time.value.seconds() * mapped.gib());
        Nanos::from_seconds(self.per_gib.value.seconds() * length.gib()) + Nanos::from_seconds(of_mapped)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, proptest};

    use super::*;
    use crate::profile::Sourced;

    const SIZE: Bytes = Bytes(64 << 30);

    fn worth(name: &str) -> Worth {
        Worth::new(&Profile::named(name).unwrap(), SIZE)
    }

    /// Desnoyers' form of the same: A = a / (a - v) with v e^-v = a e^-a and a = 1 / u.
    fn amplification(used: f64) -> f64 {
        let (a, mut low, mut high) = (1.0 / used, 0.0, 1.0);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if middle * f64::exp(-middle) < a * f64::exp(-a) { low = middle } else { high = middle }
        }
        a / (a - low)
    }

    #[test]
    fn copies_match_the_other_closed_form() {
        let worth = worth("nvme-tlc");
        for pending in [1, 4, 16, 48].map(|gib| Bytes(gib << 30)) {
            let (free, page) = (Bytes(50 << 30), 1e-4);
            let used = worth.used(free, pending).0 as f64 / worth.data;
            let slope = (amplification(used + page) - amplification(used - page)) / (2.0 * page);
            let expected = free.0 as f64 / worth.data * slope;
            let copies = worth.copies(free, pending);
            assert!((copies / expected - 1.0).abs() < 1e-3, "{copies} for {expected} at {used}");
        }
    }

    #[test]
    fn extents_of_one_command_share_its_own_time() {
        let mut discard = Profile::named("nvme-tlc").unwrap().discard;
        let lengths = [Bytes(4096), Bytes(1 << 20), Bytes(3 << 20)];
        let apart: Nanos = lengths.iter().map(|length| discard.time(*length)).sum();
        let total = lengths.iter().copied().sum();
        let together = discard.time_of_extents(lengths, total);
        assert!((together + discard.command.value * 2).0.abs_diff(apart.0) <= 3, "{together} for {apart}");
        discard.range_limit.value = Bytes(1 << 20);
        let more = discard.time_of_extents(lengths, total);
        assert_eq!(more, together + discard.range.value * 2, "five ranges");
    }

    #[test]
    fn data_in_a_range_cost_time_before_or_after_the_command_returns() {
        let mut discard = Profile::named("nvme-tlc").unwrap().discard;
        let (length, mapped) = (Bytes::GIB, Bytes(Bytes::GIB.0 / 4));
        let plain = discard.time(length);
        assert_eq!(discard.time_of(length, Bytes::ZERO), plain, "data make no difference");
        let sourced = |value| Sourced { value, source: "a test".to_owned() };
        discard.per_mapped_gib = Some(sourced(Nanos(400_000_000)));
        assert_eq!(discard.time_of(length, mapped), plain + Nanos(100_000_000));
        assert_eq!(discard.time(length), plain + Nanos(400_000_000), "what is freed has data");
        let work = discard.work(length, mapped);
        discard.lazy_share = Some(Sourced { value: 0.5, source: "a test".to_owned() });
        assert_eq!(discard.time_of(length, mapped) + work, plain + Nanos(100_000_000));
        assert_eq!(discard.work(length, mapped), work, "it is done all the same");
    }

    #[test]
    fn shorter_extents_pay_when_less_spare_is_left() {
        let worth = worth("micron-m500it");
        let free = Bytes(40 << 30);
        let lengths: Vec<_> = (0..40)
            .map(|gib| worth.thresholds(free, Bytes(gib << 30)).busy.unwrap_or(Bytes(u64::MAX)))
            .collect();
        assert!(lengths.is_sorted_by(|more_spare, less_spare| more_spare >= less_spare), "{lengths:?}");
        assert!(lengths[39].0 * 4 < lengths[20].0, "{lengths:?}");
    }

    #[test]
    fn real_cost_of_trims_is_learned() {
        let mut worth = worth("nvme-tlc");
        let (length, truth) = (Bytes::GIB, Duration::from_secs(1));
        for _ in 0..100 {
            worth.learn(Sent { discards: 1, bytes: length }, truth);
        }
        let ratio = worth.time(length).as_secs_f64() / truth.as_secs_f64();
        assert!((0.95..1.05).contains(&ratio), "{ratio}");
    }

    #[test]
    fn hundred_discards_correct_costs_that_are_wrong_by_a_factor_of_ten() {
        for (name, factor) in [("micron-m500it", 0.1), ("ocz-agility-3", 10.0), ("nvme-tlc", 10.0)] {
            let mut profile = Profile::named(name).unwrap();
            let truth = Worth::new(&profile, SIZE);
            let costs = &mut profile.discard;
            for cost in [&mut costs.command, &mut costs.range, &mut costs.per_gib] {
                cost.value = Nanos::from_seconds(cost.value.seconds() * factor);
            }
            let mut worth = Worth::new(&profile, SIZE);
            let lengths = [1_u64, 16, 64, 512, 4].map(|mib| Bytes(mib << 20));
            // Others use the drive now and then.
            let noise = [1.0, 0.9, 1.2, 0.95, 1.0, 1.05, 0.9];
            for (length, noise) in lengths.iter().cycle().zip(noise.iter().cycle()).take(100) {
                worth.learn(Sent { discards: 1, bytes: *length }, truth.time(*length).mul_f64(*noise));
            }
            for length in lengths {
                let ratio = worth.time(length).as_secs_f64() / truth.time(length).as_secs_f64();
                assert!((1.0 / 1.1..1.1).contains(&ratio), "{name}, {length}: {ratio}");
            }
        }
    }

    #[test]
    fn one_range_that_became_thousands_of_discards_does_not_make_commands_slow() {
        let mut worth = worth("micron-m500it");
        let before = worth.shortest();
        let sent = Sent { discards: 4000, bytes: Bytes(4000 << 14) };
        let took = before * 4000;
        (0..20).for_each(|_| worth.learn(sent, took));
        let ratio = worth.shortest().as_secs_f64() / before.as_secs_f64();
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn costs_are_remembered_across_profiles() {
        let mut taught = worth("nvme-tlc");
        let true_costs = worth("ocz-agility-3");
        for length in [1_u64, 16, 64, 512].iter().cycle().take(100).map(|mib| Bytes(mib << 20)) {
            taught.learn(Sent { discards: 1, bytes: length }, true_costs.time(length));
        }
        let mut remembering = worth("micron-m500it");
        remembering.remember(taught.learned());
        for length in [Bytes(1 << 20), Bytes(512 << 20)] {
            let ratio = remembering.time(length).as_secs_f64() / true_costs.time(length).as_secs_f64();
            assert!((0.8..1.25).contains(&ratio), "{length}: {ratio}");
        }
        assert_eq!(remembering.learned().trims, 100);
    }

    proptest! {
        #[test]
        fn the_longest_within_a_time_is_the_longest(micros in 1..3_000_000_u64) {
            let limit = Duration::from_micros(micros);
            for worth in ["ocz-agility-3", "nvme-tlc"].map(worth) {
                let most = worth.discard.command_limit.value;
                let length = worth.longest_within(limit);
                prop_assert!(worth.time(length) <= limit || length == worth.page && worth.shortest() > limit);
                prop_assert!(length == most || worth.time(length + Bytes(1)) > limit);
            }
        }
    }
}
