//! Devices of the device mapper that lost a drive, and pools.

use super::*;

/// A multipath device without a path, a linear device whose disk is gone, and disks.
fn machine_with_losses(uuid: &str, table: &str) -> Captured {
    Captured::new()
        .device("sdb", "8:16", &[("wwid", "naa.5000c50015ea71ad")])
        .device("sdc", "65:0", &[("wwid", "naa.5000c50015ea71ae")])
        .device("nvme0n1", "259:0", &[])
        .device("dm-0", "253:0", &[("dm/name", "mapped"), ("dm/uuid", uuid)])
        .file("trimtab/dm/253:0", table)
}

#[test]
fn drive_of_a_multipath_device_without_paths_is_refused() {
    let table = "0 2048 multipath 1 queue_if_no_path 0 0 0\n";
    let machine = machine_with_losses("mpath-35000c50015ea71ad\n", table);
    let lost = "/dev/sdb is in use: /dev/sdb may be a drive that /dev/dm-0 (mapped) has lost and will use again; \
                take that down first";
    assert_eq!(refusal(&machine, "sdb"), lost);
    assert_eq!(judged(&machine, "sdc", &Overrides::default()), Ok(vec![]));
    // A UUID need not be text.
    let odd = machine.file("sys/devices/dm-0/dm/uuid", b"mpath-\xffx\n");
    assert!(refusal(&odd, "sdc").contains("(mapped)"));
}

#[test]
fn disk_may_be_one_that_a_table_still_names() {
    let machine = machine_with_losses("\n", "0 2048 linear 8:0 0\n");
    for name in ["sdb", "sdc"] {
        assert!(refusal(&machine, name).contains("may be a drive that /dev/dm-0 (mapped) has lost"));
    }
    assert_eq!(judged(&machine, "nvme0n1", &Overrides::default()), Ok(vec![]));
    let machine = machine_with_losses("\n", "0 2048 linear 259:0 0\n").stacked("dm-0", "nvme0n1");
    assert_eq!(judged(&machine, "sdb", &Overrides::default()), Ok(vec![]), "nothing is lost");
}

#[test]
fn table_that_is_loaded_and_not_in_use_yet_counts_too() {
    let machine = |loaded: &str| {
        Captured::new()
            .device("sdb", "8:16", &[("size", "16384")])
            .device("dm-0", "253:0", &[("dm/name", "own"), ("dm/uuid", "\n")])
            .device("dm-1", "253:1", &[("dm/name", "other"), ("dm/uuid", "\n")])
            .stacked("dm-0", "sdb")
            .stacked("dm-1", "sdb")
            .file("trimtab/dm/253:0", "0 2048 linear 8:16 0\n")
            .file("trimtab/dm/253:1", "0 2048 linear 8:16 4096\n")
            .file("trimtab/dm/253:1.inactive", loaded)
    };
    is_a_part(&machine(""), "dm-0", "/dev/sdb (/dev/dm-1 (other) in use)");
    assert!(refusal(&machine("0 2048 linear 8:16 1024\n"), "dm-0").contains("held by /dev/dm-1 (other)"));
    assert!(refusal(&machine("0 2048 mirror core 1 8:16 0\n"), "dm-0").contains("held by /dev/dm-1 (other)"));
}

#[test]
fn suspended_volume_beside_is_not_read() {
    let machine = |suspended: &[(&str, &str)]| {
        let common = [("dm/name", "other"), ("dm/uuid", "\n")];
        Captured::new()
            .device("sdb", "8:16", &[("size", "16384")])
            .device("dm-0", "253:0", &[("dm/name", "own"), ("dm/uuid", "\n"), ("dm/suspended", "0")])
            .device("dm-1", "253:1", &[&common, suspended].concat())
            .stacked("dm-0", "sdb")
            .stacked("dm-1", "sdb")
            .file("trimtab/dm/253:0", "0 2048 linear 8:16 0\n")
            .file("trimtab/dm/253:1", "0 2048 linear 8:16 4096\n")
    };
    is_a_part(&machine(&[("dm/suspended", "0")]), "dm-0", "/dev/sdb (/dev/dm-1 (other) in use)");
    let machine = machine(&[("dm/suspended", "1")]);
    let error = Usage::of(&machine.machine(), &machine.open("dm-0")).unwrap_err();
    let expected = "cannot read /dev/dm-1: it is suspended; resume it first (dmsetup resume other)";
    assert_eq!(error.to_string(), expected);
    // So is a device above it.
    let machine = machine.device("dm-2", "253:2", &[("dm/name", "top"), ("dm/uuid", "\n")]);
    let machine = machine.stacked("dm-2", "dm-1").file("trimtab/dm/253:2", "0 2048 linear 253:1 0\n");
    let around = Around::of(&machine.machine()).unwrap();
    assert_eq!(around.answers(&machine.open("dm-2")).unwrap_err().to_string(), expected);
    assert!(around.answers(&machine.open("dm-0")).is_ok());
}

