//! What the service is asked over its sockets, and how to ask it.
//!
//! Beside the control socket, which takes requests of root only, there is one that tells whoever connects
//! the status, and takes nothing. Requests and answers are JSON, a line each.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trimtab_core::document::StatusDocument;
use trimtab_core::{Bytes, Extent};

/// Where the service's sockets are.
pub const RUN: &str = "/run/trimtab";
/// The name of the socket that takes requests, of root only.
pub(super) const CONTROL: &str = "control";
/// The name of the socket that tells everyone the status.
pub(super) const STATUS: &str = "status";

/// How long an answer may take: the service may be in the midst of a slow discard.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the service is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// How it tends each file system.
    Status,
    /// To read its configuration again.
    Reload,
    /// To hand over what is pending of the file system mounted at `mount`, and to leave that alone until
    /// it is given back, or the connection ends.
    TakePending {
        /// The mount point.
        mount: PathBuf,
    },
    /// To take back what was handed over, of which these are still to be trimmed.
    GiveBack {
        /// The extents, in the file system's trim address space.
        left: Vec<Piece>,
    },
}

/// What the service answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Response {
    /// How it tends each file system.
    Status(StatusDocument),
    /// What was asked for is done.
    Done,
    /// What is pending, in the file system's trim address space.
    Pending(Vec<Piece>),
    /// It is not done, for this reason.
    Refused(String),
}

/// An extent, short for the wire: its first byte and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece(u64, u64);

impl From<Extent> for Piece {
    fn from(extent: Extent) -> Self {
        Self(extent.start.0, extent.len().0)
    }
}

impl Piece {
    /// The extent; none where it would end beyond what can be addressed.
    pub fn extent(self) -> Option<Extent> {
        let end = self.0.checked_add(self.1)?;
        Some(Extent::new(Bytes(self.0), Bytes(end)))
    }
}

/// Why the service gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// It doesn't run.
    #[error("the service doesn't run: start it with systemctl start trimtab, or as trimtab daemon")]
    NotRunning,
    /// It takes no requests of this user.
    #[error("the service takes requests of root only")]
    Denied,
    /// It is there, but can't be talked with.
    #[error("cannot talk with the service at {}", path.display())]
    Talk {
        /// Its socket.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// It said what isn't understood: another version's, for one.
    #[error("the service at {} gave an answer that isn't understood; is it of another version?", path.display())]
    Answer {
        /// Its socket.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// It refused.
    #[error("the service refuses: {0}")]
    Refused(String),
}

/// What the service whose sockets are in `directory` does, which everyone may ask.
///
/// # Errors
/// Any [`ControlError`] but a refusal.
pub fn status(directory: &Path) -> Result<StatusDocument, ControlError> {
    let path = directory.join(STATUS);
    let mut text = String::new();
    connect(&path)?.read_to_string(&mut text).map_err(|source| talk(&path, source))?;
    serde_json::from_str(&text).map_err(|source| ControlError::Answer { path, source })
}

/// A connection with the service, for root.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Control {
    /// Connects with the service whose sockets are in `directory`.
    ///
    /// # Errors
    /// [`ControlError::NotRunning`], [`ControlError::Denied`] or [`ControlError::Talk`].
    pub fn connect(directory: &Path) -> Result<Self, ControlError> {
        let path = directory.join(CONTROL);
        let stream = BufReader::new(connect(&path)?);
        Ok(Self { path, stream })
    }

    /// Asks it to read its configuration again.
    ///
    /// # Errors
    /// Any [`ControlError`].
    pub fn reload(&mut self) -> Result<(), ControlError> {
        self.ask(&Request::Reload).map(drop)
    }

    /// Takes over what is pending on the file system mounted at `mount`, which the service leaves alone until
    /// [`Self::give_back`], or until this connection ends.
    ///
    /// # Errors
    /// Any [`ControlError`]; a refusal where the service doesn't know what is pending there.
    pub fn take_pending(&mut self, mount: &Path) -> Result<Vec<Extent>, ControlError> {
        match self.ask(&Request::TakePending { mount: mount.to_owned() })? {
            Response::Pending(pieces) => Ok(pieces.into_iter().filter_map(Piece::extent).collect()),
            _ => Ok(Vec::new()),
        }
    }

    /// Gives back what was taken over, of which `left` is still to be trimmed.
    ///
    /// # Errors
    /// Any [`ControlError`].
    pub fn give_back(&mut self, left: impl IntoIterator<Item = Extent>) -> Result<(), ControlError> {
        let left = left.into_iter().map(Piece::from).collect();
        self.ask(&Request::GiveBack { left }).map(drop)
    }

    fn ask(&mut self, request: &Request) -> Result<Response, ControlError> {
        let Self { path, stream } = self;
        let mut line = serde_json::to_string(request).map_err(|error| talk(path, error.into()))?;
        line.push('\n');
        stream.get_mut().write_all(line.as_bytes()).map_err(|source| talk(path, source))?;
        line.clear();
        if stream.read_line(&mut line).map_err(|source| talk(path, source))? == 0 {
            return Err(talk(path, io::ErrorKind::ConnectionAborted.into()));
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
        io::ErrorKind::PermissionDenied => ControlError::Denied,
        _ => talk(path, source),
    })?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|source| talk(path, source))?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(|source| talk(path, source))?;
    Ok(stream)
}

fn talk(path: &Path, source: io::Error) -> ControlError {
    ControlError::Talk { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_is_as_it_is_documented() {
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
