//! Judges device-mapper targets.
//!
//! See the kernel's Documentation/admin-guide/device-mapper for the parameters.

use trimtab_core::verdict::Verdict;
use trimtab_core::{Bytes, SECTOR};
use trimtab_linux::stack::{self, LayerKind, MapLine, Stack};

use super::findings::mapped;
use super::opinion::{BELOW, LayerInStack, Opinion};
use super::{file_system, findings};

/// Returns the indices of the layers below that hold `layer`'s data, without those that hold only metadata.
pub(super) fn data_below(stack: &Stack, layer: &stack::Layer) -> Vec<usize> {
    let all: Vec<_> = layer.below.iter().map(|below| below.layer).collect();
    let lines = match &layer.kind {
        LayerKind::DeviceMapper(lines) => lines,
        // An overlay frees in the upper directory; a cache's data is on the backing device.
        LayerKind::FileSystem(found) if found.fstype == "overlay" => {
            return all.into_iter().take(file_system::upper(found).iter().count()).collect();
        }
        LayerKind::Bcache => return all.into_iter().take(1).collect(),
        _ => return all,
    };
    let data: Vec<_> = lines.iter().filter_map(MapLine::data_device).collect();
    let is_data = |index: &usize| stack.layers[*index].number.is_some_and(|number| data.contains(&number));
    let found: Vec<_> = all.iter().copied().filter(is_data).collect();
    if found.is_empty() { all } else { found }
}

/// Returns a device's kind in a word: `dm-` with its target if all lines have the same.
pub(super) fn kind(lines: &[MapLine]) -> String {
    match lines {
        [first, rest @ ..] if rest.iter().all(|line| line.target == first.target) => {
            format!("dm-{}", first.target.trim_start_matches("dm-"))
        }
        _ => "dm".to_owned(),
    }
}

pub(super) fn opinion(place: &LayerInStack, lines: &[MapLine]) -> Opinion {
    let Some(line) = lines.iter().find(|line| decides(line)).or(lines.first()) else {
        let is_crypt = place.layer.subsystem.as_ref().is_some_and(|maker| maker.starts_with("CRYPT"));
        return if place.is_stopped_below() {
            Opinion::starved(BELOW)
        } else if is_crypt && place.takes() == Some(false) {
            no_discards_through_crypt(place)
        } else {
            Opinion::unknown("its table can't be read; that takes root")
        };
    };
    if line.target == "crypt" && has_tags(line) {
        return Opinion::stops("authenticated encryption can't discard: each sector has a tag")
            .found(mapped::luks_with_tags(place.layer));
    }
    if place.takes() == Some(false) && place.is_stopped_below() {
        return Opinion::starved(BELOW);
    }
    let has = |word: &str| line.parameters.split_whitespace().any(|parameter| parameter == word);
    match line.target.as_str() {
        "crypt" if !has("allow_discards") => no_discards_through_crypt(place),
        "integrity" if place.above.iter().any(|upper| keeps_tags_below(upper)) => {
            Opinion::stops("it keeps the tags of the encryption above, and takes no discards")
        }
        "integrity" if !has("allow_discards") => Opinion::stops("it was opened without allow_discards")
            .found(mapped::integrity_no_discards(place.layer)),
        "thin-pool" if has("ignore_discard") => {
            Opinion::stops("the pool ignores discards").found(mapped::thin_discards(place, true))
        }
        "thin-pool" if has("no_discard_passdown") => {
            Opinion::stops("the pool takes chunks back, and tells nothing to what is below")
                .found(mapped::thin_discards(place, false))
        }
        "thin-pool" if place.takes() != Some(false) => thin_pool(place, line),
        "thin" if place.takes() != Some(false) => Opinion::passes("it hands them to its pool"),
        "thin" if place.below.iter().any(|(_, fate)| *fate == Verdict::Blocked) => Opinion::starved(BELOW),
        "snapshot" | "snapshot-origin" if place.takes() != Some(true) => {
            Opinion::stops("thick snapshots, and volumes that have one, take no discards")
                .found(mapped::thick_snapshot(place.layer, line.target == "snapshot"))
        }
        "snapshot" if has("discard_passdown_origin") => Opinion::passes(
            "it hands them to its origin, and records zeros for them (discard_passdown_origin)",
        ),
        "snapshot" if has("discard_zeroes_cow") => {
            Opinion::stops("it records zeros for them, and hands none on (discard_zeroes_cow)")
                .found(mapped::thick_snapshot(place.layer, true))
        }
        "vdo" => Opinion::stops("VDO frees its own blocks, and tells nothing to what is below")
            .found(mapped::vdo(place.layer)),
        "cache" if has("no_discard_passdown") => {
            Opinion::stops("the cache takes them, and doesn't hand them to its origin")
                .found(mapped::cache(place.layer))
        }
        "clone" if has("no_discard_passdown") => {
            Opinion::stops("the clone takes them, and doesn't hand them to its destination")
                .found(mapped::clone(place.layer))
        }
        "raid" if has_parity(line) && place.takes() == Some(false) => {
            Opinion::stops("with parity, it drops discards unless told that the drives read zeros afterwards")
                .found(mapped::lvm_raid_parity(place.layer))
        }
        "zoned" if place.takes() != Some(false) => Opinion::reshapes(
            Verdict::Reaches,
            "it resets a zone of the disk below once nothing in it is used",
        ),
        "zero" | "error" => Opinion::stops(format!("the target {} stores nothing", line.target)),
        "striped" => by_limit(place, "striped", Some("it splits them into stripes")),
        target => by_limit(place, target, None),
    }
}

