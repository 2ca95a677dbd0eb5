//! Compares the output on captured machines with stored output. Each capture in `data/machines` is a stack of
//! `vm/stacks` that `trimtab doctor --capture` packed in the guest. Setting `TRIMTAB_BLESS` in the environment
//! rewrites the stored output.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::doctor;

#[test]
fn output_on_captured_machines_is_unchanged() {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/machines");
    let files = fs::read_dir(machines).unwrap().map(|entry| entry.unwrap().path());
    let archives: Vec<_> = files.filter(|file| file.extension() == Some(OsStr::new("gz"))).collect();
    assert!(!archives.is_empty());
    for archive in archives {
        let root = TempDir::new().unwrap();
        unpack(&archive, root.path());
        let output = doctor(&["--sysfs", root.path().to_str().unwrap()], &[]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.stderr, b"", "{}", archive.display());
        let expected = archive.with_extension("").with_extension("txt");
        if std::env::var_os("TRIMTAB_BLESS").is_some() {
            fs::write(&expected, &said).unwrap();
        }
        assert_eq!(said, fs::read_to_string(&expected).unwrap(), "{}", archive.display());
    }
}

#[test]
fn several_targets_begin_with_a_line_each() {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/machines/lvm-luks-md.tar.gz");
    let root = TempDir::new().unwrap();
    unpack(&archive, root.path());
    let output = doctor(&["--sysfs", root.path().to_str().unwrap()], &["/mnt", "/dev/md0"].map(Path::new));
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = said.lines().take(4).collect();
    let verdict = "discards reach the bottom";
    let expected = [
        format!("/mnt      ext4  {verdict}; 1 thing to mend"),
        format!("/dev/md0  –     {verdict}"),
        String::new(),
        format!("/mnt: {verdict}"),
    ];
    assert_eq!(lines, expected, "{said}");
}

fn unpack(archive: &Path, root: &Path) {
    let unpacked = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(root).status();
    assert!(unpacked.unwrap().success(), "{}", archive.display());
}
