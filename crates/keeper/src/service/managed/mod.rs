//! A managed file system: its policy, pending extents and statistics.

mod figures;
mod full_trim;
mod lease;
mod removable;
mod schedule;
mod statistics;
mod steered;

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use trimtab_core::document::decisions::{DECISIONS_SCHEMA, DecisionsHead};
use trimtab_core::error::chain;
use trimtab_core::policy::{Goals, LearnedCosts};
use trimtab_core::profile::ProfileError;
use trimtab_core::{Bytes, Extent};
use trimtab_linux::block::BlockDevice;
use trimtab_linux::file_system_kind::FileSystemKind;
use trimtab_linux::stack::StackError;
use trimtab_linux::trim;
use trimtab_linux::trim::TrimError;

use super::config::{Config, ServicePolicy, Settings, WEEK};
use super::context::{Context, WriteError};
use super::early_seal::EarlySeal;
use super::guarded_trimmer::GuardedTrimmer;
use super::mounts::MountedFileSystem;
use super::storage::{Exclusion, Storage, decide};
use super::survey::btrfs_directory;
use super::timeout::{NoAnswer, SingleCall, with_timeout};
use crate::decision_log::DecisionLog;
use crate::policy_driver::{PolicyDriver, Totals};
use crate::trimmer::MountedTrimmer;
use full_trim::FullTrim;
use lease::Lease;
pub(super) use lease::LeaseError;
use removable::Removable;
use schedule::{Failure, FreeSpaceQueryError, Wanted};
pub(super) use schedule::{REFUSALS, RunOutcome};
use statistics::Statistics;
pub(super) use steered::restore_knobs;
use steered::{Steered, SteeringError};

/// Why the service neither trims nor steers a file system.
#[derive(Debug, thiserror::Error)]
pub(super) enum OffReason {
    /// It is excluded by its storage, its mount or the configuration.
    #[error(transparent)]
    Excluded(#[from] Exclusion),
    /// FITRIM fails.
    #[error(transparent)]
    Check(TrimError),
    /// The drive's profile is not valid.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// It discards by itself, and its settings can't be changed.
    #[error("it discards by itself, and can't be steered")]
    Steering(#[from] SteeringError),
}

impl OffReason {
    /// Its kind, as status and metrics name it.
    fn kind(&self) -> &'static str {
        match self {
            Self::Excluded(exclusion) => exclusion.kind(),
            Self::Check(_) => "check_failed",
            Self::Profile(_) => "profile",
            Self::Steering(_) => "not_steerable",
        }
    }
}

/// How long after a refusal FITRIM is not called again while the storage is the same.
const REFUSAL_PAUSE: Duration = Duration::from_secs(60);

/// The examination of a file system's storage, which may still run.
pub(super) type Examination = SingleCall<Result<Storage, StackError>>;

/// A file system that the service manages.
pub(super) struct ManagedFileSystem {
    pub found: MountedFileSystem,
    /// The examination of its storage, which may still run.
    pub examination: Examination,
    /// Its seal of the time when it was mounted, until its storage is known.
    pub early: Option<EarlySeal>,
    context: Rc<Context>,
    /// Its identifier; `None` if it did not answer, or was never trimmed by this service.
    id: Option<String>,
    /// Until when it is left alone after a trim of it was ended.
    held: Duration,
    /// The use of its medium; `None` if that can't be taken out.
    removable: Option<Removable>,
    /// Whether the last trim found it frozen.
    is_frozen: bool,
    /// Until when it is paused.
    paused: Duration,
    /// The command that ends that pause.
    resumption: String,
    /// When a trim was last refused because discards are not supported.
    refused: Duration,
    /// The directory of a btrfs in sysfs.
    btrfs: Option<PathBuf>,
    storage: Storage,
    /// The identity of its drive, under which the costs of discards are kept; `None` if there is none.
    drive: Option<String>,
    /// The costs of discards that were known when its work was last chosen. Kept while the service does not trim it.
    learned: Option<LearnedCosts>,
    settings: Settings,
    policy: ServicePolicy,
    work: Work,
    /// Whether the kernel reports its frees.
    reports_frees: bool,
    /// The query of its free space, which may still run.
    free_space: SingleCall<Result<Vec<Extent>, FreeSpaceQueryError>>,
    /// All free space, if it is to be added to the pending extents.
    wanted: Option<Wanted>,
    /// When all free space may be queried again.
    next_query: Duration,
    /// The last failure, until a run succeeds.
    failure: Option<Failure>,
    lease: Option<Lease>,
    statistics: Statistics,
}

enum Work {
    /// Neither trimmed nor steered.
    Off(OffReason),
    /// It discards by itself, with the settings that the service chose.
    Steered(Steered),
    /// The service trims it.
    On {
        driver: Box<PolicyDriver<GuardedTrimmer>>,
        /// When all free space becomes pending; `None` if its frees are tracked.
        full_trim: Option<FullTrim>,
    },
}

impl ManagedFileSystem {
    /// Starts to manage `found`, which lies on `storage`, as `config` says.
    pub fn new(
        context: &Rc<Context>,
        found: MountedFileSystem,
        storage: Storage,
        config: &Config,
        now: Duration,
    ) -> Self {
        let settings = config.settings(&found.targets, storage.disk().as_deref());
        let reports_frees = FileSystemKind::reports_frees(&found.mount.fstype);
        let mut managed = Self {
            statistics: Statistics::default(),
            context: context.clone(),
            id: None,
            held: Duration::ZERO,
            removable: None,
            is_frozen: false,
            paused: Duration::ZERO,
            resumption: String::new(),
            refused: Duration::ZERO,
            btrfs: btrfs_directory(&context.machine.sysfs(), &found),
            found,
            examination: SingleCall::default(),
            early: None,
            drive: storage.drive(&context.machine.sysfs()),
            storage,
            learned: None,
            settings,
            policy: ServicePolicy::None,
            work: Work::Off(Exclusion::Configured.into()),
            reports_frees,
            free_space: SingleCall::default(),
            wanted: None,
            next_query: Duration::ZERO,
            failure: None,
            lease: None,
        };
        managed.removable = Removable::of(&managed.devices());
        managed.start(now);
        managed
    }

