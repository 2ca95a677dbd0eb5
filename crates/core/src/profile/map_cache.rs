//! The map of a drive whose memory holds only a part of it.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::bound::Broken;
use super::{Profile, Sourced};
use crate::units::Bytes;

/// The size of an entry.
const ENTRY: RangeInclusive<Bytes> = Bytes(1)..=Bytes(64);

/// The part of the map that a drive without enough DRAM keeps in memory: its own, or the host's (NVMe host
/// memory buffer). The map itself lies on the flash, in pages of the size of a mapping page; those used last
/// are in memory (DFTL: Gupta, Kim and Urgaonkar, ASPLOS 2009).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapCache {
    /// The part of the map's pages that memory holds, as a fraction, so that an emulated drive of any size
    /// misses as often; one page at least.
    pub share: Sourced<f64>,
    /// The entry of one mapping page: a page of the map has as many as fit.
    pub entry: Sourced<Bytes>,
}

impl MapCache {
    /// Returns the number of entries in a page of the map, if mapping pages have the size `page`.
    pub fn entries(&self, page: Bytes) -> u32 {
        (page.0 / self.entry.value.0) as u32
    }

    /// Returns how many of the `pages` pages of the map fit into memory.
    pub fn room(&self, pages: u32) -> u32 {
        ((f64::from(pages) * self.share.value).ceil() as u32).max(1)
    }
}

/// The first field whose value no drive can have, with the reason.
pub(super) fn broken(profile: &Profile) -> Option<Broken> {
    let cache = profile.map_cache.as_ref()?;
    let (share, entry) = (cache.share.value, cache.entry.value);
    if !(share > 0.0 && share <= 1.0) {
        let message = format!("{share} must be above 0 and at most 1 (0.07 is 7 %)");
        return Some(("map_cache.share", message));
    }
    let message = format!("{entry} must be from {} to {}", ENTRY.start(), ENTRY.end());
    (!ENTRY.contains(&entry)).then_some(("map_cache.entry", message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ProfileError;

    const GOOD: &str = include_str!("../../profiles/nvme-tlc.toml");

    fn parsed(share: &str, entry: &str) -> Result<Profile, ProfileError> {
        let line = |field, value| format!("{field} = {{ value = {value}, source = \"a test\" }}\n");
        let table = line("share", share) + &line("entry", &format!("\"{entry}\""));
        Profile::parse(&format!("{GOOD}\n[map_cache]\n{table}"), "my.toml")
    }

    #[test]
    fn a_map_cache_is_optional_and_survives_being_written() {
        assert_eq!(Profile::parse(GOOD, "my.toml").unwrap().map_cache, None);
        let profile = parsed("0.08", "4 B").unwrap();
        let cache = profile.map_cache.clone().unwrap();
        assert_eq!(cache.entries(profile.geometry.mapping_page.value), 1024);
        assert_eq!([cache.room(1), cache.room(100), cache.room(101)], [1, 8, 9]);
        let text = toml::to_string(&profile).unwrap();
        assert_eq!(Profile::parse(&text, "copy.toml"), Ok(profile));
    }

    #[test]
    fn a_value_outside_its_limits_is_named_with_them() {
        for (share, entry, message) in [
            ("0.0", "4 B", "map_cache.share: 0 must be above 0 and at most 1 (0.07 is 7 %)"),
            ("1.01", "4 B", "map_cache.share: 1.01 must be above 0 and at most 1 (0.07 is 7 %)"),
            ("nan", "4 B", "map_cache.share: NaN must be above 0 and at most 1 (0.07 is 7 %)"),
            ("0.1", "0 B", "map_cache.entry: 0 B must be from 1 B to 64 B"),
            ("0.1", "65 B", "map_cache.entry: 65 B must be from 1 B to 64 B"),
        ] {
            assert_eq!(parsed(share, entry).unwrap_err().to_string(), format!("my.toml: {message}"));
        }
        for (share, entry) in [("1e-300", "1 B"), ("1.0", "64 B")] {
            parsed(share, entry).unwrap();
        }
    }
}
