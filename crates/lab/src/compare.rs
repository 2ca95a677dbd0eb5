//! What each discard policy costs and gains on a workload, a file system and a drive.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use trimtab_core::Bytes;
use trimtab_core::document::status::State;
use trimtab_core::document::{COMPARE_SCHEMA, CompareDocument, DriveDescription, Run};
use trimtab_core::error::chain;
use trimtab_core::policy::PolicyKind;
use trimtab_core::profile::Profile;
use trimtab_drive::DriveError;
use trimtab_ftl::Device;
use trimtab_keeper::service::control;
use trimtab_linux::PROCFS;
use trimtab_linux::environment::environment;
use trimtab_linux::trim;

use crate::error::LabError;
use crate::fs::FileSystem;
use crate::ground::{DirectoryGround, EmulatedGround, EmulatedOptions, Ground, mount_of, possible_policies};
use crate::interrupt::{Interrupt, Interrupted};
use crate::progress::Progress;
use crate::recorder::record;
use crate::workload::{Workload, WorkloadOptions};

/// What to compare.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    /// Where the runs happen.
    pub place: Place,
    /// The policies; none means all that make sense at that place.
    pub policies: Vec<PolicyKind>,
    /// The workload.
    pub workload: WorkloadOptions,
    /// How often each is run.
    pub runs: u32,
    /// Makes file contents and trees the same at every run.
    pub seed: u64,
    /// The command line, for the document.
    pub command: Vec<String>,
}

/// Where the runs happen.
#[derive(Debug, Clone)]
pub enum Place {
    /// Each on a new file system on an emulated drive of its own.
    Emulated {
        /// How the drives behave.
        profile: Box<Profile>,
        /// The profile as text, for the document.
        profile_toml: String,
        /// The drives' size.
        size: Bytes,
        /// The file systems.
        file_systems: Vec<FileSystem>,
        /// The executable that serves drives: trimtab itself.
        server: PathBuf,
    },
    /// In a directory of the user's, as it is mounted.
    Directory {
        /// The directory.
        dir: PathBuf,
        /// The most space the workload may use.
        room: Bytes,
        /// Where the sockets of a service would be that trims it, too.
        service: PathBuf,
    },
}

/// One run to do.
#[derive(Debug, Clone, Copy)]
struct Planned<'a> {
    site: Site<'a>,
    policy: PolicyKind,
    /// Which repetition, from 1.
    run: u32,
}

/// Where one run happens.
#[derive(Debug, Clone, Copy)]
enum Site<'a> {
    Emulated { file_system: FileSystem, profile: &'a Profile, size: Bytes, server: &'a Path },
    Directory { dir: &'a Path, room: Bytes },
}

/// Runs every policy on every file system, interleaved, and returns the document. `save` is
/// called with the document so far before the first run and after each.
///
/// A run that fails or is interrupted ends the comparison: the document then says so in `stopped`
/// and holds the runs before it.
///
/// # Errors
/// What is wrong before the first run starts, and what `save` fails with.
pub fn compare(
    options: CompareOptions,
    interrupt: &Interrupt,
    progress: &mut dyn Progress,
    save: &mut dyn FnMut(&CompareDocument) -> io::Result<()>,
) -> Result<CompareDocument, CompareError> {
    let plan = plan(&options.place, &options.policies, options.runs)?;
    require_rights(&plan)?;
    require_untended(&options.place)?;
    require_trims(&plan)?;
    let drive = describe_drive(&options.place)?;
    let mut environment = environment(Path::new(PROCFS)).map_err(LabError::from)?;
    if let Place::Emulated { file_systems, .. } = &options.place {
        for file_system in file_systems {
            file_system.require_maker()?;
            let name = file_system.maker().0.to_owned();
            environment.tools.push((name, file_system.maker_version().unwrap_or_default()));
        }
    }
    let workload = options.workload.prepare(options.seed, interrupt)?;
    let mut document = CompareDocument {
        schema: COMPARE_SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: options.command,
        started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        environment,
        drive,
        workload: workload.description(),
        runs_asked: options.runs,
        runs: Vec::new(),
        stopped: Some(Interrupted.to_string()),
    };
    save(&document)?;
    progress.planned(plan.len());
    let mut failure = None;
    for planned in plan {
        match run(planned, workload.as_ref(), interrupt, progress) {
            Ok(run) => document.runs.push(run),
            Err(error) => {
                failure = Some(if interrupt.is_set() { Interrupted.into() } else { error });
                break;
            }
        }
        save(&document)?;
        progress.run_finished();
    }
    document.stopped = failure.map(|error| chain(&error));
    save(&document)?;
    Ok(document)
}

