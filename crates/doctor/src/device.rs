//! Judges disks and virtual disks.

use trimtab_core::Bytes;
use trimtab_core::verdict::Verdict;
use trimtab_linux::stack::{self, LayerKind, Scsi, Transport};

use super::findings::virtual_disks::{self, Host};
use super::opinion::{BELOW, LayerInStack, Opinion};
use super::{announced, findings, units};

/// The smallest unit that file systems usually free: a granularity up to it loses nothing.
const BLOCK: Bytes = Bytes(4096);

pub(super) fn scsi_kind(scsi: &Scsi) -> &'static str {
    match scsi.transport {
        Transport::Ata { .. } => "ata",
        Transport::Usb { .. } => "usb",
        Transport::Virtio => "virtio-scsi",
        Transport::Other(_) => "scsi",
    }
}

/// Judges a zoned device, or a mapping of one: its zones are freed by resets, which its discard limits don't
/// affect.
pub(super) fn zoned(place: &LayerInStack) -> Opinion {
    if place.above.is_empty() {
        Opinion::stops("it is zoned: a zone is freed by resetting it (blkzone reset), not by discards")
    } else {
        Opinion::reshapes(
            Verdict::Reaches,
            "it is zoned: what lies on it frees zones by resetting them, and needs no discards",
        )
    }
}

pub(super) fn opinion(place: &LayerInStack) -> Opinion {
    if place.layer.size == Some(Bytes::ZERO) {
        return Opinion::unknown("there is nothing in it: its size is 0");
    }
    if place.layer.read_only {
        return Opinion::stops("it is read-only: nothing of it can be discarded");
    }
    let Some(limits) = place.layer.limits else {
        return Opinion::unknown("sysfs doesn't tell its limits");
    };
    if let LayerKind::Scsi(scsi) = &place.layer.kind
        && scsi.provisioning_mode.as_deref() == Some("disabled")
        && (limits.max_hardware > Bytes::ZERO
            || limits.max > Bytes::ZERO
            || scsi.thin_provisioning == Some(true))
    {
        let wanted = if matches!(scsi.transport, Transport::Ata { .. }) { "writesame_16" } else { "unmap" };
        return Opinion::stops(
            "the kernel turned discards off (provisioning_mode is disabled), as when a device rejects one",
        )
        .found(virtual_disks::disabled(place.layer, wanted));
    }
    if limits.max == Bytes::ZERO
        && limits.max_hardware > Bytes::ZERO
        && place.layer.kind != LayerKind::Partition
    {
        return Opinion::stops("the device takes discards, but somebody set the kernel's limit to 0")
            .found(findings::limited(place.layer, limits));
    }
    if limits.max == Bytes::ZERO {
        return takes_none(place);
    }
    let is_disk = place.below.is_empty() && place.layer.kind != LayerKind::Zram;
    if is_disk && limits.granularity == Bytes::ZERO {
        return Opinion::unknown(
            "its discard_granularity is 0: Linux 5.10 to 6.7 refuses all discards then (EOPNOTSUPP)",
        );
    }
    match &place.layer.kind {
        LayerKind::Scsi(scsi) if scsi.writes_zeros() => {
            Opinion::stops("provisioning_mode is writesame_zero: discards become writes of zeros")
                .found(virtual_disks::zeroes(place.layer, scsi))
        }
        LayerKind::Scsi(Scsi {
            transport: Transport::Usb { ids, .. },
            provisioning_mode: Some(mode),
            ..
        }) if mode.starts_with("writesame_1") && lacks_write_same(place.layer) => Opinion::unknown(format!(
            "discards are sent as WRITE SAME (provisioning_mode is {mode}), which the USB bridge does not \
                 announce: many reject it"
        ))
        .found(findings::usb_write_same(place.layer, ids.as_ref(), mode)),
        LayerKind::Partition => Opinion::passes("it is a part of the disk"),
        LayerKind::Bcache => Opinion::passes("it hands them to the backing device"),
        LayerKind::Loop { .. } if !is_on_a_file(place) => Opinion::unknown(
            "over a device, it sends writes of zeros instead: whether they free anything is up to that",
        ),
        LayerKind::Loop { file } if place.below.is_empty() => Opinion::unknown(format!(
            "its file {} can't be looked at: that takes root, where it was attached",
            file.display()
        )),
        LayerKind::Loop { file } => Opinion::passes(format!("it punches holes into {}", file.display())),
        LayerKind::Zram => Opinion::passes("it is memory, and what is discarded is free at once"),
        LayerKind::VirtioBlk | LayerKind::Scsi(Scsi { transport: Transport::Virtio, .. }) => {
            takes(place, "the host takes them; what it does with them can't be seen from here")
        }
        LayerKind::Nbd => {
            takes(place, "the server takes them; what it does with them can't be seen from here")
        }
        LayerKind::Scsi(scsi) if is_forced(scsi) => takes(
            place,
            "somebody turned discards on, which the USB bridge does not announce: only --canary tells whether they \
             arrive",
        ),
        _ => {
            let taker = remote(place.layer).map_or("the device takes them".to_owned(), |(who, look)| {
                format!("{who} takes them; what it does with them can't be seen from here ({look})")
            });
            let opinion = takes(place, &taker);
            match announced::clause(place.layer) {
                Some(clause) => Opinion { reason: format!("{}; {clause}", opinion.reason), ..opinion },
                None => opinion,
            }
        }
    }
}

