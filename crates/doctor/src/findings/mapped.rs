//! Findings about devices of the device mapper: their maker decides the fix.

use trimtab_core::Bytes;
use trimtab_core::shell::quoted;
use trimtab_core::verdict::{Finding, Severity};
use trimtab_linux::stack::{Layer, LayerKind};

use super::{PARITY_RISK, layer_finding, mapped, title};
use crate::maker::{Maker, TableChange, reloaded};
use crate::opinion::LayerInStack;

/// The id of [`luks_no_discards`].
pub(crate) const LUKS: &str = "luks-no-discards";

/// The field of a dm-crypt table with the number of its options, after `START LENGTH crypt CIPHER KEY IV DEVICE OFFSET`.
const OPTIONS_OF_CRYPT: usize = 9;
/// The field of a thin pool's table with that number, after `START LENGTH thin-pool METADATA DATA BLOCK LOW_WATER`; of a cache's,
/// after `START LENGTH cache METADATA CACHE ORIGIN BLOCK`; of a clone's, after `START LENGTH clone METADATA DESTINATION SOURCE REGION`.
const OPTIONS_OF_POOL: usize = 8;

/// A dm-crypt device that was opened without discards.
pub(crate) fn luks_no_discards(place: &LayerInStack) -> Finding {
    let layer = place.layer;
    let name = quoted(mapped(layer));
    let reopened = |kind: &str| {
        format!(
            "cryptsetup close {name} && cryptsetup open --type {kind} --allow-discards DEVICE {name}   # with its other \
             options as before, while nothing on it is mounted; and add discard to its options in /etc/crypttab"
        )
    };
    let fix = match Maker::of(layer) {
        // systemd-homed goes by the record of the user, and not by the header.
        Maker::Luks2 if user_of_home(place).is_some() => format!(
            "homectl update {} --luks-discard=on   # from the next login on",
            quoted(user_of_home(place).unwrap_or_default())
        ),
        Maker::Luks2 => format!("cryptsetup refresh --allow-discards --persistent {name}"),
        Maker::Luks1 => {
            format!(
                "cryptsetup refresh --allow-discards {name}   # and add discard to its options in /etc/crypttab, or \
                 rd.luks.options=discard to the kernel's command line if that opens it"
            )
        }
        Maker::Cryptsetup(kind) => reopened(kind),
        Maker::Integritysetup | Maker::Lvm | Maker::Stratis | Maker::Unnamed => format!(
            "{}   # until it is set up anew: what set it up has to allow them",
            reloaded(mapped(layer), OPTIONS_OF_CRYPT, &TableChange::Add("allow_discards"))
        ),
    };
    Finding {
        fix: Some(fix),
        cost: Some(
            "Whoever sees the raw disk then sees which blocks are unused: how full it is, and with that perhaps \
             which file system it holds."
                .to_owned(),
        ),
        check: format!("dmsetup table {name}   # must end in allow_discards"),
        ..layer_finding(LUKS, layer, format!("dm-crypt drops all discards of {}.", title(layer)))
    }
}

/// The id of [`stale_limit`].
pub(crate) const STALE: &str = "stale-limit";

/// A device whose limit is from a time when what is below took no discards.
pub(crate) fn stale_limit(layer: &Layer) -> Finding {
    Finding {
        why: "The kernel takes its limit from what is below when its table is loaded, and sets it to 0 when what is below rejects \
              a discard. It does not follow later changes."
            .to_owned(),
        fix: Some(fresh_table(layer)),
        cost: Some(match needs_idle(layer) {
            true => "Nothing on it may be mounted meanwhile.".to_owned(),
            false => "Reads and writes wait while the table is exchanged.".to_owned(),
        }),
        ..layer_finding(STALE, layer, format!("{} still takes no discards, although what is below takes them.", title(layer)))
    }
}

/// Returns the command that loads a device's table anew, as it is, so that its limits are taken from what is below.
pub(crate) fn fresh_table(layer: &Layer) -> String {
    let name = quoted(mapped(layer));
    // Parts of LVM's volumes have no name under /dev/VG.
    let node = format!("/dev/{}", layer.name);
    match Maker::of(layer) {
        Maker::Luks1 | Maker::Luks2 => format!("cryptsetup refresh --allow-discards {name}"),
        _ if has_target(layer, &["multipath"]) => format!("multipath -r {name}"),
        _ if needs_idle(layer) => format!("lvchange -an {name} && lvchange -ay {name}"),
        _ => format!("dmsetup table --showkeys {node} | dmsetup reload {node} && dmsetup resume {node}"),
    }
}

