//! The uses of devices on captured machines.

use std::fs;

use super::*;
use crate::captured::Captured;

mod containers;
mod exports;
mod mapped;

/// A machine whose root is on a volume on the second partition of `sda`, and spare disks.
fn machine() -> Captured {
    Captured::new()
        .device("sda", "8:0", &[("size", "16384")])
        .device("sda/sda1", "8:1", &[])
        .device("sda/sda2", "8:2", &[("start", "4096")])
        .device("sda/sda3", "8:3", &[("start", "6144")])
        .device("sdb", "8:16", &[])
        .device("sdc", "8:32", &[])
        .device("dm-0", "253:0", &[("dm/name", "vg-root")])
        .stacked("dm-0", "sda/sda2")
        .mounts("27 1 253:0 / / rw - ext4 /dev/mapper/vg-root rw\n")
}

fn judged(machine: &Captured, name: &str, overrides: &Overrides) -> Result<Vec<String>, String> {
    let usage = Usage::of(&machine.machine(), &machine.open(name)).unwrap();
    usage.judge(overrides).map_err(|error| error.to_string())
}

const EVERYTHING: Overrides = Overrides { signatures: true, partitions: true, part: true };

/// Asserts that the device named `name` is accepted as a part of `whole`, and not otherwise.
fn is_a_part(machine: &Captured, name: &str, whole: &str) {
    let refused = judged(machine, name, &Overrides::default()).unwrap_err();
    assert!(refused.starts_with(&format!("/dev/{name} is a part of {whole}; ")), "{refused}");
    let slowed = format!("will be slowed: what uses {whole}");
    assert_eq!(judged(machine, name, &EVERYTHING), Ok(vec![slowed]));
}

/// Why the device named `name` is refused even where everything is allowed that can be.
fn refusal(machine: &Captured, name: &str) -> String {
    judged(machine, name, &EVERYTHING).unwrap_err()
}

#[test]
fn mounted_device_is_refused_in_every_layer() {
    let machine = machine();
    let root = "is mounted on /: this machine runs from it; name another device";
    assert_eq!(refusal(&machine, "dm-0"), format!("/dev/dm-0 is in use: /dev/dm-0 {root}"));
    let below = format!("/dev/sda2 is below /dev/dm-0 (vg-root), which {root}");
    assert_eq!(refusal(&machine, "sda2"), format!("/dev/sda2 is in use: {below}"));
    assert_eq!(refusal(&machine, "sda"), format!("/dev/sda is in use: {below}"));
    assert_eq!(judged(&machine, "sdb", &Overrides::default()), Ok(vec![]));
}

#[test]
fn an_unmounted_holder_is_named() {
    let machine = machine().mounts("");
    let held = "/dev/sda2 is held by /dev/dm-0 (vg-root); take that down first";
    assert_eq!(refusal(&machine, "sda"), format!("/dev/sda is in use: {held}"));
    let machine = Captured::new()
        .device("sda", "8:0", &[])
        .device("sda/sda1", "8:1", &[("size", "1024")])
        .device("dm-0", "253:0", &[])
        .stacked("dm-0", "sda");
    let held = "/dev/sda is held by /dev/dm-0; take that down first";
    assert_eq!(refusal(&machine, "sda1"), format!("/dev/sda1 is in use: {held}"));
}

#[test]
fn swap_is_refused_with_its_disk() {
    let machine =
        machine().swaps("/dev/sda1                partition\t1000\t0\t-2\n/swap\\040file file 1 0 -3\n");
    let swap = "/dev/sda1 is active swap; turn it off first (swapoff /dev/sda1)";
    assert_eq!(refusal(&machine, "sda1"), format!("/dev/sda1 is in use: {swap}"));
    assert_eq!(refusal(&machine, "sda"), format!("/dev/sda is in use: {swap}"));
}