    /// Returns the storage that it lies on.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Applies a changed mount or configuration and keeps pending extents. Returns true if anything changed.
    pub fn change(&mut self, found: MountedFileSystem, config: &Config, now: Duration) -> bool {
        let settings = config.settings(&found.targets, self.storage.disk().as_deref());
        let is_same = found.is_unchanged_since(&self.found) && settings == self.settings;
        (self.found, self.settings) = (found, settings);
        if !is_same {
            self.start(now);
        }
        let trimmer = self.trimmer();
        if let Work::On { driver, .. } = &mut self.work {
            driver.trimmer_mut().set_trimmer(trimmer);
        }
        !is_same
    }

    /// Leaves it alone until its storage has been examined again, for this reason.
    pub fn forget_storage(&mut self, reason: String, now: Duration) {
        self.storage = Storage::unknown(reason);
        self.examination = SingleCall::default();
        self.start(now);
    }

    /// Applies another examination of its storage. One with the same result changes nothing, unless FITRIM was refused a while ago.
    /// Returns true if the reason why it is off has changed.
    pub fn apply_storage(&mut self, storage: Storage, config: &Config, now: Duration) -> bool {
        let was_refused = match &self.work {
            Work::Off(OffReason::Check(_)) => true,
            // It was trimmed before, and not refused just now.
            Work::Off(OffReason::Excluded(Exclusion::Unsupported)) => {
                self.trimmed() > Bytes::ZERO && now > self.refused + REFUSAL_PAUSE
            }
            _ => false,
        };
        if storage == self.storage && !was_refused {
            return false;
        }
        let reason = |managed: &Self| managed.off().map(|reason| chain(reason));
        let before = reason(self);
        self.settings = config.settings(&self.found.targets, storage.disk().as_deref());
        self.drive = storage.drive(&self.context.machine.sysfs());
        self.storage = storage;
        self.removable = Removable::of(&self.devices());
        self.start(now);
        reason(self) != before
    }

    /// Falls back to periodic trims of all free space, because its frees are not reported.
    pub fn disable_frees(&mut self, now: Duration) {
        self.reports_frees = false;
        self.start(now);
    }