fn has_target(layer: &Layer, targets: &[&str]) -> bool {
    match &layer.kind {
        LayerKind::DeviceMapper(lines) => lines.iter().any(|line| targets.contains(&line.target.as_str())),
        _ => false,
    }
}

/// Returns true if a device's table can be loaded anew only by LVM, which takes the volume down for it.
pub(crate) fn needs_idle(layer: &Layer) -> bool {
    Maker::of(layer) == Maker::Lvm && has_target(layer, &["raid", "cache", "mirror"])
}

/// The user of a home directory of systemd-homed, which is named `home-USER` and lies on a file; none of other devices.
fn user_of_home<'a>(place: &LayerInStack<'a>) -> Option<&'a str> {
    let is_file = place.below.iter().any(|(below, _)| matches!(below.kind, LayerKind::Loop { .. }));
    mapped(place.layer).strip_prefix("home-").filter(|_| is_file)
}

/// A dm-crypt device with a tag for each sector, which can't be discarded.
pub(crate) fn luks_with_tags(layer: &Layer) -> Finding {
    Finding {
        severity: Severity::Warning,
        cost: None,
        check: format!("dmsetup table {}   # integrity: in its options", quoted(mapped(layer))),
        ..layer_finding(
            "encryption-with-tags",
            layer,
            format!("{} is encrypted with integrity protection, which takes no discards.", title(layer)),
        )
    }
}

/// A dm-integrity device that was opened without discards.
pub(crate) fn integrity_no_discards(layer: &Layer) -> Finding {
    let name = quoted(mapped(layer));
    let opened = format!("integritysetup close {name} && integritysetup open --allow-discards DEVICE {name}");
    let (fix, cost) = match Maker::of(layer) {
        Maker::Integritysetup => {
            (Some(opened), Some("Discarded blocks are no longer protected by their checksums."))
        }
        // A leg of a RAID volume is VG/LV_rimage_N.
        Maker::Lvm => {
            let volume = mapped(layer).split("_rimage_").next().unwrap_or_default();
            let volume = quoted(volume);
            let fix = format!("lvconvert --raidintegrity n {volume}");
            (Some(fix), Some("The volume loses the checksums that find silent damage."))
        }
        _ => (None, None),
    };
    let who = if fix.is_none() { " What set it up decides that." } else { "" };
    Finding {
        fix,
        cost: cost.map(str::to_owned),
        check: format!("dmsetup table {name}   # must name allow_discards"),
        ..layer_finding(
            "integrity-no-discards",
            layer,
            format!("dm-integrity drops all discards of {}.{who}", title(layer)),
        )
    }
}

/// A thin pool that doesn't pass discards down, or with `ignores` takes none, which can't be changed while one
/// of its volumes is in use.
pub(crate) fn thin_discards(place: &LayerInStack, ignores: bool) -> Finding {
    let layer = place.layer;
    // LVM's pool is the volume without this suffix; the layer is the device behind it.
    let pool = quoted(mapped(layer).trim_end_matches("-tpool"));
    let change = format!("lvchange --discards passdown {pool}");
    let volumes: Vec<_> = place.above.iter().map(|volume| quoted(mapped(volume))).collect();
    let nodes: Vec<_> =
        place.above.iter().map(|volume| quoted(format_args!("/dev/{}", mapped(volume)))).collect();
    let (volumes, nodes) = (volumes.join(" "), nodes.join(" "));
    let is_lvm = Maker::of(layer) == Maker::Lvm;
    let fix = match (Maker::of(layer), ignores) {
        (Maker::Lvm, true) => Some(format!(
            "umount {nodes}\nlvchange -an {volumes} {pool} && {change} && lvchange -ay {volumes}"
        )),
        (Maker::Lvm, false) => Some(change),
        (Maker::Unnamed, false) => {
            Some(reloaded(mapped(layer), OPTIONS_OF_POOL, &TableChange::Remove("no_discard_passdown")))
        }
        _ => None,
    };
    let who = if fix.is_none() { " What set it up decides that." } else { "" };
    Finding {
        cost: fix
            .is_some()
            .then(|| "The volumes' discards then take the time that the drive takes for them.".to_owned()),
        fix,
        check: match is_lvm {
            true => format!("lvs -o name,discards {pool}"),
            false => format!("dmsetup table {}   # must not name no_discard_passdown", quoted(mapped(layer))),
        },
        ..layer_finding(
            "thin-no-passdown",
            layer,
            format!(
                "The thin pool {} {} all discards.{who}",
                title(layer),
                if ignores { "ignores" } else { "keeps to itself" }
            ),
        )
    }
}

