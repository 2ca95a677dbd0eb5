//! The configuration of the service: a TOML file with optional fields.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use trimtab_core::policy::Goals;
use trimtab_core::profile::{Profile, ProfileError};
use trimtab_linux::file::read_regular_text;
use trimtab_linux::stack::{Machine, StackError};

use super::mounts::MountedFileSystem;

/// The default path of the configuration.
pub const CONFIG: &str = "/etc/trimtab.toml";

/// The maximum size of a configuration file in bytes.
const MAX_SIZE: u64 = 1 << 20;

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The file is too large.
    #[error("{} is larger than {MAX_SIZE} bytes, the maximum for a configuration", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The text is not TOML.
    #[error("{origin}: line {line}: {message}")]
    Syntax {
        /// The file.
        origin: String,
        /// The line of the error, from 1.
        line: usize,
        /// The message of the TOML parser.
        message: String,
    },
    /// A field is unknown or has an invalid value.
    #[error("{origin}: {field}: {message}")]
    Field {
        /// The file.
        origin: String,
        /// The field, dotted.
        field: String,
        /// The error.
        message: String,
    },
    /// A named drive profile can't be used.
    #[error("{origin}: {field}")]
    Profile {
        /// The file.
        origin: String,
        /// The field, dotted.
        field: String,
        /// The error of the profile.
        #[source]
        source: Box<ProfileError>,
    },
}

/// The policy of the service for one file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServicePolicy {
    /// Trim pending extents when their discard is worth it and the drive has time.
    #[default]
    Smart,
    /// Trim all free space at this interval, in slices that hold the goals.
    Batched(Duration),
    /// Do not manage it.
    None,
}

/// A text that is not a [`ServicePolicy`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a policy of the service; write smart, none, batched, or batched:INTERVAL with an interval \
     from a minute to ten years (batched:1w)"
)]
pub struct UnknownServicePolicy {
    text: String,
}

impl FromStr for ServicePolicy {
    type Err = UnknownServicePolicy;
    fn from_str(text: &str) -> Result<Self, UnknownServicePolicy> {
        let every = |interval: &str| humantime::parse_duration(interval).ok();
        match text {
            "smart" => Some(Self::Smart),
            "none" => Some(Self::None),
            "batched" => Some(Self::Batched(WEEK)),
            _ => text
                .strip_prefix("batched:")
                .and_then(every)
                .filter(|interval| (MIN_INTERVAL..=MAX_TIME).contains(interval))
                .map(Self::Batched),
        }
        .ok_or_else(|| UnknownServicePolicy { text: text.to_owned() })
    }
}

impl fmt::Display for ServicePolicy {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Smart => f.pad("smart"),
            Self::Batched(interval) => {
                let interval = match (interval.as_secs(), interval.subsec_nanos()) {
                    (s, 0) if s % WEEK.as_secs() == 0 => format!("{}w", s / WEEK.as_secs()),
                    (s, 0) if s % DAY == 0 => format!("{}d", s / DAY),
                    _ => humantime::format_duration(*interval).to_string().replace(' ', ""),
                };
                f.pad(&format!("batched:{interval}"))
            }
            Self::None => f.pad("none"),
        }
    }
}

/// The interval of full trims if frees are not reported; the same as `fstrim.timer`'s.
pub(super) const WEEK: Duration = Duration::from_secs(7 * DAY);
/// File systems are often mounted for a moment only, to be copied or checked: none is kept busy then.
const MIN_MOUNT_AGE: Duration = Duration::from_secs(30);
/// A day, in seconds.
const DAY: u64 = 24 * 3600;
/// The shortest interval of full trims.
const MIN_INTERVAL: Duration = Duration::from_secs(60);
/// The longest configurable time; it can be added to any clock time without overflow.
const MAX_TIME: Duration = Duration::from_secs(3653 * DAY);

/// The settings of some file systems. Missing fields fall back to `[defaults]`, then to built-in defaults.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table of settings")]
struct Rules {
    #[serde(default, deserialize_with = "parsed")]
    policy: Option<ServicePolicy>,
    #[serde(default)]
    profile: Option<String>,
    #[serde(default, deserialize_with = "span")]
    max_latency_added: Option<Duration>,
    #[serde(default, deserialize_with = "share")]
    max_busy_share: Option<f64>,
    #[serde(default)]
    idle_only: Option<bool>,
    #[serde(default, deserialize_with = "span")]
    max_age: Option<Duration>,
    #[serde(default, deserialize_with = "span_or_zero")]
    min_mount_age: Option<Duration>,
}

/// The settings of a drive.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with a profile")]
struct DriveRules {
    profile: String,
}

