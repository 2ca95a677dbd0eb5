//! A watch ends with its command, its time, or a signal.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use trimtab_observe::watch::Scope;

use crate::common::possible;
use crate::support::{TRIMTAB, reports, small, watch};

/// Asserts that no tracefs instance of the process is left.
fn nothing_is_left(of: u32) {
    let instances = fs::read_dir("/sys/kernel/tracing/instances").unwrap();
    let names = instances.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<_> = names.filter(|name| name.starts_with(&format!("trimtab-{of}-"))).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn command_keeps_its_streams_and_its_exit_code() {
    if !possible() {
        return;
    }
    let (on, dir) = (small(), tempfile::tempdir().unwrap());
    let file = dir.path().join("summary.json");
    for (line, code) in [("echo out; echo err >&2; exit 7", 7), ("kill -KILL $$", 137)] {
        let arguments = ["--json", "--output", file.to_str().unwrap()];
        let output = watch(&arguments, &[&on.device]).args(["--", "sh", "-c", line]).output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        if code == 7 {
            assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
        }
        let reports = reports(&fs::read(&file).unwrap());
        assert_eq!(reports.len(), 1);
        assert_eq!(i32::from(reports[0].command.as_ref().unwrap().exit_code), code);
    }
}

#[test]
fn summary_of_a_command_goes_to_standard_error() {
    if !possible() {
        return;
    }
    let on = small();
    let output = watch(&[], &[&on.device]).args(["--", "echo", "out"]).output().unwrap();
    assert_eq!(output.stdout, b"out\n");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("echo out: exit code 0 after "), "{text}");
}

#[test]
fn watch_prints_a_line_per_interval_until_its_time_is_over() {
    if !possible() {
        return;
    }
    let on = small();
    let times = ["--interval", "200ms", "--duration", "1s"];
    let output = watch(&[&times[..], &["--json"]].concat(), &[&on.device]).output().unwrap();
    assert!(output.status.success());
    let reports = reports(&output.stdout);
    let (summary, intervals) = reports.split_last().unwrap();
    assert_eq!(summary.scope, Scope::Summary);
    assert!((1..=5).contains(&intervals.len()), "{}", intervals.len());
    let mut end = 0.0;
    for interval in intervals {
        assert_eq!((interval.scope, interval.start_wall_s), (Scope::Interval, end));
        end += interval.wall_s;
        end = (end * 1e9).round() / 1e9;
    }
    let output = watch(&times, &[&on.device]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().next().unwrap().trim_start().starts_with("TIME DEVICE"), "{text}");
    assert!(text.lines().any(|line| line.contains(on.name())), "{text}");
    assert!(text.ends_with("No events were lost.\n"), "{text}");
}

#[test]
fn signal_ends_the_watch_with_a_summary() {
    if !possible() {
        return;
    }
    let on = small();
    let dir = tempfile::tempdir().unwrap();
    let started = dir.path().join("started");
    let line = format!(": > {}; exec sleep 60", started.display());
    let mut child = watch(&["--json"], &[&on.device])
        .args(["--", "sh", "-c", &line])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !started.exists() {
        assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none(), "the command starts");
        thread::sleep(Duration::from_millis(10));
    }
    let id = child.id();
    assert!(Command::new("kill").args(["-INT", &id.to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "the command was told to end");
    assert_eq!(reports(&output.stdout).len(), 1);
    nothing_is_left(id);
}

#[test]
fn command_that_ignores_signals_is_left_running_after_the_summary() {
    if !possible() {
        return;
    }
    let (on, dir) = (small(), tempfile::tempdir().unwrap());
    let runs = dir.path().join("runs");
    let line = format!("trap '' TERM; : > {0}; while [ -e {0} ]; do sleep 0.1; done", runs.display());
    let mut child = watch(&["--json"], &[&on.device])
        .args(["--", "sh", "-c", &line])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !runs.exists() {
        assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none(), "the command starts");
        thread::sleep(Duration::from_millis(10));
    }
    let id = child.id();
    for _ in 0..2 {
        assert!(Command::new("kill").args(["-TERM", &id.to_string()]).status().unwrap().success());
        thread::sleep(Duration::from_secs(2));
    }
    let status = child.wait().unwrap();
    fs::remove_file(&runs).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(status.code(), Some(143));
    assert_eq!(reports(&output.stdout).len(), 1);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.ends_with("was left running\n"), "{said}");
    nothing_is_left(id);
}

/// In a terminal of its own: `script` makes one.
#[test]
fn two_signals_restore_the_terminal() {
    if !possible() {
        return;
    }
    let (on, dir) = (small(), tempfile::tempdir().unwrap());
    let place = dir.path().display();
    let line = format!(
        "stty rows 24 cols 80; stty -g > {place}/before; sh -c 'echo $$ > {place}/id; exec {TRIMTAB} watch {}'; stty -g > {place}/after",
        on.device.display()
    );
    let screen = dir.path().join("screen");
    let mut script = Command::new("script")
        .args(["-q", "-f", "-c", &line, screen.to_str().unwrap()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string(&screen).is_ok_and(|screen| screen.contains("interval")) {
        assert!(Instant::now() < deadline && script.try_wait().unwrap().is_none(), "the screen comes");
        thread::sleep(Duration::from_millis(10));
    }
    let id: u32 = fs::read_to_string(dir.path().join("id")).unwrap().trim().parse().unwrap();
    for signal in ["-TERM", "-HUP"] {
        assert!(Command::new("kill").args([signal, &id.to_string()]).status().unwrap().success());
    }
    assert!(script.wait().unwrap().success());
    let modes = |when| fs::read_to_string(dir.path().join(when)).unwrap();
    assert_eq!(modes("after"), modes("before"));
    nothing_is_left(id);
}

#[test]
fn closed_pipe_is_no_failure() {
    if !possible() {
        return;
    }
    let on = small();
    let mut child =
        watch(&["--json", "--interval", "50ms"], &[&on.device]).stdout(Stdio::piped()).spawn().unwrap();
    let id = child.id();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    nothing_is_left(id);
}
