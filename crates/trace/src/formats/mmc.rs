//! The events of eMMC and SD cards in ftrace's text.
//!
//! Android's kernels up to 4.4 have `mmc_blk_rw_start`, `mmc_blk_rw_end`, `mmc_blk_erase_start` and
//! `mmc_blk_erase_end`, each with `cmd=N,addr=0xN,size=0xN`: the command's number (17, 18 read; 24, 25 write) or
//! the argument of the erase (bit 31: secure), the address, and the number of blocks. Later kernels have
//! `mmc_request_start` and `mmc_request_done` with `cmd_opcode=`, `cmd_arg=`, `blocks=`, `block_size=`,
//! `blk_addr=` and `data_flags=`; an erase there is three commands: its first block (32, 35), its last (33, 36),
//! and 38 (include/trace/events/mmc.h of both; drivers/mmc/core/core.c). Addresses are taken as sectors of 512
//! bytes, as all cards above 2 GiB have them; the events don't say which a card has.

use std::collections::HashMap;

use trimtab_core::trace::{Comm, DeviceIndex, EventKind};

use super::ftrace::Event;
use super::requests::{Action, Step};
use crate::error::RowError;
use crate::parse::Notes;
use crate::text::{scaled, unknown};

/// The bytes of a block.
const BLOCK: u64 = 512;
/// Requests under way at once, at most: a card takes 32.
const MOST: usize = 1 << 10;
/// The bit in `data_flags` of a transfer to the card (`MMC_DATA_WRITE`).
const DATA_WRITE: u64 = 1 << 8;
/// The bit in `data_flags` of a transfer from the card (`MMC_DATA_READ`).
const DATA_READ: u64 = 1 << 9;
/// The bit in an erase's argument that makes it secure.
const SECURE: u64 = 1 << 31;
/// The erase's argument of a "sanitize", which names no blocks (`EXT_CSD_SANITIZE_START`).
const SANITIZE: u64 = 165;
/// The name under which other commands are counted.
pub(super) const OTHER: &str = "commands that are no reads, writes or erases";

/// Returns true if an event is one of this module's.
pub(super) fn is_event(name: &[u8]) -> bool {
    name == b"mmc_request_start" || name == b"mmc_request_done" || {
        let rest = name.strip_prefix(b"mmc_blk_").unwrap_or_default();
        [&b"rw_start"[..], b"rw_end", b"erase_start", b"erase_end"].contains(&rest)
    }
}

/// A request's kind and place.
#[derive(Debug, Clone, Copy)]
struct Place {
    device: DeviceIndex,
    kind: EventKind,
    start: u64,
    length: u64,
}

/// The requests that were started.
#[derive(Default)]
pub(super) struct Mmc {
    /// By the address of their structure in the kernel.
    under_way: HashMap<Vec<u8>, Place>,
    /// The first and the last block of the next erase, by host.
    erase: HashMap<DeviceIndex, (Option<u64>, Option<u64>)>,
}

impl Mmc {
    /// The step that an event reports; `None` if it reports none.
    pub(super) fn step(&mut self, event: &Event, notes: &mut Notes) -> Result<Option<Step>, RowError> {
        let action = if event.name.ends_with(b"start") { Action::Issue } else { Action::Complete };
        let values = Values::of(event.text());
        let (place, error) = match event.name {
            b"mmc_request_start" => (self.started(event, &values, notes)?, 0),
            b"mmc_request_done" => (self.done(event), failure(&values)?),
            name => (old_place(&values, name.starts_with(b"mmc_blk_erase"), notes)?, 0),
        };
        let Some(place) = place else { return Ok(None) };
        Ok(Some(Step {
            action,
            time: event.time,
            device: place.device,
            kind: place.kind,
            start: place.start,
            length: place.length,
            pid: 0,
            process: if action == Action::Issue { Comm::new(event.process()) } else { Comm::default() },
            error,
        }))
    }

