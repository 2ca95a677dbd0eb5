//! The service in another process's mount namespace.

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use trimtab_linux::child::die_with_parent;

use crate::FAILED;

/// Set in the environment of the process that enters the namespace.
const INSIDE: &str = "TRIMTAB_INSIDE";
/// A shell adds this to the number of the signal that ended a program.
const BY_SIGNAL: i32 = 128;

/// Whether this process is the one that enters the namespace.
pub fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Runs this program with the same arguments as a child that enters the namespace; passes signals on to it, and returns
/// its exit code. A container's first process has to stay in the container: `podman exec` and `kubectl exec` run programs
/// where that one is.
pub fn run() -> Result<ExitCode> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot catch signals")?;
    let mut command = Command::new("/proc/self/exe");
    command.args(env::args_os().skip(1)).env(INSIDE, "1");
    die_with_parent(&mut command);
    let mut child = command.spawn().context("cannot start this program again; is /proc mounted?")?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    thread::spawn(move || {
        for signal in signals.forever() {
            // It may have ended by now.
            let signal = Signal::from_named_raw(signal);
            pid.zip(signal).map(|(pid, signal)| kill_process(pid, signal));
        }
    });
    Ok(exit_code(child.wait().context("cannot wait for the service")?))
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| BY_SIGNAL + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED))
}
