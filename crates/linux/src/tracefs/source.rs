//! The kernel events that a recording needs, and how each is enabled.

use trimtab_core::trace::{EventKind, operation};

use super::devices::{Devices, KernelNumber};
use super::error::TracefsError;
use super::event::{CommitStep, FsNames, MissingField, Reader};
use super::format::Format;
use super::instance::Instance;
use crate::block::DeviceNumber;
use crate::file_system_kind::FileSystemKind;

const REQUESTS: [&str; 3] = ["block_rq_issue", "block_rq_complete", "block_rq_requeue"];
const BIOS: [&str; 3] = ["block_bio_queue", "block_bio_complete", "block_split"];
/// Reports the path that a bio takes below a disk with several.
const PATHS: &str = "block/block_bio_remap";

/// An event that reports a file system's allocations or frees.
struct FsSource {
    /// The file system's name.
    fs: &'static str,
    event: &'static str,
    kind: EventKind,
    names: FsNames,
}

/// Reports that a btrfs uses logical addresses for a new chunk.
const CHUNKS: FsSource = FsSource {
    fs: "btrfs",
    event: "btrfs/btrfs_chunk_alloc",
    kind: EventKind::Allocate,
    names: FsNames { id: "fsid", group: "", start: "offset", length: "size" },
};

/// The allocation and free events. ext4 names blocks of the whole file system, XFS blocks of an allocation
/// group, btrfs logical bytes. XFS has `xfs_extent_busy`, too, but since Linux 6.7 that also reports free
/// space that a trim is about to discard. btrfs pins freed extents until their transaction is on disk, and
/// discards them then. F2FS only reports what it is going to discard.
const FILE_SYSTEMS: [FsSource; 8] = [
    FsSource {
        fs: "ext4",
        event: "ext4/ext4_free_blocks",
        kind: EventKind::Free,
        names: FsNames { id: "dev", group: "", start: "block", length: "count" },
    },
    FsSource {
        fs: "ext4",
        event: "ext4/ext4_allocate_blocks",
        kind: EventKind::Allocate,
        names: FsNames { id: "dev", group: "", start: "block", length: "len" },
    },
    FsSource {
        fs: "xfs",
        event: "xfs/xfs_free_extent",
        kind: EventKind::Free,
        names: FsNames { id: "dev", group: "agno", start: "agbno", length: "len" },
    },
    FsSource {
        fs: "xfs",
        event: "xfs/xfs_alloc_vextent_finish",
        kind: EventKind::Allocate,
        names: FsNames { id: "dev", group: "agno", start: "agbno", length: "len" },
    },
    FsSource {
        fs: "btrfs",
        event: "btrfs/btrfs_set_extent_bit",
        kind: EventKind::Free,
        names: FsNames { id: "fsid", group: "", start: "start", length: "len" },
    },
    FsSource {
        fs: "btrfs",
        event: "btrfs/btrfs_reserved_extent_free",
        kind: EventKind::Free,
        names: FsNames { id: "fsid", group: "", start: "start", length: "len" },
    },
    FsSource {
        fs: "btrfs",
        event: "btrfs/btrfs_reserve_extent",
        kind: EventKind::Allocate,
        names: FsNames { id: "fsid", group: "", start: "start", length: "len" },
    },
    FsSource {
        fs: "f2fs",
        event: "f2fs/f2fs_queue_discard",
        kind: EventKind::Free,
        names: FsNames { id: "dev", group: "", start: "blkstart", length: "blklen" },
    },
];

/// Reports the extents that btrfs unpins when a transaction is on disk.
const UNPINNED: FsSource = FsSource {
    fs: "btrfs",
    event: "btrfs/btrfs_clear_extent_bit",
    kind: EventKind::Free,
    names: FsNames { id: "fsid", group: "", start: "start", length: "len" },
};

/// The events that report the commits of ext4's journal.
const COMMITS: [(&str, CommitStep); 2] =
    [("jbd2/jbd2_commit_flushing", CommitStep::Flush), ("jbd2/jbd2_end_commit", CommitStep::End)];

