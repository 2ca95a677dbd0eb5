//! The rights of users other than root.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal};
use trimtab_keeper::service::control::Control;

use crate::program::copy_program;
use crate::support::{Daemon, TRIMTAB, Volume, possible, refused, smart};

const NOBODY: u32 = 65534;

/// Runs a program as the user nobody.
fn as_nobody(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).uid(NOBODY).gid(NOBODY).current_dir("/").output().unwrap()
}

#[test]
fn status_is_public_and_requests_need_root() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let run = daemon.run();
    // The directory in which programs are built may be closed to others.
    let program = daemon.dir.path().join("trimtab");
    copy_program(&program);
    let status = as_nobody(&program, &["status", "--json", "--run", run.to_str().unwrap()]);
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    let another = as_nobody(&program, &["daemon"]);
    assert!(refused(&another).contains("only root may trim"));

    let control = run.join("control");
    assert_eq!(fs::metadata(&control).unwrap().mode() & 0o777, 0o600);
    // Even if the file's mode allows everyone, the service refuses them.
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
fn closed_directory_without_a_service_is_no_denial() {
    if !possible() {
        return;
    }
    let dir = tempfile::TempDir::new().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let (program, run, file) =
        (dir.path().join("trimtab"), dir.path().join("run"), dir.path().join("own/trimtab.prom"));
    copy_program(&program);
    // As a trim with a strict umask makes it.
    DirBuilder::new().mode(0o700).create(&run).unwrap();
    let own = file.parent().unwrap();
    fs::create_dir(own).unwrap();
    std::os::unix::fs::chown(own, Some(NOBODY), Some(NOBODY)).unwrap();
    let status = |arguments: &[&str]| {
        let arguments = [&["status", "--run", run.to_str().unwrap()], arguments].concat();
        as_nobody(&program, &arguments)
    };
    for arguments in [&[][..], &["--json"]] {
        let said = refused(&status(arguments));
        assert!(said.contains("the service is not running"), "{said}");
    }
    let written = status(&["--textfile", file.to_str().unwrap()]);
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    assert!(fs::read_to_string(&file).unwrap().contains("\ntrimtab_service_up 0\n"));
}

#[test]
fn invalid_requests_do_no_harm() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let connect = || UnixStream::connect(daemon.run().join("control")).unwrap();
    for (line, answer) in [
        ("\n", "invalid request"),
        ("{\"verb\":\"stop\"}\n", "unknown variant `stop`"),
        ("{\"verb\":\"take-pending\",\"mount\":\"/\",\"x\":1}\n", "unknown field `x`"),
        ("{\"verb\":\"give-back\",\"left\":[[18446744073709551615,5]]}\n", "\"done\""),
        (
            "{\"verb\":\"take-pending\",\"mount\":\"/nowhere\"}\n",
            "no file system on a block device is mounted there",
        ),
        // Two at once: the second is answered too.
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
fn many_clients_do_not_delay_the_end() {
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
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut ended = None;
        while ended.is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
            ended = daemon.child.try_wait().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        ended
    });
    assert_eq!(ended.and_then(|ended| ended.code()), Some(0));
}

#[test]
fn lock_held_by_another_user_does_not_prevent_the_start() {
    if !possible() {
        return;
    }
    let dir = tempfile::TempDir::new().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let run = dir.path().join("run");
    fs::create_dir(&run).unwrap();
    // As an earlier version made it.
    let lock = run.join("daemon.lock");
    fs::write(&lock, "").unwrap();
    fs::set_permissions(&lock, Permissions::from_mode(0o644)).unwrap();
    let mut holder = Command::new("flock");
    holder.arg(&lock).args(["sh", "-c", "echo held; exec sleep 1000"]).uid(NOBODY).gid(NOBODY);
    let mut holder = holder.stdout(Stdio::piped()).process_group(0).spawn().unwrap();
    let mut said = [0; 4];
    holder.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    let started = std::panic::catch_unwind(|| {
        let daemon = Daemon::start_in(dir, "", |_| {});
        assert_eq!(fs::metadata(&lock).unwrap().mode() & 0o777, 0o600);
        let held = Command::new("flock").arg("-n").arg(&lock).arg("true").uid(NOBODY).gid(NOBODY).output();
        assert!(String::from_utf8(held.unwrap().stderr).unwrap().contains("Permission denied"));
        let path = daemon.dir.path();
        let mut second = Command::new(TRIMTAB);
        second.arg("daemon").arg("--config").arg(path.join("config.toml")).arg("--run").arg(daemon.run());
        let second = second.arg("--state").arg(path.join("state")).output().unwrap();
        assert!(refused(&second).contains("the service runs already"));
    });
    rustix::process::kill_process_group(Pid::from_child(&holder), Signal::KILL).unwrap();
    holder.wait().unwrap();
    started.unwrap();
}

