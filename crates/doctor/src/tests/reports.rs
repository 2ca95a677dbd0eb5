//! Machines as people describe them in public reports, each with its address, and what the doctor says of them.

mod drives;
mod hosts;
mod senders;
mod volumes;

use std::path::PathBuf;

use trimtab_core::Bytes;
use trimtab_core::device::{Announced, AtaTrim};
use trimtab_core::document::doctor::Target;
use trimtab_core::verdict::{Severity, Verdict};
use trimtab_linux::mount::Listed;
use trimtab_linux::stack::{Below, FstrimService, Layer, LayerKind, Scsi, Setup, Transport};

use super::{YES, examined, file_system, layer, mapped, nvme, raid, row, taking, timed};
use crate::{ASSUMED_ERASE_BLOCK, diagnose};

/// A disk of the SCSI layer without discards, whose host adapter has this driver.
fn behind(driver: &str, model: &str, rotational: bool) -> Layer {
    let scsi = Scsi {
        transport: Transport::Other(Some(driver.to_owned())),
        provisioning_mode: Some("full".to_owned()),
        thin_provisioning: Some(false),
    };
    Layer { rotational, label: Some(model.to_owned()), ..taking(0, 0, layer("sda", LayerKind::Scsi(scsi))) }
}

fn ext4_on(disk: Layer) -> Target {
    examined(&row([file_system("/mnt", "ext4", "rw"), disk]))
}

/// The verdict, and the id and severity of the gravest finding.
fn worst(target: &Target) -> (Verdict, &str, Severity) {
    let finding = &target.findings[0];
    (target.verdict, finding.id.as_str(), finding.severity)
}

fn fix(target: &Target) -> &str {
    target.findings[0].fix.as_deref().unwrap_or_default()
}

/// All sentences of an examination, which `--nocapture` shows.
fn text(target: &Target) -> String {
    let layers =
        target.layers.iter().map(|layer| format!("  {} {}: {}", layer.name, layer.kind, layer.reason));
    let findings = target.findings.iter().map(|finding| {
        let of = |name: &str, text: &Option<String>| {
            text.iter().map(|text| format!("\n    {name}: {text}")).collect::<String>()
        };
        format!(
            "  [{} {:?}] {}\n    Why: {}{}{}\n    Check: {}",
            finding.id,
            finding.severity,
            finding.message,
            finding.why,
            of("Fix", &finding.fix),
            of("Cost", &finding.cost),
            finding.check
        )
    });
    let lines = layers.chain(findings).collect::<Vec<_>>().join("\n");
    let text = format!("{}: {:?}: {}\n{lines}\n", target.target, target.verdict, target.reason);
    println!("{text}");
    text
}

/// The ids of all findings, the gravest first.
fn ids(target: &Target) -> Vec<&str> {
    target.findings.iter().map(|finding| finding.id.as_str()).collect()
}

/// SSDs behind a volume of a RAID controller: <https://www.redhat.com/en/blog/trim-discard-ssds>. The controller guesses whether
/// its volume rotates, and hides what its drives can.
#[test]
fn volume_of_a_raid_controller_is_not_called_a_drive_without_trim() {
    for (driver, model) in
        [("megaraid_sas", "DELL PERC H730P"), ("hpsa", "HP LOGICAL VOLUME"), ("aacraid", "Adaptec SSD")]
    {
        let target = ext4_on(behind(driver, model, false));
        assert_eq!(worst(&target), (Verdict::Blocked, "adapter-no-discards", Severity::Critical), "{model}");
        assert!(target.findings[0].message.contains("whatever the drives there can"), "{target:?}");
        assert!(fix(&target).contains("JBOD"), "{target:?}");
        let guessed = ext4_on(behind(driver, model, true));
        assert_eq!(worst(&guessed), (Verdict::Blocked, "adapter-no-discards", Severity::Note), "{model}");
        assert!(!guessed.reason.contains("rotating"), "{}", guessed.reason);
        assert_eq!(guessed.findings[0].fix, None, "hard disks need none: {guessed:?}");
        assert!(guessed.findings[0].why.contains("hard disks lose nothing"), "{guessed:?}");
    }
}

