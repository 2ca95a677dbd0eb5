//! Canaries on file systems that do not answer, and those whose end is not waited for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use trimtab_core::Bytes;
use trimtab_core::document::DoctorDocument;
use trimtab_core::verdict::Verdict;
use trimtab_linux::{PROCFS, process};

use crate::common::possible;
use crate::support::{OnLoop, TRIMTAB};

/// How long a canary waits for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A file system that is frozen until this is dropped.
struct Frozen(PathBuf);

impl Frozen {
    fn new(mount: &Path) -> Self {
        let frozen = Self(mount.to_owned());
        assert!(Command::new("fsfreeze").arg("--freeze").arg(mount).status().unwrap().success());
        frozen
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("--unfreeze").arg(&self.0).status();
    }
}

fn start(mount: &Path) -> Child {
    let mut doctor = Command::new(TRIMTAB);
    doctor.args(["doctor", "--canary", "--json"]).arg(mount);
    doctor.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the process of the canary that `doctor` sends.
fn canary_of(doctor: &Child) -> i32 {
    let children = format!("/proc/{0}/task/{0}/children", doctor.id());
    let mut found = None;
    wait_until("the doctor sends a canary", || {
        let children = fs::read_to_string(&children).unwrap_or_default();
        found = children.split_whitespace().next().and_then(|child| child.parse().ok());
        found.is_some()
    });
    found.unwrap()
}

/// Whether the process with this number has ended, and left no tracefs instance.
fn has_left_nothing(canary: i32) -> bool {
    let state = process::state(Path::new(PROCFS), canary);
    let name = format!("trimtab-{canary}-");
    let instances = fs::read_dir("/sys/kernel/tracing/instances").unwrap().flatten();
    let mut names = instances.map(|entry| entry.file_name().to_string_lossy().into_owned());
    matches!(state, None | Some('Z')) && !names.any(|found| found.starts_with(&name))
}

fn assert_empty(mount: &Path) {
    let left: Vec<_> = fs::read_dir(mount).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "lost+found"), "{left:?}");
}

#[test]
fn frozen_file_system_is_reported_after_a_limit() {
    if !possible() {
        return;
    }
    let stack = OnLoop::new("tmpfs", "ext4", "");
    let mount = &stack.upper.target;
    let frozen = Frozen::new(mount);
    let started = Instant::now();
    let doctor = start(mount);
    let canary = canary_of(&doctor);
    let output = doctor.wait_with_output().unwrap();
    let took = started.elapsed();
    assert!((TIMEOUT..TIMEOUT + Duration::from_secs(15)).contains(&took), "{took:?}");
    let document: DoctorDocument = serde_json::from_slice(&output.stdout).unwrap();
    let found = document.targets[0].canary.as_ref().unwrap();
    assert_eq!((found.verdict, found.sent_bytes), (Verdict::Unknown, Bytes::ZERO));
    let expected = format!(
        "{0} does not answer: it is frozen (thaw it with fsfreeze --unfreeze {0}), or its drive hangs; process \
         {canary} removes the canary",
        mount.display()
    );
    assert!(found.reason.starts_with(&expected), "{}", found.reason);
    // It also warns that nobody trims it.
    assert!(matches!(output.status.code(), Some(1 | 4)), "{output:?}");
    assert!(!has_left_nothing(canary), "it waits for the file system");
    drop(frozen);
    wait_until("the canary's process ends", || has_left_nothing(canary));
    assert_empty(mount);
}

#[test]
fn signals_end_a_doctor_whose_canary_is_held() {
    if !possible() {
        return;
    }
    for (fstype, signal, code) in [
        ("ext4", Signal::INT, Some(130)),
        ("xfs", Signal::TERM, Some(143)),
        ("ext4", Signal::HUP, Some(129)),
        ("xfs", Signal::KILL, None),
    ] {
        let stack = OnLoop::new("tmpfs", fstype, "");
        let mount = &stack.upper.target;
        let frozen = Frozen::new(mount);
        let mut doctor = start(mount);
        let canary = canary_of(&doctor);
        wait_until("it is held", || process::state(Path::new(PROCFS), canary) == Some('D'));
        kill_process(Pid::from_child(&doctor), signal).unwrap();
        let asked = Instant::now();
        assert_eq!(doctor.wait().unwrap().code(), code, "{fstype} {signal:?}");
        assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
        drop(frozen);
        wait_until("the canary's process ends", || has_left_nothing(canary));
        assert_empty(mount);
    }
}

#[test]
fn killed_canary_leaves_nothing() {
    if !possible() {
        return;
    }
    let stack = OnLoop::new("tmpfs", "ext4", "");
    let mount = &stack.upper.target;
    let is_traced = |canary: i32| {
        let instances = fs::read_dir("/sys/kernel/tracing/instances").unwrap();
        let name = format!("trimtab-{canary}-");
        instances.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with(&name))
    };
    for kills_canary in [false, true] {
        let mut doctor = start(mount);
        let canary = canary_of(&doctor);
        wait_until("it is traced", || is_traced(canary));
        if kills_canary {
            kill_process(Pid::from_raw(canary).unwrap(), Signal::KILL).unwrap();
            let output = doctor.wait_with_output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(text.contains("no proof: the process that sent a canary was ended"), "{text}");
        } else {
            doctor.kill().unwrap();
            doctor.wait().unwrap();
        }
        wait_until("the canary's process ends", || has_left_nothing(canary));
        assert_empty(mount);
    }
}
