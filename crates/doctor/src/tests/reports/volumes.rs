//! Reports on encryption, LVM, VDO and containers' storage.

use std::path::PathBuf;

use trimtab_core::device::Announced;
use trimtab_core::verdict::{Severity, Verdict};
use trimtab_linux::stack::{CrypttabLine, Layer, LayerKind, Scsi, Setup, Transport};

use super::{fix, ids, text, worst};
use crate::tests::{YES, examined, file_system, layer, mapped, nvme, row, taking, timed};
use crate::{ASSUMED_ERASE_BLOCK, diagnose};

/// A dm-crypt device of this maker, opened without discards.
fn closed(maker: &str, name: &str) -> Layer {
    Layer {
        subsystem: Some(maker.to_owned()).filter(|maker| !maker.is_empty()),
        label: Some(name.to_owned()),
        ..taking(0, 0, mapped("dm-0", "crypt", "aes-xts-plain64 - 0 259:3 32768"))
    }
}

fn lvm(name: &str, label: &str, target: &str, parameters: &str, max: u64, granularity: u64) -> Layer {
    Layer {
        subsystem: Some("LVM".to_owned()),
        label: Some(label.to_owned()),
        ..taking(max, granularity, mapped(name, target, parameters))
    }
}

/// An installer's LVM on LUKS2 with an SSD: <https://github.com/elementary/installer/issues/674>, mended there by crypttab, a new initramfs and
/// a restart. Until that, a refreshed LUKS is not enough: the volume above keeps its limit.
#[test]
fn volume_above_luks_is_reloaded_too() {
    let line = CrypttabLine {
        name: "cryptdata".to_owned(),
        source: "UUID=51f61b21".to_owned(),
        options: vec!["luks".to_owned()],
        unread: Vec::new(),
    };
    let setup = Setup { crypttab: vec![line], lvm_issues_discards: Some(true), ..timed() };
    let stack = |maker: &str| {
        row([
            file_system("/", "ext4", "rw"),
            lvm("dm-1", "data/root", "linear", "253:0 2048", 0, 0),
            closed(maker, "cryptdata"),
            nvme(YES),
        ])
    };
    let luks2 = diagnose(&stack("CRYPT-LUKS2"), &setup, ASSUMED_ERASE_BLOCK);
    text(&luks2);
    assert_eq!(worst(&luks2), (Verdict::Blocked, "luks-no-discards", Severity::Critical));
    // On one line, which the passphrase can't swallow. LUKS2 keeps the option in its header.
    let reload = "dmsetup table --showkeys /dev/dm-1 | dmsetup reload /dev/dm-1 && dmsetup resume /dev/dm-1";
    assert_eq!(
        fix(&luks2),
        format!("cryptsetup refresh --allow-discards --persistent cryptdata && {reload}")
    );
    // Nothing is loaded anew above what stays closed.
    let above_a_bridge = row([
        file_system("/", "ext4", "rw"),
        lvm("dm-1", "data/root", "linear", "253:0 2048", 0, 0),
        closed("CRYPT-LUKS2", "cryptdata"),
        taking(0, 0, super::drives::usb("full", false, Announced::default(), false)),
    ]);
    let findings = diagnose(&above_a_bridge, &setup, ASSUMED_ERASE_BLOCK).findings;
    let bridge = findings.iter().find(|found| found.id == "usb-bridge").unwrap();
    assert!(bridge.fix.as_ref().unwrap().ends_with("udevadm settle"), "{bridge:?}");
    let luks1 = diagnose(&stack("CRYPT-LUKS1"), &setup, ASSUMED_ERASE_BLOCK);
    assert!(
        fix(&luks1).contains("/etc/crypttab") && fix(&luks1).contains("update-initramfs -u"),
        "{luks1:?}"
    );
}

/// Fedora Silverblue, whose initramfs has no crypttab: <https://github.com/fedora-silverblue/issue-tracker/issues/31>. A kernel argument mended
/// LUKS1 there.
#[test]
fn luks1_that_the_kernel_line_opens_is_mended_there() {
    let target =
        examined(&row([file_system("/", "btrfs", "rw"), closed("CRYPT-LUKS1", "luks-1"), nvme(YES)]));
    text(&target);
    assert_eq!(worst(&target), (Verdict::Blocked, "luks-no-discards", Severity::Critical));
    assert!(fix(&target).contains("rd.luks.options=discard"), "{target:?}");
}

