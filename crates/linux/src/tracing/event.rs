//! What the kernel's events say.

use trimtab_core::trace::{Comm, Kind};

use super::devices::KernelNumber;
use super::format::{Field, Format};
use super::operation;

/// An event that is understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A step in the life of a request or bio.
    Block(BlockEvent),
    /// A file system took or gave up blocks.
    Fs(FsEvent),
}

/// A step in the life of a request or bio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockEvent {
    pub number: KernelNumber,
    pub kind: Kind,
    pub sector: u64,
    pub sectors: u64,
    pub step: Step,
    /// Whether it is of a bio, not of a request.
    pub bio: bool,
}

/// What a request or bio came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It went to the driver, for this process.
    Issue(Comm),
    /// It is done, with this errno.
    Complete(u16),
    /// The driver gave it back.
    Requeue,
}

/// A file system took or gave up blocks, in its own addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FsEvent {
    pub id: FsId,
    pub kind: Kind,
    pub group: u64,
    pub start: u64,
    pub length: u64,
    pub flags: u64,
    /// The process.
    pub pid: u32,
}

/// What an event calls its file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum FsId {
    /// The number of the device it is on.
    Device(KernelNumber),
    /// The identifier of a btrfs.
    Btrfs([u8; 16]),
}

/// Finds in one kind of event what is wanted of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reader {
    Block(BlockReader),
    Fs(FsReader),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlockReader {
    number: Field,
    sector: Field,
    sectors: Field,
    rwbs: Field,
    step: StepReader,
    bio: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum StepReader {
    Issue { comm: Option<Field> },
    Complete { error: Option<Field> },
    Requeue,
}

/// The names that a file system's event gives to what is wanted of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct FsNames {
    /// The file system: a device's number, or an identifier of 16 bytes.
    pub id: &'static str,
    /// The group that the address is relative to; empty where it is of the whole file system.
    pub group: &'static str,
    pub start: &'static str,
    pub length: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FsReader {
    kind: Kind,
    id: Field,
    group: Option<Field>,
    start: Field,
    length: Field,
    flags: Option<Field>,
    /// What kind of group it is, where there are several.
    group_kind: Option<Field>,
    pid: Option<Field>,
}

/// A field that an event should have and has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MissingField(pub &'static str);

fn required(format: &Format, name: &'static str) -> Result<Field, MissingField> {
    format.field(name).ok_or(MissingField(name))
}

impl Reader {
    /// For a request's or bio's event named `name`, such as `block_rq_issue`.
    pub fn block(name: &str, format: &Format) -> Result<Self, MissingField> {
        let step = match name {
            "block_rq_complete" | "block_bio_complete" => {
                StepReader::Complete { error: format.field("error").or_else(|| format.field("errors")) }
            }
            "block_rq_requeue" => StepReader::Requeue,
            _ => StepReader::Issue { comm: format.field("comm") },
        };
        Ok(Self::Block(BlockReader {
            number: required(format, "dev")?,
            sector: required(format, "sector")?,
            sectors: required(format, "nr_sector")?,
            rwbs: required(format, "rwbs")?,
            step,
            bio: name.starts_with("block_bio"),
        }))
    }

    /// For a file system's event.
    pub fn fs(kind: Kind, names: &FsNames, format: &Format) -> Result<Self, MissingField> {
        Ok(Self::Fs(FsReader {
            kind,
            id: required(format, names.id)?,
            group: if names.group.is_empty() { None } else { Some(required(format, names.group)?) },
            start: required(format, names.start)?,
            length: required(format, names.length)?,
            flags: format.field("flags"),
            group_kind: format.field("type"),
            pid: format.field("common_pid"),
        }))
    }

    /// What `event` says; none where that is nothing to record.
    pub fn read(&self, event: &[u8]) -> Option<Event> {
        match self {
            Self::Block(reader) => reader.read(event).map(Event::Block),
            Self::Fs(reader) => reader.read(event).map(Event::Fs),
        }
    }
}

impl BlockReader {
    fn read(&self, event: &[u8]) -> Option<BlockEvent> {
        let sectors = self.sectors.number(event);
        let kind = operation::kind(self.rwbs.bytes(event), sectors)?;
        // A flush is at no place, which kernels write as 0 or as the last sector.
        let sector = if kind == Kind::Flush { 0 } else { self.sector.number(event) };
        let step = match &self.step {
            StepReader::Issue { comm } => {
                Step::Issue(comm.map_or(Comm::default(), |comm| Comm::new(comm.bytes(event))))
            }
            StepReader::Complete { error } => {
                let error = error.map_or(0, |error| error.number(event) as u32 as i32);
                Step::Complete(error.unsigned_abs() as u16)
            }
            StepReader::Requeue => Step::Requeue,
        };
        let number = KernelNumber(self.number.number(event) as u32);
        Some(BlockEvent { number, kind, sector, sectors, step, bio: self.bio })
    }
}

impl FsReader {
    fn read(&self, event: &[u8]) -> Option<FsEvent> {
        let number = |field: Option<Field>| field.map_or(0, |field| field.number(event));
        let id = match self.id.bytes(event) {
            id if id.len() == 16 => FsId::Btrfs(id.try_into().ok()?),
            _ => FsId::Device(KernelNumber(self.id.number(event) as u32)),
        };
        // XFS' groups of the realtime device are of kind 1.
        (number(self.group_kind) == 0).then_some(FsEvent {
            id,
            kind: self.kind,
            group: number(self.group),
            start: self.start.number(event),
            length: self.length.number(event),
            flags: number(self.flags),
            pid: number(self.pid) as u32,
        })
    }
}
