//! Findings about disks whose discards somebody else turns on: a host, a bridge's driver, the kernel.

use trimtab_core::verdict::{Finding, Severity};
use trimtab_linux::stack::{Layer, LayerKind, Scsi, Transport};

use super::{layer_finding, title};

/// A host of virtual disks, or a target of a storage network, by the vendor and model that its disks claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Host {
    /// VirtualBox.
    VirtualBox,
    /// VMware.
    Vmware,
    /// Hyper-V.
    HyperV,
    /// Xen.
    Xen,
    /// QEMU, under libvirt, Proxmox or by itself.
    Qemu,
    /// Linux's SCSI target.
    Lio,
    /// Another storage system on the network.
    Storage,
}

impl Host {
    /// The host of the disk with this vendor and model.
    pub(crate) fn of(model: &str) -> Option<Self> {
        [
            ("VBOX", Self::VirtualBox),
            ("ORCL-VBOX", Self::VirtualBox),
            ("VMware", Self::Vmware),
            ("Msft", Self::HyperV),
            ("QEMU", Self::Qemu),
            ("LIO-ORG", Self::Lio),
        ]
        .into_iter()
        .find_map(|(word, host)| model.contains(word).then_some(host))
    }

    fn name(self) -> &'static str {
        match self {
            Self::VirtualBox => "VirtualBox",
            Self::Vmware => "VMware",
            Self::HyperV => "Hyper-V",
            Self::Xen => "Xen",
            Self::Qemu => "QEMU",
            Self::Lio => "LIO",
            Self::Storage => "The storage",
        }
    }

    /// How its discards are turned on.
    fn fix(self) -> &'static str {
        match self {
            Self::VirtualBox => {
                "VBoxManage storageattach VM --storagectl NAME --port N --device 0 --type hdd --medium FILE.vdi \
                 --nonrotational on --discard on   # on the host, while the machine is off; VDI images alone shrink"
            }
            Self::Vmware => {
                "# on the host: a thin-provisioned disk on VMFS 6 or vSAN, and a virtual machine of hardware version 11 or later"
            }
            Self::HyperV => {
                "# on the host: a VHDX on a SCSI controller; fsutil behavior query DisableDeleteNotify must say 0 there"
            }
            Self::Xen => {
                "# on the host: with xl, the word discard in the disk's line of the domain's configuration; XCP-ng and XenServer \
                 offer none on VHD images"
            }
            Self::Qemu => {
                "<driver name='qemu' type='...' discard='unmap'/>   # on the host, in the disk's libvirt description; \
                 Proxmox: qm set VMID --scsi0 STORAGE:VOLUME,discard=on,ssd=1; QEMU: -drive ...,discard=unmap; another host of \
                 virtio disks (Firecracker, libkrun): a version that offers discards"
            }
            Self::Storage => {
                "# on the storage: a LUN that allocates space as needed and takes UNMAP, often called space reclamation; then here: \
                 echo 1 > /sys/block/NAME/device/rescan"
            }
            Self::Lio => {
                "targetcli /backstores/block/STORE set attribute emulate_tpu=1 && targetcli saveconfig   # on the target (fileio in \
                 place of block for a file)\necho 1 > /sys/block/NAME/device/rescan   # here, after that"
            }
        }
    }
}

/// A virtual disk whose host offers no discards.
pub(crate) fn host(layer: &Layer, host: Host) -> Finding {
    let message = match host {
        Host::Lio | Host::Storage => format!("The target of {} offers no discards.", title(layer)),
        _ => format!("The host of this virtual machine offers no discards for {}.", title(layer)),
    };
    let cost = match host {
        Host::Lio | Host::Storage => "What its storage does with discards decides what that gains.",
        _ => "The virtual machine has to be started anew.",
    };
    let fix = match (host, &layer.kind) {
        (Host::Storage, LayerKind::Nvme) => {
            "# on the target: a namespace that takes deallocations; then here: nvme disconnect and nvme connect".to_owned()
        }
        _ => host.fix().replace("/sys/block/NAME", &format!("/sys/block/{}", layer.name)),
    };
    Finding {
        fix: Some(fix),
        // A volume that is allocated as a whole has nothing to give back.
        severity: if host == Host::Storage { Severity::Warning } else { Severity::Critical },
        cost: Some(cost.to_owned()),
        why: match layer.rotational {
            // A virtual disk that says that it rotates says nothing of what is below.
            true => format!(
                "{} says of nearly every disk that it rotates: its storage may be flash, or allocate space as needed.",
                host.name()
            ),
            false => super::STAYS.to_owned(),
        },
        ..layer_finding("host-no-discards", layer, message)
    }
}

