//! Messages from the guest's first process to the host over a serial port: a header line in JSON
//! and a payload.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::GuestStatus;
use super::error::GuestError;

/// A port carries a few hundred KB/s: payloads from this length on are compressed.
const COMPRESSED_FROM: usize = 512;
const LEVEL: i32 = 3;

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MessageKind {
    /// A line of the command's standard error.
    Line,
    /// The command's program doesn't exist: its name.
    Missing,
    /// The command can't be run: why.
    Failed,
    /// All of the command's standard output.
    Stdout,
    /// All of the command's standard error.
    Stderr,
    /// One of the files to bring back.
    File {
        /// Its place in the list.
        index: usize,
    },
    /// The command has ended and everything was sent.
    End(GuestStatus),
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    kind: MessageKind,
    length: usize,
    /// The hash of the payload as it is sent.
    hash: u64,
    compressed: bool,
}

/// Sends a message.
///
/// # Errors
/// Errors of the port.
pub(super) fn send(port: &mut impl Write, kind: MessageKind, payload: &[u8]) -> io::Result<()> {
    let compressed = payload.len() >= COMPRESSED_FROM;
    let packed = if compressed { zstd::encode_all(payload, LEVEL)? } else { payload.to_vec() };
    let header = Header { kind, length: packed.len(), hash: xxh3_64(&packed), compressed };
    let mut message = serde_json::to_vec(&header)?;
    message.push(b'\n');
    message.extend(packed);
    port.write_all(&message)
}

/// Puts messages together from the bytes that have arrived.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    pending: Vec<u8>,
}

impl Receiver {
    /// Takes bytes that have arrived.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Returns the next message, or `None` until more of it arrives.
    ///
    /// # Errors
    /// [`GuestError::Garbled`].
    pub(super) fn next(&mut self) -> Result<Option<(MessageKind, Vec<u8>)>, GuestError> {
        let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let header: Header = serde_json::from_slice(&self.pending[..end]).map_err(|_| GuestError::Garbled)?;
        let Some(payload) = self.pending.get(end + 1..).and_then(|rest| rest.get(..header.length)) else {
            return Ok(None);
        };
        if xxh3_64(payload) != header.hash {
            return Err(GuestError::Garbled);
        }
        let whole = if header.compressed {
            zstd::decode_all(payload).map_err(|_| GuestError::Garbled)?
        } else {
            payload.to_vec()
        };
        self.pending.drain(..end + 1 + header.length);
        Ok(Some((header.kind, whole)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_whole_however_they_are_cut() {
        let large: Vec<u8> = (0..5000).map(|n: u32| (n % 251) as u8).collect();
        let sent = [
            (MessageKind::Line, b"half\nwritten".to_vec()),
            (MessageKind::File { index: 3 }, large),
            (MessageKind::End(GuestStatus::Killed(9)), Vec::new()),
        ];
        let mut wire = Vec::new();
        for (kind, payload) in &sent {
            send(&mut wire, *kind, payload).unwrap();
        }
        for step in [1, 7, 100, wire.len()] {
            let mut receiver = Receiver::default();
            let mut arrived = Vec::new();
            for bytes in wire.chunks(step) {
                receiver.feed(bytes);
                while let Some(message) = receiver.next().unwrap() {
                    arrived.push(message);
                }
            }
            assert_eq!(arrived, sent);
        }
    }

    #[test]
    fn damage_is_noticed() {
        let mut wire = Vec::new();
        send(&mut wire, MessageKind::Stdout, b"some output").unwrap();
        for at in [0, wire.len() - 1] {
            let mut receiver = Receiver::default();
            let mut damaged = wire.clone();
            damaged[at] ^= 1;
            receiver.feed(&damaged);
            assert!(matches!(receiver.next(), Err(GuestError::Garbled)));
        }
    }
}
