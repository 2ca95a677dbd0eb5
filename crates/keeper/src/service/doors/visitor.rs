//! Who came in by a door: what has been read from it, and what is to be written to it.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::service::control::{Request, Response};
use crate::service::http::{self, Asked};

/// How long one may stay who isn't root.
const STAY: Duration = Duration::from_secs(5);
/// How long a client of the metrics may take for its request.
const HEADER: Duration = Duration::from_secs(2);
/// The longest request of root: the extents that a trim gives back are many.
const LONGEST_REQUEST: usize = 4 << 20;
/// From this length on, the memory of a request or an answer is worth giving back to the kernel.
const BULKY: usize = 64 << 10;

/// Tells visitors apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::service) struct VisitorId(pub(super) u64);

/// What a visitor brings.
#[derive(Debug, PartialEq)]
pub(in crate::service) enum Visit {
    /// Root wants this.
    Asks(Request),
    /// Somebody wants to see the status.
    Status,
    /// Somebody wants to see the metrics.
    Metrics,
    /// It has gone.
    Left,
}

/// One of the doors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    Control,
    Status,
    Metrics,
}

/// Somebody who is inside.
#[derive(Debug)]
pub(super) struct Visitor {
    pub id: VisitorId,
    pub door: Door,
    /// The address it came from; none at the sockets.
    pub client: Option<IpAddr>,
    stream: OwnedFd,
    came: Instant,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Whether it leaves when it has all of the output.
    last: bool,
    /// Whether a long text went through its buffers.
    is_bulky: bool,
}

impl Visitor {
    /// One who comes in now by `door`, from the address `client`.
    pub fn new(id: VisitorId, door: Door, client: Option<IpAddr>, stream: OwnedFd, came: Instant) -> Self {
        let (input, output) = (Vec::new(), Vec::new());
        Self { id, door, client, stream, came, input, output, last: false, is_bulky: false }
    }

    /// When it has stayed long enough; none where it may stay.
    pub fn until(&self) -> Option<Instant> {
        match self.door {
            Door::Control => None,
            Door::Metrics if self.is_asking() => Some(self.came + HEADER),
            Door::Status | Door::Metrics => Some(self.came + STAY),
        }
    }

    /// Whether it is to send something, rather than to take it.
    pub fn is_asking(&self) -> bool {
        self.output.is_empty()
    }

    /// Whether a long text went through its buffers, and is gone from them; says so once.
    pub fn had_bulk(&mut self) -> bool {
        let is_over = self.is_bulky && self.input.len().max(self.output.len()) < BULKY;
        is_over && std::mem::take(&mut self.is_bulky)
    }

    /// What to wait for.
    pub fn awaited(&self) -> PollFd<'_> {
        PollFd::new(&self.stream, if self.is_asking() { PollFlags::IN } else { PollFlags::OUT })
    }

    /// Hands it `text`, after which it leaves if that is the `last`; returns whether it stays.
    pub fn hand(&mut self, text: Vec<u8>, last: bool) -> bool {
        self.is_bulky |= text.len() >= BULKY;
        (self.output, self.last) = (text, last);
        // As a rule all is taken at once.
        self.write().is_ok() && !(last && self.output.is_empty())
    }

    /// Reads and writes what can be without waiting.
    pub fn attend(&mut self) -> Option<Visit> {
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
        self.is_bulky |= line.len() >= BULKY;
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
