//! The doors that others come in by: the control socket, the status socket and the metrics port.
//!
//! Nobody who comes can hold up the service: nothing is waited for, and each door has few places, whose
//! holders must be done in time, root aside.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;

use super::control::{CONTROL, Request, Response, STATUS};
use super::http::{self, Asked};

/// How many may be inside a door at a time.
const PLACES: usize = 8;
/// How long one may stay who isn't root.
const STAY: Duration = Duration::from_secs(5);
/// The longest request of root: the extents that a trim gives back are many.
const LONGEST_REQUEST: usize = 4 << 20;

/// Why a door can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// Another one is there.
    #[error("the service runs already: {} is locked; trimtab status shows what it does", lock.display())]
    Runs {
        /// The file that it holds.
        lock: PathBuf,
    },
    /// A socket or its directory can't be made.
    #[error("cannot make {}", path.display())]
    Make {
        /// The socket, file or directory.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Metrics can't be served.
    #[error("cannot serve metrics at {address}")]
    Metrics {
        /// Where they should be.
        address: SocketAddr,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// The doors, and who is inside.
#[derive(Debug)]
pub(super) struct Doors {
    control: UnixListener,
    status: UnixListener,
    metrics: Option<(SocketAddr, TcpListener)>,
    visitors: Vec<Visitor>,
    next: u64,
    directory: PathBuf,
    // Held as long as the doors are open.
    _lock: File,
}

/// Tells visitors apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct VisitorId(u64);

/// What a visitor brings.
#[derive(Debug, PartialEq)]
pub(super) enum Visit {
    /// Root wants this.
    Asks(Request),
    /// Somebody wants to see the status.
    Status,
    /// Somebody wants to see the metrics.
    Metrics,
    /// It has gone.
    Left,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Control,
    Status,
    Metrics,
}

#[derive(Debug)]
struct Visitor {
    id: VisitorId,
    door: Door,
    stream: OwnedFd,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Whether it leaves when it has all of the output.
    last: bool,
    until: Option<Instant>,
}

impl Doors {
    /// Opens them in `directory`, which is made if need be, and at `metrics`.
    ///
    /// # Errors
    /// Any [`DoorError`]; [`DoorError::Runs`] where another process has them open.
    pub fn open(directory: &Path, metrics: Option<SocketAddr>) -> Result<Self, DoorError> {
        let made = |path: &Path| {
            let path = path.to_owned();
            move |source| DoorError::Make { path, source }
        };
        DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(made(directory))?;
        // Others may have made it for themselves; what is theirs in it, they guard.
        fs::set_permissions(directory, Permissions::from_mode(0o755)).map_err(made(directory))?;
        let path = directory.join("daemon.lock");
        let lock = File::create(&path).map_err(made(&path))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(DoorError::Runs { lock: path }),
            Err(errno) => return Err(made(&path)(errno.into())),
        }
        let listen = |name: &str, mode| {
            let path = directory.join(name);
            // One that was killed leaves its sockets.
            let _ = fs::remove_file(&path);
            let listener = UnixListener::bind(&path).map_err(made(&path))?;
            fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(made(&path))?;
            listener.set_nonblocking(true).map_err(made(&path))?;
            Ok(listener)
        };
        let mut doors = Self {
            control: listen(CONTROL, 0o600)?,
            status: listen(STATUS, 0o666)?,
            metrics: None,
            visitors: Vec::new(),
            next: 0,
            directory: directory.to_owned(),
            _lock: lock,
        };
        doors.serve_metrics_at(metrics)?;
        Ok(doors)
    }

    /// Serves metrics there from now on, and nowhere else.
    ///
    /// # Errors
    /// [`DoorError::Metrics`]; then they are served where they were.
    pub fn serve_metrics_at(&mut self, address: Option<SocketAddr>) -> Result<(), DoorError> {
        if self.metrics.as_ref().map(|(served_at, _)| *served_at) == address {
            return Ok(());
        }
        self.metrics = match address {
            None => None,
            Some(address) => {
                let failed = |source| DoorError::Metrics { address, source };
                let listener = TcpListener::bind(address).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                Some((address, listener))
            }
        };
        Ok(())
    }

    /// What to wait for.
    pub fn awaited(&self) -> impl Iterator<Item = PollFd<'_>> {
        let metrics = self.metrics.as_ref().map(|(_, listener)| listener.as_fd());
        let doors = [
            (Door::Control, Some(self.control.as_fd())),
            (Door::Status, Some(self.status.as_fd())),
            (Door::Metrics, metrics),
        ];
        let doors = doors.into_iter().filter(|(door, _)| self.has_place(*door));
        let doors = doors.filter_map(|(_, listener)| listener);
        let doors = doors.map(|listener| PollFd::from_borrowed_fd(listener, PollFlags::IN));
        let visitors = self.visitors.iter().map(|visitor| match visitor.output.is_empty() {
            true => PollFd::new(&visitor.stream, PollFlags::IN),
            false => PollFd::new(&visitor.stream, PollFlags::OUT),
        });
        doors.chain(visitors)
    }

    /// When the first visitor has stayed long enough.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.visitors.iter().filter_map(|visitor| visitor.until).min()
    }

    /// Reads and writes what can be without waiting, and says what visitors bring.
    pub fn attend(&mut self, now: Instant) -> Vec<(VisitorId, Visit)> {
        let mut visits = Vec::new();
        self.visitors.retain_mut(|visitor| {
            let is_late = visitor.until.is_some_and(|until| until <= now);
            let visit = if is_late { Some(Visit::Left) } else { visitor.attend() };
            let stays = visit != Some(Visit::Left);
            visits.extend(visit.map(|visit| (visitor.id, visit)));
            stays
        });
        visits
    }

    /// Answers a request.
    pub fn answer(&mut self, to: VisitorId, response: &Response) {
        // What is answered is made of text and numbers, which always can be written as JSON.
        if let Ok(mut line) = serde_json::to_vec(response) {
            line.push(b'\n');
            self.hand(to, line, false);
        }
    }

    /// Hands the visitor this text, after which it leaves.
    pub fn hand_last(&mut self, to: VisitorId, text: Vec<u8>) {
        self.hand(to, text, true);
    }

    fn hand(&mut self, to: VisitorId, text: Vec<u8>, last: bool) {
        let Some(place) = self.visitors.iter().position(|visitor| visitor.id == to) else { return };
        let visitor = &mut self.visitors[place];
        (visitor.output, visitor.last) = (text, last);
        // As a rule all is taken at once.
        if visitor.write().is_err() || (last && visitor.output.is_empty()) {
            self.visitors.remove(place);
        }
    }

    fn has_place(&self, door: Door) -> bool {
        self.visitors.iter().filter(|visitor| visitor.door == door).count() < PLACES
    }

    /// Lets in who waits, as far as there are places.
    pub fn let_in(&mut self, now: Instant) {
        for door in [Door::Control, Door::Status, Door::Metrics] {
            while self.has_place(door) {
                let stream = match door {
                    Door::Control => self.control.accept().map(|(stream, _)| OwnedFd::from(stream)),
                    Door::Status => self.status.accept().map(|(stream, _)| OwnedFd::from(stream)),
                    Door::Metrics => match &self.metrics {
                        Some((_, listener)) => listener.accept().map(|(stream, _)| OwnedFd::from(stream)),
                        None => break,
                    },
                };
                let Ok(stream) = stream else { break };
                let is_root = || socket_peercred(&stream).is_ok_and(|peer| peer.uid.is_root());
                if rustix::io::ioctl_fionbio(&stream, true).is_err() || (door == Door::Control && !is_root())
                {
                    continue;
                }
                self.visitors.push(Visitor {
                    id: VisitorId(self.next),
                    door,
                    stream,
                    input: Vec::new(),
                    output: Vec::new(),
                    last: false,
                    until: (door != Door::Control).then(|| now + STAY),
                });
                self.next += 1;
            }
        }
    }
}

