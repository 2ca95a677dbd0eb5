//! Commands beside a service that does not answer.

use std::fs;
use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use trimtab_core::Bytes;

use crate::support::{Daemon, TRIMTAB, Volume, patient, possible};

/// How long the service is waited for.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How much longer a command may take on a busy machine.
const MARGIN: Duration = Duration::from_secs(15);

/// A service that is stopped until this is dropped.
struct Stopped<'a>(&'a Daemon);

impl<'a> Stopped<'a> {
    fn new(daemon: &'a Daemon) -> Self {
        daemon.signal(Signal::STOP);
        Self(daemon)
    }

    /// How its users are told.
    fn message(&self) -> String {
        format!("the service (process {}) does not answer: it is stopped; continue it", self.0.pid())
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.signal(Signal::CONT);
    }
}

/// Runs a command, which has to wait for the service as long as one does, and not much longer.
fn timed(command: &mut Command) -> Output {
    let started = Instant::now();
    let output = command.output().unwrap();
    let took = started.elapsed();
    assert!((TIMEOUT..TIMEOUT + MARGIN).contains(&took), "{command:?} took {took:?}: {output:?}");
    output
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn stopped_service_is_named_and_its_file_system_trimmed_without_it() {
    if !possible() {
        return;
    }
    let volume = Volume::mounted("ext4");
    let dir = tempfile::TempDir::new().unwrap();
    let daemon = Daemon::start(&patient(&volume, dir.path()));
    daemon.wait_for_first_trims(&volume);
    volume.fray();
    let stopped = Stopped::new(&daemon);

    let mut status = Command::new(TRIMTAB);
    status.arg("status").arg("--run").arg(daemon.run());
    let failed = timed(&mut status);
    assert_eq!((failed.status.code(), failed.stdout.len()), (Some(1), 0), "{failed:?}");
    assert!(said(&failed).contains(&stopped.message()), "{failed:?}");
    assert_eq!(said(&failed).lines().count(), 1, "{failed:?}");

    let textfile = dir.path().join("trimtab.prom");
    let written = timed(status.arg("--textfile").arg(&textfile));
    assert!(written.status.success() && said(&written).contains(&stopped.message()), "{written:?}");
    let metrics = fs::read_to_string(&textfile).unwrap();
    assert!(metrics.contains("\ntrimtab_service_up 0\n"), "{metrics}");

    let before = volume.counters().discard_bytes;
    let trim = || {
        let mut trim = Command::new(TRIMTAB);
        trim.args(["trim", "--full", "--minimum", "0", "--unpaced", "--run"]).arg(daemon.run());
        trim.arg(&volume.target).env("RUNTIME_DIRECTORY", dir.path());
        trim
    };
    let trimmed = timed(&mut trim());
    assert!(trimmed.status.success(), "{trimmed:?}");
    let expected = format!("trimtab: {}: {}", volume.target.display(), stopped.message());
    let lines: Vec<_> = said(&trimmed).lines().map(str::to_owned).collect();
    assert!(lines.len() == 1 && lines[0].starts_with(&expected), "the drive is not blamed: {lines:?}");
    assert!(lines[0].ends_with("; trimming without it"), "{lines:?}");
    assert!(volume.counters().discard_bytes - before > Bytes::MIB);

    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut waiting = trim().stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        thread::sleep(Duration::from_millis(500));
        assert!(waiting.try_wait().unwrap().is_none(), "it waits for the service");
        kill_process(Pid::from_child(&waiting), signal).unwrap();
        let asked = Instant::now();
        let ended = waiting.wait().unwrap();
        assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
        let mut said = String::new();
        waiting.stderr.unwrap().read_to_string(&mut said).unwrap();
        assert!(ended.code() == Some(code) && said.contains("interrupted"), "{ended:?}: {said}");
    }

    drop(stopped);
    // What it was asked meanwhile is over: its pending extents are its own again.
    daemon.wait_for(&volume, "it manages the file system", |fs| fs.pending > Bytes::ZERO);
}
