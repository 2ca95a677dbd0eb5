//! Errors are reported in one line.

use std::process::{Command, Output};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use crate::support::{TRIMTAB, refused};

fn trimtab(arguments: &[&str]) -> Output {
    Command::new(TRIMTAB).args(arguments).output().unwrap()
}

#[test]
fn configurations_are_checked() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("trimtab.toml");
    let check = |text: &str| {
        std::fs::write(&path, text).unwrap();
        trimtab(&["daemon", "--check-config", "--config", path.to_str().unwrap()])
    };
    let good = check("[defaults]\npolicy = \"smart\"\n\n[mount.\"/hom\"]\npolicy = \"batched:1w\"\n");
    let said = String::from_utf8(good.stderr).unwrap();
    assert!(good.status.success() && said.contains("trimtab.toml can be used\n"), "{said}");
    assert!(said.ends_with("/hom: no file system on a block device is mounted there yet\n"), "{said}");
    for (text, message) in [
        (
            "[mount.\"/home\"]\npolicy = \"online\"\n",
            "trimtab.toml: mount./home.policy: \"online\" is not a policy",
        ),
        (
            "[metrics]\naddress = \"0.0.0.0:80\"\n",
            "metrics.address: 0.0.0.0:80 can be reached from other machines",
        ),
        ("x", "trimtab.toml: line 1:"),
    ] {
        let said = refused(&check(text));
        assert!(said.contains(message), "{said}");
    }
    let said = refused(&trimtab(&["daemon", "--check-config", "--config", "/nowhere.toml"]));
    assert!(said.contains("cannot read /nowhere.toml: No such file"), "{said}");
}

#[test]
fn endless_configurations_are_refused() {
    let dir = TempDir::new().unwrap();
    let pipe = dir.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    for (file, reason) in [
        ("/dev/zero", "cannot read /dev/zero: it is not a regular file"),
        (pipe.to_str().unwrap(), "it is not a regular file"),
        // Its metadata say that it is empty.
        ("/proc/kallsyms", "/proc/kallsyms is larger than 1048576 bytes"),
    ] {
        let said = refused(&trimtab(&["daemon", "--check-config", "--config", file]));
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn status_without_a_service_is_an_error() {
    let said = refused(&trimtab(&["status", "--run", "/nowhere"]));
    assert!(said.contains("the service is not running: start it with"), "{said}");
}
