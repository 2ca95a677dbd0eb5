//! Decodes the kernel's events.

use trimtab_core::trace::{Comm, EventKind, operation};

use super::devices::KernelNumber;
use super::format::{Field, Format};

/// A decoded event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A step in the life of a request or bio.
    Block(BlockEvent),
    /// A file system allocated or freed blocks.
    Fs(FsEvent),
    /// A btrfs uses these logical addresses for a new chunk.
    Chunk(FsEvent),
    /// A journal reached a step of a transaction's commit.
    Commit(CommitEvent),
    /// A bio of the disk `of` went to the path `path`.
    Path { path: KernelNumber, of: KernelNumber },
}

/// A step in the commit of a transaction of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CommitEvent {
    /// The device of the file system whose journal it is.
    pub number: KernelNumber,
    pub step: CommitStep,
}

/// A step of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitStep {
    /// The transaction is complete and being written.
    Flush,
    /// The transaction is on disk: the blocks that it freed can be reused.
    End,
}

/// A step in the life of a request or bio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockEvent {
    pub number: KernelNumber,
    pub kind: EventKind,
    pub sector: u64,
    pub sectors: u64,
    pub step: Step,
    /// Whether it is about a bio instead of a request.
    pub bio: bool,
    /// The task that was running.
    pub pid: u32,
}

/// A step of a request or bio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It went to the driver, for this process.
    Issue(Comm),
    /// It completed with this errno.
    Complete(u16),
    /// The driver gave it back.
    Requeue,
    /// A bio was too long: its first sectors became a bio of their own.
    Split,
}

/// An allocation or a free of blocks, in the file system's own addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FsEvent {
    pub id: FsId,
    pub kind: EventKind,
    pub group: u64,
    pub start: u64,
    pub length: u64,
    pub flags: u64,
    /// The process.
    pub pid: u32,
}

/// The identity of a file system in events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum FsId {
    /// The number of the device it is on.
    Device(KernelNumber),
    /// The identifier of a btrfs.
    Btrfs([u8; 16]),
}