/// Returns true if a USB bridge announces no discards, and a rule or somebody set the mode in which they are sent.
fn is_forced(scsi: &Scsi) -> bool {
    matches!(scsi.transport, Transport::Usb { .. }) && scsi.thin_provisioning == Some(false)
}

/// Returns true if a device shows what it announces, and that is not WRITE SAME with the bit for discards. Linux shows it since 5.19.
fn lacks_write_same(layer: &stack::Layer) -> bool {
    layer.announced.provisioning.is_some_and(|found| !found.write_same_16 && !found.write_same_10)
}

fn takes(place: &LayerInStack, what: &str) -> Opinion {
    match place.granularity() {
        unit if unit > BLOCK && units::takes_smaller(place.layer) => {
            let reason = format!("{what}; fstrim passes over free space in pieces of less than {unit}");
            Opinion::in_units(unit, reason, || findings::passed_over_pieces(place.layer, unit))
        }
        unit if unit > BLOCK => {
            let reason = format!("{what}, in whole units of {unit}; the rest is dropped");
            Opinion::in_units(unit, reason, || findings::large_granularity(place.layer, unit))
        }
        _ => Opinion::passes(what),
    }
}

/// Returns who has the data of a device whose storage is elsewhere, and where to look; none of other devices.
fn remote(layer: &stack::Layer) -> Option<(&'static str, &'static str)> {
    match &layer.kind {
        LayerKind::Scsi(_) | LayerKind::Nvme if is_cloud(layer) => {
            Some(("the cloud", "its documentation says whether discards free anything"))
        }
        LayerKind::Scsi(_) if host(layer) == Some(Host::Lio) => {
            Some(("the target", "ask there how much of the volume is used"))
        }
        LayerKind::Scsi(Scsi { transport: Transport::Other(Some(driver)), .. })
            if ISCSI.contains(&driver.as_str()) =>
        {
            Some(("the iSCSI target", "ask there how much of the volume is used"))
        }
        LayerKind::Scsi(Scsi { transport: Transport::Other(Some(driver)), .. })
            if FIBRE_CHANNEL.contains(&driver.as_str()) =>
        {
            Some(("the storage", "ask there how much of the volume is used"))
        }
        LayerKind::Nvme if layer.fabric.is_some() => {
            Some(("the NVMe target", "ask there how much of the namespace is used"))
        }
        LayerKind::Scsi(_) | LayerKind::Nvme if host(layer).is_some() => {
            Some(("the host", "ask it how large the disk's image is"))
        }
        LayerKind::Other(Some(driver)) => match driver.as_str() {
            "zd" => {
                Some(("ZFS", "zfs list -o name,used,volsize,refreservation; then zpool trim, or autotrim"))
            }
            "rbd" => Some(("the Ceph cluster", "rbd du POOL/IMAGE")),
            "drbd" => {
                Some(("DRBD", "it hands them to its disk only if its peers take them too: drbdsetup status"))
            }
            "vbd" => Some(("the Xen host", "ask it how large the disk's image is")),
            _ => None,
        },
        _ => None,
    }
}

