//! The doors that others come in by: the control socket, the status socket and the metrics port.
//!
//! Nobody who comes can hold up the service: nothing is waited for, and each door has few places, whose
//! holders must be done in time, root aside. At the metrics, to which anybody can connect, those who are
//! longest inside make room for those who come.

mod lock;
mod visitor;

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use super::control::{CONTROL, Response, STATUS};
use lock::Lock;
use visitor::{Door, Visitor};
pub(super) use visitor::{Visit, VisitorId};

/// How many may be inside the door of a socket at a time.
const PLACES: usize = 8;
/// How many may be inside the door of the metrics at a time.
const METRICS_PLACES: usize = 128;
/// How many of them may come from one address.
const CLIENT_PLACES: usize = 64;
/// How many come in by the door of the metrics before all are attended to.
const METRICS_AT_ONCE: usize = 16;

/// Why a door can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// Another one is there.
    #[error("the service runs already: {} is locked; trimtab status shows what it does", lock.display())]
    Runs {
        /// The file that it holds.
        lock: PathBuf,
    },
    /// The directory belongs to somebody else, who could replace what is in it.
    #[error(
        "{} belongs to user {owner}, who could stop the service and answer in its place; remove it, or change its \
         owner",
        directory.display()
    )]
    Foreign {
        /// The directory.
        directory: PathBuf,
        /// The user's number.
        owner: u32,
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
    had_bulk: bool,
    directory: PathBuf,
    // Held as long as the doors are open.
    _lock: Lock,
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
        let owner = fs::metadata(directory).map_err(made(directory))?.uid();
        if owner != geteuid().as_raw() {
            return Err(DoorError::Foreign { directory: directory.to_owned(), owner });
        }
        // Trims make it for themselves, too; what is theirs in it, they guard.
        fs::set_permissions(directory, Permissions::from_mode(0o755)).map_err(made(directory))?;
        let lock = Lock::take(directory)?;
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
            had_bulk: false,
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
        doors.chain(self.visitors.iter().map(Visitor::awaited))
    }

    /// When the first visitor has stayed long enough.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.visitors.iter().filter_map(Visitor::until).min()
    }

    /// Reads and writes what can be without waiting, and says what visitors bring.
    pub fn attend(&mut self, now: Instant) -> Vec<(VisitorId, Visit)> {
        let mut visits = Vec::new();
        self.visitors.retain_mut(|visitor| {
            let is_late = visitor.until().is_some_and(|until| until <= now);
            let visit = if is_late { Some(Visit::Left) } else { visitor.attend() };
            let stays = visit != Some(Visit::Left);
            self.had_bulk |= !stays && visitor.had_bulk();
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
        if !self.visitors[place].hand(text, last) {
            self.had_bulk |= self.visitors.remove(place).had_bulk();
        }
    }

    /// Whether a long request or answer is over, whose memory can be given back to the kernel; says so once.
    pub fn take_bulk(&mut self) -> bool {
        let had_bulk = self.visitors.iter_mut().fold(false, |had, visitor| visitor.had_bulk() | had);
        std::mem::take(&mut self.had_bulk) | had_bulk
    }

    fn has_place(&self, door: Door) -> bool {
        door == Door::Metrics || self.visitors.iter().filter(|visitor| visitor.door == door).count() < PLACES
    }

    /// Lets in who waits, as far as there are places.
    pub fn let_in(&mut self, now: Instant) {
        for door in [Door::Control, Door::Status] {
            while self.has_place(door) {
                let listener = if door == Door::Control { &self.control } else { &self.status };
                let Ok((stream, _)) = listener.accept() else { break };
                let stream = OwnedFd::from(stream);
                let is_root = || socket_peercred(&stream).is_ok_and(|peer| peer.uid.is_root());
                if door == Door::Status || is_root() {
                    self.seat(door, None, stream, now);
                }
            }
        }
        for _ in 0..METRICS_AT_ONCE {
            let Some((_, listener)) = &self.metrics else { break };
            let Ok((stream, from)) = listener.accept() else { break };
            self.make_room(from.ip());
            self.seat(Door::Metrics, Some(from.ip()), stream.into(), now);
        }
    }

    fn seat(&mut self, door: Door, client: Option<IpAddr>, stream: OwnedFd, now: Instant) {
        if rustix::io::ioctl_fionbio(&stream, true).is_ok() {
            self.visitors.push(Visitor::new(VisitorId(self.next), door, client, stream, now));
            self.next += 1;
        }
    }

    /// Makes room for one more who comes from `client` for the metrics: the one who is longest inside leaves,
    /// of the same client where that has its places taken, and rather one that has asked for nothing yet.
    fn make_room(&mut self, client: IpAddr) {
        let inside = |own: bool| {
            let visitors = self.visitors.iter().enumerate().filter(|(_, other)| other.door == Door::Metrics);
            visitors.filter(move |(_, other)| !own || other.client == Some(client))
        };
        let own = inside(true).count() >= CLIENT_PLACES;
        if own || inside(false).count() >= METRICS_PLACES {
            let longest = || inside(own).map(|(place, other)| (place, other.is_asking()));
            let asking = longest().find(|(_, is_asking)| *is_asking);
            if let Some((place, _)) = asking.or_else(|| longest().next()) {
                self.visitors.remove(place);
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

#[cfg(test)]
mod tests;
