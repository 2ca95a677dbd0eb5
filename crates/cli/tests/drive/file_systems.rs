//! File systems on a drive keep their data, whatever discarded ranges read as.

use std::fs;
use std::path::{Path, PathBuf};

use trimtab_core::Bytes;
use trimtab_core::profile::DiscardedReads;
use trimtab_linux::trim;

use crate::mounts::Mounted;
use crate::support::{Numbers, drive, possible, profile, run};

const FILES: u64 = 400;

fn path(directory: &Path, file: u64) -> PathBuf {
    directory.join(format!("{file}"))
}

/// The contents of a file: up to 256 KiB that depend on its number.
fn content(file: u64) -> Vec<u8> {
    let mut numbers = Numbers(file);
    let length = numbers.below(1 << 18);
    (0..length).map(|_| numbers.below(256) as u8).collect()
}

fn write(directory: &Path, files: impl Iterator<Item = u64>) {
    files.for_each(|file| fs::write(path(directory, file), content(file)).unwrap());
    trim::sync(directory).unwrap();
}

fn is_sound(fstype: &str, mkfs: &[&str], mount_options: &str, reads: DiscardedReads) {
    let drive = drive(profile(reads), Bytes(512 << 20));
    let device = drive.device().to_str().unwrap();
    run(&format!("mkfs.{fstype}"), &[mkfs, &[device]].concat());
    let mounted = Mounted::new(drive.device(), fstype, mount_options);
    write(&mounted.target, 0..FILES);
    for file in (0..FILES).filter(|file| file % 2 == 1) {
        fs::remove_file(path(&mounted.target, file)).unwrap();
    }
    trim::sync(&mounted.target).unwrap();
    let before = drive.stats().unwrap().counters.discard_bytes;
    trim::trim(&mounted.target, trim::EVERYTHING, Bytes::ZERO).unwrap();
    let after = drive.stats().unwrap().counters.discard_bytes;
    assert!(after - before > Bytes(64 << 20), "{fstype} trimmed {}", after - before);
    write(&mounted.target, FILES..FILES + FILES / 4);
    drop(mounted);
    let mounted = Mounted::new(drive.device(), fstype, mount_options);
    for file in (0..FILES).step_by(2).chain(FILES..FILES + FILES / 4) {
        let same = fs::read(path(&mounted.target, file)).unwrap() == content(file);
        assert!(same, "{fstype} with {reads:?}: file {file} reads back as it was written");
    }
    drop(mounted);
    drive.remove().unwrap();
}

#[test]
fn ext4_is_sound() {
    if possible() {
        is_sound("ext4", &["-q"], "", DiscardedReads::Zeros);
        is_sound("ext4", &["-q"], "discard", DiscardedReads::Garbage);
    }
}

#[test]
fn xfs_is_sound() {
    if possible() {
        is_sound("xfs", &["-q"], "", DiscardedReads::Zeros);
        is_sound("xfs", &["-q"], "discard", DiscardedReads::Garbage);
    }
}

#[test]
fn btrfs_is_sound() {
    if possible() {
        is_sound("btrfs", &["-q"], "nodiscard", DiscardedReads::Old);
        is_sound("btrfs", &["-q"], "discard=async", DiscardedReads::Garbage);
    }
}
