//! The runs of a comparison, and what must hold before the first one starts.

use std::path::Path;
use std::time::Duration;

use trimtab_core::document::Filling;
use trimtab_core::document::status::State;
use trimtab_core::policy::{PolicyChoice, PolicyKind};
use trimtab_core::profile::Profile;
use trimtab_core::{Bytes, distinct};
use trimtab_drive::DriveError;
use trimtab_keeper::service::control;
use trimtab_linux::trim;

use super::Place;
use crate::error::LabError;
use crate::fs::FileSystem;
use crate::testbed::{mount_of, possible_policies};

/// One run to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planned<'a> {
    pub site: Site<'a>,
    pub policy: PolicyChoice,
    pub idle: Duration,
    /// The number of the repetition, from 1.
    pub run: u32,
}

/// Where one run happens.
#[derive(Debug, Clone, Copy)]
pub(super) enum Site<'a> {
    Emulated { file_system: FileSystem, profile: &'a Profile, size: Bytes, filling: Option<Filling> },
    Directory { dir: &'a Path, room: Bytes },
}

impl Site<'_> {
    /// Its name in progress messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Emulated { file_system, .. } => file_system.name(),
            Self::Directory { .. } => "directory",
        }
    }
}

/// All runs, in order: every repetition goes through all file systems, lengths of pauses and
/// policies, each time starting with another policy, so that drift affects all of them alike.
pub(super) fn plan<'a>(
    place: &'a Place,
    policies: &[PolicyChoice],
    idle: &[Duration],
    runs: u32,
) -> Result<Vec<Planned<'a>>, LabError> {
    let sites = match place {
        Place::Emulated { profile, size, filling, file_systems, .. } => {
            emulated_sites(profile, *size, *filling, file_systems, policies)?
        }
        Place::Directory { dir, room, .. } => {
            let mount = mount_of(dir)?;
            let possible = possible_policies(&mount);
            if let Some(policy) = policies.iter().find(|policy| !possible.contains(&policy.kind())) {
                return Err(LabError::FixedByMount { dir: dir.clone(), policy: policy.kind(), possible });
            }
            let all: Vec<_> = possible.iter().copied().map(PolicyChoice::from).collect();
            let asked = distinct(if policies.is_empty() { &all } else { policies }.iter().copied());
            vec![(Site::Directory { dir, room: *room }, asked)]
        }
    };
    let mut plan = Vec::new();
    for run in 1..=runs {
        for (site, policies) in &sites {
            for idle in distinct(idle.iter().copied()) {
                let (before, after) = policies.split_at((run as usize - 1) % policies.len());
                let turn = after.iter().chain(before);
                plan.extend(turn.map(|&policy| Planned { site: *site, policy, idle, run }));
            }
        }
    }
    Ok(plan)
}

/// Returns the file systems on emulated drives, each with the policies among `policies` that it supports.
fn emulated_sites<'a>(
    profile: &'a Profile,
    size: Bytes,
    filling: Option<Filling>,
    file_systems: &[FileSystem],
    policies: &[PolicyChoice],
) -> Result<Vec<(Site<'a>, Vec<PolicyChoice>)>, LabError> {
    let all: Vec<_> = DEFAULT_POLICIES.map(PolicyChoice::from).to_vec();
    let asked = distinct(if policies.is_empty() { &all } else { policies }.iter().copied());
    let file_systems = distinct(file_systems.iter().copied());
    let lacks = |fs: &FileSystem, policy: &PolicyChoice| fs.mount_option(policy.kind()).is_none();
    for policy in &asked {
        if file_systems.iter().all(|fs| lacks(fs, policy)) {
            return Err(LabError::NoSuchPolicy { fs: file_systems[0], policy: policy.kind() });
        }
    }
    for &fs in &file_systems {
        if asked.iter().all(|policy| lacks(&fs, policy)) {
            return Err(LabError::NoSuchPolicy { fs, policy: asked[0].kind() });
        }
    }
    if let Some(filling) = filling
        && filling.room > size
    {
        return Err(LabError::RoomAboveDrive { room: filling.room, size });
    }
    if let Some(&fs) = file_systems.iter().find(|fs| size < fs.least_size()) {
        return Err(LabError::TooSmall { size, fs, least: fs.least_size() });
    }
    let site = |file_system| Site::Emulated { file_system, profile, size, filling };
    let has = |fs| asked.iter().copied().filter(|policy| !lacks(&fs, policy)).collect();
    Ok(file_systems.iter().map(|&fs| (site(fs), has(fs))).collect())
}

/// Checks for root if anything is mounted or trimmed.
pub(super) fn require_rights(plan: &[Planned]) -> Result<(), LabError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    for planned in plan {
        match planned.site {
            Site::Emulated { .. } => return Err(DriveError::NotRoot.into()),
            Site::Directory { .. } if TRIMMING.contains(&planned.policy.kind()) => {
                return Err(LabError::TrimNeedsRoot { policy: planned.policy.kind() });
            }
            Site::Directory { .. } => {}
        }
    }
    Ok(())
}

