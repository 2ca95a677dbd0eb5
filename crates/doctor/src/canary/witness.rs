//! Observes a canary on each layer: by the block trace, or by the devices' counters.

use std::path::Path;
use std::time::Duration;

use trimtab_core::error::chain;
use trimtab_core::trace::{EventKind, TraceEvent};
use trimtab_core::{Bytes, Extent, ExtentSet, Nanos};
use trimtab_linux::SYSFS;
use trimtab_linux::block::{BlockCounters, BlockDevice, DeviceNumber};
use trimtab_linux::stack::Stack;
use trimtab_linux::tracefs::{RecordOptions, TracefsError};

use super::error::CanaryError;
use super::layout::{Layout, Place};
use trimtab_linux::tracefs::Listener;

/// The discards of a canary that a layer saw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sight {
    /// The bytes of the canary that discards named; with counters only, at most the bytes discarded.
    pub named: ExtentSet,
    /// The bytes of failed discards.
    pub failed: ExtentSet,
    /// The error of the first failed one, as a positive errno.
    pub error: Option<u16>,
    /// The bytes of all discards of the device.
    pub total: Bytes,
    /// The number of discards that named bytes of the canary.
    pub commands: u64,
    /// The time of the first one since the start of the trace.
    pub first: Option<Nanos>,
    /// Whether the trace showed none, and the counters did.
    pub is_counted: bool,
}

/// Observes the discards of devices.
pub(super) struct Witness {
    devices: Vec<Option<Device>>,
    source: EventSource,
}

/// A device of the stack.
struct Device {
    device: BlockDevice,
    /// Its disk, and its position on it.
    disk: DeviceNumber,
    extent: Extent,
    /// Its counters when the canary was deleted.
    before: BlockCounters,
}

enum EventSource {
    /// The block trace: every discard of the stack's disks so far.
    Trace(Box<Listener>, Vec<(DeviceNumber, TraceEvent)>),
    /// Counters only, and the reason.
    Counters(TracefsError),
}

impl Witness {
    /// Starts to observe the devices of `stack` by a trace, or else by their counters.
    ///
    /// # Errors
    /// [`CanaryError::Block`].
    pub fn start(stack: &Stack) -> Result<Self, CanaryError> {
        let mut devices = Vec::new();
        for layer in &stack.layers {
            let device = layer.number.and_then(|number| BlockDevice::numbered(Path::new(SYSFS), number));
            devices.push(device.map(Device::of).transpose()?);
        }
        let mut disks: Vec<BlockDevice> = Vec::new();
        for disk in devices.iter().flatten().map(|device| device.device.whole()) {
            if !disks.contains(&disk) {
                disks.push(disk);
            }
        }
        let options =
            RecordOptions { devices: disks, kinds: vec![EventKind::Discard], ..RecordOptions::default() };
        let source = match Listener::start(&options) {
            Ok(listener) => EventSource::Trace(Box::new(listener), Vec::new()),
            Err(error) => EventSource::Counters(error),
        };
        Ok(Self { devices, source })
    }

    /// Forgets earlier discards, just before the canary is deleted. Returns for each layer whether other
    /// processes discard where it may be.
    ///
    /// # Errors
    /// Errors of the trace or the counters.
    pub fn begin(&mut self, layout: &Layout) -> Result<Vec<bool>, CanaryError> {
        let sights = self.look(layout, Duration::ZERO)?;
        if let EventSource::Trace(_, events) = &mut self.source {
            events.clear();
        }
        for device in self.devices.iter_mut().flatten() {
            device.before = device.device.counters()?;
        }
        Ok(sights.iter().map(|sight| sight.commands > 0).collect())
    }