/// SATA SSDs behind LSI's SAS HBAs: <https://github.com/openzfs/zfs/pull/8419>, where TRIM arrives only at drives with RZAT.
#[test]
fn sas_adapter_is_told_from_its_drive() {
    let trim = AtaTrim { supported: true, deterministic: true, zeroes: false, max_blocks: None };
    let announced = Announced { trim: Some(trim), ..Announced::default() };
    let disk = Layer { announced, ..behind("mpt3sas", "Samsung SSD 860 EVO", false) };
    let target = ext4_on(disk);
    assert_eq!(worst(&target), (Verdict::Blocked, "adapter-no-discards", Severity::Critical));
    assert!(target.reason.ends_with("the drive behind it has TRIM"), "{}", target.reason);
    assert!(fix(&target).contains("RZAT"), "{target:?}");
    let hard_disk = ext4_on(behind("mpt3sas", "SEAGATE ST4000NM0023", true));
    assert_eq!(worst(&hard_disk), (Verdict::Blocked, "rotating-disk", Severity::Note));
}

/// A drive that Windows hands to WSL: <https://github.com/microsoft/WSL/issues/9123>.
#[test]
fn disk_handed_through_by_hyper_v_is_its_host_s() {
    let target = ext4_on(behind("storvsc_host", "Samsung SSD 850", false));
    assert_eq!(worst(&target), (Verdict::Blocked, "host-no-discards", Severity::Critical));
    assert!(target.findings[0].message.contains("The host of this virtual machine"), "{target:?}");
}

/// Volumes of clouds. TRIM is for instance stores only (<https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ssd-instance-store.html>), and
/// nobody but the cloud can change what EBS offers.
#[test]
fn cloud_s_volume_without_discards_is_no_alarm() {
    let named = |model: &str, disk: Layer| Layer { label: Some(model.to_owned()), ..disk };
    for disk in [
        named("Amazon Elastic Block Store", nvme(0)),
        named("MSFT NVMe Accelerator v1.0", nvme(0)),
        behind("iscsi_tcp", "ORACLE BlockVolume", false),
    ] {
        let target = ext4_on(disk);
        assert_eq!(worst(&target), (Verdict::Blocked, "cloud-no-discards", Severity::Note));
        assert_eq!(target.findings.len(), 1, "nobody is to be told to send more: {target:?}");
    }
}

/// Virtual NVMe drives without deallocation, as <https://github.com/oxidecomputer/propolis/issues/990> describes one more.
#[test]
fn virtual_nvme_drive_is_its_host_s() {
    for model in ["QEMU NVMe Ctrl", "VMware Virtual NVMe Disk", "ORCL-VBOX-NVME-VER12"] {
        let disk = Layer { label: Some(model.to_owned()), ..nvme(0) };
        assert_eq!(
            worst(&ext4_on(disk)),
            (Verdict::Blocked, "host-no-discards", Severity::Critical),
            "{model}"
        );
    }
}

/// NVMe over TCP: ONTAP took no deallocations (<https://github.com/NetAppDocs/ontap/issues/1470>).
#[test]
fn namespace_on_the_network_is_its_target_s() {
    let over = |max| Layer { fabric: Some("tcp".to_owned()), ..nvme(max) };
    let takes = ext4_on(over(YES));
    assert!(takes.layers[1].reason.starts_with("the NVMe target takes them; what it does"), "{takes:?}");
    let none = ext4_on(over(0));
    assert!(none.findings[0].message.starts_with("The target of nvme0n1"), "{none:?}");
    assert!(fix(&none).contains("nvme connect"), "{none:?}");
    assert!(!none.reason.contains("Dataset Management"), "{}", none.reason);
}

