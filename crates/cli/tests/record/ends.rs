//! Every end of a recording keeps the trace so far and leaves nothing else behind.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use trimtab_core::trace::EventKind;
use trimtab_core::{Bytes, Nanos};
use trimtab_linux::mount;

use crate::support::{Mounted, TRIMTAB, Trace, block, drive, instances, possible, record, recorded};

/// Waits until `is_so`, with a timeout.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(30), "{what} never came");
        thread::sleep(Duration::from_millis(20));
    }
}

fn signal(signal: &str, to: &Child) {
    assert!(Command::new("kill").args([signal, &to.id().to_string()]).status().unwrap().success());
}

/// Returns the tracefs instance of the process `pid`.
fn instance_of(pid: u32) -> Option<String> {
    instances().into_iter().find(|name| name.split('-').nth(1) == Some(&pid.to_string()))
}

#[test]
fn exit_code_of_the_command_is_passed_on() {
    if !possible() {
        return;
    }
    let dir = TempDir::new().unwrap();
    for (line, code) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)] {
        let trace = dir.path().join(format!("{code}.parquet"));
        let output =
            record(&["-o", trace.to_str().unwrap(), "--", "sh", "-c", &format!("echo mine; {line}")]);
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.stdout, b"mine\n");
        assert!(Trace::read(&trace).header.duration.is_some());
    }
}

#[test]
fn interrupt_keeps_the_trace() {
    if !possible() {
        return;
    }
    let drive = drive(Bytes(1 << 30));
    let fs = Mounted::new(&drive, "ext4", "");
    let dir = TempDir::new().unwrap();
    let trace = dir.path().join("t.parquet");
    let arguments = ["record", "-d", fs.path(), "-o", trace.to_str().unwrap()];
    let mut child = Command::new(TRIMTAB).args(arguments).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the recording", || instance_of(child.id()).is_some() && trace.exists());
    fs::write(fs.target.join("file"), vec![7; 1 << 20]).unwrap();
    fs::File::open(fs.target.join("file")).unwrap().sync_all().unwrap();
    thread::sleep(Duration::from_millis(200));
    // Twice: the second one must not prevent the cleanup.
    signal("-INT", &child);
    signal("-TERM", &child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let (_, bytes) = Trace::read(&trace).total(&block(&drive).name(), EventKind::Write);
    assert!(bytes >= Bytes::MIB, "{bytes}");
    assert_eq!(instance_of(child.id()), None);
}

#[test]
fn command_that_ignores_signals_is_left_running() {
    if !possible() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let (trace, runs) = (dir.path().join("t.parquet"), dir.path().join("runs"));
    let line = format!("trap '' TERM; : > {0}; while [ -e {0} ]; do sleep 0.1; done", runs.display());
    let mut child = Command::new(TRIMTAB)
        .args(["record", "-o", trace.to_str().unwrap(), "--", "sh", "-c", &line])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("the command", || runs.exists());
    signal("-TERM", &child);
    thread::sleep(Duration::from_secs(2));
    assert!(child.try_wait().unwrap().is_none(), "it waits for the command");
    signal("-TERM", &child);
    let status = child.wait().unwrap();
    fs::remove_file(&runs).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(
        said.ends_with("sh did not end on SIGTERM and was left running; the trace ends there\n"),
        "{said}"
    );
    assert!(Trace::read(&trace).header.duration.unwrap() > Nanos(2_000_000_000));
    assert_eq!(instance_of(child.id()), None);
}

#[test]
fn instance_of_a_killed_recording_is_removed() {
    if !possible() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let trace = dir.path().join("killed.parquet");
    let start = |arguments: &[&str]| {
        let mut command = Command::new(TRIMTAB);
        let child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("the instance", || instance_of(child.id()).is_some());
        child
    };
    let kill = |mut child: Child| {
        child.kill().unwrap();
        child.wait().unwrap();
    };
    for arguments in [&["record", "-o", trace.to_str().unwrap()][..], &["watch"]] {
        let child = start(arguments);
        let id = child.id();
        wait_until("the trace", || arguments[0] == "watch" || trace.exists());
        thread::sleep(Duration::from_secs(1));
        kill(child);
        wait_until("the end of the instance", || instance_of(id).is_none());
    }
    // The file so far is a valid trace.
    Trace::read(&trace);

    // If the process that removes it is killed as well, the next recording does so.
    let child = start(&["watch"]);
    let id = child.id();
    let guards = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    for guard in guards.split_whitespace() {
        assert!(Command::new("kill").args(["-KILL", guard]).status().unwrap().success());
    }
    kill(child);
    assert!(instance_of(id).is_some());
    let next = dir.path().join("next.parquet");
    recorded(&["-o", next.to_str().unwrap(), "--", "true"]);
    assert_eq!(instance_of(id), None);
}

#[test]
fn full_disk_ends_the_recording_and_keeps_the_trace() {
    if !possible() {
        return;
    }
    let small = TempDir::new().unwrap();
    mount::mount(Path::new("tmpfs"), small.path(), "tmpfs", "size=64k").unwrap();
    let trace = small.path().join("t.parquet");
    let drive = drive(Bytes(1 << 30));
    let device = drive.device().to_str().unwrap();
    let work = format!(
        "fio --name=x --filename={device} --rw=randwrite --bs=4k --direct=1 --io_size=200M --ioengine=libaio \
         --iodepth=32 --output=/dev/null; exit 5"
    );
    let output = record(&["-d", device, "-o", trace.to_str().unwrap(), "--", "sh", "-c", &work]);
    let said = String::from_utf8(output.stderr).unwrap();
    let readable = std::panic::catch_unwind(|| Trace::read(&trace));
    // A process that another test is just starting has its files open for a moment, too.
    wait_until("nothing uses the tmpfs", || mount::unmount(small.path()).is_ok());
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("No space left on device") && said.contains("the trace ends there"), "{said}");
    let held = readable.unwrap().events.len();
    let told = said.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<usize>().ok());
    let told: usize = told.sum();
    assert_eq!(held, told, "{said}");
}
