//! Disks whose data a program or a driver of this machine keeps elsewhere, in a place that can't be told.

use std::fs;
use std::path::{Path, PathBuf};

use super::exported::Exports;
use crate::block::{BlockDevice, children};

/// Parts of the paths in sysfs of disks that this machine serves to itself, and their servers.
const SERVERS: [(&str, &str); 4] = [
    ("/tcm_loop_", "a target of this machine (LIO)"),
    ("/dummy_hcd.", "a USB gadget of this machine"),
    ("/vhci_hcd.", "another machine, or this one (USB/IP)"),
    ("/vduse/", "a program of this machine (VDUSE)"),
];

/// Returns the server of `disk` on this machine, which serves `exports`, or on another that can't be told from this one;
/// none where its bytes are its own, or known by what lies below it.
pub(super) fn server(disk: &BlockDevice, exports: &Exports) -> Option<&'static str> {
    let targets = &exports.targets;
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
    let device = disk.directory().join("device");
    let mut controllers = vec![device.clone()];
    controllers.extend(children(&device));
    if controllers.iter().any(|controller| is_of_nvmet(controller, targets)) {
        return Some("a target of this machine (nvmet)");
    }
    let is_of_lio = |directory: &Path| {
        let name = directory.file_name().unwrap_or_default();
        let target = directory.join("iscsi_session").join(name).join("targetname");
        text(target).is_some_and(|target| targets.contains(&target))
    };
    if disk.directory().ancestors().any(is_of_lio) {
        return Some("a target of this machine (LIO)");
    }
    let path = disk.directory().to_string_lossy().into_owned();
    let served = SERVERS.iter().find(|(part, _)| path.contains(part)).map(|(_, server)| *server);
    let is_by_iscsi = disk.directory().ancestors().any(|directory| directory.join("iscsi_session").exists());
    let vendor = text(disk.attribute("device/vendor"));
    // No other transport, such as SRP or Fibre Channel, shows the name of the target.
    let may_be_of_lio = !is_by_iscsi && vendor.is_some_and(|vendor| exports.vendors.contains(&vendor));
    served.or(may_be_of_lio.then_some("a target of this machine or another (LIO)"))
}

/// Whether the NVMe controller or subsystem with this directory in sysfs is one of `targets`, or may be.
fn is_of_nvmet(controller: &Path, targets: &[String]) -> bool {
    let transport = text(controller.join("transport"));
    match text(controller.join("subsysnqn")) {
        _ if transport.as_deref() == Some("loop") => true,
        Some(name) => targets.contains(&name),
        None => {
            ["fc", "rdma", "tcp"].iter().any(|kind| transport.as_deref() == Some(kind)) && !targets.is_empty()
        }
    }
}

fn text(attribute: PathBuf) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(attribute).ok()?).trim().to_owned())
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
            )
            .device("nvme3n1", "259:5", &[("device/transport", "fc"), ("device/subsysnqn", "nqn.own")])
            .device("nvme4n1", "259:6", &[("device/transport", "tcp"), ("device/subsysnqn", "nqn.other")])
            .device("nvme5n1", "259:7", &[("device/nvme5/transport", "rdma")])
            .device("nvme6n1", "259:8", &[("device/subsysnqn", "nqn.own"), ("device/nvme6/transport", "fc")]);
        let exports = |targets: &[String]| Exports { targets: targets.to_vec(), ..Exports::default() };
        let of = |name: &str, targets: &[String]| server(&machine.open(name), &exports(targets)).is_some();
        let names = ["nbd0", "nbd1", "ublkb0", "zloop0", "nvme0n1", "nvme1n1", "nvme2n1"];
        assert_eq!(names.map(|name| of(name, &[])), [true, false, true, true, true, false, true]);
        let (fabrics, own) = (["nvme3n1", "nvme4n1", "nvme5n1", "nvme6n1"], ["nqn.own".to_owned()]);
        assert_eq!(fabrics.map(|name| of(name, &own)), [true, false, true, true]);
        assert_eq!(fabrics.map(|name| of(name, &[])), [false; 4]);
        let session = "platform/host5/session2";
        let lun = machine.sysfs().join("devices").join(session).join("target5:0:0/5:0:0:0/block/sde");
        let machine = machine.file(
            &format!("sys/devices/{session}/iscsi_session/session2/targetname"),
            "iqn.2003-01.org.example:t\n",
        );
        fs::create_dir_all(&lun).unwrap();
        let lun = BlockDevice::at(&lun).unwrap();
        assert_eq!(
            server(&lun, &exports(&["iqn.2003-01.org.example:t".to_owned()])),
            Some("a target of this machine (LIO)")
        );
        assert_eq!(server(&lun, &exports(&own)), None);
        for (path, is_served) in [
            ("tcm_loop_0/tcm_loop_adapter_0/host2/target2:0:1/2:0:1:1/block/sdb", true),
            ("platform/dummy_hcd.0/usb1/1-1/1-1:1.0/host3/target3:0:0/3:0:0:0/block/sdc", true),
            ("platform/vhci_hcd.0/usb3/3-1/3-1:1.0/host4/target4:0:0/4:0:0:0/block/sdd", true),
            ("pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/sda", false),
        ] {
            let directory = machine.sysfs().join("devices").join(path);
            std::fs::create_dir_all(&directory).unwrap();
            assert_eq!(
                server(&BlockDevice::at(&directory).unwrap(), &exports(&[])).is_some(),
                is_served,
                "{path}"
            );
        }
    }

    #[test]
    fn units_of_a_vendor_that_lio_serves_are_known() {
        let vendors = vec!["LIO-ORG".to_owned()];
        let exports = Exports { vendors, ..Exports::default() };
        let machine = Captured::new()
            .device("sda", "8:0", &[("device/vendor", "LIO-ORG ")])
            .device("sdb", "8:16", &[("device/vendor", "ATA     ")])
            // By iSCSI, from a target of another name.
            .device(
                "sdc",
                "8:32",
                &[("device/vendor", "LIO-ORG "), ("iscsi_session/session1/targetname", "iqn.x")],
            );
        let of = |name: &str, exports: &Exports| server(&machine.open(name), exports).is_some();
        assert_eq!(["sda", "sdb", "sdc"].map(|name| of(name, &exports)), [true, false, false]);
        assert!(!of("sda", &Exports::default()), "this machine serves nothing");
    }
}
