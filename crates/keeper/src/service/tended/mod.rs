//! One mounted file system in the service's care.

mod figures;
mod steered;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use trimtab_core::policy::{SmartPolicy, Worth};
use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::block::BlockDevice;
use trimtab_linux::stack::Machine;
use trimtab_linux::steer::Steering;
use trimtab_linux::trim;
use trimtab_linux::trim::TrimError;

use super::config::{Config, ServicePolicy, Settings, WEEK};
use super::control::Piece;
use super::doors::VisitorId;
use super::ground::{Ground, Off, decide};
use super::mounts::Found;
use crate::free_space::{Division, FreeSpace, FreeSpaceError};
use crate::tender::{Tender, Totals, TurnError};
use crate::trims::MountedTrims;

/// How long a file system is left alone after a turn failed; twice as long each time.
const FIRST_RETREAT: Duration = Duration::from_secs(1);
const LONGEST_RETREAT: Duration = Duration::from_secs(3600);

/// A file system in the service's care.
pub(super) struct Tended {
    pub found: Found,
    ground: Ground,
    settings: Settings,
    policy: ServicePolicy,
    work: Work,
    /// Whether the kernel tells what it frees.
    is_heard: bool,
    /// What failed last, and how often in a row.
    failure: Option<Failure>,
    /// Who has taken over what was pending, and what that was.
    lent: Option<(VisitorId, ExtentSet)>,
    refusals: BTreeMap<&'static str, u64>,
    /// What was trimmed before the tender of now.
    before: Totals,
    last_trim: Option<SystemTime>,
}

enum Work {
    Off(String),
    /// It discards by itself, as it was told.
    Steered(Steering),
    On {
        tender: Box<Tender<MountedTrims>>,
        /// When all that is free becomes pending, again and again.
        whole: Option<Whole>,
    },
}

#[derive(Debug, Clone, Copy)]
struct Whole {
    every: Duration,
    next: Duration,
}

#[derive(Debug)]
struct Failure {
    reason: String,
    until: Duration,
    next_retreat: Duration,
}

/// What came of a turn that is worth telling.
#[derive(Debug)]
pub(super) enum Turn {
    /// It failed in a way that it didn't before.
    Failed(TurnError),
    /// It takes no discards after all: it is left alone from now on.
    GivenUp(TurnError),
    /// It failed before and didn't now.
    Recovered,
    /// Nothing.
    Nothing,
}

impl Tended {
    /// Begins to tend `found`, which lies on `ground`, as `config` says.
    pub fn new(machine: &Machine, found: Found, ground: Ground, config: &Config, now: Duration) -> Self {
        let settings = config.settings(&found.targets, ground.disk().as_deref());
        let is_heard = matches!(found.mount.fstype.as_str(), "ext2" | "ext3" | "ext4" | "xfs" | "btrfs");
        let mut tended = Self {
            found,
            ground,
            settings,
            policy: ServicePolicy::None,
            work: Work::Off(String::new()),
            is_heard,
            failure: None,
            lent: None,
            refusals: BTreeMap::new(),
            before: Totals::default(),
            last_trim: None,
        };
        tended.begin(machine, now);
        tended
    }

    /// Goes on with what is mounted otherwise than before, or by another configuration; says whether
    /// anything is different. What is pending stays so.
    pub fn change(&mut self, machine: &Machine, found: Found, config: &Config, now: Duration) -> bool {
        let settings = config.settings(&found.targets, self.ground.disk().as_deref());
        let is_same = found.is_as(&self.found) && settings == self.settings;
        (self.found, self.settings) = (found, settings);
        if !is_same {
            self.begin(machine, now);
        }
        !is_same
    }

    /// Trims all that is free from time to time, as nobody tells what is freed.
    pub fn go_without_frees(&mut self, machine: &Machine, now: Duration) {
        self.is_heard = false;
        self.begin(machine, now);
    }