    /// Chooses the policy and starts it; pending extents and totals stay.
    fn start(&mut self, now: Duration) {
        self.learned = self.learned();
        // A query that still runs began for another policy, and does not know what was freed since.
        self.free_space = SingleCall::default();
        self.wanted = self.wanted.map(Wanted::anew);
        if let Work::Steered(_) = self.work {
            // Restores the settings before they are read again.
            self.work = Work::Off(Exclusion::Configured.into());
        }
        let (policy, off) = decide(&self.found, &self.storage, &self.settings);
        let steering = self.steer(policy, off.as_ref());
        let is_trimmed = off.is_none() && matches!(steering, Ok(None));
        self.policy = match policy {
            ServicePolicy::Smart if is_trimmed && !self.reports_frees => ServicePolicy::Batched(WEEK),
            policy => policy,
        };
        // Only what is trimmed is opened: whoever unmounts it at that moment is refused.
        let off = off.map(OffReason::from).or_else(|| is_trimmed.then(|| self.check().err())?);
        if is_trimmed && off.is_none() {
            self.identify();
        }
        let full_trim = match self.policy {
            ServicePolicy::Batched(every) => {
                let last = self.id.as_ref().and_then(|id| self.context.store.stamped(id));
                Some(FullTrim::new(every, last, now))
            }
            _ => None,
        };
        let work = match steering {
            Ok(Some(steering)) => Work::Steered(steering),
            Err(reason) => Work::Off(reason),
            Ok(None) => match off.map_or_else(|| self.driver(), Err) {
                Err(reason) => Work::Off(reason),
                Ok(driver) => Work::On { driver: Box::new(driver), full_trim },
            },
        };
        self.failure = None;
        let old = std::mem::replace(&mut self.work, work);
        if let Work::On { driver: old, .. } = old {
            self.statistics.add(old.totals());
            if let Work::On { driver, .. } = &mut self.work {
                driver.take_over(*old);
            }
        }
    }

    /// Asks it for its identifier if that is not known, and looks up when it was last trimmed.
    pub(super) fn identify(&mut self) {
        if self.id.is_none() {
            let (asked, devices) = (self.found.clone(), self.devices());
            self.id = with_timeout(move || asked.id(&devices)).ok().flatten();
            let last_trim = self.id.as_ref().and_then(|id| self.context.store.stamped(id));
            self.statistics.last_trim = self.statistics.last_trim.max(last_trim);
        }
    }

    /// Checks that the file system supports FITRIM, if it answers in time.
    fn check(&self) -> Result<(), OffReason> {
        let target = self.found.mount.target.clone();
        let devices = self.devices();
        match with_timeout(move || trim::check_of(&target, &devices)) {
            // It may have been unmounted meanwhile.
            Err(NoAnswer) | Ok(Ok(()) | Err(TrimError::Unmounted { .. })) => Ok(()),
            Ok(Err(TrimError::Unsupported { .. })) => Err(Exclusion::Unsupported.into()),
            Ok(Err(TrimError::LosesData { .. })) => Err(Exclusion::LosesData.into()),
            Ok(Err(error)) => Err(OffReason::Check(error)),
        }
    }

    /// Returns what a policy with these goals begins with.
    fn beginning(&self, goals: Goals) -> Result<DecisionsHead, ProfileError> {
        let profile = match &self.settings.profile {
            Some(profile) => profile.clone(),
            None => self.storage.usual_profile()?,
        };
        Ok(DecisionsHead {
            schema: DECISIONS_SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mount: self.found.mount.target.display().to_string(),
            goals,
            gain: self.storage.gain(),
            units: self.storage.units(&self.context.machine.sysfs()),
            size: self.devices().iter().map(|device| device.size().unwrap_or_default()).sum(),
            profile,
            learned: self.learned(),
        })
    }

    fn driver(&self) -> Result<PolicyDriver<GuardedTrimmer>, OffReason> {
        let mut goals = self.settings.goals;
        if let ServicePolicy::Batched(_) = self.policy {
            // Trims all free space, regardless of its worth.
            goals.max_age = Duration::ZERO;
        }
        let beginning = self.beginning(goals)?;
        let trimmer = self.trimmer().for_service(&self.context.enders.add());
        let trimmer = GuardedTrimmer::new(trimmer, self.storage.stack.clone(), self.context.clone());
        let mut driver = PolicyDriver::new(beginning.policy(), trimmer);
        if let (ServicePolicy::Smart, Some(directory)) = (self.policy, &self.context.decisions) {
            driver.log_to(DecisionLog::create(directory, &beginning));
        }
        Ok(driver)
    }

    /// Returns the costs of discards that the running driver, one before it, or an earlier service learned from
    /// most trims.
    fn learned(&self) -> Option<LearnedCosts> {
        let running = match &self.work {
            Work::On { driver, .. } => Some(driver.policy().worth().learned()),
            Work::Off(_) | Work::Steered(_) => None,
        };
        let saved = self.drive.as_ref().and_then(|drive| self.context.store.load_costs(drive));
        running
            .into_iter()
            .chain(self.learned)
            .chain(saved)
            .filter(|costs| costs.trims > 0)
            .max_by_key(|costs| costs.trims)
    }

