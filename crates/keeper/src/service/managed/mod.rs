//! One mounted file system in the service's care.

mod figures;
mod lease;
mod steered;
mod turns;

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use trimtab_core::error::chain;
use trimtab_core::policy::{SmartPolicy, Worth};
use trimtab_core::{Bytes, Extent};
use trimtab_doctor::{DoctorError, Judged};
use trimtab_linux::block::BlockDevice;
use trimtab_linux::trim;
use trimtab_linux::trim::TrimError;

use super::config::{Config, ServicePolicy, Settings, WEEK};
use super::context::Context;
use super::mounts::Found;
use super::patience::{Asked, in_time};
use super::storage::{Off, Storage, decide};
use super::trims::GuardedTrims;
use crate::tender::{Tender, Totals};
use crate::trims::MountedTrims;
use lease::Lease;
use steered::Steered;
pub(super) use steered::put_back_knobs;
use turns::Failure;
pub(super) use turns::Turn;

/// A file system in the service's care.
pub(super) struct ManagedFileSystem {
    pub found: Found,
    /// What it lies on, where that is still to be answered.
    pub asked: Asked<Result<Judged, DoctorError>>,
    context: Rc<Context>,
    storage: Storage,
    settings: Settings,
    policy: ServicePolicy,
    work: Work,
    /// Whether the kernel tells what it frees.
    is_heard: bool,
    /// All that is free of it, where that is still to be answered.
    all_free: Asked<io::Result<Vec<Extent>>>,
    /// What failed last, and how often in a row.
    failure: Option<Failure>,
    lease: Option<Lease>,
    refusals: BTreeMap<&'static str, u64>,
    /// Bytes that were trimmed before it came into this care, as far as that is known.
    earlier: Bytes,
    /// What was trimmed before the tender of now.
    before: Totals,
    last_trim: Option<SystemTime>,
}

enum Work {
    Off(String),
    /// It discards by itself, as it was told.
    Steered(Steered),
    On {
        tender: Box<Tender<GuardedTrims>>,
        /// When all that is free becomes pending, again and again.
        whole: Option<Whole>,
    },
}

#[derive(Debug, Clone, Copy)]
struct Whole {
    every: Duration,
    next: Duration,
}

impl ManagedFileSystem {
    /// Begins to tend `found`, which lies on `storage`, as `config` says.
    pub fn new(
        context: &Rc<Context>,
        found: Found,
        storage: Storage,
        config: &Config,
        now: Duration,
    ) -> Self {
        let settings = config.settings(&found.targets, storage.disk().as_deref());
        let is_heard = matches!(found.mount.fstype.as_str(), "ext2" | "ext3" | "ext4" | "xfs" | "btrfs");
        let mut managed = Self {
            last_trim: found.id().and_then(|id| context.store.stamped(&id)),
            context: context.clone(),
            found,
            asked: Asked::default(),
            storage,
            settings,
            policy: ServicePolicy::None,
            work: Work::Off(String::new()),
            is_heard,
            all_free: Asked::default(),
            failure: None,
            lease: None,
            refusals: BTreeMap::new(),
            earlier: Bytes::ZERO,
            before: Totals::default(),
        };
        managed.begin(now);
        managed
    }

    /// Goes on with what is mounted otherwise than before, or by another configuration; says whether
    /// anything is different. What is pending stays so.
    pub fn change(&mut self, found: Found, config: &Config, now: Duration) -> bool {
        let settings = config.settings(&found.targets, self.storage.disk().as_deref());
        let is_same = found.is_as(&self.found) && settings == self.settings;
        (self.found, self.settings) = (found, settings);
        if !is_same {
            self.begin(now);
        }
        let mounted = self.mounted();
        if let Work::On { tender, .. } = &mut self.work {
            tender.trims_mut().set_mounted(mounted);
        }
        !is_same
    }

    /// Trims all that is free from time to time, as nobody tells what is freed.
    pub fn disable_frees(&mut self, now: Duration) {
        self.is_heard = false;
        self.begin(now);
    }

    fn begin(&mut self, now: Duration) {
        if let Work::Steered(_) = self.work {
            // Its knobs are to be as they were before they are read again.
            self.work = Work::Off(String::new());
        }
        let (policy, off) = decide(&self.found, &self.storage, &self.settings);
        let steering = self.steer(policy, off.as_ref());
        let is_trimmed = off.is_none() && matches!(steering, Ok(None));
        self.policy = match policy {
            ServicePolicy::Smart if is_trimmed && !self.is_heard => ServicePolicy::Batched(WEEK),
            policy => policy,
        };
        let off = off.map(|off| off.to_string()).or_else(|| self.check().err());
        let whole = match self.policy {
            ServicePolicy::Batched(every) => Some(Whole { every, next: now + self.due_in(every) }),
            _ => None,
        };
        let work = match steering {
            Ok(Some(steering)) => Work::Steered(steering),
            Err(reason) => Work::Off(reason),
            Ok(None) => match off.map_or_else(|| self.tender(), Err) {
                Err(reason) => Work::Off(reason),
                Ok(tender) => Work::On { tender: Box::new(tender), whole },
            },
        };
        self.failure = None;
        let old = std::mem::replace(&mut self.work, work);
        if let Work::On { tender: old, .. } = old {
            self.before = sum(&self.before, old.totals());
            if let Work::On { tender, .. } = &mut self.work {
                old.pending().iter().for_each(|(extent, since)| tender.freed(since, extent));
            }
        }
    }