/// Decodes one kind of event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reader {
    Block(BlockReader),
    Fs(FsReader),
    Chunk(FsReader),
    Commit { number: Field, step: CommitStep },
    Path { path: Field, of: Field },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlockReader {
    number: Field,
    sector: Field,
    sectors: Field,
    rwbs: Field,
    step: StepReader,
    bio: bool,
    pid: Option<Field>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum StepReader {
    Issue { comm: Option<Field> },
    Complete { error: Option<Field> },
    Requeue,
    Split,
}

/// The names of a file system event's fields.
#[derive(Debug, Clone, Copy)]
pub(super) struct FsNames {
    /// The file system: a device's number, or an identifier of 16 bytes.
    pub id: &'static str,
    /// The group that the address is relative to; empty if the address is in the whole file system.
    pub group: &'static str,
    pub start: &'static str,
    pub length: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FsReader {
    kind: EventKind,
    id: Field,
    group: Option<Field>,
    start: Field,
    length: Field,
    flags: Option<Field>,
    /// The kind of group, if there are several.
    group_kind: Option<Field>,
    pid: Option<Field>,
}

/// A required field that an event lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MissingField(pub &'static str);

fn required(format: &Format, name: &'static str) -> Result<Field, MissingField> {
    format.field(name).ok_or(MissingField(name))
}

impl Reader {
    /// Returns a reader of the request or bio event `name`, such as `block_rq_issue`.
    pub fn block(name: &str, format: &Format) -> Result<Self, MissingField> {
        let step = match name {
            "block_rq_complete" | "block_bio_complete" => {
                StepReader::Complete { error: format.field("error").or_else(|| format.field("errors")) }
            }
            "block_rq_requeue" => StepReader::Requeue,
            "block_split" => StepReader::Split,
            _ => StepReader::Issue { comm: format.field("comm") },
        };
        Ok(Self::Block(BlockReader {
            number: required(format, "dev")?,
            sector: required(format, "sector")?,
            sectors: required(format, if name == "block_split" { "new_sector" } else { "nr_sector" })?,
            rwbs: required(format, "rwbs")?,
            step,
            bio: !name.starts_with("block_rq"),
            pid: format.field("common_pid"),
        }))
    }

    /// Returns a reader of an event that reports allocations or frees of a file system.
    pub fn fs(kind: EventKind, names: &FsNames, format: &Format) -> Result<Self, MissingField> {
        FsReader::new(kind, names, format).map(Self::Fs)
    }

    /// Returns a reader of the event that reports a new chunk of a btrfs.
    pub fn chunk(names: &FsNames, format: &Format) -> Result<Self, MissingField> {
        FsReader::new(EventKind::Allocate, names, format).map(Self::Chunk)
    }

    /// Returns a reader of the event that reports this step of a journal's commit.
    pub fn commit(step: CommitStep, format: &Format) -> Result<Self, MissingField> {
        Ok(Self::Commit { number: required(format, "dev")?, step })
    }

    /// Returns a reader of the event that reports the path of a bio.
    pub fn path(format: &Format) -> Result<Self, MissingField> {
        Ok(Self::Path { path: required(format, "dev")?, of: required(format, "old_dev")? })
    }

    /// Decodes `event`; returns `None` if it is not to be recorded.
    pub fn read(&self, event: &[u8]) -> Option<Event> {
        match self {
            Self::Block(reader) => reader.read(event).map(Event::Block),
            Self::Fs(reader) => reader.read(event).map(Event::Fs),
            Self::Chunk(reader) => reader.read(event).map(Event::Chunk),
            Self::Commit { number, step } => {
                let number = KernelNumber(number.number(event) as u32);
                Some(Event::Commit(CommitEvent { number, step: *step }))
            }
            Self::Path { path, of } => {
                let number = |field: &Field| KernelNumber(field.number(event) as u32);
                Some(Event::Path { path: number(path), of: number(of) })
            }
        }
    }
}

impl BlockReader {
    fn read(&self, event: &[u8]) -> Option<BlockEvent> {
        let sectors = match self.step {
            StepReader::Split => self.sectors.number(event).saturating_sub(self.sector.number(event)),
            _ => self.sectors.number(event),
        };
        let kind = operation::kind(self.rwbs.bytes(event), sectors)?;
        // A flush has no address; kernels write 0 or the last sector.
        let sector = if kind == EventKind::Flush { 0 } else { self.sector.number(event) };
        let step = match &self.step {
            StepReader::Issue { comm } => {
                Step::Issue(comm.map_or(Comm::default(), |comm| Comm::new(comm.bytes(event))))
            }
            StepReader::Complete { error } => {
                let error = error.map_or(0, |error| error.number(event) as u32 as i32);
                Step::Complete(error.unsigned_abs() as u16)
            }
            StepReader::Requeue => Step::Requeue,
            StepReader::Split => Step::Split,
        };
        let number = KernelNumber(self.number.number(event) as u32);
        let pid = self.pid.map_or(0, |pid| pid.number(event) as u32);
        Some(BlockEvent { number, kind, sector, sectors, step, bio: self.bio, pid })
    }
}

impl FsReader {
    fn new(kind: EventKind, names: &FsNames, format: &Format) -> Result<Self, MissingField> {
        Ok(Self {
            kind,
            id: required(format, names.id)?,
            group: if names.group.is_empty() { None } else { Some(required(format, names.group)?) },
            start: required(format, names.start)?,
            length: required(format, names.length)?,
            flags: format.field("flags"),
            // XFS' groups of the realtime device are of kind 1.
            group_kind: format.field("type").filter(|_| !names.group.is_empty()),
            pid: format.field("common_pid"),
        })
    }

    fn read(&self, event: &[u8]) -> Option<FsEvent> {
        let number = |field: Option<Field>| field.map_or(0, |field| field.number(event));
        let id = match self.id.bytes(event) {
            id if id.len() == 16 => FsId::Btrfs(id.try_into().ok()?),
            _ => FsId::Device(KernelNumber(self.id.number(event) as u32)),
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The format of an event of Linux 6.18.
    macro_rules! captured {
        ($event:literal) => {
            Format::parse(include_str!(concat!("../../tests/data/tracing/6.18/", $event))).unwrap()
        };
    }

    /// The fields that Linux 5.4's `block_rq_complete` has, in its places.
    const COMPLETE_5_4: &str = "\
name: block_rq_complete
ID: 1089
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;
\tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;
\tfield:int error;\toffset:28;\tsize:4;\tsigned:1;
\tfield:char rwbs[8];\toffset:32;\tsize:8;\tsigned:0;
\tfield:__data_loc char[] cmd;\toffset:40;\tsize:4;\tsigned:1;
";

    /// An event whose bytes are zero but for these.
    fn event(places: &[(usize, &[u8])]) -> Vec<u8> {
        let mut event = vec![0; 96];
        for (place, bytes) in places {
            event[*place..place + bytes.len()].copy_from_slice(bytes);
        }
        event
    }

    fn block(reader: &Reader, event: &[u8]) -> BlockEvent {
        match reader.read(event) {
            Some(Event::Block(event)) => event,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn requests_are_read_at_the_offsets_of_their_kernel() {
        let reader = Reader::block("block_rq_issue", &captured!("block_rq_issue")).unwrap();
        let (device, sector, sectors) =
            (0x0070_0003_u32.to_ne_bytes(), 2048_u64.to_ne_bytes(), 8_u32.to_ne_bytes());
        let pid = 7_u32.to_ne_bytes();
        let issue =
            event(&[(4, &pid), (8, &device), (16, &sector), (24, &sectors), (34, b"DS"), (44, b"fstrim")]);
        let expected = BlockEvent {
            number: KernelNumber(7 << 20 | 3),
            kind: EventKind::Discard,
            sector: 2048,
            sectors: 8,
            step: Step::Issue(Comm::new(b"fstrim")),
            bio: false,
            pid: 7,
        };
        assert_eq!(block(&reader, &issue), expected);
        let old = Format::parse(COMPLETE_5_4).unwrap();
        let reader = Reader::block("block_rq_complete", &old).unwrap();
        let error = (-5_i32).to_ne_bytes();
        let complete = event(&[(8, &device), (16, &sector), (24, &sectors), (28, &error), (32, b"DS")]);
        assert_eq!(block(&reader, &complete), BlockEvent { step: Step::Complete(5), pid: 0, ..expected });
        assert_eq!(reader.read(&complete[..20]), None);
    }

    #[test]
    fn flush_ends_at_the_address_of_its_issue() {
        let reader = Reader::block("block_rq_complete", &captured!("block_rq_complete")).unwrap();
        let nowhere = event(&[(16, &u64::MAX.to_ne_bytes()), (34, b"FF")]);
        assert_eq!(block(&reader, &nowhere).sector, 0);
    }

    #[test]
    fn file_systems_are_read_by_name() {
        let names = FsNames { id: "dev", group: "agno", start: "agbno", length: "len" };
        let reader = Reader::fs(EventKind::Free, &names, &captured!("xfs_extent_busy")).unwrap();
        let number = |number: u32| number.to_ne_bytes();
        let freed = event(&[(8, &number(7 << 20)), (16, &number(2)), (20, &number(100)), (24, &number(5))]);
        let Some(Event::Fs(read)) = reader.read(&freed) else { panic!() };
        assert_eq!((read.id, read.group), (FsId::Device(KernelNumber(7 << 20)), 2));
        assert_eq!((read.start, read.length), (100, 5));
        // The realtime device's groups are others.
        let realtime = event(&[(8, &number(7 << 20)), (12, &[1]), (24, &number(5))]);
        assert_eq!(reader.read(&realtime), None);
        let missing = FsNames { length: "count", ..names };
        let error = Reader::fs(EventKind::Free, &missing, &captured!("xfs_extent_busy")).unwrap_err();
        assert_eq!(error, MissingField("count"));
    }

    #[test]
    fn enumerations_have_the_numbers_their_kernel_prints() {
        let format = captured!("btrfs_set_extent_bit");
        assert_eq!(format.value_of("PINNED_EXTENTS"), Some(0));
        assert_eq!(format.value_of("RELOC_BLOCKS"), Some(4));
        assert_eq!(format.value_of("NO_SUCH"), None);
    }
}
