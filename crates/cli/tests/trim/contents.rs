//! Files keep what they hold, whatever happens to them while their file system is trimmed.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use trimtab_drive::Clock;

use crate::support::{Bed, possible, run};

const FILES: u64 = 120;
/// What a round writes at least, and how often the file system is trimmed beside that.
const ROUNDS: u64 = 12;

/// Numbers that look random and are the same at every run.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// What a version of a file holds.
fn content(file: u64, version: u64) -> Vec<u8> {
    let mut state = file << 32 | version;
    let length = 1 + next(&mut state) % (300 << 10);
    (0..length).map(|_| next(&mut state) as u8).collect()
}

fn path(place: &Path, file: u64) -> PathBuf {
    place.join(format!("file-{file}"))
}

/// Writes, replaces, cuts, extends and deletes files; returns what each holds in the end.
fn work(place: &Path) -> Vec<Option<Vec<u8>>> {
    let mut held: Vec<Option<Vec<u8>>> = vec![None; FILES as usize];
    let mut state = 7;
    for version in 0..ROUNDS {
        for file in 0..FILES {
            let path = path(place, file);
            let slot = &mut held[file as usize];
            match (next(&mut state) % 6, slot.as_mut()) {
                (0, Some(_)) => {
                    fs::remove_file(&path).unwrap();
                    *slot = None;
                }
                (1, Some(bytes)) => {
                    bytes.truncate(bytes.len() / 2);
                    OpenOptions::new().write(true).open(&path).unwrap().set_len(bytes.len() as u64).unwrap();
                }
                (2, Some(bytes)) => {
                    let more = content(file, version + 1000);
                    let at = bytes.len() as u64;
                    OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&more, at).unwrap();
                    bytes.extend(more);
                }
                _ => {
                    let bytes = content(file, version);
                    fs::write(&path, &bytes).unwrap();
                    *slot = Some(bytes);
                }
            }
        }
        trimtab_linux::trim::sync(place).unwrap();
    }
    held
}

fn keeps_its_files(fstype: &'static str, check: &[&str]) {
    let mut bed = Bed::new(fstype, Clock::Model);
    let is_over = AtomicBool::new(false);
    let place = bed.place();
    let held = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let held = work(&place);
            is_over.store(true, Ordering::Relaxed);
            held
        });
        let mut turns = 0;
        while !is_over.load(Ordering::Relaxed) || turns < 3 {
            let manner: &[&str] = if turns % 2 == 0 { &["--unpaced"] } else { &["--max-busy", "50"] };
            bed.trim(&[&["--full", "-m", "0"], manner].concat());
            turns += 1;
        }
        worker.join().unwrap()
    });
    // What is in the page cache proves nothing.
    bed.unmount();
    let device = bed.drive.device().display().to_string();
    run(std::process::Command::new(check[0]).args(&check[1..]).arg(device));
    bed.mount("");
    for (file, held) in (0..).zip(&held) {
        let read = fs::read(path(&place, file)).ok();
        assert!(read == *held, "{fstype}: file {file} reads back as it was written");
    }
}

#[test]
fn ext4_keeps_its_files() {
    if possible() {
        keeps_its_files("ext4", &["e2fsck", "-fn"]);
    }
}

#[test]
fn xfs_keeps_its_files() {
    if possible() {
        keeps_its_files("xfs", &["xfs_repair", "-n"]);
    }
}

#[test]
fn btrfs_keeps_its_files() {
    if possible() {
        keeps_its_files("btrfs", &["btrfs", "check", "--readonly"]);
    }
}
