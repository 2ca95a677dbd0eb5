//! Drive profiles: how a drive behaves, as a TOML file whose every number has a source. Quantities are written with their
//! unit; a bare number is of bytes, nanoseconds or bytes a second.
//!
//! `bench` writes a profile, the flash model behaves by it, the pacer and the dry run predict from
//! it. The profiles that come with trimtab are listed by [`builtin`].

mod aging;
mod bound;
mod idle;
mod limits;
mod map_cache;
mod slc;
mod suspend;
#[cfg(test)]
mod tests;
mod wear;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::units::{Bytes, Nanos, Rate};
pub use aging::Aging;
pub use idle::Idle;
pub use limits::LARGEST_GRANULARITY;
pub use map_cache::MapCache;
pub use slc::Slc;
pub use suspend::Suspend;
pub use wear::Wear;

/// A value and where it comes from: an article, a datasheet, a measurement, "calibrated to" the figure that
/// it was fitted to, or "assumed" with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table like { value = ..., source = \"...\" }")]
pub struct Sourced<T> {
    /// The value, with its unit where it has one.
    pub value: T,
    /// Where it comes from; never empty.
    #[serde(deserialize_with = "named_source")]
    pub source: String,
}

fn named_source<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let source = String::deserialize(deserializer)?;
    if source.trim().is_empty() {
        return Err(de::Error::custom("must say where the value comes from"));
    }
    if is_calibrated_to_nothing(&source) {
        let reason = "must name the figure that the value was fitted to, as in \"calibrated to 310 MB/s of the data sheet\"";
        return Err(de::Error::custom(reason));
    }
    Ok(source)
}

/// Whether a source says "calibrated" without the figure that the value was fitted to, as in "calibrated to 310 MB/s" and
/// "calibrated, with range, to the 71 us of ...".
fn is_calibrated_to_nothing(source: &str) -> bool {
    let Some((_, fitted)) = source.split_once("calibrated") else { return false };
    let target = match fitted.strip_prefix(", with ") {
        Some(others) => others.split_once(", to ").map(|(_, target)| target),
        None => fitted.strip_prefix(" to "),
    };
    !target.is_some_and(|target| target.contains(|c: char| c.is_ascii_digit()))
}

/// How a drive behaves.
///
/// ```
/// use trimtab_core::Bytes;
/// use trimtab_core::profile::{self, Profile};
///
/// let profile = Profile::named("samsung-870-evo")?;
/// assert_eq!(profile.geometry.mapping_page.value, Bytes::KIB * 4);
/// assert!(!profile.geometry.mapping_page.source.is_empty(), "every number says where it comes from");
///
/// // A profile of one's own is the text of a TOML file; errors name the file and the field.
/// let text = profile::builtin_text("samsung-870-evo")?.replace("samsung-870-evo", "mine");
/// assert_eq!(Profile::parse(&text, "mine.toml")?.name, "mine");
/// assert!(Profile::parse("name = 7", "mine.toml").unwrap_err().to_string().starts_with("mine.toml"));
/// # Ok::<(), profile::ProfileError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name users give it: letters, digits and dashes.
    pub name: String,
    /// The drive it describes.
    pub model: String,
    /// Notes that a reader should know before trusting it.
    pub notes: String,
    /// How it is attached; none where the profile doesn't say, as one measured by a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<Interface>,
    /// How its flash is laid out.
    pub geometry: Geometry,
    /// How long things take.
    pub timing: Timing,
    /// How it reclaims space.
    pub gc: Gc,
    /// Its work while no command is under way; without it, nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
    /// The cache of flash that holds one bit in each cell; without it, the drive has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slc: Option<Slc>,
    /// The part of the map that is in memory; without it, all of the map is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map_cache: Option<MapCache>,
    /// How reads go before programs and erases; without it, they wait for what their die has to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<Suspend>,
    /// How a used drive was aged; without it, a used drive was filled in sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aging: Option<Aging>,
    /// Its behaviour with discards.
    pub discard: Discard,
    /// How its flash wears out; without it, never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wear: Option<Wear>,
}

/// How a drive is attached to its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interface {
    /// Serial ATA, and SCSI disks of other kinds (UFS, USB).
    #[default]
    Sata,
    /// NVM Express.
    Nvme,
    /// An embedded MultiMediaCard, or an SD card.
    Emmc,
}