/// The enabled events and their readers.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// By event number; few, the most frequent first.
    readers: Vec<(u16, Reader)>,
    /// Missing events, one sentence each.
    pub gaps: Vec<String>,
    /// The filters that pass bios for disks whose drivers take bios, bios of discards for the others, and the paths of bios;
    /// `None` if there has been no such disk.
    filters: [Option<String>; 3],
    /// The file system events that were enabled.
    file_systems: Vec<&'static str>,
}

impl Sources {
    /// Enables the events that report `kinds`.
    pub fn enable(instance: &Instance, devices: &Devices, kinds: &[EventKind]) -> Result<Self, TracefsError> {
        let mut sources = Self::default();
        if let Some(condition) = operation::filter(kinds)
            && let Some(filter) = join(devices.requests_filter()?, &condition)
        {
            for event in REQUESTS {
                sources.block(instance, event, &filter)?;
            }
        }
        sources.enable_bios(instance, devices, kinds)?;
        for source in FILE_SYSTEMS.iter().filter(|source| kinds.contains(&source.kind)) {
            sources.fs(instance, source)?;
        }
        Ok(sources)
    }

    /// Enables the events of a mounted file system, whose module may have been loaded for the mount.
    pub fn enable_fs(
        &mut self,
        instance: &Instance,
        fstype: &str,
        kinds: &[EventKind],
    ) -> Result<(), TracefsError> {
        let name = FileSystemKind::named(fstype).map_or(fstype, |kind| kind.driver);
        for (kind, what) in [(EventKind::Free, "frees"), (EventKind::Allocate, "allocates")] {
            let mut is_enabled = !kinds.contains(&kind);
            for source in FILE_SYSTEMS.iter().filter(|source| source.kind == kind && source.fs == name) {
                is_enabled |= !kinds.contains(&kind) || self.fs(instance, source)?;
            }
            if !is_enabled {
                self.gap(format!("this kernel doesn't report which blocks {fstype} {what}"));
            }
        }
        Ok(())
    }

    /// Enables the events that report frees of ext4, XFS and btrfs once they can be trimmed, and optionally
    /// allocations, as far as the kernel has these file systems now. Earlier events stay enabled.
    pub fn enable_trimmable(&mut self, instance: &Instance, allocations: bool) -> Result<(), TracefsError> {
        let wanted = FILE_SYSTEMS.iter().filter(|source| match source.kind {
            // btrfs' extents are reported when they are unpinned, and F2FS discards by itself.
            EventKind::Free => {
                source.event != "btrfs/btrfs_set_extent_bit" && FileSystemKind::reports_frees(source.fs)
            }
            _ => allocations,
        });
        for source in wanted.chain([&UNPINNED]) {
            self.fs(instance, source)?;
        }
        for (event, step) in COMMITS {
            self.commit(instance, event, step)?;
        }
        Ok(())
    }

    /// Returns true if the frees of this kind of file system are enabled.
    pub fn reports_frees(&self, fs: &str) -> bool {
        let mut frees =
            FILE_SYSTEMS.iter().filter(|source| source.fs == fs && source.kind == EventKind::Free);
        frees.any(|source| self.file_systems.contains(&source.event))
    }

    /// Filters out the events of the file systems on these devices.
    pub fn leave_out(&self, instance: &Instance, devices: &[KernelNumber]) -> Result<(), TracefsError> {
        let conditions: Vec<_> = devices.iter().map(|number| format!("dev != {}", number.0)).collect();
        let by_device = self.file_systems.iter().filter(|event| !event.starts_with("btrfs/"));
        by_device.copied().try_for_each(|event| instance.filter(event, &conditions.join(" && ")))
    }