/// A phone with an eMMC, whose `/data` is an F2FS on dm-crypt that was set up without discards:
/// <https://github.com/franciscofranco/mido/issues/6>. Its `/cache` on the same eMMC is trimmed.
#[test]
fn phone_s_encryption_is_to_blame_and_not_its_emmc() {
    let emmc = || taking(YES, 512 << 10, layer("mmcblk0", LayerKind::Mmc));
    let data = examined(&row([file_system("/data", "f2fs", "rw,discard"), closed("", "userdata"), emmc()]));
    let said = text(&data);
    assert_eq!(worst(&data), (Verdict::Blocked, "luks-no-discards", Severity::Critical));
    assert!(
        fix(&data).starts_with("dmsetup table --showkeys userdata") && !fix(&data).contains("cryptsetup")
    );
    assert!(fix(&data).contains("until it is set up anew"), "{said}");
    let cache = examined(&row([file_system("/cache", "f2fs", "rw,discard"), emmc()]));
    assert_eq!(cache.verdict, Verdict::Reaches, "{}", text(&cache));
}

/// A Chromebook whose `/var` is an encrypted sparse file on its SSD: <https://github.com/dnschneid/crouton/issues/1939>. ChromeOS sets the
/// encryption up with discards.
#[test]
fn encrypted_file_of_a_chromebook_gives_space_back_once_its_disk_is_trimmed() {
    let crypt = Layer {
        label: Some("encstateful".to_owned()),
        ..taking(YES, 4096, mapped("dm-1", "crypt", "aes-cbc-essiv:sha256 - 0 7:0 0 1 allow_discards"))
    };
    let file = PathBuf::from("/mnt/stateful_partition/encrypted.block");
    let image = taking(YES, 4096, layer("loop0", LayerKind::Loop { file }));
    let on = |options: &str| {
        let stateful = file_system("/mnt/stateful_partition", "ext4", options);
        let stack = row([
            file_system("/var", "ext4", "rw,discard"),
            crypt.clone(),
            image.clone(),
            stateful,
            nvme(YES),
        ]);
        diagnose(&stack, &Setup::default(), ASSUMED_ERASE_BLOCK)
    };
    let waits = on("rw");
    let said = text(&waits);
    assert_eq!(worst(&waits), (Verdict::Partial, "nested-file-system", Severity::Warning));
    assert!(fix(&waits).contains("fstrim /mnt/stateful_partition"), "{said}");
    assert_eq!(on("rw,discard").verdict, Verdict::Reaches);
}

/// Docker's devicemapper driver on loop devices, whose containers never gave space back: <https://github.com/moby/moby/issues/18867>.
#[test]
fn docker_s_pool_on_a_loop_device_waits_for_the_host_s_trim() {
    let pool = Layer {
        label: Some("docker-8:2-21890120-pool".to_owned()),
        ..taking(YES, 64 << 10, mapped("dm-0", "thin-pool", "7:1 7:0 128 32768 1 skip_block_zeroing"))
    };
    let thin = taking(YES, 64 << 10, mapped("dm-2", "thin", "253:0 9"));
    let data = PathBuf::from("/var/lib/docker/devicemapper/devicemapper/data");
    let stack = row([
        file_system("/", "ext4", "rw,relatime"),
        thin,
        pool,
        taking(YES, 4096, layer("loop0", LayerKind::Loop { file: data })),
        file_system("/var", "xfs", "rw"),
        nvme(YES),
    ]);
    let target = diagnose(&stack, &Setup { container: true, ..Setup::default() }, ASSUMED_ERASE_BLOCK);
    let said = text(&target);
    assert_eq!(target.verdict, Verdict::Partial, "{said}");
    assert!(said.contains("punches holes into /var/lib/docker"), "{said}");
    assert!(ids(&target).contains(&"timer-not-in-container"), "{said}");
    assert!(!ids(&target).contains(&"lvm-keeps-removed"), "{said}");
}

/// VDO on a zvol: what ext4 discards is never told to ZFS, by design: <https://github.com/dm-vdo/kvdo/issues/12>.
#[test]
fn vdo_on_a_zvol_tells_zfs_nothing() {
    let vdo = taking(4096, 4096, mapped("dm-0", "vdo", "V4 230:0 524288 4096"));
    let zvol = taking(64 << 20, 16 << 10, layer("zd0", LayerKind::Other(Some("zd".to_owned()))));
    let target = examined(&row([file_system("/mnt", "ext4", "rw,discard"), vdo, zvol]));
    text(&target);
    assert_eq!(worst(&target), (Verdict::Blocked, "vdo-keeps-discards", Severity::Warning));
    assert_eq!(target.findings[0].fix, None);
}

