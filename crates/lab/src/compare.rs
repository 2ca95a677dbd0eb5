//! What each discard policy costs and gains on a workload, a file system and a drive.
//!
//! [`compare`] plans the runs and keeps their results; `run` does one of them. A run has a testbed
//! (the mounted file system), a stage (the workload's activities and pauses, one after the other), a
//! policy host beside it (a trimmer, the service, or nothing), a probe, and a sampler.

mod clock;
mod policy_host;
mod probe;
mod run;
mod service;
mod stage;
mod timeline;
mod trimmer;
mod virtual_time;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use trimtab_core::Bytes;
use trimtab_core::document::status::State;
use trimtab_core::document::{COMPARE_SCHEMA, Clock, CompareDocument, DriveDescription, Run};
use trimtab_core::error::chain;
use trimtab_core::policy::{PolicyChoice, PolicyKind};
use trimtab_core::profile::{Profile, builtin_text};
use trimtab_drive::DriveError;
use trimtab_ftl::Device;
use trimtab_keeper::service::control;
use trimtab_linux::PROCFS;
use trimtab_linux::environment::environment;
use trimtab_linux::trim;

pub use stage::Stage;
pub use virtual_time::VirtualOptions;

use self::run::{RunOptions, run};
use self::virtual_time::VirtualLab;
use crate::error::LabError;
use crate::fs::FileSystem;
use crate::interrupt::{Interrupt, Interrupted};
use crate::progress::Progress;
use crate::testbed::{
    DirectoryTestbed, EmulatedOptions, EmulatedTestbed, Testbed, mount_of, possible_policies,
};
use crate::workload::{Workload, WorkloadOptions};

/// What to compare, and how.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    /// Where the runs happen.
    pub place: Place,
    /// The policies; none means all that make sense at that place.
    pub policies: Vec<PolicyChoice>,
    /// The lengths of the workload's pauses, in drive time. A workload without pauses of its own
    /// is run once, whatever is asked for.
    pub idle: Vec<Duration>,
    /// The workload.
    pub workload: WorkloadOptions,
    /// How often each is run.
    pub runs: u32,
    /// Makes file contents and trees the same at every run.
    pub seed: u64,
    /// Drive time from one read of the probe to the next; none for no probe.
    pub probe_interval: Option<Duration>,
    /// The drive profile that the service is given.
    pub smart_profile: SmartProfile,
    /// The clock that times are read from.
    pub timing: Timing,
    /// The executable that serves drives and runs the service: trimtab itself.
    pub program: PathBuf,
    /// The command line, for the document.
    pub command: Vec<String>,
}

/// The clock that times are read from.
#[derive(Debug, Clone)]
pub enum Timing {
    /// That of guests, which skips idle time and does not depend on how busy this machine is. For emulated
    /// drives only.
    Virtual(VirtualOptions),
    /// This machine's.
    Real {
        /// Drive seconds per second of this machine's clock; 1 in a directory of the user's.
        speed: f64,
    },
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

/// The drive profile that the service is given for the policy `smart`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SmartProfile {
    /// The one that the service chooses on a machine with a drive of that interface.
    Guessed,
    /// The emulated drive's own.
    Exact,
    /// Another one: its name and its text.
    Given(String, String),
}

/// One run to do.
#[derive(Debug, Clone, Copy)]
struct Planned<'a> {
    site: Site<'a>,
    policy: PolicyChoice,
    idle: Duration,
    /// Which repetition, from 1.
    run: u32,
}

/// Where one run happens.
#[derive(Debug, Clone, Copy)]
enum Site<'a> {
    Emulated { file_system: FileSystem, profile: &'a Profile, size: Bytes },
    Directory { dir: &'a Path, room: Bytes },
}

impl Site<'_> {
    /// What progress calls it.
    fn name(&self) -> &'static str {
        match self {
            Self::Emulated { file_system, .. } => file_system.name(),
            Self::Directory { .. } => "directory",
        }
    }
}

