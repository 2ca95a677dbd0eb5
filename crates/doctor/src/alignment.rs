//! Checks the alignment of a stack's data on each disk against the disk's discard units.

use std::collections::{BTreeMap, BTreeSet};

use trimtab_core::verdict::{Finding, Severity};
use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::stack::{Layer, LayerKind, MapLine, Stack, Transport};

/// The most parts that are followed down: many more than any real stack has.
const MOST_PARTS: usize = 4096;
/// An upper bound for devices and units.
const LARGEST: Bytes = Bytes(1 << 62);

/// A part of the target that is contiguous on a layer.
#[derive(Clone, Copy)]
struct Part {
    layer: usize,
    start: Bytes,
    /// Its length; `None` if it extends to the layer's end.
    length: Option<Bytes>,
}

/// Returns where the target lies on each disk and loop device, by layer index.
fn places(stack: &Stack) -> BTreeMap<usize, ExtentSet> {
    let mut places: BTreeMap<usize, ExtentSet> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut open = vec![Part { layer: 0, start: Bytes::ZERO, length: None }];
    while let Some(part) = open.pop() {
        let Some(layer) = stack.layers.get(part.layer) else { continue };
        let rest = layer.size.map(|size| size.saturating_sub(part.start));
        let part = Part { length: part.length.or(rest), ..part };
        // The discard unit of a loop device belongs to the file system that holds its file.
        if part.layer > 0 && (layer.below.is_empty() || matches!(layer.kind, LayerKind::Loop { .. })) {
            places.entry(part.layer).or_default().insert(part.extent());
        }
        let below = parts_below(stack, layer, part).into_iter().filter(|lower| lower.layer > part.layer);
        open.extend(below.filter(|lower| seen.len() < MOST_PARTS && seen.insert((lower.layer, lower.start))));
    }
    places
}

impl Part {
    fn extent(self) -> Extent {
        Extent::at(self.start.min(LARGEST), self.length.unwrap_or_default().min(LARGEST))
    }
}

/// Returns where `part` of a layer lies on the layers below it.
fn parts_below(stack: &Stack, layer: &Layer, part: Part) -> Vec<Part> {
    match &layer.kind {
        LayerKind::DeviceMapper(lines) if lines.len() > 1 => {
            lines.iter().filter_map(|line| part_on(stack, layer, line, part)).collect()
        }
        kind if is_striped(kind) && part.start > Bytes::ZERO => Vec::new(),
        kind => {
            // Striped data takes less of each.
            let length = part.length.filter(|_| !is_striped(kind));
            let start = |from: Bytes| from.0.checked_add(part.start.0).map(Bytes);
            let below = layer.below.iter().filter_map(|below| Some((below.layer, start(below.start?)?)));
            below.map(|(layer, start)| Part { layer, start, length }).collect()
        }
    }
}

/// Returns true if a layer stripes its data over several others, so that only the start of its data is at a
/// known position.
fn is_striped(kind: &LayerKind) -> bool {
    match kind {
        LayerKind::Raid(raid) => raid.level != "raid1",
        LayerKind::DeviceMapper(lines) => lines.iter().any(|line| line.target == "striped"),
        _ => false,
    }
}

/// Returns where the piece of `part` that a table line maps lies; `None` if that isn't contiguous.
fn part_on(stack: &Stack, layer: &Layer, line: &MapLine, part: Part) -> Option<Part> {
    let (number, start) = line.linear()?;
    let mapped = part.extent().intersect(line.extent);
    let is_it = |lower: &usize| stack.layers[*lower].number == Some(number);
    let layer = layer.below.iter().map(|below| below.layer).find(is_it).filter(|_| !mapped.is_empty())?;
    let start = start.0.checked_add(mapped.start.0 - line.extent.start.0).map(Bytes)?;
    Some(Part { layer, start, length: Some(mapped.len()) })
}

/// Returns true if it may be a drive, and is neither memory nor on another machine.
fn is_flash(kind: &LayerKind) -> bool {
    match kind {
        LayerKind::Nvme | LayerKind::Mmc => true,
        LayerKind::Scsi(scsi) => scsi.transport != Transport::Virtio,
        _ => false,
    }
}

