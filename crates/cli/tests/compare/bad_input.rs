//! Whatever is wrong is said in one line, before any work.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use trimtab_keeper::service::control;

use crate::program::copy_program;
use crate::support::{Mounted, compare, possible};

/// Runs it, and returns its exit code and the one line it says.
fn refused(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.trim_end().lines().count(), 1, "one line: {said}");
    assert!(said.starts_with("trimtab: "), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    (output.status.code(), said)
}

#[test]
fn unknown_names_list_the_known_ones() {
    for (arguments, code, known) in [
        (["--fs", "zfs"], 2, "ext4, xfs, btrfs"),
        (["--policy", "sometimes"], 2, "none, online, async, batched, smart"),
        (["--workload", "mine"], 1, "fragment, tree, laptop, database, builds, postmark"),
        (["--postmark", "files=3"], 1, "--workload postmark"),
        (["--postmark", "pairs=3"], 2, "files, transactions, sizes"),
        (["--postmark", "read_bias=11"], 2, "from 0 to 10"),
        (["--profile", "floppy"], 1, "ocz-agility-3, ocz-vertex-le"),
        (["--profile", "/no/such.toml"], 1, "/no/such.toml"),
        (["--size", "lots"], 2, "not a number with a unit"),
        (["--runs", "0"], 2, "not in 1..=1000"),
        (["--writers", "0"], 2, "not in 1..=64"),
        (["--writers", "65"], 2, "not in 1..=64"),
        (["--full", "96"], 2, "not in 0..=95"),
        (["--room", "1G"], 1, "room of 1 GiB is larger than the drive of 512 MiB"),
        (["--tree", "/usr"], 1, "--workload tree"),
        (["--idle", "sometimes"], 2, "expected number at 0"),
        (["--idle", "5000d"], 2, "longer than"),
        (["--clock", "sundial"], 2, "virtual, real"),
        (["--speed", "2"], 1, "add --clock real"),
        (["--kernel", "/no/such/vmlinuz"], 1, "/no/such/vmlinuz"),
        (["--smart-profile", "/no/such.toml"], 1, "/no/such.toml"),
        (["--json", "/dev/null"], 1, "/dev/null: it is not a regular file"),
    ] {
        let (status, said) = refused(&mut compare(&arguments));
        assert_eq!(status, Some(code), "{said}");
        assert!(said.contains(known), "{said}");
    }
}