    fn started(
        &mut self,
        event: &Event,
        values: &Values,
        notes: &mut Notes,
    ) -> Result<Option<Place>, RowError> {
        let device = notes.device(host(event.text()))?;
        let opcode = values.number("cmd_opcode")?;
        let argument = values.number("cmd_arg")?;
        let erase = self.erase.entry(device).or_default();
        let place = match opcode {
            32 | 35 => {
                erase.0 = Some(argument);
                return Ok(None);
            }
            33 | 36 => {
                erase.1 = Some(argument);
                return Ok(None);
            }
            38 => {
                // Without both, the trace begins between them, or events were lost.
                let (Some(first), Some(last)) = std::mem::take(erase) else { return Ok(None) };
                let blocks = last.checked_sub(first).map(|blocks| blocks.saturating_add(1));
                let blocks =
                    blocks.ok_or_else(|| unknown("cmd_arg", event.text(), "ends before it begins"))?;
                let kind = if argument & SECURE > 0 { EventKind::SecureErase } else { EventKind::Discard };
                Place {
                    device,
                    kind,
                    start: scaled("cmd_arg", first, BLOCK)?,
                    length: scaled("cmd_arg", blocks, BLOCK)?,
                }
            }
            // Requests of a command queue have no command, or one whose argument is the task.
            17 | 18 | 24 | 25 | 0 | 46 | 47 => {
                let flags = values.number("data_flags")?;
                let kind = match (flags & DATA_READ > 0, flags & DATA_WRITE > 0) {
                    (true, false) => EventKind::Read,
                    (false, true) => EventKind::Write,
                    _ => return Ok(None),
                };
                let is_queued = matches!(opcode, 0 | 46 | 47);
                let address = if is_queued { values.number("blk_addr")? } else { argument };
                let size = values.number("block_size")?;
                let length = scaled("blocks", values.number("blocks")?, size)?;
                Place { device, kind, start: scaled("blk_addr", address, BLOCK)?, length }
            }
            _ => return Ok(None),
        };
        // Requests whose ends were lost would fill it.
        if self.under_way.len() >= MOST {
            self.under_way.clear();
        }
        self.under_way.insert(structure(event.text()).to_owned(), place);
        Ok(Some(place))
    }

    fn done(&mut self, event: &Event) -> Option<Place> {
        self.under_way.remove(structure(event.text()))
    }
}

/// The place in an event of an old kernel; none for a sanitize and other commands.
fn old_place(values: &Values, is_erase: bool, notes: &mut Notes) -> Result<Option<Place>, RowError> {
    let command = values.number("cmd")?;
    let kind = match (is_erase, command) {
        (true, SANITIZE) => return Ok(None),
        (true, argument) if argument & SECURE > 0 => EventKind::SecureErase,
        (true, _) => EventKind::Discard,
        (false, 17 | 18) => EventKind::Read,
        (false, 24 | 25) => EventKind::Write,
        (false, _) => return Ok(None),
    };
    Ok(Some(Place {
        device: notes.device(b"mmc")?,
        kind,
        start: scaled("addr", values.number("addr")?, BLOCK)?,
        length: scaled("size", values.number("size")?, BLOCK)?,
    }))
}

/// The host's name in `mmc0: start struct ...`.
fn host(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == b':').next().unwrap_or_default()
}

/// The address in `struct mmc_request[address]`.
fn structure(text: &[u8]) -> &[u8] {
    let start = memchr::memchr(b'[', text).map_or(text.len(), |open| open + 1);
    text[start..].split(|byte| *byte == b']').next().unwrap_or_default()
}

/// The errno of a command or its data that failed; 0 if neither did.
fn failure(values: &Values) -> Result<u16, RowError> {
    for name in ["cmd_err", "data_err"] {
        let Some(value) = values.text(name) else { continue };
        let digits = value.strip_prefix(b"-").unwrap_or(value);
        let wrong = || unknown("error", value, "is no errno");
        let errno = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
        if errno > 0 {
            return Ok(errno);
        }
    }
    Ok(0)
}

/// The names of the values that are read.
const NAMES: [&str; 11] = [
    "cmd_opcode",
    "cmd_arg",
    "data_flags",
    "blk_addr",
    "block_size",
    "blocks",
    "cmd_err",
    "data_err",
    "cmd",
    "addr",
    "size",
];

/// The values of an event, from words `name=value`; each is the first one of its name.
struct Values<'a>([Option<&'a [u8]>; NAMES.len()]);

impl<'a> Values<'a> {
    fn of(text: &'a [u8]) -> Self {
        let mut values = [None; NAMES.len()];
        for word in text.split(|byte| matches!(byte, b' ' | b',')) {
            let Some(equals) = word.iter().position(|byte| *byte == b'=') else { continue };
            let (name, value) = (&word[..equals], &word[equals + 1..]);
            if let Some(place) = NAMES.iter().position(|known| known.as_bytes() == name) {
                values[place].get_or_insert(value);
            }
        }
        Self(values)
    }

    /// The text of a value.
    fn text(&self, name: &str) -> Option<&'a [u8]> {
        self.0[NAMES.iter().position(|known| *known == name)?]
    }

    /// The number, in hexadecimal after 0x, that a value is.
    fn number(&self, name: &'static str) -> Result<u64, RowError> {
        let value = self.text(name).unwrap_or_default();
        let wrong = || unknown(name, value, "is no number");
        let text = std::str::from_utf8(value).map_err(|_| wrong())?;
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        parsed.map_err(|_| wrong())
    }
}
