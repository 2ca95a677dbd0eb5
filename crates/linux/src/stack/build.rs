//! Walks from a target down.

use std::path::Path;

use trimtab_core::Bytes;
use trimtab_core::device::Announced;

use super::device::Place;
use super::in_use::{InUse, Node, device_named};
use super::{Below, Layer, LayerKind, Machine, Stack, StackError, device, file_system};
use crate::mount::Mount;

/// The most layers on top of each other, and the most in all.
const MOST_DEEP: usize = 64;
const MOST_LAYERS: usize = 4096;

impl Stack {
    /// The stack below `target`: a mount point, a file for the file system it is on, a block device,
    /// or the device or file of active swap. Of a captured machine, only what was captured can be asked, and no
    /// file.
    ///
    /// # Errors
    /// [`StackError`]: there is no such target, or sysfs can't be read or makes no sense.
    pub fn of(machine: &Machine, target: &Path) -> Result<Self, StackError> {
        let in_use = InUse::of(machine)?;
        let top = in_use.find(machine, target)?;
        Self::below(top, machine, &in_use)
    }

    /// The stack below `mount`, which stays untouched: whoever looks up its path keeps it from being unmounted meanwhile.
    ///
    /// # Errors
    /// [`StackError`]: sysfs can't be read or makes no sense.
    pub fn of_mount(machine: &Machine, mount: Mount) -> Result<Self, StackError> {
        Self::below(Node::FileSystem(mount), machine, &InUse::of(machine)?)
    }

    fn below(top: Node, machine: &Machine, in_use: &InUse) -> Result<Self, StackError> {
        let mut walk = Walk { machine, in_use, above: Vec::new(), done: Vec::new() };
        walk.descend(top)?;
        // A layer was done after those below it.
        let last = walk.done.len() - 1;
        let mut layers: Vec<_> = walk.done.into_iter().rev().map(|(_, layer)| layer).collect();
        for below in layers.iter_mut().flat_map(|layer| &mut layer.below) {
            below.layer = last - below.layer;
        }
        Ok(Self { layers })
    }
}

struct Walk<'a> {
    machine: &'a Machine,
    in_use: &'a InUse,
    /// The layers that are being examined, from the target down.
    above: Vec<Node>,
    /// The layers that are done, with the layers below each counted from the first that was done.
    done: Vec<(Node, Layer)>,
}

impl Walk<'_> {
    /// Adds what `node` is and all below it; returns its place among what is done.
    fn descend(&mut self, node: Node) -> Result<usize, StackError> {
        if let Some(at) = self.done.iter().position(|(done, _)| *done == node) {
            return Ok(at);
        }
        if self.above.contains(&node) {
            let name = self.look(&node)?.0.name;
            return Err(StackError::Cyclic { name });
        }
        if self.above.len() == MOST_DEEP || self.done.len() == MOST_LAYERS {
            return Err(StackError::TooDeep(self.above.len().max(self.done.len())));
        }
        let (mut layer, mut places) = self.look(&node)?;
        self.above.push(node.clone());
        // A file that seems to be on what lies on it is another mount namespace's.
        places.retain(|(below, _)| !matches!(below, Node::FileSystem(_)) || !self.above.contains(below));
        // The last is done first, so that the first comes first when all is turned around.
        for (below, start) in places.into_iter().rev() {
            layer.below.insert(0, Below { layer: self.descend(below)?, start });
        }
        self.above.pop();
        self.done.push((node, layer));
        Ok(self.done.len() - 1)
    }

    /// Returns the layer of `node`, and the layers below it.
    fn look(&self, node: &Node) -> Result<(Layer, Vec<Place>), StackError> {
        let (machine, in_use) = (self.machine, self.in_use);
        Ok(match node {
            Node::FileSystem(mount) => {
                let mut description = file_system::describe(mount, &in_use.mounts);
                // A bind mount may be read-only by itself.
                let read_only = mount.super_options.split(',').any(|option| option == "ro");
                let places = file_system::below(machine, in_use, mount)?;
                description.undiscarded = file_system::undiscarded(mount, &places);
                (named(&mount.target, LayerKind::FileSystem(description), None, read_only), places)
            }
            Node::Swap(swap) => {
                let below = if swap.is_file {
                    in_use.holding(machine, &swap.path).map(|node| (node, None))
                } else {
                    device_named(machine, in_use, &swap.path)?
                        .map(|device| (Node::Device(device), Some(Bytes::ZERO)))
                };
                (named(&swap.path, LayerKind::Swap, swap.size, false), below.into_iter().collect())
            }
            Node::Device(device) => {
                let layer = device::describe(machine, device)?;
                let places = device::below(machine, in_use, device, &layer.kind)?;
                (layer, places)
            }
        })
    }
}

/// A layer without a queue, named by its path.
fn named(path: &Path, kind: LayerKind, size: Option<Bytes>, read_only: bool) -> Layer {
    Layer {
        name: path.display().to_string(),
        label: None,
        kind,
        subsystem: None,
        number: None,
        size,
        limits: None,
        fabric: None,
        announced: Announced::default(),
        rotational: false,
        zoned: false,
        read_only,
        below: Vec::new(),
    }
}