#[test]
fn half_requests_for_metrics_do_not_block_other_clients() {
    if !possible() {
        return;
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let daemon = Daemon::start(&format!("[metrics]\naddress = \"127.0.0.1:{port}\"\n"));
    let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut crowd: Vec<_> = (0..400).map(|_| connect()).collect();
    crowd.iter_mut().for_each(|stream| _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n"));
    let (mut stream, mut answer) = (connect(), String::new());
    // Eight at a time, each for five seconds, the crowd would be served in some minutes.
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(open_files(&daemon) < 300, "{} files are open", open_files(&daemon));
}

/// How many files the service has open.
fn open_files(daemon: &Daemon) -> usize {
    fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count()
}

#[test]
fn memory_of_a_long_request_is_released() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let ask = |pieces: usize| {
        let left: Vec<_> = (0..pieces).map(|piece| format!("[{},4096]", piece << 20)).collect();
        let line = format!("{{\"verb\":\"give-back\",\"left\":[{}]}}\n", left.join(","));
        let (mut stream, mut answer) =
            (UnixStream::connect(daemon.run().join("control")).unwrap(), String::new());
        stream.write_all(line.as_bytes()).unwrap();
        BufReader::new(&stream).read_line(&mut answer).unwrap();
        assert_eq!(answer, "\"done\"\n");
        line.len()
    };
    ask(1);
    let before = resident(&daemon);
    assert!(ask(180_000) > 3 << 20);
    // The next answer comes after the memory is given back.
    ask(1);
    let after = resident(&daemon);
    assert!(after < before + (4 << 20), "{before} bytes became {after}");
}

/// How many bytes of memory the service has.
fn resident(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn pipes_among_saved_files_do_not_block_the_start() {
    if !possible() {
        return;
    }
    let dir = tempfile::TempDir::new().unwrap();
    let volume = Volume::mounted("ext4");
    let mut daemon = Daemon::start_in(dir, &smart(&volume), |_| {});
    daemon.wait_for(&volume, "it is managed", |_| true);
    assert_eq!(daemon.stop(), Some(0));
    let dir = daemon.kill();
    // Beside it may be the stamp of a full trim, and directories have no order.
    let mut files = fs::read_dir(dir.path().join("state")).unwrap().map(|entry| entry.unwrap().path());
    let kept = files.find(|path| path.extension().is_some_and(|it| it == "state")).unwrap();
    fs::remove_file(&kept).unwrap();
    for pipe in [kept, dir.path().join("run/knobs-x")] {
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    }
    let daemon = Daemon::start_in(dir, &smart(&volume), |_| {});
    daemon.wait_for(&volume, "it is managed", |_| true);
    assert_eq!(daemon.logged("event=state_not_restored"), 1, "{}", daemon.log());
}

#[test]
fn metrics_address_of_the_command_line_need_not_be_loopback() {
    if !possible() {
        return;
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("0.0.0.0:{port}");
    let volume = Volume::new("ext4");
    let daemon = Daemon::start_with(&smart(&volume), |command| _ = command.args(["--metrics", &address]));
    // Neither this configuration nor a new one takes its place.
    Control::connect(&daemon.run()).unwrap().reload().unwrap();
    let mut stream = TcpStream::connect(("127.0.0.2", port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}