    fn begin(&mut self, machine: &Machine, now: Duration) {
        if let Work::Steered(_) = self.work {
            // Its knobs are to be as they were before they are read again.
            self.work = Work::Off(String::new());
        }
        let (policy, off) = decide(&self.found, &self.ground, &self.settings);
        let steering = self.steer(machine, policy, off.as_ref());
        let is_trimmed = off.is_none() && matches!(steering, Ok(None));
        self.policy = match policy {
            ServicePolicy::Smart if is_trimmed && !self.is_heard => ServicePolicy::Batched(WEEK),
            policy => policy,
        };
        let off = off.map(|off| off.to_string()).or_else(|| match trim::check(&self.found.mount.target) {
            Ok(()) => None,
            Err(TrimError::Unsupported { .. }) => Some(Off::Unsupported.to_string()),
            Err(error) => Some(chain(&error)),
        });
        let whole = match self.policy {
            ServicePolicy::Batched(every) => Some(Whole { every, next: now + self.due_in(every) }),
            _ => None,
        };
        let work = match steering {
            Ok(Some(steering)) => Work::Steered(steering),
            Err(reason) => Work::Off(reason),
            Ok(None) => match off.map_or_else(|| self.tender(machine), Err) {
                Err(reason) => Work::Off(reason),
                Ok(tender) => Work::On { tender: Box::new(tender), whole },
            },
        };
        self.failure = None;
        let old = std::mem::replace(&mut self.work, work);
        if let Work::On { tender: mut old, .. } = old {
            self.before = sum(&self.before, old.totals());
            if let Work::On { tender, .. } = &mut self.work {
                old.take_pending(now).iter().for_each(|extent| tender.freed(now, extent));
            }
        }
    }

    /// In what time a trim is due that is done so often.
    fn due_in(&self, every: Duration) -> Duration {
        let Some(last) = self.last_trim else { return Duration::ZERO };
        // Where the clock was set back since, it was just done.
        every.saturating_sub(last.elapsed().unwrap_or_default())
    }

    /// What discards cost and save on its drive.
    fn worth(&self, machine: &Machine) -> Result<Worth, String> {
        let profile = match &self.settings.profile {
            Some(profile) => profile.clone(),
            None => self.ground.usual_profile().map_err(|error| chain(&error))?,
        };
        let devices = self.ground.devices(&machine.sysfs());
        let size = devices.iter().map(|device| device.size().unwrap_or_default()).sum();
        Ok(Worth::new(&profile, size))
    }

    fn tender(&self, machine: &Machine) -> Result<Tender<MountedTrims>, String> {
        let mut goals = self.settings.goals;
        if let ServicePolicy::Batched(_) = self.policy {
            // All of it, however little that is worth.
            goals.max_age = Duration::ZERO;
        }
        let policy = SmartPolicy::new(goals, self.worth(machine)?, self.ground.gain());
        let devices = self.ground.devices(&machine.sysfs());
        Ok(Tender::new(policy, MountedTrims::new(self.found.mount.target.clone(), devices)))
    }

    /// Goes on from what was trimmed before, and when that was last.
    pub fn go_on_from(&mut self, trimmed: Bytes, last_trim: Option<SystemTime>) {
        self.before.bytes += trimmed;
        self.last_trim = last_trim;
    }

    /// The devices directly below it.
    pub fn devices(&self, sysfs: &Path) -> Vec<BlockDevice> {
        self.ground.devices(sysfs)
    }

    /// What is pending, each extent with the time since which it is free; of what is lent, all.
    pub fn pending(&self) -> impl Iterator<Item = (Extent, Duration)> {
        let pending = match &self.work {
            Work::On { tender, .. } => Some(tender.pending().iter()),
            Work::Off(_) | Work::Steered(_) => None,
        };
        let lent = self.lent.iter().flat_map(|(_, lent)| lent.iter());
        pending.into_iter().flatten().chain(lent.map(|extent| (extent, Duration::ZERO)))
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
        match &self.work {
            Work::On { tender, .. } => sum(&self.before, tender.totals()),
            Work::Off(_) | Work::Steered(_) => self.before,
        }
    }

