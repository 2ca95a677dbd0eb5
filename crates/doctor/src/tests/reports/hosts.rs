//! Reports on virtual machines, clouds and storage on the network.

use trimtab_core::Bytes;
use trimtab_core::verdict::{Severity, Verdict};
use trimtab_linux::stack::{Below, Layer, LayerKind, Scsi, Setup, Transport};

use super::{ext4_on, fix, ids, text, worst};
use crate::tests::{YES, examined, file_system, layer, mapped, nvme, raid, row, taking};
use crate::{ASSUMED_ERASE_BLOCK, diagnose};

/// A disk of the SCSI layer of a virtual machine.
fn virtual_disk(transport: Transport, model: &str, mode: &str, max: u64) -> Layer {
    let mode = Some(mode.to_owned());
    let scsi = Scsi { transport, provisioning_mode: mode, thin_provisioning: Some(true) };
    let granularity = if max == 0 { 0 } else { 4096 };
    Layer { label: Some(model.to_owned()), ..taking(max, granularity, layer("sdb", LayerKind::Scsi(scsi))) }
}

/// A guest of VMware in which the host rejected a discard while it removed a snapshot:
/// <https://github.com/vmware/open-vm-tools/issues/581>. Turning the disk's discards on again was not enough: the LVM volume's table had to
/// be loaded anew, too.
#[test]
fn volume_above_a_disk_that_rejected_a_discard_is_reloaded() {
    let lvm = |max, granularity| Layer {
        subsystem: Some("LVM".to_owned()),
        label: Some("vgmain/lvroot".to_owned()),
        ..taking(max, granularity, mapped("dm-0", "linear", "8:16 2048"))
    };
    let transport = || Transport::Other(Some("vmw_pvscsi".to_owned()));
    let root = || file_system("/", "ext4", "rw");
    let off =
        examined(&row([root(), lvm(0, 0), virtual_disk(transport(), "VMware Virtual disk", "disabled", 0)]));
    text(&off);
    assert_eq!(worst(&off), (Verdict::Blocked, "provisioning-mode", Severity::Critical));
    assert!(off.findings[0].message.contains("when a device rejects one"), "{off:?}");
    assert!(fix(&off).starts_with("echo unmap | tee /sys/block/sdb/"), "{off:?}");
    assert!(fix(&off).contains("dmsetup reload /dev/dm-0 && dmsetup resume /dev/dm-0"), "{off:?}");
    // Once the disk takes them again, the volume is still at 0.
    let stale =
        examined(&row([root(), lvm(0, 0), virtual_disk(transport(), "VMware Virtual disk", "unmap", YES)]));
    let said = text(&stale);
    assert_eq!(worst(&stale), (Verdict::Blocked, "stale-limit", Severity::Critical));
    assert!(fix(&stale).starts_with("dmsetup table --showkeys /dev/dm-0 | dmsetup reload"), "{said}");
    assert!(!said.contains("hands no discards on"), "{said}");
    let mended = examined(&row([
        root(),
        lvm(YES, 4096),
        virtual_disk(transport(), "VMware Virtual disk", "unmap", YES),
    ]));
    assert_eq!(mended.verdict, Verdict::Reaches);
}

/// A guest of XCP-ng on VHD images, whose host offers no discards at all: <https://github.com/xcp-ng/xcp/issues/845>.
#[test]
fn guest_of_xcp_ng_is_not_promised_a_setting() {
    let target = ext4_on(taking(0, 0, layer("xvda", LayerKind::Other(Some("vbd".to_owned())))));
    text(&target);
    assert_eq!(worst(&target), (Verdict::Blocked, "host-no-discards", Severity::Critical));
    assert!(fix(&target).contains("XCP-ng and XenServer offer none on VHD images"), "{target:?}");
}

/// Machines of Firecracker, which had no discards for long: <https://github.com/firecracker-microvm/firecracker/issues/2708>; libkrun's are
/// like them. Neither has libvirt.
#[test]
fn virtio_disk_may_be_of_another_host_than_qemu() {
    let target = ext4_on(taking(0, 0, layer("vda", LayerKind::VirtioBlk)));
    text(&target);
    assert_eq!(worst(&target), (Verdict::Blocked, "host-no-discards", Severity::Critical));
    assert!(fix(&target).contains("Firecracker") && fix(&target).contains("a version that offers discards"));
}

/// A guest of KubeVirt on Ceph, where fstrim succeeded and the image kept its size until the host's disk got `discard="unmap"`:
/// <https://github.com/kubevirt/kubevirt/issues/4781>.
#[test]
fn virtio_disk_that_takes_discards_proves_nothing_of_its_host() {
    let target = ext4_on(taking(YES, 512, layer("vda", LayerKind::VirtioBlk)));
    let said = text(&target);
    assert_eq!((target.verdict, ids(&target)), (Verdict::Reaches, vec![]));
    assert!(said.contains("what it does with them can't be seen from here"), "{said}");
}

/// Persistent disks of Google's cloud, mounted with `discard` by Kubernetes as its documentation asks:
/// <https://github.com/kubernetes/kubernetes/issues/23258>. Were they without discards, nobody could set libvirt's option there.
#[test]
fn cloud_s_virtio_disk_is_not_mended_by_libvirt() {
    let disk = |max| virtual_disk(Transport::Virtio, "Google PersistentDisk", "unmap", max);
    let takes = examined(&row([file_system("/data", "ext4", "rw,discard"), disk(1 << 30)]));
    text(&takes);
    assert_eq!(takes.verdict, Verdict::Reaches);
    let none = ext4_on(disk(0));
    text(&none);
    assert_eq!(worst(&none), (Verdict::Blocked, "cloud-no-discards", Severity::Note));
}

