//! Logs of the decisions of the policy smart: written by the service, and replayed.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use trimtab_core::Nanos;
use trimtab_core::document::decisions::{DECISIONS_SCHEMA, DecisionsHead, DecisionsStep};
use trimtab_core::policy::{Event, Explanation, Policy, TrimRequest};
use trimtab_linux::file::open_regular;

/// The bytes after which a log ends.
const MOST: u64 = 256 << 20;

/// A log of decisions that is being written.
#[derive(Debug)]
pub struct DecisionLog {
    file: BufWriter<File>,
    written: u64,
}

impl DecisionLog {
    /// Creates a new file in `directory`, named after the mount point and `number`, the first that is not in use.
    ///
    /// # Errors
    /// If it cannot be created or written.
    pub fn create(directory: &Path, head: &DecisionsHead) -> io::Result<Self> {
        let name: String = head
            .mount
            .chars()
            .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
            .collect();
        let options = || OpenOptions::new().write(true).create_new(true).clone();
        let mut found = Err(io::ErrorKind::AlreadyExists.into());
        for number in 1..10_000 {
            let path = directory.join(format!("{}-{number}.jsonl", name.trim_matches('-')));
            found = open_regular(&path, &mut options());
            if !found.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
                break;
            }
        }
        let mut log = Self { file: BufWriter::new(found?), written: 0 };
        log.line(serde_json::to_vec(head)?)?;
        log.file.flush()?;
        Ok(log)
    }

    /// Adds what the policy was told and what it answered, unless the log is full.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, at: Duration, event: &Event, requests: &[TrimRequest]) -> io::Result<()> {
        if self.written >= MOST {
            return Ok(());
        }
        let at = Nanos(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
        let step = DecisionsStep { at, event: event.clone(), requests: requests.to_vec() };
        self.line(serde_json::to_vec(&step)?)?;
        if *event == Event::Wake { self.file.flush() } else { Ok(()) }
    }

    fn line(&mut self, mut line: Vec<u8>) -> io::Result<()> {
        line.push(b'\n');
        self.written += line.len() as u64;
        self.file.write_all(&line)
    }
}

/// Why a log of decisions cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A line is not what it should be.
    #[error("{}:{line} is not a line of a log of decisions", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The log has another schema.
    #[error("{} has schema {schema:?}, not {DECISIONS_SCHEMA:?}", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// Its schema.
        schema: String,
    },
}

/// A decision that was made again.
#[derive(Debug)]
pub struct Decision {
    /// The line of the log, from 1.
    pub line: u64,
    /// The time on the service's clock.
    pub at: Duration,
    /// The trims that this version requests.
    pub requests: Vec<TrimRequest>,
    /// Whether the log has the same ones.
    pub is_same: bool,
    /// The reason, with the figures before the decision.
    pub explanation: Explanation,
}

