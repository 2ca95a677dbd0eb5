//! Compares the units that layers discard in with what file systems free.

use trimtab_core::Bytes;
use trimtab_core::shell::quoted;
use trimtab_core::verdict::{Finding, Severity};
use trimtab_linux::stack::{Layer, LayerKind, Setup, Stack};

use super::mapper;
use super::service::{ENABLE, finding};

/// Units below that are at least as large are larger than much of what file systems free.
const COARSE: Bytes = Bytes(64 << 10);

/// A file system that discards as it frees, and nothing trims, above a layer that takes larger units than are freed.
pub(super) fn online_only(stack: &Stack, target: &Layer, setup: &Setup) -> Option<Finding> {
    let (layer, unit) = coarse_layer(stack)?;
    let (mount, name) = (quoted(&target.name), &layer.name);
    Some(Finding {
        fix: Some(match setup.timer {
            Some(_) => ENABLE.to_owned(),
            None => format!("fstrim {mount}   # once a week, by cron; with systemd: {ENABLE}"),
        }),
        cost: Some("A trim sends all free space at once; trimtab compare shows what that costs.".to_owned()),
        ..finding(
            "online-only",
            Severity::Warning,
            target,
            format!("{mount} only discards as it frees, and {name} takes whole units of {unit}."),
            "What is freed in smaller pieces is dropped, also once all of its unit is free; a trim sends it again.",
            "findmnt -o TARGET,OPTIONS; systemctl list-timers fstrim.timer",
        )
    })
}

/// Returns the layer with the largest unit, and the unit, if that is larger than much of what file systems free.
pub(super) fn coarse_layer(stack: &Stack) -> Option<(&Layer, Bytes)> {
    let units = stack.layers.iter().map(|layer| (layer, unit(stack, layer)));
    units.max_by_key(|(_, unit)| *unit).filter(|(_, unit)| *unit >= COARSE)
}

/// The size of an object of Ceph by default.
const OBJECT: Bytes = Bytes(4 << 20);

/// Returns true if a device takes discards that are smaller than the granularity that its queue shows, and that fstrim goes by. A
/// card's is what it erases best. Ceph's kernel client without the option `alloc_size`, as in Linux 4.19, shows the size of an
/// object, in which it clears smaller pieces.
pub(super) fn takes_smaller(layer: &Layer) -> bool {
    match &layer.kind {
        LayerKind::Mmc => true,
        LayerKind::Other(Some(driver)) if driver == "rbd" => {
            layer.limits.is_some_and(|limits| limits.granularity == OBJECT)
        }
        _ => false,
    }
}

/// Returns the unit that a layer discards in. A queue shows the largest unit of what is below, too.
fn unit(stack: &Stack, layer: &Layer) -> Bytes {
    let granularity = |layer: &Layer| {
        let limits = layer.limits.filter(|limits| limits.max > Bytes::ZERO);
        limits.map_or(Bytes::ZERO, |limits| limits.granularity)
    };
    let below = layer.below.iter().map(|below| granularity(&stack.layers[below.layer])).max();
    let is_own = !takes_smaller(layer) && below.is_none_or(|below| granularity(layer) > below);
    let of_queue = if is_own { granularity(layer) } else { Bytes::ZERO };
    let of_pool = match &layer.kind {
        LayerKind::DeviceMapper(lines) => mapper::largest_chunk(lines),
        _ => None,
    };
    of_queue.max(of_pool.unwrap_or_default())
}