/// LUNs of storage systems: Longhorn's (<https://github.com/longhorn/longhorn/issues/5806>), others, and Fibre Channel below
/// multipath.
#[test]
fn lun_without_unmap_is_its_storage_s() {
    for (driver, model) in
        [("iscsi_tcp", "IET VIRTUAL-DISK"), ("qla2xxx", "NETAPP LUN C-Mode"), ("lpfc", "DGC VRAID")]
    {
        for rotational in [false, true] {
            let target = ext4_on(behind(driver, model, rotational));
            assert_eq!(worst(&target), (Verdict::Blocked, "host-no-discards", Severity::Warning), "{model}");
            assert!(
                fix(&target).contains("space reclamation") && fix(&target).contains("/sys/block/sda/"),
                "{target:?}"
            );
        }
    }
    let scsi = Scsi {
        transport: Transport::Other(Some("qla2xxx".to_owned())),
        provisioning_mode: Some("unmap".to_owned()),
        thin_provisioning: Some(true),
    };
    let path = || taking(YES, 1 << 20, layer("sdb", LayerKind::Scsi(scsi.clone())));
    let multipath = taking(YES, 1 << 20, mapped("dm-0", "multipath", "0 0 1 1 service-time 0 1 2 8:16 1 1"));
    let target = examined(&row([file_system("/mnt", "xfs", "rw"), multipath, path()]));
    assert_eq!(target.verdict, Verdict::Reaches);
    assert!(target.layers[2].reason.starts_with("the storage takes them"), "{target:?}");
}

/// Ubuntu's snaps: a squashfs on a loop device on the root. Nothing is freed in it, whatever the root's mount options are
/// (as `/usr/lib/modules` in <https://github.com/rancher/k3os/issues/664>).
#[test]
fn image_that_is_only_read_needs_nothing_below_it() {
    let image = || LayerKind::Loop { file: PathBuf::from("/var/lib/snapd/snaps/core_1.snap") };
    let looped = Layer { read_only: true, ..taking(YES, 4096, layer("loop3", image())) };
    let root = file_system("/", "ext4", "rw");
    let snap = row([file_system("/snap/core/1", "squashfs", "ro"), looped, root, nvme(0)]);
    for setup in [timed(), Setup::default()] {
        let target = diagnose(&snap, &setup, ASSUMED_ERASE_BLOCK);
        assert_eq!((target.verdict, target.findings.len()), (Verdict::Blocked, 0), "{target:?}");
        assert!(target.reason.contains("it never frees anything"), "{}", target.reason);
    }
}

/// An ext4 that is mounted read-only on dm-verity, as Android's root is (<https://source.android.com/docs/security/features/verifiedboot>).
#[test]
fn file_system_mounted_read_only_is_no_alarm() {
    let verity = taking(0, 0, mapped("dm-0", "verity", "1 8:1 8:2 4096 4096 9 1 sha256 - -"));
    let root = Layer { read_only: true, ..file_system("/", "ext4", "ro") };
    let target = examined(&row([root, verity, nvme(YES)]));
    assert_eq!(target.verdict, Verdict::Blocked);
    assert!(target.findings.iter().all(|finding| finding.severity == Severity::Note), "{target:?}");
}

/// OpenWrt's root: an overlay of a squashfs and an F2FS (<https://github.com/CZ-NIC/turris-os/issues/17>).
#[test]
fn overlay_over_an_image_is_judged_by_its_upper_directory() {
    let mut stack =
        row([file_system("/", "overlay", "rw,lowerdir=/rom,upperdir=/overlay/upper,workdir=/overlay/work")]);
    stack.layers.push(file_system("/overlay", "f2fs", "rw,discard"));
    stack.layers.push(Layer { read_only: true, ..file_system("/rom", "squashfs", "ro") });
    stack.layers.push(taking(YES, 512, layer("mmcblk0", LayerKind::Mmc)));
    stack.layers[0].below = [1, 2].map(|layer| Below { layer, start: None }).to_vec();
    for upper in [1, 2] {
        stack.layers[upper].below = vec![Below { layer: 3, start: Some(Bytes::ZERO) }];
    }
    let target = examined(&stack);
    assert_eq!(target.verdict, Verdict::Reaches, "{target:?}");
    assert!(target.findings.iter().all(|finding| finding.severity == Severity::Note), "{target:?}");
}

