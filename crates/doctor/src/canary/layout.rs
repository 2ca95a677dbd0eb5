//! Follows a canary's position down the layers of a stack.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::block::BlockDevice;
use trimtab_linux::stack::{Below, Layer, LayerKind, MapLine, Stack};
use trimtab_linux::{SYSFS, loop_device, trim};

use super::super::mapper;
use super::host::Host;

/// The position of a canary on a layer.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Place {
    /// Bytes of the device.
    pub extents: ExtentSet,
    /// Whether it occupies exactly these bytes, and is not just somewhere among them.
    pub is_exact: bool,
}

/// The position of a canary on all layers.
#[derive(Debug)]
pub(super) struct Layout {
    /// By layer of the stack; none for file systems, and for layers without any of it.
    pub places: Vec<Option<Place>>,
    /// The file systems that hold it, the upper first.
    pub hosts: Vec<Host>,
}

impl Layout {
    /// Follows a canary from the file system that holds it down.
    pub fn below(stack: &Stack, host: Host) -> Self {
        let first = host.layer;
        let mut layout = Self { places: vec![None; stack.layers.len()], hosts: Vec::new() };
        layout.add_host(stack, host);
        // Each layer comes before those it lies on.
        for index in first + 1..stack.layers.len() {
            let layer = &stack.layers[index];
            let Some(place) = layout.places[index].clone() else { continue };
            match file_behind(stack, layer) {
                // The layers below a file that can't be examined stay unknown.
                Some((holder, file)) => {
                    if let Ok(Some(host)) = host_of_file(stack, holder, layer, file, &place) {
                        layout.add_host(stack, host);
                    }
                }
                None => places_below(stack, layer, &place)
                    .into_iter()
                    .for_each(|(lower, place)| layout.add(lower, place)),
            }
        }
        layout
    }

    fn add_host(&mut self, stack: &Stack, host: Host) {
        for piece in &host.pieces {
            for (lower, extent) in &piece.copies {
                self.add(*lower, Place { extents: [*extent].into_iter().collect(), is_exact: true });
            }
            if piece.copies.is_empty() {
                for (lower, place) in somewhere_below(stack, &stack.layers[host.layer]) {
                    self.add(lower, place);
                }
            }
        }
        self.hosts.push(host);
    }

    fn add(&mut self, layer: usize, place: Place) {
        let known = self.places[layer].get_or_insert(Place { is_exact: true, ..Place::default() });
        known.is_exact &= place.is_exact;
        place.extents.iter().for_each(|extent| known.extents.insert(extent));
    }
}

/// Returns the file behind a loop device, and the layer of its file system.
fn file_behind<'a>(stack: &Stack, layer: &'a Layer) -> Option<(usize, &'a Path)> {
    let (LayerKind::Loop { file }, [below]) = (&layer.kind, layer.below.as_slice()) else { return None };
    matches!(stack.layers[below.layer].kind, LayerKind::FileSystem(_)).then_some((below.layer, file))
}

/// Returns the file system that holds the file of a loop device with the canary at `place`; `None` if the
/// position isn't exact, the device takes no discards, or the file system can't be seen from here.
fn host_of_file(
    stack: &Stack,
    holder: usize,
    device: &Layer,
    path: &Path,
    place: &Place,
) -> io::Result<Option<Host>> {
    let LayerKind::FileSystem(file_system) = &stack.layers[holder].kind else { return Ok(None) };
    if device.limits.is_some_and(|limits| limits.max == Bytes::ZERO) {
        return Ok(None);
    }
    let directory = file_system.targets.iter().find(|target| path.starts_with(target));
    let Some(directory) = directory.filter(|_| place.is_exact && !stack.layers[holder].below.is_empty())
    else {
        return Ok(None);
    };
    let file = File::open(path)?;
    let block = BlockDevice::open(Path::new(SYSFS), &Path::new("/dev").join(&device.name));
    let block = block.map_err(io::Error::other)?;
    // The kernel's path may lead to another file, for example in another mount namespace.
    if !loop_device::is_behind(&file, &block).map_err(io::Error::other)? {
        return Ok(None);
    }
    let offset = Path::new(SYSFS).join("class/block").join(&device.name).join("loop/offset");
    let offset = Bytes(fs::read_to_string(offset)?.trim().parse().map_err(io::Error::other)?);
    trim::sync(directory).map_err(io::Error::other)?;
    let mut all = Host { layer: holder, directory: directory.to_owned(), pieces: Vec::new() };
    for extent in place.extents.iter() {
        let range = Extent::at(offset + extent.start, extent.len());
        all.pieces.append(&mut Host::of(stack, holder, directory, &file, range)?.pieces);
    }
    Ok(Some(all))
}

