//! Drives come and go, and leave nothing.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;
use std::{io, thread};

use serde_json::{Value, json};
use trimtab_core::profile::DiscardedReads;
use trimtab_core::{Bytes, Extent, Nanos};
use trimtab_drive::{Clock, CreateOptions, Drive, DriveError, DriveStats};
use trimtab_linux::block::BlockDevice;
use trimtab_linux::{SYSFS, ioctl, mount};

use crate::mounts::Mounted;
use crate::program::copy_program;
use crate::support::{
    Aligned, TRIMTAB, drive, is_left, open_direct, options, possible, profile, read_at, run, trimtab,
    trimtab_prints, trimtab_refuses, unique, wait_until,
};

const SIZE: Bytes = Bytes(512 << 20);

/// Linux's number of "input/output error".
const EIO: i32 = 5;

/// Removes a drive that the binary made when a test ends.
struct Removed(String);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = trimtab(&["drive", "rm", &self.0]);
    }
}

#[test]
fn the_verbs_make_list_show_and_remove_a_drive() {
    if !possible() {
        return;
    }
    let name = unique("verbs");
    let removed = Removed(name.clone());
    let create = ["drive", "create", &name, "--profile", "ocz-agility-3", "--size", "512M"];
    let device = trimtab_prints(&create).trim_end().to_owned();
    let sectors = fs::read_to_string(device.replace("/dev", "/sys/block") + "/size").unwrap();
    assert_eq!(sectors.trim().parse(), Ok(SIZE.0 / 512));

    let again = trimtab_refuses(&create);
    assert!(again.contains(&format!("there is a drive {name:?} already")), "{again}");

    assert!(
        trimtab_prints(&["drive", "ls"])
            .lines()
            .any(|line| { line == format!("{name:<32} {device:<12} ocz-agility-3, {SIZE}, clock model") })
    );
    let rows: Vec<Value> = serde_json::from_str(&trimtab_prints(&["drive", "ls", "--json"])).unwrap();
    let row = rows.iter().find(|row| row["name"] == name.as_str()).unwrap();
    assert_eq!((&row["profile"], &row["size"]), (&json!("ocz-agility-3"), &json!(SIZE)));
    assert_eq!((&row["clock"], &row["device"]), (&json!("model"), &json!(device)));

    run("blkdiscard", &["--offset", "0", "--length", "1048576", &device]);
    let stats: DriveStats =
        serde_json::from_str(&trimtab_prints(&["drive", "stats", &name, "--json"])).unwrap();
    assert_eq!((stats.profile.as_str(), stats.size), ("ocz-agility-3", SIZE));
    assert_eq!((stats.counters.discards, stats.counters.discard_bytes), (1, Bytes::MIB));
    assert!(trimtab_prints(&["drive", "stats", &name]).contains("1 (1 MiB)"));

    trimtab_prints(&["drive", "rm", &name]);
    assert!(!is_left(&name));
    assert!(trimtab_refuses(&["drive", "rm", &name]).contains("there is no drive"));
    drop(removed);
    assert!(trimtab_prints(&["drive", "profiles"]).contains("ocz-agility-3"));
}

#[test]
fn a_mounted_drive_is_not_removed() {
    if !possible() {
        return;
    }
    let drive = drive(profile(DiscardedReads::Zeros), SIZE);
    run("mkfs.ext4", &["-q", drive.device().to_str().unwrap()]);
    let mounted = Mounted::new(drive.device(), "ext4", "");
    let reason = trimtab_refuses(&["drive", "rm", drive.name()]);
    assert!(reason.contains(&format!("is mounted on {}; unmount it", mounted.target.display())), "{reason}");
    assert!(drive.stats().is_ok());
    drop(mounted);
    drive.remove().unwrap();
}

