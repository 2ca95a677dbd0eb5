//! The findings: obstacles to discards below a target, and their fixes.

use std::fmt::Display;

use trimtab_core::Bytes;
use trimtab_core::device::Limits;
use trimtab_core::document::doctor::{Canary, Target};
use trimtab_core::shell::quoted;
use trimtab_core::verdict::{Finding, Severity, Verdict};
use trimtab_linux::stack::{Layer, LayerKind, Raid};

pub(super) mod mapped;
pub(super) mod virtual_disks;

use super::opinion::LayerInStack;

/// Returns a layer's name with its label.
pub(super) fn title(layer: &Layer) -> String {
    match &layer.label {
        Some(label) => format!("{} ({label})", layer.name),
        None => layer.name.clone(),
    }
}

/// Returns a device-mapper layer's name in `/dev/mapper`, for commands.
pub(super) fn mapped(layer: &Layer) -> &str {
    layer.label.as_deref().unwrap_or(&layer.name)
}

const STAYS: &str = "The drive takes deleted data for live data: writes slow down and wear it out sooner.";
const LIMIT_CHECK: &str = "lsblk -D   # DISC-MAX must not be 0B";

const PARITY_RISK: &str = "Only where every drive reads zeros after a discard (trimtab bench tells; ATA calls it \
     RZAT): with any other, parity no longer fits the data, and a failed drive can't be rebuilt.";

/// A finding that blocks all discards.
fn layer_finding(id: &str, layer: &Layer, message: String) -> Finding {
    Finding {
        id: id.to_owned(),
        severity: Severity::Critical,
        layer: layer.name.clone(),
        message,
        why: STAYS.to_owned(),
        fix: None,
        cost: None,
        check: LIMIT_CHECK.to_owned(),
    }
}

pub(super) fn takes_none(layer: &Layer, message: String) -> Finding {
    layer_finding("device-no-discards", layer, message)
}

pub(super) fn raid_parity(place: &LayerInStack, raid: &Raid) -> Finding {
    let layer = place.layer;
    let members: Vec<_> = place.below.iter().map(|(drive, _)| format!("/dev/{}", drive.name)).collect();
    let array = format!("/dev/{}", layer.name);
    Finding {
        fix: Some(format!(
            "echo 'options raid456 devices_handle_discard_safely=Y' > /etc/modprobe.d/raid456-discard.conf\n\
             echo Y > /sys/module/raid456/parameters/devices_handle_discard_safely\n\
             mdadm --stop {array} && mdadm --assemble {array} {}   # while nothing on it is mounted",
            members.join(" ")
        )),
        cost: Some(PARITY_RISK.to_owned()),
        check: "cat /sys/module/raid456/parameters/devices_handle_discard_safely".to_owned(),
        ..layer_finding(
            "raid-parity",
            layer,
            format!("The {} array {} drops all discards.", raid.level, layer.name),
        )
    }
}

/// A file system that has no discards.
pub(super) fn never_discards(layer: &Layer, fstype: &str) -> Finding {
    let mount = quoted(&layer.name);
    Finding {
        severity: Severity::Warning,
        check: format!("fstrim -v {mount}"),
        ..layer_finding(
            "file-system-no-discards",
            layer,
            format!("{mount} discards nothing: {fstype} has no discards, neither by itself nor for fstrim."),
        )
    }
}

/// NTFS3, which discards nothing without the mount option.
pub(super) fn needs_the_option(layer: &Layer) -> Finding {
    let mount = quoted(&layer.name);
    Finding {
        fix: Some(format!(
            "mount -o remount,discard {mount}   # and add discard,X-fstrim.notrim to its options in /etc/fstab"
        )),
        cost: Some(
            "Deletions then wait for the drive's discards. What is free already is discarded once it was used again; fstrim would \
             discard data that is in use."
                .to_owned(),
        ),
        check: format!("findmnt -no OPTIONS {mount}"),
        ..layer_finding(
            "ntfs3-needs-discard",
            layer,
            format!("{mount} discards nothing: NTFS3 needs the mount option discard."),
        )
    }
}

/// A bcachefs that sends no discards to some of its devices.
pub(super) fn bcachefs(layer: &Layer, devices: &[String]) -> Finding {
    let mount = quoted(&layer.name);
    let places = devices.iter().map(|name| format!("/sys/class/block/{name}/bcachefs/discard"));
    let places = places.collect::<Vec<_>>().join(" ");
    Finding {
        fix: Some(format!("echo 1 | tee {places}")),
        cost: Some(
            "Space that is free already is not discarded. Deletions then wait for the drive now and then."
                .to_owned(),
        ),
        check: format!("cat {places}"),
        ..layer_finding(
            "bcachefs-no-discards",
            layer,
            format!("{mount} sends no discards to {}: its option discard is off there.", devices.join(", ")),
        )
    }
}