#[test]
fn table_that_cannot_be_read_is_no_proof() {
    for name in ["253:0", "253:0.inactive"] {
        let machine =
            machine_with_losses("\n", "0 2048 linear 259:0 0\n").file(&format!("trimtab/dm/{name}"), "?");
        let error = Usage::of(&machine.machine(), &machine.open("nvme0n1")).unwrap_err();
        assert!(matches!(&error, ClaimError::Table { device } if device == "/dev/dm-0"), "{error}");
    }
}

#[test]
fn pool_of_thin_volumes_is_refused() {
    let machine = machine_with_losses("\n", "0 2048 thin-pool 8:16 65:0 128 0\n")
        .stacked("dm-0", "sdb")
        .stacked("dm-0", "sdc");
    let pool =
        "/dev/dm-0 is in use: /dev/dm-0 is a pool whose bytes are its thin volumes'; name a thin volume";
    assert_eq!(refusal(&machine, "dm-0"), pool);
}

#[test]
fn partition_in_the_space_that_a_held_one_lost_is_refused() {
    let machine = |sectors: u64| {
        Captured::new()
            .device("sda", "8:0", &[("size", "16384")])
            .device("sda/sda1", "8:1", &[("size", "2048")])
            .device("sda/sda2", "8:2", &[("start", "4096")])
            .device("dm-0", "253:0", &[("dm/name", "upper"), ("dm/uuid", "\n")])
            .stacked("dm-0", "sda/sda1")
            .file("trimtab/dm/253:0", format!("0 {sectors} linear 8:1 1024\n"))
    };
    assert!(judged(&machine(1024), "sda2", &EVERYTHING).is_ok());
    let held = "/dev/sda2 is in use: /dev/sda1 is held by /dev/dm-0 (upper); take that down first";
    assert_eq!(refusal(&machine(8192), "sda2"), held);
}

#[test]
fn disk_that_may_be_the_drive_of_a_multipath_device_without_paths_is_refused() {
    let multipath = "0 2048 multipath 1 queue_if_no_path 0 0 0\n";
    let unknown = "/dev/sdb is in use: /dev/sdb may be the drive of the multipath device /dev/dm-0 (mapped) or a \
                   path to it: their names cannot be compared; take that down first";
    for (uuid, wwid) in [
        ("mpath-0QEMU_QEMU_HARDDISK_disk0", ""),
        ("mpath-QEMU_HARDDISK_disk1", "t10.ATA     QEMU HARDDISK                           disk1"),
        ("mpath-35000c50015ea71ad", "eui.0000c50015ea71ad0000000000000001"),
        ("other", "naa.5000c50015ea71ad"),
    ] {
        let machine = machine_with_losses(uuid, multipath).file("sys/devices/sdb/wwid", wwid);
        assert_eq!(refusal(&machine, "sdb"), unknown, "{uuid} {wwid}");
    }
    // A drive without a WWID. One path to it is left.
    let left = machine_with_losses("mpath-0QEMU", "0 2048 multipath 0 0 1 1 service-time 0 1 2 65:0 1 1\n")
        .stacked("dm-0", "sdc")
        .file("sys/devices/sdb/wwid", "");
    assert_eq!(refusal(&left, "sdb"), unknown);
    let other = machine_with_losses("mpath-35000c50015ea71aa", multipath).device("vda", "254:0", &[]);
    for name in ["sdb", "sdc", "vda"] {
        assert_eq!(judged(&other, name, &Overrides::default()), Ok(vec![]));
    }
}

/// A pool on `sdb` and `sdc` with a thin volume, the device that LVM puts over all of a pool, and one that may be a
/// further thin volume.
fn pool(third: &str) -> Captured {
    machine_with_losses("LVM-pool-tpool\n", "0 2048 thin-pool 8:16 65:0 128 0\n")
        .stacked("dm-0", "sdb")
        .stacked("dm-0", "sdc")
        .device("dm-1", "253:1", &[("dm/name", "thin"), ("dm/uuid", "LVM-thin")])
        .file("trimtab/dm/253:1", "0 2048 thin 253:0 1\n")
        .stacked("dm-1", "dm-0")
        .device("dm-2", "253:2", &[("dm/name", "pool"), ("dm/uuid", "LVM-pool")])
        .file("trimtab/dm/253:2", third)
        .stacked("dm-2", "dm-0")
}