#[test]
fn process_that_uses_a_drive_out_of_sight_is_named() {
    if !possible() {
        return;
    }
    let drive = drive(profile(DiscardedReads::Zeros), SIZE);
    run("mkfs.ext4", &["-q", drive.device().to_str().unwrap()]);
    let mounted = Mounted::new(drive.device(), "ext4", "");
    let mount = mounted.target.display().to_string();
    // It keeps the mounts that were there when it began, but for those of other tests' drives.
    let keep = format!(
        "awk '($1 ~ \"^/dev/loop\" || $2 ~ \"^/run/trimtab/drives/\") && $2 != \"{mount}\" && $2 !~ \"/{}/\" {{ print $2 }}' \
         /proc/self/mounts | xargs --no-run-if-empty --max-args 1 umount --lazy; exec sleep 600",
        drive.name()
    );
    let unshare = ["--mount", "--propagation", "private", "sh", "-c", &keep];
    let elsewhere = Sleeper::new("unshare", &unshare);
    // Its directory stays in use after a lazy unmount.
    let inside = Sleeper::new("sh", &["-c", &format!("cd {mount} && exec sleep 600")]);
    mount::unmount_lazily(&mounted.target).unwrap();
    let refused = || trimtab_refuses(&["drive", "rm", drive.name()]);
    let said = refused();
    let expected =
        format!("in use: sleep (process {}) has files of its file system open; end", inside.0.id());
    assert!(said.contains(&expected), "{said}");
    drop(inside);
    let said = refused();
    let expected = format!(
        "in use: it is mounted on {mount} in the mount namespace of sleep (process {0}); unmount it there first \
         (nsenter --target {0} --mount umount {mount})",
        elsewhere.0.id()
    );
    assert!(said.contains(&expected), "{said}");
    drop(elsewhere);
    wait_until("the drive is free", || trimtab(&["drive", "rm", drive.name()]).status.success());
}

#[test]
fn drive_keeps_no_lock_of_the_shell_that_created_it() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (lock, removed) = (directory.path().join("lock"), Removed(unique("test")));
    let script = format!(
        "exec 9>{lock}; flock 9; {TRIMTAB} drive create {name} --profile ocz-agility-3 --size 256M >/dev/null && exec 9>&- && \
         flock --nonblock {lock} true",
        lock = lock.display(),
        name = removed.0
    );
    run("sh", &["-c", &script]);
    trimtab_prints(&["drive", "stats", &removed.0]);
}

/// A process that has become `sleep`, and is killed when this is dropped.
struct Sleeper(Child);

impl Sleeper {
    fn new(program: &str, arguments: &[&str]) -> Self {
        let sleeper = Self(Command::new(program).args(arguments).spawn().unwrap());
        let name = format!("/proc/{}/comm", sleeper.0.id());
        wait_until("it sleeps", || fs::read_to_string(&name).is_ok_and(|name| name == "sleep\n"));
        sleeper
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn the_next_command_cleans_up_after_a_killed_server() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let options = options(profile(DiscardedReads::Zeros), SIZE);
    let drive = Drive::create(&CreateOptions { data: Some(data.clone()), ..options }).unwrap();
    let name = drive.name().to_owned();
    run("mkfs.ext4", &["-q", drive.device().to_str().unwrap()]);
    let mounted = Mounted::new(drive.device(), "ext4", "");
    fs::write(mounted.target.join("file"), [7; 1 << 20]).unwrap();
    let server = drive.stats().unwrap().server.to_string();
    run("kill", &["-9", &server]);
    wait_until("the server is gone", || !Path::new("/proc").join(&server).exists());
    assert!(matches!(drive.stats(), Err(DriveError::NoAnswer { .. })));
    let listed = trimtab_prints(&["drive", "ls"]);
    // Another test's command may have been the next one.
    assert!(listed.contains(&format!("{name:<32} dead")) || !listed.contains(&name), "{listed}");
    assert!(!is_left(&name));
    assert!(data.exists(), "nobody asked for the data file to go");
    assert!(!trimtab_prints(&["drive", "ls"]).contains(&name));
}

#[test]
fn requests_in_flight_fail_when_the_server_is_killed() {
    if !possible() {
        return;
    }
    const FOR_LONG: Nanos = Nanos(600_000_000_000);
    let mut profile = profile(DiscardedReads::Zeros);
    profile.timing.read.value = FOR_LONG;
    profile.discard.command.value = FOR_LONG;
    let mut options = options(profile, SIZE);
    options.clock = Clock::Real { speed: 1.0 };
    let drive = Drive::create(&options).unwrap();
    // More than the write buffer holds, so that the first page is in the flash.
    let device = open_direct(drive.device());
    (0..8).for_each(|n| device.write_all_at(Aligned::filled(1 << 20, 1).bytes(), n << 20).unwrap());
    let in_flight = |command: fn(&File) -> io::Result<()>| {
        let device = device.try_clone().unwrap();
        let thread = thread::spawn(move || command(&device));
        thread::sleep(Duration::from_millis(100));
        assert!(!thread.is_finished());
        thread
    };
    let threads = [
        in_flight(|device| device.read_exact_at(Aligned::new(4096).bytes_mut(), 0)),
        in_flight(|device| Ok(ioctl::discard(device, Extent::at(Bytes::ZERO, Bytes::MIB))?)),
    ];
    run("kill", &["-9", &drive.stats().unwrap().server.to_string()]);
    for thread in threads {
        wait_until("the command fails", || thread.is_finished());
        let error = thread.join().unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(EIO), "{error}");
    }
}

