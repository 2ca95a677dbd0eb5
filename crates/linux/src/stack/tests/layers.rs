//! How layers lie on each other.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{picture, refusal, stack};
use crate::captured::Captured;
use crate::stack::{LayerKind, Machine, StackError, targets};

/// An ext4 on a volume on an encrypted partition.
fn encrypted() -> Captured {
    Captured::new()
        .device("sda", "8:0", &[])
        .device("sda/sda2", "8:2", &[("start", "4096")])
        .device("dm-0", "253:0", &[("dm/name", "luks-1"), ("dm/uuid", "CRYPT-LUKS2-x-luks-1")])
        .device("dm-1", "253:1", &[("dm/name", "my--vg-the--root"), ("dm/uuid", "LVM-abc")])
        .stacked("dm-0", "sda/sda2")
        .stacked("dm-1", "dm-0")
        .file("trimtab/dm/253:0", "0 2048 crypt aes-xts-plain64 c0ffee 0 8:2 32768 1 allow_discards\n")
        .file("trimtab/dm/253:1", "0 1024 linear 253:0 2048\n")
        .mounts("27 1 253:1 / / rw - ext4 /dev/mapper/my--vg-the--root rw,discard\n")
}

const BELOW_ROOT: [&str; 5] =
    ["/ on [dm-1+0]", "dm-1 on [dm-0+2048]", "dm-0 on [sda2+32768]", "sda2 on [sda+4096]", "sda on []"];

#[test]
fn each_layer_lies_on_the_next() {
    let machine = encrypted();
    let root = stack(&machine, "/");
    assert_eq!(picture(&root), BELOW_ROOT);
    let labels: Vec<_> = root.layers.iter().map(|layer| layer.label.as_deref()).collect();
    assert_eq!(labels, [None, Some("my-vg/the-root"), Some("luks-1"), None, None]);
    let LayerKind::DeviceMapper(table) = &root.layers[2].kind else { panic!("{:?}", root.layers[2].kind) };
    assert_eq!(table[0].parameters, "aes-xts-plain64 - 0 8:2 32768 1 allow_discards");
    assert_eq!(root.layers[3].kind, LayerKind::Partition);
    assert_eq!(picture(&stack(&machine, "/")), BELOW_ROOT);
}

#[test]
fn a_device_has_several_names() {
    let machine = encrypted();
    let all = ["/dev/dm-1", "/dev/mapper/my--vg-the--root", "/dev/my-vg/the-root"];
    all.iter().for_each(|name| assert_eq!(picture(&stack(&machine, name)), BELOW_ROOT[1..], "{name}"));
    let machine = machine.swaps("/dev/dm-1 partition 1 0 0\n");
    all.iter().for_each(|name| assert_eq!(stack(&machine, name).layers[0].kind, LayerKind::Swap, "{name}"));
}

#[test]
fn realtime_device_of_xfs_is_below_it() {
    let machine = Captured::new()
        .device("sda", "8:0", &[])
        .device("sdb", "8:16", &[])
        .device("sdc", "8:32", &[])
        .mounts("27 1 8:0 / /mnt rw - xfs /dev/sda rw,logdev=/dev/sdc,rtdev=/dev/sdb,noquota\n");
    // The log is written in place, and never freed.
    assert_eq!(picture(&stack(&machine, "/mnt")), ["/mnt on [sda+0 sdb]", "sda on []", "sdb on []"]);
}

#[test]
fn captures_of_other_programs_have_disks_without_classes() {
    let machine = Captured::new()
        .device("sda", "8:0", &[])
        .mounts("27 1 8:0 / /mnt rw - ext4 /dev/sda rw\n28 1 0:20 / /proc rw - proc proc rw\n");
    fs::remove_dir_all(machine.sysfs().join("class")).unwrap();
    assert_eq!(picture(&stack(&machine, "/dev/sda")), ["sda on []"]);
    let refused = refusal(&machine, "/dev/sdz").to_string();
    assert!(refused.contains("/mnt") && !refused.contains("/proc"), "{refused}");
}

#[test]
fn shared_layer_appears_once_and_below_both() {
    let machine = Captured::new()
        .device("sda", "8:0", &[])
        .device("sda/sda1", "8:1", &[("start", "64")])
        .device("sda/sda2", "8:2", &[("start", "4096")])
        .device("sdb", "8:16", &[])
        .device("md0", "9:0", &[("md/level", "raid1"), ("md/dev-sda2/offset", "2048")])
        .stacked("md0", "sda/sda2")
        .stacked("md0", "sdb")
        .link("fs/btrfs/aaaa/devices/sda1", "/x")
        .link("fs/btrfs/aaaa/devices/md0", "/x");
    fs::remove_dir_all(machine.sysfs().join("fs/btrfs/aaaa/devices")).unwrap();
    let machine = machine
        .file("sys/fs/btrfs/aaaa/devices/sda1/dev", "")
        .file("sys/fs/btrfs/aaaa/devices/md0/dev", "")
        .mounts("40 1 0:44 /sub /mnt rw - btrfs /dev/sda1 rw\n");
    let expected = ["/mnt on [md0 sda1]", "md0 on [sda2+2048 sdb]", "sda2 on [sda+4096]", "sdb on []"];
    let found = picture(&stack(&machine, "/mnt"));
    assert_eq!(found.iter().filter(|layer| layer.starts_with("sda on")).count(), 1);
    expected.iter().for_each(|layer| assert!(found.contains(&layer.to_string()), "{found:?}"));
    assert_eq!(found.last().unwrap(), "sda on []");
}

