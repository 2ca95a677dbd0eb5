//! A client's connection to a socket of the service, which waits only so long for it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio, read};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};
use trimtab_core::interrupt::{Interrupt, Interrupted};
use trimtab_linux::{PROCFS, process};

/// How long the service may take to take a request and to answer it.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
/// How often the interrupt is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Why a request to the service failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The service is not running.
    #[error("the service is not running: start it with systemctl start trimtab, or as trimtab daemon")]
    NotRunning,
    /// The user is not root.
    #[error("the service takes requests from root only")]
    Denied,
    /// The connection failed.
    #[error("cannot communicate with the service at {}", path.display())]
    Communicate {
        /// Its socket.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The response is not valid, for example because the service has another version.
    #[error("the response of the service at {} is not valid; is it another version?", path.display())]
    Answer {
        /// Its socket.
        path: PathBuf,
        /// The error.
        #[source]
        source: serde_json::Error,
    },
    /// The service refused the request.
    #[error("the service refuses: {0}")]
    Refused(String),
    /// The service took no request, or did not answer it, in time.
    #[error("the service{} does not answer: it {why}", numbered(*process))]
    Silent {
        /// Its process; `None` if that is not known.
        process: Option<i32>,
        /// The known facts about it, and the next step.
        why: Silence,
    },
    /// The user asked to stop while the service had not answered.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// Why the service does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Silence {
    /// A signal stopped it.
    #[error("is stopped; continue it (kill -CONT) or restart it (systemctl restart trimtab)")]
    Stopped,
    /// The kernel holds it.
    #[error(
        "waits for a drive or a frozen file system; thaw that (fsfreeze --unfreeze), or see dmesg for the drive"
    )]
    Blocked,
    /// It may be busy, or stuck.
    #[error("has not for {} s; try again, or restart it (systemctl restart trimtab)", TIMEOUT.as_secs())]
    Waiting,
}

/// Returns the number of a process in brackets, after a space.
fn numbered(process: Option<i32>) -> String {
    process.map(|process| format!(" (process {process})")).unwrap_or_default()
}

/// A connection. Everything on it fails at its deadline, or once its interrupt is set.
#[derive(Debug)]
pub(super) struct Connection {
    path: PathBuf,
    stream: OwnedFd,
    interrupt: Interrupt,
    deadline: Instant,
    /// Bytes that were received and not read yet.
    input: Vec<u8>,
}

impl Connection {
    /// Connects to the socket at `path`. The deadline is [`TIMEOUT`] from now.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn open(path: &Path, interrupt: &Interrupt) -> Result<Self, ControlError> {
        let failed = |errno: Errno| failed(path, errno.into());
        let kind = (AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC);
        let stream = socket_with(kind.0, kind.1, kind.2, None).map_err(failed)?;
        ioctl_fionbio(&stream, true).map_err(failed)?;
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match connect(&stream, &address) {
                Ok(()) => break,
                // As many clients wait already as the kernel lets.
                Err(Errno::AGAIN) if Instant::now() < deadline => interrupt.sleep(POLL_INTERVAL)?,
                Err(Errno::AGAIN) => {
                    return Err(ControlError::Silent { process: None, why: Silence::Waiting });
                }
                Err(Errno::INTR) => {}
                Err(Errno::NOENT | Errno::CONNREFUSED) => return Err(ControlError::NotRunning),
                Err(Errno::ACCESS | Errno::PERM) if is_closed(path) => return Err(ControlError::NotRunning),
                Err(Errno::ACCESS | Errno::PERM) => return Err(ControlError::Denied),
                Err(errno) => return Err(failed(errno)),
            }
        }
        let (path, interrupt) = (path.to_owned(), interrupt.clone());
        Ok(Self { path, stream, interrupt, deadline, input: Vec::new() })
    }

    /// Returns the socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins another exchange, which fails at a deadline `limit` from now, or once `interrupt` is set.
    pub fn begin(&mut self, limit: Duration, interrupt: &Interrupt) {
        (self.deadline, self.interrupt) = (Instant::now() + limit, interrupt.clone());
    }

    /// Sends `bytes`.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn send(&mut self, mut bytes: &[u8]) -> Result<(), ControlError> {
        while !bytes.is_empty() {
            match send(&self.stream, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(&self.path, errno.into())),
            }
        }
        Ok(())
    }

    /// Returns the next line, without its end.
    ///
    /// # Errors
    /// [`ControlError`]; [`ControlError::Communicate`] if the service ends the connection before.
    pub fn line(&mut self) -> Result<Vec<u8>, ControlError> {
        let mut seen = 0;
        loop {
            if let Some(length) = self.input[seen..].iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<_> = self.input.drain(..=seen + length).collect();
                line.pop();
                return Ok(line);
            }
            seen = self.input.len();
            if !self.receive()? {
                return Err(failed(&self.path, io::ErrorKind::ConnectionAborted.into()));
            }
        }
    }

    /// Returns everything until the service ends the connection.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn rest(mut self) -> Result<Vec<u8>, ControlError> {
        while self.receive()? {}
        Ok(self.input)
    }

    /// Receives more; returns false at the end of the connection.
    fn receive(&mut self) -> Result<bool, ControlError> {
        let mut chunk = [0; 16 << 10];
        loop {
            match read(&self.stream, &mut chunk) {
                Ok(0) => return Ok(false),
                Ok(length) => {
                    self.input.extend(&chunk[..length]);
                    return Ok(true);
                }
                Err(Errno::AGAIN) => self.wait(PollFlags::IN)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(&self.path, errno.into())),
            }
        }
    }

    /// Waits until the connection is ready.
    fn wait(&self, events: PollFlags) -> Result<(), ControlError> {
        loop {
            self.interrupt.check()?;
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.silent());
            }
            let limit = left.min(POLL_INTERVAL).as_nanos();
            let limit = Timespec { tv_sec: 0, tv_nsec: limit.try_into().unwrap_or_default() };
            match poll(&mut [PollFd::new(&self.stream, events)], Some(&limit)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(failed(&self.path, errno.into())),
            }
        }
    }

    /// Returns the error of a service that does not answer, with what can be found out about its process.
    fn silent(&self) -> ControlError {
        // The process that listens, as the kernel remembers it; none where it is out of sight.
        let process = socket_peercred(self.stream.as_fd()).map(|peer| peer.pid.as_raw_nonzero().get()).ok();
        let state = process.and_then(|process| process::state(Path::new(PROCFS), process));
        let why = match state {
            Some('T' | 't') => Silence::Stopped,
            Some('D') => Silence::Blocked,
            _ => Silence::Waiting,
        };
        ControlError::Silent { process: process.filter(|_| state.is_some()), why }
    }
}

