//! Compares discard policies on a workload, a file system and a drive.
//!
//! [`compare`] plans the runs and keeps their results; `run` does one of them, on a
//! [`Stage`](crate::stage::Stage).

mod plan;
mod run;
mod virtual_time;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use trimtab_core::document::{COMPARE_SCHEMA, Clock, CompareDocument, DriveDescription, Filling, Run};
use trimtab_core::error::chain;
use trimtab_core::policy::PolicyChoice;
use trimtab_core::profile::{Profile, builtin_text};
use trimtab_core::{Bytes, distinct};
use trimtab_ftl::Device;
use trimtab_linux::PROCFS;
use trimtab_linux::environment::environment;

pub use virtual_time::VirtualOptions;

use self::plan::{Planned, Site, plan, require_rights, require_trims, require_unmanaged};
use self::run::{RunOptions, run};
use self::virtual_time::VirtualLab;
use crate::error::LabError;
use crate::fs::FileSystem;
use crate::progress::Progress;
use crate::testbed::{DirectoryTestbed, EmulatedOptions, EmulatedTestbed, Testbed};
use crate::workload::{Scope, Workload, WorkloadOptions};
use trimtab_core::interrupt::{Interrupt, Interrupted};

/// The options of a comparison.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    /// Where the runs happen.
    pub place: Place,
    /// The policies. If empty: none, online, batched and smart on an emulated drive, and all that its mount
    /// allows in a directory.
    pub policies: Vec<PolicyChoice>,
    /// The lengths of the workload's pauses, in drive time. A workload without pauses is run once, whatever
    /// the lengths.
    pub idle: Vec<Duration>,
    /// The workload.
    pub workload: WorkloadOptions,
    /// How often each is run.
    pub runs: u32,
    /// How many writers do the workload at the same time, each a part of it in a directory of its own.
    pub writers: u32,
    /// Makes file contents and trees the same at every run.
    pub seed: u64,
    /// Drive time from one read of the probe to the next; none for no probe.
    pub probe_interval: Option<Duration>,
    /// The drive profile that the service is given.
    pub smart_profile: SmartProfile,
    /// Whether the kernel may merge adjacent requests to the emulated drive.
    pub merges: bool,
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
    /// The clock of guests, which skips idle time and does not depend on how busy this machine is. For
    /// emulated drives only.
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
        /// How file systems are filled before the workload begins, and the most space that it uses; without this, they are
        /// new, and all of them is the workload's.
        filling: Option<Filling>,
        /// The file systems.
        file_systems: Vec<FileSystem>,
    },
    /// In a directory of the user's, as it is mounted.
    Directory {
        /// The directory.
        dir: PathBuf,
        /// The most space the workload may use.
        room: Bytes,
        /// The directory of the service's sockets, to check that the service does not trim this directory
        /// too.
        service: PathBuf,
    },
}

impl Place {
    /// The size of the drive, or the most space that the workload may and can use there.
    fn size(&self) -> Bytes {
        match self {
            Self::Emulated { size, filling, .. } => filling.map_or(*size, |filling| filling.room),
            Self::Directory { dir, room, .. } => {
                let free = rustix::fs::statvfs(dir).map(|stat| Bytes(stat.f_bavail * stat.f_frsize));
                free.map_or(*room, |free| free.min(*room))
            }
        }
    }
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

/// Runs every policy on every file system with every length of pauses, interleaved, and returns the
/// document. `save` is called with the document so far before the first run and after each.
///
/// A run that fails or is interrupted ends the comparison: the document then says so in `stopped`
/// and holds the runs before it.
///
/// # Errors
/// Errors before the first run starts, and those of `save`.
pub fn compare(
    options: CompareOptions,
    interrupt: &Interrupt,
    progress: &mut dyn Progress,
    save: &mut dyn FnMut(&CompareDocument) -> io::Result<()>,
) -> Result<CompareDocument, CompareError> {
    let scope = Scope { seed: options.seed, size: options.place.size(), writers: options.writers };
    let workload = options.workload.clone().prepare(scope, interrupt)?;
    let description = workload.description();
    let idle = if description.has_pauses { options.idle.clone() } else { vec![Duration::ZERO] };
    if let Place::Emulated { filling: Some(_), .. } = options.place
        && options.workload.needs_new_file_system()
    {
        return Err(LabError::NeedsNewFileSystem { workload: description.name }.into());
    }
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
    let runner = Runner::prepare(&options, smart_toml.as_deref(), interrupt, progress)?;
    let mut document = CompareDocument {
        schema: COMPARE_SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: options.command.clone(),
        started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        environment,
        clock: runner.clock(),
        drive,
        filling: match options.place {
            Place::Emulated { filling, .. } => filling,
            Place::Directory { .. } => None,
        },
        smart_profile: smart_name,
        merges: options.merges,
        workload: description,
        writers: options.writers,
        probe_interval_s: options.probe_interval.as_ref().map(Duration::as_secs_f64),
        runs_asked: options.runs,
        runs: Vec::new(),
        stopped: Some(Interrupted.to_string()),
    };
    save(&document)?;
    progress.planned(plan.len());
    // Guests end in any order; the document keeps the plan's.
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
                merges: options.merges,
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

/// Does the runs.
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
        progress: &mut dyn Progress,
    ) -> Result<Self, LabError> {
        match (&options.timing, &options.place) {
            (Timing::Virtual(guests), Place::Emulated { profile_toml, file_systems, .. }) => {
                let file_systems = distinct(file_systems.iter().copied());
                let lab = VirtualLab::prepare(
                    options,
                    guests,
                    profile_toml,
                    smart_profile,
                    &file_systems,
                    interrupt,
                    progress,
                )?;
                Ok(Self::Virtual(lab))
            }
            (Timing::Virtual(_), Place::Directory { .. }) => Ok(Self::Real { speed: 1.0 }),
            (Timing::Real { speed }, _) => Ok(Self::Real { speed: *speed }),
        }
    }

    fn clock(&self) -> Clock {
        match self {
            Self::Virtual(lab) => Clock::Virtual { kernel: lab.release().to_owned(), engine: lab.engine() },
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

/// Returns the name and the text of the profile that the service is given; `None` if it chooses one itself, as
/// it does in a directory of the user's.
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
        Site::Emulated { file_system, profile, size, filling } => {
            Box::new(EmulatedTestbed::create(EmulatedOptions {
                file_system,
                policy: options.policy.kind(),
                speed: options.speed,
                profile,
                size,
                filling,
                merges: options.merges,
                server: options.program,
            })?)
        }
        Site::Directory { dir, room } => Box::new(DirectoryTestbed::create(dir, room)?),
    };
    progress.run_started(testbed.file_system(), options.policy, options.idle, options.run);
    run(workload, options, testbed.as_mut(), interrupt, progress)
}