/// Makes all decisions of the log at `path` again, and calls `decided` for each. Returns the log's head. A last
/// line without an end, as a killed service leaves it, is left out.
///
/// # Errors
/// [`ReplayError`].
pub fn replay(path: &Path, mut decided: impl FnMut(Decision)) -> Result<DecisionsHead, ReplayError> {
    let read = |source| ReplayError::Read { path: path.to_owned(), source };
    let invalid = |line| move |source| ReplayError::Line { path: path.to_owned(), line, source };
    let file = open_regular(path, OpenOptions::new().read(true)).map_err(read)?;
    let (mut file, mut text) = (BufReader::new(file), String::new());
    file.read_line(&mut text).map_err(read)?;
    let head: DecisionsHead = serde_json::from_str(&text).map_err(invalid(1))?;
    if head.schema != DECISIONS_SCHEMA {
        return Err(ReplayError::Schema { path: path.to_owned(), schema: head.schema });
    }
    let mut policy = head.policy();
    for line in 2.. {
        text.clear();
        file.read_line(&mut text).map_err(read)?;
        if !text.ends_with('\n') {
            break;
        }
        let step: DecisionsStep = serde_json::from_str(&text).map_err(invalid(line))?;
        let at = Duration::from_nanos(step.at.0);
        let explanation = (step.event == Event::Wake).then(|| policy.explain(at));
        let requests = policy.on_event(at, &step.event);
        let is_same = requests == step.requests;
        if let Some(explanation) = explanation {
            decided(Decision { line, at, requests, is_same, explanation });
        }
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use trimtab_core::policy::{Gain, Goals, Load, TrimScope, Trimmed};
    use trimtab_core::profile::Profile;
    use trimtab_core::{Bytes, DiscardUnits, Extent, ExtentSet};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn head() -> DecisionsHead {
        DecisionsHead {
            schema: DECISIONS_SCHEMA.to_owned(),
            version: "1".to_owned(),
            mount: "/srv/a b".to_owned(),
            goals: Goals::default(),
            gain: Gain::Copies,
            units: DiscardUnits::default(),
            size: Bytes(8 << 30),
            profile: Profile::named("micron-m500it").unwrap(),
            learned: None,
        }
    }

    /// Tells a policy of an idle drive with a large and many small extents, logs that, and returns the trims.
    fn written(directory: &Path) -> (PathBuf, Vec<Vec<TrimRequest>>) {
        let mut log = DecisionLog::create(directory, &head()).unwrap();
        let mut policy = head().policy();
        let mut answers = Vec::new();
        let mut tell = |at: Duration, event: Event| {
            let requests = policy.on_event(at, &event);
            log.add(at, &event, &requests).unwrap();
            if event == Event::Wake {
                answers.push(requests);
            }
        };
        tell(SECOND, Event::Space { free: Bytes::GIB });
        tell(SECOND, Event::Freed(Extent::at(Bytes::ZERO, Bytes(512 << 20))));
        tell(SECOND, Event::Freed(Extent::at(Bytes::GIB, Bytes(4096))));
        for second in 2..6 {
            let load = Load {
                span: SECOND,
                in_flight: 0,
                completed: 0,
                latency: Duration::ZERO,
                written: Bytes::ZERO,
                read: Bytes::ZERO,
                busy: None,
            };
            tell(SECOND * second, Event::Load(load));
            tell(SECOND * second, Event::Wake);
            let (refused, partial) = (ExtentSet::new(), ExtentSet::new());
            let trimmed = Trimmed { took: SECOND / 20, refused, partial, sent: None };
            tell(SECOND * second, Event::Trimmed(trimmed));
        }
        (directory.join("srv-a-b-1.jsonl"), answers)
    }

    #[test]
    fn decisions_are_made_again_from_a_log() {
        let directory = tempfile::tempdir().unwrap();
        let (path, answers) = written(directory.path());
        let mut decisions = Vec::new();
        assert_eq!(replay(&path, |decision| decisions.push(decision)).unwrap(), head());
        assert!(decisions.iter().all(|decision| decision.is_same), "{decisions:#?}");
        assert_eq!(decisions.iter().map(|it| it.requests.clone()).collect::<Vec<_>>(), answers);
        assert!(matches!(&answers[0][0].scope, TrimScope::Within(extents) if extents.count() == 1));
        assert_eq!(decisions[0].line, 6);
        let text = std::fs::read_to_string(&path).unwrap();
        // Of another version that requests nothing, and with a last line that was cut off.
        let changed = text.replacen("\"requests\":[{", "\"requests\":[],\"was\":[{", 1);
        std::fs::write(&path, &changed[..changed.len() - 1]).unwrap();
        let mut same = Vec::new();
        replay(&path, |decision| same.push(decision.is_same)).unwrap();
        assert_eq!(same, [false, true, true, true]);
    }

    #[test]
    fn logs_of_one_mount_point_do_not_replace_each_other() {
        let directory = tempfile::tempdir().unwrap();
        for number in 1..3 {
            DecisionLog::create(directory.path(), &head()).unwrap();
            assert!(directory.path().join(format!("srv-a-b-{number}.jsonl")).exists());
        }
    }

    #[test]
    fn file_that_is_no_log_is_refused_with_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let (path, _) = written(directory.path());
        let text = std::fs::read_to_string(&path).unwrap();
        for (text, message) in [
            (String::new(), ":1 is not a line"),
            (text.replacen("{\"at\"", "{\"on\"", 1), ":2 is not a line"),
            (text.replacen("decisions/1", "decisions/9", 1), "has schema \"trimtab/decisions/9\""),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = replay(&path, |_| ()).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
