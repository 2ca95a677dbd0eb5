//! Whether a device's counters show its discards, and which other counters do.

use super::{BlockDevice, BlockError};
use trimtab_core::Bytes;

/// The most layers that are searched for devices that count.
const MOST_DEEP: usize = 16;

impl BlockDevice {
    /// Returns the devices whose counters together count each discard of this one once: itself, or those that it hands its
    /// discards to. Returns none where no counter shows them.
    ///
    /// md does not count the discards of striped levels, bcache counts each with a length of 0, zram and brd count none,
    /// and no device counts while its `queue/iostats` is 0 (Linux 6.12: `raid0_handle_discard`, `raid10_handle_discard`,
    /// `make_discard_request`, `bch_cached_dev`, `zram_bio_discard`).
    pub fn counted_by(&self) -> Option<Vec<Self>> {
        self.counted_within(MOST_DEEP)
    }

    fn counted_within(&self, depth: usize) -> Option<Vec<Self>> {
        let is_shown = || self.counters().is_ok_and(|counters| counters.discard_bytes > Bytes::ZERO);
        if self.is_counting() && (!self.may_be_silent() || is_shown()) {
            return Some(vec![self.clone()]);
        }
        let depth = depth.checked_sub(1)?;
        let takers = self.takers_of_discards()?;
        let found = takers.iter().map(|taker| taker.counted_within(depth)).collect::<Option<Vec<_>>>()?;
        Some(found.concat()).filter(|found| !found.is_empty())
    }

    /// Returns whether it counts what it does: its `queue/iostats` is on, or its driver counts all the same, as DRBD does (Linux
    /// 6.12: `drbd_request_prepare`). Older captures lack the attribute.
    pub fn is_counting(&self) -> bool {
        !matches!(self.number_in("queue/iostats"), Ok(0)) || self.family() == "drbd"
    }

    /// Returns the letters that the name of its whole disk starts with.
    fn family(&self) -> String {
        self.whole().name().trim_end_matches(|letter: char| letter.is_ascii_digit()).to_owned()
    }

    /// Returns whether it is of a kind whose driver counts no discards.
    pub fn may_be_silent(&self) -> bool {
        let whole = self.whole();
        match whole.raid_level().as_deref() {
            Some(level) => !matches!(level, "raid1" | "linear"),
            None => matches!(self.family().as_str(), "bcache" | "zram" | "ram") || whole.has_paths(),
        }
    }

    /// Returns whether it is an NVMe namespace above several paths; old kernels count at the paths alone.
    pub(crate) fn has_paths(&self) -> bool {
        self.directory().components().any(|part| part.as_os_str() == "nvme-subsystem")
    }

    /// Returns whether it has counted discards since it appeared, and its counters are on.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn has_counted_discards(&self) -> Result<bool, BlockError> {
        Ok(self.is_counting() && self.counters()?.discard_bytes > Bytes::ZERO)
    }

    /// Returns whether it takes discards that no counter has ever shown: neither its own, nor those of the devices that count them
    /// for it.
    fn hides_discards(&self) -> bool {
        let takes_none = matches!(self.number_in("queue/discard_max_bytes"), Ok(0));
        let is_shown = |device: &Self| device.has_counted_discards().unwrap_or_default();
        !takes_none
            && !is_shown(self)
            && !self.counted_by().is_some_and(|counting| counting.iter().any(is_shown))
    }

    /// Returns the names of those of `devices` that hide discards.
    pub fn hiding_discards(devices: &[Self]) -> Vec<String> {
        devices.iter().filter(|device| device.hides_discards()).map(Self::name).collect()
    }

    fn raid_level(&self) -> Option<String> {
        self.identity("md/level")
    }

    /// Returns the devices that get each discarded byte of this one once. Returns `None` if others discard on
    /// them too, or they get copies.
    fn takers_of_discards(&self) -> Option<Vec<Self>> {
        if self.disk().is_some() {
            // The counters of the whole disk would count the other partitions, too.
            return None;
        }
        match self.raid_level() {
            Some(level) => self.slaves().ok().filter(|_| level == "raid0"),
            None => self.backing_of_bcache().map(|backing| vec![backing]),
        }
    }

    /// Returns the device that a bcache caches; none of other devices.
    fn backing_of_bcache(&self) -> Option<Self> {
        let cached = self.attribute("bcache").canonicalize().ok()?;
        self.slaves().ok()?.into_iter().find(|slave| cached.starts_with(slave.directory()))
    }
}