#[test]
fn all_devices_of_a_btrfs_are_in_use() {
    let machine = machine()
        .mounts("40 27 0:44 /sub /mnt/b rw - btrfs /dev/sdb rw,ssd\n")
        .link("fs/btrfs/aaaa/devices/sdb", "x")
        .link("fs/btrfs/aaaa/devices/sdc", "x");
    // The kernel links to the devices' directories; where to doesn't matter, only the names.
    fs::create_dir_all(machine.sysfs().join("fs/btrfs/aaaa/devices/x")).unwrap();
    for name in ["sdb", "sdc"] {
        let expected = format!("/dev/{name} is in use: /dev/{name} is mounted on /mnt/b; ");
        assert!(refusal(&machine, name).starts_with(&expected), "{}", refusal(&machine, name));
    }
}

#[test]
fn a_loop_device_over_a_disk_uses_it() {
    let machine = machine()
        .device("loop0", "7:0", &[("loop/backing_file", "/dev/sdb")])
        .behind("7:0", "8:16")
        .device("loop1", "7:1", &[("loop/backing_file", "/images/sdc")])
        .behind("7:1", "8:2 11")
        .device("loop0/loop0p1", "259:0", &[]);
    let held = "/dev/sdb is held by /dev/loop0; take that down first";
    assert_eq!(refusal(&machine, "sdb"), format!("/dev/sdb is in use: {held}"));
    assert_eq!(judged(&machine, "sdc", &Overrides::default()), Ok(vec![]), "a file named like a disk");
    let machine = machine.mounts("28 1 259:0 / /mnt rw - ext4 /dev/loop0p1 rw\n");
    let below = "/dev/sdb is below /dev/loop0p1, which is mounted on /mnt; unmount it first (umount /mnt)";
    assert_eq!(refusal(&machine, "sdb"), format!("/dev/sdb is in use: {below}"));
}

#[test]
fn used_device_below_is_refused() {
    let machine = machine()
        .device("loop1", "7:1", &[("loop/backing_file", "/images/a")])
        .behind("7:1", "8:2 12")
        .device("loop2", "7:2", &[("loop/backing_file", "/dev/loop1")])
        .behind("7:2", "7:1")
        .device("loop2/loop2p1", "259:0", &[])
        .device("loop2/loop2p2", "259:1", &[("start", "4096")])
        .device("loop3", "7:3", &[("loop/backing_file", "/dev/sda")])
        .behind("7:3", "8:0");
    assert!(judged(&machine, "loop2", &EVERYTHING).is_ok(), "held by its own stack");
    let shared = "/dev/loop3 shares its bytes with /dev/sda2, which is below /dev/dm-0 (vg-root), which \
                  is mounted on /: this machine runs from it; name another device";
    assert_eq!(refusal(&machine, "loop3"), shared);

    let machine = machine.mounts("28 1 7:1 / /mnt rw - ext4 /dev/loop1 rw\n");
    let mounted = "/dev/loop1, which is mounted on /mnt; unmount it first (umount /mnt)";
    for name in ["loop2", "loop2p1"] {
        assert_eq!(refusal(&machine, name), format!("/dev/{name} shares its bytes with {mounted}"));
    }
    let machine = machine.mounts("").swaps("/dev/loop1 partition 1000 0 -2\n");
    let swap = "/dev/loop1, which is active swap; turn it off first (swapoff /dev/loop1)";
    assert_eq!(refusal(&machine, "loop2"), format!("/dev/loop2 shares its bytes with {swap}"));

    // The disk of the second partition is its own, and it uses other bytes of that disk.
    let machine = machine.swaps("").mounts("28 1 259:1 / /mnt rw - ext4 /dev/loop2p2 rw\n");
    let allowed = Overrides { part: true, ..Overrides::default() };
    let slowed = "will be slowed: what uses /dev/loop2 (/dev/loop2p2 in use)";
    assert_eq!(judged(&machine, "loop2p1", &allowed), Ok(vec![slowed.to_owned()]));
}

