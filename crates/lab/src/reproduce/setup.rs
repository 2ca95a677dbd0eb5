//! The comparisons that experiments need.

use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_core::policy::{PolicyChoice, PolicyKind};
use trimtab_core::profile::{Profile, builtin_text};

use super::{ReproduceOptions, ReproducePlace};
use crate::compare::{CompareOptions, Place, SmartProfile, Timing, VirtualOptions};
use crate::error::LabError;
use crate::fs::FileSystem;
use crate::testbed::{mount_of, possible_policies};
use crate::workload::WorkloadOptions;

/// The seed of contents and trees.
const SEED: u64 = 1;

/// A comparison that an experiment needs.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    /// The name by which claims ask for its runs.
    pub name: &'static str,
    /// The built-in profile of the emulated drive.
    pub profile: &'static str,
    /// The drive's size.
    pub size: Bytes,
    /// The file systems.
    pub file_systems: Vec<FileSystem>,
    /// The policies.
    pub policies: Vec<PolicyChoice>,
    /// The length of the workload's pauses.
    pub idle: Duration,
    /// The workload.
    pub workload: WorkloadOptions,
    /// From one read of the probe to the next.
    pub probe: Duration,
    /// Whether the kernel may merge adjacent requests.
    pub merges: bool,
}

impl Setup {
    /// A comparison of `policies` on ext4 with pauses of a minute, on a drive of 512 MiB.
    pub fn new(
        name: &'static str,
        profile: &'static str,
        policies: &[PolicyKind],
        workload: WorkloadOptions,
    ) -> Self {
        Self {
            name,
            profile,
            size: Bytes(512 << 20),
            file_systems: vec![FileSystem::Ext4],
            policies: policies.iter().copied().map(PolicyChoice::from).collect(),
            idle: Duration::from_secs(60),
            probe: workload.probe_interval(),
            workload,
            merges: true,
        }
    }

    /// The same with pauses of this length.
    pub fn pausing(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }

    /// The same with a read of the probe every `interval`.
    pub fn probed(self, interval: Duration) -> Self {
        Self { probe: interval, ..self }
    }

    /// The same with each request sent to the drive as the file system submits it.
    pub fn unmerged(self) -> Self {
        Self { merges: false, ..self }
    }

    /// The same on these file systems.
    pub fn on(self, file_systems: &[FileSystem]) -> Self {
        Self { file_systems: file_systems.to_vec(), ..self }
    }

    /// The same on a drive of this size.
    pub fn sized(self, size: Bytes) -> Self {
        Self { size, ..self }
    }

    /// How many runs it takes.
    pub fn runs(&self) -> usize {
        self.file_systems.len() * self.policies.len()
    }

    /// The options of the comparison.
    ///
    /// # Errors
    /// A built-in profile that is missing, which a test rules out.
    pub fn options(&self, options: &ReproduceOptions) -> Result<CompareOptions, LabError> {
        let emulated = |profile: Box<Profile>, profile_toml: String| Place::Emulated {
            profile,
            profile_toml,
            size: self.size,
            filling: None,
            file_systems: self.file_systems.clone(),
        };
        let (place, timing) = match &options.place {
            ReproducePlace::Directory { dir, service } => {
                let place = Place::Directory { dir: dir.clone(), room: self.size, service: service.clone() };
                (place, Timing::Real { speed: 1.0 })
            }
            ReproducePlace::Emulated { drive, speed } => {
                let place = match drive {
                    Some((profile, text)) => emulated(profile.clone(), text.clone()),
                    None => emulated(
                        Box::new(Profile::named(self.profile)?),
                        builtin_text(self.profile)?.to_owned(),
                    ),
                };
                let guests = VirtualOptions {
                    engine: options.engine,
                    kernel: options.kernel.clone(),
                    files: Vec::new(),
                    limit: options.limit,
                };
                (place, speed.map_or(Timing::Virtual(guests), |speed| Timing::Real { speed }))
            }
        };
        Ok(CompareOptions {
            place,
            policies: self.policies.clone(),
            idle: vec![self.idle],
            probe_interval: Some(self.probe),
            workload: self.workload.clone(),
            runs: 1,
            writers: 1,
            seed: SEED,
            smart_profile: SmartProfile::Guessed,
            merges: self.merges,
            timing,
            program: options.program.clone(),
            command: options.command.clone(),
        })
    }
}

/// The setups that are possible where the file systems are: all on emulated drives; in a directory, one for each
/// workload, with the policies that its mount allows.
///
/// # Errors
/// [`LabError::File`] if the directory isn't one.
pub(super) fn possible(options: &ReproduceOptions, setups: Vec<Setup>) -> Result<Vec<Setup>, LabError> {
    let ReproducePlace::Directory { dir, .. } = &options.place else { return Ok(setups) };
    let mount = mount_of(dir)?;
    let allowed = possible_policies(&mount);
    let is_of_mount = |setup: &Setup| setup.file_systems.iter().any(|fs| fs.name() == mount.fstype);
    let mut possible: Vec<Setup> = Vec::new();
    for mut setup in setups.into_iter().filter(is_of_mount) {
        setup.policies.retain(|policy| allowed.contains(&policy.kind()));
        setup.file_systems.retain(|fs| fs.name() == mount.fstype);
        let is_done = possible.iter().any(|other| other.workload == setup.workload);
        let unmounts = matches!(setup.workload, WorkloadOptions::Maintenance(_));
        if !setup.policies.is_empty() && !is_done && !unmounts && setup.merges {
            possible.push(setup);
        }
    }
    Ok(possible)
}

/// The replacements that the place of the file systems makes, in sentences.
pub(super) fn replaced(options: &ReproduceOptions) -> Option<String> {
    match &options.place {
        ReproducePlace::Emulated { drive: None, .. } => None,
        ReproducePlace::Emulated { drive: Some((profile, _)), .. } => Some(format!(
            "--drive: every comparison ran on an emulated {} in place of the document's drives, also where a claim compares \
             two of them, which shows nothing then. Figures by the flash model still are of the documents' drives.",
            profile.name
        )),
        ReproducePlace::Directory { dir, .. } => Some(format!(
            "--on: every comparison ran in {} by this machine's clock, with the policies that its mount allows; what \
             needs other policies, or makes or unmounts its file system, was not measured. Figures by the flash model \
             are of the documents' drives.",
            dir.display()
        )),
    }
}