/// Why a comparison did not start or could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// Something is wrong with what was asked for, or with the machine.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The document could not be saved.
    #[error("cannot save the results")]
    Save(#[from] io::Error),
}

/// All runs, in order: every repetition goes through all file systems and policies, each time
/// starting with another policy, so that whatever drifts meets them all alike.
fn plan<'a>(place: &'a Place, policies: &[PolicyKind], runs: u32) -> Result<Vec<Planned<'a>>, LabError> {
    let sites = match place {
        Place::Emulated { profile, size, file_systems, server, .. } => {
            let asked = distinct(if policies.is_empty() { &DEFAULT_POLICIES } else { policies });
            let file_systems = distinct(file_systems);
            let lacks = |fs: &FileSystem, policy| fs.mount_option(policy).is_none();
            for &policy in &asked {
                if file_systems.iter().all(|fs| lacks(fs, policy)) {
                    return Err(LabError::NoSuchPolicy { fs: file_systems[0], policy });
                }
            }
            for &fs in &file_systems {
                if asked.iter().all(|&policy| lacks(&fs, policy)) {
                    return Err(LabError::NoSuchPolicy { fs, policy: asked[0] });
                }
            }
            if let Some(&fs) = file_systems.iter().find(|fs| *size < fs.least_size()) {
                return Err(LabError::TooSmall { size: *size, fs, least: fs.least_size() });
            }
            let site = |file_system| Site::Emulated { file_system, profile, size: *size, server };
            let has = |fs| asked.iter().copied().filter(move |policy| !lacks(&fs, *policy)).collect();
            file_systems.iter().map(|&fs| (site(fs), has(fs))).collect::<Vec<(Site, Vec<PolicyKind>)>>()
        }
        Place::Directory { dir, room, .. } => {
            let mount = mount_of(dir)?;
            let possible = possible_policies(&mount);
            if let Some(&policy) = policies.iter().find(|policy| !possible.contains(policy)) {
                return Err(LabError::FixedByMount { dir: dir.clone(), policy, possible });
            }
            let asked = distinct(if policies.is_empty() { possible } else { policies });
            vec![(Site::Directory { dir, room: *room }, asked)]
        }
    };
    let mut plan = Vec::new();
    for run in 1..=runs {
        for (site, policies) in &sites {
            let (before, after) = policies.split_at((run as usize - 1) % policies.len());
            let turn = after.iter().chain(before);
            plan.extend(turn.map(|&policy| Planned { site: *site, policy, run }));
        }
    }
    Ok(plan)
}

/// The items in their order, each once, however often the user named it.
pub fn distinct<T: Copy + PartialEq>(items: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for item in items {
        if !once.contains(item) {
            once.push(*item);
        }
    }
    once
}

/// Checks for root where something is mounted or trimmed.
fn require_rights(plan: &[Planned]) -> Result<(), LabError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    for planned in plan {
        match planned.site {
            Site::Emulated { .. } => return Err(DriveError::NotRoot.into()),
            Site::Directory { .. } if TRIMMING.contains(&planned.policy) => {
                return Err(LabError::TrimNeedsRoot { policy: planned.policy });
            }
            Site::Directory { .. } => {}
        }
    }
    Ok(())
}

