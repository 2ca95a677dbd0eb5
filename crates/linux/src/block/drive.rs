//! The drive behind a disk, and the other ways to it: further paths, and character devices.

use std::fs;
use std::path::{Path, PathBuf};

use super::{BlockDevice, DeviceNumber};

/// The kinds of character devices that take commands for a drive past its block device.
const CHARACTERS: [&str; 4] = ["scsi_generic", "bsg", "nvme", "nvme-generic"];

/// The transports of NVMe controllers over a network (`nvme_ctrl_ops.name` in drivers/nvme/host). Local ones are `pcie` and
/// `apple-nvme`.
const FABRICS: [&str; 4] = ["tcp", "rdma", "fc", "loop"];

impl BlockDevice {
    /// The world-wide name of the drive, which is the same on every path to it; none where the drive reports
    /// none, or only zeros.
    pub(crate) fn wwid(&self) -> Option<String> {
        // NVMe has it with the disk, SCSI with the unit.
        let wwid = self.identity("wwid").or_else(|| self.identity("device/wwid"))?;
        let name = wwid.split_once('.').map_or(wwid.as_str(), |(_, name)| name);
        let names_something = name.contains(|letter: char| letter.is_alphanumeric() && letter != '0');
        names_something.then_some(wwid)
    }

    /// The network over which the controllers of an NVMe namespace are reached; none where they are local.
    pub(crate) fn fabric(&self) -> Option<String> {
        let device = self.whole().attribute("device");
        let controllers = [vec![device.clone()], children(&device)].concat();
        let mut transports =
            controllers.iter().filter_map(|directory| fs::read_to_string(directory.join("transport")).ok());
        transports.next().map(|text| text.trim().to_owned()).filter(|name| FABRICS.contains(&name.as_str()))
    }

    /// The character devices that take commands for the drive: sg, bsg and those of NVMe. A partition has none
    /// of its own.
    pub(crate) fn characters(&self) -> Vec<DeviceNumber> {
        let device = self.directory().join("device");
        let classes = ["scsi_generic", "bsg"].map(|class| children(&device.join(class)));
        // The controller, or the subsystem that has controllers and disks in it.
        let all = [vec![device.clone()], children(&device), classes.concat()].concat();
        all.iter().filter(|directory| self.is_way_to(directory)).filter_map(|found| number(found)).collect()
    }

    /// The character devices of SCSI units that have one of `wwids`, or are further ones of the module scsi_debug where
    /// `is_simulated`; also of those without a block device.
    pub(crate) fn characters_of_units(
        sysfs: &Path,
        wwids: &[String],
        is_simulated: bool,
    ) -> Vec<DeviceNumber> {
        let mut units = children(&sysfs.join("bus/scsi/devices"));
        units.retain(|unit| {
            let has_name = fs::read_to_string(unit.join("wwid"))
                .is_ok_and(|wwid| wwids.iter().any(|ours| ours == wwid.trim()));
            has_name || (is_simulated && unit.canonicalize().is_ok_and(|unit| is_of_scsi_debug(&unit)))
        });
        let nodes =
            units.iter().flat_map(|unit| ["scsi_generic", "bsg"].map(|class| children(&unit.join(class))));
        nodes.flatten().filter_map(|node| number(&node)).collect()
    }

    /// Whether what has this directory in sysfs takes commands for the drive, and not only for another.
    fn is_way_to(&self, directory: &Path) -> bool {
        let class = fs::read_link(directory.join("subsystem")).unwrap_or_default();
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        // A controller lists the namespaces of other disks too: nvme0n1 is ng0n1.
        let is_own = match name.strip_prefix("ng") {
            Some(rest) => self.name().strip_prefix("nvme") == Some(rest),
            None => true,
        };
        is_own && CHARACTERS.iter().any(|kind| class.ends_with(kind))
    }
}

/// Whether the module scsi_debug has made the device with this directory in sysfs. It keeps all its disks in one memory
/// unless `per_host_store` is set.
pub(crate) fn is_of_scsi_debug(directory: &Path) -> bool {
    directory.to_string_lossy().contains("/pseudo_0/adapter")
}