/// The metrics port.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with an address")]
struct Metrics {
    #[serde(default, deserialize_with = "loopback")]
    address: Option<SocketAddr>,
}

/// The defaults of the program `fstrim` for its options that util-linux's lacks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table of settings")]
pub struct FstrimRules {
    /// Slow down while others use the drive.
    #[serde(default)]
    pub paced: bool,
    /// Skip what earlier trims covered.
    #[serde(default)]
    pub incremental: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "tables of settings")]
struct Document {
    #[serde(default)]
    fstrim: FstrimRules,
    #[serde(default)]
    metrics: Metrics,
    #[serde(default)]
    defaults: Rules,
    #[serde(default)]
    mount: BTreeMap<PathBuf, Rules>,
    #[serde(default)]
    drive: BTreeMap<PathBuf, DriveRules>,
}

/// The configuration of the service.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    document: Document,
    profiles: BTreeMap<String, Profile>,
}

/// The settings of one file system.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The configured policy, if any.
    pub policy: Option<ServicePolicy>,
    /// Whether the policy is configured for just this mount, not by default.
    pub is_by_name: bool,
    /// The limits for the effect of trims on others, and the maximum age.
    pub goals: Goals,
    /// The configured profile of its drive, if any.
    pub profile: Option<Profile>,
    /// How long it is left alone after it was mounted.
    pub min_mount_age: Duration,
}

impl Config {
    /// Reads the file at `path`, or [`CONFIG`] if `path` is none; returns `None` if [`CONFIG`] is missing.
    ///
    /// # Errors
    /// Any [`ConfigError`].
    pub fn find(path: Option<&Path>) -> Result<Option<Self>, ConfigError> {
        match Self::read(path.unwrap_or(Path::new(CONFIG))) {
            Err(ConfigError::Read { source, .. })
                if path.is_none() && source.kind() == io::ErrorKind::NotFound =>
            {
                Ok(None)
            }
            outcome => outcome.map(Some),
        }
    }

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// Any [`ConfigError`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = read_regular_text(path, MAX_SIZE).map_err(|source| match source.kind() {
            io::ErrorKind::FileTooLarge => ConfigError::TooLarge { path: path.to_owned() },
            _ => ConfigError::Read { path: path.to_owned(), source },
        })?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Parses the text of the file `origin`, and loads the profiles that it names.
    ///
    /// # Errors
    /// [`ConfigError::Syntax`], [`ConfigError::Field`] or [`ConfigError::Profile`].
    pub fn parse(text: &str, origin: &str) -> Result<Self, ConfigError> {
        let field = |field: String, message: String| ConfigError::Field {
            origin: origin.to_owned(),
            field,
            message: message.lines().collect::<Vec<_>>().join("; "),
        };
        let reader = toml::Deserializer::parse(text).map_err(|error| ConfigError::Syntax {
            origin: origin.to_owned(),
            line: text[..error.span().map_or(0, |span| span.start)].matches('\n').count() + 1,
            message: error.message().lines().collect::<Vec<_>>().join("; "),
        })?;
        let document: Document = serde_path_to_error::deserialize(reader).map_err(|error| {
            let path = match error.path().to_string().as_str() {
                "." => "the file".to_owned(),
                path => path.to_owned(),
            };
            field(path, error.inner().message().to_owned())
        })?;
        for path in document.mount.keys().chain(document.drive.keys()) {
            if !path.is_absolute() {
                let table = if document.mount.contains_key(path) { "mount" } else { "drive" };
                let message = "a mount point or a device needs an absolute path".to_owned();
                return Err(field(format!("{table}.{:?}", path.display().to_string()), message));
            }
        }
        let mut profiles = BTreeMap::new();
        for (field, name) in document.profiles() {
            if !profiles.contains_key(name) {
                let profile = load(name).map_err(|source| ConfigError::Profile {
                    origin: origin.to_owned(),
                    field,
                    source: Box::new(source),
                })?;
                profiles.insert(name.to_owned(), profile);
            }
        }
        Ok(Self { document, profiles })
    }

    /// Returns the defaults of the program `fstrim`.
    pub fn fstrim(&self) -> FstrimRules {
        self.document.fstrim
    }

    /// Returns the address that serves metrics, if any.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.document.metrics.address
    }

    /// Returns the configured mount points without a file system on a block device on `machine`.
    ///
    /// # Errors
    /// [`StackError`].
    pub fn not_mounted(&self, machine: &Machine) -> Result<Vec<&Path>, StackError> {
        let found = MountedFileSystem::all(machine)?;
        let is_there = |target: &Path| found.iter().any(|found| found.targets.iter().any(|at| at == target));
        Ok(self.document.mount.keys().map(PathBuf::as_path).filter(|target| !is_there(target)).collect())
    }

    /// Returns the settings of the file system mounted at `targets`, which is on the disk at the path
    /// `drive`. If several of its mount points are configured, the first counts.
    pub fn settings(&self, targets: &[PathBuf], drive: Option<&Path>) -> Settings {
        let Document { defaults, mount, .. } = &self.document;
        let nothing = Rules::default();
        let own = targets.iter().find_map(|target| mount.get(target)).unwrap_or(&nothing);
        let goals = Goals::default();
        let of_drive = drive.and_then(|drive| {
            let same =
                |named: &Path| named == drive || named.canonicalize().is_ok_and(|named| named == drive);
            self.document.drive.iter().find(|(named, _)| same(named)).map(|(_, rules)| &rules.profile)
        });
        let profile = own.profile.as_ref().or(of_drive).or(defaults.profile.as_ref());
        Settings {
            policy: own.policy.or(defaults.policy),
            is_by_name: own.policy.is_some(),
            goals: Goals {
                max_latency_added: own
                    .max_latency_added
                    .or(defaults.max_latency_added)
                    .unwrap_or(goals.max_latency_added),
                max_busy_share: own
                    .max_busy_share
                    .or(defaults.max_busy_share)
                    .unwrap_or(goals.max_busy_share),
                idle_only: own.idle_only.or(defaults.idle_only).unwrap_or(goals.idle_only),
                max_age: own.max_age.or(defaults.max_age).unwrap_or(goals.max_age),
            },
            profile: profile.and_then(|name| self.profiles.get(name)).cloned(),
            min_mount_age: own.min_mount_age.or(defaults.min_mount_age).unwrap_or(MIN_MOUNT_AGE),
        }
    }
}

