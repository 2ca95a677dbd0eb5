//! Captured machines are read back.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use trimtab_core::Bytes;

use crate::captured::Captured;
use crate::loop_device;
use crate::mount::{mount, unmount};
use crate::stack::{Layer, LayerKind, Machine, ServedMount, Setup, Stack, capture, targets};

/// The stacks below `targets` of `machine`.
fn stacks(machine: &Machine, targets: &[PathBuf]) -> Vec<Stack> {
    targets.iter().map(|target| Stack::of(machine, target).unwrap()).collect()
}

/// Captures `stacks` of `machine`, and unpacks that.
fn recaptured(machine: &Machine, stacks: &[Stack]) -> (tempfile::TempDir, Machine) {
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("a.tar.gz");
    let setup = Setup::of(machine, stacks);
    capture(machine, stacks, &setup, Path::new("a"), fs::File::create_new(&archive).unwrap()).unwrap();
    let root = directory.path().join("root");
    tar::Archive::new(flate2::read::GzDecoder::new(File::open(archive).unwrap())).unpack(&root).unwrap();
    let captured = Machine::captured(&root).unwrap();
    (directory, captured)
}

/// All that is said of a layer but names.
fn nameless(layer: &Layer) -> Layer {
    let kind = match &layer.kind {
        LayerKind::FileSystem(system) => {
            let mut system = system.clone();
            system.source = PathBuf::new();
            system.targets.fill(PathBuf::new());
            system.writable.fill(PathBuf::new());
            let known = |option: &&str| ["rw", "ro", "noatime", "discard"].contains(option);
            system.options = system.options.split(',').filter(known).collect::<Vec<_>>().join(",");
            LayerKind::FileSystem(system)
        }
        LayerKind::Loop { .. } => LayerKind::Loop { file: PathBuf::new() },
        kind => kind.clone(),
    };
    Layer { name: String::new(), kind, ..layer.clone() }
}

/// The layers below `target`, without names.
fn layers(machine: &Machine, target: &Path) -> Vec<Layer> {
    Stack::of(machine, target).unwrap().layers.iter().map(nameless).collect()
}

