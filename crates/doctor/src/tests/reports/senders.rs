//! Reports on who sends discards.

use trimtab_core::verdict::{Severity, Verdict};
use trimtab_linux::stack::{Layer, LayerKind, Scsi, Setup, Transport};

use super::{ext4_on, fix, text, worst};
use crate::tests::{YES, examined, file_system, layer, nvme, row, taking, timed};
use crate::{ASSUMED_ERASE_BLOCK, diagnose};

/// A container of LXD on a file system of its host, whose weekly fstrim the kernel refused:
/// <https://github.com/canonical/lxd/issues/2030>. Nothing in the container can trim; its host does.
#[test]
fn container_without_rights_is_not_told_to_trim_by_itself() {
    let stack = row([file_system("/", "ext4", "rw,relatime"), nvme(YES)]);
    let target = diagnose(&stack, &Setup { container: true, ..timed() }, ASSUMED_ERASE_BLOCK);
    let said = text(&target);
    assert_eq!(worst(&target), (Verdict::Reaches, "timer-not-in-container", Severity::Note));
    assert!(!fix(&target).starts_with("fstrim "), "{said}");
    assert!(fix(&target).contains("# on the host, for what is mounted there"), "{said}");
    assert!(fix(&target).contains("pct fstrim") && fix(&target).contains("nsenter"), "{said}");
}

/// A container of Docker Desktop, whose space comes back only by a trim in the machine around it:
/// <https://github.com/docker/docs/pull/15407>.
#[test]
fn container_s_root_that_cannot_be_seen_is_unknown() {
    let options = "rw,lowerdir=/var/lib/docker/overlay2/l/A,upperdir=/var/lib/docker/overlay2/1/diff,workdir=/var/lib/docker/w";
    let stack = row([file_system("/", "overlay", options)]);
    let target = diagnose(&stack, &Setup { container: true, ..Setup::default() }, ASSUMED_ERASE_BLOCK);
    let said = text(&target);
    assert_eq!((target.verdict, target.findings.len()), (Verdict::Unknown, 0), "{said}");
    assert!(said.contains("the directory that takes its changes can't be found from here"), "{said}");
}

/// A NAS whose program adds `discard` to the options of its file systems, above a timer:
/// <https://github.com/openmediavault/openmediavault/issues/520>. Btrfs, which sends the rest slowly, was mixed up with that
/// (<https://github.com/NixOS/nixos-hardware/issues/1199>).
#[test]
fn option_and_timer_are_too_much_except_for_btrfs() {
    let with =
        |fstype: &str, options: &str| examined(&row([file_system("/srv", fstype, options), nvme(YES)]));
    let ext4 = with("ext4", "rw,discard");
    let said = text(&ext4);
    assert_eq!(worst(&ext4), (Verdict::Reaches, "double-work", Severity::Note));
    assert!(fix(&ext4).starts_with("mount -o remount,nodiscard /srv"), "{said}");
    let btrfs = with("btrfs", "rw,ssd,discard=async");
    assert!(btrfs.findings.is_empty(), "{}", text(&btrfs));
}

/// An exFAT by FUSE on a card, for which trim was asked for: <https://github.com/relan/exfat/issues/85>. The program decides.
#[test]
fn file_system_in_user_space_is_up_to_its_program() {
    let disk = taking(YES, 4 << 20, layer("mmcblk1", LayerKind::Mmc));
    let target = examined(&row([file_system("/media/card", "fuseblk", "rw,user_id=0"), disk]));
    let said = text(&target);
    assert_eq!(target.verdict, Verdict::Unknown, "{said}");
    assert!(said.contains("it is up to the program behind it (FUSE)"), "{said}");
}

/// A machine with a hard disk among its file systems, for which its owner wants no trims: <https://github.com/util-linux/util-linux/issues/4092>.
/// fstrim passes over a disk that takes none.
#[test]
fn hard_disk_without_trim_is_no_alarm() {
    let ata = Transport::Ata { trim: Some("unsupported".to_owned()) };
    let scsi =
        Scsi { transport: ata, provisioning_mode: Some("full".to_owned()), thin_provisioning: Some(false) };
    let target = ext4_on(Layer { rotational: true, ..taking(0, 0, layer("sda", LayerKind::Scsi(scsi))) });
    let said = text(&target);
    assert_eq!(worst(&target), (Verdict::Blocked, "rotating-disk", Severity::Note));
    assert!(!said.contains("has no use for discards") && target.findings[0].fix.is_none(), "{said}");
}
