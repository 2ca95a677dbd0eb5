//! Files, devices and NVMe controllers that the kernel itself uses for others without claiming them: for a USB
//! gadget, nvmet, LIO and the heartbeat of an OCFS2 cluster.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::ClaimError;
use super::around::{Around, place};
use super::configfs::ConfigFs;
use super::uses::Use;
use crate::block::{BlockDevice, BlockError, DeviceNumber, children};
use crate::mount::Namespace;

/// A device or file that is served, and its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Exported {
    /// The path that the server has of it.
    pub path: PathBuf,
    /// Where it is set up.
    pub server: PathBuf,
}

/// Where the path of what is served can be read in sysfs, `*` standing for the rest of a name.
const LEGACY_GADGETS: &str = "class/udc/*/device/gadget*/lun*/file";
/// The same in configfs.
const GADGETS: &str = "usb_gadget/*/functions/mass_storage.*/lun.*/file";
const NVMET: &str = "nvmet/subsystems/*/namespaces/*/device_path";
/// The character device of a controller, whose commands are all passed through.
const PASSTHRU: &str = "nvmet/subsystems/*/passthru/device_path";
/// The name of a disk that carries the heartbeat of an OCFS2 cluster.
const HEARTBEAT: &str = "cluster/*/heartbeat/*/dev";
const IBLOCK: &str = "target/core/iblock_*/*/info";
const FILEIO: &str = "target/core/fileio_*/*/info";
/// The names that LIO gives the units which it serves.
const UNITS: &str = "target/core/*/*/wwn";
/// The vendor of such a unit, unless it was set.
const LIO: &str = "LIO-ORG";
/// The names by which other machines, or this one, reach what is served.
const TARGETS: [&str; 2] = ["nvmet/subsystems/*", "target/iscsi/*"];

/// All that the kernel serves to others.
#[derive(Debug, Default)]
pub(super) struct Exports {
    /// Files and block devices, by their paths.
    pub paths: Vec<Exported>,
    /// NVMe controllers that are served with all their namespaces, by the paths of their character devices.
    pub controllers: Vec<Exported>,
    /// Block devices that LIO serves, by their numbers, each with the directory where that is set up. LIO claims them
    /// unless it is told not to (`exclusive=0`).
    pub numbers: Vec<(DeviceNumber, PathBuf)>,
    /// The names of the targets: NQNs of nvmet, IQNs of LIO.
    pub targets: Vec<String>,
    /// The vendors of LIO's units.
    pub vendors: Vec<String>,
}