#[test]
fn capture_of_a_captured_machine_is_equal() {
    let usb = "devices/pci0/usb2/2-1";
    let place = format!("{usb}/2-1:1.0/host3/target3:0:0/3:0:0:0");
    let machine = Captured::new()
        .device("sda", "8:0", &[("queue/discard_max_bytes", "0"), ("queue/rotational", "0")])
        .device("sda/sda1", "8:1", &[("start", "63")])
        .device("sdb", "8:16", &[])
        .link("devices/sdb/device", &format!("../../{place}"))
        .file(&format!("sys/{place}/scsi_disk/3:0:0:0/provisioning_mode"), "full\n")
        .file(&format!("sys/{place}/model"), "BRIDGE\n")
        .file(&format!("sys/{place}/vpd_pgb2"), b"\0\xb2\0\x04\0\xe4\0\0")
        .file(&format!("sys/{usb}/serial"), "S5P2NS0R\n")
        .file(&format!("sys/{usb}/idVendor"), "152d\n")
        .file(&format!("sys/{usb}/idProduct"), "0578\n")
        .link(&format!("{usb}/2-1:1.0/driver"), "../../../../../bus/usb/drivers/usb-storage")
        .device(
            "md0",
            "9:0",
            &[("md/level", "raid1"), ("md/dev-sda1/offset", "2048"), ("md/dev-sdb/offset", "8")],
        )
        .stacked("md0", "sda/sda1")
        .stacked("md0", "sdb")
        .device(
            "dm-0",
            "253:0",
            &[("dm/name", "luks-3e6be9de-8139"), ("dm/uuid", "CRYPT-LUKS2-3e6be9de-8139")],
        )
        .stacked("dm-0", "md0")
        .file("trimtab/dm/253:0", "0 204800000 crypt aes-xts-plain64 - 0 9:0 32768 1 allow_discards\n")
        .file("trimtab/luks/dm-0", "allow-discards\n")
        .file("trimtab/served", "left /\ntrimmed /home/alice b\n")
        .file("trimtab/timer", "LoadState=loaded\nUnitFileState=enabled\nActiveState=active\n")
        .file(
            "etc/fstab",
            "UUID=3e6be9de-8139 /home/alice\\040b xfs discard,X-fstrim.notrim 0 0\nfiler:/alice /n nfs a=b\n",
        )
        .file("etc/crypttab", "luks-3e6be9de-8139 UUID=3e6be9de-8139 /home/alice/key luks,discard\n")
        .file("etc/cron.weekly/alice", "fstrim -a\nfstrim /home/alice\n")
        .file("etc/systemd/system/a.target.wants/trimtab.service", "")
        .file("etc/lvm/lvm.conf", "devices {\nissue_discards = 1\n}\n")
        .file(
            "etc/udev/rules.d/alice.rules",
            "ATTRS{serial}==\"S5P2NS0R\", ATTR{provisioning_mode}=\"unmap\"\n",
        )
        .file(
            "proc/cmdline",
            "root=UUID=3e6be9de-8139 rd.luks.options=3e6be9de-8139=discard hostname=alice\n",
        )
        .mounts(
            "27 1 8:1 / / rw,noatime - ext4 /dev/sda1 rw\n\
             30 27 253:0 / /home/alice\\040b rw - xfs /dev/mapper/luks-3e6be9de-8139 rw,discard\n\
             31 27 0:40 / /n rw - nfs filer:/alice rw\n",
        );
    let found = targets(&machine.machine()).unwrap();
    let (directory, captured) = recaptured(&machine.machine(), &stacks(&machine.machine(), &found));
    let found_again = targets(&captured).unwrap();
    assert_eq!(found.len(), 2);
    for (target, again) in found.iter().zip(&found_again) {
        let (live, mut read) = (layers(&machine.machine(), target), layers(&captured, again));
        read.iter_mut().zip(&live).for_each(|(layer, live)| {
            // A volume's name is a name.
            assert_eq!(layer.label.is_some(), live.label.is_some());
            layer.label.clone_from(&live.label);
        });
        assert_eq!(read, live);
    }
    let of = |machine: &Machine, targets: &[PathBuf]| Setup::of(machine, &stacks(machine, targets));
    let (before, after) = (of(&machine.machine(), &found), of(&captured, &found_again));
    assert_eq!(after.fstab[0].options, before.fstab[0].options);
    assert_eq!(after.fstab[0].target, found_again[1]);
    assert_eq!(
        (after.crypttab[0].options.clone(), after.fstab.len()),
        (before.crypttab[0].options.clone(), 2)
    );
    assert_eq!(after.luks_allows, [("dm-0".to_owned(), true)]);
    assert_eq!((after.timer, after.lvm_issues_discards), (before.timer, Some(true)));
    assert_eq!((after.udev_rules.len(), after.command_line.len()), (1, 1));
    assert_eq!(after.own_units, ["trimtab.service"]);
    let served = [("/", false), (found_again[1].to_str().unwrap(), true)]
        .map(|(mount, is_trimmed)| ServedMount { mount: mount.into(), is_trimmed });
    assert_eq!(after.served, Some(served.to_vec()));
    assert_eq!((after.cron.len(), &after.cron[0].words), (2, &before.cron[0].words));
    let crypt = Stack::of(&captured, &found_again[1]).unwrap().layers[1].label.clone();
    assert_eq!(crypt.as_deref(), Some(after.crypttab[0].name.as_str()));

    let mut text = Vec::new();
    let archive = File::open(directory.path().join("a.tar.gz")).unwrap();
    flate2::read::GzDecoder::new(archive).read_to_end(&mut text).unwrap();
    let text = String::from_utf8_lossy(&text);
    for private in ["alice", "3e6be9de", "8139", "S5P2NS0R", "filer"] {
        assert!(!text.contains(private), "{private}");
    }
}

#[test]
fn captured_targets_are_examined_again() {
    let machine = Captured::new()
        .device("sda", "8:0", &[])
        .device("sda/sda1", "8:1", &[])
        .device("sdb", "8:16", &[])
        .mounts("27 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 27 8:16 / /srv rw - xfs /dev/sdb rw\n");
    let asked: Vec<_> = ["/srv", "/dev/sda"].map(PathBuf::from).into();
    let (_directory, captured) = recaptured(&machine.machine(), &stacks(&machine.machine(), &asked));
    assert_eq!(targets(&captured).unwrap(), asked);
}

#[test]
fn a_file_system_that_was_mounted_through_a_link_is_found_again() {
    let machine = Captured::new()
        .device("sda", "8:0", &[])
        .device("sdb", "8:16", &[])
        .link("fs/btrfs/0/devices/sda", "../../../../devices/sda")
        .link("fs/btrfs/0/devices/sdb", "../../../../devices/sdb")
        .mounts("27 1 0:40 / /srv rw - btrfs /dev/sdb rw\n");
    let mut stack = Stack::of(&machine.machine(), Path::new("/srv")).unwrap();
    // Only the machine itself can follow the link.
    let machine = machine.mounts("27 1 0:40 / /srv rw - btrfs /dev/disk/by-label/alice rw\n");
    let LayerKind::FileSystem(system) = &mut stack.layers[0].kind else { panic!("{stack:?}") };
    system.source = PathBuf::from("/dev/disk/by-label/alice");
    let (_directory, captured) = recaptured(&machine.machine(), std::slice::from_ref(&stack));
    let again = layers(&captured, &targets(&captured).unwrap()[0]);
    assert_eq!(again, stack.layers.iter().map(nameless).collect::<Vec<_>>());
    assert_eq!(again.len(), 3);
}

