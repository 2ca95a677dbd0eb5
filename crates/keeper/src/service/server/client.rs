//! A connected client: its request so far, and what is left of the response.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::service::control::{Request, Response};
use crate::service::http::{self, HttpRequest};

/// How long a client other than root may stay connected.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a metrics client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest request: a trim may give back many extents.
const LONGEST_REQUEST: usize = 4 << 20;
/// The length of a request or response from which on its memory is worth returning to the kernel.
const LARGE: usize = 64 << 10;

/// Identifies a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::service) struct ClientId(pub(super) u64);

/// A request or event of a client.
#[derive(Debug, PartialEq)]
pub(in crate::service) enum ClientEvent {
    /// A request on the control socket.
    Request(Request),
    /// The status.
    Status,
    /// The metrics.
    Metrics,
    /// The connection is over.
    Closed,
}

/// Where a client connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    Control,
    Status,
    Metrics,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Client {
    pub id: ClientId,
    pub endpoint: Endpoint,
    /// The remote address; none for Unix sockets.
    pub peer: Option<IpAddr>,
    stream: OwnedFd,
    accepted: Instant,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Whether the connection ends once the output is sent.
    last: bool,
    /// Whether its buffers held a long text.
    had_large_buffer: bool,
}

impl Client {
    /// A client that connected to `endpoint` at `accepted`.
    pub fn new(
        id: ClientId,
        endpoint: Endpoint,
        peer: Option<IpAddr>,
        stream: OwnedFd,
        accepted: Instant,
    ) -> Self {
        let (input, output) = (Vec::new(), Vec::new());
        Self { id, endpoint, peer, stream, accepted, input, output, last: false, had_large_buffer: false }
    }

    /// Returns when the connection is closed at the latest; none for the control socket.
    pub fn deadline(&self) -> Option<Instant> {
        match self.endpoint {
            Endpoint::Control => None,
            Endpoint::Metrics if self.is_receiving() => Some(self.accepted + REQUEST_TIMEOUT),
            Endpoint::Status | Endpoint::Metrics => Some(self.accepted + CONNECTION_TIMEOUT),
        }
    }

    /// Returns whether the service waits for its request rather than sending a response.
    pub fn is_receiving(&self) -> bool {
        self.output.is_empty()
    }

    /// Returns true once after a long text was removed from its buffers.
    pub fn large_buffer_freed(&mut self) -> bool {
        let is_over = self.had_large_buffer && self.input.len().max(self.output.len()) < LARGE;
        is_over && std::mem::take(&mut self.had_large_buffer)
    }

    /// The event to poll for.
    pub fn poll_fd(&self) -> PollFd<'_> {
        PollFd::new(&self.stream, if self.is_receiving() { PollFlags::IN } else { PollFlags::OUT })
    }

    /// Sends `text`, and ends the connection after it if it is the `last`; returns whether the connection
    /// stays. One that the client has closed stays until it is served: [`ClientEvent::Closed`] ends what the client has.
    pub fn send(&mut self, text: Vec<u8>, last: bool) -> bool {
        self.had_large_buffer |= text.len() >= LARGE;
        (self.output, self.last) = (text, last);
        // The socket's buffer usually takes all of it at once.
        self.write().is_err() || !(last && self.output.is_empty())
    }

    /// Reads and writes without blocking.
    pub fn serve(&mut self) -> Option<ClientEvent> {
        if !self.output.is_empty() {
            match self.write() {
                Err(_) => return Some(ClientEvent::Closed),
                Ok(()) if !self.output.is_empty() => return None,
                Ok(()) => {}
            }
        }
        if self.last {
            return Some(ClientEvent::Closed);
        }
        if self.endpoint == Endpoint::Status {
            return Some(ClientEvent::Status);
        }
        let read = self.read();
        match self.parse_request() {
            None if read.is_err() => Some(ClientEvent::Closed),
            event => event,
        }
    }

    /// Reads without blocking; fails at the end of the stream.
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
            if self.endpoint == Endpoint::Metrics && self.input.len() >= http::MAX_REQUEST {
                return Ok(());
            }
        }
    }

    /// Returns the request once it is complete.
    fn parse_request(&mut self) -> Option<ClientEvent> {
        if self.endpoint == Endpoint::Metrics {
            match http::parse(&self.input) {
                HttpRequest::Incomplete => return None,
                HttpRequest::Metrics => return Some(ClientEvent::Metrics),
                HttpRequest::Refused(status) => (self.output, self.last) = (http::refusal(status), true),
            }
            return (self.write().is_err() || self.output.is_empty()).then_some(ClientEvent::Closed);
        }
        let end = self.input.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<_> = self.input.drain(..=end).collect();
        self.input.shrink_to_fit();
        self.had_large_buffer |= line.len() >= LARGE;
        match serde_json::from_slice(&line) {
            Ok(request) => Some(ClientEvent::Request(request)),
            Err(error) => {
                let refused = Response::Refused(format!("invalid request: {error}"));
                self.output = serde_json::to_vec(&refused).unwrap_or_default();
                self.output.push(b'\n');
                self.write().err().map(|_| ClientEvent::Closed)
            }
        }
    }

    /// Writes as much of the output as possible without blocking.
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn client_that_closes_before_the_response_is_reported_as_closed() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut client = Client::new(ClientId(1), Endpoint::Control, None, ours.into(), Instant::now());
        theirs.write_all(b"{\"verb\":\"take-pending\",\"mount\":\"/mnt\"}\n").unwrap();
        drop(theirs);
        let request = Request::TakePending { mount: "/mnt".into() };
        assert_eq!(client.serve(), Some(ClientEvent::Request(request)));
        assert!(
            client.send(b"{\"pending\":[]}\n".to_vec(), false),
            "what it has leased is ended by its next event"
        );
        assert_eq!(client.serve(), Some(ClientEvent::Closed));
    }
}
