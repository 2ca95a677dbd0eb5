//! Turns the kernel's events into the events of a trace.

use std::fs;
use std::path::PathBuf;

use trimtab_core::hash::FastMap;
use trimtab_core::trace::{Comm, DeviceIndex, EventKind, Range, Ranges, TraceEvent, TraceHeader};
use trimtab_core::{Bytes, Extent, Nanos, SECTOR};

use super::devices::{Devices, Disk, KernelNumber};
use super::error::TracefsError;
use super::event::{BlockEvent, Event, FsEvent, Step};
use super::file_systems::{FileSystems, Found, gap};
use super::instance::Instance;
use super::requests::{Key, Requests};
use super::source::Sources;
use super::{RecordOptions, clock};
use crate::{ioctl, mount};

/// How many process names are cached.
const NAMES: usize = 256;

/// Makes trace events of kernel events, and puts those of several processors in order.
#[derive(Debug)]
pub(super) struct Interpreter {
    kinds: Vec<EventKind>,
    procfs: PathBuf,
    sources: Sources,
    devices: Devices,
    file_systems: FileSystems,
    /// When the recording started.
    began: Nanos,
    /// Ends of bios on paths that are not known yet.
    strays: Vec<(Nanos, BlockEvent)>,
    /// Events of file systems that were read, and are to be put in order before any is placed.
    unplaced: Vec<(Nanos, Event)>,
    /// Events that older events, not read yet, may still precede.
    entries: Vec<Entry>,
    ranges: Ranges,
    requests: Requests,
    names: FastMap<u32, Comm>,
}

#[derive(Debug)]
struct Entry {
    at: Nanos,
    action: Action,
}

#[derive(Debug)]
enum Action {
    Row(TraceEvent),
    Issue(TraceEvent),
    /// The issue of a discard, of several ranges where the flag holds.
    IssueDiscard(TraceEvent, bool),
    Complete(Key, u16),
    Requeue(Key),
    /// A bio of a discard was queued.
    QueueRange(DeviceIndex, Range),
    /// The first part of a range that was too long.
    SplitRange(DeviceIndex, Extent),
}

impl Interpreter {
    /// Enables the kernel events that `options` ask for; none come before tracing is turned on.
    pub fn start(
        instance: &Instance,
        options: &RecordOptions,
        header: &mut TraceHeader,
    ) -> Result<Self, TracefsError> {
        let mut devices = Devices::new(&options.sysfs, &options.devices);
        for disk in &options.devices {
            devices.add(disk, header)?;
        }
        let sources = Sources::enable(instance, &devices, &options.kinds)?;
        if sources.is_empty() && !sources.gaps.is_empty() {
            return Err(TracefsError::NoEvents { missing: sources.gaps.join("; ") });
        }
        // Of requests that were joined on a path, the driver reports the end of the first alone (Linux 6.12,
        // nvme_trace_bio_complete), and of those that complete in a batch none.
        for (name, _) in devices.above_paths() {
            gap(header, format!("the latencies of some requests to {name}, which has several paths"));
        }
        Ok(Self {
            kinds: options.kinds.clone(),
            procfs: options.procfs.clone(),
            sources,
            devices,
            file_systems: FileSystems::new(&options.procfs),
            began: clock(),
            strays: Vec::new(),
            unplaced: Vec::new(),
            entries: Vec::new(),
            ranges: Ranges::default(),
            requests: Requests::default(),
            names: FastMap::default(),
        })
    }

    /// Takes a kernel event of the time `at` of the trace clock. Those of file systems wait for
    /// [`place`](Self::place).
    pub fn take(&mut self, at: Nanos, event: &[u8], header: &mut TraceHeader) {
        let at = at.saturating_sub(self.began);
        match self.sources.reader(event).and_then(|reader| reader.read(event)) {
            Some(Event::Block(event)) => {
                let may_be_stray =
                    event.bio && self.sources.follow_paths() && matches!(event.step, Step::Complete(_));
                if !self.take_block(at, &event, header) && may_be_stray {
                    self.strays.push((at, event));
                }
            }
            Some(Event::Path { path, of }) => self.devices.learn_path(path, of),
            Some(event @ (Event::Fs(_) | Event::Chunk(_))) => self.unplaced.push((at, event)),
            Some(Event::Commit(_)) | None => {}
        }
    }