/// Returns whether the directory of a socket is closed to others: `trimtab trim` may make it so, and a service opens it to
/// everyone when it starts.
fn is_closed(socket: &Path) -> bool {
    let directory = socket.parent().and_then(|directory| directory.metadata().ok());
    directory.is_some_and(|directory| directory.mode() & 0o001 == 0)
}

fn failed(path: &Path, source: io::Error) -> ControlError {
    ControlError::Communicate { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// A service that takes connections and never answers.
    fn mute() -> (tempfile::TempDir, PathBuf, UnixListener) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 3).unwrap();
        (directory, path, listener)
    }

    #[test]
    fn mute_service_is_waited_for_until_the_deadline() {
        let (_directory, path, _listener) = mute();
        let mut connection = Connection::open(&path, &Interrupt::never()).unwrap();
        connection.begin(Duration::from_millis(120), &Interrupt::never());
        let started = Instant::now();
        let error = connection.line().unwrap_err();
        assert!(started.elapsed() >= Duration::from_millis(120));
        let this = i32::try_from(std::process::id()).ok();
        assert!(matches!(error, ControlError::Silent { process, .. } if process == this), "{error}");
        // Neither does it hold a client that sends more than the kernel takes.
        connection.begin(Duration::from_millis(120), &Interrupt::never());
        let error = connection.send(&vec![b'x'; 16 << 20]).unwrap_err();
        assert!(matches!(error, ControlError::Silent { .. }), "{error}");
    }

    #[test]
    fn interrupt_ends_every_wait() {
        let (_directory, path, _listener) = mute();
        let interrupt = Interrupt::default();
        let mut connection = Connection::open(&path, &interrupt).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| connection.line());
            thread::sleep(Duration::from_millis(20));
            interrupt.ask();
            let asked = Instant::now();
            let error = waiting.join().unwrap().unwrap_err();
            assert!(matches!(error, ControlError::Interrupted(_)), "{error}");
            assert!(asked.elapsed() < TIMEOUT / 2);
        });
        // As many clients as may wait: the next one waits for its connection.
        let clients: Vec<_> = std::iter::from_fn(|| {
            let (path, interrupt) = (path.clone(), Interrupt::default());
            interrupt.ask();
            Connection::open(&path, &interrupt).ok()
        })
        .collect();
        assert!((1..10).contains(&clients.len()), "{}", clients.len());
        let error = Connection::open(&path, &interrupt).unwrap_err();
        assert!(matches!(error, ControlError::Interrupted(_)), "{error}");
    }

    #[test]
    fn lines_are_found_however_they_arrive() {
        let (_directory, path, listener) = mute();
        let mut connection = Connection::open(&path, &Interrupt::never()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        thread::spawn(move || {
            for part in ["on", "e\ntwo\nth", "ree"] {
                server.write_all(part.as_bytes()).unwrap();
                thread::sleep(Duration::from_millis(5));
            }
        });
        assert_eq!(connection.line().unwrap(), b"one");
        assert_eq!(connection.line().unwrap(), b"two");
        assert_eq!(connection.rest().unwrap(), b"three");
    }
}
