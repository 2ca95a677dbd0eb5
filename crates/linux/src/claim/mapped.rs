//! Devices of the device mapper, and the drives that they have lost.

use trimtab_core::{Bytes, Extent};

use super::ClaimError;
use crate::block::{BlockDevice, DeviceNumber};
use crate::ioctl::MapLine;
use crate::stack::Machine;

/// The beginning of the UUID of a multipath device; the WWID of its drive follows.
const MULTIPATH: &str = "mpath-";
/// The beginnings of the names of disks that multipath-tools make such devices of (`sysfs_pathinfo` in
/// `libmultipath/discovery.c`).
const PATHS: [&str; 4] = ["sd", "nvme", "dasd", "cciss/"];
/// The major numbers of SCSI disks (`include/uapi/linux/major.h`).
const SCSI_MAJORS: [u32; 16] = [8, 65, 66, 67, 68, 69, 70, 71, 128, 129, 130, 131, 132, 133, 134, 135];

/// A device of the device mapper.
#[derive(Debug)]
pub(super) struct Mapped {
    pub device: BlockDevice,
    uuid: String,
    /// The lines of its table, and of the table that takes effect when it is resumed.
    lines: Vec<MapLine>,
    /// The devices that it is on at the moment.
    slaves: Vec<BlockDevice>,
    /// The numbers in its table that no device has any more.
    lost: Vec<DeviceNumber>,
}

/// Whether a disk is a drive that a device was on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// It may be, by its WWID or by the number of what was lost.
    Likely,
    /// Nothing tells that it isn't.
    Unknown,
}