impl Interface {
    /// The name that profiles use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sata => "sata",
            Self::Nvme => "nvme",
            Self::Emmc => "emmc",
        }
    }

    /// The name of the built-in profile that stands for an unknown drive of this interface.
    pub const fn usual_profile(self) -> &'static str {
        match self {
            Self::Sata => "micron-m500it",
            Self::Nvme => "nvme-tlc",
            Self::Emmc => "micron-emmc",
        }
    }
}

/// How a drive's flash is laid out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Geometry {
    /// The bytes that the whole drive offers; none where the profile does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Sourced<Bytes>>,
    /// The mapping unit of the translation layer.
    pub mapping_page: Sourced<Bytes>,
    /// The bytes that one program operation writes on one die (all planes): whole mapping pages.
    pub program_unit: Sourced<Bytes>,
    /// The bytes that the translation layer erases and fills as one: an erase block striped over all dies.
    pub erase_block: Sourced<Bytes>,
    /// Over-provisioning, (physical - logical) / logical, as a fraction: 0.07 is 7 %. Physical is the flash that
    /// data can be in; reserve and open blocks are beside it.
    pub over_provisioning: Sourced<f64>,
    /// Erase blocks kept free for garbage collection to write into, beside `over_provisioning`.
    pub reserve_blocks: Sourced<u32>,
    /// Channels that transfer in parallel.
    pub channels: Sourced<u32>,
    /// Dies on each channel, which program, read and erase in parallel.
    pub dies_per_channel: Sourced<u32>,
}

/// How long a drive's operations take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// Reading up to one program unit from a die's cells.
    pub read: Sourced<Nanos>,
    /// Programming one program unit on a die.
    pub program: Sourced<Nanos>,
    /// Erasing an erase block; its dies erase their parts at the same time.
    pub erase: Sourced<Nanos>,
    /// A channel's transfer rate between controller and dies.
    pub channel_rate: Sourced<Rate>,
    /// The host link's rate for reads.
    pub link_read_rate: Sourced<Rate>,
    /// The host link's rate for writes.
    pub link_write_rate: Sourced<Rate>,
    /// The time that the controller spends on every command before anything else.
    pub command_overhead: Sourced<Nanos>,
    /// The time of a flush once all buffered data is on flash.
    pub flush: Sourced<Nanos>,
    /// The write buffer: a write is done when it is in here.
    pub write_buffer: Sourced<Bytes>,
    /// How many commands the host keeps in flight.
    pub queue_depth: Sourced<u32>,
}

/// How a drive reclaims space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gc {
    /// The policy that chooses the erase block to clean next.
    pub policy: Sourced<GcPolicy>,
}

/// The behaviour of a drive with discards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Discard {
    /// The time of every discard command as the host sees it, also of one that does nothing; it includes
    /// the controller's `command_overhead`.
    pub command: Sourced<Nanos>,
    /// The time that every range in it adds; see `range_limit`.
    pub range: Sourced<Nanos>,
    /// The time that every GiB named in it adds.
    pub per_gib: Sourced<Nanos>,
    /// The most one range can name: a longer discard is carried as several ranges.
    pub range_limit: Sourced<Bytes>,
    /// The most one command can name: the kernel splits longer discards.
    pub command_limit: Sourced<Bytes>,
    /// The granularity it tells the host.
    pub advertised_granularity: Sourced<Bytes>,
    /// The granularity it really honours: only whole aligned grains are unmapped. Smaller pieces
    /// cost their time and do nothing.
    pub honoured_granularity: Sourced<Bytes>,
    /// Whether other commands may be in flight beside a discard. A discard that isn't queued waits
    /// for all commands in flight and holds the next ones back (ATA TRIM without NCQ).
    pub queued: Sourced<bool>,
    /// Mapping journal that every honoured range adds; it is programmed page by page and wears
    /// the flash.
    pub journal_per_range: Sourced<Bytes>,
    /// The data that a discarded range reads as.
    pub reads: Sourced<DiscardedReads>,
    /// Where every n-th discard takes its time and does nothing: n. A drive that honours them all
    /// leaves it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored_every: Option<Sourced<u32>>,
    /// The time that every GiB adds that had data and was unmapped. A drive to which data make no difference
    /// leaves it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_mapped_gib: Option<Sourced<Nanos>>,
    /// The share of every die that the drive takes to do what `per_gib` and `per_mapped_gib` say after the
    /// command has returned: 0.25 is a quarter, which stretches the work to four times as long. A drive that
    /// does all before the command returns leaves it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lazy_share: Option<Sourced<f64>>,
    /// The share of every die that the drive takes while it works on a discard that has not returned: reads and
    /// programs beside it take as much longer. A drive whose discards leave the dies alone leaves it out, and a lazy
    /// one has `lazy_share`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_share: Option<Sourced<f64>>,
    /// The most discards that it works on at once; others wait. A drive that takes one after the other leaves
    /// it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_depth: Option<Sourced<u32>>,
    /// The most extents that one command can name (NVMe: 256): the host merges as many discards that wait at
    /// the same time. A drive whose commands name one leaves it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranges_per_command: Option<Sourced<u32>>,
}

