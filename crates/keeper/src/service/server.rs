//! Serves the control socket, the status socket and the metrics port.
//!
//! No client can block the service: all I/O is non-blocking, the number of connections is limited, and each
//! but those of root has a deadline. Anybody can connect to the metrics port, so a new client there replaces
//! the oldest one when the limit is reached.

mod client;
mod lock;

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
use client::{Client, Endpoint};
pub(super) use client::{ClientEvent, ClientId};
use lock::Lock;

/// The most clients of each Unix socket at a time.
const MAX_SOCKET_CLIENTS: usize = 8;
/// The most metrics clients at a time.
const MAX_METRICS_CLIENTS: usize = 128;
/// The most metrics clients from one address at a time.
const MAX_CLIENTS_PER_ADDRESS: usize = 64;
/// The most metrics clients that are accepted before existing ones are served.
const METRICS_AT_ONCE: usize = 16;

/// Why the sockets can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Another service runs.
    #[error("the service runs already: {} is locked; trimtab status shows what it does", lock.display())]
    Running {
        /// The locked file.
        lock: PathBuf,
    },
    /// The directory belongs to another user, who could replace files in it.
    #[error(
        "{} belongs to user {owner}, who could impersonate the service; remove it, or change its owner",
        directory.display()
    )]
    Foreign {
        /// The directory.
        directory: PathBuf,
        /// The user's id.
        owner: u32,
    },
    /// A socket or its directory can't be created.
    #[error("cannot create {}", path.display())]
    Create {
        /// The socket, file or directory.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// Metrics can't be served.
    #[error("cannot serve metrics at {address}")]
    Metrics {
        /// The configured address.
        address: SocketAddr,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// The listening sockets and their clients.
#[derive(Debug)]
pub(super) struct Server {
    control: UnixListener,
    status: UnixListener,
    metrics: Option<(SocketAddr, TcpListener)>,
    clients: Vec<Client>,
    next: u64,
    large_buffer_freed: bool,
    directory: PathBuf,
    // Held until the sockets are closed.
    _lock: Lock,
}

impl Server {
    /// Opens the Unix sockets in `directory`, which is created if missing, and the metrics port at `metrics`.
    ///
    /// # Errors
    /// Any [`ServerError`]; [`ServerError::Running`] if another service holds the lock.
    pub fn open(directory: &Path, metrics: Option<SocketAddr>) -> Result<Self, ServerError> {
        let creating = |path: &Path| {
            let path = path.to_owned();
            move |source| ServerError::Create { path, source }
        };
        DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(creating(directory))?;
        let owner = fs::metadata(directory).map_err(creating(directory))?.uid();
        if owner != geteuid().as_raw() {
            return Err(ServerError::Foreign { directory: directory.to_owned(), owner });
        }
        // `trimtab trim` creates the directory too, with its own mode; its files in there are private.
        fs::set_permissions(directory, Permissions::from_mode(0o755)).map_err(creating(directory))?;
        let lock = Lock::take(directory)?;
        let listen = |name: &str, mode| {
            let path = directory.join(name);
            // A killed service leaves its sockets behind.
            let _ = fs::remove_file(&path);
            let listener = UnixListener::bind(&path).map_err(creating(&path))?;
            fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(creating(&path))?;
            listener.set_nonblocking(true).map_err(creating(&path))?;
            Ok(listener)
        };
        let mut server = Self {
            control: listen(CONTROL, 0o600)?,
            status: listen(STATUS, 0o666)?,
            metrics: None,
            clients: Vec::new(),
            next: 0,
            large_buffer_freed: false,
            directory: directory.to_owned(),
            _lock: lock,
        };
        server.set_metrics_address(metrics)?;
        Ok(server)
    }

    /// Serves metrics at `address` from now on, or nowhere if it is none.
    ///
    /// # Errors
    /// [`ServerError::Metrics`]; the previous address stays in use.
    pub fn set_metrics_address(&mut self, address: Option<SocketAddr>) -> Result<(), ServerError> {
        if self.metrics.as_ref().map(|(served_at, _)| *served_at) == address {
            return Ok(());
        }
        self.metrics = match address {
            None => None,
            Some(address) => {
                let failed = |source| ServerError::Metrics { address, source };
                let listener = TcpListener::bind(address).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                Some((address, listener))
            }
        };
        Ok(())
    }

    /// The events to poll for.
    pub fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let metrics = self.metrics.as_ref().map(|(_, listener)| listener.as_fd());
        let listeners = [
            (Endpoint::Control, Some(self.control.as_fd())),
            (Endpoint::Status, Some(self.status.as_fd())),
            (Endpoint::Metrics, metrics),
        ];
        let listeners = listeners.into_iter().filter(|(endpoint, _)| self.has_room(*endpoint));
        let listeners = listeners.filter_map(|(_, listener)| listener);
        let listeners = listeners.map(|listener| PollFd::from_borrowed_fd(listener, PollFlags::IN));
        listeners.chain(self.clients.iter().map(Client::poll_fd))
    }

    /// Returns the earliest deadline of a client.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.clients.iter().filter_map(Client::deadline).min()
    }

    /// Reads and writes without blocking; returns what clients want.
    pub fn serve(&mut self, now: Instant) -> Vec<(ClientId, ClientEvent)> {
        let mut events = Vec::new();
        self.clients.retain_mut(|client| {
            let is_late = client.deadline().is_some_and(|until| until <= now);
            let event = if is_late { Some(ClientEvent::Closed) } else { client.serve() };
            let stays = event != Some(ClientEvent::Closed);
            self.large_buffer_freed |= !stays && client.large_buffer_freed();
            events.extend(event.map(|event| (client.id, event)));
            stays
        });
        events
    }

    /// Sends the response to a request.
    pub fn answer(&mut self, to: ClientId, response: &Response) {
        // Responses hold only text and numbers, so they can always be written as JSON.
        if let Ok(mut line) = serde_json::to_vec(response) {
            line.push(b'\n');
            self.send(to, line, false);
        }
    }

    /// Sends `text` and ends the connection.
    pub fn send_last(&mut self, to: ClientId, text: Vec<u8>) {
        self.send(to, text, true);
    }

    fn send(&mut self, to: ClientId, text: Vec<u8>, last: bool) {
        let Some(index) = self.clients.iter().position(|client| client.id == to) else { return };
        if !self.clients[index].send(text, last) {
            self.large_buffer_freed |= self.clients.remove(index).large_buffer_freed();
        }
    }

    /// Returns true once after the memory of a long request or response became free.
    pub fn take_large_buffer_freed(&mut self) -> bool {
        let large_buffer_freed =
            self.clients.iter_mut().fold(false, |had, client| client.large_buffer_freed() | had);
        std::mem::take(&mut self.large_buffer_freed) | large_buffer_freed
    }

    fn has_room(&self, endpoint: Endpoint) -> bool {
        endpoint == Endpoint::Metrics
            || self.clients.iter().filter(|client| client.endpoint == endpoint).count() < MAX_SOCKET_CLIENTS
    }

    /// Accepts waiting clients up to the limits.
    pub fn accept_clients(&mut self, now: Instant) {
        for endpoint in [Endpoint::Control, Endpoint::Status] {
            while self.has_room(endpoint) {
                let listener = if endpoint == Endpoint::Control { &self.control } else { &self.status };
                let Ok((stream, _)) = listener.accept() else { break };
                let stream = OwnedFd::from(stream);
                let is_root = || socket_peercred(&stream).is_ok_and(|peer| peer.uid.is_root());
                if endpoint == Endpoint::Status || is_root() {
                    self.add(endpoint, None, stream, now);
                }
            }
        }
        for _ in 0..METRICS_AT_ONCE {
            let Some((_, listener)) = &self.metrics else { break };
            let Ok((stream, from)) = listener.accept() else { break };
            self.make_room(from.ip());
            self.add(Endpoint::Metrics, Some(from.ip()), stream.into(), now);
        }
    }

    fn add(&mut self, endpoint: Endpoint, peer: Option<IpAddr>, stream: OwnedFd, now: Instant) {
        if rustix::io::ioctl_fionbio(&stream, true).is_ok() {
            self.clients.push(Client::new(ClientId(self.next), endpoint, peer, stream, now));
            self.next += 1;
        }
    }

    /// Makes room for one more metrics client from `peer` by closing the oldest connection: one of the same
    /// address if that has reached its limit, and preferably one without a complete request.
    fn make_room(&mut self, peer: IpAddr) {
        let connected = |own: bool| {
            let clients =
                self.clients.iter().enumerate().filter(|(_, other)| other.endpoint == Endpoint::Metrics);
            clients.filter(move |(_, other)| !own || other.peer == Some(peer))
        };
        let own = connected(true).count() >= MAX_CLIENTS_PER_ADDRESS;
        if own || connected(false).count() >= MAX_METRICS_CLIENTS {
            let oldest = || connected(own).map(|(index, other)| (index, other.is_receiving()));
            let asking = oldest().find(|(_, is_receiving)| *is_receiving);
            if let Some((index, _)) = asking.or_else(|| oldest().next()) {
                self.clients.remove(index);
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for name in [CONTROL, STATUS] {
            let _ = fs::remove_file(self.directory.join(name));
        }
    }
}

#[cfg(test)]
mod tests;
