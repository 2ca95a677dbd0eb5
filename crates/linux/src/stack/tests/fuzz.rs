//! Trees that make no sense.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;

use crate::captured::Captured;
use crate::stack::{Machine, Setup, Stack, targets};

/// A change of a file or directory of the tree.
#[derive(Debug, Clone)]
enum Damage {
    Text(String),
    Bytes(Vec<u8>),
    Link(usize),
    Gone,
}

/// Where it is done.
fn places() -> Vec<String> {
    let of_devices = ["sda", "sda/sda1", "dm-0", "md0", "loop0"].iter().flat_map(|device| {
        [
            "",
            "/dev",
            "/size",
            "/ro",
            "/partition",
            "/start",
            "/dm",
            "/dm/name",
            "/md",
            "/md/chunk_size",
            "/slaves",
            "/loop",
            "/loop/backing_file",
            "/loop/offset",
            "/queue",
            "/queue/rotational",
            "/queue/zoned",
            "/device",
            "/device/scsi_disk",
            "/device/vpd_pgb0",
            "/device/vpd_pgb2",
            "/device/vpd_pg89",
            "/slaves/sda",
            "/slaves/dm-0",
            "/slaves/md0",
            "/md/dev-sda1/offset",
            "/discard_alignment",
            "/dm/uuid",
        ]
        .map(|attribute| format!("sys/devices/{device}{attribute}"))
    });
    let others = [
        "proc/self/mountinfo",
        "proc/swaps",
        "proc/cmdline",
        "etc/fstab",
        "etc/crypttab",
        "etc/lvm/lvm.conf",
        "sys/class/block/sda",
        "sys/block/dm-0",
        "sys/dev/block/8:1",
        "sys/fs/btrfs/a/devices/sda1",
        "trimtab/dm/253:0",
        "trimtab/timer",
        "etc/crontab",
        "etc/cron.d",
        "etc/systemd/system",
        "trimtab/luks/dm-0",
        "etc/udev/rules.d/a.rules",
        "sys/class/block",
    ];
    of_devices.chain(others.map(str::to_owned)).collect()
}

/// Words and lines that mean something somewhere.
const MEANINGFUL: [&str; 19] = [
    "0\n",
    "1\n",
    "8:1\n",
    "253:0\n",
    "18446744073709551615\n",
    "36028797018963967\n",
    "-1\n",
    "/dev/loop0\n",
    "/mnt/file\n",
    "0 8 crypt a b 0 8:1 18446744073709551615\n",
    "0 8 linear 8:1 0\n8 8 striped 2 8 7:0 8 253:0\n",
    "0 8 thin-pool 253:0 8:1 \n",
    "27 1 8:1 / / rw - ext4 /dev/sda1 rw\n28 27 7:0 / /mnt rw - xfs /dev/loop0 rw\n",
    "27 1 0:9 / / rw - overlay o rw,upperdir=/mnt,lowerdir=/:/mnt\n28 27 7:0 / /mnt rw - btrfs /dev/dm-0 rw\n",
    "header\n/dev/loop0 partition 18446744073709551615 0 0\n/mnt/file file 1 0 0\n",
    "devices { issue_discards =",
    "ATTR{provisioning_mode}=\"unmap\" \\\n",
    "@daily root fstrim -a \\\n; trimtab trim",
    "LoadState=loaded\nNextElapseUSecRealtime=\n",
];

fn damage() -> impl Strategy<Value = (usize, Damage)> {
    let damage = prop_oneof![
        4 => prop::sample::select(MEANINGFUL.as_slice()).prop_map(|text| Damage::Text(text.to_owned())),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Damage::Bytes),
        3 => any::<usize>().prop_map(Damage::Link),
        1 => Just(Damage::Gone),
    ];
    (any::<usize>(), damage)
}

fn machine() -> Captured {
    Captured::new()
        .device("sda", "8:0", &[("queue/logical_block_size", "512")])
        .file("sys/devices/sda/device/scsi_disk/0:0:0:0/provisioning_mode", "unmap\n")
        .device("sda/sda1", "8:1", &[])
        .device("dm-0", "253:0", &[("dm/name", "vg-lv"), ("dm/uuid", "LVM-x")])
        .device("md0", "9:0", &[("md/level", "raid5")])
        .device("loop0", "7:0", &[("loop/backing_file", "/mnt/file")])
        .stacked("dm-0", "sda/sda1")
        .stacked("md0", "dm-0")
        .file("trimtab/dm/253:0", "0 8 linear 8:1 2048\n")
        .mounts("27 1 9:0 / / rw - ext4 /dev/md0 rw\n28 27 7:0 / /mnt rw - xfs /dev/loop0 rw\n")
}

/// Does it, as far as it can be done.
fn apply(root: &Path, place: &str, damage: &Damage, places: &[String]) {
    let path = root.join(place);
    let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    if let Some(directory) = path.parent() {
        let _ = fs::create_dir_all(directory);
    }
    let _ = match damage {
        Damage::Text(text) => fs::write(path, text),
        Damage::Bytes(bytes) => fs::write(path, bytes),
        Damage::Link(to) => symlink(root.join(&places[to % places.len()]), path),
        Damage::Gone => Ok(()),
    };
}

proptest! {
    // Each writes a tree.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_tree_causes_no_panic_or_hang(damages in prop::collection::vec(damage(), 1..20)) {
        let (tree, places) = (machine(), places());
        for (at, damage) in &damages {
            apply(tree.root(), &places[at % places.len()], damage, &places);
        }
        if let Ok(machine) = Machine::captured(tree.root()) {
            let named = ["/", "/mnt", "/mnt/file", "/dev/sda", "/dev/sda1", "/dev/dm-0", "/dev/vg/lv", "/dev/loop0"];
            let found = targets(&machine).unwrap_or_default();
            let all = found.iter().map(|path| path.as_path()).chain(named.map(Path::new));
            let stacks: Vec<_> = all.filter_map(|target| Stack::of(&machine, target).ok()).collect();
            for stack in &stacks {
                let ordered = |(at, layer): (usize, &crate::stack::Layer)| {
                    layer.below.iter().all(|below| below.layer > at && below.layer < stack.layers.len())
                };
                prop_assert!(stack.layers.iter().enumerate().all(ordered));
            }
            Setup::of(&machine, &stacks);
        }
    }
}