/// Checks that no service trims the user's file system meanwhile.
fn require_untended(place: &Place) -> Result<(), LabError> {
    let Place::Directory { dir, service, .. } = place else { return Ok(()) };
    // What doesn't answer doesn't run.
    let Ok(status) = control::status(service) else { return Ok(()) };
    let device = mount_of(dir)?.source.display().to_string();
    let mut tended = status.file_systems.into_iter().filter(|fs| fs.state != State::Off);
    match tended.find(|fs| fs.device == device) {
        Some(fs) => Err(LabError::Tended { mount: fs.mount }),
        None => Ok(()),
    }
}

/// Checks that the user's file system can be trimmed where a policy will.
fn require_trims(plan: &[Planned]) -> Result<(), LabError> {
    for planned in plan {
        if let Site::Directory { dir, .. } = planned.site
            && TRIMMING.contains(&planned.policy)
        {
            trim::check(dir)?;
        }
    }
    Ok(())
}

/// The policies that trim the file system.
const TRIMMING: [PolicyKind; 2] = [PolicyKind::Batched, PolicyKind::Smart];

/// What is compared on an emulated drive unless asked otherwise.
const DEFAULT_POLICIES: [PolicyKind; 4] =
    [PolicyKind::None, PolicyKind::Online, PolicyKind::Batched, PolicyKind::Smart];

fn describe_drive(place: &Place) -> Result<Option<DriveDescription>, LabError> {
    let Place::Emulated { profile, profile_toml, size, .. } = place else { return Ok(None) };
    let device = Device::new(profile, *size).map_err(|source| LabError::Geometry {
        profile: profile.name.clone(),
        size: *size,
        source,
    })?;
    Ok(Some(DriveDescription {
        profile: profile.name.clone(),
        model: profile.model.clone(),
        size: *size,
        effective_spare: device.effective_spare(),
        erase_block: profile.geometry.erase_block.value,
        profile_toml: profile_toml.clone(),
    }))
}

fn run(
    Planned { site, policy, run }: Planned,
    workload: &dyn Workload,
    interrupt: &Interrupt,
    progress: &mut dyn Progress,
) -> Result<Run, LabError> {
    interrupt.check()?;
    let mut ground: Box<dyn Ground> = match site {
        Site::Emulated { file_system, profile, size, server } => {
            let options = EmulatedOptions { file_system, policy, profile, size, server };
            Box::new(EmulatedGround::create(options)?)
        }
        Site::Directory { dir, room } => Box::new(DirectoryGround::create(dir, room)?),
    };
    progress.run_started(ground.file_system(), policy, run);
    record(workload, policy, run, ground.as_mut(), interrupt, progress)
}

#[cfg(test)]
mod tests {
    use PolicyKind::{Async, Batched, None, Online};

    use super::*;

    fn emulated(file_systems: &[FileSystem]) -> Place {
        Place::Emulated {
            profile: Box::new(Profile::named("micron-emmc").unwrap()),
            profile_toml: String::new(),
            size: Bytes(2 << 30),
            file_systems: file_systems.to_vec(),
            server: PathBuf::new(),
        }
    }

    fn order(place: &Place, policies: &[PolicyKind], runs: u32) -> Vec<(u32, &'static str, PolicyKind)> {
        let name = |site| match site {
            Site::Emulated { file_system, .. } => file_system.name(),
            Site::Directory { .. } => "directory",
        };
        let plan = plan(place, policies, runs).unwrap();
        plan.into_iter().map(|planned| (planned.run, name(planned.site), planned.policy)).collect()
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
    fn what_is_named_twice_runs_once() {
        let place = emulated(&[FileSystem::Ext4, FileSystem::Ext4]);
        assert_eq!(order(&place, &[None, None], 1), [(1, "ext4", None)]);
    }

    #[test]
    fn what_cannot_be_is_refused_before_any_work() {
        let refused = |place: &Place, policy| plan(place, &[policy], 1).unwrap_err().to_string();
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
