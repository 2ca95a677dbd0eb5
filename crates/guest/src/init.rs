//! The guest's first process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};
use rustix::termios::{OptionalActions, tcdrain, tcgetattr, tcsetattr};
use trimtab_linux::first_process::{credit_entropy, load_module, mount_kernel_files, power_off};

use super::image::{PLAN, Plan};
use super::protocol::{MessageKind, send};
use super::{COMMAND, GuestStatus, Order};

const PORT: &str = "/dev/ttyS1";
const STDOUT: &str = "/run/trimtab-guest-stdout";
/// The seed of the kernel's random numbers: the same every time, so that runs repeat.
const SEED: [u8; 32] = *b"trimtab: the same at every boot.";
const ENVIRONMENT: [(&str, &str); 6] = [
    ("PATH", "/bin"),
    ("HOME", "/root"),
    ("TMPDIR", "/tmp"),
    ("LANG", "C.UTF-8"),
    ("TERM", "dumb"),
    ("SHELL", "/bin/sh"),
];
const MOUNTS: [(&str, &str); 6] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/dev/shm"),
    ("tmpfs", "/run"),
    ("tracefs", "/sys/kernel/tracing"),
];

/// Whether this is the first process of a guest.
pub fn is_init() -> bool {
    std::process::id() == 1 && Path::new(PLAN).exists()
}

/// Sets the guest up, runs its command, sends what came of it, and turns the guest off.
pub fn run_as_init() -> ! {
    if let Err(error) = serve() {
        say(&format!("cannot go on: {error}"));
    }
    // Without power off, an end of the first process is a kernel panic, which ends the guest as well.
    let _ = power_off();
    std::process::exit(1)
}

/// Prints the next step on the console, so that it is known if nothing else arrives.
fn say(step: &str) {
    println!("trimtab-guest: {step}");
}

fn serve() -> io::Result<()> {
    for (fstype, target) in MOUNTS {
        mount_kernel_files(fstype, Path::new(target))?;
    }
    let port = open_port()?;
    let outcome = prepare().and_then(|order| execute(&order, &port));
    let mut port = port.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Err(error) = outcome {
        send(&mut port, MessageKind::Failed, error.to_string().as_bytes())?;
    }
    Ok(tcdrain(&port)?)
}

fn open_port() -> io::Result<Mutex<File>> {
    let port = OpenOptions::new().read(true).write(true).open(PORT)?;
    let mut settings = tcgetattr(&port)?;
    settings.make_raw();
    tcsetattr(&port, OptionalActions::Now, &settings)?;
    Ok(Mutex::new(port))
}

fn about(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Settings that keep the kernel from waking an idle processor again and again, which costs the host more than the guest.
const QUIET: [(&str, &str); 3] = [
    ("/proc/sys/vm/compaction_proactiveness", "0"),
    ("/proc/sys/vm/stat_interval", "36000"),
    ("/sys/kernel/mm/transparent_hugepage/enabled", "never"),
];

/// Makes the system ready and returns the command.
fn prepare() -> io::Result<Order> {
    let random = OpenOptions::new().write(true).open("/dev/random")?;
    credit_entropy(&random, &SEED).map_err(about("entropy"))?;
    fs::write("/proc/sys/vm/panic_on_oom", "1").map_err(about("panic_on_oom"))?;
    for (setting, value) in QUIET {
        // A kernel may lack one; then the guest only wakes more often.
        _ = fs::write(setting, value);
    }
    let plan: Plan = serde_json::from_slice(&fs::read(PLAN)?)?;
    for module in &plan.modules {
        load_module(module).map_err(about(module.display()))?;
        fs::remove_file(module)?;
    }
    Ok(serde_json::from_slice(&fs::read(COMMAND).map_err(about(COMMAND))?)?)
}

/// Runs the command and sends what came of it.
fn execute(order: &Order, port: &Mutex<File>) -> io::Result<()> {
    say(&format!("running {}", order.arguments.join(" ")));
    let (program, arguments) =
        order.arguments.split_first().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "no command"))?;
    let (reader, writer) = rustix::pipe::pipe()?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(ENVIRONMENT).current_dir("/tmp").process_group(0);
    command.stdin(Stdio::null()).stdout(File::create(STDOUT)?).stderr(writer);
    let spawned = command.spawn();
    // The command's own end of the pipe goes with it.
    drop(command);
    let child = match spawned {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return send(&mut *lock(port), MessageKind::Missing, program.as_bytes());
        }
        spawned => spawned.map_err(about(program))?,
    };
    let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
    let (status, stderr) = thread::scope(|scope| {
        let listener = scope.spawn(|| listen(reader, &stop, port));
        let status = reap_until(Pid::from_child(&child));
        rustix::io::write(&stop, &1u64.to_ne_bytes())?;
        let stderr = listener.join().map_err(|_| io::Error::other("the listener panicked"))?;
        io::Result::Ok((status?, stderr?))
    })?;
    say("sending the results");
    let port = &mut *lock(port);
    send(port, MessageKind::Stdout, &fs::read(STDOUT)?)?;
    send(port, MessageKind::Stderr, &stderr)?;
    for (index, path) in order.files_back.iter().enumerate() {
        match fs::read(Path::new("/tmp").join(path)) {
            Ok(data) => send(port, MessageKind::File { index }, &data)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(about(path.display())(error)),
        }
    }
    send(port, MessageKind::End(status), &[])
}

fn lock(port: &Mutex<File>) -> std::sync::MutexGuard<'_, File> {
    port.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Collects processes as they end, as the first process has to, until `child` does.
fn reap_until(child: Pid) -> io::Result<GuestStatus> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == child => return Ok(ended(status)),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn ended(status: WaitStatus) -> GuestStatus {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => GuestStatus::Exited(code),
        (None, signal) => GuestStatus::Killed(signal.unwrap_or_default()),
    }
}

/// Passes on every line that the command writes, and returns all of it when the pipe's last writer is gone
/// or `stop` is signalled: what the command left running may keep the pipe open.
fn listen(pipe: OwnedFd, stop: &OwnedFd, port: &Mutex<File>) -> io::Result<Vec<u8>> {
    fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
    let mut pipe = File::from(pipe);
    let (mut all, mut passed) = (Vec::new(), 0);
    loop {
        let mut ready = [PollFd::new(&pipe, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let stopped = !ready[1].revents().is_empty();
        let ended = take(&mut pipe, &mut all)?;
        while let Some(length) = all[passed..].iter().position(|byte| *byte == b'\n') {
            send(&mut *lock(port), MessageKind::Line, &all[passed..passed + length])?;
            passed += length + 1;
        }
        if ended || stopped {
            if passed < all.len() {
                send(&mut *lock(port), MessageKind::Line, &all[passed..])?;
            }
            return Ok(all);
        }
    }
}

/// Reads what is there. Returns true at the end.
fn take(pipe: &mut File, all: &mut Vec<u8>) -> io::Result<bool> {
    match pipe.read_to_end(all) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}