/// Runs every policy on every file system with every length of pauses, interleaved, and returns the
/// document. `save` is called with the document so far before the first run and after each.
///
/// A run that fails or is interrupted ends the comparison: the document then says so in `stopped`
/// and holds the runs before it.
///
/// # Errors
/// What is wrong before the first run starts, and the errors of `save`.
pub fn compare(
    options: CompareOptions,
    interrupt: &Interrupt,
    progress: &mut dyn Progress,
    save: &mut dyn FnMut(&CompareDocument) -> io::Result<()>,
) -> Result<CompareDocument, CompareError> {
    let workload = options.workload.clone().prepare(options.seed, interrupt)?;
    let description = workload.description();
    let idle = if description.has_pauses { options.idle.clone() } else { vec![Duration::ZERO] };
    let plan = plan(&options.place, &options.policies, &idle, options.runs)?;
    if let Timing::Real { .. } = options.timing {
        require_rights(&plan)?;
    }
    require_unmanaged(&options.place)?;
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
    let smart_profile = smart_profile(&options)?;
    let (smart_name, smart_toml) = smart_profile.unzip();
    let runner = Runner::prepare(&options, smart_toml.as_deref(), interrupt)?;
    let mut document = CompareDocument {
        schema: COMPARE_SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: options.command.clone(),
        started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        environment,
        clock: runner.clock(),
        drive,
        smart_profile: smart_name,
        workload: description,
        probe_interval_s: options.probe_interval.as_ref().map(Duration::as_secs_f64),
        runs_asked: options.runs,
        runs: Vec::new(),
        stopped: Some(Interrupted.to_string()),
    };
    save(&document)?;
    progress.planned(plan.len());
    // Guests end in any order; the document keeps that of the plan.
    let mut places: Vec<usize> = Vec::new();
    let mut keep = |place: usize, run: Run, progress: &mut dyn Progress| {
        let at = places.partition_point(|other| *other < place);
        places.insert(at, place);
        document.runs.insert(at, run);
        save(&document)?;
        progress.run_finished();
        Ok(())
    };
    let outcome = match &runner {
        Runner::Virtual(lab) => lab.run_all(&plan, interrupt, progress, &mut keep),
        Runner::Real { speed } => {
            let run_options = |planned: &Planned| RunOptions {
                policy: planned.policy,
                idle: planned.idle,
                run: planned.run,
                speed: *speed,
                probe_interval: options.probe_interval,
                smart_profile: smart_toml.as_deref(),
                program: &options.program,
            };
            plan.iter().enumerate().try_for_each(|(place, planned)| {
                let run = run_at(planned.site, run_options(planned), workload.as_ref(), interrupt, progress)?;
                keep(place, run, progress)
            })
        }
    };
    document.stopped = match outcome {
        Ok(()) => None,
        Err(CompareError::Save(error)) => return Err(error.into()),
        Err(CompareError::Lab(_)) if interrupt.is_set() => Some(Interrupted.to_string()),
        Err(CompareError::Lab(error)) => Some(chain(&error)),
    };
    save(&document)?;
    Ok(document)
}

/// What does the runs.
enum Runner<'a> {
    /// Guests.
    Virtual(VirtualLab<'a>),
    /// This machine.
    Real { speed: f64 },
}

impl<'a> Runner<'a> {
    fn prepare(
        options: &'a CompareOptions,
        smart_profile: Option<&str>,
        interrupt: &Interrupt,
    ) -> Result<Self, LabError> {
        match (&options.timing, &options.place) {
            (Timing::Virtual(guests), Place::Emulated { profile_toml, file_systems, .. }) => {
                let file_systems = distinct(file_systems);
                let lab = VirtualLab::prepare(
                    options,
                    guests,
                    profile_toml,
                    smart_profile,
                    &file_systems,
                    interrupt,
                )?;
                Ok(Self::Virtual(lab))
            }
            (Timing::Virtual(_), Place::Directory { .. }) => Ok(Self::Real { speed: 1.0 }),
            (Timing::Real { speed }, _) => Ok(Self::Real { speed: *speed }),
        }
    }

    fn clock(&self) -> Clock {
        match self {
            Self::Virtual(lab) => Clock::Virtual { kernel: lab.release().to_owned() },
            Self::Real { speed } => Clock::Real { speed: *speed },
        }
    }
}

/// Why a comparison did not start or could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// Something is wrong with the request or with the machine.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The document could not be saved.
    #[error("cannot save the results")]
    Save(#[from] io::Error),
}