    /// Enables the events of bios, if there are or were disks that need them.
    pub fn enable_bios(
        &mut self,
        instance: &Instance,
        devices: &Devices,
        kinds: &[EventKind],
    ) -> Result<(), TracefsError> {
        let Some(condition) = operation::filter(kinds) else { return Ok(()) };
        let discards = match operation::filter(&[EventKind::Discard]) {
            Some(condition) if kinds.contains(&EventKind::Discard) => {
                join(devices.requests_bios_filter()?, &condition)
            }
            _ => None,
        };
        // Once enabled, they stay: a disk that is gone may come back.
        let [bios_before, discards_before, _] = self.filters.clone();
        let bios = join(devices.bios_filter()?, &condition).or(bios_before);
        let discards = discards.or(discards_before);
        let paths = join(path_filter(&devices.above_paths()), &condition).or(self.filters[2].clone());
        let filters = [bios.clone(), discards.clone(), paths.clone()];
        if filters != self.filters {
            // A bio completes with the number of its path.
            let ends =
                bios.filter(|filter| !filter.is_empty()).map(|filter| match (&paths, condition.as_str()) {
                    (None, _) => filter,
                    (Some(_), "") => format!("{filter} || {}", any_path()),
                    (Some(_), letters) => format!("{filter} || ({letters}) && ({})", any_path()),
                });
            let ends = ends.or(filters[0].clone());
            for (event, filter) in BIOS.into_iter().zip([either(&filters[0], &discards), ends, discards]) {
                if let Some(filter) = filter {
                    self.block(instance, event, &filter)?;
                }
            }
            if let Some(filter) = paths {
                self.path(instance, &filter)?;
            }
            self.filters = filters;
        }
        Ok(())
    }

    /// Returns the reader of an event that begins with these bytes.
    pub fn reader(&self, event: &[u8]) -> Option<&Reader> {
        let id = u16::from_ne_bytes(*event.first_chunk()?);
        self.readers.iter().find(|(known, _)| *known == id).map(|(_, reader)| reader)
    }

    /// Returns true if the paths of bios are reported.
    pub fn follow_paths(&self) -> bool {
        self.filters[2].is_some()
    }

    /// Returns true if no event is enabled.
    pub fn is_empty(&self) -> bool {
        self.readers.is_empty()
    }

    fn block(&mut self, instance: &Instance, name: &str, filter: &str) -> Result<(), TracefsError> {
        let event = format!("block/{name}");
        let Some(format) = instance.format(&event)? else {
            self.gap(format!("this kernel has no event {name} (CONFIG_BLK_DEV_IO_TRACE)"));
            return Ok(());
        };
        match Reader::block(name, &format) {
            Ok(reader) => self.add(instance, &event, filter, &format, reader),
            Err(missing) => self.lacks(&event, missing),
        }
    }

    /// Enables the event that reports the paths of bios.
    fn path(&mut self, instance: &Instance, filter: &str) -> Result<(), TracefsError> {
        let Some(format) = instance.format(PATHS)? else {
            self.gap(
                "requests to disks with several paths: this kernel has no event block_bio_remap".to_owned(),
            );
            return Ok(());
        };
        match Reader::path(&format) {
            Ok(reader) => self.add(instance, PATHS, filter, &format, reader),
            Err(missing) => self.lacks(PATHS, missing),
        }
    }

    /// Enables the events of `source` unless that is done; returns true if the kernel has them.
    fn fs(&mut self, instance: &Instance, source: &FsSource) -> Result<bool, TracefsError> {
        if self.file_systems.contains(&source.event) {
            return Ok(true);
        }
        let Some(format) = instance.format(source.event)? else { return Ok(false) };
        self.file_systems.push(source.event);
        let filter = match source.event {
            // Of all extent trees, the one with the pinned extents.
            "btrfs/btrfs_set_extent_bit" | "btrfs/btrfs_clear_extent_bit" => {
                match format.value_of("PINNED_EXTENTS") {
                    Some(tree) => format!("owner == {tree}"),
                    None => return self.lacks(source.event, MissingField("PINNED_EXTENTS")).map(|()| true),
                }
            }
            _ => String::new(),
        };
        if source.fs == CHUNKS.fs {
            self.fs(instance, &CHUNKS)?;
        }
        let reader = if source.event == CHUNKS.event {
            Reader::chunk(&source.names, &format)
        } else {
            Reader::fs(source.kind, &source.names, &format)
        };
        match reader {
            Ok(reader) => self.add(instance, source.event, &filter, &format, reader)?,
            Err(missing) => self.lacks(source.event, missing)?,
        }
        Ok(true)
    }