/// Returns the entries of a directory of sysfs; none where there is no such directory.
pub(crate) fn children(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// The number of the device with this directory in sysfs.
pub(crate) fn number(directory: &Path) -> Option<DeviceNumber> {
    fs::read_to_string(directory.join("dev")).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::BlockDevice;
    use crate::captured::Captured;

    #[test]
    fn paths_without_a_block_device_have_character_devices() {
        let unit = |machine: Captured, address: &str, wwid: &str, minor: u32| {
            let place = format!("sys/bus/scsi/devices/{address}");
            machine
                .file(&format!("{place}/wwid"), wwid)
                .file(&format!("{place}/scsi_generic/sg{minor}/dev"), format!("21:{minor}\n"))
                .file(&format!("{place}/bsg/{address}/dev"), format!("250:{minor}\n"))
        };
        let (ours, others) = ("naa.50014ee2b5e7a1c2\n", "naa.50014ee2b5e7a1c3\n");
        let machine = unit(unit(Captured::new(), "2:0:0:0", ours, 3), "2:0:0:1", others, 4);
        let of = |machine: &Captured, wwid: &str, is_simulated| {
            let found = BlockDevice::characters_of_units(&machine.sysfs(), &[wwid.to_owned()], is_simulated);
            let mut found: Vec<_> = found.iter().map(ToString::to_string).collect();
            found.sort();
            found
        };
        assert_eq!(of(&machine, ours.trim(), false), ["21:3", "250:3"]);
        let simulated = machine.file("sys/devices/pseudo_0/adapter1/3:0:0:0/scsi_generic/sg5/dev", "21:5\n");
        let [place, link] = ["devices/pseudo_0/adapter1/3:0:0:0", "bus/scsi/devices/3:0:0:0"]
            .map(|path| simulated.sysfs().join(path));
        std::os::unix::fs::symlink(place, link).unwrap();
        assert_eq!(of(&simulated, "none", true), ["21:5"]);
        assert!(of(&simulated, "none", false).is_empty());
    }

    #[test]
    fn network_of_a_namespace_is_that_of_its_controllers() {
        for (attribute, transport, expected) in [
            ("device/transport", "pcie", None),
            ("device/transport", "tcp", Some("tcp")),
            // Below a subsystem with several paths.
            ("device/nvme3/transport", "rdma", Some("rdma")),
        ] {
            let machine = Captured::new().device("nvme0n1", "259:0", &[(attribute, transport)]);
            assert_eq!(machine.open("nvme0n1").fabric().as_deref(), expected, "{attribute}");
        }
    }

    #[test]
    fn blank_names_are_none() {
        for (attribute, wwid, expected) in [
            ("device/wwid", "naa.50014ee2b5e7a1c2", Some("naa.50014ee2b5e7a1c2")),
            ("wwid", "eui.0025385b71b00e2f", Some("eui.0025385b71b00e2f")),
            ("device/wwid", "naa.0000000000000000", None),
            ("device/wwid", "t10.", None),
            ("wwid", " \n", None),
        ] {
            let machine = Captured::new().device("sda", "8:0", &[(attribute, wwid)]);
            assert_eq!(machine.open("sda").wwid().as_deref(), expected, "{wwid:?}");
        }
        assert_eq!(Captured::new().device("sda", "8:0", &[]).open("sda").wwid(), None);
    }

    #[test]
    fn character_devices_of_scsi_and_nvme_are_found() {
        let machine = Captured::new()
            .device(
                "sda",
                "8:0",
                &[("device/scsi_generic/sg3/dev", "21:3"), ("device/bsg/0:0:0:0/dev", "250:0")],
            )
            .device("sda/sda1", "8:1", &[])
            .device(
                "nvme0n1",
                "259:0",
                &[
                    ("device/dev", "240:0"),
                    ("device/ng0n1/dev", "239:0"),
                    ("device/ng0n2/dev", "239:1"),
                    ("device/hwmon1/dev", "1:1"),
                ],
            )
            .link("devices/sda/device/scsi_generic/sg3/subsystem", "../class/scsi_generic")
            .link("devices/sda/device/bsg/0:0:0:0/subsystem", "../class/bsg")
            .link("devices/nvme0n1/device/subsystem", "../class/nvme")
            .link("devices/nvme0n1/device/ng0n1/subsystem", "../class/nvme-generic")
            .link("devices/nvme0n1/device/ng0n2/subsystem", "../class/nvme-generic")
            .link("devices/nvme0n1/device/hwmon1/subsystem", "../class/hwmon");
        let of = |name: &str| {
            let mut all: Vec<_> = machine.open(name).characters().iter().map(ToString::to_string).collect();
            all.sort();
            all
        };
        assert_eq!(of("sda"), ["21:3", "250:0"]);
        assert_eq!(of("nvme0n1"), ["239:0", "240:0"]);
        assert!(of("sda1").is_empty());
    }
}
