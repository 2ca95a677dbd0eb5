//! Start and end of the service, and its notifications to the service manager.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use trimtab_core::document::status::State;

use crate::support::{Daemon, TRIMTAB, Volume, instances, possible, refused, smart, wait_until};

#[test]
fn service_ends_on_sigterm_and_leaves_nothing_behind() {
    if !possible() {
        return;
    }
    let mut daemon = Daemon::start("");
    assert_eq!(daemon.instances(), 2);
    assert_eq!(daemon.stop(), Some(0));
    assert_eq!(daemon.instances(), 0);
    let left: Vec<_> =
        std::fs::read_dir(daemon.run()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["daemon.lock"]);
}

#[test]
fn service_starts_after_a_killed_one() {
    if !possible() {
        return;
    }
    let volume = Volume::mounted("ext4");
    let config = smart(&volume);
    let mut daemon = Daemon::start(&config);
    for _ in 0..3 {
        let pid = daemon.pid();
        volume.write("file", trimtab_core::Bytes(8 << 20));
        volume.delete("file");
        let dir = daemon.kill();
        daemon = Daemon::start_in(dir, &config, |_| {});
        assert_eq!((instances(pid), daemon.instances()), (0, 2));
        wait_until("it is managed", || daemon.status_of(&volume).unwrap().state == State::Idle);
    }
}

#[test]
fn second_service_is_refused() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let config = daemon.dir.path().join("config.toml");
    let mut another = Command::new(TRIMTAB);
    another.arg("daemon").arg("--config").arg(config).arg("--run").arg(daemon.run());
    let said = refused(&another.output().unwrap());
    assert!(said.contains("the service runs already"), "{said}");
    assert_eq!(daemon.status().pid, daemon.pid());
}

#[test]
fn service_manager_is_notified() {
    if !possible() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut daemon = Daemon::start_with("", |command| {
        command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "60000000");
    });
    // Returns the lines received until one of this kind.
    let until = |wanted: &str| {
        let mut lines: Vec<String> = Vec::new();
        while !lines.iter().any(|line| line.starts_with(wanted)) {
            let mut message = [0; 4096];
            let length =
                manager.recv(&mut message).unwrap_or_else(|error| panic!("no {wanted}: {error}; {lines:?}"));
            lines.extend(String::from_utf8_lossy(&message[..length]).lines().map(str::to_owned));
        }
        lines
    };
    assert_eq!(until("READY=1"), ["READY=1"]);
    until("STATUS=");
    // Nothing is pending, so nobody needs to watch.
    until("WATCHDOG_USEC=18446744073709551615");
    daemon.signal(Signal::HUP);
    let lines = until("READY=1");
    let reloading = lines.iter().position(|line| line == "RELOADING=1");
    assert!(reloading.is_some_and(|place| lines[place + 1].starts_with("MONOTONIC_USEC=")), "{lines:?}");
    assert_eq!(daemon.stop(), Some(0));
    until("STOPPING=1");
}