    fn commit(
        &mut self,
        instance: &Instance,
        event: &'static str,
        step: CommitStep,
    ) -> Result<(), TracefsError> {
        if self.file_systems.contains(&event) {
            return Ok(());
        }
        let Some(format) = instance.format(event)? else { return Ok(()) };
        self.file_systems.push(event);
        match Reader::commit(step, &format) {
            Ok(reader) => self.add(instance, event, "", &format, reader),
            Err(missing) => self.lacks(event, missing),
        }
    }

    fn add(
        &mut self,
        instance: &Instance,
        event: &str,
        filter: &str,
        format: &Format,
        reader: Reader,
    ) -> Result<(), TracefsError> {
        instance.enable(event, filter)?;
        if !self.readers.iter().any(|(known, _)| *known == format.id) {
            self.readers.push((format.id, reader));
        }
        Ok(())
    }

    fn lacks(&mut self, event: &str, MissingField(field): MissingField) -> Result<(), TracefsError> {
        self.gap(format!("this kernel's event {event} has no field {field}"));
        Ok(())
    }

    fn gap(&mut self, sentence: String) {
        if !self.gaps.contains(&sentence) {
            self.gaps.push(sentence);
        }
    }
}

/// Returns the condition that passes the events of bios that leave these disks for a path; none without disks.
fn path_filter(disks: &[(String, KernelNumber)]) -> Option<String> {
    let conditions: Vec<_> = disks.iter().map(|(_, number)| format!("old_dev == {}", number.0)).collect();
    (!conditions.is_empty()).then(|| conditions.join(" || "))
}

/// The condition that passes all numbers that paths have: those of the major number 259, which others have too.
fn any_path() -> String {
    let [first, end] = [259, 260].map(|major| KernelNumber::from(DeviceNumber { major, minor: 0 }).0);
    format!("dev >= {first} && dev < {end}")
}

/// Joins two conditions with "or"; none passes nothing.
fn either(one: &Option<String>, other: &Option<String>) -> Option<String> {
    match (one, other) {
        (Some(one), Some(other)) if one.is_empty() || other.is_empty() => Some(String::new()),
        (Some(one), Some(other)) => Some(format!("({one}) || ({other})")),
        (one, other) => one.as_ref().or(other.as_ref()).cloned(),
    }
}

/// Joins two conditions with "and"; `None` if the first passes nothing. The letters come first: they reject
/// most I/O, and the kernel then skips the rest.
fn join(devices: Option<String>, letters: &str) -> Option<String> {
    match (devices?, letters) {
        (devices, "") => Some(devices),
        (devices, letters) if devices.is_empty() => Some(letters.to_owned()),
        (devices, letters) => Some(format!("({letters}) && ({devices})")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::format::PageLayout;
    use super::*;

    #[test]
    fn linux_6_12_has_all_events_and_fields() {
        let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/6.12/events");
        let format = |event: &str| {
            let text = fs::read_to_string(format!("{kept}/{event}/format")).unwrap();
            Format::parse(&text).unwrap()
        };
        for name in REQUESTS.into_iter().chain(BIOS) {
            assert!(Reader::block(name, &format(&format!("block/{name}"))).is_ok(), "{name}");
        }
        for FsSource { event, kind, names, .. } in FILE_SYSTEMS.iter().chain([&UNPINNED]) {
            assert!(Reader::fs(*kind, names, &format(event)).is_ok(), "{event}");
        }
        assert_eq!(any_path(), "dev >= 271581184 && dev < 272629760");
        assert!(Reader::chunk(&CHUNKS.names, &format(CHUNKS.event)).is_ok());
        for (event, step) in COMMITS {
            assert!(Reader::commit(step, &format(event)).is_ok(), "{event}");
        }
        for event in ["btrfs/btrfs_set_extent_bit", "btrfs/btrfs_clear_extent_bit"] {
            assert_eq!(format(event).value_of("PINNED_EXTENTS"), Some(0), "{event}");
        }
        assert!(PageLayout::parse(&fs::read_to_string(format!("{kept}/header_page")).unwrap()).is_some());
    }
}