/// Volumes of Hetzner's cloud below LUKS, which kept them from giving space back until `allow-discards` was set:
/// <https://github.com/hetznercloud/csi-driver/pull/370>.
#[test]
fn encryption_above_a_cloud_s_volume_is_to_blame() {
    let crypt = Layer {
        subsystem: Some("CRYPT-LUKS1".to_owned()),
        label: Some("pvc-1".to_owned()),
        ..taking(0, 0, mapped("dm-0", "crypt", "aes-xts-plain64 - 0 8:16 4096"))
    };
    let disk = virtual_disk(Transport::Virtio, "HC Volume", "unmap", YES);
    let target = examined(&row([file_system("/pvc", "ext4", "rw"), crypt, disk]));
    text(&target);
    assert_eq!(worst(&target), (Verdict::Blocked, "luks-no-discards", Severity::Critical));
    assert!(fix(&target).starts_with("cryptsetup refresh --allow-discards pvc-1"), "{target:?}");
}

/// WSL with a sparse image that does not shrink: <https://github.com/microsoft/WSL/issues/12103>. The guest's discards arrive at Hyper-V;
/// the size of the file on Windows is decided there.
#[test]
fn sparse_image_of_wsl_is_its_host_s_matter() {
    let transport = Transport::Other(Some("storvsc_host_t".to_owned()));
    let target = ext4_on(virtual_disk(transport, "Msft Virtual Disk", "unmap", YES));
    let said = text(&target);
    assert_eq!(target.verdict, Verdict::Reaches);
    assert!(
        said.contains("the host takes them") && said.contains("ask it how large the disk's image is"),
        "{said}"
    );
}

/// A volume of Rook, an XFS on Ceph's kernel client with a granularity of 4 MiB: <https://github.com/rook/rook/issues/3832>. fstrim freed
/// nothing of small files. Newer kernels have units of 64 KiB, and drop what is smaller.
#[test]
fn ceph_volume_is_judged_by_its_kernel_s_units() {
    let disk = |unit: u64| taking(4 << 20, unit, layer("rbd0", LayerKind::Other(Some("rbd".to_owned()))));
    let target = examined(&row([file_system("/pvc", "xfs", "rw,relatime"), disk(4 << 20)]));
    let said = text(&target);
    assert_eq!(target.verdict, Verdict::Reaches);
    assert!(said.contains("the Ceph cluster takes them"), "{said}");
    assert!(said.contains("fstrim passes over free space in pieces of less than 4 MiB"), "{said}");
    // With the mount option, as others have it (https://github.com/ceph/ceph-csi/issues/846), and without a timer.
    let online = |unit| {
        let stack = row([file_system("/pvc", "xfs", "rw,discard"), disk(unit)]);
        diagnose(&stack, &Setup::default(), ASSUMED_ERASE_BLOCK)
    };
    assert_eq!(ids(&online(4 << 20)), [""; 0]);
    let newer = online(64 << 10);
    assert_eq!(ids(&newer), ["online-only"]);
    assert!(text(&newer).contains("in whole units of 64 KiB; the rest is dropped"));
}

/// A fully provisioned image that is mapped with `notrim`, so that it keeps its objects: <https://github.com/ceph/ceph/pull/21056>.
#[test]
fn ceph_volume_without_discards_was_mapped_so() {
    let target = ext4_on(taking(0, 0, layer("rbd0", LayerKind::Other(Some("rbd".to_owned())))));
    text(&target);
    assert_eq!(target.verdict, Verdict::Blocked);
    assert_eq!(target.findings[0].id, "rbd-notrim");
    assert!(fix(&target).contains("without notrim"), "{target:?}");
    assert!(target.findings[0].cost.as_deref().is_some_and(|cost| cost.contains("written in advance")));
}

/// Instance stores of a cloud as a RAID 0 with an XFS that is mounted with `discard`: <https://github.com/scylladb/scylladb/pull/9608>. Since
/// Linux 4.13, md hands each drive one piece of a discard, and no chunk for itself (<https://github.com/scylladb/scylladb/issues/2649>).
#[test]
fn striped_instance_stores_take_discards() {
    let store = |name: &str| Layer {
        name: name.to_owned(),
        label: Some("Amazon EC2 NVMe Instance Storage".to_owned()),
        ..nvme(YES)
    };
    let array = taking(YES, 512, raid("raid0", None));
    let mut stack = row([file_system("/var/lib/scylla", "xfs", "rw,discard"), array, store("nvme1n1")]);
    stack.layers.push(store("nvme2n1"));
    stack.layers[1].below.push(Below { layer: 3, start: Some(Bytes::ZERO) });
    let target = diagnose(&stack, &Setup::default(), ASSUMED_ERASE_BLOCK);
    let said = text(&target);
    assert_eq!(target.verdict, Verdict::Reaches);
    assert!(target.findings.is_empty() && !said.contains("cloud"), "an instance store is a drive: {said}");
    assert!(said.contains("it divides them among its drives (chunks of 512 KiB)"), "{said}");
}
