//! The storage below a file system: whether the service manages it, and what discards gain there.

use std::path::{Path, PathBuf};

use trimtab_core::policy::Gain;
use trimtab_core::profile::{Interface, Profile, ProfileError};
use trimtab_core::verdict::Verdict;
use trimtab_core::{Bytes, DiscardUnits};
use trimtab_doctor::JudgedMount;
use trimtab_linux::block::BlockDevice;
use trimtab_linux::stack::{Layer, LayerKind, MapLine, Scsi, Stack, Transport};
use trimtab_linux::trim::loses_data;

use super::config::{ServicePolicy, Settings};
use super::mounts::MountedFileSystem;
use crate::trimmer::units_of;

/// The layers below a file system, and the doctor's verdict on them.
#[derive(Debug, Clone, PartialEq)]
pub struct Storage {
    /// The layers.
    pub stack: Stack,
    /// Whether discards reach the lowest layer.
    pub verdict: Verdict,
    /// The verdict's reason, in a sentence.
    pub reason: String,
}

impl From<JudgedMount> for Storage {
    fn from(JudgedMount { stack, verdict, reason }: JudgedMount) -> Self {
        Self { stack, verdict, reason }
    }
}

/// Why the service does not trim a file system.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Exclusion {
    #[error("its storage cannot be examined: {0}")]
    Unknown(String),
    #[error("the configuration says none")]
    Configured,
    #[error(
        "its line in /etc/fstab has X-fstrim.notrim; to trim it all the same, give it a policy of its own in the configuration"
    )]
    Excluded,
    #[error("it is mounted read-only")]
    ReadOnly,
    #[error("it discards by itself: mounted with {0}")]
    ByItself(String),
    #[error("F2FS discards by itself")]
    F2fs,
    #[error("discards are blocked: {0}")]
    Blocked(String),
    #[error(
        "{0} is a rotating disk; to trim it all the same, give it a policy of its own in the configuration"
    )]
    Rotating(String),
    #[error(
        "{0} is behind a USB bridge: prove with trimtab doctor --canary {1} that discards arrive, then give \
         {1} a policy of its own in the configuration"
    )]
    Bridge(String, String),
    #[error(
        "a program serves it, and an unmount has to wait until its trim of all free space is over; to have it trimmed, give it a \
         policy of its own in the configuration"
    )]
    Served,
    #[error("its FITRIM discards data that is in use")]
    LosesData,
    #[error("it takes no discards")]
    Unsupported,
}

impl Exclusion {
    /// Its kind, as status and metrics name it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "unknown_storage",
            Self::Configured => "configured",
            Self::Excluded => "excluded",
            Self::ReadOnly => "read_only",
            Self::ByItself(_) | Self::F2fs => "discards_by_itself",
            Self::Blocked(_) => "blocked",
            Self::Rotating(_) => "rotating",
            Self::Bridge(..) => "usb_bridge",
            Self::Served => "served",
            Self::LosesData => "loses_data",
            Self::Unsupported => "unsupported",
        }
    }
}

impl Storage {
    /// Storage that could not be examined, for this reason.
    pub fn unknown(reason: String) -> Self {
        Self { stack: Stack { layers: Vec::new() }, verdict: Verdict::Unknown, reason }
    }

    /// Returns the devices directly below the file system.
    pub fn devices(&self, sysfs: &Path) -> Vec<BlockDevice> {
        let below = self.stack.layers.first().into_iter().flat_map(|top| &top.below);
        let numbers = below.filter_map(|below| self.stack.layers[below.layer].number);
        numbers.filter_map(|number| BlockDevice::numbered(sysfs, number)).collect()
    }

    /// Returns the path of the lowest disk; the first one if there are several.
    pub fn disk(&self) -> Option<PathBuf> {
        self.bottom().next().map(|layer| layer.path().into())
    }

    /// Returns the identity of the one drive below the file system; `None` if there are several, or if it reports
    /// none.
    pub fn drive(&self, sysfs: &Path) -> Option<String> {
        let mut disks = self.bottom();
        let (Some(disk), None) = (disks.next(), disks.next()) else { return None };
        BlockDevice::numbered(sysfs, disk.number?)?.hardware_identity()
    }

    /// Returns whether discards reach a thin pool or VDO, which gives the space to other volumes, whatever becomes of discards
    /// below it.
    fn takes_space_back(&self) -> bool {
        self.stack.layers.first().is_some_and(|top| self.gives_all_to_a_pool(top))
    }