/// The id of [`limited`].
pub(super) const LIMITED: &str = "limit-set-to-zero";
/// The id of [`usb`].
pub(super) const USB: &str = "usb-bridge";
/// The id of [`usb_write_same`].
pub(super) const USB_WRITE_SAME: &str = "usb-write-same";
/// The id of [`forced_off`].
pub(super) const FORCED_OFF: &str = "trim-forced-off";
/// The id of [`nested`].
pub(super) const NESTED: &str = "nested-file-system";

/// A file system that holds the file of a loop device, and isn't mounted with `discard`.
pub(super) fn nested(layer: &Layer) -> Finding {
    let mount = quoted(&layer.name);
    Finding {
        severity: Severity::Warning,
        why: "What is discarded above becomes free space of this file system, and waits there for its next trim.".to_owned(),
        fix: Some(match &layer.kind {
            // It takes the option only when it is mounted.
            LayerKind::FileSystem(found) if found.fstype == "xfs" => {
                format!("fstrim {mount}   # once; discard in its line of /etc/fstab holds from the next mount on")
            }
            _ => format!("mount -o remount,discard {mount}   # or, once: fstrim {mount}"),
        }),
        cost: Some("With discard, every deletion on it waits for the drive; trimtab compare shows what that costs.".to_owned()),
        check: format!("findmnt -o TARGET,OPTIONS {mount}"),
        ..layer_finding(NESTED, layer, format!("{mount} tells its device of punched holes only when it is trimmed."))
    }
}

/// The file systems that can punch holes into files.
const PUNCHES_HOLES: [&str; 6] = ["ext4", "xfs", "btrfs", "f2fs", "tmpfs", "ocfs2"];

/// A loop device that takes no discards.
pub(super) fn loop_file(place: &LayerInStack, file: impl Display) -> Finding {
    let (file, name) = (quoted(file), &place.layer.name);
    let below = place.below.first().map(|(below, _)| match &below.kind {
        LayerKind::FileSystem(found) => {
            let is_able = PUNCHES_HOLES.contains(&found.fstype.as_str());
            (format!("{}, a {} file system", below.name, found.fstype), is_able)
        }
        _ => (below.name.clone(), false),
    });
    let (below, is_able) = below.unwrap_or_else(|| ("its file system".to_owned(), false));
    if is_able {
        // Some kernels failed to offer them, and a loop device keeps what it was set up with.
        return Finding {
            fix: Some(format!(
                "losetup --detach /dev/{name} && losetup /dev/{name} {file}   # while nothing on it is mounted; if that does not \
                 help, the kernel does not offer them"
            )),
            cost: None,
            ..layer_finding(
                "loop-no-discards",
                place.layer,
                format!("{name} takes no discards, although {below}, can punch holes into its file."),
            )
        };
    }
    Finding {
        fix: Some(format!(
            "cp --sparse=always {file} /ON/ANOTHER/FILE/SYSTEM   # ext4, XFS, btrfs, F2FS or tmpfs"
        )),
        cost: Some("The file has to be copied while it isn't in use.".to_owned()),
        ..layer_finding(
            "loop-no-holes",
            place.layer,
            format!("{below} can't punch holes, so the file of {name} never shrinks."),
        )
    }
}

pub(super) fn limited(layer: &Layer, limits: Limits) -> Finding {
    let limit = format!("/sys/block/{}/queue/discard_max_bytes", layer.name);
    let name = &layer.name;
    // The kernel takes whole multiples of the granularity only. Where the limit is 0, Linux 6.12 says that the
    // granularity is 0 too, and takes no other limit any more.
    let fix = match (limits.granularity, &layer.kind) {
        (Bytes::ZERO, LayerKind::Loop { file }) => format!(
            "losetup --detach /dev/{name} && losetup /dev/loopN {}   # N: another number, while nothing on it is mounted",
            quoted(file.display())
        ),
        (Bytes::ZERO, _) => format!(
            "# the kernel takes no other limit for {name} now: create it anew, plug it in again, or restart"
        ),
        (unit, _) => format!("echo {} > {limit}", limits.max_hardware.0 - limits.max_hardware.0 % unit.0),
    };
    Finding {
        fix: Some(fix),
        cost: Some("Find out first who set it (a udev rule?), and whether the drive needed it.".to_owned()),
        ..layer_finding(LIMITED, layer, format!("Discards of {} are turned off by its limit.", title(layer)))
    }
}

/// A card for which the kernel offers no discards.
pub(super) fn card(layer: &Layer) -> Finding {
    Finding {
        why: "The card takes deleted data for live data: writes slow down and wear it out sooner. The kernel offers discards \
              where the card can erase and the driver of its slot allows it."
            .to_owned(),
        ..takes_none(layer, format!("The kernel offers no discards for the card {}.", title(layer)))
    }
}