#[test]
fn device_below_a_volume_is_for_that_volume_alone() {
    let volume = || {
        machine()
            .device("dm-1", "253:1", &[("dm/name", "vg-spare")])
            .device("dm-2", "253:2", &[])
            .stacked("dm-2", "dm-1")
            .stacked("dm-1", "sda/sda3")
            .stacked("dm-1", "sdb")
    };
    is_a_part(&volume(), "dm-2", "/dev/sda (/dev/sda2 in use)");

    let shared = "/dev/dm-2 shares its bytes with /dev";
    let machine = volume().device("dm-3", "253:3", &[]).stacked("dm-3", "sdb");
    let held =
        "/dev/dm-2 may share its bytes with /dev/sdb, which is held by /dev/dm-3; take that down first";
    assert_eq!(refusal(&machine, "dm-2"), held, "the parts of both are not compared");
    let machine = volume().device("loop0", "7:0", &[("loop/backing_file", "/dev/sda3")]).behind("7:0", "8:3");
    let held = format!("{shared}/sda3, which is held by /dev/loop0; take that down first");
    assert_eq!(refusal(&machine, "dm-2"), held);
    let machine = volume()
        .device("sda/sda4", "8:4", &[("start", "7000")])
        .mounts("28 1 8:4 / /mnt rw - ext4 /dev/sda4 rw\n");
    let mounted = format!("{shared}/sda4, which is mounted on /mnt; unmount it first (umount /mnt)");
    assert_eq!(refusal(&machine, "dm-2"), mounted);
}

#[test]
fn loop_devices_that_cannot_be_listed_are_no_proof_of_none() {
    let machine = machine();
    fs::remove_dir_all(machine.sysfs().join("block")).unwrap();
    let error = Usage::of(&machine.machine(), &machine.open("sdb")).unwrap_err();
    assert!(error.to_string().starts_with("cannot list loop devices in "), "{error}");
}

#[test]
fn a_partition_needs_to_be_allowed() {
    let machine = machine();
    let refused = judged(&machine, "sda3", &Overrides::default()).unwrap_err();
    let expected = "/dev/sda3 is a part of /dev/sda (/dev/sda2 in use); name a whole drive, or add --allow-part, which \
                    slows what uses the rest, and by which you vouch that nothing else relies on bytes of /dev/sda3 (see \
                    bench --help)";
    assert_eq!(refused, expected);
    let allowed = Overrides { part: true, ..Overrides::default() };
    let lost = judged(&machine, "sda3", &allowed).unwrap();
    assert_eq!(lost, ["will be slowed: what uses /dev/sda (/dev/sda2 in use)"]);
}

#[test]
fn whatever_is_no_whole_drive_needs_to_be_allowed() {
    // Nothing is known of the other partitions.
    let machine = Captured::new()
        .device("sda", "8:0", &[("size", "16384")])
        .device("sda/sda1", "8:1", &[])
        .device("sda/sda2", "8:2", &[("start", "4096")])
        .device("dm-0", "253:0", &[])
        .stacked("dm-0", "sda/sda2");
    is_a_part(&machine, "dm-0", "/dev/sda");
    let whole = Captured::new().device("sda", "8:0", &[]).device("dm-0", "253:0", &[]).stacked("dm-0", "sda");
    is_a_part(&whole, "dm-0", "/dev/sda");
    is_a_part(&looped("8:2 11", "8:2 12"), "loop1", "the file system that holds /images/other");
    let volumes = Captured::new()
        .device("zd16", "230:16", &[])
        .device("rbd0", "252:0", &[])
        .device("dm-0", "253:0", &[])
        .stacked("dm-0", "zd16")
        .device("zd", "231:0", &[]);
    is_a_part(&volumes, "rbd0", "a Ceph cluster");
    is_a_part(&volumes, "dm-0", "a ZFS pool");
    assert_eq!(judged(&volumes, "zd", &Overrides::default()), Ok(Vec::new()));
    let idle = Captured::new().device("zd16", "230:16", &[]);
    is_a_part(&idle, "zd16", "a ZFS pool");
}

