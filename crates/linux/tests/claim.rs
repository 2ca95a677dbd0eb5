//! Claims of real loop devices: what is refused, in which words, and that nothing is written.

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{Loop, possible};
use trimtab_core::Bytes;
use trimtab_linux::claim::{self, Overrides};
use trimtab_linux::{loop_device, mount};

const SIZE: Bytes = Bytes(16 << 20);
const EVERYTHING: Overrides = Overrides { signatures: true, partitions: true, part: true };
/// A loop device over a file may be claimed.
const FILE: Overrides = Overrides { signatures: false, partitions: false, part: true };

/// One test at a time: a program that another test starts holds this one's open files until it runs, and a claim sees it.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    possible().then(|| ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn refusal(path: &Path, overrides: &Overrides) -> String {
    let claimed = claim::claim(path, overrides).unwrap_err().to_string();
    assert_eq!(claim::check(path, overrides).unwrap_err().to_string(), claimed);
    claimed
}

#[test]
fn path_that_is_no_block_device_is_refused() {
    for (path, refused) in [
        ("/dev", "/dev is a directory, not a block device; name a spare drive, such as /dev/nvme1n1"),
        ("/dev/null", "/dev/null is a character device, not a block device"),
        ("/proc/self/exe", "/proc/self/exe is a regular file, not a block device"),
        ("/dev/no-such-drive", "cannot look at /dev/no-such-drive"),
    ] {
        let found = refusal(Path::new(path), &EVERYTHING);
        assert!(found.starts_with(refused), "{found}");
    }
}

#[test]
fn a_file_that_is_mounted_by_another_loop_device_is_kept() {
    let Some(_alone) = alone() else { return };
    let scratch = Loop::new(SIZE);
    assert!(Command::new("mkfs.ext4").arg("-q").arg(&scratch.device).status().unwrap().success());
    let sibling = loop_device::attach(&scratch.file(), Bytes(512)).unwrap();
    let target = tempfile::tempdir().unwrap();
    mount::mount(&scratch.device, target.path(), "ext4", "").unwrap();
    let found = std::panic::catch_unwind(|| refusal(&sibling, &EVERYTHING));
    mount::unmount(target.path()).unwrap();
    loop_device::detach(&sibling).unwrap();
    let found = found.unwrap();
    let shared = format!("shares its bytes with {}, which is mounted on", scratch.device.display());
    assert!(found.contains(&shared), "{found}");
}

#[test]
fn a_file_system_is_kept() {
    let Some(_alone) = alone() else { return };
    let scratch = Loop::new(SIZE);
    let name = scratch.device.display();
    let made = Command::new("mkfs.ext4").args(["-q", "-L", "kept"]).arg(&scratch.device).status().unwrap();
    assert!(made.success());
    let before = fs::read(scratch.file()).unwrap();

    let found = refusal(&scratch.device, &Overrides { signatures: false, ..EVERYTHING });
    assert!(found.starts_with(&format!("{name} holds ext4 \"kept\" (UUID ")), "{found}");
    assert!(found.ends_with("will be lost if you add --overwrite-signatures"), "{found}");
    let checked = claim::check(&scratch.device, &EVERYTHING).unwrap();
    let lost = format!("will be lost on {name}: ext4 \"kept\"");
    assert!(checked.lost.iter().any(|line| line.starts_with(&lost)), "{checked:?}");
    drop(claim::claim(&scratch.device, &EVERYTHING).unwrap());
    assert!(fs::read(scratch.file()).unwrap() == before, "a claim writes nothing");

    let target = tempfile::tempdir().unwrap();
    mount::mount(&scratch.device, target.path(), "ext4", "").unwrap();
    let found = refusal(&scratch.device, &EVERYTHING);
    mount::unmount(target.path()).unwrap();
    let target = target.path().display();
    let mounted = format!("{name} is mounted on {target}; unmount it first (umount {target})");
    assert_eq!(found, format!("{name} is in use: {mounted}"));
}

#[test]
fn a_partition_table_is_kept() {
    let Some(_alone) = alone() else { return };
    let scratch = Loop::new(SIZE);
    let file = fs::OpenOptions::new().write(true).open(scratch.file()).unwrap();
    // One Linux partition of 1 MiB from 1 MiB on, in a master boot record.
    let entry = [0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0];
    file.write_all_at(&entry, 446).unwrap();
    file.write_all_at(&[0x55, 0xaa], 510).unwrap();
    let found = refusal(&scratch.device, &Overrides { partitions: false, ..EVERYTHING });
    let expected = format!(
        "{} has a partition table dos; all of that will be lost if you add --overwrite-partitions",
        scratch.device.display()
    );
    assert_eq!(found, expected);
}