#[test]
fn data_stays_readable_after_the_model_panics() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for data in [None, Some(directory.path().join("data"))] {
        let options = options(profile(DiscardedReads::Zeros), SIZE);
        let drive = Drive::create(&CreateOptions { data: data.clone(), ..options }).unwrap();
        let device = open_direct(drive.device());
        device.write_all_at(Aligned::filled(1 << 20, 7).bytes(), 0).unwrap();
        // The kernel lets no program name what lies past the block device's end; the file's it does.
        let file = Path::new("/run/trimtab/drives").join(drive.name()).join("fuse/drive");
        let past_its_end = ["--punch-hole", "--length", "4096", "--offset", &SIZE.0.to_string()];
        let output = Command::new("fallocate").args(past_its_end).arg(file).output().unwrap();
        assert!(!output.status.success());
        let write = device.write_all_at(Aligned::filled(4096, 8).bytes(), 0).unwrap_err();
        assert_eq!(write.raw_os_error(), Some(EIO), "{write}");
        assert!(ioctl::discard(&device, Extent::at(Bytes::ZERO, Bytes::MIB)).is_err());
        assert!(read_at(&device, 0, 1 << 20).iter().all(|byte| *byte == 7));
        let reason = trimtab_refuses(&["drive", "stats", drive.name()]);
        assert!(reason.contains("flash model failed") && reason.contains("copy its data"), "{reason}");
        if let Some(data) = data {
            assert!(fs::read(data).unwrap()[..1 << 20].iter().all(|byte| *byte == 7));
        }
        drop(device);
        drive.remove().unwrap();
    }
}

#[test]
fn a_drive_survives_discards_at_its_end_whatever_grain_it_honours() {
    if !possible() {
        return;
    }
    const GRAIN: u64 = 3 << 20;
    let mut odd = profile(DiscardedReads::Zeros);
    odd.discard.honoured_granularity.value = Bytes(GRAIN);
    let drive = drive(odd, SIZE);
    let device = open_direct(drive.device());
    let tail = SIZE.0 / GRAIN * GRAIN;
    device.write_all_at(Aligned::filled(2 << 20, 7).bytes(), SIZE.0 - (2 << 20)).unwrap();
    for start in [SIZE.0 - 4096, tail, 0] {
        ioctl::discard(&device, Extent::new(Bytes(start), SIZE)).unwrap();
    }
    assert!(read_at(&device, tail, (SIZE.0 - tail) as usize).iter().all(|byte| *byte == 7));
    assert_eq!(drive.stats().unwrap().counters.discards, 3);
}

#[test]
fn a_granularity_that_is_no_power_of_two_reaches_the_kernel() {
    if !possible() {
        return;
    }
    for granularity in [1536, 3 << 20].map(Bytes) {
        let mut odd = profile(DiscardedReads::Zeros);
        odd.discard.advertised_granularity.value = granularity;
        let drive = drive(odd, SIZE);
        let limits = drive.stats().unwrap().limits;
        assert_eq!(limits.discard_granularity, granularity);
        assert!(limits.discard_max.0.is_multiple_of(granularity.0), "{}", limits.discard_max);
        ioctl::discard(open_direct(drive.device()), Extent::at(Bytes::ZERO, SIZE)).unwrap();
        assert!(drive.stats().unwrap().counters.discards > 0);
    }
    let mut none = profile(DiscardedReads::Zeros);
    none.discard.advertised_granularity.value = Bytes((1 << 30) - 512);
    let refused = Drive::create(&options(none, SIZE)).unwrap_err();
    assert!(matches!(refused, DriveError::BadGranularity { .. }), "{refused}");
}