/// Returns the devices of the device mapper on `machine`.
///
/// # Errors
/// [`ClaimError::Block`] or [`ClaimError::Table`].
pub(super) fn mapped(machine: &Machine, sysfs: &std::path::Path) -> Result<Vec<Mapped>, ClaimError> {
    let mut all = Vec::new();
    for device in BlockDevice::disks(sysfs)? {
        // Any bytes but a zero can be in it.
        let Ok(uuid) = std::fs::read(device.attribute("dm/uuid")) else { continue };
        let uuid = String::from_utf8_lossy(&uuid);
        let number = device.number()?;
        let tables = machine.map(number).zip(machine.inactive_map(number));
        let Some((mut lines, loaded)) = tables else {
            // It may be gone by now.
            if device.attribute("dm/uuid").exists() {
                return Err(ClaimError::Table { device: device.path().display().to_string() });
            }
            continue;
        };
        lines.extend(loaded);
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
    /// its drive; otherwise any disk of the same kind as one that is gone. None where it is no such drive.
    pub fn may_have_lost(&self, disk: &BlockDevice) -> Option<Loss> {
        if *disk == self.device || self.slaves.iter().any(|slave| slave.whole() == *disk) {
            return None;
        }
        let is_of_kind = |lost: &DeviceNumber| {
            let kind = |major: u32| if SCSI_MAJORS.contains(&major) { SCSI_MAJORS[0] } else { major };
            disk.number().is_ok_and(|number| kind(number.major) == kind(lost.major))
        };
        if self.lost.iter().any(is_of_kind) {
            return Some(Loss::Likely);
        }
        let name = self.uuid.strip_prefix(MULTIPATH);
        let wwid = disk.wwid();
        if let (Some(name), Some(wwid)) = (name, &wwid)
            && wwid.rsplit('.').next().is_some_and(|wwid| name.ends_with(wwid))
        {
            return Some(Loss::Likely);
        }
        let is_multipath = name.is_some() || self.is_multipath();
        let may_be_path = PATHS.iter().any(|kind| disk.name().starts_with(kind));
        // A path that is there has the WWID that a further one is known by.
        let has_known_path = self.slaves.iter().any(|slave| slave.whole().wwid().is_some());
        if !is_multipath || !may_be_path || (has_known_path && wwid.is_some()) {
            return None;
        }
        match (name, wwid) {
            (Some(name), Some(wwid)) if are_of_two_drives(name, &wwid) => None,
            _ => Some(Loss::Unknown),
        }
    }

    fn is_multipath(&self) -> bool {
        self.lines.iter().any(|line| line.target == "multipath")
    }

    /// Returns whether it is a multipath device without any path.
    pub fn lacks_paths(&self) -> bool {
        self.is_multipath() && self.slaves.is_empty()
    }

    /// Returns whether it is a pool of thin volumes.
    pub fn is_pool(&self) -> bool {
        self.lines.iter().any(|line| line.target == "thin-pool")
    }

    /// Returns whether cryptsetup made it.
    pub fn is_encrypted(&self) -> bool {
        self.uuid.starts_with("CRYPT-")
    }

    /// Returns whether LVM made it.
    pub fn is_by_lvm(&self) -> bool {
        self.uuid.starts_with("LVM-")
    }

    /// Returns whether it is a thin volume of one pool.
    pub fn is_thin(&self) -> bool {
        !self.lines.is_empty() && self.lines.iter().all(|line| line.target == "thin")
    }

    /// Returns how many bytes of `device` it uses from the start on; `None` if its table doesn't tell, as one that is
    /// loaded and not in use yet, or of another target than these.
    pub fn reach(&self, device: DeviceNumber) -> Option<u64> {
        self.extents(device)?.iter().map(|extent| extent.end.0).max()
    }

    /// Returns the parts of `device` that it uses; none as of [`reach`](Self::reach).
    pub fn extents(&self, device: DeviceNumber) -> Option<Vec<Extent>> {
        let is_on_it = |line: &&MapLine| numbers(line).any(|number| number == device);
        let lines = self.lines.iter().filter(is_on_it).map(|line| {
            let words: Vec<_> = line.parameters.split_whitespace().collect();
            let share = match line.target.as_str() {
                "linear" | "crypt" => 1,
                "striped" => words.first()?.parse().ok().filter(|stripes| *stripes > 0)?,
                _ => return None,
            };
            let pairs = words.windows(2).filter(|pair| pair[0].parse() == Ok(device));
            let extents = pairs.map(|pair| {
                let start: u64 = pair[1].parse::<u64>().ok()?.checked_mul(512)?;
                let end = start.checked_add(line.extent.len().0.div_ceil(share))?;
                Some(Extent::new(Bytes(start), Bytes(end)))
            });
            extents.collect::<Option<Vec<_>>>()
        });
        let extents = lines.collect::<Option<Vec<_>>>()?.concat();
        (!extents.is_empty()).then_some(extents)
    }
}

/// Returns whether the name `name` that multipath-tools gave a drive, and the WWID `wwid` that the kernel has of a disk,
/// are of one form and differ. Both take a drive's NAA identifier of 16 bytes rather than one of 8; any other name may
/// be of the drive's EUI-64, vendor, model or serial number, cut or with `_` for blanks, where the kernel takes another
/// of its identifiers (`parse_vpd_pg83` in `libmultipath/discovery.c`; `designator_prio` in `drivers/scsi/scsi_lib.c`).
fn are_of_two_drives(name: &str, wwid: &str) -> bool {
    let is_hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_naa = |digits: &str| [16, 32].contains(&digits.len()) && is_hexadecimal(digits);
    if let (Some(name), Some(wwid)) = (name.strip_prefix('3'), wwid.strip_prefix("naa.")) {
        return is_naa(name) && is_naa(wwid) && name.len() == wwid.len() && !name.eq_ignore_ascii_case(wwid);
    }
    // NVMe's are taken as they are, and these fit in their place of 128 bytes.
    ["eui.", "uuid."].iter().any(|form| {
        let both = name.strip_prefix(form).zip(wwid.strip_prefix(form));
        both.is_some_and(|(name, wwid)| name.len() == wwid.len() && !name.eq_ignore_ascii_case(wwid))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_two_drives_are_of_one_form() {
        for (name, wwid, are_two) in [
            ("35000c50015ea71ad", "naa.5000c50015ea71ae", true),
            ("35000c50015ea71ad", "naa.5000C50015EA71AD", false),
            ("35000c50015ea71ad", "naa.600508b1001c5000c50015ea71ad0000", false),
            ("3600508b1001c5000c50015ea71ad0000", "naa.600508b1001c5000c50015ea71ad0001", true),
            ("35000c50015ea71ad", "eui.5000c50015ea71ae", false),
            ("35000c50015ea71ad", "t10.ATA     QEMU HARDDISK  disk1", false),
            ("QEMU_HARDDISK_disk1", "t10.ATA     QEMU HARDDISK  disk2", false),
            ("3QEMU_HARDDISK_disk", "naa.5000c50015ea71ad", false),
            ("eui.0025385b71b00e2f", "eui.0025385b71b00e30", true),
            ("eui.0025385b71b00e2f", "eui.00000000000000000025385b71b00e30", false),
            ("eui.0025385b71b00e2f", "nvme.1b36-6469736b30-51454d55-00000001", false),
            ("nvme.1b36-6469736b30-51454d55-00000001", "nvme.1b36-6469736b31-51454d55-00000001", false),
        ] {
            assert_eq!(are_of_two_drives(name, wwid), are_two, "{name} and {wwid}");
        }
    }
}