#[test]
fn work_that_has_one_writer_is_not_divided() {
    let dir = TempDir::new().unwrap();
    let tree = dir.path().to_str().unwrap();
    for (arguments, reason) in [
        (&["--", "true"][..], "a command of your own cannot be divided among writers"),
        (&["--workload", "tree", "--tree", tree], "a tree of your own cannot be divided"),
        (&["--workload", "fsck"], "the workload fsck cannot be divided"),
        (&["--workload", "tree", "--tree-files", "2"], "2 files are fewer than 3 writers"),
        (&["--workload", "postmark", "--postmark", "files=2"], "2 files are fewer than 3 writers"),
    ] {
        let (status, said) = refused(compare(&["--writers", "3"]).args(arguments));
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn whole_drive_that_cannot_be_had_is_refused() {
    for (arguments, reason) in [
        (
            &["--size", "whole", "--profile", "micron-emmc"][..],
            "micron-emmc does not say how large the whole drive is",
        ),
        (&["--size", "whole", "--on", "/tmp"], "leave out --on"),
        (&["--size", "whole", "--workload", "fsck"], "fsck makes and checks whole file systems"),
        (&["--full", "50", "--workload", "mkfs"], "mkfs makes and checks whole file systems"),
    ] {
        let (status, said) = refused(&mut compare(arguments));
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn non_unicode_argument_causes_no_panic() {
    let odd = OsStr::from_bytes(b"/no/such/\xff.json");
    let (status, said) = refused(compare(&["--json"]).arg(odd));
    assert_eq!(status, Some(1), "{said}");
}

#[test]
fn closed_stderr_causes_no_panic() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = compare(&["--workload", "mine"]).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn unusable_directories_are_refused() {
    if !possible() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    for (arguments, reason) in [
        (&["--on", "/no/such/dir"][..], "/no/such/dir"),
        (&["--on", file], "Not a directory"),
        (&["--on", "/proc"], "/proc takes no discards"),
        (&["--on", "/proc", "--policy", "none"], "make a directory in /proc"),
        (&["--report", file, "--fs", "ext4"], file),
        (&["--json", "/no/such/dir/out.json", "--fs", "ext4"], "/no/such/dir/out.json"),
        (&["--size", "100M", "--fs", "xfs", "--profile", "ocz-agility-3"], "too small for xfs"),
        (&["--size", "64M", "--fs", "ext4", "--profile", "nvme-tlc"], "nvme-tlc"),
        (&["--workload", "tree", "--tree", "/no/tree"], "/no/tree"),
    ] {
        let (status, said) = refused(&mut compare(arguments));
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn directory_that_the_service_manages_is_refused() {
    if !possible() {
        return;
    }
    let mounted = Mounted::new("nodiscard");
    let home = TempDir::new().unwrap();
    let config = home.path().join("config.toml");
    let table = format!("[mount.\"{}\"]\npolicy = \"smart\"\n", mounted.dir());
    std::fs::write(&config, table + "[defaults]\npolicy = \"none\"\n").unwrap();
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_trimtab"));
    daemon.arg("daemon").arg("--config").arg(&config);
    daemon.arg("--run").arg(home.path()).arg("--state").arg(home.path()).stderr(Stdio::null());
    let mut daemon = daemon.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while control::status(home.path()).is_err() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let run = home.path().to_str().unwrap();
    let on = ["--on", mounted.dir(), "--policy", "none", "--runs", "1", "--run", run, "--", "true"];
    let managed = compare(&on).output().unwrap();
    kill_process(Pid::from_child(&daemon), Signal::TERM).unwrap();
    assert!(daemon.wait().unwrap().success());
    let said = String::from_utf8(managed.stderr).unwrap();
    let expected = format!("trimtab: the service manages {}, and its trims would count", mounted.dir());
    assert!(said.starts_with(&expected) && said.lines().count() == 1, "{said}");
    assert_eq!(managed.status.code(), Some(1));
    assert!(compare(&on).output().unwrap().status.success(), "now nobody manages it");
}

#[test]
fn guests_without_qemu_or_without_the_command_are_refused() {
    let dir = TempDir::new().unwrap();
    std::os::unix::fs::symlink("/usr/sbin/mkfs.ext4", dir.path().join("mkfs.ext4")).unwrap();
    let (status, said) = refused(compare(&[]).env("PATH", dir.path()));
    assert_eq!(status, Some(1));
    assert!(said.contains("qemu-system-x86") && said.contains("--clock real"), "{said}");
    let (status, said) = refused(&mut compare(&["--", "/no/such/program"]));
    assert_eq!(status, Some(1));
    assert!(said.contains("/no/such/program") && said.contains("--guest-file"), "{said}");
}

#[test]
fn a_missing_program_names_its_package() {
    if !possible() {
        return;
    }
    let (status, said) = refused(compare(&["--fs", "xfs"]).env("PATH", "/nowhere"));
    assert_eq!(status, Some(1));
    assert!(said.contains("mkfs.xfs") && said.contains("xfsprogs"), "{said}");
}

#[test]
fn missing_root_is_reported() {
    if !possible() {
        return;
    }
    const NOBODY: u32 = 65534;
    let trimtab = TempDir::new().unwrap();
    let copy = trimtab.path().join("trimtab");
    copy_program(&copy);
    for dir in [trimtab.path(), &copy] {
        std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new(&copy);
        command.arg("compare").args(arguments).uid(NOBODY).gid(NOBODY).current_dir("/");
        refused(&mut command).1
    };
    assert!(as_nobody(&["--clock", "real"]).contains("root"));
    let mounted = Mounted::new("nodiscard");
    let dir = mounted.dir();
    assert!(as_nobody(&["--on", dir]).contains("needs root"));
    assert!(as_nobody(&["--on", dir, "--policy", "none"]).contains("make a directory in"));
}
