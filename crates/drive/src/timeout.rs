//! Waits for a drive's server, but not for ever.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use trimtab_linux::PROCFS;
use trimtab_linux::process::is_stopped;

use crate::error::{DriveError, Silence};

/// The longest wait: a server gives back the memory of the largest discards in less time.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How often it checks whether the server is stopped (SIGSTOP).
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// Waits until the server of the drive `name` has sent something, or is gone.
///
/// # Errors
/// [`DriveError::Silent`] where it is stopped, or has sent nothing for a minute.
pub(crate) fn await_answer(name: &str, server: &UnixStream) -> Result<(), DriveError> {
    let no_answer = |errno: Errno| DriveError::NoAnswer { name: name.to_owned(), source: errno.into() };
    // The process that listens, as the kernel remembers it.
    let process = socket_peercred(server).map_err(no_answer)?.pid.as_raw_nonzero().get();
    let silent = |why| DriveError::Silent { name: name.to_owned(), server: process, why };
    let begun = Instant::now();
    while begun.elapsed() < TIMEOUT {
        match poll(&mut [PollFd::new(server, PollFlags::IN)], Some(&POLL_INTERVAL)) {
            Ok(0) if is_stopped(Path::new(PROCFS), process) => return Err(silent(Silence::Stopped)),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(no_answer(errno)),
        }
    }
    Err(silent(Silence::Waiting(TIMEOUT)))
}