impl Exports {
    /// Looks them up in sysfs, and in configfs where there is one.
    pub fn of(sysfs: &Path, configfs: Option<&ConfigFs>) -> Self {
        let gadgets = matching(sysfs, LEGACY_GADGETS);
        let mut all = Self {
            paths: gadgets.into_iter().filter_map(|file| found(&file, line)).collect(),
            ..Self::default()
        };
        let Some(tree) = configfs else { return all };
        let read = |pattern: &str, read: fn(&[u8]) -> Option<&[u8]>| -> Vec<_> {
            matching(tree.root(), pattern).into_iter().filter_map(|file| found(&file, read)).collect()
        };
        all.paths.extend(read(GADGETS, line));
        all.paths.extend(read(NVMET, nvmet));
        let heartbeats = read(HEARTBEAT, line).into_iter();
        all.paths
            .extend(heartbeats.map(|disk| Exported { path: Path::new("/dev").join(&disk.path), ..disk }));
        all.paths.extend(read(FILEIO, fileio));
        all.controllers = read(PASSTHRU, nvmet);
        for file in matching(tree.root(), IBLOCK) {
            let number = fs::read(&file).ok().and_then(|text| iblock(&text));
            all.numbers.extend(number.zip(file.parent().map(Path::to_owned)));
        }
        for target in TARGETS.iter().flat_map(|pattern| matching(tree.root(), pattern)) {
            all.targets.extend(target.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
        let units = matching(tree.root(), UNITS).into_iter().filter(|names| names.is_dir());
        all.vendors.extend(units.map(|names| vendor(&names)));
        for export in all.paths.iter_mut().chain(&mut all.controllers) {
            export.server = tree.usual(&export.server);
        }
        for (_, server) in &mut all.numbers {
            *server = tree.usual(server);
        }
        all
    }
}

/// The number in `iBlock device: sdb  UDEV PATH: /dev/sdb ... Major: 8 Minor: 16  CLAIMED: IBLOCK`.
fn iblock(text: &[u8]) -> Option<DeviceNumber> {
    let text = String::from_utf8_lossy(text);
    let field = |name: &str| text.rsplit_once(name)?.1.split_ascii_whitespace().next()?.parse().ok();
    Some(DeviceNumber { major: field("Major: ")?, minor: field("Minor: ")? })
}

/// The vendor of the unit whose names are in the directory `names`: of `T10 Vendor Identification: LIO-ORG`.
fn vendor(names: &Path) -> String {
    let text = fs::read_to_string(names.join("vendor_id")).unwrap_or_default();
    text.split_once(": ").map_or(LIO, |(_, vendor)| vendor.trim()).to_owned()
}

/// The path in a file of nvmet, unless none was set. What was taken down for a while counts as well: its clients
/// wait for it with what they have still to write.
fn nvmet(text: &[u8]) -> Option<&[u8]> {
    line(text).filter(|path| *path != b"(null)")
}

/// Returns the export that `read` finds in `file`. The kernel shows no path that is longer than a page.
fn found(file: &Path, read: fn(&[u8]) -> Option<&[u8]>) -> Option<Exported> {
    let server = file.parent()?.to_owned();
    match fs::read(file) {
        Ok(text) => {
            let path = read(&text).filter(|path| !path.is_empty())?;
            Some(Exported { path: OsStr::from_bytes(path).into(), server })
        }
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NAMETOOLONG) => {
            Some(Exported { path: PathBuf::from("/?"), server })
        }
        Err(_) => None,
    }
}

fn line(text: &[u8]) -> Option<&[u8]> {
    // A path can have a newline in it.
    Some(text.strip_suffix(b"\n").unwrap_or(text))
}

/// The path in `TCM FILEIO ID: 0        File: /images/a  Size: 67108864  Mode: ...`.
fn fileio(text: &[u8]) -> Option<&[u8]> {
    let (file, size) = (b" File: ", b"  Size: ");
    let start = text.windows(file.len()).position(|window| window == file)? + file.len();
    let end = text.windows(size.len()).rposition(|window| window == size)?;
    text.get(start..end)
}

/// The files in `directory` that match `pattern`.
fn matching(directory: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![directory.to_owned()];
    for name in pattern.split('/') {
        found = match name.split_once('*') {
            None => found.iter().map(|directory| directory.join(name)).collect(),
            Some((start, _)) => {
                let paths = found.iter().flat_map(|directory| children(directory));
                let is_such = |path: &PathBuf| {
                    path.file_name().is_some_and(|name| name.as_bytes().starts_with(start.as_bytes()))
                };
                paths.filter(is_such).collect()
            }
        };
    }
    found
}

impl Around {
    /// The devices that the kernel serves to others, or may serve, with these uses.
    pub(super) fn exported(&self) -> Result<Vec<(BlockDevice, Use)>, ClaimError> {
        let mut all = Vec::new();
        for export in &self.exports.paths {
            // A relative path led on from the directory of whoever set it.
            let seen = if export.path.is_absolute() { &self.namespaces[..] } else { &[] };
            let at = seen.iter().filter_map(|namespace| self.served_at(namespace, &export.path));
            let is_there = |namespace: &Namespace| {
                let is_file = namespace.metadata(&export.path).is_ok_and(|found| found.is_file());
                is_file || self.served_at(namespace, &export.path).is_some()
            };
            // Anyone can make a namespace in which the path leads to something.
            if !seen.iter().any(|namespace| namespace.is_own() && is_there(namespace)) {
                // It was renamed, or the link that led to it was removed or leads elsewhere: it may be any.
                let found = Use::MayBeServed(export.server.clone());
                all.extend(BlockDevice::disks(&self.sysfs)?.into_iter().map(|disk| (disk, found.clone())));
            }
            let found = Use::Served(export.server.clone());
            all.extend(at.map(|device| (device, found.clone())));
        }
        for (number, server) in &self.exports.numbers {
            let device = BlockDevice::numbered(&self.sysfs, *number);
            all.extend(device.map(|device| (device, Use::Served(server.clone()))));
        }
        for controller in &self.exports.controllers {
            let found = Use::Served(controller.server.clone());
            all.extend(self.commanded(&controller.path)?.into_iter().map(|disk| (disk, found.clone())));
        }
        Ok(all)
    }

    /// The block device that has the path `path` of an export in `namespace`. Its name alone doesn't count on this
    /// machine: the export may have led to another device by it.
    fn served_at(&self, namespace: &Namespace, path: &Path) -> Option<BlockDevice> {
        if !self.is_live {
            return BlockDevice::open(&self.sysfs, &place(namespace, path)).ok();
        }
        let found = namespace.metadata(path).ok().filter(|found| found.file_type().is_block_device())?;
        BlockDevice::numbered(&self.sysfs, DeviceNumber::unpack(found.rdev()))
    }