/// The data that a discarded range reads as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiscardedReads {
    /// Zeros (ATA RZAT, NVMe DLFEAT 1).
    Zeros,
    /// The data that was there before.
    Old,
    /// Something else at every read.
    Garbage,
    /// The data of another address, which no drive may do (T13 forbids it).
    Other,
}

/// How garbage collection picks its victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum GcPolicy {
    /// The block with the fewest valid pages.
    Greedy,
    /// The block that was filled first.
    Fifo,
    /// The block with the fewest valid pages among `d` drawn at random: 1 to
    /// [`MOST_CHOICES`](Self::MOST_CHOICES).
    DChoices(u32),
    /// The block with the best (free space gained x age) / cost ratio, as LFS cleans (Rosenblum
    /// and Ousterhout, "The Design and Implementation of a Log-Structured File System", 1992).
    CostBenefit,
}

/// A garbage-collection policy name that isn't one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no garbage collection {name:?}; there are greedy, fifo, d-choices:D (D from 1 to {most}) and \
     cost-benefit",
    most = GcPolicy::MOST_CHOICES
)]
pub struct UnknownGcPolicy {
    /// The value that was given.
    pub name: String,
}

impl GcPolicy {
    /// The most blocks that d-choices draws for each one it cleans: with this many it cleans as `greedy`
    /// does, and takes long.
    pub const MOST_CHOICES: u32 = 1024;
}

impl FromStr for GcPolicy {
    type Err = UnknownGcPolicy;
    fn from_str(name: &str) -> Result<Self, UnknownGcPolicy> {
        let possible = |d: &u32| (1..=Self::MOST_CHOICES).contains(d);
        let choices = |d: &str| d.parse().ok().filter(possible).map(Self::DChoices);
        match name {
            "greedy" => Some(Self::Greedy),
            "fifo" => Some(Self::Fifo),
            "cost-benefit" => Some(Self::CostBenefit),
            _ => name.strip_prefix("d-choices:").and_then(choices),
        }
        .ok_or_else(|| UnknownGcPolicy { name: name.to_owned() })
    }
}

impl TryFrom<String> for GcPolicy {
    type Error = UnknownGcPolicy;
    fn try_from(name: String) -> Result<Self, UnknownGcPolicy> {
        name.parse()
    }
}

impl fmt::Display for GcPolicy {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Greedy => f.pad("greedy"),
            Self::Fifo => f.pad("fifo"),
            Self::DChoices(d) => f.pad(&format!("d-choices:{d}")),
            Self::CostBenefit => f.pad("cost-benefit"),
        }
    }
}

impl From<GcPolicy> for String {
    fn from(policy: GcPolicy) -> Self {
        policy.to_string()
    }
}

/// Why a profile can't be used; each names the file it was read from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Not TOML at all.
    #[error("{origin}: line {line}: {message}")]
    Syntax {
        /// The file.
        origin: String,
        /// The line of the mistake, from 1.
        line: usize,
        /// The message of the TOML reader.
        message: String,
    },
    /// A field is missing, unknown, or its value can't be read.
    #[error("{origin}: {field}: {message}")]
    Field {
        /// The file.
        origin: String,
        /// The field, dotted.
        field: String,
        /// The reason.
        message: String,
    },
    /// There is no built-in profile of this name.
    #[error(
        "there is no drive profile {name:?}; there are {}; or name a file that ends in .toml",
        builtin_names()
    )]
    Unknown {
        /// The value that was given.
        name: String,
    },
}