/// The drivers of iSCSI and iSER.
const ISCSI: [&str; 6] = ["iscsi_tcp", "ib_iser", "qedi", "be2iscsi", "bnx2i", "cxgb4i"];
/// The drivers of Fibre Channel.
const FIBRE_CHANNEL: [&str; 7] = ["qla2xxx", "lpfc", "zfcp", "fnic", "bfa", "qedf", "ibmvfc"];
/// The drivers of controllers that make volumes of their drives.
const CONTROLLERS: [&str; 9] =
    ["megaraid_sas", "megaraid", "hpsa", "smartpqi", "aacraid", "arcmsr", "3w-9xxx", "3w-sas", "ips"];
/// The drivers of adapters for drives as such.
const ADAPTERS: [&str; 7] = ["mpt3sas", "mpt2sas", "mptsas", "mpi3mr", "pm80xx", "mvsas", "isci"];
/// Words of the models of cloud volumes.
const CLOUD: [&str; 8] = [
    "Amazon Elastic Block Store",
    "DO Volume",
    "HC Volume",
    "PersistentDisk",
    "nvme_card-pd",
    "MSFT NVMe Accelerator",
    "ORACLE BlockVolume",
    "Alibaba Cloud Elastic Block Storage",
];

/// Returns true if a loop device is on a file, or possibly on one, and not on a device.
fn is_on_a_file(place: &LayerInStack) -> bool {
    place.below.iter().all(|(below, _)| matches!(below.kind, LayerKind::FileSystem(_)))
}

/// Judges a device whose limit is zero.
fn takes_none(place: &LayerInStack) -> Opinion {
    let layer = place.layer;
    match &layer.kind {
        LayerKind::Partition | LayerKind::Bcache if place.is_stopped_below() => Opinion::starved(BELOW),
        LayerKind::Loop { .. } if !is_on_a_file(place) => Opinion::stops(
            "the device below takes no writes of zeros, which it sends for discards",
        )
        .found(findings::takes_none(layer, format!("The loop device {} takes no discards.", layer.name))),
        LayerKind::Loop { file } => {
            let file = file.display();
            Opinion::stops(format!("it takes none for {file}")).found(findings::loop_file(place, file))
        }
        LayerKind::Scsi(scsi) => scsi_takes_none(place, scsi),
        LayerKind::Nvme => nvme_takes_none(layer),
        LayerKind::Nbd => Opinion::stops("the server offers no discards").found(virtual_disks::nbd(layer)),
        LayerKind::VirtioBlk => no_discards_of(layer, Host::Qemu),
        LayerKind::Mmc => Opinion::stops(
            "the kernel offers none: the card can't erase, or the driver of its slot doesn't let it",
        )
        .found(findings::card(layer)),
        LayerKind::Other(Some(driver)) if driver == "vbd" => no_discards_of(layer, Host::Xen),
        LayerKind::Other(Some(driver)) if driver == "rbd" => {
            Opinion::stops("it was mapped with notrim").found(virtual_disks::rbd(layer))
        }
        LayerKind::Other(_) if layer.rotational => rotating(layer),
        _ => Opinion::stops("the device takes no discards").found(findings::takes_none(
            layer,
            format!("The device {} takes no discards.", findings::title(layer)),
        )),
    }
}

/// A virtual disk whose host, or a LUN whose target, offers no discards.
fn no_discards_of(layer: &stack::Layer, host: Host) -> Opinion {
    let who = if matches!(host, Host::Lio | Host::Storage) { "target" } else { "host" };
    Opinion::stops(format!("the {who} offers no discards")).found(virtual_disks::host(layer, host))
}

fn rotating(layer: &stack::Layer) -> Opinion {
    Opinion::stops("it is a rotating disk that takes none").found(findings::rotating(layer))
}

/// Returns what a drive behind a bridge or an adapter says of itself, in a clause.
fn behind(layer: &stack::Layer) -> &'static str {
    match layer.announced.trim {
        Some(trim) if trim.supported => "; the drive behind it has TRIM",
        Some(_) => "; the drive behind it has no TRIM either",
        None => "",
    }
}

/// Returns true if a drive behind a bridge or an adapter says that it has TRIM.
fn has_trim(layer: &stack::Layer) -> bool {
    layer.announced.trim.is_some_and(|trim| trim.supported)
}

/// The host of a virtual disk, or the target of a LUN, that its vendor and model name.
fn host(layer: &stack::Layer) -> Option<Host> {
    layer.label.as_deref().and_then(Host::of)
}

/// Whether a disk is a volume of a cloud, by its model.
fn is_cloud(layer: &stack::Layer) -> bool {
    CLOUD.iter().any(|word| layer.label.as_deref().unwrap_or_default().contains(word))
}