/// Returns true if a line decides for the whole device.
fn decides(line: &MapLine) -> bool {
    !matches!(line.target.as_str(), "linear" | "striped")
}

fn no_discards_through_crypt(place: &LayerInStack) -> Opinion {
    Opinion::stops("it was opened without allow_discards").found(mapped::luks_no_discards(place))
}

/// Returns true if a line of the target `crypt` keeps a tag for each sector, `integrity:BYTES:KIND`.
fn has_tags(line: &MapLine) -> bool {
    line.parameters.split_whitespace().any(|word| word.starts_with("integrity:"))
}

/// Returns true if a layer is encryption that keeps its tags in the layer below.
fn keeps_tags_below(upper: &stack::Layer) -> bool {
    matches!(&upper.kind, LayerKind::DeviceMapper(lines) if lines.iter().any(|line| line.target == "crypt" && has_tags(line)))
}

/// Returns true if a line of the target `raid` has parity: its parameters begin with the level.
fn has_parity(line: &MapLine) -> bool {
    ["raid4", "raid5", "raid6"].iter().any(|level| line.parameters.starts_with(level))
}

/// The targets that hand discards on wherever what is below takes them.
const HAND_ON: [&str; 12] = [
    "linear",
    "striped",
    "crypt",
    "multipath",
    "mirror",
    "raid",
    "cache",
    "clone",
    "era",
    "thin",
    "thin-pool",
    "default-key",
];

/// Returns true if a device's table may hand discards on, and its limit was taken from a time when what is below took
/// none: the limits of a table are those of its loading.
pub(super) fn is_stale(layer: &stack::Layer) -> bool {
    let LayerKind::DeviceMapper(lines) = &layer.kind else { return false };
    let hands_on = |line: &MapLine| {
        let has = |word: &str| line.parameters.split_whitespace().any(|found| found == word);
        let is_closed = match line.target.as_str() {
            "crypt" => !has("allow_discards"),
            "thin-pool" => has("ignore_discard"),
            "raid" => has_parity(line),
            _ => false,
        };
        HAND_ON.contains(&line.target.as_str()) && !is_closed
    };
    let takes_none = layer.limits.is_some_and(|limits| limits.max == Bytes::ZERO);
    takes_none && !lines.is_empty() && lines.iter().all(hands_on)
}

/// Judges a target by its queue's limit.
fn by_limit(place: &LayerInStack, target: &str, split: Option<&str>) -> Opinion {
    match (place.takes(), split) {
        (None, _) => Opinion::unknown("sysfs doesn't tell its limits"),
        (Some(false), _) if HAND_ON.contains(&target) && !place.is_opened_below() => {
            let message = format!("{} takes no discards.", findings::title(place.layer));
            Opinion::stops("its own limit is 0").found(findings::takes_none(place.layer, message))
        }
        (Some(false), _) if HAND_ON.contains(&target) => Opinion::stops(format!(
            "its own limit is 0, although its target {target} hands discards on and what is below takes them"
        ))
        .found(mapped::stale_limit(place.layer)),
        (Some(false), _) => {
            Opinion::stops(format!("the target {target} hands no discards on")).found(findings::takes_none(
                place.layer,
                format!("{}: its target {target} takes no discards", place.layer.name),
            ))
        }
        (Some(true), Some(split)) => Opinion::reshapes(Verdict::Reaches, split),
        (Some(true), None) => Opinion::passes("it hands them on"),
    }
}

fn thin_pool(place: &LayerInStack, line: &MapLine) -> Opinion {
    if place.is_stopped_below() {
        return Opinion::starved(BELOW);
    }
    match chunk(line) {
        None => Opinion::unknown("its table tells no chunk size"),
        Some(chunk) => Opinion::in_units(
            chunk,
            format!("it hands whole chunks of {chunk} on, and drops the rest"),
            || mapped::large_chunks(place.layer, chunk),
        ),
    }
}

/// Returns the largest chunk size of the thin pools among `lines`; none without a pool.
pub(super) fn largest_chunk(lines: &[MapLine]) -> Option<Bytes> {
    lines.iter().filter(|line| line.target == "thin-pool").filter_map(chunk).max()
}

/// Returns a thin pool's chunk size. The parameters are METADATA DATA BLOCK_SIZE ..., the last in sectors.
pub(super) fn chunk(line: &MapLine) -> Option<Bytes> {
    let sectors: u64 = line.parameters.split_whitespace().nth(2)?.parse().ok()?;
    sectors.checked_mul(SECTOR.0).map(Bytes)
}