const BUILTIN: [(&str, &str); 13] = [
    ("corsair-performance-pro", include_str!("../profiles/corsair-performance-pro.toml")),
    ("crucial-p1", include_str!("../profiles/crucial-p1.toml")),
    ("intel-p4500", include_str!("../profiles/intel-p4500.toml")),
    ("micron-emmc", include_str!("../profiles/micron-emmc.toml")),
    ("micron-m500it", include_str!("../profiles/micron-m500it.toml")),
    ("nvme-tlc", include_str!("../profiles/nvme-tlc.toml")),
    ("ocz-agility-3", include_str!("../profiles/ocz-agility-3.toml")),
    ("ocz-vertex-le", include_str!("../profiles/ocz-vertex-le.toml")),
    ("samsung-870-evo", include_str!("../profiles/samsung-870-evo.toml")),
    ("samsung-980", include_str!("../profiles/samsung-980.toml")),
    ("samsung-eufs-31", include_str!("../profiles/samsung-eufs-31.toml")),
    ("sandisk-extreme-a2", include_str!("../profiles/sandisk-extreme-a2.toml")),
    ("usb-uas-sata", include_str!("../profiles/usb-uas-sata.toml")),
];

fn builtin_names() -> String {
    BUILTIN.map(|(name, _)| name).join(", ")
}

/// The profiles that come with trimtab, in order of name.
///
/// # Errors
/// If one of them is not a valid profile, which a test rules out.
pub fn builtin() -> Result<Vec<Profile>, ProfileError> {
    BUILTIN.iter().map(|(name, text)| Profile::parse(text, &format!("profiles/{name}.toml"))).collect()
}

/// The text of the built-in profile of this name.
///
/// # Errors
/// [`ProfileError::Unknown`] if there is none, listing those there are.
pub fn builtin_text(name: &str) -> Result<&'static str, ProfileError> {
    let found = BUILTIN.iter().find(|(builtin, _)| *builtin == name);
    found.map(|(_, text)| *text).ok_or_else(|| ProfileError::Unknown { name: name.to_owned() })
}

impl Profile {
    /// The built-in profile of this name.
    ///
    /// # Errors
    /// [`ProfileError::Unknown`] if there is none, listing those there are.
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        Self::parse(builtin_text(name)?, &format!("profiles/{name}.toml"))
    }

    /// Reads a profile from the text of the file `origin`.
    ///
    /// # Errors
    /// [`ProfileError::Syntax`] or [`ProfileError::Field`], naming file and field.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ProfileError> {
        let syntax = |error: toml::de::Error| ProfileError::Syntax {
            origin: origin.to_owned(),
            line: text[..error.span().map_or(0, |span| span.start)].matches('\n').count() + 1,
            message: error.message().to_owned(),
        };
        let document = toml::Deserializer::parse(text).map_err(syntax)?;
        let profile: Self = serde_path_to_error::deserialize(document).map_err(|error| {
            let field = match error.path().to_string().as_str() {
                "." => "the profile".to_owned(),
                path => path.to_owned(),
            };
            ProfileError::Field {
                origin: origin.to_owned(),
                field,
                message: error.inner().message().to_owned(),
            }
        })?;
        profile.check(origin)?;
        Ok(profile)
    }

    /// Checks the values to their limits, as [`parse`](Self::parse) does; `origin` is named in the error.
    ///
    /// # Errors
    /// [`ProfileError::Field`].
    pub fn check(&self, origin: &str) -> Result<(), ProfileError> {
        match limits::broken(self) {
            None => Ok(()),
            Some((field, message)) => {
                Err(ProfileError::Field { origin: origin.to_owned(), field: field.to_owned(), message })
            }
        }
    }

    /// The number of dies.
    pub fn dies(&self) -> u32 {
        self.geometry.channels.value * self.geometry.dies_per_channel.value
    }
}