    /// Returns why the log of its decisions ended, once.
    pub fn take_log_error(&mut self) -> Option<io::Error> {
        match &mut self.work {
            Work::On { driver, .. } => driver.take_log_error(),
            Work::Off(_) | Work::Steered(_) => None,
        }
    }

    /// Saves what was learned of the costs of its drive's discards.
    ///
    /// # Errors
    /// [`WriteError`]; costs saved before stay.
    pub fn save_costs(&self) -> Result<(), WriteError> {
        let (Some(drive), Some(learned)) = (&self.drive, self.learned()) else { return Ok(()) };
        self.context.write_states(|store| store.save_costs(drive, learned))
    }

    fn trimmer(&self) -> MountedTrimmer {
        MountedTrimmer::new(self.found.mount.target.clone(), self.devices())
    }

    /// Restores the bytes trimmed before the service started to manage it, and the time of the last trim.
    pub fn restore_totals(&mut self, trimmed: Bytes, last_trim: Option<SystemTime>) {
        self.statistics.restored_bytes = trimmed;
        self.statistics.last_trim = self.statistics.last_trim.max(last_trim);
    }

    /// Returns the devices directly below it.
    pub fn devices(&self) -> Vec<BlockDevice> {
        self.storage.devices(&self.context.machine.sysfs())
    }

    /// Returns the pending and leased extents, each with the time since which it is free.
    pub fn pending(&self) -> impl Iterator<Item = (Extent, Duration)> {
        let pending = match &self.work {
            Work::On { driver, .. } => Some(driver.pending().iter()),
            Work::Off(_) | Work::Steered(_) => None,
        };
        pending.into_iter().flatten().chain(self.lease.iter().flat_map(Lease::extents))
    }

    /// Returns the bytes that the device discarded in trims.
    pub fn trimmed(&self) -> Bytes {
        self.totals().bytes
    }

    /// Returns the time of the last trim.
    pub fn last_trim(&self) -> Option<SystemTime> {
        self.statistics.last_trim
    }

    fn totals(&self) -> Totals {
        self.statistics.with(match &self.work {
            Work::On { driver, .. } => Some(driver.totals()),
            Work::Off(_) | Work::Steered(_) => None,
        })
    }

    /// Returns whether its storage is not known yet.
    pub fn is_unknown(&self) -> bool {
        self.storage.stack.layers.is_empty()
    }

    /// Returns whether it is off because its storage takes no discards or FITRIM failed. This may change: a volume of LVM takes
    /// discards again when its thick snapshot is removed.
    pub fn is_blocked(&self) -> bool {
        match &self.work {
            Work::Off(OffReason::Excluded(reason)) => {
                matches!(reason, Exclusion::Blocked(_) | Exclusion::Unsupported)
            }
            Work::Off(OffReason::Check(_)) => true,
            _ => false,
        }
    }

    /// Returns its policy.
    pub fn policy(&self) -> ServicePolicy {
        self.policy
    }

    /// Returns why it is neither trimmed nor steered; `None` if it is.
    pub fn off(&self) -> Option<&OffReason> {
        match &self.work {
            Work::Off(reason) => Some(reason),
            Work::Steered(_) | Work::On { .. } => None,
        }
    }

    /// Returns whether it tracks its frees.
    pub fn wants_frees(&self) -> bool {
        matches!(self.work, Work::On { full_trim: None, .. })
    }

    /// Ends the trims that are under way, if any. What they did not reach stays pending.
    pub fn end_trim(&self) {
        if let Work::On { driver, .. } = &self.work {
            driver.trimmer().end();
        }
    }

    /// Returns whether a trim is under way.
    pub fn is_trimming(&self) -> bool {
        matches!(&self.work, Work::On { driver, .. } if driver.trimmer().is_running())
    }

    /// Returns whether a trim has been under way for so long that its drive is slow or hangs.
    pub fn is_late(&self) -> bool {
        matches!(&self.work, Work::On { driver, .. } if driver.trimmer().is_late())
    }

    /// Neither trims nor queries it before `until`, and ends the trims that are under way if that is later than `now`; the command
    /// `resumption` ends the pause.
    pub fn pause(&mut self, until: Duration, now: Duration, resumption: String) {
        self.paused = until;
        self.resumption = resumption;
        if self.is_paused(now) {
            self.end_trim();
        }
    }

    /// Returns whether it is paused.
    pub fn is_paused(&self, now: Duration) -> bool {
        self.paused > now
    }

    /// Records that `extent` is free since `at`.
    pub fn freed(&mut self, at: Duration, extent: Extent) {
        if let Work::On { driver, full_trim: None } = &mut self.work {
            driver.freed(at, extent);
        }
    }
}
