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
