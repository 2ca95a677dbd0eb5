//! The protocol of the service's sockets, and a client for it.
//!
//! The control socket takes requests from root only: JSON, one line per request and per response. The status
//! socket sends the status to every client that connects.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trimtab_core::document::StatusDocument;
use trimtab_core::{Bytes, Extent};

/// The directory of the service's sockets.
pub const RUN: &str = "/run/trimtab";
/// The name of the socket that takes requests from root.
pub(super) const CONTROL: &str = "control";
/// The name of the socket that sends the status to everyone.
pub(super) const STATUS: &str = "status";

/// How long a response may take: the service may be waiting for a slow discard.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A request to the service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Return the status.
    Status,
    /// Read the configuration again.
    Reload,
    /// Lease the pending extents of the file system mounted at `mount`, which the service doesn't trim until
    /// they are given back or the connection ends.
    TakePending {
        /// The mount point.
        mount: PathBuf,
    },
    /// End the lease; these extents become pending again.
    GiveBack {
        /// The extents, in the file system's trim address space.
        left: Vec<Piece>,
    },
}

/// A response of the service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Response {
    /// The status.
    Status(StatusDocument),
    /// The request was carried out.
    Done,
    /// The leased extents, in the file system's trim address space.
    Pending(Vec<Piece>),
    /// The request was refused for this reason.
    Refused(String),
}

/// An extent as its first byte and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece(u64, u64);

impl From<Extent> for Piece {
    fn from(extent: Extent) -> Self {
        Self(extent.start.0, extent.len().0)
    }
}

impl Piece {
    /// Returns the extent; none if its end exceeds the address space.
    pub fn extent(self) -> Option<Extent> {
        let end = self.0.checked_add(self.1)?;
        Some(Extent::new(Bytes(self.0), Bytes(end)))
    }
}

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
}

/// Returns the status of the service whose sockets are in `directory`. Needs no privileges.
///
/// # Errors
/// Any [`ControlError`] except [`ControlError::Refused`].
pub fn status(directory: &Path) -> Result<StatusDocument, ControlError> {
    let path = directory.join(STATUS);
    let mut text = String::new();
    connect(&path)?.read_to_string(&mut text).map_err(|source| failed(&path, source))?;
    serde_json::from_str(&text).map_err(|source| ControlError::Answer { path, source })
}

/// A connection to the control socket; needs root.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Control {
    /// Connects to the service whose sockets are in `directory`.
    ///
    /// # Errors
    /// [`ControlError::NotRunning`], [`ControlError::Denied`] or [`ControlError::Communicate`].
    pub fn connect(directory: &Path) -> Result<Self, ControlError> {
        let path = directory.join(CONTROL);
        let stream = BufReader::new(connect(&path)?);
        Ok(Self { path, stream })
    }

    /// Makes the service read its configuration again.
    ///
    /// # Errors
    /// Any [`ControlError`].
    pub fn reload(&mut self) -> Result<(), ControlError> {
        self.request(&Request::Reload).map(drop)
    }

    /// Leases the pending extents of the file system mounted at `mount`, which the service doesn't trim until
    /// [`Self::give_back`] or until this connection ends.
    ///
    /// # Errors
    /// Any [`ControlError`]; [`ControlError::Refused`] if the service doesn't know what is pending there.
    pub fn take_pending(&mut self, mount: &Path) -> Result<Vec<Extent>, ControlError> {
        match self.request(&Request::TakePending { mount: mount.to_owned() })? {
            Response::Pending(pieces) => Ok(pieces.into_iter().filter_map(Piece::extent).collect()),
            _ => Ok(Vec::new()),
        }
    }

    /// Ends the lease; the extents `left` become pending again.
    ///
    /// # Errors
    /// Any [`ControlError`].
    pub fn give_back(&mut self, left: impl IntoIterator<Item = Extent>) -> Result<(), ControlError> {
        let left = left.into_iter().map(Piece::from).collect();
        self.request(&Request::GiveBack { left }).map(drop)
    }

    fn request(&mut self, request: &Request) -> Result<Response, ControlError> {
        let Self { path, stream } = self;
        let mut line = serde_json::to_string(request).map_err(|error| failed(path, error.into()))?;
        line.push('\n');
        stream.get_mut().write_all(line.as_bytes()).map_err(|source| failed(path, source))?;
        line.clear();
        if stream.read_line(&mut line).map_err(|source| failed(path, source))? == 0 {
            return Err(failed(path, io::ErrorKind::ConnectionAborted.into()));
        }
        match serde_json::from_str(&line) {
            Ok(Response::Refused(reason)) => Err(ControlError::Refused(reason)),
            Ok(response) => Ok(response),
            Err(source) => Err(ControlError::Answer { path: path.clone(), source }),
        }
    }
}

fn connect(path: &Path) -> Result<UnixStream, ControlError> {
    let stream = UnixStream::connect(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ControlError::NotRunning,
        io::ErrorKind::PermissionDenied if is_closed(path) => ControlError::NotRunning,
        io::ErrorKind::PermissionDenied => ControlError::Denied,
        _ => failed(path, source),
    })?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(|source| failed(path, source))?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(|source| failed(path, source))?;
    Ok(stream)
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
    use super::*;

    #[test]
    fn requests_have_the_documented_format() {
        for (request, line) in [
            (Request::Status, r#"{"verb":"status"}"#),
            (Request::Reload, r#"{"verb":"reload"}"#),
            (Request::TakePending { mount: "/home".into() }, r#"{"verb":"take-pending","mount":"/home"}"#),
            (
                Request::GiveBack { left: vec![Piece(4096, 8192)] },
                r#"{"verb":"give-back","left":[[4096,8192]]}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&request).unwrap(), line);
            assert_eq!(serde_json::from_str::<Request>(line).unwrap(), request);
        }
        assert_eq!(serde_json::to_string(&Response::Refused("no".into())).unwrap(), r#"{"refused":"no"}"#);
        assert_eq!(Piece(u64::MAX, 1).extent(), None);
    }
}