/// A USB bridge to which the kernel sends discards by a command that it does not announce.
pub(super) fn usb_write_same(layer: &Layer, ids: Option<&(String, String)>, mode: &str) -> Finding {
    Finding {
        id: USB_WRITE_SAME.to_owned(),
        severity: Severity::Warning,
        why: "Where a page of its limits is missing, the kernel guesses. A bridge that rejects the command gets no further \
              discards."
            .to_owned(),
        check: format!(
            "cat /sys/block/{}/device/scsi_disk/*/provisioning_mode   # disabled, once it rejected one",
            layer.name
        ),
        message: format!(
            "The kernel discards on {} by WRITE SAME (provisioning_mode is {mode}), which its USB bridge does not announce.",
            title(layer)
        ),
        ..usb(layer, ids)
    }
}

pub(super) fn usb(layer: &Layer, ids: Option<&(String, String)>) -> Finding {
    let (vendor, product) = ids.map_or(("VVVV", "PPPP"), |(vendor, product)| (vendor, product));
    Finding {
        fix: Some(format!(
            "echo 'ACTION==\"add|change\", ATTRS{{idVendor}}==\"{vendor}\", ATTRS{{idProduct}}==\"{product}\", \
             SUBSYSTEM==\"scsi_disk\", ATTR{{provisioning_mode}}=\"unmap\"' > /etc/udev/rules.d/60-trim-{}.rules\n\
             udevadm control --reload && udevadm trigger --subsystem-match=scsi_disk && udevadm settle",
            layer.name
        )),
        cost: Some(
            "Some bridges drop discards that they do not announce, and a few lose data. Test with --canary on \
             a drive whose data you can lose."
                .to_owned(),
        ),
        // A rotating disk wouldn't gain from it; but many a stick says that it is one.
        severity: if layer.rotational { Severity::Warning } else { Severity::Critical },
        ..layer_finding(USB, layer, format!("The USB bridge of {} announces no discards.", title(layer)))
    }
}

pub(super) fn forced_off(layer: &Layer) -> Finding {
    Finding {
        fix: Some("sed -i 's/libata.force=[^ \"]*notrim[^ \"]*//' /etc/default/grub && update-grub   # then restart".to_owned()),
        cost: Some("The kernel turns TRIM off by itself for drives that are known to lose data with it.".to_owned()),
        check: "cat /sys/class/ata_device/*/trim".to_owned(),
        ..layer_finding(FORCED_OFF, layer, format!("The kernel doesn't use the TRIM of {}.", title(layer)))
    }
}

pub(super) fn rotating(layer: &Layer) -> Finding {
    Finding {
        severity: Severity::Note,
        why: "Most rotating disks overwrite in place: knowing what is free doesn't help them.".to_owned(),
        check: format!("cat /sys/block/{}/queue/rotational", layer.name),
        ..layer_finding(
            "rotating-disk",
            layer,
            format!("{} is a rotating disk, and takes no discards.", title(layer)),
        )
    }
}

/// A device with so large a granularity that fstrim passes over much of the free space, although it takes smaller discards.
pub(super) fn passed_over_pieces(layer: &Layer, unit: Bytes) -> Finding {
    Finding {
        message: format!("fstrim passes over free space on {} in pieces of less than {unit}.", title(layer)),
        why: "fstrim goes by its discard_granularity. The mount option discard may send smaller pieces."
            .to_owned(),
        ..large_granularity(layer, unit)
    }
}

pub(super) fn large_granularity(layer: &Layer, unit: Bytes) -> Finding {
    Finding {
        severity: Severity::Warning,
        why: "Freed extents that hold no whole unit are never discarded.".to_owned(),
        check: format!("cat /sys/block/{}/queue/discard_granularity", layer.name),
        ..layer_finding(
            "large-granularity",
            layer,
            format!("{} takes discards in whole units of {unit} only.", title(layer)),
        )
    }
}

/// A canary that contradicts the facts.
pub(super) fn disproved(target: &Target, canary: &Canary) -> Finding {
    let severity = match canary.verdict {
        Verdict::Reaches => Severity::Note,
        Verdict::Partial => Severity::Warning,
        Verdict::Blocked | Verdict::Unknown => Severity::Critical,
    };
    Finding {
        id: "canary-disagrees".to_owned(),
        severity,
        layer: target.target.clone(),
        message: format!("What the layers say is not what happens: {}.", canary.reason),
        why: "A layer announces what it doesn't do, or hides what it does.".to_owned(),
        fix: None,
        cost: None,
        check: format!("trimtab doctor --canary {}", quoted(&target.target)),
    }
}