#[test]
fn file_in_place_of_a_data_file_is_kept() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let parent = directory.path().join("parent");
    let data = parent.join("data");
    let create = || {
        let options = options(profile(DiscardedReads::Zeros), SIZE);
        Drive::create(&CreateOptions { data: Some(data.clone()), owned: false, ..options }).unwrap()
    };
    // Another file is where it was.
    fs::create_dir(&parent).unwrap();
    let drive = create();
    fs::rename(&data, parent.join("moved")).unwrap();
    fs::write(&data, "precious").unwrap();
    let name = drive.name().to_owned();
    let reason = drive.remove().unwrap_err().to_string();
    assert!(reason.contains(&format!("{} is not the file that held its data", data.display())), "{reason}");
    assert!(!is_left(&name));
    assert_eq!(fs::read(&data).unwrap(), b"precious");
    assert!(parent.join("moved").exists());
    fs::remove_file(&data).unwrap();

    // Its directory is another one.
    let drive = create();
    fs::rename(&parent, directory.path().join("elsewhere")).unwrap();
    let other = directory.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("data"), "precious").unwrap();
    symlink(&other, &parent).unwrap();
    assert!(matches!(drive.remove(), Err(DriveError::DataReplaced { .. })));
    assert_eq!(fs::read(other.join("data")).unwrap(), b"precious");
    assert!(directory.path().join("elsewhere/data").exists());

    // Nothing is where it was.
    fs::remove_file(other.join("data")).unwrap();
    let drive = create();
    fs::remove_file(&data).unwrap();
    drive.remove().unwrap();
}

#[test]
fn figures_of_a_stopped_server_are_not_waited_for() {
    if !possible() {
        return;
    }
    let drive = drive(profile(DiscardedReads::Zeros), SIZE);
    let server = drive.stats().unwrap().server.to_string();
    run("kill", &["-STOP", &server]);
    let output = trimtab(&["drive", "stats", drive.name()]);
    run("kill", &["-CONT", &server]);
    let reason = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{reason}");
    // Another test's drive may be cleaned up by the same command, which says so.
    let name = drive.name();
    let expected =
        format!("the server of drive {name:?} (process {server}) is stopped; continue it with kill -CONT");
    assert!(reason.lines().any(|line| line == format!("trimtab: {expected}")), "{reason}");
    assert!(drive.stats().is_ok());
}

#[test]
fn a_drive_whose_block_device_was_detached_can_be_removed() {
    if !possible() {
        return;
    }
    let drive = drive(profile(DiscardedReads::Zeros), SIZE);
    run("losetup", &["--detach", drive.device().to_str().unwrap()]);
    let reason = trimtab_refuses(&["drive", "stats", drive.name()]);
    assert!(reason.contains("lost its block device; remove it"), "{reason}");
    trimtab_prints(&["drive", "rm", drive.name()]);
    assert!(!is_left(drive.name()));
}

#[test]
fn owned_drive_is_removed_with_its_creator() {
    if !possible() {
        return;
    }
    let drive = drive(profile(DiscardedReads::Zeros), SIZE);
    let name = drive.name().to_owned();
    let device = drive.device().to_str().unwrap().to_owned();
    run("mkfs.ext4", &["-q", &device]);
    run("mount", &[device.as_str(), drive.mount_point().to_str().unwrap()]);
    let elsewhere = Mounted::new(drive.device(), "ext4", "");
    let file = elsewhere.target.join("file");
    fs::write(&file, [7; 1 << 20]).unwrap();
    drop(drive);
    wait_until("the drive is gone", || !is_left(&name) && !file.exists());
}

