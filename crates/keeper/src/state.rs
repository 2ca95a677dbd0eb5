//! The state of a file system that is saved over restarts: its pending extents and statistics.
//!
//! Each file system has one file, named by its identifier. The first line has the file type, its version, a
//! checksum and the length of the rest, which is JSON. The file is replaced atomically. It is valid only if
//! the file system [was not written](Seal::follows) since; a doubtful state is refused with the reason.

mod costs;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use trimtab_core::{Bytes, Extent};
use trimtab_linux::file::{Output, OutputError, open_regular, read_regular};
use trimtab_linux::generation::{Reason, Seal};
use trimtab_linux::ioctl;
use trimtab_linux::tracefs::FreeCoverage;
use xxhash_rust::xxh3::xxh3_64;

/// The maximum size of a file in bytes; each pending extent takes some 40.
const MAX_SIZE: u64 = 1 << 30;
/// The start of the first line.
const MAGIC: &str = "trimtab-state";
/// The version of the format; later ones are refused.
const VERSION: u32 = 1;
/// The extension of files whose modification time is the time of the last full trim.
const STAMP: &str = "trimmed";
/// The directory of the files, unless systemd sets another one.
const DIRECTORY: &str = "/var/lib/trimtab";

/// The state of a file system at the time of its seal. All free space that is not pending has been trimmed
/// since it was last in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The identity of the file system, and its generation.
    pub seal: Seal,
    /// The pending extents in trim addresses, and when they were freed.
    pub pending: Vec<(Extent, SystemTime)>,
    /// The bytes that its device discarded in trims of the service.
    pub trimmed: Bytes,
    /// When it was last trimmed.
    pub last_trim: Option<SystemTime>,
}

/// The format of a state: times in seconds since 1970, extents as first address and length.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    seal: Seal,
    pending: Vec<(u64, u64, u64)>,
    trimmed: Bytes,
    last_trim: Option<u64>,
}

/// Why a state can't be saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The directory can't be created.
    #[error("cannot create {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The file can't be written.
    #[error(transparent)]
    File(#[from] OutputError),
}

/// Why a saved state is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Its file can't be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The file is not a saved state.
    #[error("{} is not a saved state of trimtab", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A later trimtab wrote it.
    #[error("{} has version {version}, and this trimtab reads version {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// The file is incomplete or corrupt.
    #[error("{} is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The file system has changed since.
    #[error("{} is out of date: {reason}", path.display())]
    Stale {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: Reason,
    },
}

/// The directory of the saved states.
#[derive(Debug, Clone)]
pub struct Store {
    directory: PathBuf,
}

impl Store {
    /// The directory that systemd created for the service (`StateDirectory=`), or `/var/lib/trimtab`.
    pub fn usual() -> Self {
        let listed = std::env::var("STATE_DIRECTORY").unwrap_or_default();
        let first = listed.split(':').next().filter(|first| !first.is_empty());
        Self::at(Path::new(first.unwrap_or(DIRECTORY)))
    }

    /// The store at `directory`, which is created when needed.
    pub fn at(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Saves `state` atomically: after a crash there is either the old or the new one.
    ///
    /// # Errors
    /// [`SaveError`]; a state saved before stays.
    pub fn save(&self, state: &State) -> Result<(), SaveError> {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        created.map_err(|source| SaveError::Directory { path: self.directory.clone(), source })?;
        let file = Output::open_private(&self.path(&state.seal.uuid))?;
        Ok(file.replace_durably(&encode(state))?)
    }

    /// Returns the saved state of the file system whose seal is `now`, if there is one. It must be valid: see
    /// [`Seal::follows`].
    ///
    /// # Errors
    /// [`Refusal`] if the saved state is not valid.
    pub fn load(&self, now: &Seal, coverage: FreeCoverage) -> Result<Option<State>, Refusal> {
        let path = self.path(&now.uuid);
        let bytes = match read_regular(&path, MAX_SIZE) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Refusal::Unreadable { path, source }),
        };
        let state = decode(&bytes, &path)?;
        match now.follows(&state.seal, coverage) {
            Ok(()) => Ok(Some(state)),
            Err(reason) => Err(Refusal::Stale { path, reason }),
        }
    }

    /// Records that all free space of the file system `id` was just trimmed. If that fails, it is trimmed
    /// again sooner than necessary.
    pub fn stamp(&self, id: &str) {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        let path = self.directory.join(id).with_extension(STAMP);
        let options = &mut OpenOptions::new();
        let stamp =
            created.and_then(|()| open_regular(&path, options.write(true).create(true).truncate(false)));
        _ = stamp.and_then(|stamp| stamp.set_modified(SystemTime::now()));
    }

    /// Returns when [`Self::stamp`] was last called for the file system `id`.
    pub fn stamped(&self, id: &str) -> Option<SystemTime> {
        fs::metadata(self.directory.join(id).with_extension(STAMP)).and_then(|stamp| stamp.modified()).ok()
    }

    fn path(&self, uuid: &[u8; 16]) -> PathBuf {
        let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        self.directory.join(hex).with_extension("state")
    }
}

