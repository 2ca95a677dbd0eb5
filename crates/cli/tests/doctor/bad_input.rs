//! What can't be looked at.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common::possible;
use crate::support::{OnLoop, TRIMTAB, doctor};

/// The one line that is said, and the exit code.
fn said(output: &Output) -> (String, Option<i32>) {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}{}", String::from_utf8_lossy(&output.stdout));
    (text, output.status.code())
}

#[test]
fn what_is_no_target_is_named_in_one_line() {
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
        (&["--drive", "/nonexistent.toml"], "/", "/nonexistent.toml"),
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
fn no_canary_flies_where_it_can_not() {
    if !possible() {
        return;
    }
    let read_only = OnLoop::new("tmpfs", "ext4", "ro");
    let (text, code) = said(&doctor(&["--canary"], &[&read_only.upper.target]));
    assert!(text.contains("read-only") && code == Some(1), "{text}");

    let full = OnLoop::new("tmpfs", "ext4", "");
    // As much as there is.
    let filled =
        Command::new("fallocate").args(["-l", "1G"]).arg(full.upper.target.join("file")).output().unwrap();
    assert!(!filled.status.success());
    let dd = format!("dd if=/dev/zero of={}/file bs=1M status=none", full.upper.target.display());
    Command::new("sh").args(["-c", &dd]).output().unwrap();
    let (text, code) = said(&doctor(&["--canary"], &[&full.upper.target]));
    assert!(text.contains("space") && code == Some(1), "{text}");
}

#[test]
fn without_root_what_can_be_said_is_said() {
    if !possible() {
        return;
    }
    // A directory that everybody may enter, and a copy of the program there.
    let dir = TempDir::with_prefix_in("doctor", "/var/tmp").unwrap();
    let program = dir.path().join("trimtab");
    std::fs::copy(TRIMTAB, &program).unwrap();
    let opened = Command::new("chmod").args(["-R", "a+rX"]).arg(dir.path()).status().unwrap();
    assert!(opened.success());
    let unprivileged = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.uid(65534).gid(65534).arg("doctor").args(arguments).output().unwrap()
    };
    let plain = unprivileged(&["/"]);
    let text = String::from_utf8(plain.stdout).unwrap();
    assert!(text.starts_with("/: ") && plain.status.code() != Some(101), "{text}");
    let (text, code) = said(&unprivileged(&["--canary", "/"]));
    assert!(text.contains("root") && code == Some(1), "{text}");
}
