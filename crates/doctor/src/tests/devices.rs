//! Tests of disks' own announcements.

use std::path::PathBuf;

use trimtab_core::Bytes;
use trimtab_core::device::{Announced, AtaTrim, CardErase, Provisioning, UnmapLimits};
use trimtab_core::verdict::{Severity, Verdict};
use trimtab_linux::stack::{Layer, LayerKind, Scsi, Transport};

use super::{YES, examined, file_system, layer, mapped, nvme, row, summary, taking};

#[test]
fn scsi_devices_are_distinguished() {
    let on = |transport: Transport, mode: &str, thin, rotational| {
        let scsi = Scsi { transport, provisioning_mode: Some(mode.to_owned()), thin_provisioning: thin };
        let disk = Layer { rotational, ..taking(0, 0, layer("sda", LayerKind::Scsi(scsi))) };
        let target = examined(&row([file_system("/mnt", "ext4", "rw"), disk]));
        (target.verdict, target.findings[0].id.clone(), target.findings[0].severity)
    };
    let ata = |trim: &str| Transport::Ata { trim: Some(trim.to_owned()) };
    let usb = Transport::Usb { driver: "uas".to_owned(), ids: Some(("152d".to_owned(), "0583".to_owned())) };
    let blocked = |id: &str, severity| (Verdict::Blocked, id.to_owned(), severity);
    assert_eq!(
        on(ata("unsupported"), "full", None, false),
        blocked("device-no-discards", Severity::Critical)
    );
    assert_eq!(on(ata("unsupported"), "full", None, true), blocked("rotating-disk", Severity::Note));
    assert_eq!(
        on(ata("forced_unsupported"), "full", None, false),
        blocked("trim-forced-off", Severity::Critical)
    );
    assert_eq!(on(usb, "full", None, false), blocked("usb-bridge", Severity::Critical));
    assert_eq!(on(Transport::Virtio, "full", None, true), blocked("host-no-discards", Severity::Critical));
    assert_eq!(
        on(Transport::Other(None), "disabled", Some(true), false),
        blocked("provisioning-mode", Severity::Critical)
    );
    assert_eq!(
        on(Transport::Other(None), "full", Some(false), false),
        blocked("device-no-discards", Severity::Critical)
    );
}

/// The findings on a disk with this vendor and model, which says that it rotates.
fn of_model(transport: Transport, model: &str) -> (Verdict, String, String) {
    let mode = Some("full".to_owned());
    let scsi = Scsi { transport, provisioning_mode: mode, thin_provisioning: Some(false) };
    let disk = Layer {
        rotational: true,
        label: Some(model.to_owned()),
        ..taking(0, 0, layer("sda", LayerKind::Scsi(scsi)))
    };
    let target = examined(&row([file_system("/mnt", "ext4", "rw"), disk]));
    let finding = target.findings[0].clone();
    (target.verdict, finding.id, finding.fix.unwrap_or_default())
}

#[test]
fn claim_to_rotate_is_not_believed_of_a_host() {
    let ata = || Transport::Ata { trim: Some("unsupported".to_owned()) };
    let other = || Transport::Other(None);
    for (transport, model, word) in [
        (ata(), "VBOX HARDDISK", "VBoxManage storageattach"),
        (other(), "VMware Virtual disk", "VMFS 6"),
        (other(), "Msft Virtual Disk", "VHDX"),
        (ata(), "QEMU HARDDISK", "discard='unmap'"),
        (other(), "LIO-ORG disk1", "emulate_tpu=1"),
    ] {
        let (verdict, id, fix) = of_model(transport, model);
        assert_eq!((verdict, id.as_str()), (Verdict::Blocked, "host-no-discards"), "{model}");
        assert!(fix.contains(word), "{model}: {fix}");
    }
    for (transport, model) in [(ata(), "ST4000DM004-2CV104"), (other(), "SEAGATE ST2000NM0045")] {
        assert_eq!(of_model(transport, model).1, "rotating-disk", "{model}");
    }
    let unknown = Layer { rotational: true, ..taking(0, 0, layer("cciss/c0d0", LayerKind::Other(None))) };
    let target = examined(&row([file_system("/mnt", "ext4", "rw"), unknown]));
    assert_eq!(summary(&target), (Verdict::Blocked, vec!["cciss/c0d0"], vec![]));
}

