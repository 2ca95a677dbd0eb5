//! What each layer sees of a canary: by the block trace, or by the devices' counters.

use std::path::Path;
use std::time::Duration;

use trimtab_core::error::chain;
use trimtab_core::trace::{Kind, TraceEvent};
use trimtab_core::{Bytes, Extent, ExtentSet, Nanos};
use trimtab_linux::SYSFS;
use trimtab_linux::block::{BlockCounters, BlockDevice, DeviceNumber};
use trimtab_linux::stack::Stack;
use trimtab_linux::tracefs::{RecordOptions, TracefsError};

use super::error::CanaryError;
use super::layout::{Layout, Place};
use trimtab_linux::tracefs::Listener;

/// What a layer saw of a canary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sight {
    /// The bytes of the canary that discards named. Where only counted, as many of them.
    pub named: ExtentSet,
    /// Those of discards that failed.
    pub failed: ExtentSet,
    /// What they failed with, the first of them, as a positive errno.
    pub error: Option<u16>,
    /// The bytes of all discards of the device, whatever they were of.
    pub total: Bytes,
    /// The discards that named any of the canary.
    pub commands: u64,
    /// When the first came, since the trace began.
    pub first: Option<Nanos>,
}

/// One who sees what devices are told.
pub(super) struct Witness {
    devices: Vec<Option<Device>>,
    eye: Eye,
}

/// A device of the stack.
struct Device {
    device: BlockDevice,
    /// The disk that it is, or is on, and where on that it is.
    disk: DeviceNumber,
    extent: Extent,
    /// Its counters when the canary was deleted.
    before: BlockCounters,
}

enum Eye {
    /// The block trace: every discard of the stack's disks so far.
    Trace(Box<Listener>, Vec<(DeviceNumber, TraceEvent)>),
    /// Counters alone, and why.
    Counters(TracefsError),
}

impl Witness {
    /// Begins to look at the devices of `stack`; where they can't be traced, at their counters.
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
            RecordOptions { devices: disks, kinds: vec![Kind::Discard], ..RecordOptions::default() };
        let eye = match Listener::start(&options) {
            Ok(listener) => Eye::Trace(Box::new(listener), Vec::new()),
            Err(error) => Eye::Counters(error),
        };
        Ok(Self { devices, eye })
    }

    /// Forgets what came so far, just before the canary is deleted. Says on which layers others discard
    /// where it may be.
    ///
    /// # Errors
    /// What the trace or the counters fail with.
    pub fn begin(&mut self, layout: &Layout) -> Result<Vec<bool>, CanaryError> {
        let sights = self.look(layout, Duration::ZERO)?;
        if let Eye::Trace(_, events) = &mut self.eye {
            events.clear();
        }
        for device in self.devices.iter_mut().flatten() {
            device.before = device.device.counters()?;
        }
        Ok(sights.iter().map(|sight| sight.commands > 0).collect())
    }

    /// What each layer has seen, after waiting for more for `timeout` at most.
    ///
    /// # Errors
    /// What the trace or the counters fail with.
    pub fn look(&mut self, layout: &Layout, timeout: Duration) -> Result<Vec<Sight>, CanaryError> {
        match &mut self.eye {
            Eye::Trace(listener, events) => {
                listener.follow(timeout)?;
                let new: Vec<_> = listener.take().collect();
                let number = |event: &TraceEvent| {
                    let (major, minor) = listener.header().devices[usize::from(event.device.0)].number;
                    DeviceNumber { major, minor }
                };
                events.extend(new.into_iter().map(|event| (number(&event), event)));
            }
            Eye::Counters(_) => std::thread::sleep(timeout),
        }
        let pairs = self.devices.iter().zip(&layout.places);
        pairs
            .map(|pair| match (pair, &self.eye) {
                ((Some(device), Some(place)), Eye::Trace(_, events)) => Ok(device.traced(place, events)),
                ((Some(device), Some(place)), Eye::Counters(_)) => device.counted(place),
                _ => Ok(Sight::default()),
            })
            .collect()
    }

    /// What keeps it from seeing everything, in a sentence; none where nothing does.
    pub fn excuse(&self) -> Option<String> {
        match &self.eye {
            Eye::Trace(listener, _) if listener.header().lost > 0 => {
                Some(format!("{} events were lost", listener.header().lost))
            }
            Eye::Trace(..) => None,
            Eye::Counters(error) => {
                Some(format!("counted by /sys/block/*/stat, whoever discarded, for {}", chain(error)))
            }
        }
    }
}

impl Device {
    fn of(device: BlockDevice) -> Result<Self, CanaryError> {
        let (disk, extent) = (device.whole().number()?, device.extent()?);
        Ok(Self { disk, extent, before: device.counters()?, device })
    }

    /// What the discards of `events` name of what is at `place`.
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

    /// As much of what is at `place` as was discarded since.
    fn counted(&self, place: &Place) -> Result<Sight, CanaryError> {
        let since = self.device.counters()?.since(&self.before);
        let mut left = since.discard_bytes;
        let mut sight = Sight { total: left, commands: since.discards, ..Sight::default() };
        for extent in place.extents.iter() {
            let part = Extent::at(extent.start, extent.len().min(left));
            left -= part.len();
            sight.named.insert(part);
        }
        Ok(sight)
    }
}
