//! The kinds of a stack's devices.

use trimtab_core::Bytes;
use trimtab_core::device::{Announced, CardErase, Limits};

use super::{refusal, stack};
use crate::captured::Captured;
use crate::stack::{LayerKind, Raid, Scsi, StackError, Transport};

const QUEUE: [(&str, &str); 7] = [
    ("discard_alignment", "512"),
    ("queue/rotational", "1"),
    ("queue/discard_granularity", "4096"),
    ("queue/discard_max_bytes", "2147450880"),
    ("queue/discard_max_hw_bytes", "4294966784"),
    ("queue/max_discard_segments", "256"),
    ("queue/write_zeroes_max_bytes", "0"),
];

fn kind(machine: &Captured, name: &str) -> LayerKind {
    stack(machine, &format!("/dev/{name}")).layers[0].kind.clone()
}

/// A disk `sda` whose hardware is found at `path` in sysfs, with these files and links there.
fn attached(path: &str, files: &[(&str, &str)], links: &[(&str, &str)]) -> Scsi {
    let machine =
        Captured::new().device("sda", "8:0", &[]).link("devices/sda/device", &format!("../../{path}"));
    let machine = machine
        .file(&format!("sys/{path}/scsi_disk/0:0:0:0/provisioning_mode"), "unmap\n")
        .file(&format!("sys/{path}/scsi_disk/0:0:0:0/thin_provisioning"), "1\n");
    let add = |machine: Captured, (file, text): &(&str, &str)| machine.file(&format!("sys/{file}"), text);
    let machine = files.iter().fold(machine, add);
    let machine = links.iter().fold(machine, |machine, (from, to)| machine.link(from, to));
    match kind(&machine, "sda") {
        LayerKind::Scsi(scsi) => scsi,
        other => panic!("{other:?}"),
    }
}

/// The same without links.
fn scsi(path: &str, files: &[(&str, &str)]) -> Scsi {
    attached(path, files, &[])
}

#[test]
fn a_queue_has_limits() {
    let machine = Captured::new().device("sda", "8:0", &QUEUE).device("sda/sda1", "8:1", &[QUEUE[0]]);
    let limits = Limits {
        max: Bytes(2_147_450_880),
        max_hardware: Bytes(4_294_966_784),
        granularity: Bytes(4096),
        alignment: Bytes(512),
        segments: Some(256),
        write_zeroes_max: Bytes(0),
    };
    let zoned = |text: &str| {
        let machine = Captured::new().device("sda", "8:0", &[("queue/zoned", text)]);
        stack(&machine, "/dev/sda").layers[0].zoned
    };
    assert_eq!((zoned("host-managed"), zoned("host-aware"), zoned("none")), (true, false, false));
    for layer in stack(&machine, "/dev/sda1").layers {
        assert_eq!(layer.limits, Some(limits));
        assert!(layer.rotational && !layer.read_only);
        assert_eq!(layer.size, Some(Bytes(1 << 20)));
    }
    let before_5_18 = Captured::new().device("sda", "8:0", &QUEUE[..5]);
    let bare = &stack(&before_5_18, "/dev/sda").layers[0];
    assert_eq!((bare.limits, bare.rotational), (None, true));
    for (attribute, value) in [("size", "36028797018963968"), ("size", "-1"), ("queue/rotational", "yes")] {
        let malformed = Captured::new().device("sda", "8:0", &[(attribute, value)]);
        assert!(matches!(refusal(&malformed, "/dev/sda"), StackError::Block(_)), "{attribute} {value}");
    }
}

#[test]
fn scsi_devices_say_how_they_are_attached() {
    let ata = "devices/pci0/ata6/host5/target5:0:0/5:0:0:0";
    let sata =
        scsi(ata, &[("class/ata_device/dev6.0/trim", "queued\n"), ("class/ata_device/dev5.0/trim", "x")]);
    assert_eq!(sata.transport, Transport::Ata { trim: Some("queued".to_owned()) });
    assert_eq!((sata.provisioning_mode.as_deref(), sata.thin_provisioning), (Some("unmap"), Some(true)));
    let multiplied =
        scsi("devices/ata6/host5/target5:2:0/5:2:0:0", &[("class/ata_device/dev6.2.0/trim", "unqueued")]);
    assert_eq!(multiplied.transport, Transport::Ata { trim: Some("unqueued".to_owned()) });
    assert_eq!(scsi("devices/ata6/host5/5:0:0:0", &[]).transport, Transport::Ata { trim: None });

    let usb = "devices/pci0/usb2/2-1";
    let interface = format!("{usb}/2-1:1.0");
    let files = [(format!("{usb}/idVendor"), "152d\n"), (format!("{usb}/idProduct"), "0578\n")];
    let files = files.each_ref().map(|(file, text)| (file.as_str(), *text));
    let links = [(&*format!("{interface}/driver"), "../../drivers/uas")];
    let bridge = attached(&format!("{interface}/host3/target3:0:0/3:0:0:0"), &files, &links);
    let ids = Some(("152d".to_owned(), "0578".to_owned()));
    assert_eq!(bridge.transport, Transport::Usb { driver: "uas".to_owned(), ids });

    let adapter = |name: &str| {
        scsi("devices/host6/target6:0:0/6:0:0:0", &[("devices/host6/scsi_host/host6/proc_name", name)])
            .transport
    };
    assert_eq!(adapter("virtio_scsi\n"), Transport::Virtio);
    assert_eq!(adapter("mpt3sas\n"), Transport::Other(Some("mpt3sas".to_owned())));
    assert_eq!(adapter("<NULL>\n"), Transport::Other(None));
}