    /// Whether it takes trims at all, as far as it says so in time.
    fn check(&self) -> Result<(), String> {
        let target = self.found.mount.target.clone();
        match in_time(move || trim::check(&target)) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(TrimError::Unsupported { .. })) => Err(Off::Unsupported.to_string()),
            Some(Err(error)) => Err(chain(&error)),
        }
    }

    /// In what time a trim of all that is free is due, which is done so often.
    fn due_in(&self, every: Duration) -> Duration {
        let last = self.found.id().and_then(|id| self.context.store.stamped(&id));
        last.map_or(Duration::ZERO, |last| turns::due_in(every, last, SystemTime::now()))
    }

    /// What discards cost and save on its drive.
    fn worth(&self) -> Result<Worth, String> {
        let profile = match &self.settings.profile {
            Some(profile) => profile.clone(),
            None => self.storage.usual_profile().map_err(|error| chain(&error))?,
        };
        let devices = self.devices();
        let size = devices.iter().map(|device| device.size().unwrap_or_default()).sum();
        Ok(Worth::new(&profile, size))
    }

    fn tender(&self) -> Result<Tender<GuardedTrims>, String> {
        let mut goals = self.settings.goals;
        if let ServicePolicy::Batched(_) = self.policy {
            // All of it, however little that is worth.
            goals.max_age = Duration::ZERO;
        }
        let policy = SmartPolicy::new(goals, self.worth()?, self.storage.gain());
        let trims = GuardedTrims::new(self.mounted(), self.storage.stack.clone(), self.context.clone());
        Ok(Tender::new(policy, trims))
    }

    fn mounted(&self) -> MountedTrims {
        MountedTrims::new(self.found.mount.target.clone(), self.devices())
    }

    /// Goes on from what was trimmed before it came into this care, and when that was last.
    pub fn restore_totals(&mut self, trimmed: Bytes, last_trim: Option<SystemTime>) {
        self.earlier = trimmed;
        self.last_trim = self.last_trim.max(last_trim);
    }

    /// The devices directly below it.
    pub fn devices(&self) -> Vec<BlockDevice> {
        self.storage.devices(&self.context.machine.sysfs())
    }

    /// What is pending, each extent with the time since which it is free; of what is lent, all.
    pub fn pending(&self) -> impl Iterator<Item = (Extent, Duration)> {
        let pending = match &self.work {
            Work::On { tender, .. } => Some(tender.pending().iter()),
            Work::Off(_) | Work::Steered(_) => None,
        };
        pending.into_iter().flatten().chain(self.lease.iter().flat_map(Lease::extents))
    }

    /// Bytes that the device discarded in trims.
    pub fn trimmed(&self) -> Bytes {
        self.totals().bytes
    }

    /// When it was trimmed last.
    pub fn last_trim(&self) -> Option<SystemTime> {
        self.last_trim
    }

    fn totals(&self) -> Totals {
        let totals = match &self.work {
            Work::On { tender, .. } => sum(&self.before, tender.totals()),
            Work::Off(_) | Work::Steered(_) => self.before,
        };
        Totals { bytes: self.earlier + totals.bytes, ..totals }
    }

    /// Whether it isn't known yet what it lies on.
    pub fn is_unknown(&self) -> bool {
        self.storage.stack.layers.is_empty()
    }

    /// The policy that it is tended by.
    pub fn policy(&self) -> ServicePolicy {
        self.policy
    }

    /// Why it is left alone; none where it isn't.
    pub fn off(&self) -> Option<&str> {
        match &self.work {
            Work::Off(reason) => Some(reason),
            Work::Steered(_) | Work::On { .. } => None,
        }
    }

    /// Whether it counts what it is told of frees.
    pub fn wants_frees(&self) -> bool {
        matches!(self.work, Work::On { whole: None, .. })
    }

    /// The bytes are free since `at`.
    pub fn freed(&mut self, at: Duration, extent: Extent) {
        if let Work::On { tender, whole: None } = &mut self.work {
            tender.freed(at, extent);
        }
    }
}

fn sum(one: &Totals, other: &Totals) -> Totals {
    Totals {
        discards: one.discards + other.discards,
        bytes: one.bytes + other.bytes,
        took: one.took + other.took,
        refused: one.refused + other.refused,
        last: other.last.or(one.last),
    }
}