#[test]
fn partitions_that_overlap_lose_nothing() {
    let machine = machine().device("sda/sda4", "8:4", &[("start", "7000")]);
    let overlap = "/dev/sda4 overlaps /dev/sda3, which would lose data; name a whole drive";
    assert_eq!(refusal(&machine, "sda4"), overlap);
}

#[test]
fn partitions_that_overlap_a_layer_below_are_kept() {
    let machine = Captured::new()
        .device("sda", "8:0", &[("size", "16384")])
        .device("sda/sda1", "8:1", &[])
        .device("sda/sda2", "8:2", &[("start", "4096")])
        .device("sda/sda3", "8:3", &[("start", "5000")])
        .device("sdb", "8:16", &[])
        .device("sdb/sdb1", "8:17", &[])
        .device("dm-0", "253:0", &[])
        .stacked("dm-0", "sda/sda2")
        .device("dm-1", "253:1", &[])
        .stacked("dm-1", "sdb");
    for (name, kept) in [("dm-0", &["sda3"][..]), ("dm-1", &[])] {
        let usage = Usage::of(&machine.machine(), &machine.open(name)).unwrap();
        assert_eq!(usage.sharing.iter().map(|(block, _)| block.name()).collect::<Vec<_>>(), kept);
    }
}

#[test]
fn nothing_to_write_to_is_refused() {
    let machine =
        Captured::new().device("sr0", "11:0", &[("size", "0")]).device("sdd", "8:48", &[("ro", "1")]);
    assert!(refusal(&machine, "sr0").starts_with("/dev/sr0 has no size: there is no medium"));
    assert!(refusal(&machine, "sdd").starts_with("/dev/sdd is read-only; make it writable first"));
}

#[test]
fn file_of_a_stacked_file_system_is_refused() {
    let machine = looped("8:2 11", "0:31 12").mounts("30 1 0:31 / /e rw - ecryptfs /lower rw\n");
    let expected = "/dev/loop1 cannot be proven unused: /images/other, the file below it, is on ecryptfs, which may keep \
                    its bytes in another file; use one on ext4, XFS or btrfs instead";
    assert_eq!(refusal(&machine, "loop1"), expected);
    assert!(judged(&machine, "loop0", &EVERYTHING).is_ok());
    let unseen = machine.mounts("");
    assert!(refusal(&unseen, "loop1").contains("is on a file system that is mounted nowhere, "));
    assert!(judged(&unseen, "loop0", &EVERYTHING).is_ok());
}

/// A machine with two loop devices over files with these numbers; the first is mounted.
fn looped(one: &str, other: &str) -> Captured {
    machine()
        .device("loop0", "7:0", &[("loop/backing_file", "/images/one")])
        .device("loop1", "7:1", &[("loop/backing_file", "/images/other")])
        .behind("7:0", one)
        .behind("7:1", other)
        .mounts("28 1 7:0 / /mnt rw - ext4 /dev/loop0 rw\n29 1 0:30 / /m rw - overlay o rw,upperdir=u\n")
}

const MOUNTED: &str = "/dev/loop0, which is mounted on /mnt; unmount it first (umount /mnt)";

#[test]
fn files_are_known_by_their_numbers() {
    let shares = format!("/dev/loop1 shares its bytes with {MOUNTED}");
    assert_eq!(refusal(&looped("8:2 11", "8:2 11"), "loop1"), shares);
    for others in ["8:2 12", "8:3 11"] {
        assert!(judged(&looped("8:2 11", others), "loop1", &EVERYTHING).is_ok());
    }
}

#[test]
fn a_file_that_cannot_be_identified_may_be_any_other() {
    let may = format!("/dev/loop1 may share its bytes with {MOUNTED}");
    assert_eq!(refusal(&looped("0:30 11", "8:2 12"), "loop1"), may);
    for mounted in ["8:2 11", "0:30 11"] {
        let refused = refusal(&looped(mounted, "0:30 12"), "loop1");
        assert!(refused.contains("/images/other, the file below it, is on overlay"), "{refused}");
    }
}