/// A volume of a cloud, which takes no discards, and which nobody but the cloud can change.
pub(crate) fn cloud(layer: &Layer) -> Finding {
    Finding {
        severity: Severity::Note,
        why: "The cloud decides about its storage, and is paid for the whole volume.".to_owned(),
        ..layer_finding(
            "cloud-no-discards",
            layer,
            format!("The cloud's volume {} takes no discards.", title(layer)),
        )
    }
}

/// An image of Ceph that was mapped without discards. All others take them.
pub(crate) fn rbd(layer: &Layer) -> Finding {
    let name = &layer.name;
    Finding {
        fix: Some(format!(
            "rbd device unmap /dev/{name} && rbd device map POOL/IMAGE   # without notrim, while nothing on it is mounted"
        )),
        cost: Some(
            "An image whose objects were all written in advance loses them where it is discarded.".to_owned(),
        ),
        why: "Free space keeps its objects in the Ceph cluster.".to_owned(),
        check: format!("cat /sys/block/{name}/queue/discard_max_bytes; rbd device list"),
        ..layer_finding(
            "rbd-notrim",
            layer,
            format!("{} was mapped with notrim, and takes no discards.", title(layer)),
        )
    }
}

/// A disk of a network block server that offers no discards.
pub(crate) fn nbd(layer: &Layer) -> Finding {
    Finding {
        fix: Some(
            "# on the server: trim = true in the export (nbd-server), discard=unmap (qemu-nbd), or a plugin that trims (nbdkit); \
             then connect anew"
                .to_owned(),
        ),
        cost: Some("The file systems on it have to be unmounted meanwhile.".to_owned()),
        ..layer_finding("server-no-discards", layer, format!("The server of {} offers no discards.", title(layer)))
    }
}

/// A disk behind an adapter that announces no discards for it.
pub(crate) fn adapter(layer: &Layer, driver: &str, makes_volumes: bool) -> Finding {
    let fix = if makes_volumes {
        "# the drives as such (HBA or JBOD mode) in place of a volume of the controller, or firmware that hands UNMAP on"
    } else {
        "# a drive that reads zeros after TRIM (RZAT), or a SATA port of the board: many SAS adapters pass on no other TRIM"
    };
    let finding = Finding {
        fix: Some(fix.to_owned()),
        cost: Some("All data has to be moved.".to_owned()),
        ..layer_finding(
            "adapter-no-discards",
            layer,
            format!(
                "{} announces no UNMAP behind its adapter ({driver}), whatever the drives there can.",
                title(layer)
            ),
        )
    };
    if !layer.rotational {
        return finding;
    }
    if !makes_volumes {
        return Finding {
            severity: Severity::Warning,
            why: "It rotates and has TRIM, as disks with shingled tracks (SMR) do: without it, writes slow down.".to_owned(),
            ..finding
        };
    }
    // A controller guesses whether its volume rotates. With hard disks, there is nothing to mend.
    Finding {
        severity: Severity::Note,
        fix: None,
        cost: None,
        why: "The controller says that it rotates: hard disks lose nothing. If its drives are SSDs, take them out of the \
              controller's volume (HBA or JBOD mode)."
            .to_owned(),
        check: "smartctl --scan   # then smartctl -i with each drive that it lists: Rotation Rate".to_owned(),
        ..finding
    }
}

pub(crate) fn zeroes(layer: &Layer, scsi: &Scsi) -> Finding {
    let mode = if matches!(scsi.transport, Transport::Ata { .. }) { "writesame_16" } else { "unmap" };
    Finding {
        why: "A discard is carried out as a write of zeros: it frees nothing, and takes time and wear."
            .to_owned(),
        ..provisioning(layer, mode)
    }
}

pub(crate) fn provisioning(layer: &Layer, wanted: &str) -> Finding {
    let mode = format!("/sys/block/{}/device/scsi_disk/*/provisioning_mode", layer.name);
    Finding {
        fix: Some(format!("echo {wanted} | tee {mode}")),
        cost: Some("Until the next start; a udev rule makes it last.".to_owned()),
        check: format!("cat {mode}"),
        ..layer_finding(
            "provisioning-mode",
            layer,
            format!("Discards of {} are turned off, although it can unmap.", title(layer)),
        )
    }
}

/// A SCSI disk whose discards are off by the mode `disabled`: the kernel sets it when the device rejects one.
pub(crate) fn disabled(layer: &Layer, wanted: &str) -> Finding {
    let name = &layer.name;
    Finding {
        cost: Some(format!(
            "If {name} rejects a discard again, the kernel turns them off again; dmesg says so."
        )),
        check: format!("cat /sys/block/{name}/device/scsi_disk/*/provisioning_mode; dmesg | grep {name}"),
        ..Finding {
            message: format!(
                "Discards of {} are off (provisioning_mode is disabled): the kernel does that when a device rejects one.",
                title(layer)
            ),
            ..provisioning(layer, wanted)
        }
    }
}
