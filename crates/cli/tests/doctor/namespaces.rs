//! File systems that only another process sees mounted.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use trimtab_core::document::DoctorDocument;

use crate::common::possible;
use crate::mounts::Loop;
use crate::support::{DISK, OnLoop, TRIMTAB, doctor};

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

    // Another process with the same mounts, this test.
    let process = std::process::id().to_string();
    let refused = Command::new(TRIMTAB).args(["--mounts-of", &process, "doctor"]).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains(&format!("process {process} has the same mounts as trimtab itself")), "{said}");
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
            said.contains(
                "process 1 has the same mounts as trimtab itself; in a container, let it see the host's"
            ),
            "{verb}: {said}"
        );
    }
}

#[test]
fn service_that_is_enabled_but_does_not_run_trims_nothing() {
    if !possible() {
        return;
    }
    let stack = OnLoop::new("tmpfs", "ext4", "");
    let dir = TempDir::new().unwrap();
    let [layers, archive] = ["layers", "capture.tar.gz"].map(|name| dir.path().join(name));
    fs::create_dir(&layers).unwrap();
    let script = "mount -t tmpfs none \"$1\" && units=$1/upper/systemd/system/multi-user.target.wants \
        && mkdir -p \"$units\" \"$1/work\" && ln -s /none \"$units/trimtab.service\" \
        && mount -t overlay none -o \"lowerdir=/etc,upperdir=$1/upper,workdir=$1/work\" /etc \
        && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(&layers).arg(TRIMTAB);
    command.args(["doctor", "--json", "--run", "/nonexistent", "--capture"]).arg(&archive);
    let here = command.arg(&stack.upper.target).output().unwrap();
    assert!(
        Command::new("tar").arg("xzf").arg(&archive).arg("-C").arg(dir.path()).status().unwrap().success()
    );
    let there = doctor(&["--json", "--sysfs", dir.path().join("capture").to_str().unwrap()], &[]);
    for output in [here, there] {
        let document: DoctorDocument = serde_json::from_slice(&output.stdout).unwrap();
        let found = document.targets[0].findings.iter().find(|finding| finding.id == "nobody-trims");
        let said = found.map(|finding| finding.message.as_str()).unwrap_or_default();
        assert!(said.contains("and trimtab.service is enabled, but does not run"), "{document:#?}");
    }
}