#[test]
fn a_second_layer_of_loop_devices_hides_nothing() {
    let machine = looped("8:2 11", "8:2 11")
        .device("loop2", "7:2", &[("loop/backing_file", "/dev/loop1")])
        .behind("7:2", "7:1");
    let shares = |name: &str| format!("/dev/{name} shares its bytes with {MOUNTED}");
    assert_eq!(refusal(&machine, "loop2"), shares("loop2"));
    let machine = machine.device("dm-1", "253:1", &[]).stacked("dm-1", "loop2");
    assert_eq!(refusal(&machine, "dm-1"), shares("dm-1"));
    let above = machine.mounts("28 1 253:1 / /mnt rw - ext4 /dev/dm-1 rw\n");
    let below =
        "/dev/loop1, which is below /dev/dm-1, which is mounted on /mnt; unmount it first (umount /mnt)";
    assert_eq!(refusal(&above, "loop0"), format!("/dev/loop0 shares its bytes with {below}"));
}

#[test]
fn mounts_of_other_namespaces_count() {
    let machine = machine().file("proc/42/mountinfo", "28 1 8:16 / /data rw - ext4 /dev/sdb rw\n");
    let machine = machine
        .file("proc/42/maps", "")
        .file("proc/42/stat", "42 (qemu) S 1\n")
        .file("proc/42/fd/none", "")
        .file("proc/42/fdinfo/none", "flags: 0");
    let process = machine.procfs().join("42");
    fs::create_dir_all(process.join("ns")).unwrap();
    for (link, to) in [("ns/mnt", "mnt:[7]"), ("root", "x")] {
        std::os::unix::fs::symlink(to, process.join(link)).unwrap();
    }
    let expected = "/dev/sdb is in use: /dev/sdb is mounted on /data in the mount namespace of process 42; ";
    assert!(refusal(&machine, "sdb").starts_with(expected), "{}", refusal(&machine, "sdb"));
}

#[test]
fn a_loop_device_over_active_swap_is_refused() {
    let machine = looped("8:2 11", "8:2 12").mounts("").file("swapfile", "");
    let found = identity::file_at(&machine.root().join("swapfile")).unwrap();
    let machine = machine.swaps("/swapfile file 1000 0 -2\n");
    assert!(judged(&machine, "loop0", &EVERYTHING).is_ok());
    let machine = machine.behind("7:0", &format!("{} {}", found.device, found.inode));
    let swap = "/swapfile, which is active swap; turn it off first (swapoff /swapfile)";
    assert_eq!(refusal(&machine, "loop0"), format!("/dev/loop0 shares its bytes with {swap}"));
    let gone = machine.swaps("/gone file 1000 0 -2\n");
    assert!(refusal(&gone, "loop0").starts_with("/dev/loop0 may share its bytes with /gone, "));
    let twice = gone.swaps("/swapfile file 1000 0 -2\n/swapfile file 1000 0 -3\n").behind("7:0", "8:2 13");
    let hidden = "/dev/loop0 may share its bytes with /swapfile, which is active swap";
    assert!(refusal(&twice, "loop0").starts_with(hidden), "one of them hides the other");
}

#[test]
fn a_process_that_can_write_to_a_file_below_is_named() {
    let machine = looped("8:2 11", "8:2 12").mounts("").file("disk.img", "");
    let image = machine.root().join("disk.img");
    let found = identity::file_at(&image).unwrap();
    let machine = machine
        .behind("7:0", &format!("{} {}", found.device, found.inode))
        .file("proc/42/comm", "qemu-system-x86\n")
        .file("proc/42/maps", "")
        .file("proc/42/stat", "42 (qemu) S 1\n")
        .file("proc/42/fdinfo/3", "flags:\t0100002\n");
    let fds = machine.procfs().join("42/fd");
    fs::create_dir_all(&fds).unwrap();
    std::os::unix::fs::symlink(&image, fds.join("3")).unwrap();
    let expected = format!(
        "/dev/loop0 is in use: process 42 (qemu-system-x86) has {} open for writing; end that process first",
        image.display()
    );
    assert_eq!(refusal(&machine, "loop0"), expected);
    assert!(judged(&machine, "loop1", &EVERYTHING).is_ok());
}