impl Document {
    /// Returns the names of all profiles, each with the field that contains it.
    fn profiles(&self) -> impl Iterator<Item = (String, &str)> {
        let key = |path: &Path| format!("{:?}", path.display().to_string());
        let defaults = self.defaults.profile.iter().map(|name| ("defaults.profile".to_owned(), name));
        let mounts = self.mount.iter().filter_map(move |(path, rules)| {
            rules.profile.as_ref().map(|name| (format!("mount.{}.profile", key(path)), name))
        });
        let drives = self
            .drive
            .iter()
            .map(move |(path, rules)| (format!("drive.{}.profile", key(path)), &rules.profile));
        defaults.chain(mounts).chain(drives).map(|(field, name)| (field, name.as_str()))
    }
}

/// Loads the profile `name`: a file if it ends in `.toml`, a built-in one otherwise.
fn load(name: &str) -> Result<Profile, ProfileError> {
    if !name.ends_with(".toml") {
        return Profile::named(name);
    }
    let text = read_regular_text(Path::new(name), MAX_SIZE).map_err(|source| ProfileError::Field {
        origin: name.to_owned(),
        field: "the file".to_owned(),
        message: source.to_string(),
    })?;
    Profile::parse(&text, name)
}

/// Returns a text, or any other value as it would be written, for a message that refuses it.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match toml::Value::deserialize(deserializer)? {
        toml::Value::String(text) => text,
        other => other.to_string(),
    })
}

fn parsed<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    text(deserializer)?.parse().map(Some).map_err(de::Error::custom)
}

fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = text(deserializer)?;
    match humantime::parse_duration(&text) {
        Ok(span) if !span.is_zero() && span <= MAX_TIME => Ok(Some(span)),
        _ => Err(de::Error::custom(format!(
            "{text:?} is not a time above 0 and up to ten years; write it like 1ms, 30m or 1d"
        ))),
    }
}

fn span_or_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = text(deserializer)?;
    match humantime::parse_duration(&text) {
        Ok(span) if span <= MAX_TIME => Ok(Some(span)),
        _ => Err(de::Error::custom(format!(
            "{text:?} is not a time of up to ten years; write it like 0s, 30s or 5m"
        ))),
    }
}

fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    match f64::deserialize(deserializer)? {
        share if share > 0.0 && share <= 1.0 => Ok(Some(share)),
        share => Err(de::Error::custom(format!(
            "{share} is not a share of the time; write a number above 0 and up to 1"
        ))),
    }
}

fn loopback<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = text(deserializer)?;
    let address: SocketAddr = text.parse().map_err(|_| {
        de::Error::custom(format!("{text:?} is not an IP address with a port, such as 127.0.0.1:9718"))
    })?;
    if address.ip().is_loopback() {
        return Ok(Some(address));
    }
    Err(de::Error::custom(format!(
        "{address} can be reached from other machines; only loopback addresses are allowed, such as \
             127.0.0.1 and [::1]"
    )))
}

#[cfg(test)]
mod tests;
