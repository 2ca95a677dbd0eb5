//! Bad input is refused in one line, before anything is written.

use std::os::unix::process::CommandExt;
use std::process::Command;

use tempfile::TempDir;

use crate::support::{TRIMTAB, possible, record};

/// Returns the exit code and the one line of a refusal, and asserts that there is no other output and no trace.
fn refused(arguments: &[&str]) -> (i32, String) {
    let dir = TempDir::new().unwrap();
    let trace = dir.path().join("t.parquet");
    let output = record(&[&["-o", trace.to_str().unwrap()], arguments].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((said.lines().count(), output.stdout.len()), (1, 0), "{said}");
    assert!(!trace.exists());
    (output.status.code().unwrap(), said)
}

#[test]
fn targets_without_a_device_are_named() {
    if !possible() {
        return;
    }
    for (target, words) in [
        ("/nonexistent", "cannot open /nonexistent"),
        ("/proc", "/proc is on proc, which is on no block device"),
    ] {
        for arguments in [&["-d", target, "--duration", "1s"][..], &[target, "--duration", "1s"]] {
            let (code, said) = refused(arguments);
            assert!(code == 1 && said.contains(words), "{code} {said}");
        }
    }
}

#[test]
fn command_that_cannot_be_run_leaves_no_trace() {
    if !possible() {
        return;
    }
    let (code, said) = refused(&["--", "/nonexistent/program"]);
    assert_eq!(code, 127);
    assert!(said.starts_with("trimtab: cannot run /nonexistent/program: No such file"), "{said}");
}

#[test]
fn invalid_arguments_are_refused() {
    for arguments in
        [&["--kinds", "trim"][..], &["--duration", "soon"], &["--buffer", "much"], &["--no-sync"]]
    {
        let (code, said) = refused(arguments);
        assert_eq!(code, 2, "{said}");
    }
}

#[test]
fn existing_file_is_kept() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("mine");
    std::fs::write(&file, "dear").unwrap();
    let output = record(&["-o", file.to_str().unwrap(), "--duration", "1s"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("exists; --overwrite replaces it"), "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), b"dear");
}

#[test]
fn a_trace_does_not_go_to_stdout() {
    let dir = TempDir::new().unwrap();
    let output = Command::new(TRIMTAB).args(["record", "-o", "-"]).current_dir(dir.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(said, "trimtab: a trace goes to a file, not to stdout; name one with -o\n");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn user_without_rights_gets_a_clear_error() {
    if !possible() {
        return;
    }
    let nobody = 65534;
    let output = Command::new(TRIMTAB)
        .args(["record", "-o", "/tmp/trimtab-refused.parquet", "--duration", "1s"])
        .uid(nobody)
        .gid(nobody)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.lines().count() == 1 && said.contains("run as root"), "{said}");
}

#[test]
fn file_that_resembles_a_leftover_is_kept() {
    if !possible() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("t.parquet"), "old").unwrap();
    std::fs::write(at("t.parquet.replaced"), "dear").unwrap();
    let out = at("t.parquet");
    let arguments = ["-o", out.to_str().unwrap(), "--overwrite", "--no-sync", "--"];
    let fails = record(&[&arguments[..], &["/nonexistent/program"]].concat());
    assert_eq!(fails.status.code(), Some(127));
    assert_eq!(std::fs::read(at("t.parquet")).unwrap(), b"old");
    let works = record(&[&arguments[..], &["true"]].concat());
    assert!(works.status.success(), "{}", String::from_utf8_lossy(&works.stderr));
    assert!(std::fs::read(at("t.parquet")).unwrap().starts_with(b"PAR1"));
    assert_eq!(std::fs::read(at("t.parquet.replaced")).unwrap(), b"dear");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}