fn of_cloud(layer: &stack::Layer) -> Opinion {
    Opinion::stops("the cloud's volume takes no discards").found(virtual_disks::cloud(layer))
}

fn nvme_takes_none(layer: &stack::Layer) -> Opinion {
    if is_cloud(layer) {
        return of_cloud(layer);
    }
    match host(layer).or_else(|| layer.fabric.is_some().then_some(Host::Storage)) {
        Some(host) => no_discards_of(layer, host),
        None => Opinion::stops("the controller has no Dataset Management command (ONCS)").found(
            findings::takes_none(
                layer,
                format!("The NVMe drive {} takes no discards.", findings::title(layer)),
            ),
        ),
    }
}

/// Returns whose disks a driver of the SCSI layer serves, where that does not depend on the model; none of other drivers.
fn host_behind(driver: &str) -> Option<Host> {
    if driver.starts_with("storvsc") {
        Some(Host::HyperV)
    } else if ISCSI.contains(&driver) || FIBRE_CHANNEL.contains(&driver) {
        Some(Host::Storage)
    } else {
        None
    }
}

fn scsi_takes_none(place: &LayerInStack, scsi: &Scsi) -> Opinion {
    let layer = place.layer;
    let title = findings::title(layer);
    let mode = scsi.provisioning_mode.as_deref().unwrap_or("unknown");
    let driver = match &scsi.transport {
        Transport::Other(driver) => driver.as_deref().unwrap_or_default(),
        _ => "",
    };
    // Nearly all virtual disks, and LUNs on the network, say that they rotate.
    let host = host(layer).or_else(|| host_behind(driver));
    match (&scsi.transport, host) {
        (Transport::Usb { ids, .. }, _) => {
            let reason = format!(
                "the USB bridge announces no discards (provisioning_mode is {mode}){}",
                behind(layer)
            );
            Opinion::stops(reason).found(findings::usb(layer, ids.as_ref()))
        }
        (Transport::Ata { trim: Some(trim) }, _) if trim == "forced_unsupported" => {
            Opinion::stops("the drive has TRIM, but the kernel is told not to use it")
                .found(findings::forced_off(layer))
        }
        (Transport::Ata { trim: Some(trim) }, _) if trim != "unsupported" => {
            Opinion::stops(format!("the drive has TRIM, but provisioning_mode is {mode}"))
                .found(virtual_disks::provisioning(layer, "writesame_16"))
        }
        (Transport::Virtio, _) if is_cloud(layer) => of_cloud(layer),
        (Transport::Virtio, _) => no_discards_of(layer, Host::Qemu),
        (Transport::Other(_), _) if scsi.thin_provisioning == Some(true) => {
            Opinion::stops(format!("the device can unmap, but provisioning_mode is {mode}"))
                .found(virtual_disks::provisioning(layer, "unmap"))
        }
        (Transport::Other(_), _) if is_cloud(layer) => of_cloud(layer),
        (Transport::Ata { .. } | Transport::Other(_), Some(host)) => no_discards_of(layer, host),
        (Transport::Other(_), _) if CONTROLLERS.contains(&driver) => Opinion::stops(format!(
            "it announces no UNMAP behind the controller {driver} (provisioning_mode is {mode}){}",
            behind(layer)
        ))
        .found(virtual_disks::adapter(layer, driver, true)),
        // A disk with shingled tracks (SMR) may rotate and have TRIM.
        (Transport::Other(_), _) if ADAPTERS.contains(&driver) && (!layer.rotational || has_trim(layer)) => {
            Opinion::stops(format!(
                "it announces no UNMAP behind the adapter {driver} (provisioning_mode is {mode}){}",
                behind(layer)
            ))
            .found(virtual_disks::adapter(layer, driver, false))
        }
        (Transport::Ata { .. } | Transport::Other(_), _) if layer.rotational => rotating(layer),
        (Transport::Ata { .. }, _) => Opinion::stops("the drive has no TRIM")
            .found(findings::takes_none(layer, format!("The drive {title} has no TRIM."))),
        (Transport::Other(_), _) => {
            Opinion::stops(format!("the device announces no UNMAP (provisioning_mode is {mode})"))
                .found(findings::takes_none(layer, format!("The device {title} announces no UNMAP.")))
        }
    }
}