/// The discard units or erase blocks of a disk.
struct Units {
    /// The name of a unit in sentences.
    one: String,
    size: Bytes,
    /// Where the first starts.
    from: Bytes,
}

impl Units {
    /// Returns the offset of `at` in its unit.
    fn over(&self, at: Bytes) -> Bytes {
        let (at, from) = (at.0 % self.size.0, self.from.0 % self.size.0);
        Bytes(if at >= from { at - from } else { self.size.0 - (from - at) })
    }

    /// Returns how much of `extent` is in no whole unit.
    fn lost(&self, extent: Extent) -> Bytes {
        let shift = self.over(Bytes::ZERO);
        let shifted = Extent::at(extent.start + shift, extent.len());
        extent.len() - shifted.aligned_inside(self.size).len()
    }

    /// Describes in a sentence how the data at `place` is misaligned; `None` if it begins, and each of several
    /// pieces begins and ends, at a unit boundary.
    fn amiss(&self, place: &ExtentSet) -> Option<String> {
        if self.size == Bytes::ZERO || self.size > LARGEST {
            return None;
        }
        let one = &self.one;
        if let (1, Some(only)) = (place.count(), place.iter().next()) {
            let off = self.over(only.start);
            return (off > Bytes::ZERO).then(|| format!("The data starts {off} after {one}."));
        }
        let lost = place.iter().map(|extent| self.lost(extent)).filter(|lost| *lost > Bytes::ZERO);
        let lost: Vec<_> = lost.collect();
        let sum: Bytes = lost.iter().copied().sum();
        let share = sum.0 as f64 / place.len().0 as f64 * 100.0;
        let (pieces, cut) = (place.count(), lost.len());
        (cut > 0).then(|| {
            format!(
                "Of the {pieces} pieces that the data lies in, {cut} begin or end inside {one}: {sum} \
                 ({share:.2} %) is in no whole one."
            )
        })
    }
}

/// Returns the findings on the alignment of a stack's data.
pub(super) fn findings(stack: &Stack, erase_block: Bytes) -> Vec<Finding> {
    let places = places(stack);
    places.iter().filter_map(|(disk, place)| misaligned(&stack.layers[*disk], place, erase_block)).collect()
}

fn misaligned(disk: &Layer, place: &ExtentSet, erase_block: Bytes) -> Option<Finding> {
    let limits = disk.limits.filter(|limits| limits.max > Bytes::ZERO)?;
    let found = |id: &str, severity, message, why| Finding {
        id: id.to_owned(),
        severity,
        layer: disk.name.clone(),
        message,
        why,
        fix: None,
        cost: None,
        check: format!("lsblk -o NAME,START,DISC-GRAN,DISC-ALN /dev/{}", disk.name),
    };
    let unit = match disk.kind {
        // The granularity of a card is what it erases best; it takes what it can erase.
        LayerKind::Mmc => disk.announced.erase.as_ref().and_then(|erase| erase.unit).unwrap_or_default(),
        _ => limits.granularity,
    };
    let one = format!("a unit of {unit} that {} discards in", disk.name);
    let discarded = Units { one, size: unit, from: limits.alignment };
    if let Some(message) = discarded.amiss(place) {
        let why = format!(
            "The first and the last unit of a discard are kept: up to {unit} of each is lost, and a free extent of {unit} is never discarded."
        );
        return Some(Finding {
            fix: Some("parted -a optimal DISK mkpart ...   # a new partition that starts at a whole MiB; restore the data onto it".to_owned()),
            cost: Some("The data has to be moved.".to_owned()),
            ..found("misaligned", Severity::Warning, message, why)
        });
    }
    let of_card = disk.announced.erase.as_ref().and_then(|erase| erase.preferred);
    let says = match of_card {
        Some(_) => "The card says that size.",
        None => "That size is assumed unless --profile names a profile.",
    };
    let size = of_card.unwrap_or(erase_block);
    let one = format!("an erase block of {size} on {}", disk.name);
    let message = Units { one, size, from: Bytes::ZERO }.amiss(place).filter(|_| is_flash(&disk.kind))?;
    let why = format!(
        "{says} Most drives map pages and don't mind; SD cards, eMMC and simple USB sticks may copy an erase block at each edge."
    );
    Some(found("erase-block-edges", Severity::Note, message, why))
}