impl Drop for Doors {
    fn drop(&mut self) {
        for name in [CONTROL, STATUS] {
            let _ = fs::remove_file(self.directory.join(name));
        }
    }
}

impl Visitor {
    /// Reads and writes what can be without waiting.
    fn attend(&mut self) -> Option<Visit> {
        if !self.output.is_empty() {
            match self.write() {
                Err(_) => return Some(Visit::Left),
                Ok(()) if !self.output.is_empty() => return None,
                Ok(()) => {}
            }
        }
        if self.last {
            return Some(Visit::Left);
        }
        if self.door == Door::Status {
            return Some(Visit::Status);
        }
        let came = self.read();
        match self.brought() {
            None if came.is_err() => Some(Visit::Left),
            visit => visit,
        }
    }

    /// Reads what is there; fails at the end.
    fn read(&mut self) -> Result<(), Errno> {
        let mut chunk = [0; 16 << 10];
        loop {
            match rustix::io::read(&self.stream, &mut chunk) {
                Ok(0) => return Err(Errno::PIPE),
                Ok(length) => self.input.extend(&chunk[..length]),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
            if self.input.len() > LONGEST_REQUEST {
                return Err(Errno::MSGSIZE);
            }
            if self.door == Door::Metrics && self.input.len() >= http::MOST {
                return Ok(());
            }
        }
    }

    /// What it asked for, if all of that is there.
    fn brought(&mut self) -> Option<Visit> {
        if self.door == Door::Metrics {
            match http::asked(&self.input) {
                Asked::NotYet => return None,
                Asked::Metrics => return Some(Visit::Metrics),
                Asked::Refused(status) => (self.output, self.last) = (http::refusal(status), true),
            }
            return (self.write().is_err() || self.output.is_empty()).then_some(Visit::Left);
        }
        let end = self.input.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<_> = self.input.drain(..=end).collect();
        self.input.shrink_to_fit();
        match serde_json::from_slice(&line) {
            Ok(request) => Some(Visit::Asks(request)),
            Err(error) => {
                let refused = Response::Refused(format!("that is no request: {error}"));
                self.output = serde_json::to_vec(&refused).unwrap_or_default();
                self.output.push(b'\n');
                self.write().err().map(|_| Visit::Left)
            }
        }
    }

    /// Writes what is taken.
    fn write(&mut self) -> Result<(), Errno> {
        while !self.output.is_empty() {
            match rustix::io::write(&self.stream, &self.output) {
                Ok(length) => _ = self.output.drain(..length),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        self.output = Vec::new();
        if self.last {
            let _ = rustix::net::shutdown(self.stream.as_fd(), rustix::net::Shutdown::Write);
        }
        Ok(())
    }
}