    /// Returns the discards that each layer has seen, after waiting for more, at most for `timeout`.
    ///
    /// # Errors
    /// Errors of the trace or the counters.
    pub fn look(&mut self, layout: &Layout, timeout: Duration) -> Result<Vec<Sight>, CanaryError> {
        let EventSource::Trace(listener, events) = &mut self.source else {
            std::thread::sleep(timeout);
            return counted(&self.devices, layout);
        };
        // Whatever is counted by now is in the trace when that is read, if it ever is.
        let counted = counted(&self.devices, layout)?;
        listener.follow(timeout)?;
        let new: Vec<_> = listener.take().collect();
        let number = |event: &TraceEvent| {
            let (major, minor) = listener.header().devices[usize::from(event.device.0)].number;
            DeviceNumber { major, minor }
        };
        events.extend(new.into_iter().map(|event| (number(&event), event)));
        let pairs = self.devices.iter().zip(&layout.places).zip(counted);
        Ok(pairs
            .map(|(pair, counted)| {
                let (Some(device), Some(place)) = pair else { return counted };
                let traced = device.traced(place, events);
                // The events of NVMe's multipath devices name the path, which has no number in sysfs.
                if traced.total > Bytes::ZERO || counted.total == Bytes::ZERO { traced } else { counted }
            })
            .collect())
    }

    /// Returns for each layer the reason why "nothing was seen" proves nothing there, in a sentence. There is none where both
    /// the trace and the counters show the discards of such a device.
    pub fn doubts(&self) -> Vec<Option<String>> {
        self.devices
            .iter()
            .map(|device| device.as_ref().and_then(|device| self.doubt(&device.device)))
            .collect()
    }

    fn doubt(&self, device: &BlockDevice) -> Option<String> {
        let name = device.name();
        let has_counted = device.has_counted_discards().unwrap_or_default();
        if !device.is_counting() {
            Some(format!("{name} counts nothing, because its queue/iostats is 0"))
        } else if device.may_be_silent() && !has_counted {
            Some(format!("{name} has counted no discard so far"))
        } else if matches!(self.source, EventSource::Counters(_)) {
            Some(format!("only the counters of {name} were watched"))
        } else {
            None
        }
    }

    /// Returns why the observations are incomplete, in a sentence; `None` if they are complete.
    pub fn excuse(&self) -> Option<String> {
        match &self.source {
            EventSource::Trace(listener, _) if listener.header().lost > 0 => {
                Some(format!("{} events were lost", listener.header().lost))
            }
            EventSource::Trace(..) => None,
            EventSource::Counters(error) => {
                Some(format!("counted by /sys/block/*/stat, whoever discarded, for {}", chain(error)))
            }
        }
    }
}

/// Returns the discards that the counters of each layer show.
fn counted(devices: &[Option<Device>], layout: &Layout) -> Result<Vec<Sight>, CanaryError> {
    let pairs = devices.iter().zip(&layout.places);
    let counted = pairs.map(|pair| match pair {
        (Some(device), Some(place)) => device.counted(place),
        _ => Ok(Sight::default()),
    });
    counted.collect()
}

impl Device {
    fn of(device: BlockDevice) -> Result<Self, CanaryError> {
        let (disk, extent) = (device.whole().number()?, device.extent()?);
        Ok(Self { disk, extent, before: device.counters()?, device })
    }

    /// Returns what the discards in `events` name of the canary at `place`.
    fn traced(&self, place: &Place, events: &[(DeviceNumber, TraceEvent)]) -> Sight {
        let mut sight = Sight::default();
        for (_, event) in events.iter().filter(|(disk, _)| *disk == self.disk) {
            let here = event.extent.intersect(self.extent);
            let extent = Extent::at(here.start.saturating_sub(self.extent.start), here.len());
            sight.total += extent.len();
            let mut parts = place.extents.inside(extent).peekable();
            if parts.peek().is_none() {
                continue;
            }
            sight.commands += 1;
            sight.first.get_or_insert(event.at);
            for part in parts {
                sight.named.insert(part);
                match event.error {
                    0 => sight.failed.remove(part),
                    _ => sight.failed.insert(part),
                }
            }
            if event.error != 0 {
                sight.error.get_or_insert(event.error);
            }
        }
        sight
    }

    /// Returns as much of the canary at `place` as the counters allow.
    fn counted(&self, place: &Place) -> Result<Sight, CanaryError> {
        let since = self.device.counters()?.since(&self.before);
        let mut left = since.discard_bytes;
        let is_counted = left > Bytes::ZERO;
        let mut sight = Sight { total: left, commands: since.discards, is_counted, ..Sight::default() };
        for extent in place.extents.iter() {
            let part = Extent::at(extent.start, extent.len().min(left));
            left -= part.len();
            sight.named.insert(part);
        }
        Ok(sight)
    }
}