#[test]
fn a_second_path_to_a_drive_in_use_is_refused() {
    let machine = |wwid: &str| {
        Captured::new()
            .device("sda", "8:0", &[("device/wwid", "naa.5000c500a1b2c3d4")])
            .device("sda/sda1", "8:1", &[])
            .device("sdb", "8:16", &[("device/wwid", wwid)])
            .device("loop0", "7:0", &[("loop/backing_file", "/dev/sdb")])
            .behind("7:0", "8:16")
    };
    let path = machine("naa.5000c500a1b2c3d4");
    assert!(judged(&path, "loop0", &EVERYTHING).is_ok(), "nothing uses the drive");
    let sharing = Usage::of(&path.machine(), &path.open("loop0")).unwrap().sharing;
    assert!(
        sharing.contains(&(path.open("sda"), Sharing::SameWwid)),
        "it is kept from being used: {sharing:?}"
    );
    let mounted = path.mounts("28 1 8:1 / /mnt rw - ext4 /dev/sda1 rw\n");
    let expected = "/dev/loop0 has the same WWID and so may share its bytes with /dev/sda1, which is mounted on \
                    /mnt; unmount it first (umount /mnt); if their serial numbers show that they are two drives \
                    (lsblk -o NAME,WWN,SERIAL), detach the other";
    assert_eq!(refusal(&mounted, "loop0"), expected);
    for other in ["naa.5000c500a1b2c3d5", "", "naa.0000000000000000"] {
        let other = machine(other).mounts("28 1 8:1 / /mnt rw - ext4 /dev/sda1 rw\n");
        assert!(judged(&other, "loop0", &EVERYTHING).is_ok());
    }
}

#[test]
fn served_disks_are_refused_in_every_layer() {
    let machine = machine().device("nbd0", "43:0", &[("pid", "42")]).device("nbd0/nbd0p1", "259:0", &[]);
    let served = "cannot be proven unused: /dev/nbd0 is served by an NBD server, which may keep its data in a file \
                  or drive that is in use; name the drive itself, or a loop device over the file (losetup)";
    let machine = machine.device("dm-1", "253:1", &[]);
    for name in ["nbd0", "nbd0p1"] {
        assert_eq!(refusal(&machine, name), format!("/dev/{name} {served}"));
    }
    let machine = machine.stacked("dm-1", "nbd0");
    assert_eq!(refusal(&machine, "dm-1"), format!("/dev/dm-1 {served}"));
    assert_eq!(judged(&machine, "sdb", &Overrides::default()), Ok(vec![]));
}

#[test]
fn a_process_that_can_send_commands_to_the_drive_is_named() {
    let sg = ("device/scsi_generic/sg0/dev", "1:3");
    let machine = Captured::new()
        .device("sda", "8:0", &[sg, ("size", "16384")])
        .device("sda/sda1", "8:1", &[])
        .device("sdb", "8:16", &[])
        .link("devices/sda/device/scsi_generic/sg0/subsystem", "../../../../class/scsi_generic")
        .file("proc/42/comm", "sg_write\n")
        .file("proc/42/maps", "")
        .file("proc/42/stat", "42 (sg_write) S 1\n")
        .file("proc/42/fdinfo/3", "flags:\t0100002\n");
    let fds = machine.procfs().join("42/fd");
    fs::create_dir_all(&fds).unwrap();
    let looked_at = machine.machine();
    // This machine's own node of that number.
    std::os::unix::fs::symlink("/dev/null", fds.join("3")).unwrap();
    let judged = |name: &str| {
        let usage = Usage::of(&looked_at, &machine.open(name)).unwrap();
        usage.judge(&Overrides { part: true, ..Overrides::default() }).map_err(|error| error.to_string())
    };
    for name in ["sda", "sda1"] {
        let expected = format!(
            "/dev/{name} is in use: process 42 (sg_write) has /dev/null open for writing; end that process first"
        );
        assert_eq!(judged(name), Err(expected));
    }
    assert_eq!(judged("sdb"), Ok(vec![]));
}

