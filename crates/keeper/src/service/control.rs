//! The protocol of the service's sockets, and a client for it.
//!
//! The control socket takes requests from root only: JSON, one line per request and per response. The status
//! socket sends the status to every client that connects.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trimtab_core::document::StatusDocument;
use trimtab_core::interrupt::Interrupt;
use trimtab_core::{Bytes, Extent};

use super::connection::{Connection, TIMEOUT};
pub use super::connection::{ControlError, Silence};

/// The directory of the service's sockets.
pub const RUN: &str = "/run/trimtab";
/// The name of the socket that takes requests from root.
pub(super) const CONTROL: &str = "control";
/// The name of the socket that sends the status to everyone.
pub(super) const STATUS: &str = "status";

/// How long the service may take to hear what an interrupted client gives back.
const LAST_TIMEOUT: Duration = Duration::from_millis(500);

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
    /// Read the pauses again, and end the trims of file systems that are paused.
    ReadPauses,
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
    /// The pauses were read, and this many trims of paused file systems have not ended yet.
    Trimming(usize),
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
    /// Returns the extent; `None` if its end exceeds the address space.
    pub fn extent(self) -> Option<Extent> {
        let end = self.0.checked_add(self.1)?;
        Some(Extent::new(Bytes(self.0), Bytes(end)))
    }
}

/// Returns the status of the service whose sockets are in `directory`. Needs no privileges.
///
/// # Errors
/// Any [`ControlError`] except [`ControlError::Refused`] and [`ControlError::Interrupted`].
pub fn status(directory: &Path) -> Result<StatusDocument, ControlError> {
    let path = directory.join(STATUS);
    let text = Connection::open(&path, &Interrupt::never())?.rest()?;
    serde_json::from_slice(&text).map_err(|source| ControlError::Answer { path, source })
}

/// A connection to the control socket; needs root.
#[derive(Debug)]
pub struct Control {
    connection: Connection,
    interrupt: Interrupt,
}

impl Control {
    /// Connects to the service whose sockets are in `directory`.
    ///
    /// # Errors
    /// [`ControlError::NotRunning`], [`ControlError::Denied`], [`ControlError::Silent`] or
    /// [`ControlError::Communicate`].
    pub fn connect(directory: &Path) -> Result<Self, ControlError> {
        Self::connect_until(directory, &Interrupt::never())
    }

    /// As [`Self::connect`]; this, and each request, fails once `interrupt` is set.
    ///
    /// # Errors
    /// As [`Self::connect`], and [`ControlError::Interrupted`].
    pub fn connect_until(directory: &Path, interrupt: &Interrupt) -> Result<Self, ControlError> {
        let connection = Connection::open(&directory.join(CONTROL), interrupt)?;
        Ok(Self { connection, interrupt: interrupt.clone() })
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

    /// Makes the service read the pauses again, and end the trims that they rule out. Returns how many of these have not
    /// ended yet.
    ///
    /// # Errors
    /// Any [`ControlError`].
    pub fn read_pauses(&mut self) -> Result<usize, ControlError> {
        match self.request(&Request::ReadPauses)? {
            Response::Trimming(count) => Ok(count),
            _ => Ok(0),
        }
    }

    /// Ends the lease; the extents `left` become pending again. Once the interrupt is set, the service has half a second
    /// to hear that.
    ///
    /// # Errors
    /// Any [`ControlError`].
    pub fn give_back(&mut self, left: impl IntoIterator<Item = Extent>) -> Result<(), ControlError> {
        let request = Request::GiveBack { left: left.into_iter().map(Piece::from).collect() };
        let answered = if self.interrupt.is_set() {
            self.exchange(&request, LAST_TIMEOUT, &Interrupt::never())
        } else {
            self.request(&request)
        };
        answered.map(drop)
    }

    fn request(&mut self, request: &Request) -> Result<Response, ControlError> {
        let interrupt = self.interrupt.clone();
        self.exchange(request, TIMEOUT, &interrupt)
    }

    fn exchange(
        &mut self,
        request: &Request,
        limit: Duration,
        interrupt: &Interrupt,
    ) -> Result<Response, ControlError> {
        let path = self.connection.path().to_owned();
        let mut line = serde_json::to_vec(request)
            .map_err(|error| ControlError::Communicate { path: path.clone(), source: error.into() })?;
        line.push(b'\n');
        self.connection.begin(limit, interrupt);
        self.connection.send(&line)?;
        match serde_json::from_slice(&self.connection.line()?) {
            Ok(Response::Refused(reason)) => Err(ControlError::Refused(reason)),
            Ok(response) => Ok(response),
            Err(source) => Err(ControlError::Answer { path, source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_documented_format() {
        for (request, line) in [
            (Request::Status, r#"{"verb":"status"}"#),
            (Request::Reload, r#"{"verb":"reload"}"#),
            (Request::ReadPauses, r#"{"verb":"read-pauses"}"#),
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
