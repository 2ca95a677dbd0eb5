//! Reports on cards, USB bridges and disks.

use trimtab_core::Bytes;
use trimtab_core::device::{Announced, AtaTrim, CardErase, Provisioning};
use trimtab_core::document::doctor::{Canary, Target};
use trimtab_core::verdict::{Passes, Severity, Verdict};
use trimtab_linux::stack::{Layer, LayerKind, Scsi, Setup, Transport};

use super::{behind, ext4_on, fix, ids, text, worst};
use crate::tests::{YES, examined, file_system, layer, row, summary, taking, timed};
use crate::{ASSUMED_ERASE_BLOCK, diagnose};

/// The root of a single-board computer: an ext4 on the second partition of a card, 67 MiB behind its start.
fn card(kind: &str, max: u64, options: &str, setup: &Setup) -> Target {
    let erase =
        CardErase { card: Some(kind.to_owned()), unit: Some(Bytes(512)), preferred: Some(Bytes(4 << 20)) };
    let granularity = if max == 0 { 0 } else { 4 << 20 };
    let disk = Layer {
        announced: Announced { erase: Some(erase), ..Announced::default() },
        ..taking(max, granularity, layer("mmcblk0", LayerKind::Mmc))
    };
    let partition = taking(max, granularity, layer("mmcblk0p2", LayerKind::Partition));
    let mut stack = row([file_system("/", "ext4", options), partition, disk]);
    stack.layers[1].below[0].start = Some(Bytes(67 << 20));
    diagnose(&stack, setup, ASSUMED_ERASE_BLOCK)
}

/// A Raspberry Pi 4 whose SD card shows a granularity of 4 MiB: <https://github.com/raspberrypi/linux/issues/6606>. That is the size
/// that the card erases best. The kernel hands it smaller pieces, too; only fstrim goes by it.
#[test]
fn granularity_of_a_card_is_not_the_least_that_it_takes() {
    let weekly = card("SD", 120_921_784_320, "rw,noatime", &timed());
    let said = text(&weekly);
    assert_eq!((weekly.verdict, ids(&weekly)), (Verdict::Reaches, vec!["erase-block-edges"]));
    assert!(said.contains("fstrim passes over free space in pieces of less than 4 MiB"), "{said}");
    assert!(!said.contains("dropped") && !said.contains("never discarded"), "{said}");
    let online = card("SD", 120_921_784_320, "rw,noatime,discard", &Setup::default());
    assert!(!ids(&online).contains(&"online-only"), "{}", text(&online));
}

/// The same machine's driver of the card's slot, which let no card erase: <https://github.com/raspberrypi/linux/issues/1076>. A patch of
/// the driver mended it.
#[test]
fn driver_of_the_slot_may_be_to_blame_for_a_card() {
    let target = card("SD", 0, "rw,noatime", &timed());
    let said = text(&target);
    assert_eq!(worst(&target), (Verdict::Blocked, "device-no-discards", Severity::Critical));
    assert!(
        said.contains("the driver of its slot") && !said.contains("The device mmcblk0 takes no"),
        "{said}"
    );
}

/// A device that announces UNMAP, and no WRITE SAME.
fn announcing_unmap() -> Announced {
    let unmap = Provisioning { unmap: true, write_same_16: false, write_same_10: false, zeroes: false };
    Announced { provisioning: Some(unmap), ..Announced::default() }
}

/// A disk behind a USB bridge, with what the kernel shows of its provisioning.
pub(super) fn usb(mode: &str, thin: bool, announced: Announced, rotational: bool) -> Layer {
    let transport =
        Transport::Usb { driver: "uas".to_owned(), ids: Some(("152d".to_owned(), "1561".to_owned())) };
    let (mode, thin) = (Some(mode.to_owned()), Some(thin));
    let scsi = Scsi { transport, provisioning_mode: mode, thin_provisioning: thin };
    Layer { announced, rotational, ..taking(4_294_966_784, 4096, layer("sda", LayerKind::Scsi(scsi))) }
}

/// Drives behind bridges that the kernel discards on by WRITE SAME, as their pages of limits are missing:
/// <https://github.com/raspberrypi/linux/pull/4832>. They reject it; a udev rule with `unmap` mended that.
#[test]
fn write_same_to_a_usb_bridge_is_not_believed() {
    let target = ext4_on(usb("writesame_16", true, announcing_unmap(), false));
    text(&target);
    assert_eq!(worst(&target), (Verdict::Unknown, "usb-write-same", Severity::Warning));
    assert!(fix(&target).contains("ATTR{provisioning_mode}=\"unmap\""), "{target:?}");
    assert!(target.findings[0].message.contains("by WRITE SAME"), "{target:?}");
    // One that takes it after all.
    let mut proven = target;
    let reason = "16 MiB reached sda".to_owned();
    crate::prove(
        &mut proven,
        Canary { sent_bytes: Bytes::MIB, seen: Vec::new(), verdict: Verdict::Reaches, reason },
    );
    assert_eq!((proven.verdict, ids(&proven)), (Verdict::Reaches, vec![]));
}

