//! Invalid targets and options are refused with one line, before anything is trimmed.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use trimtab_drive::Clock;

use crate::program::copy_program;
use crate::support::{TRIMTAB, Testbed, possible, refused, run};

#[test]
fn paths_that_are_not_mount_points_are_refused() {
    if !possible() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let (code, reason) = refused(&[], dir.path());
    assert_eq!(code, Some(1));
    assert!(reason.contains("is not a mount point; to trim its file system, name /"), "{reason}");
    assert!(refused(&[], Path::new("/no/such")).1.starts_with("trimtab: cannot open /no/such: "));
    assert!(refused(&[], Path::new("/proc")).1.contains("/proc is a proc, which is not on a block device"));
    assert_eq!(refused(&["--quiet-unsupported"], Path::new("/proc")), (Some(0), String::new()));
}

#[test]
fn devices_are_refused_with_their_mount_point() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "btrfs"] {
        let mut testbed = Testbed::new(fstype, Clock::Model);
        let device = testbed.drive.device().to_owned();
        let (code, reason) = refused(&[], &device);
        assert_eq!(code, Some(1));
        let on = format!("name the mount point: {}\n", testbed.place().display());
        assert!(reason.contains("is a device; to trim") && reason.ends_with(&on), "{reason}");
        testbed.unmount();
        let reason = refused(&[], &device).1;
        assert!(reason.contains("is a device, and nothing is mounted from it"), "{reason}");
    }
}

#[test]
fn read_only_mount_is_refused() {
    if !possible() {
        return;
    }
    let testbed = Testbed::new("ext4", Clock::Model);
    run(Command::new("mount").args(["-o", "remount,ro"]).arg(testbed.place()));
    let touched = testbed.during(|| {
        let (code, reason) = refused(&[], &testbed.place());
        assert_eq!(code, Some(1));
        assert!(reason.contains("is mounted read-only and cannot be trimmed"), "{reason}");
        assert_eq!(refused(&["--quiet-unsupported"], &testbed.place()), (Some(0), String::new()));
    });
    assert_eq!(touched.discards, 0);
}

#[test]
fn root_of_a_user_namespace_is_told_to_trim_on_the_host() {
    if !possible() {
        return;
    }
    let testbed = Testbed::new("ext4", Clock::Model);
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", TRIMTAB, "trim"]).arg(testbed.place());
    let output = unshare.output().unwrap();
    let reason = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{reason}");
    assert!(
        reason.contains(": it is not allowed in this ") && reason.contains("; trim it on the host"),
        "{reason}"
    );
    assert!(!reason.contains("as root") && reason.lines().count() == 1, "{reason}");
}

#[test]
fn list_of_which_nothing_takes_discards_is_explained() {
    if !possible() {
        return;
    }
    let testbed = Testbed::new("ext4", Clock::Model);
    let name = testbed.drive.device().file_name().unwrap().to_str().unwrap().to_owned();
    fs::write(format!("/sys/block/{name}/queue/discard_max_bytes"), "0").unwrap();
    let list = testbed.dir.path().join("list");
    fs::write(&list, format!("/dev/{name} {} ext4 rw 0 0\n", testbed.place().display())).unwrap();
    let output = Command::new(TRIMTAB).args(["trim", "-I"]).arg(&list).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("nothing trimmed: none of 1 file systems") && said.contains("trimtab doctor more"),
        "{said}"
    );
}

#[test]
fn users_other_than_root_are_refused() {
    if !possible() {
        return;
    }
    let testbed = Testbed::new("ext4", Clock::Model);
    // Others have to get to the binary and the mount point.
    let dir = TempDir::new().unwrap();
    let binary = dir.path().join("trimtab");
    copy_program(&binary);
    for path in [dir.path(), testbed.dir.path()] {
        run(Command::new("chmod").arg("755").arg(path));
    }
    let line = format!("{} trim {}", binary.display(), testbed.place().display());
    let output = Command::new("su").args(["nobody", "-s", "/bin/sh", "-c", &line]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let reason = String::from_utf8(output.stderr).unwrap();
    assert!(reason.contains(": run this as root") && reason.lines().count() == 1, "{reason}");
}

#[test]
fn invalid_ranges_and_goals_are_refused() {
    if !possible() {
        return;
    }
    let testbed = Testbed::new("ext4", Clock::Model);
    let (code, reason) = refused(&["-o", "1T"], &testbed.place());
    assert_eq!(code, Some(1));
    assert!(
        reason.contains("/mnt: the range begins at 1 TiB, and the file system ends at 1 GiB or before"),
        "{reason}"
    );
    let (code, reason) = refused(&["-o", "0", "-l", "100"], &testbed.place());
    assert_eq!(code, Some(1));
    let short = "/mnt: the range has 100 B, less than a block of the file system (4 KiB)";
    assert!(reason.contains(short), "{reason}");
    for wrong in [&["-l", "0"] as &[&str], &["--max-busy", "0"], &["--max-busy", "101"], &["-o", "x"]] {
        let (code, reason) = refused(wrong, &testbed.place());
        assert!(matches!(code, Some(1 | 2)) && reason.lines().count() == 1, "{wrong:?}: {reason}");
    }
    assert_eq!(refused(&["--unpaced", "--idle-only"], &testbed.place()).0, Some(2));
    assert_eq!(refused(&["-n", "--profile", "floppy"], &testbed.place()).0, Some(1));
}

#[test]
fn second_trim_of_a_file_system_is_refused() {
    if !possible() {
        return;
    }
    let testbed = Testbed::new("ext4", Clock::Real { speed: 1.0 });
    testbed.fragment(400, 100 << 10);
    let mut first = testbed.command(&["-m", "0", "-q"]).spawn().unwrap();
    let state = || fs::read_dir(testbed.dir.path()).unwrap().flatten().count();
    while state() < 2 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let second = testbed.command(&["-m", "0"]).output().unwrap();
    let reason = String::from_utf8(second.stderr).unwrap();
    assert!(reason.contains("another trimtab trim of"), "{reason}");
    assert!(first.wait().unwrap().success());
}
