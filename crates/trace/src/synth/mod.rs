//! Synthetic frees for traces that lack them.
//!
//! A trace of requests says when blocks were written and read, not when a file system gave them up. This module
//! guesses files from the requests, gives each a life time, and adds a free where it ends. Its guesses:
//!
//! - **A file** is a run of writes. Each begins where the one before it ended, at most
//!   [`SynthOptions::gap`] later.
//! - **Its life** ends with the probability [`SynthOptions::share`], after a time with a log-normal distribution
//!   from its first write on. The others are kept for ever. Studies of file systems find no life time that fits
//!   all: it varies widely with what a machine is used for (Douceur and Bolosky, "A Large-Scale Study of
//!   File-System Contents", SIGMETRICS 1999, abstract), and blocks live for far longer than half a minute under some
//!   workloads (Roselli, Lorch and Anderson, "A Comparison of File System Workloads", USENIX 2000, abstract). So
//!   share and median have no default. That the distribution is log-normal is assumed.
//! - **A write to bytes of a living file** changes the file in place. A write to bytes of a file whose life is over
//!   begins a new one, in space that was free.
//!
//! The trace itself is taken as true: a file that is read, or written in place, after the end of its life is freed right
//! after the last such use. So no byte is read between its free and the write or discard after it, every free covers only bytes
//! that were written and not freed since, and requests stay as they are. Not modelled: files that are deleted together,
//! and space that was free before the trace began.

mod model;
#[cfg(test)]
mod tests;

use trimtab_core::extent::Extent;
use trimtab_core::trace::{Comm, DeviceIndex, EventKind, FsIndex, TraceEvent, TraceFileSystem, TraceHeader};
use trimtab_core::units::{Bytes, Nanos};

use crate::counts::TraceReader;
use crate::error::TraceError;
use model::Model;

/// How files are guessed and how long they live.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SynthOptions {
    /// The share of files whose life ends, from 0 to 1.
    pub share: f64,
    /// The median of their life times.
    pub median: Nanos,
    /// The standard deviation of the life times' natural logarithm, 0 or above.
    pub spread: f64,
    /// The longest time between two writes to the end of a file.
    pub gap: Nanos,
    /// The seed of all draws.
    pub seed: u64,
}

/// The counts of a result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Synthesised {
    /// The files that were guessed.
    pub files: u64,
    /// The files that were freed, in part or as a whole.
    pub freed_files: u64,
    /// The bytes that files took when they were written.
    pub taken: Bytes,
    /// The bytes that were freed.
    pub freed: Bytes,
    /// The median of the freed files' life times; zero if there are none.
    pub median: Nanos,
}

/// The reason why no frees were made.
#[derive(Debug, thiserror::Error)]
pub enum SynthError {
    /// The trace cannot be read, or the result not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace has frees.
    #[error("the trace has frees of its own")]
    HasFrees,
    /// The second look at the trace saw something else than the first.
    #[error("the trace changed while it was read")]
    Changed,
}

/// Opens the trace anew, from its beginning.
pub type Open<'a> = dyn FnMut() -> Result<Box<dyn TraceReader + Send>, TraceError> + 'a;

/// Takes the header and a batch of events.
pub type Write<'a> = dyn FnMut(&TraceHeader, &[TraceEvent]) -> Result<(), TraceError> + 'a;

/// Adds frees to a trace, which is read twice: `open` opens it each time. Hands the header and the events to
/// `write`, batch by batch. Memory grows with the number of files and of the extents that they have.
///
/// # Errors
/// [`SynthError`]. Nothing was written unless the trace changed between the two looks, or `write` failed.
pub fn synthesise(
    options: &SynthOptions,
    open: &mut Open<'_>,
    write: &mut Write<'_>,
) -> Result<Synthesised, SynthError> {
    let mut trace = open()?;
    if trace.header().has_frees {
        return Err(SynthError::HasFrees);
    }
    let (mut model, mut batch, mut end) = (Model::new(options), Vec::new(), Nanos::ZERO);
    loop {
        trace.next_batch(&mut batch)?;
        let Some(last) = batch.last() else { break };
        end = last.at;
        for event in &batch {
            model.take(event)?;
        }
    }
    let header = marked(trace.header(), options);
    drop(trace);

    let (mut model, deaths) = model.again(end);
    let mut deaths = deaths.into_iter().peekable();
    let mut trace = open()?;
    let (mut out, mut lives, mut made) = (Vec::new(), Vec::new(), Synthesised::default());
    write(&header, &[])?;
    loop {
        trace.next_batch(&mut batch)?;
        if batch.is_empty() {
            break;
        }
        if trace.header().devices.len() > header.devices.len() {
            return Err(SynthError::Changed);
        }
        out.clear();
        for event in &batch {
            while let Some(death) = deaths.next_if(|death| death.at < event.at) {
                let freed = model.end(death.file);
                lives.extend((!freed.is_empty()).then_some(death.life));
                made.freed +=
                    freed.iter().map(|(_, extent)| extent.len()).fold(Bytes::ZERO, |sum, len| sum + len);
                out.extend(freed.into_iter().map(|(device, extent)| free(death.at, device, extent)));
            }
            model.take(event)?;
            out.push(*event);
        }
        write(&header, &out)?;
    }
    if !model.is_whole() {
        return Err(SynthError::Changed);
    }
    (made.files, made.taken) = (model.files(), model.taken());
    made.freed_files = lives.len() as u64;
    let middle = lives.len() / 2;
    made.median = if lives.is_empty() { Nanos::ZERO } else { *lives.select_nth_unstable(middle).1 };
    Ok(made)
}

fn free(at: Nanos, device: DeviceIndex, extent: Extent) -> TraceEvent {
    TraceEvent {
        at,
        device,
        kind: EventKind::Free,
        extent,
        latency: None,
        process: Comm::default(),
        error: 0,
        fs: Some(FsIndex(device.0)),
    }
}

/// The header of the result: it says that the frees are synthetic, and how they were made.
fn marked(header: &TraceHeader, options: &SynthOptions) -> TraceHeader {
    let mut header = header.clone();
    header.gaps.push(format!(
        "its frees are synthetic (trimtab trace synth {}): made of a trace of the format {}, with a life time for a share of {} of \
         the files, median {}, spread {}; writes to the end of a file come within {}; seed {}",
        env!("CARGO_PKG_VERSION"),
        header.origin,
        options.share,
        options.median,
        options.spread,
        options.gap,
        options.seed,
    ));
    header.origin = TraceHeader::SYNTHETIC.to_owned();
    header.has_frees = true;
    header.file_systems = header
        .devices
        .iter()
        .map(|device| TraceFileSystem {
            kind: "synthetic".to_owned(),
            mount_point: format!("synthetic on {}", device.name),
            options: String::new(),
            source: device.name.clone(),
        })
        .collect();
    header
}
