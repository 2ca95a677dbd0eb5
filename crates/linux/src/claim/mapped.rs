//! Devices of the device mapper, and the drives that they have lost.

use crate::block::{BlockDevice, BlockError, DeviceNumber};
use crate::ioctl::MapLine;
use crate::stack::Machine;

/// The beginning of the UUID of a multipath device; the WWID of its drive follows.
const MULTIPATH: &str = "mpath-";
/// The major numbers of SCSI disks (`include/uapi/linux/major.h`).
const SCSI_MAJORS: [u32; 16] = [8, 65, 66, 67, 68, 69, 70, 71, 128, 129, 130, 131, 132, 133, 134, 135];

/// A device of the device mapper.
#[derive(Debug)]
pub(super) struct Mapped {
    pub device: BlockDevice,
    uuid: String,
    lines: Vec<MapLine>,
    /// The devices that it is on at the moment.
    slaves: Vec<BlockDevice>,
    /// The numbers in its table that no device has any more.
    lost: Vec<DeviceNumber>,
}

/// Returns the devices of the device mapper on `machine`.
///
/// # Errors
/// [`BlockError`].
pub(super) fn mapped(machine: &Machine, sysfs: &std::path::Path) -> Result<Vec<Mapped>, BlockError> {
    let mut all = Vec::new();
    for device in BlockDevice::disks(sysfs)? {
        let Ok(uuid) = std::fs::read_to_string(device.attribute("dm/uuid")) else { continue };
        let lines = machine.map(device.number()?).unwrap_or_default();
        let mut lost: Vec<_> = lines.iter().flat_map(numbers).collect();
        lost.retain(|number| BlockDevice::numbered(sysfs, *number).is_none());
        let slaves = device.slaves()?;
        all.push(Mapped { device, uuid: uuid.trim().to_owned(), lines, slaves, lost });
    }
    Ok(all)
}

/// The device numbers in the parameters of a table's line.
fn numbers(line: &MapLine) -> impl Iterator<Item = DeviceNumber> {
    line.parameters.split_whitespace().filter_map(|word| word.parse().ok())
}

impl Mapped {
    /// Returns whether `disk` may be a drive that it was on and will use again: of a multipath device, a path to
    /// its drive; otherwise any disk of the same kind as one that is gone.
    pub fn may_have_lost(&self, disk: &BlockDevice) -> bool {
        if *disk == self.device || self.slaves.iter().any(|slave| slave.whole() == *disk) {
            return false;
        }
        let is_path = || {
            let name = self.uuid.strip_prefix(MULTIPATH)?;
            let wwid = disk.wwid()?;
            Some(name.ends_with(wwid.rsplit('.').next()?))
        };
        let is_of_kind = |lost: &DeviceNumber| {
            let kind = |major: u32| if SCSI_MAJORS.contains(&major) { SCSI_MAJORS[0] } else { major };
            disk.number().is_ok_and(|number| kind(number.major) == kind(lost.major))
        };
        is_path().unwrap_or(false) || self.lost.iter().any(is_of_kind)
    }

    /// Returns whether it is a pool of thin volumes.
    pub fn is_pool(&self) -> bool {
        self.lines.iter().any(|line| line.target == "thin-pool")
    }

    /// Returns how many bytes of `device` it uses from the start on; none if its table doesn't tell, as one that is
    /// loaded and not in use yet, or of another target than these.
    pub fn reach(&self, device: DeviceNumber) -> Option<u64> {
        let is_on_it = |line: &&MapLine| numbers(line).any(|number| number == device);
        let lines = self.lines.iter().filter(is_on_it).map(|line| {
            let words: Vec<_> = line.parameters.split_whitespace().collect();
            let share = match line.target.as_str() {
                "linear" | "crypt" => 1,
                "striped" => words.first()?.parse().ok().filter(|stripes| *stripes > 0)?,
                _ => return None,
            };
            let pairs = words.windows(2).filter(|pair| pair[0].parse() == Ok(device));
            let ends = pairs.map(|pair| {
                let offset: u64 = pair[1].parse().ok()?;
                offset.checked_mul(512)?.checked_add(line.extent.len().0.div_ceil(share))
            });
            ends.collect::<Option<Vec<_>>>()?.into_iter().max()
        });
        lines.collect::<Option<Vec<_>>>()?.into_iter().max()
    }
}