#[test]
fn device_that_rejected_a_discard_is_not_called_limited_by_somebody() {
    let disk = |max, max_hardware| {
        let transport = Transport::Other(None);
        let mode = Some("disabled".to_owned());
        let scsi = Scsi { transport, provisioning_mode: mode, thin_provisioning: Some(true) };
        let mut disk = taking(max, 512, layer("sda", LayerKind::Scsi(scsi)));
        disk.limits.as_mut().unwrap().max_hardware = Bytes(max_hardware);
        examined(&row([file_system("/mnt", "ext4", "rw"), disk]))
    };
    // The second is what raising the limit makes of the first.
    for (max, max_hardware) in [(0, YES), (YES, YES), (0, 0)] {
        let target = disk(max, max_hardware);
        assert_eq!(summary(&target), (Verdict::Blocked, vec!["sda"], vec!["provisioning-mode"]));
        assert!(target.findings[0].message.contains("when a device rejects one"), "{target:?}");
    }
}

#[test]
fn granularity_of_zero_is_no_proof_of_discards() {
    let target = examined(&row([file_system("/mnt", "ext4", "rw"), taking(YES, 0, nvme(YES))]));
    assert_eq!(target.verdict, Verdict::Unknown);
    assert!(target.reason.contains("5.10 to 6.7"), "{}", target.reason);
}

#[test]
fn storage_elsewhere_is_named_with_where_to_look() {
    for (driver, word) in [("zd", "zfs list"), ("rbd", "rbd du"), ("vbd", "the Xen host")] {
        let disk = taking(YES, 4096, layer("x0", LayerKind::Other(Some(driver.to_owned()))));
        let reason = examined(&row([disk])).layers.remove(0).reason;
        assert!(reason.contains("can't be seen from here") && reason.contains(word), "{reason}");
    }
    for (model, word) in
        [("Amazon Elastic Block Store", "the cloud takes"), ("VMware Virtual disk", "the host takes")]
    {
        let disk = Layer { label: Some(model.to_owned()), ..nvme(YES) };
        let reason = examined(&row([disk])).layers.remove(0).reason;
        assert!(reason.starts_with(word), "{reason}");
    }
    let iscsi = scsi(Transport::Other(Some("iscsi_tcp".to_owned())));
    assert!(said_of(iscsi, Announced::default()).starts_with("the iSCSI target takes them"));
}

#[test]
fn zeros_written_are_no_discards() {
    let transport = Transport::Usb { driver: "usb-storage".to_owned(), ids: None };
    let mode = Some("writesame_zero".to_owned());
    let disk =
        layer("sda", LayerKind::Scsi(Scsi { transport, provisioning_mode: mode, thin_provisioning: None }));
    let target = examined(&row([file_system("/mnt", "ext4", "rw"), taking(YES, 512, disk)]));
    assert_eq!(summary(&target), (Verdict::Blocked, vec!["sda"], vec!["provisioning-mode"]));
}

#[test]
fn a_limit_set_to_zero_is_no_property_of_the_drive() {
    let fix = |max_hardware, granularity, mut disk: Layer| {
        let name = disk.name.clone();
        let limits = disk.limits.as_mut().unwrap();
        limits.max = Bytes::ZERO;
        (limits.max_hardware, limits.granularity) = (Bytes(max_hardware), Bytes(granularity));
        let target = examined(&row([file_system("/mnt", "ext4", "rw"), disk]));
        assert_eq!(summary(&target), (Verdict::Blocked, vec![name.as_str()], vec!["limit-set-to-zero"]));
        target.findings[0].fix.clone().unwrap()
    };
    let drive = || nvme(YES);
    assert_eq!(fix(YES, 512, drive()), "echo 2147483648 > /sys/block/nvme0n1/queue/discard_max_bytes");
    // No value is taken that isn't a multiple of the granularity.
    let fixed = fix(4_294_966_784, 4096, drive());
    assert_eq!(fixed, "echo 4294963200 > /sys/block/nvme0n1/queue/discard_max_bytes");
    // Where that is 0, none is.
    let fixed = fix(4_294_966_784, 0, drive());
    assert!(!fixed.contains("echo") && fixed.contains("create it anew"), "{fixed}");
    let fixed = fix(
        4_294_966_784,
        0,
        taking(YES, 4096, layer("loop3", LayerKind::Loop { file: PathBuf::from("/images/a disk") })),
    );
    assert!(
        fixed.starts_with("losetup --detach /dev/loop3 && losetup /dev/loopN '/images/a disk' "),
        "{fixed}"
    );
}

/// Returns the findings about a disk that announces this.
fn said_of(kind: LayerKind, announced: Announced) -> String {
    let disk = Layer { announced, ..taking(YES, 4096, layer("sda", kind)) };
    examined(&row([disk])).layers.remove(0).reason
}

fn scsi(transport: Transport) -> LayerKind {
    LayerKind::Scsi(Scsi { transport, provisioning_mode: Some("unmap".to_owned()), thin_provisioning: None })
}