    /// The disks that take the commands of the NVMe controller whose character device has the path `path`;
    /// where that leads to none any more, all disks of NVMe. What it leads to in other namespaces is no proof, as anyone can
    /// make one.
    fn commanded(&self, path: &Path) -> Result<Vec<BlockDevice>, BlockError> {
        let number = |namespace: &Namespace| {
            let found = namespace.metadata(path).ok()?;
            found.file_type().is_char_device().then(|| DeviceNumber::unpack(found.rdev()))
        };
        let numbers: Vec<_> = self.namespaces.iter().filter_map(number).collect();
        let mut disks = BlockDevice::disks(&self.sysfs)?;
        let has = |disk: &BlockDevice, number: &DeviceNumber| disk.characters().contains(number);
        let mut own = self.namespaces.iter().filter(|namespace| namespace.is_own()).filter_map(number);
        let is_known = own.any(|number| disks.iter().any(|disk| has(disk, &number)));
        disks.retain(|disk| {
            let is_named = || numbers.iter().any(|number| has(disk, number));
            (!is_known && disk.name().starts_with("nvme")) || is_named()
        });
        Ok(disks)
    }
}

#[cfg(test)]
mod tests {
    use super::super::configfs::configfs;
    use super::*;
    use crate::captured::Captured;

    #[test]
    fn exports_of_the_kernel_are_listed() {
        let info = "Status: ACTIVATED  Max Queue Depth: 0  SectorSize: 512  HwMaxSectors: 16384\n        \
                    TCM FILEIO ID: 0        File: /images/a b  Size: 67108864  Mode: O_DSYNC Async: 0\n";
        let nvmet = "sys/kernel/config/nvmet/subsystems/s/namespaces";
        let machine = Captured::new()
            .file("sys/class/udc/dummy_udc.0/device/gadget.0/lun0/file", "/images/g\n")
            .file("sys/kernel/config/usb_gadget/g/functions/mass_storage.0/lun.0/file", "/images/c\nx\n")
            .file("sys/kernel/config/usb_gadget/g/functions/mass_storage.0/lun.1/file", "\n")
            .file("sys/kernel/config/usb_gadget/g/functions/uac1.0/lun.0/file", "/images/no")
            .file(&format!("{nvmet}/1/device_path"), "/dev/sdb\n")
            .file(&format!("{nvmet}/1/enable"), "1\n")
            .file(&format!("{nvmet}/2/device_path"), "/dev/sdc\n")
            .file(&format!("{nvmet}/2/enable"), "0\n")
            .file(&format!("{nvmet}/3/device_path"), "(null)\n")
            .file("sys/kernel/config/nvmet/subsystems/p/passthru/device_path", "/dev/nvme0\n")
            .file("sys/kernel/config/nvmet/subsystems/p/passthru/enable", "1\n")
            .file("sys/kernel/config/nvmet/subsystems/q/passthru/device_path", "/dev/nvme1\n")
            .file("sys/kernel/config/nvmet/subsystems/q/passthru/enable", "0\n")
            .file("sys/kernel/config/cluster/c/heartbeat/0123456789/dev", "nvme1n1\n")
            .file("sys/kernel/config/cluster/c/heartbeat/9876543210/dev", "\n")
            .file("sys/kernel/config/target/iscsi/iqn.2003-01.org.example:t/tpgt_1/enable", "1\n")
            .file("sys/kernel/config/target/core/fileio_0/x/info", info)
            .file(
                "sys/kernel/config/target/core/fileio_0/x/wwn/vendor_id",
                "T10 Vendor Identification: OWN\n",
            )
            .file("sys/kernel/config/target/core/iblock_0/y/wwn/vpd_unit_serial", "")
            .file("sys/kernel/config/target/core/fileio_0/hba_info", "HBA Index: 1\n");
        let exports = |machine: &Captured| {
            Exports::of(&machine.sysfs(), configfs(&machine.machine()).unwrap().as_ref())
        };
        let Exports { paths: all, controllers: through, mut targets, mut vendors, .. } = exports(&machine);
        let mut paths: Vec<_> = all.iter().map(|found| found.path.to_str().unwrap()).collect();
        paths.sort_unstable();
        assert_eq!(
            paths,
            ["/dev/nvme1n1", "/dev/sdb", "/dev/sdc", "/images/a b", "/images/c\nx", "/images/g"],
            "also what is taken down for a while"
        );
        let first = all.iter().find(|found| found.path == Path::new("/dev/sdb")).unwrap();
        assert_eq!(
            first.server,
            Path::new("/sys/kernel/config/nvmet/subsystems/s/namespaces/1"),
            "wherever configfs is mounted"
        );
        vendors.sort();
        assert_eq!(vendors, ["LIO-ORG", "OWN"]);
        targets.sort();
        assert_eq!(targets, ["iqn.2003-01.org.example:t", "p", "q", "s"]);
        let mut through: Vec<_> = through.iter().map(|found| found.path.to_str().unwrap()).collect();
        through.sort_unstable();
        assert_eq!(through, ["/dev/nvme0", "/dev/nvme1"]);
        let nothing = exports(&Captured::new());
        assert!(nothing.paths.is_empty() && nothing.targets.is_empty());
        let legacy = Exports::of(&machine.sysfs(), None);
        assert_eq!(legacy.paths.len(), 1, "a kernel without configfs");
    }
}