    /// Takes a step of a request or bio; returns false if its disk is not known.
    fn take_block(&mut self, at: Nanos, event: &BlockEvent, header: &mut TraceHeader) -> bool {
        let Some(disk) = self.devices.find(event.number, header) else { return false };
        if let Some(action) = Action::of(event, disk, at).filter(|_| self.kinds.contains(&event.kind)) {
            self.entries.push(Entry { at, action });
        }
        true
    }

    /// Finds out where the extents of file systems lie that were taken since the last time, in the order of their times:
    /// one processor may have used addresses of a new chunk that another one made.
    pub fn place(&mut self, instance: &Instance, header: &mut TraceHeader) {
        // Another processor may have been read later, which named the path.
        for (at, event) in std::mem::take(&mut self.strays) {
            self.take_block(at, &event, header);
        }
        let mut unplaced = std::mem::take(&mut self.unplaced);
        unplaced.sort_by_key(|(at, _)| *at);
        for (at, event) in unplaced.drain(..) {
            match event {
                Event::Fs(event) => self.take_fs(at, &event, instance, header),
                Event::Chunk(event) => self.file_systems.forget_chunks(&event),
                Event::Block(_) | Event::Commit(_) | Event::Path { .. } => {}
            }
        }
        self.unplaced = unplaced;
    }

    fn take_fs(&mut self, at: Nanos, event: &FsEvent, instance: &Instance, header: &mut TraceHeader) {
        if !self.file_systems.knows(&event.id) {
            // It was mounted a moment ago. An error comes up again at the next regular check of the mounts.
            _ = self.mounts_changed(instance, header);
            if !self.file_systems.knows(&event.id) {
                self.file_systems.ignore(event.id, &mut self.devices, header);
            }
        }
        let Some((fs, places)) = self.file_systems.place(event, &mut self.devices, header) else { return };
        let process = self.name(event.pid);
        for (device, extent) in places {
            let row = TraceEvent {
                at,
                device,
                kind: event.kind,
                extent,
                latency: None,
                process,
                error: 0,
                fs: Some(fs),
            };
            self.entries.push(Entry { at, action: Action::Row(row) });
        }
    }

    /// Returns the name of a process; empty if it has ended.
    fn name(&mut self, pid: u32) -> Comm {
        if self.names.len() >= NAMES {
            self.names.clear();
        }
        let file = self.procfs.join(pid.to_string()).join("comm");
        *self
            .names
            .entry(pid)
            .or_insert_with(|| Comm::new(fs::read(file).unwrap_or_default().trim_ascii_end()))
    }

    /// Reads the list of mounts, and enables the events of new file systems and lists their free space, as
    /// requested.
    pub fn mounts_changed(
        &mut self,
        instance: &Instance,
        header: &mut TraceHeader,
    ) -> Result<(), TracefsError> {
        let by_file_system = |kind: &EventKind| !kind.is_request();
        if !self.kinds.iter().any(by_file_system) {
            return Ok(());
        }
        self.devices.forget_replaced();
        for found in self.file_systems.refresh(&mut self.devices, header)? {
            self.sources.enable_fs(instance, &found.kind, &self.kinds)?;
            if self.kinds.contains(&EventKind::Unused) {
                self.list_unused(&found, header);
            }
        }
        self.sources.gaps.iter().for_each(|sentence| gap(header, sentence.clone()));
        Ok(())
    }

    fn list_unused(&mut self, found: &Found, header: &mut TraceHeader) {
        // Taken before asking the kernel: space that is written from now on must not be listed as unused
        // after its write.
        let at = clock().saturating_sub(self.began);
        let pieces =
            mount::open_directory(&found.directory).ok().and_then(|root| ioctl::free_space(root).ok());
        let (Some(pieces), Some((on_disk, number))) = (pieces, found.on_disk) else {
            let (kind, directory) = (&found.kind, found.directory.display());
            return gap(header, format!("the free space of {directory}: {kind} doesn't list it"));
        };
        for piece in pieces.iter().filter(|piece| KernelNumber::unpack(piece.device) == number) {
            let (device, extent) = on_disk.place(piece.extent);
            let row = TraceEvent {
                at,
                device,
                kind: EventKind::Unused,
                extent,
                latency: None,
                process: Comm::default(),
                error: 0,
                fs: Some(found.index),
            };
            self.entries.push(Entry { at, action: Action::Row(row) });
        }
    }

