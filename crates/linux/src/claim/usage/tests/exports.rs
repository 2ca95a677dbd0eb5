//! Devices that the kernel serves to others.

use super::*;

#[test]
fn exports_of_the_kernel_are_refused() {
    let namespace = "sys/kernel/config/nvmet/subsystems/s/namespaces/1";
    let machine = looped("8:2 11", "8:2 12")
        .mounts("")
        .file(&format!("{namespace}/device_path"), "/dev/sdb\n")
        .file(&format!("{namespace}/enable"), "1\n");
    let refused = refusal(&machine, "sdb");
    assert!(refused.starts_with("/dev/sdb is in use: /dev/sdb is served to others by "), "{refused}");
    assert!(refused.ends_with("subsystems/s/namespaces/1; take that down first"), "{refused}");
    assert_eq!(judged(&machine, "sdc", &Overrides::default()), Ok(vec![]));

    let machine = looped("8:2 11", "8:2 12")
        .mounts("")
        .file(&format!("{namespace}/device_path"), "/dev/mapper/renamed\n")
        .file(&format!("{namespace}/enable"), "1\n");
    for name in ["sdb", "sdc", "loop0"] {
        let refused = refusal(&machine, name);
        assert!(
            refused.contains(" may be the device that /sys/") || refused.contains("namespaces/1 serves"),
            "{refused}"
        );
    }

    // Links that lead nowhere, and paths outside /dev, may have led to any device, too.
    for path in ["/dev/dangling", "/srv/disk", "/srv/sdb", "/run/image (deleted)", "by-id/x", "sdb"] {
        let machine = looped("8:2 11", "8:2 12")
            .mounts("")
            .file(&format!("{namespace}/device_path"), format!("{path}\n"))
            .file(&format!("{namespace}/enable"), "1\n");
        fs::create_dir_all(machine.root().join("dev")).unwrap();
        std::os::unix::fs::symlink("nothing", machine.root().join("dev/dangling")).unwrap();
        let refused = refusal(&machine, "sdc");
        assert!(refused.contains(" may be the device that "), "{path}: {refused}");
    }

    let info = "Status: ACTIVATED  Max Queue Depth: 0\n        iBlock device: sdb  UDEV PATH: /dev/x  readonly: 0\n        \
                Major: 8 Minor: 16  CLAIMED: IBLOCK\n";
    let machine =
        looped("8:2 11", "8:2 12").mounts("").file("sys/kernel/config/target/core/iblock_0/disk/info", info);
    let refused = refusal(&machine, "sdb");
    assert!(
        refused.contains("/dev/sdb is served to others by ") && refused.contains("iblock_0/disk"),
        "{refused}"
    );
    assert_eq!(judged(&machine, "sdc", &Overrides::default()), Ok(vec![]));

    let gadget = "sys/class/udc/dummy_udc.0/device/gadget.0/lun0/file";
    let machine = looped("8:2 11", "8:2 12").mounts("").file("image", "").file(gadget, "/image\n");
    let found = identity::file_at(&machine.root().join("image")).unwrap();
    assert!(judged(&machine, "loop0", &EVERYTHING).is_ok());
    let machine = machine.behind("7:0", &format!("{} {}", found.device, found.inode));
    let refused = refusal(&machine, "loop0");
    assert!(refused.starts_with("/dev/loop0 shares its bytes with /image, which is served to others by "));
}

#[test]
fn namespaces_of_a_controller_that_is_passed_through_are_refused() {
    let passthru = "sys/kernel/config/nvmet/subsystems/p/passthru";
    let machine = Captured::new()
        .device("nvme0n1", "259:0", &[("device/dev", "1:3"), ("size", "16384")])
        .device("nvme0n1/nvme0n1p1", "259:1", &[])
        .device("nvme1n1", "259:2", &[("device/dev", "1:5")])
        .device("sdb", "8:16", &[])
        .link("devices/nvme0n1/device/subsystem", "../class/nvme")
        .link("devices/nvme1n1/device/subsystem", "../class/nvme")
        .file(&format!("{passthru}/device_path"), "/dev/nvme0\n")
        .file(&format!("{passthru}/enable"), "1\n");
    let machine = machine.device("dm-0", "253:0", &[]).stacked("dm-0", "nvme0n1");
    // A path that leads nowhere may have led to any controller.
    assert!(refusal(&machine, "nvme1n1").starts_with("/dev/nvme1n1 is in use: "));
    assert_eq!(judged(&machine, "sdb", &Overrides::default()), Ok(vec![]));

    fs::create_dir_all(machine.root().join("dev")).unwrap();
    let (node, looked_at) = (machine.root().join("dev/nvme0"), machine.machine());
    // This machine's own node of that number.
    std::os::unix::fs::symlink("/dev/null", &node).unwrap();
    let judged_so = |name: &str| {
        let usage = Usage::of(&looked_at, &machine.open(name)).unwrap();
        usage.judge(&EVERYTHING).map_err(|error| error.to_string())
    };
    for (name, disk) in [
        ("nvme0n1", "is in use: /dev/nvme0n1"),
        ("nvme0n1p1", "is in use: /dev/nvme0n1"),
        ("dm-0", "shares its bytes with /dev/nvme0n1, which"),
    ] {
        let refused = judged_so(name).unwrap_err();
        assert!(refused.starts_with(&format!("/dev/{name} {disk} is served to others by ")), "{refused}");
        assert!(refused.ends_with("subsystems/p/passthru; take that down first"), "{refused}");
    }
    for name in ["nvme1n1", "sdb"] {
        assert_eq!(judged_so(name), Ok(vec![]));
    }
    fs::remove_file(node).unwrap();
    // Clients of what is taken down for a while wait for it.
    let off = machine.file(&format!("{passthru}/enable"), "0\n");
    assert!(judged(&off, "nvme1n1", &EVERYTHING).is_err());
    let unset = off.file(&format!("{passthru}/device_path"), "(null)\n");
    assert!(judged(&unset, "dm-0", &EVERYTHING).is_ok());
}
