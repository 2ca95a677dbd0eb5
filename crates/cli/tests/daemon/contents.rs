//! Files keep their contents while they change and their file system is trimmed. A wrongly discarded block of
//! a loop device reads as zeros.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate, ioctl_ficlone};
use tempfile::TempDir;
use trimtab_core::Bytes;

use crate::support::{Daemon, TRIMTAB, Volume, possible, run};

const WORKERS: u64 = 2;
const FILES: u64 = 60;
const ROUNDS: usize = 40;
/// The most that is written at once.
const LONGEST: u64 = 512 << 10;
const BLOCK: usize = 4096;
/// How many snapshots there are at most.
const SNAPSHOTS: usize = 3;
/// The least number of bytes to discard for a meaningful test.
const DISCARDED: Bytes = Bytes(256 << 20);

/// The contents of the files in a directory.
type Contents = BTreeMap<String, Vec<u8>>;

/// Changes its own files, and checks their contents.
struct Worker {
    fstype: String,
    place: PathBuf,
    random: u64,
    files: Contents,
    /// Snapshots of them, the oldest first.
    snapshots: Vec<(PathBuf, Contents)>,
}

impl Worker {
    fn new(volume: &Volume, number: u64) -> Self {
        let place = volume.target.join(format!("worker-{number}"));
        match volume.fstype.as_str() {
            "btrfs" => run(Command::new("btrfs").args(["subvolume", "create"]).arg(&place)),
            _ => fs::create_dir(&place).unwrap(),
        }
        let fstype = volume.fstype.clone();
        Self { fstype, place, random: number + 1, files: Contents::new(), snapshots: Vec::new() }
    }

    /// Some number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    /// Some bytes other than zero.
    fn bytes(&mut self) -> Vec<u8> {
        let length = 1 + self.below(LONGEST);
        let words = std::iter::repeat_with(|| (self.below(u64::MAX) | 0x0101_0101_0101_0101).to_le_bytes());
        words.take(length.div_ceil(8) as usize).flatten().take(length as usize).collect()
    }

    fn work(mut self) -> Self {
        for _ in 0..ROUNDS {
            for file in 0..FILES {
                self.change(format!("file-{file}"));
            }
            trimtab_linux::trim::sync(&self.place).unwrap();
            if self.fstype == "btrfs" {
                self.snapshot();
            }
            // Drops the page cache, so that checks read the device.
            for name in self.files.keys() {
                let file = File::open(self.place.join(name)).unwrap();
                fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            }
            self.check();
        }
        self
    }

    fn change(&mut self, name: String) {
        let path = self.place.join(&name);
        let Some(mut bytes) = self.files.remove(&name) else {
            let bytes = self.bytes();
            fs::write(&path, &bytes).unwrap();
            self.files.insert(name, bytes);
            return;
        };
        let file = File::options().read(true).write(true).open(&path).unwrap();
        // Whole blocks, which may reach past the end.
        let start = self.below((bytes.len() / BLOCK + 1) as u64) as usize * BLOCK;
        let length = BLOCK * (1 + self.below(32) as usize);
        let inside = start..bytes.len().min(start + length);
        let allocate = |flags| fallocate(&file, flags, start as u64, length as u64).unwrap();
        match self.below(10) {
            0 => {
                fs::remove_file(&path).unwrap();
                return;
            }
            1 => {
                bytes.truncate(start);
                file.set_len(start as u64).unwrap();
            }
            2 => {
                let more = self.bytes();
                file.write_all_at(&more, bytes.len() as u64).unwrap();
                bytes.extend(more);
                bytes.truncate(4 * LONGEST as usize);
                file.set_len(bytes.len() as u64).unwrap();
            }
            3 => {
                let new = self.bytes();
                file.write_all_at(&new, start as u64).unwrap();
                bytes.resize(bytes.len().max(start + new.len()), 0);
                bytes[start..start + new.len()].copy_from_slice(&new);
            }
            4 => {
                allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE);
                bytes[inside].fill(0);
            }
            5 => {
                allocate(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE);
                bytes[inside].fill(0);
            }
            6 => allocate(FallocateFlags::KEEP_SIZE),
            7 if self.fstype != "btrfs" && start + length < bytes.len() => {
                allocate(FallocateFlags::COLLAPSE_RANGE);
                bytes.drain(inside);
            }
            8 if self.fstype != "ext4" => {
                let other = format!("file-{}", self.below(FILES));
                if other != name {
                    ioctl_ficlone(File::create(self.place.join(&other)).unwrap(), &file).unwrap();
                    self.files.insert(other, bytes.clone());
                }
            }
            _ => {
                bytes = self.bytes();
                let new = path.with_extension("new");
                fs::write(&new, &bytes).unwrap();
                fs::rename(&new, &path).unwrap();
            }
        }
        self.files.insert(name, bytes);
    }

    /// Keeps the files as they are, and drops the oldest snapshot.
    fn snapshot(&mut self) {
        let btrfs = |arguments: &[&str], paths: &[&Path]| {
            run(Command::new("btrfs").arg("subvolume").args(arguments).args(paths));
        };
        let number = self.below(u64::MAX);
        let path = self.place.with_extension(number.to_string());
        btrfs(&["snapshot", "-r"], &[&self.place, &path]);
        self.snapshots.push((path, self.files.clone()));
        if self.snapshots.len() > SNAPSHOTS {
            btrfs(&["delete"], &[&self.snapshots.remove(0).0]);
        }
    }

    /// Reads all files, and those of the snapshots.
    fn check(&self) {
        let snapshots = self.snapshots.iter().map(|(place, files)| (place, files));
        for (place, files) in snapshots.chain([(&self.place, &self.files)]) {
            let count = fs::read_dir(place).unwrap().count();
            assert_eq!(count, files.len(), "{}", place.display());
            for (name, bytes) in files {
                let read = fs::read(place.join(name)).unwrap();
                assert!(read == *bytes, "{}/{name} doesn't hold what was written", place.display());
            }
        }
    }
}