/// Swap with a key that is drawn at each start, as Debian sets it up: <https://github.com/NixOS/nixpkgs/pull/108948>.
#[test]
fn encrypted_swap_is_mended_in_its_tables() {
    let crypt = |subsystem: &str| Layer {
        subsystem: Some(subsystem.to_owned()),
        label: Some("cryptswap".to_owned()),
        ..taking(0, 0, mapped("dm-1", "crypt", "aes-xts-plain64 - 0 8:2 0"))
    };
    let on = |subsystem| examined(&row([layer("/dev/dm-1", LayerKind::Swap), crypt(subsystem), nvme(YES)]));
    let plain = on("CRYPT-PLAIN");
    assert_eq!(worst(&plain), (Verdict::Blocked, "luks-no-discards", Severity::Warning));
    assert!(
        fix(&plain).starts_with("# add discard to the options of cryptswap in /etc/crypttab"),
        "{plain:?}"
    );
    assert!(!fix(&plain).contains("cryptsetup close"), "the swap is in use");
    assert!(fix(&on("CRYPT-LUKS2")).starts_with("cryptsetup refresh"), "{plain:?}");
}

/// Home directories of systemd-homed, whose records decide: <https://github.com/systemd/systemd/issues/40256>.
#[test]
fn home_directory_of_homed_is_mended_by_homectl() {
    let crypt = Layer {
        subsystem: Some("CRYPT-LUKS2".to_owned()),
        label: Some("home-alice".to_owned()),
        ..taking(0, 0, mapped("dm-0", "crypt", "aes-xts-plain64 - 0 7:0 0"))
    };
    let image = layer("loop0", LayerKind::Loop { file: PathBuf::from("/home/alice.home") });
    let home = file_system("/home/alice", "ext4", "rw");
    let below = [file_system("/home", "btrfs", "rw,discard=async"), nvme(YES)];
    let target =
        examined(&row([home.clone(), crypt.clone(), taking(YES, 4096, image)].into_iter().chain(below)));
    assert!(fix(&target).starts_with("homectl update alice --luks-discard=on"), "{target:?}");
    let ordinary = examined(&row([home, crypt, nvme(YES)]));
    assert!(fix(&ordinary).starts_with("cryptsetup refresh"), "{ordinary:?}");
}

/// LUKS2 with integrity protection: dm-integrity below has no hash of its own, and takes no discards
/// (<https://github.com/siderolabs/talos/issues/13422>).
#[test]
fn encryption_with_tags_has_no_fix() {
    let crypt = taking(
        0,
        0,
        mapped("dm-1", "crypt", "capi:authenc(hmac(sha256),xts(aes))-random - 0 254:0 0 1 integrity:48:aead"),
    );
    let crypt = Layer { subsystem: Some("CRYPT-LUKS2".to_owned()), ..crypt };
    let target = ext4_on_two(crypt, taking(0, 0, mapped("dm-0", "integrity", "8:1 0 48 J 0")));
    let finding = target.findings.iter().find(|finding| finding.id == "encryption-with-tags");
    assert!(finding.is_some_and(|finding| finding.fix.is_none()), "{target:?}");
    assert!(!target.findings.iter().any(|finding| finding.id == "luks-no-discards"), "{target:?}");
}

fn ext4_on_two(upper: Layer, lower: Layer) -> Target {
    examined(&row([file_system("/mnt", "ext4", "rw"), upper, lower, nvme(YES)]))
}