/// All runs, in order: every repetition goes through all file systems, lengths of pauses and
/// policies, each time starting with another policy, so that drift affects all of them alike.
fn plan<'a>(
    place: &'a Place,
    policies: &[PolicyChoice],
    idle: &[Duration],
    runs: u32,
) -> Result<Vec<Planned<'a>>, LabError> {
    let sites = match place {
        Place::Emulated { profile, size, file_systems, .. } => {
            emulated_sites(profile, *size, file_systems, policies)?
        }
        Place::Directory { dir, room, .. } => {
            let mount = mount_of(dir)?;
            let possible = possible_policies(&mount);
            if let Some(policy) = policies.iter().find(|policy| !possible.contains(&policy.kind())) {
                return Err(LabError::FixedByMount { dir: dir.clone(), policy: policy.kind(), possible });
            }
            let all: Vec<_> = possible.iter().copied().map(PolicyChoice::from).collect();
            let asked = distinct(if policies.is_empty() { &all } else { policies });
            vec![(Site::Directory { dir, room: *room }, asked)]
        }
    };
    let mut plan = Vec::new();
    for run in 1..=runs {
        for (site, policies) in &sites {
            for &idle in &distinct(idle) {
                let (before, after) = policies.split_at((run as usize - 1) % policies.len());
                let turn = after.iter().chain(before);
                plan.extend(turn.map(|&policy| Planned { site: *site, policy, idle, run }));
            }
        }
    }
    Ok(plan)
}

/// The file systems on emulated drives, each with the policies that it has.
fn emulated_sites<'a>(
    profile: &'a Profile,
    size: Bytes,
    file_systems: &[FileSystem],
    policies: &[PolicyChoice],
) -> Result<Vec<(Site<'a>, Vec<PolicyChoice>)>, LabError> {
    let all: Vec<_> = DEFAULT_POLICIES.map(PolicyChoice::from).to_vec();
    let asked = distinct(if policies.is_empty() { &all } else { policies });
    let file_systems = distinct(file_systems);
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
    if let Some(&fs) = file_systems.iter().find(|fs| size < fs.least_size()) {
        return Err(LabError::TooSmall { size, fs, least: fs.least_size() });
    }
    let site = |file_system| Site::Emulated { file_system, profile, size };
    let has = |fs| asked.iter().copied().filter(|policy| !lacks(&fs, policy)).collect();
    Ok(file_systems.iter().map(|&fs| (site(fs), has(fs))).collect())
}

/// The name and the text of the profile that the service is given; none where it chooses one itself,
/// as it does in a directory of the user's.
fn smart_profile(options: &CompareOptions) -> Result<Option<(String, String)>, LabError> {
    Ok(match (&options.smart_profile, &options.place) {
        (SmartProfile::Given(name, toml), _) => Some((name.clone(), toml.clone())),
        (SmartProfile::Exact, Place::Emulated { profile, profile_toml, .. }) => {
            Some((profile.name.clone(), profile_toml.clone()))
        }
        (SmartProfile::Guessed, Place::Emulated { profile, .. }) => {
            let usual = profile.interface.unwrap_or_default().usual_profile();
            Some((usual.to_owned(), builtin_text(usual)?.to_owned()))
        }
        (SmartProfile::Guessed | SmartProfile::Exact, Place::Directory { .. }) => None,
    })
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
            Site::Directory { .. } if TRIMMING.contains(&planned.policy.kind()) => {
                return Err(LabError::TrimNeedsRoot { policy: planned.policy.kind() });
            }
            Site::Directory { .. } => {}
        }
    }
    Ok(())
}

/// Checks that no service trims the user's file system meanwhile.
fn require_unmanaged(place: &Place) -> Result<(), LabError> {
    let Place::Directory { dir, service, .. } = place else { return Ok(()) };
    // No answer: no service.
    let Ok(status) = control::status(service) else { return Ok(()) };
    let device = mount_of(dir)?.source.display().to_string();
    let mut managed = status.file_systems.into_iter().filter(|fs| fs.state != State::Off);
    match managed.find(|fs| fs.device == device) {
        Some(fs) => Err(LabError::Tended { mount: fs.mount }),
        None => Ok(()),
    }
}

/// Checks that the user's file system can be trimmed where a policy will.
fn require_trims(plan: &[Planned]) -> Result<(), LabError> {
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

/// Does one run at its site.
fn run_at(
    site: Site,
    options: RunOptions,
    workload: &dyn Workload,
    interrupt: &Interrupt,
    progress: &mut dyn Progress,
) -> Result<Run, LabError> {
    interrupt.check()?;
    let mut testbed: Box<dyn Testbed> = match site {
        Site::Emulated { file_system, profile, size } => {
            Box::new(EmulatedTestbed::create(EmulatedOptions {
                file_system,
                policy: options.policy.kind(),
                speed: options.speed,
                profile,
                size,
                server: options.program,
            })?)
        }
        Site::Directory { dir, room } => Box::new(DirectoryTestbed::create(dir, room)?),
    };
    progress.run_started(testbed.file_system(), options.policy, options.idle, options.run);
    run(workload, options, testbed.as_mut(), interrupt, progress)
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
