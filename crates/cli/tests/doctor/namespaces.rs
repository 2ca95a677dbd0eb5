//! File systems that only another process sees mounted.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use trimtab_core::document::DoctorDocument;

use crate::common::possible;
use crate::mounts::Loop;
use crate::support::{DISK, TRIMTAB};

/// A process with mounts of its own, which ends with the test.
struct Apart(Child);

impl Drop for Apart {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn mounts_of_another_process_are_examined() {
    if !possible() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let place = dir.path().join("apart");
    fs::create_dir(&place).unwrap();
    let device = Loop::new(dir.path(), DISK);
    assert!(Command::new("mkfs.ext4").arg("-q").arg(&device.device).status().unwrap().success());
    let script = "mount \"$1\" \"$2\" && echo ready && exec sleep 1000";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(&device.device).arg(&place);
    let mut apart = Apart(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut ready = String::new();
    BufReader::new(apart.0.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");

    let examined = |arguments: &[&str]| {
        let mut command = Command::new(TRIMTAB);
        let output = command.args(arguments).args(["doctor", "--json"]).arg(&place).output().unwrap();
        let document: DoctorDocument = serde_json::from_slice(&output.stdout).unwrap();
        document.targets[0].target.clone()
    };
    assert_ne!(examined(&[]), place.display().to_string(), "it is not mounted here");
    assert_eq!(examined(&["--mounts-of", &apart.0.id().to_string()]), place.display().to_string());

    let refused = Command::new(TRIMTAB).args(["--mounts-of", "4194305", "doctor"]).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("cannot open /proc/4194305/ns/mnt"), "{said}");
}

#[test]
fn process_of_a_container_without_the_host_is_refused() {
    if !possible() {
        return;
    }
    for verb in ["status", "daemon"] {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--mount-proc", TRIMTAB, "--mounts-of", "1", verb]);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{verb}: {said}");
        assert!(
            said.contains("process 1 is trimtab itself; let it see the host's processes"),
            "{verb}: {said}"
        );
    }
}