/// bcachefs with a disk whose discards are off: <https://github.com/koverstreet/bcachefs/issues/1063>.
#[test]
fn bcachefs_is_judged_by_the_setting_of_each_device() {
    let on = |off: &[&str]| {
        let mut top = file_system("/mnt", "bcachefs", "rw");
        let LayerKind::FileSystem(found) = &mut top.kind else { unreachable!() };
        found.undiscarded = off.iter().map(|name| (*name).to_owned()).collect();
        let mut stack = row([top, nvme(YES)]);
        stack.layers.push(Layer { name: "sda".to_owned(), ..nvme(YES) });
        stack.layers[0].below.push(Below { layer: 2, start: None });
        examined(&stack)
    };
    assert_eq!(on(&[]).verdict, Verdict::Reaches);
    let none = on(&["nvme0n1", "sda"]);
    assert_eq!(worst(&none), (Verdict::Blocked, "bcachefs-no-discards", Severity::Critical));
    assert_eq!(
        fix(&none),
        "echo 1 | tee /sys/class/block/nvme0n1/bcachefs/discard /sys/class/block/sda/bcachefs/discard"
    );
    let some = on(&["sda"]);
    assert_eq!(worst(&some), (Verdict::Partial, "bcachefs-no-discards", Severity::Warning));
    assert!(some.reason.contains("sends none to sda"), "{}", some.reason);
}

/// A mirror of an SSD and a hard disk: <http://home.icequake.net/~nemesis/blog/index.php/archives/796>.
#[test]
fn mirror_with_a_hard_disk_reaches_its_ssd() {
    let ata = Transport::Ata { trim: Some("unsupported".to_owned()) };
    let scsi = Scsi { transport: ata, provisioning_mode: Some("full".to_owned()), thin_provisioning: None };
    let mut stack =
        row([file_system("/mnt", "ext4", "rw"), taking(YES, 512, raid("raid1", None)), nvme(YES)]);
    let disk = Layer { rotational: true, ..taking(0, 0, layer("sda", LayerKind::Scsi(scsi))) };
    stack.layers.push(disk);
    stack.layers[1].below.push(Below { layer: 3, start: Some(Bytes::ZERO) });
    let target = examined(&stack);
    assert_eq!(target.verdict, Verdict::Partial, "{target:?}");
    assert!(
        target.findings.iter().all(|finding| finding.severity == Severity::Note),
        "a hard disk loses nothing"
    );
}

/// LVM on an iSCSI LUN, with thick volumes as disks of virtual machines: <https://github.com/util-linux/util-linux/issues/3991>.
#[test]
fn thick_volume_hands_discards_to_its_lun() {
    let scsi = Scsi {
        transport: Transport::Other(Some("iscsi_tcp".to_owned())),
        provisioning_mode: Some("unmap".to_owned()),
        thin_provisioning: Some(true),
    };
    let lun = taking(YES, 1 << 20, layer("sdc", LayerKind::Scsi(scsi)));
    let volume = Layer {
        subsystem: Some("LVM".to_owned()),
        ..taking(YES, 1 << 20, mapped("dm-3", "linear", "8:32 2048"))
    };
    let target = examined(&row([file_system("/mnt", "ext4", "rw"), volume, lun]));
    assert_eq!(target.verdict, Verdict::Reaches);
    assert!(target.layers[2].reason.contains("in whole units of 1 MiB"), "{target:?}");
}

/// Qubes's private volumes: discards as files are deleted, above a pool with chunks of 256 KiB
/// (<https://github.com/QubesOS/qubes-issues/issues/5055>).
#[test]
fn online_discards_above_a_pool_are_too_small() {
    let disk = taking(YES, 256 << 10, layer("xvdb", LayerKind::Other(Some("vbd".to_owned()))));
    let stack = row([file_system("/rw", "ext4", "rw,discard"), disk]);
    let target = diagnose(&stack, &Setup::default(), ASSUMED_ERASE_BLOCK);
    assert_eq!(worst(&target), (Verdict::Reaches, "online-only", Severity::Warning));
    assert!(target.findings[0].message.contains("whole units of 256 KiB"), "{target:?}");
}