#[test]
fn reads_of_trimmed_blocks_are_described() {
    let ata = |word: &str, trim| {
        let kind = scsi(Transport::Ata { trim: Some(word.to_owned()) });
        said_of(kind, Announced { trim, ..Announced::default() })
    };
    let zeroes = AtaTrim { supported: true, deterministic: true, zeroes: true, max_blocks: Some(8) };
    assert_eq!(
        ata("queued", Some(zeroes)),
        "the device takes them; it has queued TRIM of up to 512 ranges; trimmed blocks read as zeros (RZAT)"
    );
    let same = AtaTrim { zeroes: false, max_blocks: None, ..zeroes };
    assert!(
        ata("unqueued", Some(same))
            .ends_with("unqueued TRIM; trimmed blocks read alike each time, but not surely as zeros (DRAT)")
    );
    let anything = AtaTrim { deterministic: false, ..same };
    assert!(ata("unqueued", Some(anything)).ends_with("trimmed blocks may read as anything"));
    assert!(
        ata("forced_unqueued", None)
            .contains("unqueued as the kernel's list of drives or its command line says")
    );
    assert!(ata("unqueued", None).ends_with("what trimmed blocks read as is unknown"));
}

#[test]
fn announced_commands_are_named() {
    let limits = UnmapLimits {
        max_unmap: Some(Bytes(4 << 30)),
        max_ranges: Some(256),
        granularity: Some(Bytes(64 << 10)),
        alignment: None,
        max_write_same: None,
    };
    let provisioning = Provisioning { unmap: true, write_same_16: true, write_same_10: false, zeroes: false };
    let announced =
        Announced { limits: Some(limits), provisioning: Some(provisioning), ..Announced::default() };
    assert_eq!(
        said_of(scsi(Transport::Other(None)), announced),
        "the device takes them; it announces UNMAP (up to 4 GiB, 256 ranges, units of 64 KiB) and WRITE SAME(16); \
         freed blocks may read as anything"
    );
    let unknown = said_of(scsi(Transport::Other(None)), Announced::default());
    assert!(unknown.ends_with("what freed blocks read as is unknown"), "{unknown}");
}

#[test]
fn drive_behind_a_bridge_is_described() {
    let usb = |trim: Option<bool>| {
        let trim = trim.map(|supported| AtaTrim {
            supported,
            deterministic: false,
            zeroes: false,
            max_blocks: None,
        });
        let kind = scsi(Transport::Usb { driver: "uas".to_owned(), ids: None });
        let announced = Announced { trim, ..Announced::default() };
        let disk = Layer { announced, ..taking(0, 0, layer("sda", kind)) };
        examined(&row([disk])).reason
    };
    assert!(usb(Some(true)).ends_with("the drive behind it has TRIM"));
    assert!(usb(Some(false)).ends_with("the drive behind it has no TRIM either"));
    assert!(usb(None).ends_with("(provisioning_mode is unmap)"));
}

#[test]
fn card_announces_its_erase_unit() {
    let erase =
        CardErase { card: Some("SD".to_owned()), unit: Some(Bytes(512)), preferred: Some(Bytes(4 << 20)) };
    let said = said_of(LayerKind::Mmc, Announced { erase: Some(erase), ..Announced::default() });
    assert!(said.contains("the SD card erases units of 512 B, best of 4 MiB"), "{said}");
    assert_eq!(said_of(LayerKind::Mmc, Announced::default()), "the device takes them");
}

#[test]
fn zones_are_freed_by_resets() {
    let disk = |max| Layer { zoned: true, ..taking(max, 4096, layer("sda", scsi(Transport::Other(None)))) };
    let bare = examined(&row([disk(0)]));
    assert_eq!(summary(&bare), (Verdict::Blocked, vec!["sda"], vec![]));
    assert!(bare.reason.contains("blkzone reset"), "{}", bare.reason);
    let f2fs = || file_system("/mnt", "f2fs", "rw");
    let mounted = examined(&row([f2fs(), disk(0)]));
    assert_eq!(summary(&mounted), (Verdict::Reaches, vec![], vec![]));
    let crypt = mapped("dm-0", "crypt", "aes-xts-plain64 - 0 8:1 0");
    let through = examined(&row([f2fs(), Layer { zoned: true, ..taking(0, 0, crypt) }, disk(0)]));
    assert_eq!(summary(&through), (Verdict::Reaches, vec![], vec![]), "resets need no allow_discards");
    let as_usual = taking(YES, 4096, mapped("dm-0", "zoned", "8:1"));
    let hidden = examined(&row([file_system("/mnt", "ext4", "rw"), as_usual, disk(0)]));
    assert_eq!(summary(&hidden), (Verdict::Reaches, vec![], vec![]));
}