/// Thin snapshots on a pool whose data is on VDO, and whose removal gave VDO nothing back: <https://github.com/lvmteam/lvm2/issues/150>.
/// `issue_discards` is for thick volumes; containerd's snapshots were discarded before their removal
/// (<https://github.com/containerd/containerd/issues/5691>).
#[test]
fn removed_thin_volume_is_discarded_before() {
    let stack = row([
        file_system("/mnt", "xfs", "rw"),
        lvm("dm-3", "VolGroupVDO/lvdata", "thin", "253:2 1", YES, 64 << 10),
        lvm("dm-2", "VolGroupVDO/lv_data_pool-tpool", "thin-pool", "253:1 253:4 128 0 0", YES, 64 << 10),
        lvm("dm-4", "VolGroupVDO/lv_data_pool_tdata", "vdo", "V4 253:5 89600 4096", 4096, 4096),
        nvme(YES),
    ]);
    let target = examined(&stack);
    let said = text(&target);
    assert_eq!(target.verdict, Verdict::Blocked);
    assert_eq!(ids(&target), ["vdo-keeps-discards", "lvm-keeps-removed"], "{said}");
    let removed = &target.findings[1];
    let command = removed.fix.as_deref().unwrap_or_default();
    assert!(command.starts_with("# before you remove a thin volume: blkdiscard"), "{said}");
    assert!(!command.contains("lvdata"), "nobody is to lose this one: {said}");
    assert!(!command.contains("lvm.conf"), "{said}");
}

/// Volumes of a SAN under XCP-ng's LVM, whose removal discards nothing by default: <https://github.com/xcp-ng/xcp/issues/123>.
#[test]
fn removed_thick_volume_is_a_setting_of_lvm() {
    let scsi = Scsi {
        transport: Transport::Other(Some("lpfc".to_owned())),
        provisioning_mode: Some("unmap".to_owned()),
        thin_provisioning: Some(true),
    };
    let lun = taking(YES, 1 << 20, layer("sdc", LayerKind::Scsi(scsi)));
    let stack = row([
        file_system("/mnt", "ext4", "rw"),
        lvm("dm-0", "vg/vhd", "linear", "8:32 2048", YES, 1 << 20),
        lun,
    ]);
    let target = examined(&stack);
    text(&target);
    assert_eq!(worst(&target), (Verdict::Reaches, "lvm-keeps-removed", Severity::Note));
    assert!(fix(&target).starts_with("issue_discards = 1"), "{target:?}");
    let set = diagnose(&stack, &Setup { lvm_issues_discards: Some(true), ..timed() }, ASSUMED_ERASE_BLOCK);
    assert_eq!(ids(&set), [""; 0]);
}

/// A pool of ZFS on LUKS: <https://github.com/openzfs/zfs/issues/17726>. It is trimmed by zpool, and its devices can be asked for one by one.
#[test]
fn pool_of_zfs_on_luks_is_asked_by_its_devices() {
    let zfs = examined(&row([file_system("/tank", "zfs", "rw,xattr")]));
    let said = text(&zfs);
    assert_eq!(zfs.verdict, Verdict::Unknown);
    assert!(said.contains("zpool trim, or the pool's property autotrim"), "{said}");
    let open = Layer {
        subsystem: Some("CRYPT-LUKS2".to_owned()),
        label: Some("ST4000VN006".to_owned()),
        ..taking(YES, 4096, mapped("dm-5", "crypt", "aes-xts-plain64 - 0 8:64 32768 1 allow_discards"))
    };
    let ata = Transport::Ata { trim: Some("unqueued".to_owned()) };
    let mode = Some("writesame_16".to_owned());
    let scsi = Scsi { transport: ata, provisioning_mode: mode, thin_provisioning: Some(true) };
    let disk = Layer { rotational: true, ..taking(YES, 4096, layer("sde", LayerKind::Scsi(scsi))) };
    let device = examined(&row([open, disk.clone()]));
    assert_eq!(device.verdict, Verdict::Reaches, "{}", text(&device));
    let shut = examined(&row([closed("CRYPT-LUKS2", "ST4000VN006"), disk]));
    assert_eq!(worst(&shut), (Verdict::Blocked, "luks-no-discards", Severity::Critical));
}