#[cfg(test)]
mod tests {
    use crate::captured::Captured;

    const SILENT: &str = "0 0 0 0 9 0 9 9 0 9 9 0 0 0 0 0 0";
    const COUNTS: &str = "0 0 0 0 9 0 9 9 0 9 9 4 0 4096 9 0 0";

    fn counted_by(machine: &Captured, name: &str) -> Option<Vec<String>> {
        let found = machine.open(name).counted_by()?;
        Some(found.iter().map(super::BlockDevice::name).collect())
    }

    fn names(names: &[&str]) -> Option<Vec<String>> {
        Some(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn raid0_is_counted_by_its_members() {
        let machine = |level: &str, stat: &str| {
            Captured::new()
                .device("md0", "9:0", &[("md/level", level), ("stat", stat), ("queue/iostats", "1")])
                .device("sda", "8:0", &[("stat", SILENT)])
                .device("sdb", "8:16", &[("stat", SILENT), ("queue/iostats", "1")])
                .stacked("md0", "sda")
                .stacked("md0", "sdb")
        };
        assert_eq!(counted_by(&machine("raid0", SILENT), "md0"), names(&["sda", "sdb"]));
        assert_eq!(
            counted_by(&machine("raid0", COUNTS), "md0"),
            names(&["md0"]),
            "a kernel that counts them"
        );
        assert!(!machine("raid0", COUNTS).open("md0").hides_discards());
        assert!(machine("raid0", SILENT).open("md0").hides_discards());
        assert_eq!(counted_by(&machine("raid1", SILENT), "md0"), names(&["md0"]));
        // The members get copies or parity, too.
        assert_eq!(counted_by(&machine("raid10", SILENT), "md0"), None);
    }

    #[test]
    fn device_without_statistics_counts_nothing() {
        let machine = Captured::new()
            .device("nvme0n1", "259:0", &[("stat", COUNTS), ("queue/iostats", "0")])
            .device("nvme0n1/nvme0n1p1", "259:1", &[("stat", SILENT)])
            .device("zram0", "252:0", &[("stat", SILENT), ("queue/iostats", "1")])
            .device("sda", "8:0", &[("stat", SILENT), ("queue/discard_max_bytes", "0")])
            .device("drbd0", "147:0", &[("stat", COUNTS), ("queue/iostats", "0")])
            .device("md0", "9:0", &[("md/level", "raid0"), ("stat", SILENT)])
            .stacked("md0", "nvme0n1");
        assert_eq!(counted_by(&machine, "drbd0"), names(&["drbd0"]), "it counts all the same");
        assert!(machine.open("nvme0n1").hides_discards(), "what it counted before is old");
        assert!(!machine.open("sda").hides_discards(), "it takes none");
        for device in ["nvme0n1", "nvme0n1p1", "zram0", "md0"] {
            assert_eq!(counted_by(&machine, device), None, "{device}");
        }
        assert!(!machine.open("nvme0n1").has_counted_discards().unwrap());
    }

    #[test]
    fn bcache_is_counted_by_what_it_caches() {
        let machine = Captured::new()
            .device("bcache0", "253:0", &[("stat", "0 0 0 0 9 0 9 9 0 9 9 47 0 0 9 0 0")])
            .device("sda", "8:0", &[("stat", SILENT), ("bcache/state", "clean")])
            .device("nvme0n1", "259:0", &[("stat", SILENT)])
            .stacked("bcache0", "nvme0n1")
            .stacked("bcache0", "sda")
            .link("devices/bcache0/bcache", "../sda/bcache");
        assert_eq!(counted_by(&machine, "bcache0"), names(&["sda"]));
    }
}
