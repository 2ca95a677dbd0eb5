//! The probe: what other users of the drive feel.
//!
//! Threads read 4 KiB of a live file at a fixed rate, past the page cache, from the first step to the
//! end of the last. They take turns, so that a slow read does not delay the next one, as independent
//! users do not wait for each other. The latency of a read begins when the read was due, even if all
//! threads were busy then. So a stall counts for every read that it delays (G. Tene, "How NOT to Measure
//! Latency", 2013: coordinated omission).

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use trimtab_core::Nanos;
use trimtab_core::aligned::Aligned;
use trimtab_core::stats::{Latencies, LatencySummary};

use super::clock::DriveClock;
use crate::error::{LabError, io_at};
use crate::ledger::open_direct;
use trimtab_core::interrupt::Interrupt;

/// The length of a read.
const LENGTH: usize = 4096;
/// Threads that read in turn: as long as no read takes longer than this many intervals, all are sent on time.
const THREADS: u32 = 8;

/// One read: when it was due and how long it took from then, both in drive time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Drive time since the run's first step.
    pub due: Duration,
    /// Drive time from then until the data was there.
    pub latency: Duration,
}

/// Threads that read a live file at a fixed rate.
pub struct Probe {
    path: PathBuf,
    stop: Interrupt,
    /// The drive time up to which reads are made, once that is known.
    until: Arc<OnceLock<Duration>>,
    threads: Vec<JoinHandle<io::Result<Vec<Sample>>>>,
}

/// The reads that one thread makes, and when.
#[derive(Debug, Clone, Copy)]
struct ReadSchedule {
    /// The number of the thread, and of its first read.
    first: u32,
    /// Drive time from one read of all threads to the next.
    interval: Duration,
    /// The length of the file, in pages of 4 KiB.
    pages: u64,
}

impl Probe {
    /// Starts to read from the file at `path`, of `pages` times 4 KiB, every `interval` of drive time.
    ///
    /// # Errors
    /// [`LabError::File`] if the file can't be opened.
    pub fn start(path: PathBuf, pages: u64, interval: Duration, clock: DriveClock) -> Result<Self, LabError> {
        let (stop, until) = (Interrupt::default(), Arc::<OnceLock<Duration>>::default());
        let start = |first| {
            let file = open_direct(OpenOptions::new().read(true), &path)?;
            let schedule = ReadSchedule { first, interval, pages };
            let (stop, until) = (stop.clone(), Arc::clone(&until));
            thread::Builder::new().spawn(move || schedule.run(&file, clock, &stop, &until))
        };
        let threads: io::Result<Vec<_>> = (0..THREADS).map(start).collect();
        let threads = threads.inspect_err(|_| _ = stop.ask());
        Ok(Self { threads: threads.map_err(io_at(&path, "open"))?, path, stop, until })
    }

    /// Stops the probe and returns all samples in the order in which they were due. With `until`, first makes
    /// the reads that were due before that drive time; without it, makes no more reads.
    ///
    /// # Errors
    /// [`LabError::File`] if a read failed.
    pub fn finish(self, until: Option<Duration>) -> Result<Vec<Sample>, LabError> {
        if let Some(until) = until {
            self.until.get_or_init(|| until);
        }
        self.stop.ask();
        let mut samples = Vec::new();
        for thread in self.threads {
            let read = thread.join().expect("the probe doesn't panic");
            samples.extend(read.map_err(io_at(&self.path, "read"))?);
        }
        samples.sort_unstable_by_key(|sample: &Sample| sample.due);
        Ok(samples)
    }
}

impl ReadSchedule {
    /// Reads until `stop` is asked, and then makes the reads that were due before `until`, if that is set.
    fn run(
        self,
        file: &File,
        clock: DriveClock,
        stop: &Interrupt,
        until: &OnceLock<Duration>,
    ) -> io::Result<Vec<Sample>> {
        // The kernel may otherwise wake the thread 50 us late.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut buffer = Aligned::zeroed(LENGTH);
        let (mut samples, mut due) = (Vec::new(), self.interval / 2 + self.interval * self.first);
        // Reads that were due before the end are made even if earlier ones delayed them beyond it.
        while clock.sleep_until(due, stop).is_ok() || until.get().is_some_and(|end| due < *end) {
            let number = samples.len() as u64 * u64::from(THREADS) + u64::from(self.first);
            let page = number.wrapping_mul(STRIDE) % self.pages;
            file.read_exact_at(&mut buffer, page * LENGTH as u64)?;
            samples.push(Sample { due, latency: clock.now().saturating_sub(due) });
            due += self.interval * THREADS;
        }
        Ok(samples)
    }
}

/// Pages from one read to the next: coprime to any power of two, so that all pages are read.
const STRIDE: u64 = 37;

/// Returns the latencies of the samples that were due in one of `spans`; `None` if there are none.
pub fn summary(samples: &[Sample], spans: &[Range<Duration>]) -> Option<LatencySummary> {
    let mut latencies = Latencies::default();
    let within = samples.iter().filter(|sample| spans.iter().any(|span| span.contains(&sample.due)));
    within.for_each(|sample| latencies.record(Nanos(sample.latency.as_nanos() as u64)));
    Some(latencies.summary()).filter(|summary| summary.count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_count_for_the_step_they_were_due_in() {
        let ms = Duration::from_millis;
        let samples = [(10, 1), (20, 500), (30, 490), (600, 1)]
            .map(|(due, latency)| Sample { due: ms(due), latency: ms(latency) });
        let found = summary(&samples, &[ms(15)..ms(25), ms(25)..ms(31)]).unwrap();
        assert_eq!(found.count, 2);
        assert!(found.max_ns >= Nanos(500_000_000));
        assert!(summary(&samples, &[ms(40)..ms(600)]).is_none());
    }

    #[test]
    fn overdue_reads_are_made_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("live");
        std::fs::write(&path, vec![1; 16 * LENGTH]).unwrap();
        for (until, expected) in [(Some(Duration::from_millis(40)), 20), (None, 0)] {
            // A drive that stalled until now: no thread has read anything, and the run is over.
            let (stop, end) = (Interrupt::default(), OnceLock::new());
            until.map(|until| end.set(until));
            stop.ask();
            let file = File::open(&path).unwrap();
            let reads = (0..THREADS).flat_map(|first| {
                let schedule = ReadSchedule { first, interval: Duration::from_millis(2), pages: 16 };
                schedule.run(&file, DriveClock::start(1.0), &stop, &end).unwrap()
            });
            assert_eq!(reads.count(), expected);
        }
    }

    #[test]
    fn reads_are_due_at_a_fixed_rate() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("live");
        std::fs::write(&path, vec![1; 16 * LENGTH]).unwrap();
        let clock = DriveClock::start(1.0);
        let probe = Probe::start(path, 16, Duration::from_millis(2), clock).unwrap();
        thread::sleep(Duration::from_millis(50));
        let samples = probe.finish(None).unwrap();
        assert!(!samples.is_empty());
        let mut read = [0; THREADS as usize];
        for sample in &samples {
            let number = (sample.due - Duration::from_millis(1)).as_millis() as u64 / 2;
            assert_eq!(sample.due, Duration::from_millis(1 + 2 * number));
            // A thread leaves none of its own out; on a busy machine one may be behind the others.
            let thread = number % u64::from(THREADS);
            assert_eq!(number / u64::from(THREADS), read[thread as usize]);
            read[thread as usize] += 1;
        }
    }
}
