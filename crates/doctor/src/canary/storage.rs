//! Reads how much storage a thinly provisioned layer has allocated.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use trimtab_core::Bytes;
use trimtab_linux::SYSFS;
use trimtab_linux::ioctl::device_status;
use trimtab_linux::stack::{Layer, LayerKind, MapLine, Stack};

use super::super::mapper;
use super::layout::Layout;

/// Returns the allocated storage of each layer that has some of the canary; `None` if unknown.
pub(super) fn used(stack: &Stack, layout: &Layout) -> Vec<Option<Bytes>> {
    let places = stack.layers.iter().zip(&layout.places);
    places.map(|(layer, place)| place.as_ref().and_then(|_| used_by(layer))).collect()
}

fn used_by(layer: &Layer) -> Option<Bytes> {
    let used = match &layer.kind {
        LayerKind::Loop { file } => fs::metadata(file).ok()?.blocks() * 512,
        LayerKind::Zram => {
            // ORIGINAL COMPRESSED ..., see the kernel's Documentation/admin-guide/blockdev/zram.rst.
            let statistics = Path::new(SYSFS).join("class/block").join(&layer.name).join("mm_stat");
            fs::read_to_string(statistics).ok()?.split_whitespace().nth(1)?.parse().ok()?
        }
        LayerKind::DeviceMapper(lines) => used_by_pool(layer, lines)?,
        _ => return None,
    };
    // A file system that doesn't count the blocks of files reports zero.
    (used > 0).then_some(Bytes(used))
}

/// Returns the used bytes of a thin pool; see the kernel's
/// Documentation/admin-guide/device-mapper/thin-provisioning.rst.
fn used_by_pool(layer: &Layer, lines: &[MapLine]) -> Option<u64> {
    let [line] = lines else { return None };
    let chunk = mapper::chunk(line).filter(|_| line.target == "thin-pool")?;
    let status = device_status(File::open("/dev/mapper/control").ok()?, layer.number?).ok()?;
    // TRANSACTION USED/ALL of the metadata's blocks, USED/ALL of the data's ...
    let (blocks, _) = status.first()?.parameters.split(' ').nth(2)?.split_once('/')?;
    blocks.parse::<u64>().ok()?.checked_mul(chunk.0)
}