    fn gives_all_to_a_pool(&self, layer: &Layer) -> bool {
        let takes = |layer: &Layer| layer.limits.is_some_and(|limits| limits.max > Bytes::ZERO);
        let is_given = |layer: &Layer| {
            takes(layer) && (is_of_pool(layer) || (passes_on(layer) && self.gives_all_to_a_pool(layer)))
        };
        let mut below = layer.below.iter().map(|below| &self.stack.layers[below.layer]).peekable();
        below.peek().is_some() && below.all(is_given)
    }

    /// Returns the lowest layers.
    fn bottom(&self) -> impl Iterator<Item = &Layer> {
        self.stack.layers.iter().filter(|layer| layer.below.is_empty() && layer.number.is_some())
    }

    /// Returns what discards gain there: space if a layer is thinly provisioned.
    pub fn gain(&self) -> Gain {
        let chunk = self
            .stack
            .layers
            .iter()
            .filter(|layer| is_thin(layer))
            .map(|layer| layer.limits.map_or(Bytes::ZERO, |limits| limits.granularity).max(MIN_CHUNK));
        chunk.max().map_or(Gain::Copies, |chunk| Gain::Space { chunk })
    }

    /// Returns true if a layer frees only units that are larger than much of what a file system frees at once. Discards that a file
    /// system sends by itself as it frees are lost there.
    pub fn drops_parts(&self) -> bool {
        let is_coarse = |layer: &Layer| layer.limits.is_some_and(|limits| limits.granularity >= MIN_CHUNK);
        self.stack.layers.iter().any(|layer| is_thin(layer) && is_coarse(layer))
    }

    /// Returns the units in which its storage gives back space, in the addresses of an ext4 or XFS; any byte is one of a btrfs, whose
    /// addresses are others, and where it says no size of its own.
    pub fn units(&self, sysfs: &Path) -> DiscardUnits {
        let is_btrfs =
            |layer: &Layer| matches!(&layer.kind, LayerKind::FileSystem(found) if found.fstype == "btrfs");
        let units = units_of(&self.devices(sysfs));
        if units.size() < MIN_CHUNK || self.stack.layers.first().is_some_and(is_btrfs) {
            return DiscardUnits::default();
        }
        units
    }

    /// Returns the built-in profile for this kind of drive.
    ///
    /// # Errors
    /// [`ProfileError`] if that is not valid; a test rules this out.
    pub fn usual_profile(&self) -> Result<Profile, ProfileError> {
        let is = |wanted: fn(&LayerKind) -> bool| self.bottom().any(|layer| wanted(&layer.kind));
        let interface = if is(|kind| matches!(kind, LayerKind::Mmc)) {
            Interface::Emmc
        } else if is(|kind| matches!(kind, LayerKind::Scsi(_))) {
            Interface::Sata
        } else {
            Interface::Nvme
        };
        Profile::named(interface.usual_profile())
    }
}

/// The smallest chunk of thinly provisioned storage: dm-thin's.
const MIN_CHUNK: Bytes = Bytes(64 << 10);

/// Returns whether a layer allocates space on write and frees it on discard.
fn is_thin(layer: &Layer) -> bool {
    match &layer.kind {
        LayerKind::VirtioBlk
        | LayerKind::Nbd
        | LayerKind::Scsi(Scsi { transport: Transport::Virtio, .. }) => true,
        LayerKind::Scsi(Scsi { transport: Transport::Other(_), thin_provisioning, .. }) => {
            *thin_provisioning == Some(true)
        }
        LayerKind::DeviceMapper(table) => {
            table.iter().any(|line| matches!(line.target.as_str(), "thin" | "vdo"))
        }
        _ => false,
    }
}

/// Returns whether a layer is a volume of a thin pool or VDO.
fn is_of_pool(layer: &Layer) -> bool {
    matches!(layer.kind, LayerKind::DeviceMapper(_)) && is_thin(layer)
}

/// Returns whether a layer that takes discards hands all of them on.
fn passes_on(layer: &Layer) -> bool {
    match &layer.kind {
        LayerKind::Partition => true,
        LayerKind::DeviceMapper(table) => {
            let passes = |line: &MapLine| matches!(line.target.as_str(), "linear" | "striped" | "crypt");
            !table.is_empty() && table.iter().all(passes)
        }
        _ => false,
    }
}

