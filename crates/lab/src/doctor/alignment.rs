//! Where a stack's data starts on each disk, against the units that the disk discards in.

use std::collections::BTreeSet;

use trimtab_core::Bytes;
use trimtab_core::document::doctor::{Finding, Severity};
use trimtab_linux::stack::{Kind, Layer, Stack, Transport};

/// Where the target's data starts on a layer with nothing below it.
struct Start<'a> {
    disk: &'a Layer,
    at: Bytes,
}

/// How many ways down are followed: many more than any stack that somebody built has.
const MOST_WAYS: usize = 4096;

/// Follows the target down to each disk on which it lies in a row.
fn starts(stack: &Stack) -> Vec<Start<'_>> {
    let mut starts = Vec::new();
    let mut seen = BTreeSet::new();
    let mut open = vec![(0, Bytes::ZERO)];
    while let Some((index, at)) = open.pop() {
        let Some(layer) = stack.layers.get(index) else { continue };
        if !seen.insert((index, at)) || seen.len() > MOST_WAYS {
            continue;
        }
        // A loop device discards in units of its own, that of the file system which holds its file.
        if index > 0 && (layer.below.is_empty() || matches!(layer.kind, Kind::Loop { .. })) {
            starts.push(Start { disk: layer, at });
        }
        let below = layer.below.iter().filter(|below| below.layer > index);
        open.extend(below.filter_map(|below| Some((below.layer, Bytes(at.0.checked_add(below.start?.0)?)))));
    }
    starts
}

/// Whether it may be a drive, and is not another machine's or memory.
fn is_flash(kind: &Kind) -> bool {
    match kind {
        Kind::Nvme | Kind::Mmc => true,
        Kind::Scsi(scsi) => scsi.transport != Transport::Virtio,
        _ => false,
    }
}

/// How far `at` is after a unit of `unit` bytes, of which one starts at `from`.
fn over(at: Bytes, unit: Bytes, from: Bytes) -> Bytes {
    if unit == Bytes::ZERO {
        return Bytes::ZERO;
    }
    let (at, from) = (at.0 % unit.0, from.0 % unit.0);
    Bytes(if at >= from { at - from } else { unit.0 - (from - at) })
}

/// What is amiss with where a stack's data starts.
pub(super) fn findings(stack: &Stack, erase_block: Bytes) -> Vec<Finding> {
    starts(stack).iter().filter_map(|start| misaligned(start, erase_block)).collect()
}

fn misaligned(start: &Start, erase_block: Bytes) -> Option<Finding> {
    let limits = start.disk.limits.filter(|limits| limits.max > Bytes::ZERO)?;
    let disk = &start.disk.name;
    let found = |id: &str, severity, message, why| Finding {
        id: id.to_owned(),
        severity,
        layer: disk.clone(),
        message,
        why,
        fix: None,
        cost: None,
        check: format!("lsblk -o NAME,START,DISC-GRAN,DISC-ALN /dev/{disk}"),
    };
    let unit = limits.granularity;
    let off = over(start.at, unit, limits.alignment);
    if off > Bytes::ZERO {
        let message = format!("The data starts {off} after a unit of {unit} that {disk} discards in.");
        let why = format!(
            "The first and the last unit of a discard are kept: up to {unit} of each is lost, and a free extent of {unit} is never discarded."
        );
        return Some(Finding {
            fix: Some("parted -a optimal DISK mkpart ...   # a new partition that starts at a whole MiB; restore the data onto it".to_owned()),
            cost: Some("The data has to be moved.".to_owned()),
            ..found("misaligned", Severity::Warning, message, why)
        });
    }
    if !is_flash(&start.disk.kind) {
        return None;
    }
    let off = over(start.at, erase_block, Bytes::ZERO);
    let message = format!("The data starts {off} after an erase block of {erase_block} on {disk}.");
    let why = "That size is assumed unless --drive names a profile. Most drives map pages and don't mind; SD cards, eMMC and simple USB sticks may copy an erase block at each edge.".to_owned();
    (off > Bytes::ZERO).then(|| found("erase-block", Severity::Note, message, why))
}