#[test]
fn thin_volume_is_no_use_of_its_pool() {
    for (third, how) in [("0 2048 linear 253:0 0\n", "shares"), ("0 2048 thin 253:0 2\n", "may share")] {
        let machine = pool(third);
        is_a_part(&machine, "dm-1", "/dev/dm-0 (/dev/dm-2 (pool) in use)");
        let usage = Usage::of(&machine.machine(), &machine.open("dm-1")).unwrap();
        let kept: Vec<_> = usage.sharing.iter().map(|(block, _)| block.name()).collect();
        assert_eq!(kept, ["dm-2"], "nothing else may begin to use the pool");
        for (name, held) in
            [("dm-0", "/dev/dm-0 is a pool "), ("sdb", "/dev/sdb is "), ("sdc", "/dev/sdc is ")]
        {
            assert!(refusal(&machine, name).starts_with(&format!("/dev/{name} is in use: {held}")));
        }
        let mounted = machine.mounts("28 1 253:2 / /mnt rw - ext4 /dev/dm-2 rw\n");
        let refused = refusal(&mounted, "dm-1");
        let expected = format!("/dev/dm-1 {how} its bytes with /dev/dm-2, which is mounted on /mnt; ");
        assert!(refused.starts_with(&expected), "{refused}");
    }
}

#[test]
fn volumes_of_a_group_with_other_parts_of_its_devices_share_nothing() {
    let machine = |spare: &str, used: &str| {
        machine_with_losses("LVM-spare\n", spare)
            .stacked("dm-0", "sdb")
            .device("dm-1", "253:1", &[("dm/name", "used"), ("dm/uuid", "LVM-used")])
            .file("trimtab/dm/253:1", used)
            .stacked("dm-1", "sdb")
            .mounts("28 1 253:1 / /mnt rw - ext4 /dev/mapper/used rw\n")
    };
    let spare = "0 2048 linear 8:16 2048\n";
    for apart in ["0 2048 linear 8:16 0\n2048 512 linear 8:16 4096\n", "0 1024 crypt aes - 0 8:16 0\n"] {
        is_a_part(&machine(spare, apart), "dm-0", "/dev/sdb (/dev/dm-1 (used) in use)");
    }
    let may = "/dev/dm-0 may share its bytes with /dev/sdb, which is below /dev/dm-1 (used), which is mounted on /mnt; ";
    for other in ["0 2049 linear 8:16 0\n", "0 2048 linear 8:16 4095\n", "0 8 cache 8:16 65:0 8:16 8 0\n", ""]
    {
        let refused = refusal(&machine(spare, other), "dm-0");
        assert!(refused.starts_with(may), "{other}: {refused}");
    }
    assert!(
        refusal(&machine("0 2048 mirror 8:16 2048\n", "0 2048 linear 8:16 0\n"), "dm-0").starts_with(may)
    );
}

#[test]
fn headers_and_metadata_before_a_device_are_in_use() {
    let machine = |own: &str, other: &str, table: &str| {
        machine_with_losses(own, "0 2048 linear 8:16 0\n")
            .stacked("dm-0", "sdb")
            .device("dm-1", "253:1", &[("dm/name", "other"), ("dm/uuid", other)])
            .file("trimtab/dm/253:1", table)
            .stacked("dm-1", "sdb")
    };
    let (crypt, linear) = ("0 1024 crypt aes - 0 8:16 32768\n", "0 1024 linear 8:16 2048\n");
    for (own, other, table) in
        [("\n", "CRYPT-LUKS2-1", crypt), ("LVM-own", "CRYPT-LUKS2-1", crypt), ("\n", "LVM-a", linear)]
    {
        assert!(
            refusal(&machine(own, other, table), "dm-0").contains("held by /dev/dm-1 (other)"),
            "{own} {other}"
        );
    }
    for (own, other, table) in [("LVM-own", "LVM-a", linear), ("\n", "\n", linear)] {
        is_a_part(&machine(own, other, table), "dm-0", "/dev/sdb (/dev/dm-1 (other) in use)");
    }
}

#[test]
fn disks_of_scsi_debug_may_share_one_memory() {
    let disk = |machine: Captured, name: &str, number: &str| {
        let directory = format!("devices/pseudo_0/adapter0/block/{name}");
        let machine =
            [("dev", number), ("size", "2048"), ("ro", "0"), ("holders/.keep", ""), ("slaves/.keep", "")]
                .into_iter()
                .fold(machine, |machine, (attribute, text)| {
                    machine.file(&format!("sys/{directory}/{attribute}"), text)
                });
        ["block", "class/block", "dev/block"].into_iter().fold(machine, |machine, list| {
            let from = if list == "dev/block" { number } else { name };
            let up = "../".repeat(list.split('/').count());
            machine.link(&format!("{list}/{from}"), &format!("{up}{directory}"))
        })
    };
    let machine = disk(disk(Captured::new(), "sdb", "8:16"), "sdc", "8:32").device("sdd", "8:48", &[]);
    assert_eq!(judged(&machine, "sdc", &Overrides::default()), Ok(vec![]));
    let machine = machine.mounts("28 1 8:16 / /mnt rw - ext4 /dev/sdb rw\n");
    assert!(refusal(&machine, "sdc").contains("may share its bytes with /dev/sdb, which is mounted on /mnt"));
    assert_eq!(judged(&machine, "sdd", &Overrides::default()), Ok(vec![]));
}