/// Returns whether a layer is a physical rotating disk; virtual disks often claim to rotate.
fn is_rotating_disk(layer: &Layer) -> bool {
    let is_disk = match &layer.kind {
        LayerKind::Scsi(Scsi { transport: Transport::Virtio, .. }) => false,
        LayerKind::Scsi(Scsi { transport: Transport::Other(_), thin_provisioning, .. }) => {
            *thin_provisioning != Some(true)
        }
        kind => matches!(kind, LayerKind::Scsi(_)),
    };
    // One that offers discards allocates space as needed, or writes in zones that it cleans by itself.
    is_disk && layer.rotational && layer.limits.is_none_or(|limits| limits.max == Bytes::ZERO)
}

/// Returns the policy of a file system, and why it is excluded, if it is. A policy configured for just this
/// mount overrides the exclusions that are only a default.
pub(super) fn decide(
    found: &MountedFileSystem,
    storage: &Storage,
    settings: &Settings,
) -> (ServicePolicy, Option<Exclusion>) {
    let policy = settings.policy.unwrap_or(ServicePolicy::Smart);
    let layer = |is_it: fn(&Layer) -> bool| storage.bottom().find(|layer| is_it(layer));
    let is_usb =
        |layer: &Layer| matches!(&layer.kind, LayerKind::Scsi(Scsi { transport: Transport::Usb { .. }, .. }));
    let off = if policy == ServicePolicy::None {
        Some(Exclusion::Configured)
    } else if found.is_read_only() {
        Some(Exclusion::ReadOnly)
    } else if storage.stack.layers.is_empty() {
        Some(Exclusion::Unknown(storage.reason.clone()))
    } else if storage.verdict == Verdict::Blocked && !storage.takes_space_back() {
        Some(Exclusion::Blocked(storage.reason.clone()))
    } else if loses_data(&found.mount.fstype) {
        Some(Exclusion::LosesData)
    } else if settings.is_by_name {
        None
    } else if found.is_excluded {
        Some(Exclusion::Excluded)
    } else if found.discards_by_itself() && (found.mount.fstype == "f2fs" || !storage.drops_parts()) {
        let options = found.mount.super_options.split(',');
        Some(Exclusion::ByItself(options.filter(|option| option.starts_with("discard")).collect()))
    } else if found.mount.fstype == "f2fs" {
        Some(Exclusion::F2fs)
    } else if found.mount.fstype == "fuseblk" {
        Some(Exclusion::Served)
    } else if let Some(disk) = layer(is_rotating_disk).filter(|_| !storage.takes_space_back()) {
        Some(Exclusion::Rotating(disk.path()))
    } else {
        layer(is_usb).map(|disk| Exclusion::Bridge(disk.path(), found.mount.target.display().to_string()))
    };
    (policy, off)
}

#[cfg(test)]
mod tests {
    use trimtab_core::Extent;
    use trimtab_core::device::{Announced, Limits};
    use trimtab_linux::stack::{Below, FileSystem};

    use super::super::config::Config;
    use super::super::mounts::tests::found;
    use super::*;

    fn scsi(transport: Transport) -> LayerKind {
        LayerKind::Scsi(Scsi { transport, provisioning_mode: None, thin_provisioning: None })
    }

    fn storage(kind: LayerKind, rotational: bool, verdict: Verdict) -> Storage {
        let layer = |name: &str, kind, below| Layer {
            name: name.to_owned(),
            label: None,
            kind,
            subsystem: None,
            fabric: None,
            number: Some("8:0".parse().unwrap()),
            size: None,
            limits: None,
            announced: Announced::default(),
            rotational,
            zoned: false,
            read_only: false,
            below,
        };
        let below = vec![Below { layer: 1, start: None }];
        let file_system = LayerKind::FileSystem(FileSystem {
            fstype: "ext4".to_owned(),
            targets: Vec::new(),
            writable: Vec::new(),
            source: PathBuf::new(),
            options: String::new(),
            undiscarded: Vec::new(),
        });
        let top = Layer { number: None, ..layer("/a", file_system, below) };
        let stack = Stack { layers: vec![top, layer("sda", kind, Vec::new())] };
        Storage { stack, verdict, reason: "why".to_owned() }
    }