/// A container of Proxmox, where no timer runs: <https://github.com/osm-fr/infrastructure/issues/194>.
#[test]
fn container_on_a_thin_volume_is_trimmed_from_its_host() {
    let thin = taking(YES, 64 << 10, mapped("dm-6", "thin", "254:4 7"));
    let stack = row([file_system("/", "ext4", "rw"), thin, nvme(YES)]);
    let setup = Setup { container: true, ..timed() };
    let target = diagnose(&stack, &setup, ASSUMED_ERASE_BLOCK);
    assert_eq!(worst(&target), (Verdict::Reaches, "timer-not-in-container", Severity::Note));
    assert!(fix(&target).contains("on the host"), "{target:?}");
}

/// A loop device over a file of an NFS server, as of a pool in <https://github.com/QubesOS/qubes-issues/issues/3255>: what the server
/// makes of holes can't be seen.
#[test]
fn file_on_another_machine_is_unknown() {
    let image = || LayerKind::Loop { file: PathBuf::from("/nfs/disk.img") };
    let stack = |max| {
        row([
            file_system("/mnt", "ext4", "rw"),
            taking(max, 4096, layer("loop0", image())),
            file_system("/nfs", "nfs4", "rw,vers=4.2"),
        ])
    };
    let takes = examined(&stack(YES));
    assert_eq!(takes.verdict, Verdict::Unknown, "{takes:?}");
    assert!(takes.reason.contains("it is on another machine"), "{}", takes.reason);
    let old = examined(&stack(0));
    assert_eq!(worst(&old), (Verdict::Blocked, "loop-no-holes", Severity::Critical));
}

/// DRBD, whose peers decide (<https://github.com/home-operations/miroir/issues/197>).
#[test]
fn replicated_disk_names_its_peers() {
    let disk = taking(YES, 4096, layer("drbd0", LayerKind::Other(Some("drbd".to_owned()))));
    let target = ext4_on(disk);
    assert!(target.layers[1].reason.contains("only if its peers take them"), "{target:?}");
}

/// A btrfs on a device that is larger than the file system: <https://github.com/kdave/btrfs-progs/issues/282>. The kernel failed there;
/// nothing of the layers did.
#[test]
fn btrfs_smaller_than_its_device_is_not_blamed() {
    let disk = Layer { size: Some(Bytes(250 << 30)), ..nvme(YES) };
    let target = examined(&row([file_system("/", "btrfs", "rw,ssd,discard=async"), disk]));
    assert_eq!((target.verdict, target.findings.len()), (Verdict::Reaches, 0), "{target:?}");
}

/// VeraCrypt leaves no name in its devices: <https://github.com/veracrypt/VeraCrypt/issues/1186>.
#[test]
fn veracrypt_volume_is_mended_by_a_new_table() {
    let crypt = taking(0, 0, mapped("dm-0", "crypt", "aes-xts-plain64 - 256 8:1 256"));
    let target = ext4_on(Layer { label: Some("veracrypt1".to_owned()), ..crypt });
    let crypt_only: Vec<_> =
        target.findings.iter().filter(|finding| finding.id == "luks-no-discards").collect();
    assert!(
        crypt_only[0]
            .fix
            .as_deref()
            .is_some_and(|fix| fix.starts_with("dmsetup table --showkeys veracrypt1"))
    );
}