#[test]
fn a_loop_device_over_a_bitmap_of_md_is_refused() {
    let mdstat =
        "md0 : active raid1 sdc[1] sdb[0]\n      bitmap: 4/4 pages [16KB], 4KB chunk, file: /bitmap\n";
    let machine = looped("8:2 11", "8:2 12").mounts("").file("proc/mdstat", mdstat).file("bitmap", "bitm");
    let found = identity::file_at(&machine.root().join("bitmap")).unwrap();
    assert!(judged(&machine, "loop0", &EVERYTHING).is_ok());
    let machine = machine.behind("7:0", &format!("{} {}", found.device, found.inode));
    let bitmap = "its bytes with /bitmap, which holds the bitmap of /dev/md0; take it out of there first (mdadm \
                  --grow --bitmap=none /dev/md0)";
    assert_eq!(refusal(&machine, "loop0"), format!("/dev/loop0 shares {bitmap}"));
    assert!(judged(&machine, "loop1", &EVERYTHING).is_ok());
    // Another file is there by now.
    let machine = machine.file("bitmap", [0; 40]);
    assert_eq!(refusal(&machine, "loop1"), format!("/dev/loop1 may share {bitmap}"));
}

#[test]
fn swap_is_looked_for_in_all_namespaces() {
    let machine = looped("8:2 11", "8:2 12").mounts("").file("swapfile", "").file("outside/swapfile", "");
    let swap = identity::file_at(&machine.root().join("outside/swapfile")).unwrap();
    let machine = machine
        .behind("7:0", &format!("{} {}", swap.device, swap.inode))
        .swaps("/swapfile file 1000 0 -2\n")
        .file("proc/42/mountinfo", "")
        .file("proc/42/maps", "")
        .file("proc/42/stat", "42 (init) S 1\n")
        .file("proc/42/fd/none", "")
        .file("proc/42/fdinfo/none", "flags: 0");
    let process = machine.procfs().join("42");
    fs::create_dir_all(process.join("ns")).unwrap();
    std::os::unix::fs::symlink("mnt:[7]", process.join("ns/mnt")).unwrap();
    std::os::unix::fs::symlink("../../outside", process.join("root")).unwrap();
    let shares = "/dev/loop0 shares its bytes with /swapfile, which is active swap; ";
    assert!(refusal(&machine, "loop0").starts_with(shares));
    assert!(judged(&machine, "loop1", &EVERYTHING).is_ok());
}

#[test]
fn a_file_may_be_that_of_any_erofs_without_a_device() {
    let machine = looped("8:2 11", "8:2 12").mounts("40 1 0:33 / /e rw - erofs gone.img ro\n");
    let may = "/dev/loop1 may share its bytes with gone.img, which is mounted on /e; ";
    assert!(refusal(&machine, "loop1").starts_with(may), "{}", refusal(&machine, "loop1"));
    assert_eq!(judged(&machine, "sdb", &Overrides::default()), Ok(vec![]), "it is no file");
    let on_device = machine.mounts("40 1 7:1 / /e rw - erofs /dev/loop1 ro\n");
    assert!(judged(&on_device, "loop0", &EVERYTHING).is_ok());

    // One that no list of mounts has concerns what begins as an image, or can't be read.
    let hidden = looped("8:2 11", "8:2 12").mounts("").file("sys/fs/erofs/erofs-3/sync_decompress", "1\n");
    let may = "/dev/loop1 may share its bytes with /images/other, which is an image of erofs, ";
    assert!(refusal(&hidden, "loop1").starts_with(may), "{}", refusal(&hidden, "loop1"));
    let hidden = hidden.file("images/other", [0; 4096]);
    let other = identity::file_at(&hidden.root().join("images/other")).unwrap();
    let hidden = hidden.behind("7:1", &format!("{} {}", other.device, other.inode));
    assert!(judged(&hidden, "loop1", &EVERYTHING).is_ok());
}
