//! Disks whose data a program or a driver of this machine keeps elsewhere, in a place that can't be told.

use std::fs;
use std::path::PathBuf;

use crate::block::{BlockDevice, children};

/// Parts of the paths in sysfs of disks that this machine serves to itself, and their servers.
const SERVERS: [(&str, &str); 4] = [
    ("/tcm_loop_", "a target of this machine (LIO)"),
    ("/dummy_hcd.", "a USB gadget of this machine"),
    ("/vhci_hcd.", "another machine, or this one (USB/IP)"),
    ("/vduse/", "a program of this machine (VDUSE)"),
];

/// Returns the server of `disk` on this machine, or on another that can't be told from this one; none where
/// its bytes are its own, or known by what lies below it.
pub(super) fn server(disk: &BlockDevice) -> Option<&'static str> {
    let name = disk.name();
    if name.starts_with("nbd") && disk.attribute("pid").exists() {
        return Some("an NBD server");
    }
    if name.starts_with("ublkb") {
        return Some("a program of this machine (ublk)");
    }
    if name.starts_with("zloop") {
        return Some("files of this machine (zloop)");
    }
    // The disk of a subsystem has all its controllers below it.
    let controllers = children(&disk.directory().join("device"));
    let mut transports = controllers.iter().map(|controller| controller.join("transport"));
    let is_loop = |transport: PathBuf| fs::read(transport).is_ok_and(|text| text.trim_ascii() == b"loop");
    if is_loop(disk.directory().join("device/transport")) || transports.any(is_loop) {
        return Some("a target of this machine (nvmet)");
    }
    let path = disk.directory().to_string_lossy().into_owned();
    SERVERS.iter().find(|(part, _)| path.contains(part)).map(|(_, server)| *server)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captured::Captured;

    #[test]
    fn disks_that_this_machine_serves_are_known() {
        let machine = Captured::new()
            .device("nbd0", "43:0", &[("pid", "42")])
            .device("nbd1", "43:16", &[])
            .device("ublkb0", "259:0", &[])
            .device("zloop0", "259:4", &[])
            .device("nvme0n1", "259:1", &[("device/transport", "loop")])
            .device("nvme1n1", "259:2", &[("device/transport", "pcie")])
            .device(
                "nvme2n1",
                "259:3",
                &[("device/nvme2/transport", "tcp"), ("device/nvme3/transport", "loop")],
            );
        let of = |name: &str| server(&machine.open(name)).is_some();
        let names = ["nbd0", "nbd1", "ublkb0", "zloop0", "nvme0n1", "nvme1n1", "nvme2n1"];
        assert_eq!(names.map(of), [true, false, true, true, true, false, true]);
        for (path, is_served) in [
            ("tcm_loop_0/tcm_loop_adapter_0/host2/target2:0:1/2:0:1:1/block/sdb", true),
            ("platform/dummy_hcd.0/usb1/1-1/1-1:1.0/host3/target3:0:0/3:0:0:0/block/sdc", true),
            ("platform/vhci_hcd.0/usb3/3-1/3-1:1.0/host4/target4:0:0/4:0:0:0/block/sdd", true),
            ("pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/sda", false),
        ] {
            let directory = machine.sysfs().join("devices").join(path);
            std::fs::create_dir_all(&directory).unwrap();
            assert_eq!(server(&BlockDevice::at(&directory).unwrap()).is_some(), is_served, "{path}");
        }
    }
}