#[test]
fn cached_device_comes_before_its_cache() {
    let machine = Captured::new()
        .device("sda", "8:0", &[])
        .device("sdb", "8:16", &[("bcache/state", "clean")])
        .device("bcache0", "251:0", &[])
        .stacked("bcache0", "sda")
        .stacked("bcache0", "sdb")
        .link("devices/bcache0/bcache", "../sdb/bcache");
    assert_eq!(picture(&stack(&machine, "/dev/bcache0"))[0], "bcache0 on [sdb sda]");
    let machine = machine.mounts("40 1 0:44 / /mnt rw - bcachefs /dev/sda:/dev/sdb rw\n");
    assert_eq!(picture(&stack(&machine, "/mnt")), ["/mnt on [sda sdb]", "sda on []", "sdb on []"]);
}

#[test]
fn files_lead_to_the_file_system_they_are_on() {
    let machine = Captured::new()
        .device("sda", "8:0", &[])
        .device("loop0", "7:0", &[("loop/backing_file", "/home/a disk.img (deleted)"), ("loop/offset", "0")])
        .device("loop1", "7:1", &[("loop/backing_file", "/dev/sda"), ("loop/offset", "1048576")])
        .mounts(
            "27 1 8:0 / / rw - ext4 /dev/root rw\n28 27 7:0 / /mnt rw - xfs /dev/loop0 rw\n\
             29 27 8:0 /x /var rw,ro - ext4 /dev/root rw\n",
        )
        .swaps("/mnt/swapfile file 1024 0 -2\n/dev/loop1 partition 2048 0 -3\n");
    let below = ["/ on [sda+0]", "sda on []"];
    let mounted = ["/mnt on [loop0+0]", "loop0 on [/]"];
    assert_eq!(picture(&stack(&machine, "/mnt")), [&mounted[..], &below].concat());
    let swap = [&["/mnt/swapfile on [/mnt]"], &mounted[..], &below].concat();
    assert_eq!(picture(&stack(&machine, "/mnt/swapfile")), swap);
    let swap = ["/dev/loop1 on [loop1+0]", "loop1 on [sda+2048]", "sda on []"];
    assert_eq!(picture(&stack(&machine, "/dev/loop1")), swap);
    let LayerKind::FileSystem(root) = &stack(&machine, "/var").layers[0].kind else { panic!() };
    assert_eq!(root.targets, [Path::new("/var"), Path::new("/")]);
    assert_eq!(
        targets(&machine.machine()).unwrap(),
        ["/", "/mnt", "/mnt/swapfile", "/dev/loop1"].map(PathBuf::from)
    );
}

#[test]
fn overlays_lie_on_the_file_systems_of_their_directories() {
    let machine = Captured::new().device("sda", "8:0", &[]).device("sdb", "8:16", &[]).mounts(
        "27 1 8:0 / / rw - ext4 /dev/sda rw\n28 27 8:16 / /var rw - xfs /dev/sdb rw\n\
         29 27 0:40 / /merged rw - overlay overlay rw,lowerdir=l/A:/usr:/etc,upperdir=/var/up,workdir=/var/w\n\
         30 27 0:41 / /cfs ro - overlay composefs ro,lowerdir+=/run/x,datadir+=/var/repo\n",
    );
    let below = ["/var on [sdb+0]", "sdb on []", "/ on [sda+0]", "sda on []"];
    assert_eq!(picture(&stack(&machine, "/merged"))[0], "/merged on [/var /]");
    assert_eq!(picture(&stack(&machine, "/merged"))[1..], below);
    assert_eq!(picture(&stack(&machine, "/cfs"))[0], "/cfs on [/ /var]");
    assert!(stack(&machine, "/cfs").layers[0].read_only);
    assert_eq!(targets(&machine.machine()).unwrap(), ["/", "/var"].map(PathBuf::from));
    let relative = "29 27 0:40 / /merged rw - overlay overlay rw,lowerdir=/usr,upperdir=up,workdir=w\n";
    let machine = machine.mounts(&format!("27 1 8:0 / / rw - ext4 /dev/sda rw\n{relative}"));
    assert_eq!(picture(&stack(&machine, "/merged")), ["/merged on []"]);
    let in_container = machine.mounts("27 1 0:40 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/var/up\n");
    assert_eq!(picture(&stack(&in_container, "/")), ["/ on []"]);
}