#[test]
fn signatures_that_wipefs_passes_over_are_kept() {
    let Some(_alone) = alone() else { return };
    let scratch = Loop::new(SIZE);
    let name = scratch.device.display();
    let made = Command::new("mkfs.ext4").args(["-q", "-b", "1024"]).arg(&scratch.device).status().unwrap();
    assert!(made.success());
    let wiped = Command::new("wipefs").args(["-q", "-a"]).arg(&scratch.device).status().unwrap();
    assert!(wiped.success());
    let found = refusal(&scratch.device, &Overrides { signatures: false, ..EVERYTHING });
    let lost = "this will be lost if you add --overwrite-signatures";
    assert_eq!(found, format!("{name} holds a backup of ext4; {lost}"));
    fs::write(scratch.file(), vec![0; SIZE.0 as usize]).unwrap();
    let file = fs::OpenOptions::new().write(true).open(scratch.file()).unwrap();
    file.write_all_at(b"QFI\xfb\0\0\0\x03", 0).unwrap();
    let flushed = Command::new("blockdev").arg("--flushbufs").arg(&scratch.device).status().unwrap();
    assert!(flushed.success());
    let found = refusal(&scratch.device, &Overrides { signatures: false, ..EVERYTHING });
    assert_eq!(found, format!("{name} holds a qcow2 image; {lost}"));
    claim::check(&scratch.device, &EVERYTHING).unwrap();
}

#[test]
fn a_claim_is_exclusive() {
    let Some(_alone) = alone() else { return };
    let scratch = Loop::new(SIZE);
    let claim = claim::claim(&scratch.device, &FILE).unwrap();
    let slowed = format!("will be slowed: what uses the file system that holds {}", scratch.file().display());
    assert_eq!(claim.lost, [slowed]);
    let found = refusal(&scratch.device, &EVERYTHING);
    assert!(found.contains("is in use: the kernel keeps it for another user"), "{found}");
    drop(claim);
    let upper = loop_device::attach(&scratch.device, Bytes(512)).unwrap();
    let found = refusal(&scratch.device, &EVERYTHING);
    loop_device::detach(&upper).unwrap();
    let held = format!("is held by {}; take that down first", upper.display());
    assert!(found.ends_with(&held), "{found}");
}

#[test]
fn a_loop_device_over_a_mounted_one_is_refused() {
    let Some(_alone) = alone() else { return };
    let scratch = Loop::new(SIZE);
    let name = scratch.device.display();
    let made = Command::new("mkfs.ext4").arg("-q").arg(&scratch.device).status().unwrap();
    assert!(made.success());
    let target = tempfile::tempdir().unwrap();
    mount::mount(&scratch.device, target.path(), "ext4", "").unwrap();
    let upper = loop_device::attach(&scratch.device, Bytes(512)).unwrap();
    let mounted = refusal(&upper, &EVERYTHING);
    mount::unmount(target.path()).unwrap();
    let unmounted = claim::check(&upper, &EVERYTHING);
    loop_device::detach(&upper).unwrap();

    let (upper, target) = (upper.display(), target.path().display());
    let shared = format!("{upper} shares its bytes with {name}, which is mounted on {target}; ");
    assert_eq!(mounted, format!("{shared}unmount it first (umount {target})"));
    assert!(unmounted.is_ok(), "{unmounted:?}");
}

#[test]
fn read_only_device_is_refused() {
    let Some(_alone) = alone() else { return };
    let scratch = Loop::new(SIZE);
    let set = |flag: &str| {
        assert!(Command::new("blockdev").arg(flag).arg(&scratch.device).status().unwrap().success());
    };
    set("--setro");
    let found = refusal(&scratch.device, &EVERYTHING);
    assert!(found.starts_with(&format!("{} is read-only", scratch.device.display())), "{found}");
    set("--setrw");
    drop(claim::claim(&scratch.device, &FILE).unwrap());
}

#[test]
fn a_claimed_device_reads_what_it_wrote() {
    let Some(_alone) = alone() else { return };
    let scratch = Loop::new(SIZE);
    let device = claim::claim(&scratch.device, &FILE).unwrap().device;
    assert_eq!((device.size(), device.logical_block()), (SIZE, Bytes(512)));
    // Longer than what is copied at once, and where direct I/O can't use it.
    let data: Vec<u8> = (0..(3 << 20) + 513_u32).map(|number| (number * 7 / 5) as u8).collect();
    device.write(Bytes(1536), &data[1..]).unwrap();
    device.flush().unwrap();
    device.drop_caches().unwrap();
    let mut found = vec![0; data.len()];
    device.read(Bytes(1536), &mut found[1..]).unwrap();
    assert!(found[1..] == data[1..]);
    let mut kept = vec![0; data.len() - 1];
    fs::File::open(scratch.file()).unwrap().read_exact_at(&mut kept, 1536).unwrap();
    assert!(kept == data[1..], "it is on the device itself");
}
