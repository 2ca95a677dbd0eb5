//! Bad input is refused in one line.

use std::path::Path;

use crate::common::possible;
use crate::support::{said, small, watch};

#[test]
fn targets_without_a_device_are_refused() {
    if !possible() {
        return;
    }
    for (target, reason) in [
        ("/nonexistent/mount", "cannot open /nonexistent/mount"),
        ("/dev/null", "which is on no block device"),
        ("/proc", "which is on no block device"),
    ] {
        let output = watch(&[], &[Path::new(target)]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{target}");
        assert!(output.stdout.is_empty());
        let reason_given = said(&output);
        assert!(reason_given.contains(reason), "{reason_given}");
    }
}

#[test]
fn invalid_arguments_are_refused() {
    for (arguments, reason) in [
        (&["--interval", "0s"][..], "at least 10ms"),
        (&["--interval", "soon"], "'--interval <TIME>'"),
        (&["--settle", "1s"], "required"),
        (&["--no-sync"], "required"),
        (&["--duration", "1s", "--", "true"], "cannot be used with"),
        (&["--no-sync", "--settle", "1s", "--", "true"], "cannot be used with"),
    ] {
        let output = watch(arguments, &[]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let reason_given = said(&output);
        assert!(reason_given.contains(reason), "{reason_given}");
    }
}

#[test]
fn missing_command_or_file_is_named() {
    if !possible() {
        return;
    }
    let on = small();
    let output = watch(&[], &[&on.device]).args(["--", "/nonexistent/program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(said(&output).contains("cannot run /nonexistent/program"));
    let output = watch(&["--output", "/nonexistent/file"], &[&on.device]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("/nonexistent/file: there is no directory /nonexistent"));
}