    /// Whether it isn't known yet what it lies on.
    pub fn is_unknown(&self) -> bool {
        self.ground.stack.layers.is_empty()
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

    /// Takes all that is free for pending.
    pub fn take_all_for_pending(&mut self, now: Duration) -> io::Result<()> {
        if let Work::On { tender, .. } = &mut self.work {
            for extent in all_free(&self.found)? {
                tender.freed(now, extent);
            }
        }
        Ok(())
    }

    /// When it wants a turn; never where nothing is pending.
    pub fn next_turn(&self) -> Option<Duration> {
        let Work::On { tender, whole } = &self.work else { return None };
        if self.lent.is_some() {
            return None;
        }
        let next = tender.next_turn().into_iter().chain(whole.map(|whole| whole.next)).min()?;
        Some(self.failure.as_ref().map_or(next, |failure| next.max(failure.until)))
    }

    /// Does what is due.
    pub fn turn(&mut self, now: Duration) -> Turn {
        let outcome = self.due(now);
        match outcome {
            Ok(false) => Turn::Nothing,
            Ok(true) => {
                self.last_trim = Some(SystemTime::now());
                match self.failure.take() {
                    Some(_) => Turn::Recovered,
                    None => Turn::Nothing,
                }
            }
            Err(error @ TurnError::Trim(TrimError::Unsupported { .. })) => {
                *self.refusals.entry("unsupported").or_default() += 1;
                if let Work::On { tender, .. } = &self.work {
                    self.before = sum(&self.before, tender.totals());
                }
                self.work = Work::Off(Off::Unsupported.to_string());
                Turn::GivenUp(error)
            }
            Err(error) => {
                *self.refusals.entry(kind(&error)).or_default() += 1;
                let reason = chain(&error);
                let retreat = self.failure.as_ref().map_or(FIRST_RETREAT, |failure| failure.next_retreat);
                let is_new = self.failure.as_ref().is_none_or(|failure| failure.reason != reason);
                let next_retreat = (retreat * 2).min(LONGEST_RETREAT);
                self.failure = Some(Failure { reason, until: now + retreat, next_retreat });
                if is_new { Turn::Failed(error) } else { Turn::Nothing }
            }
        }
    }

    fn due(&mut self, now: Duration) -> Result<bool, TurnError> {
        let Work::On { tender, whole } = &mut self.work else { return Ok(false) };
        if let Some(whole) = whole
            && whole.next <= now
        {
            let extents = all_free(&self.found).map_err(|source| {
                TurnError::Trim(TrimError::Trim { mount: self.found.mount.target.clone(), source })
            })?;
            extents.into_iter().for_each(|extent| tender.freed(now, extent));
            whole.next = now + whole.every;
        }
        if tender.next_turn().is_none_or(|next| next > now) {
            return Ok(false);
        }
        tender.turn(now)
    }

    /// Hands over what is pending, to be trimmed by another.
    pub fn lend(&mut self, to: VisitorId, now: Duration) -> Result<Vec<Piece>, &'static str> {
        let Work::On { tender, whole: None } = &mut self.work else {
            return Err("the service doesn't know what is pending there");
        };
        if self.lent.is_some() {
            return Err("another trim of it is under way");
        }
        let (_, pending) = self.lent.insert((to, tender.take_pending(now)));
        Ok(pending.iter().map(Piece::from).collect())
    }

    /// Takes back what was lent to `from`: what is left, or all of it where it doesn't say.
    pub fn take_back(&mut self, from: VisitorId, left: Option<&[Extent]>, now: Duration) {
        let Some((_, lent)) = self.lent.take_if(|(to, _)| *to == from) else { return };
        if let Work::On { tender, .. } = &mut self.work {
            match left {
                Some(left) => {
                    left.iter().for_each(|extent| tender.freed(now, *extent));
                    self.last_trim = Some(SystemTime::now());
                }
                None => lent.iter().for_each(|extent| tender.freed(now, extent)),
            }
        }
    }
}

/// All that may be free of a file system, in its trim address space.
fn all_free(found: &Found) -> io::Result<Vec<Extent>> {
    let root = trimtab_linux::mount::open_apart(&found.mount.target)?;
    if found.mount.fstype == "btrfs" {
        return Ok(trimtab_linux::btrfs::chunks(root)?.into_iter().map(|chunk| chunk.extent).collect());
    }
    match FreeSpace::read(&root, found.number(), &Division::Unknown) {
        Ok(free) => Ok(free.extents().to_vec()),
        Err(FreeSpaceError::Unsupported) => {
            let size = rustix::fs::fstatvfs(&root)?;
            Ok(vec![Extent::at(Bytes::ZERO, Bytes(size.f_blocks * size.f_frsize))])
        }
        Err(FreeSpaceError::Read(source)) => Err(source),
    }
}

/// A word for why a turn failed.
fn kind(error: &TurnError) -> &'static str {
    match error {
        TurnError::Trim(TrimError::Unsupported { .. }) => "unsupported",
        TurnError::Trim(TrimError::Trim { source, .. }) => {
            match source.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::IO) => "io_error",
                Some(Errno::ROFS) => "read_only",
                Some(Errno::BUSY) => "busy",
                Some(Errno::PERM | Errno::ACCESS) => "denied",
                _ => "other",
            }
        }
        TurnError::Trim(TrimError::Sync { .. }) => "other",
        TurnError::Block(_) => "no_device",
    }
}

/// An error and what caused it, in a line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said = format!("{said}: {error}");
        cause = error.source();
    }
    said
}

fn sum(one: &Totals, other: &Totals) -> Totals {
    Totals {
        calls: one.calls + other.calls,
        discards: one.discards + other.discards,
        bytes: one.bytes + other.bytes,
        took: one.took + other.took,
        refused: one.refused + other.refused,
        last: other.last.or(one.last),
    }
}