/// Checks that no service trims the user's file system meanwhile.
pub(super) fn require_unmanaged(place: &Place) -> Result<(), LabError> {
    let Place::Directory { dir, service, .. } = place else { return Ok(()) };
    // No answer: no service.
    let Ok(status) = control::status(service) else { return Ok(()) };
    let device = mount_of(dir)?.source.display().to_string();
    let mut managed = status.file_systems.into_iter().filter(|fs| fs.state != State::Off);
    match managed.find(|fs| fs.device == device) {
        Some(fs) => Err(LabError::Managed { mount: fs.mount }),
        None => Ok(()),
    }
}

/// Checks that the user's file system can be trimmed, if a policy of the plan trims.
pub(super) fn require_trims(plan: &[Planned]) -> Result<(), LabError> {
    for planned in plan {
        if let Site::Directory { dir, .. } = planned.site
            && TRIMMING.contains(&planned.policy.kind())
        {
            trim::check(dir)?;
        }
    }
    Ok(())
}

/// The policies that trim the file system.
const TRIMMING: [PolicyKind; 2] = [PolicyKind::Batched, PolicyKind::Smart];

/// The policies that are compared on an emulated drive unless others are asked for.
const DEFAULT_POLICIES: [PolicyKind; 4] =
    [PolicyKind::None, PolicyKind::Online, PolicyKind::Batched, PolicyKind::Smart];

#[cfg(test)]
mod tests {
    use PolicyKind::{Async, Batched, None, Online};

    use std::path::PathBuf;

    use super::*;

    fn emulated(file_systems: &[FileSystem]) -> Place {
        Place::Emulated {
            profile: Box::new(Profile::named("micron-emmc").unwrap()),
            profile_toml: String::new(),
            size: Bytes(2 << 30),
            filling: Option::None,
            file_systems: file_systems.to_vec(),
        }
    }

    fn planned<'a>(
        place: &'a Place,
        policies: &[PolicyKind],
        runs: u32,
    ) -> Result<Vec<Planned<'a>>, LabError> {
        let policies: Vec<_> = policies.iter().copied().map(PolicyChoice::from).collect();
        plan(place, &policies, &[Duration::ZERO], runs)
    }

    fn order(place: &Place, policies: &[PolicyKind], runs: u32) -> Vec<(u32, &'static str, PolicyKind)> {
        let name = |site| match site {
            Site::Emulated { file_system, .. } => file_system.name(),
            Site::Directory { .. } => "directory",
        };
        let plan = planned(place, policies, runs).unwrap();
        plan.into_iter().map(|planned| (planned.run, name(planned.site), planned.policy.kind())).collect()
    }

    #[test]
    fn runs_interleave_and_each_round_starts_with_another_policy() {
        let place = emulated(&[FileSystem::Ext4, FileSystem::Btrfs]);
        assert_eq!(
            order(&place, &[None, Async, Batched], 2),
            [
                (1, "ext4", None),
                (1, "ext4", Batched),
                (1, "btrfs", None),
                (1, "btrfs", Async),
                (1, "btrfs", Batched),
                (2, "ext4", Batched),
                (2, "ext4", None),
                (2, "btrfs", Async),
                (2, "btrfs", Batched),
                (2, "btrfs", None),
            ]
        );
    }

    #[test]
    fn every_policy_gets_every_length_of_pauses() {
        let place = emulated(&[FileSystem::Ext4]);
        let policies = [PolicyChoice::from(None), "batched:1h".parse().unwrap()];
        let second = Duration::from_secs(1);
        let plan = plan(&place, &policies, &[Duration::ZERO, second, second], 1).unwrap();
        let found: Vec<_> = plan.iter().map(|planned| (planned.idle, planned.policy.to_string())).collect();
        let expected = [(0, "none"), (0, "batched:1h"), (1, "none"), (1, "batched:1h")];
        assert_eq!(found, expected.map(|(idle, policy)| (second * idle, policy.to_owned())));
    }

    #[test]
    fn policies_named_twice_run_once() {
        let place = emulated(&[FileSystem::Ext4, FileSystem::Ext4]);
        assert_eq!(order(&place, &[None, None], 1), [(1, "ext4", None)]);
    }

    #[test]
    fn impossible_policies_are_refused_before_any_work() {
        let refused = |place: &Place, policy| planned(place, &[policy], 1).unwrap_err().to_string();
        assert!(refused(&emulated(&[FileSystem::Ext4, FileSystem::Xfs]), Async).contains("only btrfs"));
        assert!(
            refused(&emulated(&[FileSystem::Ext4, FileSystem::Btrfs]), Async).contains("ext4 has no async")
        );
        let directory =
            |dir: &str| Place::Directory { dir: dir.into(), room: Bytes::MIB, service: PathBuf::new() };
        let here = directory("/proc");
        assert!(refused(&here, Online).contains("--policy none,batched"));
        let missing = directory("/no/such/place");
        assert!(refused(&missing, None).contains("/no/such/place"));
    }
}