#[test]
fn every_file_system_is_examined_once() {
    let machine = encrypted().mounts(
        "20 1 0:5 / /proc rw - proc proc rw\n27 1 253:1 / / rw - ext4 /dev/mapper/my--vg-the--root rw\n\
         28 27 253:1 /home /a/home rw - ext4 x rw\n29 27 0:50 / /t rw - zfs tank/a rw\n\
         30 29 0:51 / /t/b rw - zfs tank/b rw\n31 27 8:2 / /hidden rw - ext4 /dev/sda2 rw\n\
         32 31 0:52 / /hidden rw - tmpfs x rw\n33 27 8:0 / /snap/x ro - squashfs /dev/sda ro\n\
         34 27 0:53 / /anybody rw - fuse.of /dev/sda rw\n",
    );
    assert_eq!(targets(&machine.machine()).unwrap(), ["/", "/t"].map(PathBuf::from));
    assert_eq!(picture(&stack(&machine, "/t/b")), ["/t/b on []"]);
}

#[test]
fn impossible_stack_is_refused() {
    let looped = Captured::new()
        .device("dm-0", "253:0", &[])
        .device("dm-1", "253:1", &[])
        .stacked("dm-0", "dm-1")
        .stacked("dm-1", "dm-0");
    assert_eq!(refusal(&looped, "/dev/dm-0").to_string(), "sysfs says that dm-0 lies on itself");
    let mut tower = Captured::new().device("dm-0", "253:0", &[]);
    for storey in 1..70 {
        let (upper, lower) = (format!("dm-{storey}"), format!("dm-{}", storey - 1));
        tower = tower.device(&upper, &format!("253:{storey}"), &[]).stacked(&upper, &lower);
    }
    assert!(matches!(refusal(&tower, "/dev/dm-69"), StackError::TooDeep(64)));
    for nothing in ["/dev/sdz", "/dev/..", "/dev/../../../etc", "/x", ""] {
        assert!(matches!(refusal(&looped, nothing), StackError::NotCaptured { .. }), "{nothing}");
    }
    let mounted = looped.mounts("27 1 0:5 / / rw - tmpfs x rw\n28 27 0:6 / /mnt rw - tmpfs x rw\n");
    let refused = refusal(&mounted, "/home/x");
    assert!(refused.to_string().contains("it can be asked for /, /mnt,"), "{refused}");
    let asked = mounted.file("trimtab/targets", "/home/x\n");
    assert_eq!(stack(&asked, "/home/x").layers[0].name, "/");
}

#[test]
fn a_tree_that_leads_out_is_refused() {
    let refused = |machine: Captured| Machine::captured(machine.root()).unwrap_err().to_string();
    for out in ["/etc", "/nonexistent", "../../..", "x/../../../../y"] {
        let error = refused(Captured::new().link("block/sda", out));
        assert!(error.ends_with("sys/block/sda leads out of the captured tree"), "{out}: {error}");
    }
    let machine = Captured::new();
    assert!(Machine::captured(machine.root()).is_ok());
    symlink("loop", machine.root().join("loop")).unwrap();
    assert!(Machine::captured(machine.root()).is_ok(), "a link to itself leads nowhere");
    rustix::fs::mkfifoat(rustix::fs::CWD, machine.root().join("pipe"), rustix::fs::Mode::RWXU).unwrap();
    assert!(refused(machine).contains("pipe is no small file, directory or link"));
    assert!(Machine::captured(Path::new("/nonexistent")).is_err());
}

#[test]
fn a_read_only_mount_is_not_a_read_only_file_system() {
    let machine = Captured::new().device("sda", "8:0", &[]).device("sdb", "8:16", &[]).mounts(
        "27 1 8:0 / / ro,relatime - ext4 /dev/sda rw,discard\n28 27 8:16 / /mnt rw - ext4 /dev/sdb ro\n",
    );
    let is_read_only = |target| stack(&machine, target).layers[0].read_only;
    assert_eq!((is_read_only("/"), is_read_only("/mnt")), (false, true));
}

#[test]
fn file_behind_a_loop_device_is_known_by_its_numbers() {
    let machine = Captured::new()
        .device("sda", "8:0", &[])
        .device("sdb", "8:16", &[])
        .device("loop0", "7:0", &[("loop/backing_file", "/tmp/node"), ("loop/offset", "512")])
        .device("loop1", "7:1", &[("loop/backing_file", "/dev/sda"), ("loop/offset", "0")])
        .behind("7:0", "8:16")
        .behind("7:1", "8:16 42")
        .mounts("27 1 8:0 / / rw - ext4 /dev/sda rw\n28 1 8:16 / /mnt rw - ext4 /dev/sdb rw\n");
    assert_eq!(picture(&stack(&machine, "/dev/loop0")), ["loop0 on [sdb+1]", "sdb on []"]);
    let file = picture(&stack(&machine, "/dev/loop1"));
    assert_eq!(file, ["loop1 on [/mnt]", "/mnt on [sdb+0]", "sdb on []"], "not the one at the kernel's path");
    let elsewhere = machine.behind("7:1", "8:32 42");
    assert_eq!(picture(&stack(&elsewhere, "/dev/loop1")), ["loop1 on []"]);
}