/// Translates `place` of a device to the layers below it.
fn places_below(stack: &Stack, layer: &Layer, place: &Place) -> Vec<(usize, Place)> {
    if let LayerKind::DeviceMapper(lines) = &layer.kind
        && lines.len() > 1
        && lines.iter().all(|line| line.target == "linear")
    {
        return lines.iter().filter_map(|line| on_line(stack, layer, line, place)).collect();
    }
    let in_a_row = layer.below.iter().filter_map(|below| Some((below.layer, below.start?)));
    let places: Vec<_> = in_a_row.map(|(lower, start)| (lower, moved(place, Bytes::ZERO, start))).collect();
    // Without an exact position, or if the data is striped, it is somewhere on each.
    if places.is_empty() || !each_has_all(&layer.kind) { somewhere_below(stack, layer) } else { places }
}

/// Returns true if each device below with a contiguous layout has all of the data.
fn each_has_all(kind: &LayerKind) -> bool {
    match kind {
        LayerKind::Raid(raid) => raid.level == "raid1",
        LayerKind::DeviceMapper(lines) => {
            lines.iter().all(|line| !matches!(line.target.as_str(), "striped" | "multipath"))
        }
        _ => true,
    }
}

/// Translates the part of `place` that a line of the target `linear` maps to its device.
fn on_line(stack: &Stack, layer: &Layer, line: &MapLine, place: &Place) -> Option<(usize, Place)> {
    let (number, start) = line.linear()?;
    let is_it = |lower: &usize| stack.layers[*lower].number == Some(number);
    let lower = layer.below.iter().map(|below| below.layer).find(is_it)?;
    let part = Place { extents: place.extents.inside(line.extent).collect(), is_exact: place.is_exact };
    (!part.extents.is_empty()).then(|| (lower, moved(&part, line.extent.start, start)))
}

/// Returns `place` moved by the distance from `from` to `to`.
fn moved(place: &Place, from: Bytes, to: Bytes) -> Place {
    let extents = place.extents.iter().map(|extent| Extent::at(to + (extent.start - from), extent.len()));
    Place { extents: extents.collect(), is_exact: place.is_exact }
}

/// Returns all of each device below, without the spares of a RAID, the only members without a known data
/// offset.
fn somewhere_below(stack: &Stack, layer: &Layer) -> Vec<(usize, Place)> {
    let anywhere = |lower: usize| {
        let whole = Extent::at(Bytes::ZERO, stack.layers[lower].size.unwrap_or_default());
        (lower, Place { extents: [whole].into_iter().collect(), is_exact: false })
    };
    let is_spare = |below: &&Below| {
        let is_known = |below: &Below| below.start.is_some();
        matches!(layer.kind, LayerKind::Raid(_)) && !is_known(below) && layer.below.iter().any(is_known)
    };
    // A cache or metadata gets none of what the data gets.
    let data = mapper::data_below(stack, layer);
    let members = layer.below.iter().filter(|below| !is_spare(below) && data.contains(&below.layer));
    members.map(|below| anywhere(below.layer)).collect()
}