#[test]
fn other_devices_are_recognized_by_their_attributes() {
    let machine = Captured::new()
        .device("md127", "9:127", &[("md/level", "raid5"), ("md/chunk_size", "524288")])
        .file("sys/module/raid456/parameters/devices_handle_discard_safely", "N\n")
        .device("nvme0n1", "259:0", &[("device/model", "Fast SSD  ")])
        .device("nvme0n1/nvme0n1p1", "259:1", &[])
        .device("mmcblk0", "179:0", &[])
        .device("zram0", "252:0", &[])
        .device("nbd3", "43:96", &[])
        .device("bcache0", "251:0", &[])
        .device("loop3", "7:3", &[])
        .device("nullb0", "250:0", &[])
        .device("dm-0", "253:0", &[("dm/name", "x")])
        .device("vdb", "254:16", &[])
        .link("devices/vdb/device/driver", "../../virtio_blk")
        .device("cciss!c0d0", "104:0", &[]);
    let raid = Raid { level: "raid5".to_owned(), chunk: Bytes(512 << 10), discards_are_safe: Some(false) };
    let other = |driver: &str| LayerKind::Other(Some(driver.to_owned()));
    for (name, expected) in [
        ("md127", LayerKind::Raid(raid)),
        ("nvme0n1", LayerKind::Nvme),
        ("nvme0n1p1", LayerKind::Partition),
        ("mmcblk0", LayerKind::Mmc),
        ("zram0", LayerKind::Zram),
        ("nbd3", LayerKind::Nbd),
        ("bcache0", LayerKind::Bcache),
        ("loop3", other("loop")),
        ("nullb0", other("nullb")),
        ("dm-0", LayerKind::DeviceMapper(Vec::new())),
        ("vdb", LayerKind::VirtioBlk),
        ("cciss/c0d0", other("cciss/c0d")),
    ] {
        assert_eq!(kind(&machine, name), expected, "{name}");
    }
    let labels = stack(&machine, "/dev/nvme0n1p1").layers.into_iter().map(|layer| layer.label);
    assert_eq!(labels.collect::<Vec<_>>(), [None, Some("Fast SSD".to_owned())]);
}

#[test]
fn maker_of_a_mapped_device_is_known_by_its_uuid() {
    let made = |uuid: &str| {
        let machine = Captured::new().device("dm-0", "253:0", &[("dm/name", "a-b"), ("dm/uuid", uuid)]);
        stack(&machine, "/dev/dm-0").layers[0].subsystem.clone()
    };
    for (uuid, expected) in [
        ("CRYPT-LUKS2-3e6be9de813911d19106a43f08d823a6-home", Some("CRYPT-LUKS2")),
        ("CRYPT-LUKS1-3e6be9de813911d19106a43f08d823a6-home", Some("CRYPT-LUKS1")),
        ("LVM-kVS9", Some("LVM")),
        ("mpath-3600", Some("mpath")),
        ("LVMish", None),
        ("mine-LVM-", None),
    ] {
        assert_eq!(made(uuid).as_deref(), expected, "{uuid}");
    }
}

#[test]
fn announced_limits_of_the_hardware_are_read() {
    let machine = Captured::new()
        .device("sda", "8:0", &[("queue/logical_block_size", "512")])
        .link("devices/sda/device", "../../devices/host0/0:0:0:0")
        .file("sys/devices/host0/0:0:0:0/scsi_disk/0:0:0:0/provisioning_mode", "unmap\n")
        .file("sys/devices/host0/0:0:0:0/vpd_pgb0", [b"\0\xb0\0\x3c".as_slice(), &[1; 60]].concat())
        .file("sys/devices/host0/0:0:0:0/vpd_pgb2", b"\0\xb2\0\x04\0\x84\0\0")
        .device("mmcblk0", "179:0", &[])
        .file("sys/devices/mmcblk0/device/type", "SD\n")
        .file("sys/devices/mmcblk0/device/erase_size", "512\n")
        .file("sys/devices/mmcblk0/device/preferred_erase_size", "4194304\n");
    let of = |name: &str| stack(&machine, &format!("/dev/{name}")).layers[0].announced.clone();
    let disk = of("sda");
    assert_eq!(disk.limits.and_then(|limits| limits.max_unmap), Some(Bytes(0x0101_0101 * 512)));
    assert_eq!(disk.provisioning.map(|found| (found.unmap, found.zeroes)), Some((true, true)));
    assert_eq!((disk.trim, disk.erase), (None, None));
    let card =
        CardErase { card: Some("SD".to_owned()), unit: Some(Bytes(512)), preferred: Some(Bytes(4 << 20)) };
    assert_eq!(of("mmcblk0"), Announced { erase: Some(card), ..Announced::default() });
}
