//! Counts the discards, and their mean size, that deleting a tree causes.

use std::fs;
use std::path::Path;

use trimtab_core::Bytes;
use trimtab_linux::SYSFS;
use trimtab_linux::block::{BlockCounters, BlockDevice};
use trimtab_linux::trim;
use trimtab_observe::watch::Scope;

use crate::common::possible;
use crate::support::{made, reports, watch};

const DIRECTORIES: u64 = 30;
const FILES: u64 = 100;

/// Writes 3000 files of 1 to 12 blocks, and returns how many blocks those are.
fn grow(tree: &Path) -> u64 {
    let mut blocks = 0;
    for directory in 0..DIRECTORIES {
        let directory_path = tree.join(directory.to_string());
        fs::create_dir_all(&directory_path).unwrap();
        for file in 0..FILES {
            let length = 1 + (directory * 7 + file * 5) % 12;
            fs::write(directory_path.join(file.to_string()), vec![0x5a; (length * 4096) as usize]).unwrap();
            blocks += length;
        }
    }
    trim::sync(tree).unwrap();
    blocks
}

fn counters(device: &Path) -> BlockCounters {
    BlockDevice::open(Path::new(SYSFS), device).unwrap().counters().unwrap()
}

/// Deletes a tree in one watched command and holds the summary against the kernel's own counters.
fn deleting_a_tree(fstype: &str, make: &[&str], options: &str) {
    let (on, mounted) = made(fstype, make, options);
    let tree = mounted.target.join("tree");
    let blocks = grow(&tree);
    // The counters as they are when the span begins: in the command itself.
    let before_file = tempfile::NamedTempFile::new().unwrap();
    let stat = format!("/sys/block/{}/stat", on.name());
    let line = format!("cat {stat} > {}; rm -r {}", before_file.path().display(), tree.display());
    let output = watch(&["--json"], &[&mounted.target]).args(["--", "sh", "-c", &line]).output().unwrap();
    let after = counters(&on.device);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let before: Vec<u64> = fs::read_to_string(before_file.path())
        .unwrap()
        .split_whitespace()
        .map(|figure| figure.parse().unwrap())
        .collect();
    let reports = reports(&output.stdout);
    let [summary] = reports.as_slice() else { panic!("one summary: {reports:?}") };
    assert_eq!((summary.scope, summary.lost), (Scope::Summary, 0));
    let command = summary.command.as_ref().unwrap();
    let settled = command.settled.as_ref().unwrap();
    assert_eq!((command.exit_code, settled.unsettled), (0, false));
    assert_eq!(settled.synced, [mounted.target.display().to_string()]);
    let [device] = summary.devices.as_slice() else { panic!("one device: {:?}", summary.devices) };
    assert_eq!(device.name, on.name());
    let discards = &device.discards;
    // Documentation/block/stat.rst: discards completed and sectors discarded are the 12th and 14th.
    assert_eq!(discards.count, after.discards - before[11], "{fstype}");
    assert_eq!(discards.bytes, after.discard_bytes - Bytes(before[13] * 512), "{fstype}");
    assert_eq!(discards.mean_bytes, Some(Bytes(discards.bytes.0 / discards.count)));
    assert_eq!(discards.sizes.total(), discards.count);
    assert!(discards.latency.is_some_and(|latency| latency.count == discards.count));
    // btrfs keeps its smallest files in metadata, beside much else.
    let data = Bytes(blocks * 4096);
    assert!(discards.bytes.0 >= data.0 / 2, "{fstype} discarded {} of {data}", discards.bytes);
    let [fs] = summary.file_systems.as_slice() else { panic!("one file system: {:?}", summary.file_systems) };
    assert_eq!((fs.kind.as_str(), Path::new(&fs.mount_point)), (fstype, mounted.target.as_path()));
    assert!(fs.frees.bytes.0 >= data.0 / 2, "{fstype} freed {} of {data}", fs.frees.bytes);
    assert!(fs.pending.bytes.0 <= fs.frees.bytes.0 / 20, "{fstype} left {} pending", fs.pending.bytes);
    eprintln!(
        "{fstype}: {} discards, mean {}, median {}; {} frees of {}; {} pending",
        discards.count,
        discards.mean_bytes.unwrap(),
        discards.median_bytes.unwrap(),
        fs.frees.count,
        fs.frees.bytes,
        fs.pending.bytes
    );
}

#[test]
fn ext4_discards_of_a_deleted_tree_are_shown() {
    if possible() {
        deleting_a_tree("ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"], "discard");
    }
}

#[test]
fn xfs_discards_of_a_deleted_tree_are_shown() {
    if possible() {
        deleting_a_tree("xfs", &["-q"], "discard");
    }
}

#[test]
fn btrfs_discards_of_a_deleted_tree_are_shown() {
    if possible() {
        deleting_a_tree("btrfs", &["-q"], "discard=sync");
    }
}

#[test]
fn undiscarded_extents_stay_pending() {
    if !possible() {
        return;
    }
    let (_on, mounted) = made("ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"], "");
    let file = mounted.target.join("file");
    fs::write(&file, vec![0x5a; 8 << 20]).unwrap();
    trim::sync(&mounted.target).unwrap();
    let run = |line: String| {
        let output = watch(&["--json"], &[&mounted.target]).args(["--", "sh", "-c", &line]).output().unwrap();
        let mut summary = reports(&output.stdout).pop().unwrap();
        (summary.file_systems.remove(0), summary.devices.remove(0))
    };
    let remove = format!("rm {}", file.display());
    let (left, device) = run(remove.clone());
    assert_eq!((left.pending.bytes, device.discards.count), (left.frees.bytes, 0));
    assert!(left.pending.bytes >= Bytes(8 << 20));
    fs::write(&file, vec![0x5a; 8 << 20]).unwrap();
    let (left, device) = run(format!("{remove}; sync; fstrim {}", mounted.target.display()));
    assert_eq!(left.pending.bytes, Bytes::ZERO);
    assert!(device.discards.bytes >= Bytes(8 << 20));
}
