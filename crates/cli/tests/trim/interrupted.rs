//! Interrupted trims resume where they stopped.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use trimtab_core::document::trim::Outcome;
use trimtab_drive::Clock;

use crate::support::{Testbed, document, possible, sent};

/// Starts a trim and ends it with `signal` once the drive got some discards; returns its exit code and what
/// it printed.
fn interrupted(testbed: &Testbed, arguments: &[&str], signal: &str) -> (Option<i32>, Vec<u8>, String) {
    let before = testbed.counters().discards;
    let mut command = testbed.command(arguments);
    let child: Child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while testbed.counters().discards < before + 40 {
        thread::sleep(Duration::from_millis(5));
    }
    // The progress is saved every second.
    thread::sleep(Duration::from_millis(1200));
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    (output.status.code(), output.stdout, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn same_command_resumes() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "xfs"] {
        let testbed = Testbed::new(fstype, Clock::Real { speed: 1.0 });
        testbed.fragment(800, 100 << 10);
        let arguments = ["--json", "-m", "0"];
        let free = testbed.trim(&["-n", "-m", "0"]).plan.unwrap().chosen.unwrap();
        let before = testbed.counters();
        let (code, printed, said) = interrupted(&testbed, &arguments, "-INT");
        assert_eq!(code, Some(130));
        assert!(said.contains("interrupted; the same command without --full resumes here"), "{said}");
        let stopped = document(&std::process::Output {
            status: Default::default(),
            stdout: printed,
            stderr: Vec::new(),
        });
        assert_eq!(stopped.targets[0].outcome, Outcome::Stopped);
        let rest = testbed.trim(&arguments[1..]);
        assert_eq!(rest.outcome, Outcome::Done);
        let plan = rest.plan.as_ref().unwrap();
        assert!(plan.resumed_at.is_some(), "{fstype}: {plan:?}");
        assert!(sent(&rest).bytes < free.bytes, "{fstype}: not everything is trimmed again");
        let both = testbed.counters().since(&before);
        let share = both.discard_bytes.0 as f64 / free.bytes.0 as f64;
        assert!((0.99..1.01).contains(&share), "{fstype}: each byte is trimmed once: {share}");
        assert_eq!(testbed.trim(&["-n", "-m", "0"]).plan.unwrap().resumed_at, None, "it is complete");
    }
}

#[test]
fn different_command_starts_over() {
    if !possible() {
        return;
    }
    let testbed = Testbed::new("xfs", Clock::Real { speed: 1.0 });
    testbed.fragment(800, 100 << 10);
    let (code, ..) = interrupted(&testbed, &["-m", "0"], "-KILL");
    assert_eq!(code, None);
    let resumed = |arguments: &[&str]| testbed.trim(&[&["-n"], arguments].concat()).plan.unwrap().resumed_at;
    assert!(resumed(&["-m", "0"]).is_some());
    assert_eq!(resumed(&["-m", "0", "--full"]), None);
    assert_eq!(resumed(&["-m", "64K"]), None);
    assert_eq!(resumed(&["-m", "0", "-l", "500M"]), None);
}

#[test]
fn signal_while_the_drive_hangs_is_reported_at_once() {
    if !possible() {
        return;
    }
    let testbed = Testbed::new("ext4", Clock::Model);
    testbed.fragment(40, 1 << 20);
    let server = Pid::from_raw(testbed.drive.stats().unwrap().server as i32).unwrap();
    // Its free space is read before the drive hangs.
    testbed.trim(&["-n"]);
    kill_process(server, Signal::STOP).unwrap();
    let told = std::panic::catch_unwind(|| {
        let mut child = testbed.command(&["--unpaced", "--quiet"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        thread::sleep(Duration::from_millis(500));
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        (lines.next().unwrap().unwrap(), lines, child)
    });
    kill_process(server, Signal::CONT).unwrap();
    let (line, lines, mut child) = told.unwrap();
    assert!(line.contains("interrupted; ends when the drive completes"), "{line}");
    assert!(matches!(child.wait().unwrap().code(), Some(0 | 130 | 143)));
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    assert!(rest.iter().all(|line| line.contains("resumes here")), "{rest:?}");
}