/// A volume that has thick snapshots, or that is one.
pub(crate) fn thick_snapshot(layer: &Layer, is_one: bool) -> Finding {
    let name = quoted(mapped(layer));
    let message = if is_one {
        format!("{} is a thick snapshot, which takes no discards.", title(layer))
    } else {
        format!("{} has a thick snapshot, and takes no discards as long as it has.", title(layer))
    };
    let fix = match Maker::of(layer) {
        _ if is_one => None,
        Maker::Lvm => Some(format!(
            "lvremove SNAPSHOT   # every thick snapshot of {name}; lvs -o name,origin lists them"
        )),
        _ => None,
    };
    Finding {
        cost: fix.is_some().then(|| "The snapshot is gone. Thin snapshots take discards.".to_owned()),
        fix,
        ..layer_finding("thick-snapshot", layer, message)
    }
}

/// A cache that keeps discards from its origin.
pub(crate) fn cache(layer: &Layer) -> Finding {
    let name = quoted(mapped(layer));
    let (fix, cost) = match Maker::of(layer) {
        Maker::Lvm => (
            Some(format!("lvconvert --splitcache {name} && lvconvert --type cache --cachepool POOL {name}")),
            Some("The cache starts empty."),
        ),
        Maker::Unnamed => (
            Some(reloaded(mapped(layer), OPTIONS_OF_POOL, &TableChange::Remove("no_discard_passdown"))),
            None,
        ),
        _ => (None, None),
    };
    Finding {
        fix,
        cost: cost.map(str::to_owned),
        check: format!("dmsetup table {name}   # must not name no_discard_passdown"),
        ..layer_finding(
            "cache-no-passdown",
            layer,
            format!("The cache {} doesn't hand discards to its origin.", title(layer)),
        )
    }
}

/// A copy of a device that keeps discards from its destination. LVM makes none of these.
pub(crate) fn clone(layer: &Layer) -> Finding {
    let name = mapped(layer);
    let (word, check) = ("no_discard_passdown", format!("dmsetup table {}", quoted(name)));
    Finding {
        fix: Some(reloaded(name, OPTIONS_OF_POOL, &TableChange::Remove(word))),
        check: format!("{check}   # must not name {word}"),
        ..layer_finding(
            "clone-no-passdown",
            layer,
            format!("The clone {} doesn't hand discards to its destination.", title(layer)),
        )
    }
}

pub(crate) fn large_chunks(pool: &Layer, chunk: Bytes) -> Finding {
    let volume = title(pool);
    Finding {
        id: "thin-large-chunks".to_owned(),
        severity: Severity::Warning,
        layer: pool.name.clone(),
        message: format!("The thin pool {volume} takes back whole chunks of {chunk} only."),
        why: "Freed extents that hold no whole chunk stay allocated in the pool and on the drive.".to_owned(),
        fix: Some(
            "lvcreate --type thin-pool --chunksize 64k --size SIZE --name NEWPOOL VG   # then copy the volumes over"
                .to_owned(),
        ),
        cost: Some("A pool's chunk size is fixed: its volumes have to be copied to a new pool; small chunks take more metadata.".to_owned()),
        check: "lvs -o name,chunksize,discards".to_owned(),
    }
}

pub(crate) fn vdo(layer: &Layer) -> Finding {
    Finding {
        severity: Severity::Warning,
        why: "The drive below never learns of free space, however much of the volume is unused.".to_owned(),
        cost: None,
        check: "vdostats".to_owned(),
        ..layer_finding(
            "vdo-keeps-discards",
            layer,
            format!("VDO {} frees its own blocks and tells the drive nothing.", title(layer)),
        )
    }
}

/// A volume of LVM's own RAID with parity.
pub(crate) fn lvm_raid_parity(layer: &Layer) -> Finding {
    let name = quoted(mapped(layer));
    Finding {
        fix: Some(format!(
            "echo 'options dm_raid devices_handle_discard_safely=Y' > /etc/modprobe.d/raid456-discard.conf\n\
             echo Y > /sys/module/dm_raid/parameters/devices_handle_discard_safely\n\
             lvchange -an {name} && lvchange -ay {name}   # while it isn't mounted"
        )),
        cost: Some(PARITY_RISK.to_owned()),
        check: "cat /sys/module/dm_raid/parameters/devices_handle_discard_safely".to_owned(),
        ..layer_finding("raid-parity", layer, format!("The RAID volume {} drops all discards.", title(layer)))
    }
}
