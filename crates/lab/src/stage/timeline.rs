//! The course of a run: what reached the device in equal intervals of drive time.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use trimtab_core::document::{Interval, Timeline};
use trimtab_linux::block::{BlockCounters, BlockDevice, BlockError};

use super::clock::DriveClock;
use super::probe::Sample;
use crate::error::LabError;
use trimtab_core::interrupt::Interrupt;

/// The most intervals that are kept. If a run takes longer, each becomes twice as long.
const MOST: usize = 512;
/// The length of an interval at first, in drive time.
const FIRST: Duration = Duration::from_millis(50);

/// A thread that reads the device's counters at the end of every interval.
pub struct Sampler {
    stop: Interrupt,
    thread: JoinHandle<Result<Timeline, BlockError>>,
}

impl Sampler {
    /// Starts to sample the counters of `block`.
    pub fn start(block: BlockDevice, clock: DriveClock) -> Self {
        let stop = Interrupt::default();
        let stopped = stop.clone();
        let thread = thread::spawn(move || sample_all(&block, clock, &stopped));
        Self { stop, thread }
    }

    /// Stops and returns the intervals, with the longest reads of `probe` in them.
    ///
    /// # Errors
    /// [`LabError::Block`] of a device that is gone.
    pub fn finish(self, probe: &[Sample]) -> Result<Timeline, LabError> {
        self.stop.ask();
        let mut timeline = self.thread.join().expect("the sampler doesn't panic")?;
        for sample in probe {
            let at = (sample.due.as_secs_f64() / timeline.interval_s) as usize;
            if let Some(interval) = timeline.intervals.get_mut(at) {
                let latency = sample.latency.as_secs_f64();
                interval.probe_max_s = Some(interval.probe_max_s.map_or(latency, |max| max.max(latency)));
            }
        }
        Ok(timeline)
    }
}

fn sample_all(block: &BlockDevice, clock: DriveClock, stop: &Interrupt) -> Result<Timeline, BlockError> {
    let stat = block.stat()?;
    let (mut length, mut intervals, mut before) = (FIRST, Vec::new(), stat.read()?);
    loop {
        // The last interval is as long as it was when the run ended.
        let is_last = clock.sleep_until(length * (intervals.len() as u32 + 1), stop).is_err();
        let now = stat.read()?;
        intervals.push(between(&before, &now));
        before = now;
        if is_last {
            return Ok(Timeline { interval_s: length.as_secs_f64(), intervals });
        }
        if intervals.len() == MOST {
            intervals = merge_pairs(&intervals);
            length *= 2;
        }
    }
}

fn between(before: &BlockCounters, now: &BlockCounters) -> Interval {
    Interval {
        written: now.write_bytes.saturating_sub(before.write_bytes),
        discards: now.discards.saturating_sub(before.discards),
        discard_bytes: now.discard_bytes.saturating_sub(before.discard_bytes),
        probe_max_s: None,
    }
}

/// Every two intervals as one.
fn merge_pairs(intervals: &[Interval]) -> Vec<Interval> {
    let merged = |pair: &[Interval]| Interval {
        written: pair.iter().map(|interval| interval.written).sum(),
        discards: pair.iter().map(|interval| interval.discards).sum(),
        discard_bytes: pair.iter().map(|interval| interval.discard_bytes).sum(),
        probe_max_s: None,
    };
    intervals.chunks(2).map(merged).collect()
}

#[cfg(test)]
mod tests {
    use trimtab_core::Bytes;

    use super::*;

    #[test]
    fn merged_intervals_keep_their_totals() {
        let interval = |written, discards| Interval {
            written: Bytes(written),
            discards,
            discard_bytes: Bytes(discards * 10),
            probe_max_s: None,
        };
        let merged = merge_pairs(&[interval(1, 2), interval(3, 4), interval(5, 6)]);
        assert_eq!(merged, [interval(4, 6), interval(5, 6)]);
    }
}