    /// Notices replaced disks, and enables the events that new ones need.
    pub fn look_for_disks(&mut self, instance: &Instance) -> Result<(), TracefsError> {
        self.devices.forget_replaced();
        self.sources.enable_bios(instance, &self.devices, &self.kinds)
    }

    /// Appends the events that are complete to `events`; everything before the time `until` of the trace clock
    /// has been taken.
    pub fn settle(&mut self, until: Nanos, events: &mut Vec<TraceEvent>, header: &mut TraceHeader) {
        let until = until.saturating_sub(self.began);
        // Each processor's events are in order: there is little to sort.
        self.entries.sort_by_key(|entry| entry.at);
        let settled = self.entries.partition_point(|entry| entry.at < until);
        let Self { requests, ranges, .. } = self;
        for Entry { at, action } in self.entries.drain(..settled) {
            match action {
                Action::Row(row) => requests.add(row),
                Action::Issue(row) | Action::IssueDiscard(row, _) if requests.is_issued_again(&row) => {}
                Action::Issue(row) => requests.issue(row, &[row]),
                Action::IssueDiscard(row, false) => {
                    let process = ranges.take_merged(row.device, row.extent).unwrap_or(row.process);
                    requests.issue(row, &[TraceEvent { process, ..row }]);
                }
                Action::IssueDiscard(row, true) => match ranges.take(row.device, row.extent) {
                    Some(ranges) => {
                        let of = |range: &Range| TraceEvent {
                            extent: range.extent,
                            process: range.process,
                            ..row
                        };
                        requests.issue(row, &ranges.iter().map(of).collect::<Vec<_>>());
                    }
                    None => {
                        let name = &header.devices[usize::from(row.device.0)].name;
                        let what = format!("the ranges of some discards of {name}");
                        gap(
                            header,
                            format!("{what}: such a row has the first one's start and the length of all"),
                        );
                        requests.issue(row, &[row]);
                    }
                },
                Action::Complete(key, error) => requests.complete(key, at, error),
                Action::Requeue(key) => requests.requeue(key),
                Action::QueueRange(device, range) => ranges.queue(device, range),
                Action::SplitRange(device, first) => ranges.split(device, first),
            }
        }
        requests.take(until, events);
    }

    /// Stops waiting for the ends and ranges of requests in flight: they may have been lost.
    pub fn give_up(&mut self) {
        self.ranges.clear();
        self.requests.give_up();
    }

    /// Appends all remaining events to `events`, complete or not.
    pub fn take_all(&mut self, events: &mut Vec<TraceEvent>) {
        self.requests.take_all(events);
    }
}

impl Action {
    /// Returns the action of an event; `None` if other events of the disk report the same.
    fn of(event: &BlockEvent, disk: Disk, at: Nanos) -> Option<Self> {
        let end = event.sector.saturating_add(event.sectors);
        let extent =
            Extent::new(Bytes(event.sector.saturating_mul(SECTOR.0)), Bytes(end.saturating_mul(SECTOR.0)));
        let key = Key { device: disk.index, kind: event.kind, end: extent.end };
        let is_discard = event.kind == EventKind::Discard;
        if event.bio != disk.takes_bios {
            return match event.step {
                Step::Issue(process) if is_discard && event.bio => {
                    Some(Self::QueueRange(disk.index, Range { pid: event.pid, process, extent }))
                }
                Step::Split if is_discard => Some(Self::SplitRange(disk.index, extent)),
                _ => None,
            };
        }
        match event.step {
            Step::Issue(process) => {
                let row = TraceEvent {
                    at,
                    device: disk.index,
                    kind: event.kind,
                    extent,
                    latency: None,
                    process,
                    error: 0,
                    fs: None,
                };
                Some(match is_discard && !disk.takes_bios {
                    true => Self::IssueDiscard(row, disk.takes_ranges),
                    false => Self::Issue(row),
                })
            }
            Step::Complete(error) => Some(Self::Complete(key, error)),
            Step::Requeue => Some(Self::Requeue(key)),
            Step::Split => None,
        }
    }
}