/// Has files changed on a new file system until all is done, while `trims` does what it does until it is told
/// to end; then checks the file system, and the files once it is mounted again.
fn keeps_its_files(fstype: &str, check: &[&str], trims: impl FnOnce(&Volume, &dyn Fn() -> bool)) {
    if !possible() {
        return;
    }
    let volume = Volume::in_memory(fstype);
    volume.mount();
    let before = volume.counters().discard_bytes;
    let workers: Vec<_> = (0..WORKERS).map(|number| Worker::new(&volume, number)).collect();
    let workers: Vec<_> = thread::scope(|scope| {
        let working: Vec<_> = workers.into_iter().map(|worker| scope.spawn(|| worker.work())).collect();
        trims(&volume, &|| working.iter().any(|worker| !worker.is_finished()));
        working.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let discarded = volume.counters().discard_bytes - before;
    assert!(discarded > DISCARDED, "only {discarded} were discarded");
    volume.unmount();
    run(Command::new(check[0]).args(&check[1..]).arg(&volume.device));
    volume.mount();
    workers.iter().for_each(Worker::check);
}

/// `trimtab trim` again and again.
fn trimmed(volume: &Volume, goes_on: &dyn Fn() -> bool) {
    let dir = TempDir::new().unwrap();
    for manner in [&["--unpaced"] as &[_], &["--max-busy", "50"]].into_iter().cycle() {
        let mut trim = Command::new(TRIMTAB);
        trim.args(["trim", "--quiet", "--full", "--minimum", "0"]).args(manner).arg(&volume.target);
        run(trim.arg("--run").arg(dir.path()).env("RUNTIME_DIRECTORY", dir.path()));
        if !goes_on() {
            return;
        }
    }
}

/// A service that trims at once.
fn managed(volume: &Volume, goes_on: &dyn Fn() -> bool) {
    let goals = "policy = \"smart\"\nmax_age = \"1ms\"\nmax_busy_share = 1.0\nmax_latency_added = \"1s\"\n";
    let mut daemon = Daemon::start(&(volume.table() + goals));
    while goes_on() {
        thread::sleep(std::time::Duration::from_millis(50));
    }
    let fs = daemon.status_of(volume).unwrap();
    assert!(fs.trimmed > DISCARDED && fs.refusals.is_empty(), "{fs:#?}");
    assert_eq!(daemon.stop(), Some(0));
}

const E2FSCK: [&str; 2] = ["e2fsck", "-fn"];
const XFS_REPAIR: [&str; 2] = ["xfs_repair", "-n"];
const BTRFS_CHECK: [&str; 3] = ["btrfs", "check", "--readonly"];

#[test]
fn ext4_keeps_its_files_when_trimmed() {
    keeps_its_files("ext4", &E2FSCK, trimmed);
}

#[test]
fn xfs_keeps_its_files_when_trimmed() {
    keeps_its_files("xfs", &XFS_REPAIR, trimmed);
}

#[test]
fn btrfs_keeps_its_files_when_trimmed() {
    keeps_its_files("btrfs", &BTRFS_CHECK, trimmed);
}

#[test]
fn ext4_keeps_its_files_when_managed() {
    keeps_its_files("ext4", &E2FSCK, managed);
}

#[test]
fn xfs_keeps_its_files_when_managed() {
    keeps_its_files("xfs", &XFS_REPAIR, managed);
}

#[test]
fn btrfs_keeps_its_files_when_managed() {
    keeps_its_files("btrfs", &BTRFS_CHECK, managed);
}
