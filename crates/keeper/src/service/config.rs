//! The configuration of the service: a TOML file, none of whose fields is needed.

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

use super::mounts::Found;

/// Where the configuration is unless another is named.
pub const CONFIG: &str = "/etc/trimtab.toml";

/// The most that goes into a configuration file, which nobody writes by accident.
const MOST: u64 = 1 << 20;

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The file is no configuration, but something else.
    #[error("{} is larger than {MOST} bytes: that is no configuration", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The text is not TOML.
    #[error("{origin}: line {line}: {message}")]
    Syntax {
        /// The file.
        origin: String,
        /// The line of the mistake, from 1.
        line: usize,
        /// What the TOML reader says.
        message: String,
    },
    /// A field is unknown, or its value is none that it can have.
    #[error("{origin}: {field}: {message}")]
    Field {
        /// The file.
        origin: String,
        /// The field, dotted.
        field: String,
        /// What is wrong with it.
        message: String,
    },
    /// A drive profile that is named can't be used.
    #[error("{origin}: {field}")]
    Profile {
        /// The file.
        origin: String,
        /// The field, dotted.
        field: String,
        /// What is wrong with the profile.
        #[source]
        source: Box<ProfileError>,
    },
}

/// How the service tends one file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServicePolicy {
    /// Trim what was freed, when the drive has time.
    Smart,
    /// Trim all free space, in slices that keep to the goals, so often.
    Batched(Duration),
    /// Leave it alone.
    None,
}

/// A text that is no [`ServicePolicy`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no policy of the service; write smart, none, or how often, from a minute to ten years, as in \
     batched:1w"
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
                .filter(|interval| (LEAST_INTERVAL..=LONGEST).contains(interval))
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

/// How often a file system is trimmed that tells of nothing it frees; as often as `fstrim.timer` does.
pub(super) const WEEK: Duration = Duration::from_secs(7 * DAY);
/// A day, in seconds.
const DAY: u64 = 24 * 3600;
/// The shortest interval of whole trims; what trims more often wants `smart`.
const LEAST_INTERVAL: Duration = Duration::from_secs(60);
/// The longest time that can be asked for, which can be added to any that the clock shows.
const LONGEST: Duration = Duration::from_secs(3653 * DAY);

/// What is said of some file systems; what isn't holds as it is said of all, or by default.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
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
}

/// What is said of a drive.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct DriveRules {
    profile: String,
}

/// Where metrics are served.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Metrics {
    #[serde(default, deserialize_with = "loopback")]
    address: Option<SocketAddr>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    metrics: Metrics,
    #[serde(default)]
    defaults: Rules,
    #[serde(default)]
    mount: BTreeMap<PathBuf, Rules>,
    #[serde(default)]
    drive: BTreeMap<PathBuf, DriveRules>,
}

/// What the service was told to do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    document: Document,
    profiles: BTreeMap<String, Profile>,
}

/// How one file system is to be tended.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The policy that was asked for; none where nobody said anything.
    pub policy: Option<ServicePolicy>,
    /// Whether the policy was asked for of just this mount, and not of all.
    pub is_by_name: bool,
    /// What trims may cost others, and how long they may wait.
    pub goals: Goals,
    /// The profile of its drive; none where nobody named one.
    pub profile: Option<Profile>,
}

impl Config {
    /// Reads the file at `path`, or else [`CONFIG`]; none where that isn't there, as it needn't be.
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
        let text = read_regular_text(path, MOST).map_err(|source| match source.kind() {
            io::ErrorKind::FileTooLarge => ConfigError::TooLarge { path: path.to_owned() },
            _ => ConfigError::Read { path: path.to_owned(), source },
        })?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Reads a configuration from the text of the file `origin`, and the profiles that it names.
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
                let message = "a mount point or a device is named by its whole path".to_owned();
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

    /// Where metrics are served; none where they aren't.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.document.metrics.address
    }

    /// The mount points it speaks of at which no file system on a block device is mounted on `machine` now.
    ///
    /// # Errors
    /// [`StackError`].
    pub fn not_mounted(&self, machine: &Machine) -> Result<Vec<&Path>, StackError> {
        let found = Found::all(machine)?;
        let is_there = |target: &Path| found.iter().any(|found| found.targets.iter().any(|at| at == target));
        Ok(self.document.mount.keys().map(PathBuf::as_path).filter(|target| !is_there(target)).collect())
    }

    /// How the file system mounted at `targets` is to be tended, that is on the disk at the path `drive`.
    /// Of several mount points that are spoken of, the first counts.
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
        }
    }
}

impl Document {
    /// The profiles that are named, each with the field that does.
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

/// The profile that `name` means: a file where it ends in `.toml`, a built-in one otherwise.
fn load(name: &str) -> Result<Profile, ProfileError> {
    if !name.ends_with(".toml") {
        return Profile::named(name);
    }
    let text = read_regular_text(Path::new(name), MOST).map_err(|source| ProfileError::Field {
        origin: name.to_owned(),
        field: "the file".to_owned(),
        message: source.to_string(),
    })?;
    Profile::parse(&text, name)
}

fn parsed<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    String::deserialize(deserializer)?.parse().map(Some).map_err(de::Error::custom)
}

fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match humantime::parse_duration(&text) {
        Ok(span) if !span.is_zero() && span <= LONGEST => Ok(Some(span)),
        _ => Err(de::Error::custom(format!(
            "{text:?} is no time above 0 and up to ten years; write it like 1ms, 30m or 1d"
        ))),
    }
}

fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    match f64::deserialize(deserializer)? {
        share if share > 0.0 && share <= 1.0 => Ok(Some(share)),
        share => {
            Err(de::Error::custom(format!("{share} is no share of the time; write one above 0, at most 1")))
        }
    }
}

fn loopback<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let address: SocketAddr = text.parse().map_err(|_| {
        de::Error::custom(format!("{text:?} is no IP address with a port, as 127.0.0.1:9718 is"))
    })?;
    match address.ip().is_loopback() {
        true => Ok(Some(address)),
        false => Err(de::Error::custom(format!(
            "{address} can be reached from other machines; only loopback addresses are allowed, as \
             127.0.0.1 and [::1] are"
        ))),
    }
}

#[cfg(test)]
mod tests;