/// Its creator may have removed that drive meanwhile, and created another of the same name.
#[test]
fn a_drive_outlives_the_late_removal_of_an_earlier_one() {
    if !possible() {
        return;
    }
    let drive = drive(profile(DiscardedReads::Zeros), SIZE);
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    trimtab_prints(&["drive", "serve", drive.name(), "--release", &ended.id().to_string()]);
    drive.stats().unwrap();
    assert!(drive.device().exists() && is_left(drive.name()));
}

#[test]
fn impossible_drives_are_refused_and_leave_nothing() {
    if !possible() {
        return;
    }
    let refuses = |name: &str, profile: &str, size: &str, more: &[&str]| {
        let create = ["drive", "create", name, "--profile", profile, "--size", size];
        let reason = trimtab_refuses(&[&create, more].concat());
        assert!(!is_left(name));
        reason
    };
    let name = &unique("refused");
    let bad_name = trimtab_refuses(&["drive", "create", "../x", "--profile", "nvme-tlc", "--size", "1G"]);
    assert!(bad_name.contains("cannot be a drive's name"), "{bad_name}");
    let option = trimtab_refuses(&["drive", "create", "--profile", "nvme-tlc", "--size", "1G", "--", "-x"]);
    assert!(option.contains("cannot be a drive's name") && option.contains("the first no dash"), "{option}");
    assert!(refuses(name, "floppy", "1G", &[]).contains("there is no drive profile \"floppy\"; there are"));
    assert!(refuses(name, "./no.toml", "1G", &[]).contains("cannot read the profile ./no.toml"));
    assert!(refuses(name, "nvme-tlc", "1000", &[]).contains("1000 B cannot be a drive's size"));
    assert!(refuses(name, "nvme-tlc", "4K", &[]).contains("erase block"));
    assert!(refuses(name, "nvme-tlc", "1G", &["--speed", "2"]).contains("add --clock real"));
    let slow = refuses(name, "nvme-tlc", "1G", &["--clock", "real", "--speed", "0"]);
    assert!(slow.contains("0 cannot be a speed"), "{slow}");
    let standing = refuses(name, "nvme-tlc", "1G", &["--clock", "real", "--speed", "1e-300"]);
    assert!(standing.contains("cannot be a speed; use a number from 0.001"), "{standing}");
    assert!(refuses(name, "nvme-tlc", "4096T", &[]).contains("choose a smaller size, a file for the data"));

    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    let full = refuses(name, "nvme-tlc", "4096T", &["--data", data]);
    assert!(full.contains("choose a smaller size, another disk, or --sparse"), "{full}");
    assert!(!Path::new(data).exists());
    fs::write(data, "precious").unwrap();
    assert!(refuses(name, "nvme-tlc", "1G", &["--data", data]).contains("exists; remove it"));
    assert_eq!(fs::read(data).unwrap(), b"precious");
}

#[test]
fn users_other_than_root_get_a_clear_error() {
    if !possible() {
        return;
    }
    const NOBODY: u32 = 65_534;
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let binary = directory.path().join("trimtab");
    copy_program(&binary);
    let output = Command::new(binary).args(["drive", "ls"]).uid(NOBODY).gid(NOBODY).output().unwrap();
    assert_eq!(output.stderr, b"trimtab: emulated drives need root; run it with sudo\n");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn process_that_is_no_server_is_reported() {
    if !possible() {
        return;
    }
    let mut options = options(profile(DiscardedReads::Zeros), SIZE);
    options.server = "/bin/false".into();
    assert!(matches!(Drive::create(&options), Err(DriveError::NoAnswer { .. })));
    assert!(!is_left(&options.name));
}

#[test]
fn a_loop_device_gets_its_limits_back() {
    if !possible() {
        return;
    }
    let mut limited = profile(DiscardedReads::Zeros);
    limited.discard.command_limit.value = Bytes::MIB;
    let drive = drive(limited, SIZE);
    let block = BlockDevice::open(Path::new(SYSFS), drive.device()).unwrap();
    assert_eq!(block.discard_limits().unwrap().max, Bytes::MIB);
    drive.remove().unwrap();
    let limits = block.discard_limits().unwrap();
    assert!(limits.max_hardware - limits.max < Bytes(4096), "all but a part of a grain: {limits:?}");
    assert_eq!(block.queue_requests().unwrap(), 128);
}
