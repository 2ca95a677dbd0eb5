//! Targets that cannot be examined.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;
use trimtab_core::document::DoctorDocument;
use trimtab_core::verdict::Verdict;

use crate::common::possible;
use crate::mounts::{Loop, Mounted};
use crate::program::copy_program;
use crate::support::{DISK, OnLoop, doctor};

/// Returns the one line of stderr and the exit code.
fn said(output: &Output) -> (String, Option<i32>) {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}{}", String::from_utf8_lossy(&output.stdout));
    (text, output.status.code())
}

/// Asserts that the layers are reported, and the reason why the canary was skipped.
fn assert_unproved(output: &Output, why: &str) {
    let document: DoctorDocument = serde_json::from_slice(&output.stdout).unwrap();
    let [target] = document.targets.as_slice() else { panic!("{document:#?}") };
    assert!(!target.layers.is_empty() && target.canary.is_none(), "{target:#?}");
    let is_reason = |line: &String| line.starts_with("no proof: ") && line.contains(why);
    assert!(document.left_out.iter().any(is_reason), "{:?}", document.left_out);
    assert!(matches!(output.status.code(), Some(1 | 4)) && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn invalid_targets_are_named_in_one_line() {
    let dir = TempDir::new().unwrap();
    let empty = dir.path().to_str().unwrap();
    let file = std::env::current_exe().unwrap();
    let file = file.to_str().unwrap();
    let cases: [(&[&str], &str, &str); 7] = [
        (&[], "/nonexistent", "/nonexistent"),
        (&[], "/dev/null", "not a block device"),
        (&["--sysfs", "/nonexistent"], "/", "/nonexistent"),
        (&["--sysfs", empty], "/", empty),
        (&["--sysfs", file], "/", "unpack it"),
        (&["--profile", "/nonexistent.toml"], "/", "/nonexistent.toml"),
        (&["--capture", "/nonexistent/x.tar.gz"], "/", "/nonexistent/x.tar.gz"),
    ];
    for (arguments, path, expected) in cases {
        let (text, code) = said(&doctor(arguments, &[Path::new(path)]));
        assert!(text.contains(expected) && code == Some(1), "{text}");
    }
    let (_, code) = said(&doctor(&["--all"], &[Path::new("/")]));
    assert_eq!(code, Some(2));
}

#[test]
fn canary_is_skipped_where_it_is_impossible() {
    if !possible() {
        return;
    }
    let read_only = OnLoop::new("tmpfs", "ext4", "ro");
    assert_unproved(&doctor(&["--json", "--canary"], &[&read_only.upper.target]), "read-only");
    assert_unproved(&doctor(&["--json", "--canary"], &[&read_only.lower.target]), "no file system on");
    let mounted = format!("is mounted at {}", read_only.upper.target.display());
    assert_unproved(&doctor(&["--json", "--canary"], &[&read_only.device.device]), &mounted);

    let full = OnLoop::new("tmpfs", "ext4", "");
    // Fill the file system.
    let filled =
        Command::new("fallocate").args(["-l", "1G"]).arg(full.upper.target.join("file")).output().unwrap();
    assert!(!filled.status.success());
    let dd = format!("dd if=/dev/zero of={}/file bs=1M status=none", full.upper.target.display());
    Command::new("sh").args(["-c", &dd]).output().unwrap();
    assert_unproved(&doctor(&["--json", "--canary"], &[&full.upper.target]), "space");
}

#[test]
fn doctor_without_root_reports_what_it_can() {
    if !possible() {
        return;
    }
    // A directory that everybody may enter, and a copy of the program there.
    let dir = TempDir::with_prefix_in("doctor", "/var/tmp").unwrap();
    let program = dir.path().join("trimtab");
    copy_program(&program);
    let opened = Command::new("chmod").args(["-R", "a+rX"]).arg(dir.path()).status().unwrap();
    assert!(opened.success());
    let unprivileged = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.uid(65534).gid(65534).arg("doctor").args(arguments).output().unwrap()
    };
    let plain = unprivileged(&["/"]);
    let text = String::from_utf8(plain.stdout).unwrap();
    assert!(text.starts_with("/: ") && plain.status.code() != Some(101), "{text}");
    assert_unproved(&unprivileged(&["--json", "--canary", "/"]), "root");

    // The file system of a private file must not be guessed.
    let memory = Mounted::new(Path::new("memory"), "tmpfs", "");
    let private = memory.target.join("private");
    let directory = private.join("images");
    fs::create_dir_all(&directory).unwrap();
    fs::set_permissions(&private, Permissions::from_mode(0o700)).unwrap();
    let device = Loop::new(&directory, DISK);
    let hidden = unprivileged(&["--json", device.device.to_str().unwrap()]);
    let document: DoctorDocument = serde_json::from_slice(&hidden.stdout).unwrap();
    assert_eq!(document.verdict, Some(Verdict::Unknown), "{document:#?}");
    assert!(document.left_out.iter().any(|line| line.contains("run as root")), "{:?}", document.left_out);
}