#[test]
fn capture_contains_nothing_private() {
    let port = "devices/pci0/host3/rport-3:0-1/naa.5000c500a1b2c3d4/3:0:0:0";
    let machine = Captured::new()
        .device("sda", "8:0", &[])
        .device("dm-12", "253:12", &[("dm/name", "alice-pc"), ("dm/uuid", "alice-19")])
        .stacked("dm-12", "sda")
        .link("devices/sda/device", &format!("../../{port}"))
        .file(&format!("sys/{port}/model"), "alice's disk\n")
        .file(
            &format!("sys/{port}/vpd_pg89"),
            [b"\0\x89\x02\x38".as_slice(), &b"S5P2NS0R".repeat(71)].concat(),
        )
        .file("trimtab/dm/253:12", "0 2048 linear 8:0 0\n")
        .file(
            "etc/fstab",
            "LABEL=alice\\040smith /srv/1977 ext4 commit=30,uid=1000,password=home 0 0\n\
             192.168.1.17:/home /n nfs hard 0 0\n\
             //192.168.1.17/alice /c cifs user=alice,password=4711 0 0\n\
             alice@filer: /s fuse.sshfs port=2222 0 0\n\
             UUID=1234-8139 /boot vfat umask=0077 0 0\n",
        )
        .file("etc/crypttab", "c UUID=1234-8139 /k luks,header=/etc/4711,x-pin=c0ffee\n")
        .file(
            "etc/udev/rules.d/70-4711.rules",
            "ATTRS{idVendor}==\"152d\", ATTRS{serial}==\"8812\", ATTR{provisioning_mode}=\"unmap\"\n",
        )
        .file("proc/cmdline", "rd.luks.options=1234-8139=discard libata.force=2.00:noncqtrim\n")
        .mounts(
            "27 1 253:12 / /srv/1977 rw - ext4 /dev/mapper/alice-pc rw,commit=30,journal_path=/dev/8812\n",
        );
    let all = targets(&machine.machine()).unwrap();
    let (directory, captured) = recaptured(&machine.machine(), &stacks(&machine.machine(), &all));
    let mut text = Vec::new();
    let archive = File::open(directory.path().join("a.tar.gz")).unwrap();
    flate2::read::GzDecoder::new(archive).read_to_end(&mut text).unwrap();
    let text = String::from_utf8_lossy(&text);
    for private in [
        "alice", "smith", "1977", "168", "cifs", "nfs", "filer", "2222", "4711", "=home", "1234", "8139",
        "c0ffee", "8812", "5000c500", "pc-19", "S5P2", "NS0R",
    ] {
        assert!(!text.contains(private), "{private} in {text}");
    }
    for telling in ["commit=30,uid=1000", "umask=0077", "152d", "2.00:noncqtrim", "=discard", "0 2048 linear"]
    {
        assert!(text.contains(telling), "no {telling} in {text}");
    }
    assert_eq!(Setup::of(&captured, &[]).fstab.len(), 5);
}

#[test]
fn capture_of_this_machine_gives_equal_stacks() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "CI runs this as root");
        eprintln!("skipped: it takes root to mount a loop device");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (image, target) = (directory.path().join("image"), directory.path().join("target"));
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    fs::create_dir(&target).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).status().unwrap();
    assert!(made.success());
    let device = loop_device::attach(&image, Bytes(512)).unwrap();
    mount(&device, &target, "ext4", "discard").unwrap();
    let live = Machine::live();
    let outcome = std::panic::catch_unwind(|| {
        let (_directory, captured) = recaptured(&live, &stacks(&live, std::slice::from_ref(&target)));
        let again = targets(&captured).unwrap();
        assert_eq!(again.len(), 1);
        assert_eq!(layers(&captured, &again[0]), layers(&live, &target));
        assert!(layers(&live, &target).len() >= 3);
    });
    unmount(&target).unwrap();
    loop_device::detach(&device).unwrap();
    outcome.unwrap();
}

#[test]
fn a_file_that_a_container_left_behind_makes_no_container() {
    let namespace = |pid: &str| {
        let machine = Captured::new().file(".dockerenv", "");
        fs::create_dir_all(machine.procfs().join("self/ns")).unwrap();
        std::os::unix::fs::symlink(format!("pid:[{pid}]"), machine.procfs().join("self/ns/pid")).unwrap();
        Setup::of(&machine.machine(), &[]).container
    };
    assert!(!namespace("4026531836"), "the first processes of a machine are in this one");
    assert!(namespace("4026532281"));
    assert!(!Setup::of(&Captured::new().file(".dockerenv", "").machine(), &[]).container);
    assert!(Setup::of(&Captured::new().file("run/systemd/container", "docker").machine(), &[]).container);
}

#[test]
fn the_namespaces_of_this_machine_are_named_as_they_are_compared() {
    let found = fs::read_link("/proc/self/ns/pid").unwrap();
    let number = found.to_str().and_then(|name| name.strip_prefix("pid:[")?.strip_suffix(']'));
    assert!(number.is_some_and(|number| number.parse::<u64>().is_ok()), "{found:?}");
}