/// A disk with shingled tracks (SMR) behind a bridge, with an exFAT, that fstrim could not trim although lsblk shows limits:
/// <https://github.com/namjaejeon/linux-exfat-oot/issues/28>.
#[test]
fn shingled_disk_behind_a_bridge_is_not_dismissed_as_rotating() {
    let disk = usb("writesame_16", true, announcing_unmap(), true);
    let target = examined(&row([file_system("/media/DVR", "exfat", "rw,relatime"), disk]));
    let said = text(&target);
    assert_eq!(worst(&target), (Verdict::Unknown, "usb-write-same", Severity::Warning));
    assert!(!said.contains("rotating disk"), "{said}");
}

/// A router with two drives whose mode was set to `unmap` by hand. One trims; the other's bridge answers with I/O errors:
/// <https://github.com/kuchkovsky/asuswrt-merlin-scripts/issues/12>.
#[test]
fn discards_that_were_turned_on_by_hand_are_not_said_to_be_taken() {
    let target = ext4_on(usb("unmap", false, Announced::default(), false));
    let said = text(&target);
    assert_eq!(target.verdict, Verdict::Reaches);
    assert!(!said.contains("the device takes them"), "{said}");
    assert!(said.contains("does not announce: only --canary tells"), "{said}");
}

/// A Seagate disk with shingled tracks (SMR), which has TRIM: <https://superuser.com/questions/1407990>. Behind a SAS adapter the same disk
/// is not to be told that it has no use for it.
#[test]
fn shingled_disk_with_trim_takes_it() {
    let trim = AtaTrim { supported: true, deterministic: false, zeroes: false, max_blocks: Some(1) };
    let announced = Announced { trim: Some(trim), ..Announced::default() };
    let ata = Transport::Ata { trim: Some("unqueued".to_owned()) };
    let mode = Some("writesame_16".to_owned());
    let scsi = Scsi { transport: ata, provisioning_mode: mode, thin_provisioning: Some(true) };
    let disk = taking(2 << 30, 4096, layer("sda", LayerKind::Scsi(scsi)));
    let target = ext4_on(Layer { rotational: true, announced: announced.clone(), ..disk });
    let said = text(&target);
    assert_eq!((target.verdict, ids(&target)), (Verdict::Reaches, vec![]));
    assert!(said.contains("unqueued TRIM"), "{said}");
    let adapted = ext4_on(Layer { announced, ..behind("mpt3sas", "ST2000DM008-2FR102", true) });
    let said = text(&adapted);
    assert_eq!(worst(&adapted), (Verdict::Blocked, "adapter-no-discards", Severity::Warning));
    assert!(!said.contains("hard disks lose nothing") && said.contains("(SMR)"), "{said}");
    assert!(adapted.reason.ends_with("the drive behind it has TRIM"), "{said}");
}

/// A laptop's SSD that lost writes, with queued TRIM turned off by `libata.force=noncqtrim`:
/// <https://github.com/NixOS/nixpkgs/issues/11276>. The kernel knows nothing of the drive there.
#[test]
fn queued_trim_may_be_turned_off_by_the_command_line() {
    let disk = |word: &str, max| {
        let transport = Transport::Ata { trim: Some(word.to_owned()) };
        let mode = Some("writesame_16".to_owned());
        let scsi = Scsi { transport, provisioning_mode: mode, thin_provisioning: Some(true) };
        row([file_system("/", "ext4", "rw"), taking(max, 512, layer("sda", LayerKind::Scsi(scsi)))])
    };
    let with = |words: &[&str]| Setup {
        command_line: words.iter().map(|word| (*word).to_owned()).collect(),
        ..timed()
    };
    let target =
        diagnose(&disk("forced_unqueued", YES), &with(&["libata.force=noncqtrim"]), ASSUMED_ERASE_BLOCK);
    let said = text(&target);
    assert!(said.contains("list of drives or its command line") && !said.contains("knows"), "{said}");
    // All TRIM is off; the second by the kernel's own list.
    let off =
        diagnose(&disk("forced_unsupported", 0), &with(&["libata.force=1:notrim"]), ASSUMED_ERASE_BLOCK);
    assert!(fix(&off).contains("/etc/default/grub"), "{}", text(&off));
    let listed = diagnose(&disk("forced_unsupported", 0), &with(&[]), ASSUMED_ERASE_BLOCK);
    assert_eq!(worst(&listed), (Verdict::Blocked, "trim-forced-off", Severity::Critical));
    assert!(
        listed.findings[0].fix.is_none() && listed.findings[0].why.contains("the kernel's list"),
        "{listed:?}"
    );
}

/// A mirror of hard disks with a zvol that fstrim was run on by mistake: <https://github.com/openzfs/zfs/issues/7551>. ZFS takes discards
/// whatever its disks are.
#[test]
fn zvol_takes_discards_above_hard_disks() {
    let disk = taking(64 << 20, 16 << 10, layer("zd0", LayerKind::Other(Some("zd".to_owned()))));
    let target = ext4_on(disk);
    let said = text(&target);
    assert_eq!(summary(&target), (Verdict::Reaches, vec![], vec![]));
    assert!(said.contains("ZFS takes them") && said.contains("units of 16 KiB"), "{said}");
    assert_eq!(target.layers[1].passes, Passes::Reshaped);
}