    /// Returns the exclusion of a mount with these options, by default and with a policy of its own.
    fn decided(options: &str, storage: &Storage) -> [Option<Exclusion>; 2] {
        let own = Config::parse("[mount.\"/a\"]\npolicy = \"smart\"", "t").unwrap();
        [Config::default(), own].map(|config| {
            let found = found("/a", "8:1", &[1], options);
            decide(&found, storage, &config.settings(&found.targets, None)).1
        })
    }

    #[test]
    fn doubtful_storage_is_excluded_unless_configured_by_name() {
        let ata = || scsi(Transport::Ata { trim: None });
        let usb = || scsi(Transport::Usb { driver: "uas".to_owned(), ids: None });
        let reaches = |kind, rotational| storage(kind, rotational, Verdict::Reaches);
        assert_eq!(decided("rw", &reaches(ata(), false)), [None, None]);
        assert_eq!(
            decided("rw", &reaches(ata(), true)),
            [Some(Exclusion::Rotating("/dev/sda".to_owned())), None]
        );
        // A disk of a host, or one with shingled tracks, that takes discards.
        let mut offers = reaches(ata(), true);
        offers.stack.layers[1].limits = Some(Limits {
            max: Bytes::GIB,
            max_hardware: Bytes::GIB,
            granularity: Bytes(512),
            alignment: Bytes::ZERO,
            segments: None,
            write_zeroes_max: Bytes::ZERO,
        });
        assert_eq!(decided("rw", &offers), [None, None]);
        // Virtual disks call themselves rotating.
        assert_eq!(decided("rw", &reaches(scsi(Transport::Virtio), true)), [None, None]);
        assert_eq!(decided("rw", &reaches(LayerKind::VirtioBlk, true)), [None, None]);
        let bridge = Exclusion::Bridge("/dev/sda".to_owned(), "/a".to_owned());
        assert_eq!(decided("rw", &reaches(usb(), false)), [Some(bridge), None]);
        let by_itself = Exclusion::ByItself("discard=async".to_owned());
        assert_eq!(decided("rw,discard=async", &reaches(ata(), false)), [Some(by_itself), None]);
    }

    #[test]
    fn file_system_that_discards_by_itself_is_trimmed_above_large_chunks() {
        let above = |granularity| {
            let mut storage = storage(LayerKind::VirtioBlk, false, Verdict::Reaches);
            storage.stack.layers[1].limits = Some(Limits {
                max: Bytes::GIB,
                max_hardware: Bytes::GIB,
                granularity,
                alignment: Bytes::ZERO,
                segments: None,
                write_zeroes_max: Bytes::ZERO,
            });
            storage
        };
        assert_eq!(decided("rw,discard", &above(MIN_CHUNK)), [None, None]);
        let by_itself = Some(Exclusion::ByItself("discard".to_owned()));
        assert_eq!(decided("rw,discard", &above(Bytes(4096))), [by_itself, None]);
    }

    #[test]
    fn fstab_excludes_unless_configured_by_name() {
        let storage = storage(LayerKind::Nvme, false, Verdict::Reaches);
        let own = Config::parse("[mount.\"/a\"]\npolicy = \"smart\"", "t").unwrap();
        let mut found = found("/a", "8:1", &[1], "rw");
        found.is_excluded = true;
        let off = [Config::default(), own]
            .map(|config| decide(&found, &storage, &config.settings(&found.targets, None)).1);
        assert_eq!(off, [Some(Exclusion::Excluded), None]);
    }

    #[test]
    fn configuration_cannot_override_blocked_or_read_only() {
        let blocked = storage(LayerKind::Nvme, false, Verdict::Blocked);
        let why = Some(Exclusion::Blocked("why".to_owned()));
        assert_eq!(decided("rw", &blocked), [why.clone(), why]);
        let unknown = storage(LayerKind::Nvme, false, Verdict::Unknown);
        assert_eq!(decided("ro", &unknown), [Some(Exclusion::ReadOnly), Some(Exclusion::ReadOnly)]);
        let none = Config::parse("[defaults]\npolicy = \"none\"", "t").unwrap();
        let found = found("/a", "8:1", &[1], "rw");
        let (policy, off) = decide(&found, &unknown, &none.settings(&found.targets, None));
        assert_eq!((policy, off), (ServicePolicy::None, Some(Exclusion::Configured)));
    }

