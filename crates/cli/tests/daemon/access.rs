//! What users other than root may do.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Daemon, TRIMTAB, possible, refused};

const NOBODY: u32 = 65534;

/// Runs a program that everyone may run as nobody.
fn as_nobody(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).uid(NOBODY).gid(NOBODY).current_dir("/").output().unwrap()
}

#[test]
fn everyone_may_see_the_status_and_only_root_more() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let run = daemon.run();
    // The directory in which programs are built may be closed to others.
    let program = daemon.dir.path().join("trimtab");
    fs::copy(TRIMTAB, &program).unwrap();
    let status = as_nobody(&program, &["status", "--json", "--run", run.to_str().unwrap()]);
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    let another = as_nobody(&program, &["daemon"]);
    assert!(refused(&another).contains("only root may trim"));

    let control = run.join("control");
    assert_eq!(fs::metadata(&control).unwrap().mode() & 0o777, 0o600);
    // Even where the file lets everyone in, the service doesn't.
    fs::set_permissions(&control, Permissions::from_mode(0o666)).unwrap();
    let script = "import socket, sys\n\
        s = socket.socket(socket.AF_UNIX)\n\
        s.connect(sys.argv[1])\n\
        try:\n\
        \x20   s.sendall(b'{\"verb\":\"status\"}\\n')\n\
        \x20   answer = s.recv(1)\n\
        except OSError:\n\
        \x20   answer = b''\n\
        sys.exit(7 if answer else 0)";
    let python =
        ["/usr/bin/python3", "/usr/local/bin/python3"].map(Path::new).into_iter().find(|path| path.exists());
    let Some(python) = python else {
        assert!(std::env::var_os("CI").is_none(), "a test that needs python3 cannot be skipped in CI");
        eprintln!("skipped: the rest needs python3");
        return;
    };
    let path = control.to_str().unwrap();
    let asked = as_nobody(python, &["-c", script, path]);
    assert_eq!(asked.status.code(), Some(0), "{}", String::from_utf8_lossy(&asked.stderr));
    let asked = Command::new(python).args(["-c", script, path]).output().unwrap();
    assert_eq!(asked.status.code(), Some(7), "root is answered: {}", String::from_utf8_lossy(&asked.stderr));
}

#[test]
fn what_visitors_send_does_no_harm() {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let connect = || UnixStream::connect(daemon.run().join("control")).unwrap();
    for (line, answer) in [
        ("\n", "that is no request"),
        ("{\"verb\":\"stop\"}\n", "unknown variant `stop`"),
        ("{\"verb\":\"take-pending\",\"mount\":\"/\",\"x\":1}\n", "unknown field `x`"),
        ("{\"verb\":\"give-back\",\"left\":[[18446744073709551615,5]]}\n", "\"done\""),
        (
            "{\"verb\":\"take-pending\",\"mount\":\"/nowhere\"}\n",
            "no file system on a block device is mounted there",
        ),
        // Two at once, of which the second is answered too.
        ("{\"verb\":\"reload\"}\n{\"verb\":\"reload\"}\n", "\"done\""),
    ] {
        let mut stream = connect();
        stream.write_all(line.as_bytes()).unwrap();
        let mut answers = BufReader::new(stream).lines();
        for _ in line.matches('\n') {
            let said = answers.next().unwrap().unwrap();
            assert!(said.contains(answer), "{line:?}: {said}");
        }
    }
    // No end of a line ever: it is cut off.
    let mut stream = connect();
    let chunk = vec![b'x'; 1 << 20];
    let taken = (0..64).take_while(|_| stream.write_all(&chunk).is_ok()).count();
    assert!(taken < 64, "all of it was taken");
    assert_eq!(daemon.status().pid, daemon.pid());
}

#[test]
fn a_crowd_at_the_door_does_not_hold_it_up() {
    use std::os::unix::net::UnixStream;
    if !possible() {
        return;
    }
    let mut daemon = Daemon::start("");
    let status = daemon.run().join("status");
    let is_over = AtomicBool::new(false);
    let ended = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    _ = UnixStream::connect(&status);
                }
            });
        }
        thread::sleep(Duration::from_millis(500));
        daemon.signal(Signal::TERM);
        let patience = Instant::now() + Duration::from_secs(30);
        let mut ended = None;
        while ended.is_none() && Instant::now() < patience {
            thread::sleep(Duration::from_millis(20));
            ended = daemon.child.try_wait().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        ended
    });
    assert_eq!(ended.and_then(|ended| ended.code()), Some(0));
}
