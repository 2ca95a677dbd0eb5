//! The kernel's own counters: discards that btrfs sends by itself, and how full thin pools are. All that is
//! known of a machine where no service runs.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use trimtab_core::Bytes;
use trimtab_core::document::status::{BtrfsDiscards, FileSystemStatus, State, ThinPoolStatus};
use trimtab_core::document::{STATUS_SCHEMA, StatusDocument};
use trimtab_core::error::chain;
use trimtab_doctor::verdict_on;
use trimtab_linux::block::DeviceNumber;
use trimtab_linux::btrfs::{self, OwnDiscards};
use trimtab_linux::stack::{Layer, LayerKind, Machine, MapLine, StackError};
use trimtab_linux::thin_pool::PoolUsage;

use super::config::{Config, ServicePolicy};
use super::mounts::MountedFileSystem;
use super::storage::{Storage, decide};
use super::timeout::with_timeout;

/// The kind of the reason why file systems are off where no service runs.
const NO_SERVICE: &str = "no_service";

/// Returns the discards that the btrfs with this directory in sysfs sends by itself.
pub(super) fn own_discards(directory: &Path) -> Option<BtrfsDiscards> {
    let own = OwnDiscards::read(directory)?;
    Some(BtrfsDiscards {
        discardable: own.discardable,
        discardable_extents: own.discardable_extents,
        discarded_extents: own.discarded_extents,
        discarded_bitmaps: own.discarded_bitmaps,
        saved: own.saved,
    })
}

/// Returns the directory in `sysfs` of a btrfs; none for other file systems.
pub(super) fn btrfs_directory(sysfs: &Path, found: &MountedFileSystem) -> Option<PathBuf> {
    (found.mount.fstype == "btrfs").then(|| btrfs::directory_of(sysfs, &found.mount))?
}

/// A thin pool that file systems lie on.
#[derive(Debug, Clone)]
pub(super) struct ThinPool {
    number: DeviceNumber,
    device: String,
    name: String,
    table: Vec<MapLine>,
}

impl ThinPool {
    /// Returns those among the layers of `storages`, each once.
    pub fn below<'a>(storages: impl IntoIterator<Item = &'a Storage>) -> Vec<Self> {
        let mut pools: Vec<Self> = Vec::new();
        for pool in storages.into_iter().flat_map(|storage| &storage.stack.layers).filter_map(Self::of) {
            if pools.iter().all(|known| known.number != pool.number) {
                pools.push(pool);
            }
        }
        pools
    }

    fn of(layer: &Layer) -> Option<Self> {
        let LayerKind::DeviceMapper(table) = &layer.kind else { return None };
        table.iter().any(|line| line.target == "thin-pool").then_some(())?;
        let label = layer.label.as_deref().unwrap_or_default();
        // LVM's volume of the pool lies on one of that name.
        let name = label.strip_suffix("-tpool").unwrap_or(label).to_owned();
        Some(Self { number: layer.number?, device: layer.path(), name, table: table.clone() })
    }

    /// Asks the kernel how full it is; `None` if it doesn't say.
    pub fn status(&self) -> Option<ThinPoolStatus> {
        let usage = PoolUsage::read(self.number, &self.table)?;
        Some(ThinPoolStatus {
            device: self.device.clone(),
            name: self.name.clone(),
            used: usage.used,
            size: usage.size,
            metadata_used: usage.metadata_used,
            metadata_size: usage.metadata_size,
        })
    }
}

/// Examines the mounted file systems of this machine, on which no service runs: whether a service would leave
/// them alone by `config`, and what the kernel itself counts. All are off.
///
/// # Errors
/// [`StackError`] if the mounts can't be read.
pub fn survey(config: &Config) -> Result<StatusDocument, StackError> {
    let machine = Machine::live();
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let found = MountedFileSystem::all(&machine)?;
    let storages: Vec<_> = found.iter().map(storage).collect();
    let examined = found.iter().zip(&storages);
    let pools = ThinPool::below(&storages);
    let asked = with_timeout(move || pools.iter().filter_map(ThinPool::status).collect());
    Ok(StatusDocument {
        schema: STATUS_SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: 0,
        started: now.clone(),
        at: now,
        frees_unavailable: None,
        lost_events: 0,
        file_systems: examined.map(|(found, storage)| of(&machine, config, found, storage)).collect(),
        pools: asked.unwrap_or_default(),
    })
}

/// Examines the storage below a file system.
fn storage(found: &MountedFileSystem) -> Storage {
    let mount = found.mount.clone();
    match with_timeout(move || verdict_on(mount)) {
        Ok(Ok(judged)) => judged.into(),
        Ok(Err(error)) => Storage::unknown(chain(&error)),
        Err(no_answer) => Storage::unknown(no_answer.to_string()),
    }
}

/// Returns the status of a file system where no service runs.
fn of(machine: &Machine, config: &Config, found: &MountedFileSystem, storage: &Storage) -> FileSystemStatus {
    let settings = config.settings(&found.targets, storage.disk().as_deref());
    let (policy, excluded) = decide(found, storage, &settings);
    let kind = excluded.as_ref().map_or(NO_SERVICE, |exclusion| exclusion.kind());
    let reason = excluded.map_or_else(|| "no service runs".to_owned(), |exclusion| exclusion.to_string());
    unmanaged(machine, found, policy, kind, reason)
}

/// Returns the status of a file system that no service manages, with the kind of the reason and the reason.
pub(super) fn unmanaged(
    machine: &Machine,
    found: &MountedFileSystem,
    policy: ServicePolicy,
    kind: &str,
    reason: String,
) -> FileSystemStatus {
    FileSystemStatus {
        mount: found.mount.target.display().to_string(),
        device: found.mount.source.display().to_string(),
        fs: found.mount.fstype.clone(),
        policy: policy.to_string(),
        state: State::Off,
        reason: Some(reason),
        unmanaged: Some(kind.to_owned()),
        unread: false,
        pending: Bytes::ZERO,
        pending_extents: 0,
        oldest_s: None,
        max_age_s: None,
        last_trim: None,
        trimmed: Bytes::ZERO,
        discards: 0,
        trim_s: 0.0,
        refusals: [].into(),
        latency_added_s: 0.0,
        decision: None,
        btrfs: btrfs_directory(&machine.sysfs(), found).and_then(|directory| own_discards(&directory)),
        untrimmed: found.realtime_device().map(str::to_owned),
        uncounted: Vec::new(),
    }
}