    /// Of a volume whose pool hands nothing on, or whose drive takes nothing, fstrim still gives space to the pool.
    #[test]
    fn blocked_storage_that_takes_space_back_is_trimmed() {
        let on = |kind, max| {
            let mut storage = storage(kind, true, Verdict::Blocked);
            let limits = Limits {
                max: Bytes(max),
                max_hardware: Bytes(max),
                granularity: Bytes(4096),
                alignment: Bytes::ZERO,
                segments: None,
                write_zeroes_max: Bytes::ZERO,
            };
            storage.stack.layers[1].limits = Some(limits);
            storage.stack.layers[1].below = vec![Below { layer: 2, start: None }];
            let disk = Layer {
                name: "sdb".to_owned(),
                limits: None,
                below: Vec::new(),
                ..storage.stack.layers[1].clone()
            };
            storage.stack.layers.push(Layer { kind: scsi(Transport::Ata { trim: None }), ..disk });
            storage
        };
        let table = |target: &str| {
            let extent = Extent::at(Bytes::ZERO, Bytes::GIB);
            LayerKind::DeviceMapper(vec![MapLine {
                extent,
                target: target.to_owned(),
                parameters: String::new(),
            }])
        };
        for kind in [table("thin"), table("vdo")] {
            assert_eq!(decided("rw", &on(kind.clone(), 1 << 30)), [None, None], "{kind:?}");
            let why = Some(Exclusion::Blocked("why".to_owned()));
            assert_eq!(
                decided("rw", &on(kind.clone(), 0)),
                [why.clone(), why],
                "it takes none itself: {kind:?}"
            );
        }
        let why = || Some(Exclusion::Blocked("why".to_owned()));
        // The image of a loop device may have been allocated on purpose.
        for kind in [table("snapshot"), LayerKind::Loop { file: PathBuf::from("/image") }] {
            assert_eq!(decided("rw", &on(kind.clone(), 1 << 30)), [why(), why()], "{kind:?}");
        }
        // A volume of a pool below another layer.
        let above = |kind| {
            let mut storage = on(table("thin"), 1 << 30);
            let upper = Layer { name: "dm-1".to_owned(), kind, ..storage.stack.layers[1].clone() };
            storage.stack.layers.insert(1, upper);
            storage.stack.layers[2].below[0].layer = 3;
            storage
        };
        assert_eq!(decided("rw", &above(table("crypt"))), [None, None]);
        assert_eq!(decided("rw", &above(table("cache"))), [why(), why()], "it may keep discards");
    }

    #[test]
    fn file_system_whose_trims_lose_data_is_left_alone_in_any_case() {
        let storage = storage(LayerKind::Nvme, false, Verdict::Reaches);
        let own = Config::parse("[mount.\"/a\"]\npolicy = \"smart\"", "t").unwrap();
        for fstype in ["ntfs3", "ntfs"] {
            let mut found = found("/a", "8:1", &[1], "rw,discard");
            found.mount.fstype = fstype.to_owned();
            for config in [&Config::default(), &own] {
                let (_, off) = decide(&found, &storage, &config.settings(&found.targets, None));
                assert_eq!(off, Some(Exclusion::LosesData), "{fstype}");
            }
        }
    }

    #[test]
    fn file_system_that_a_program_serves_is_left_alone_unless_configured_by_name() {
        let storage = storage(LayerKind::Nvme, false, Verdict::Reaches);
        let own = Config::parse("[mount.\"/a\"]\npolicy = \"smart\"", "t").unwrap();
        let mut found = found("/a", "8:1", &[1], "rw");
        found.mount.fstype = "fuseblk".to_owned();
        let off = [Config::default(), own]
            .map(|config| decide(&found, &storage, &config.settings(&found.targets, None)).1);
        assert_eq!(off, [Some(Exclusion::Served), None]);
    }

    #[test]
    fn thin_storage_gains_space() {
        let gain = |kind| storage(kind, false, Verdict::Reaches).gain();
        assert_eq!(gain(LayerKind::VirtioBlk), Gain::Space { chunk: MIN_CHUNK });
        assert_eq!(gain(LayerKind::Nvme), Gain::Copies);
        for kind in [LayerKind::Mmc, LayerKind::Nvme, LayerKind::VirtioBlk, scsi(Transport::Virtio)] {
            storage(kind, false, Verdict::Reaches).usual_profile().unwrap();
        }
    }
}
