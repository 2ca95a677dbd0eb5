//! Surveys a trace before it is replayed.

use trimtab_core::trace::{DeviceIndex, EventKind, TraceEvent, TraceSource};
use trimtab_core::{Bytes, Extent, Nanos};

/// The totals of a whole trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceSurvey {
    /// How long it takes in its own time: to the last completion, or as long as was recorded.
    pub span: Nanos,
    /// Its devices, by [`DeviceIndex`].
    pub devices: Vec<DeviceSurvey>,
}

/// The totals of a trace on one device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceSurvey {
    /// Events by kind, each at the place of its number.
    pub counts: [u64; EventKind::ALL.len()],
    /// The bytes they name.
    pub bytes: [Bytes; EventKind::ALL.len()],
    /// Requests whose latency isn't known.
    pub untimed: u64,
    /// The extent that reaches furthest, and its row in the trace, from 1; none where no event names
    /// bytes.
    pub furthest: Option<(u64, Extent)>,
}

impl DeviceSurvey {
    /// Events of one kind.
    pub fn count(&self, kind: EventKind) -> u64 {
        self.counts[kind as usize]
    }

    /// Events in all.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Requests in all.
    pub fn requests(&self) -> u64 {
        EventKind::ALL.into_iter().filter(|kind| kind.is_request()).map(|kind| self.count(kind)).sum()
    }

    /// Bytes that are written.
    pub fn written(&self) -> Bytes {
        self.bytes[EventKind::Write as usize] + self.bytes[EventKind::WriteZeroes as usize]
    }

    /// The end of the furthest extent.
    pub fn end(&self) -> Bytes {
        self.furthest.map_or(Bytes::ZERO, |(_, extent)| extent.end)
    }

    fn add(&mut self, row: u64, event: &TraceEvent) {
        self.counts[event.kind as usize] += 1;
        let bytes = &mut self.bytes[event.kind as usize];
        *bytes = Bytes(bytes.0.saturating_add(event.extent.len().0));
        self.untimed += u64::from(event.kind.is_request() && event.latency.is_none());
        if event.extent.end > self.end() && event.error == 0 {
            self.furthest = Some((row, event.extent));
        }
    }
}

impl TraceSurvey {
    /// Reads the whole of `source`. `watch` is told how many events each batch had, and ends it by
    /// returning false.
    ///
    /// # Errors
    /// The error of the source.
    pub fn of<S: TraceSource + ?Sized>(
        source: &mut S,
        watch: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Self, S::Error> {
        let mut survey = Self::default();
        let (mut batch, mut row) = (Vec::new(), 0);
        loop {
            source.next_batch(&mut batch)?;
            for event in &batch {
                row += 1;
                let DeviceIndex(device) = event.device;
                if survey.devices.len() <= device.into() {
                    survey.devices.resize(usize::from(device) + 1, DeviceSurvey::default());
                }
                survey.span = survey.span.max(event.at + event.latency.unwrap_or_default());
                survey.devices[usize::from(device)].add(row, event);
            }
            if batch.is_empty() || !watch(batch.len() as u64) {
                break;
            }
        }
        let header = source.header();
        survey.span = survey.span.max(header.duration.unwrap_or_default());
        survey.devices.resize(header.devices.len().max(survey.devices.len()), DeviceSurvey::default());
        Ok(survey)
    }
}
