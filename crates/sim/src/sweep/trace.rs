//! Traces that the cells of a sweep share.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use trimtab_core::Bytes;
use trimtab_core::error::chain;
use trimtab_core::trace::{InMemory, TraceEvent, TraceHeader, TraceSource};
use trimtab_ftl::replay::TraceSurvey;
use trimtab_trace::{Columns, TraceError, TraceReader};
use xxhash_rust::xxh3::Xxh3;

/// Events that a trace hands out at a time.
const BATCH: usize = 4096;
/// How much of a file is hashed at once.
const CHUNK: usize = 1 << 20;

/// Returns the hash of a trace's content, 32 hexadecimal digits: of its file, or of the files of all processors that blktrace
/// wrote. `goes_on` is called for each MiB; nothing is returned once it returned false.
///
/// # Errors
/// If it can't be read.
pub fn content_hash(path: &Path, goes_on: &mut dyn FnMut() -> bool) -> io::Result<Option<String>> {
    let (mut hash, mut buffer) = (Xxh3::new(), vec![0; CHUNK]);
    for path in trimtab_trace::files(path)? {
        let mut file = File::open(path)?;
        loop {
            if !goes_on() {
                return Ok(None);
            }
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => hash.update(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(Some(format!("{:032x}", hash.digest128())))
}

/// A trace that was read once. Its events are in memory if they fit; otherwise every replay reads the file.
#[derive(Debug)]
pub struct SharedTrace {
    pub(super) path: PathBuf,
    pub(super) header: TraceHeader,
    pub(super) survey: TraceSurvey,
    events: Option<Vec<TraceEvent>>,
}

/// Hands out the events of a file, and keeps a copy of them up to a limit.
struct Copying {
    reader: Box<dyn TraceReader + Send>,
    events: Option<Vec<TraceEvent>>,
    most: usize,
}

impl TraceSource for Copying {
    type Error = TraceError;
    fn header(&self) -> &TraceHeader {
        self.reader.header()
    }
    fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<(), TraceError> {
        self.reader.next_batch(batch)?;
        if let Some(events) = &mut self.events {
            events.extend_from_slice(batch);
        }
        self.events.take_if(|events| events.len() > self.most);
        Ok(())
    }
}

impl SharedTrace {
    /// Reads the trace at `path`; its events may take `memory`. `watch` is called with the number of events of each
    /// batch. Returns nothing once it returned false.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn read(
        path: &Path,
        memory: Bytes,
        watch: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<Self>, TraceError> {
        let reader = trimtab_trace::open(path, None, Columns::Replay)?;
        let most = (memory.0 / size_of::<TraceEvent>() as u64) as usize;
        let mut source = Copying { reader, events: Some(Vec::new()), most };
        let mut goes_on = true;
        let survey = TraceSurvey::of(&mut source, &mut |events| {
            goes_on = watch(events);
            goes_on
        })?;
        let Copying { reader, mut events, .. } = source;
        if let Some(events) = &mut events {
            events.shrink_to_fit();
        }
        let header = reader.header().clone();
        Ok(goes_on.then(|| Self { path: path.to_owned(), header, survey, events }))
    }

    /// Begins the trace.
    pub(super) fn source(&self) -> Result<Source<'_>, TraceError> {
        match &self.events {
            Some(events) => Ok(Source::Memory(InMemory::new(&self.header, events, BATCH))),
            None => Ok(Source::File(trimtab_trace::open(&self.path, None, Columns::Replay)?)),
        }
    }
}

/// A trace on its way to a replay.
pub(super) enum Source<'a> {
    Memory(InMemory<'a>),
    File(Box<dyn TraceReader + Send>),
}

impl TraceSource for Source<'_> {
    type Error = TraceError;
    fn header(&self) -> &TraceHeader {
        match self {
            Self::Memory(memory) => memory.header(),
            Self::File(reader) => reader.header(),
        }
    }
    fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<(), TraceError> {
        match self {
            Self::Memory(memory) => memory.next_batch(batch).map_err(|never: Infallible| match never {}),
            Self::File(reader) => reader.next_batch(batch),
        }
    }
}

/// A trace, or why there is none; nothing if reading it was stopped.
type Loaded = Option<Result<Arc<SharedTrace>, String>>;

/// The traces of a process: each is read once, by whoever needs it first.
#[derive(Debug, Default)]
pub struct Traces {
    /// By content.
    loaded: Mutex<HashMap<String, Arc<OnceLock<Loaded>>>>,
}

impl Traces {
    /// Returns the trace with this content, which `path` holds, and reads it if that was not done; the text of the
    /// error if it can't be read. Returns nothing once `watch` returned false.
    pub fn get(
        &self,
        hash: &str,
        path: &Path,
        memory: Bytes,
        watch: &mut dyn FnMut(u64) -> bool,
    ) -> Option<Result<Arc<SharedTrace>, String>> {
        let slot = {
            let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(loaded.entry(hash.to_owned()).or_default())
        };
        let read = || match SharedTrace::read(path, memory, watch) {
            Ok(trace) => trace.map(|trace| Ok(Arc::new(trace))),
            Err(error) => Some(Err(chain(&error))),
        };
        let loaded = slot.get_or_init(read).clone();
        if loaded.is_none() {
            self.forget(hash);
        }
        loaded
    }

    /// Frees the memory of a trace as soon as nobody replays it.
    pub fn forget(&self, hash: &str) {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).remove(hash);
    }

    /// Forgets all traces but this one.
    pub fn keep_only(&self, hash: &str) {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).retain(|other, _| other == hash);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use super::*;

    fn hash_of(path: &Path) -> String {
        content_hash(path, &mut || true).unwrap().unwrap()
    }

    #[test]
    fn trace_is_read_once_by_all_threads() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fio.log");
        fs::write(&path, "fio version 3 iolog\n0 sda add\n0 sda open\n1 sda write 0 4096\n").unwrap();
        let (traces, hash) = (Traces::default(), hash_of(&path));
        let get = || traces.get(&hash, &path, Bytes::MIB, &mut |_| true).unwrap();
        let first = get().unwrap();
        fs::remove_file(&path).unwrap();
        thread::scope(|scope| {
            let others: Vec<_> = (0..4).map(|_| scope.spawn(get)).collect();
            for other in others {
                assert!(Arc::ptr_eq(&first, &other.join().unwrap().unwrap()));
            }
        });
        assert!(first.events.is_some());
        traces.forget(&hash);
        assert!(get().is_err(), "it is read again");
    }
    #[test]
    fn hash_is_that_of_all_files_of_a_trace() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.blktrace.0");
        fs::write(&path, "first").unwrap();
        let alone = hash_of(&path);
        fs::write(directory.path().join("t.blktrace.1"), "second").unwrap();
        assert_ne!(hash_of(&path), alone);
        fs::write(directory.path().join("t.blktrace.1"), "").unwrap();
        assert_eq!(hash_of(&path), alone, "an empty file has no events");
        assert_eq!(content_hash(&path, &mut || false).unwrap(), None, "it was stopped");
    }
}