/// Returns an identifier, in letters and digits, of the file system that holds `directory`.
pub(crate) fn file_system_id(directory: &File, fstype: &str) -> String {
    let uuid = ioctl::file_system_uuid(directory);
    uuid.map(|uuid| uuid.iter().map(|byte| format!("{byte:02x}")).collect()).unwrap_or_else(|_| {
        let found = rustix::fs::fstatvfs(directory);
        format!("{fstype}-{:x}", found.map_or(0, |found| found.f_fsid))
    })
}

/// Returns the contents of a state's file.
fn encode(state: &State) -> Vec<u8> {
    let seconds =
        |time: &SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let pending = state.pending.iter();
    let written = Written {
        seal: state.seal.clone(),
        pending: pending.map(|(extent, since)| (extent.start.0, extent.len().0, seconds(since))).collect(),
        trimmed: state.trimmed,
        last_trim: state.last_trim.as_ref().map(seconds),
    };
    let body = serde_json::to_vec(&written).expect("numbers and texts can be written as JSON");
    let mut bytes = first_line(VERSION, &body).into_bytes();
    bytes.extend(body);
    bytes
}

/// Parses the contents of the file at `path`.
fn decode(bytes: &[u8], path: &Path) -> Result<State, Refusal> {
    let path = || path.to_owned();
    let damaged = || Refusal::Damaged { path: path() };
    let rest = bytes.strip_prefix(MAGIC.as_bytes()).and_then(|rest| rest.strip_prefix(b" "));
    let rest = rest.ok_or_else(|| Refusal::Foreign { path: path() })?;
    let end = rest.iter().position(|byte| *byte == b'\n').ok_or_else(damaged)?;
    let (line, body) = (&rest[..end], &rest[end + 1..]);
    let version = std::str::from_utf8(line).ok().and_then(|line| line.split(' ').next()?.parse().ok());
    let version = version.ok_or_else(damaged)?;
    // The checksum covers the version too, so it is checked first.
    if !bytes.starts_with(first_line(version, body).as_bytes()) {
        return Err(damaged());
    }
    if version != VERSION {
        return Err(Refusal::Version { path: path(), version });
    }
    let written: Written = serde_json::from_slice(body).map_err(|_| damaged())?;
    let time = |seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).ok_or_else(damaged);
    let pending = written.pending.into_iter().map(|(start, length, since)| {
        let end = start.checked_add(length).ok_or_else(damaged)?;
        Ok((Extent::new(Bytes(start), Bytes(end)), time(since)?))
    });
    Ok(State {
        seal: written.seal,
        pending: pending.collect::<Result<_, _>>()?,
        trimmed: written.trimmed,
        last_trim: written.last_trim.map(time).transpose()?,
    })
}

