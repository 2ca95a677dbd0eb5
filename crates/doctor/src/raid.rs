//! Judges software RAID.

use trimtab_core::verdict::Verdict;
use trimtab_linux::stack::Raid;

use super::findings;
use super::opinion::{LayerInStack, Opinion};

pub(super) fn opinion(place: &LayerInStack, raid: &Raid) -> Opinion {
    let has_parity = matches!(raid.level.as_str(), "raid4" | "raid5" | "raid6");
    let takes = match place.takes() {
        None => return Opinion::unknown("sysfs doesn't tell its limits"),
        Some(takes) => takes,
    };
    if !takes && place.is_stopped_below() {
        return Opinion::starved("a drive of it");
    }
    if has_parity && !takes {
        let reason = match raid.discards_are_safe {
            Some(true) => "it was assembled before md was told that the drives read zeros after a discard",
            _ => "with parity, md drops discards unless told that the drives read zeros afterwards",
        };
        return Opinion::stops(reason).found(findings::raid_parity(place, raid));
    }
    if !takes {
        let message = format!("The array {} takes no discards, although its drives do.", place.layer.name);
        return Opinion::stops("md takes none for this array")
            .found(findings::takes_none(place.layer, message));
    }
    if has_parity {
        let unit = place.granularity();
        let reason = format!("it hands whole stripes of {unit} on, and drops the rest");
        Opinion::in_units(unit, reason, || findings::large_granularity(place.layer, unit))
    } else if raid.level == "raid1" || raid.level == "linear" {
        Opinion::passes("it hands them to its drives")
    } else {
        Opinion::reshapes(
            Verdict::Reaches,
            format!("it divides them among its drives (chunks of {})", raid.chunk),
        )
    }
}