/// SteamOS: a loop device on an ext4 offered no discards, although the file system can punch holes
/// (<https://github.com/ValveSoftware/SteamOS/issues/1101>).
#[test]
fn file_system_that_punches_holes_is_not_blamed_for_its_loop_device() {
    let image = LayerKind::Loop { file: PathBuf::from("/home/testfile") };
    let lower = file_system("/home", "ext4", "rw");
    let target = examined(&row([
        file_system("/mnt", "ext4", "rw"),
        taking(0, 0, layer("loop0", image)),
        lower,
        nvme(YES),
    ]));
    assert_eq!(worst(&target), (Verdict::Blocked, "loop-no-discards", Severity::Critical));
    assert!(target.findings[0].message.contains("can punch holes into its file"), "{target:?}");
}

/// A server of network block devices with trim turned off: <https://github.com/NetworkBlockDevice/nbd/issues/64>.
#[test]
fn network_block_device_is_mended_on_its_server() {
    let target = ext4_on(taking(0, 0, layer("nbd2", LayerKind::Nbd)));
    assert_eq!(worst(&target), (Verdict::Blocked, "server-no-discards", Severity::Critical));
    assert!(fix(&target).contains("trim = true"), "{target:?}");
}

/// fstrim.service of util-linux 2.33 could not see `/home`: <https://github.com/util-linux/util-linux/issues/824>.
#[test]
fn home_that_fstrim_service_cannot_see_is_passed_by() {
    let setup = |hides_homes| {
        let commands = vec!["/sbin/fstrim".to_owned(), "--fstab".to_owned()];
        let service = FstrimService { commands: vec![commands], result: "success".to_owned(), hides_homes };
        let line = |target: &str| Listed {
            source: PathBuf::from("UUID=1"),
            target: PathBuf::from(target),
            fstype: "ext4".to_owned(),
            options: vec!["defaults".to_owned()],
        };
        Setup { fstrim_service: Some(service), fstab: ["/", "/home"].map(line).to_vec(), ..timed() }
    };
    let home = row([file_system("/home", "ext4", "rw"), nvme(YES)]);
    let target = diagnose(&home, &setup(true), ASSUMED_ERASE_BLOCK);
    assert_eq!(worst(&target), (Verdict::Reaches, "fstrim-hides-home", Severity::Warning));
    assert!(fix(&target).contains("ProtectHome=read-only"), "{target:?}");
    assert!(diagnose(&home, &setup(false), ASSUMED_ERASE_BLOCK).findings.is_empty());
    let root = row([file_system("/", "ext4", "rw"), nvme(YES)]);
    assert!(diagnose(&root, &setup(true), ASSUMED_ERASE_BLOCK).findings.is_empty());
}

/// Apple's containers: the kernel shows no limits of discards at all (<https://github.com/apple/containerization/issues/738>).
#[test]
fn disk_without_limits_is_unknown() {
    let target = ext4_on(layer("vdb", LayerKind::VirtioBlk));
    assert_eq!(target.verdict, Verdict::Unknown);
    assert!(target.reason.contains("sysfs doesn't tell its limits"), "{}", target.reason);
}

/// A drive in a USB enclosure whose discards were turned on, below LUKS: <https://github.com/DeskPi-Team/deskpi/issues/46>.
#[test]
fn encryption_is_blamed_and_not_the_enclosure_that_was_mended() {
    let transport = Transport::Usb { driver: "uas".to_owned(), ids: None };
    let mode = Some("unmap".to_owned());
    let scsi = Scsi { transport, provisioning_mode: mode, thin_provisioning: Some(false) };
    let disk = taking(YES, 512, layer("sda", LayerKind::Scsi(scsi)));
    let crypt = taking(0, 0, mapped("dm-0", "crypt", "aes-xts-plain64 - 0 8:3 32768"));
    let target = examined(&row([file_system("/home", "ext4", "rw"), crypt, disk]));
    assert_eq!(worst(&target), (Verdict::Blocked, "luks-no-discards", Severity::Critical));
    assert!(!target.findings.iter().any(|finding| finding.layer == "sda"), "{target:?}");
}