/// Returns the first line of a file with this version and body.
fn first_line(version: u32, body: &[u8]) -> String {
    let checksum = xxh3_64(&[&version.to_le_bytes(), body].concat());
    format!("{MAGIC} {version} {checksum:016x} {}\n", body.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a seal as read from a file.
    fn seal(uuid: u8, ever: u64) -> Seal {
        let written = serde_json::json!({
            "is_mounted": true, "mounts": 3, "before": 100, "ever": ever, "block": 4, "free": 9, "changed": 0,
        });
        let seal = serde_json::json!({
            "uuid": vec![uuid; 16], "device": "disk 0+1073741824", "written": { "ext4": written },
        });
        serde_json::from_value(seal).unwrap()
    }

    fn second(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn state() -> State {
        let extent = |start, length| Extent::at(Bytes(start), Bytes(length));
        State {
            seal: seal(7, 200),
            pending: vec![(extent(4096, 8192), second(1_700_000_000)), (extent(1 << 40, 4096), second(5))],
            trimmed: Bytes(12345),
            last_trim: Some(second(1_700_000_100)),
        }
    }

    fn saved(state: &State) -> (tempfile::TempDir, Store, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let store = Store::at(&root.path().join("lib/trimtab"));
        store.save(state).unwrap();
        let path = store.path(&state.seal.uuid);
        (root, store, path)
    }

    #[test]
    fn saved_state_is_loaded() {
        let (_root, store, path) = saved(&state());
        assert_eq!(store.load(&state().seal, FreeCoverage::FromNow).unwrap(), Some(state()));
        assert!(store.load(&seal(8, 200), FreeCoverage::FromNow).unwrap().is_none());
        let later = State { seal: seal(7, 300), pending: Vec::new(), last_trim: None, ..state() };
        store.save(&later).unwrap();
        assert_eq!(store.load(&later.seal, FreeCoverage::FromNow).unwrap(), Some(later));
        let names: Vec<_> =
            fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(names, [path]);
    }

    #[test]
    fn invalid_state_is_refused_with_the_reason() {
        let (_root, store, path) = saved(&state());
        let refused = || store.load(&seal(7, 200), FreeCoverage::FromNow).unwrap_err();
        let stale = store.load(&seal(7, 204), FreeCoverage::SinceMount).unwrap_err().to_string();
        assert!(stale.contains("it was written while nobody watched"), "{stale}");
        // The file of another file system, under this one's name.
        fs::write(&path, encode(&State { seal: seal(8, 200), ..state() })).unwrap();
        assert!(matches!(refused(), Refusal::Stale { reason: Reason::FileSystem, .. }));
        let body = br#"{"seal":"in words"}"#;
        fs::write(&path, [first_line(2, body).as_bytes(), body].concat()).unwrap();
        assert!(refused().to_string().contains("has version 2"), "{}", refused());
        fs::write(&path, [first_line(1, body).as_bytes(), body].concat()).unwrap();
        assert!(matches!(refused(), Refusal::Damaged { .. }));
        fs::write(&path, "[Unit]\n").unwrap();
        assert!(matches!(refused(), Refusal::Foreign { .. }));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(refused(), Refusal::Unreadable { .. }));
        assert!(store.save(&state()).unwrap_err().to_string().contains(".state"));
    }

    #[test]
    fn pipes_in_place_of_files_do_not_block() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let (_root, store, path) = saved(&state());
        fs::remove_file(&path).unwrap();
        for pipe in [&path, &path.with_file_name("id.trimmed")] {
            mknodat(CWD, pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        }
        let refused = store.load(&state().seal, FreeCoverage::FromNow).unwrap_err();
        assert!(matches!(refused, Refusal::Unreadable { .. }));
        assert!(store.save(&state()).is_err());
        store.stamp("id");
    }

    fn states() -> impl Strategy<Value = State> {
        let extent = (0..u64::MAX / 2, 0..u64::MAX / 2, 0..1_u64 << 40);
        let extent =
            extent.prop_map(|(start, length, at)| (Extent::at(Bytes(start), Bytes(length)), second(at)));
        let pending = prop::collection::vec(extent, 0..8);
        (any::<u8>(), any::<u64>(), pending, any::<u64>(), prop::option::of(0..1_u64 << 40)).prop_map(
            |(uuid, ever, pending, trimmed, last)| State {
                seal: seal(uuid, ever),
                pending,
                trimmed: Bytes(trimmed),
                last_trim: last.map(second),
            },
        )
    }

    proptest! {
        #[test]
        fn state_round_trips(state in states()) {
            prop_assert_eq!(decode(&encode(&state), Path::new("state")).unwrap(), state);
        }

        #[test]
        fn truncated_state_is_refused(state in states(), at in any::<prop::sample::Index>()) {
            let bytes = encode(&state);
            prop_assert!(decode(&bytes[..at.index(bytes.len())], Path::new("state")).is_err());
        }

        #[test]
        fn state_with_trailing_bytes_is_refused(state in states(), more in prop::collection::vec(any::<u8>(), 1..9)) {
            prop_assert!(decode(&[encode(&state), more].concat(), Path::new("state")).is_err());
        }

        #[test]
        fn arbitrary_bytes_are_refused(line in "trimtab-state [0-9a-f ]{0,30}\n", body in prop::collection::vec(any::<u8>(), 0..99)) {
            prop_assert!(decode(&[line.into_bytes(), body].concat(), Path::new("state")).is_err());
        }
    }

    #[test]
    fn flipped_bit_is_refused() {
        let bytes = encode(&state());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped, Path::new("state")).is_err(), "bit {bit}");
        }
    }
}
