//! Plans a simulation: checks the options against the trace.

mod notes;

use std::path::Path;

use trimtab_core::document::DriveDescription;
use trimtab_core::document::sim::{DiscardsFrom, KindTotal, Passes, ReplayDescription, ReplayedTrace};
use trimtab_core::policy::{PolicyKind, SimPolicy};
use trimtab_core::profile::Profile;
use trimtab_core::stats::STEADY_WINDOW;
use trimtab_core::trace::{DeviceIndex, EventKind, TraceHeader};
use trimtab_core::{Bytes, Extent, Nanos, distinct};
use trimtab_ftl::replay::{DeviceSurvey, Scale, TraceSurvey};
use trimtab_ftl::{FtlConfig, GeometryError};
use trimtab_host::environment::{EnvironmentError, available_memory, processors};
use trimtab_host::{CGROUPS, PROCFS};

use super::tiles::TileLayout;
use super::{ASSUMED_ENDURANCE, SimulateOptions};

/// Why something can't be simulated with a trace.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// It has no events.
    #[error("the trace has no events")]
    Empty,
    /// It has no such device.
    #[error("the trace has no device {name:?}; it has {devices}")]
    NoDevice {
        /// The name that was given.
        name: String,
        /// The devices of the trace.
        devices: String,
    },
    /// It has several that could be meant.
    #[error("the trace has several devices: {devices}; choose one with --device NAME")]
    WhichDevice {
        /// The candidates, with the bytes written to each.
        devices: String,
    },
    /// An extent reaches past the drive's end.
    #[error(
        "row {row} of the trace names the bytes {extent}, but a drive of {size} ends at byte {}; use a \
         larger --size, or --scale-to {}",
        size.0,
        argument(*size)
    )]
    PastEnd {
        /// The row, from 1.
        row: u64,
        /// The bytes that it names.
        extent: Extent,
        /// The drive's size.
        size: Bytes,
    },
    /// The policy needs frees.
    #[error(
        "the trace has no free events, so it is unknown what {policy} would discard; use --policy {possible}, or add frees \
         (trimtab trace synth)"
    )]
    NoFrees {
        /// The policy.
        policy: SimPolicy,
        /// The possible values.
        possible: &'static str,
    },
    /// The policy is a file system's own.
    #[error("async is btrfs's own and can't be simulated; ask for --policy none,online,batched,smart,ideal")]
    Async,
    /// The profile has no drive of this size.
    #[error("profile {profile} cannot be scaled to {size} (another size: --size or --scale-to)")]
    Geometry {
        /// The profile's name.
        profile: String,
        /// The size.
        size: Bytes,
        /// Why.
        source: GeometryError,
    },
    /// The machine doesn't say how much memory it has.
    #[error(transparent)]
    Machine(#[from] EnvironmentError),
    /// The machine has too little memory for the drive's tables.
    #[error(
        "a {profile} of {size} needs {needed} of memory, but {available} are available; take a smaller \
         drive (--scale-to) or fewer --tiles"
    )]
    Memory {
        /// The profile's name.
        profile: String,
        /// The size.
        size: Bytes,
        /// The memory that its tables need.
        needed: Bytes,
        /// The memory that is available.
        available: Bytes,
    },
}

/// A simulation that can be run.
pub(crate) struct Plan {
    pub(crate) device: DeviceIndex,
    pub(crate) trace: ReplayedTrace,
    pub(crate) description: ReplayDescription,
    pub(crate) size: Bytes,
    pub(crate) scale: Option<Scale>,
    pub(crate) tiles: Option<TileLayout>,
    /// How long a pass takes, in the trace's time.
    pub(crate) pass_span: Nanos,
    pub(crate) drives: Vec<DriveDescription>,
    pub(crate) policies: Vec<SimPolicy>,
    pub(crate) notes: Vec<String>,
    /// How many replays go at a time.
    pub(crate) workers: usize,
}

impl Plan {
    /// The least passes that a replay takes.
    pub(crate) fn least_passes(&self) -> u32 {
        match self.description.passes {
            Passes::Count(count) => count,
            Passes::UntilSteady(most) => most.min(STEADY_WINDOW as u32),
        }
    }

    /// Where the discards of a policy come from.
    pub(crate) fn discards_from(&self, policy: SimPolicy) -> DiscardsFrom {
        let own = self.trace.count(EventKind::Discard) + self.trace.count(EventKind::SecureErase) > 0;
        match policy {
            SimPolicy::Ideal => DiscardsFrom::Ideal,
            policy if own && policy.is(PolicyKind::Online) => DiscardsFrom::Trace,
            SimPolicy::Real(_) => DiscardsFrom::Frees,
        }
    }
}

/// Plans what `options` ask for.
pub(crate) fn plan(
    options: &SimulateOptions,
    header: &TraceHeader,
    survey: &TraceSurvey,
) -> Result<Plan, PlanError> {
    let device = device(options.device.as_deref(), header, survey)?;
    let surveyed = &survey.devices[usize::from(device.0)];
    let header_size = header.devices.get(usize::from(device.0)).map_or(Bytes::ZERO, |device| device.size);
    let traced = if header_size == Bytes::ZERO { whole_gib(surveyed.end()) } else { header_size };
    let tiles = options.tiling.map(|tiling| TileLayout::new(tiling, traced, survey.span));
    let copy = options.scale_to.or(options.size).unwrap_or(traced);
    if let (None, Some((row, extent))) = (options.scale_to, surveyed.furthest)
        && extent.end > copy
    {
        return Err(PlanError::PastEnd { row, extent, size: copy });
    }
    let size = tiles.map_or(copy, |layout| layout.size());
    let pass_span = tiles.map_or(survey.span, |layout| layout.pass_span());
    let policies = policies(&options.policies, surveyed)?;
    let drives = options.drives.iter().map(|(profile, toml)| describe(profile, toml, size));
    let drives = drives.collect::<Result<_, _>>()?;
    let kinds = EventKind::ALL.into_iter().map(|kind| KindTotal {
        kind,
        count: surveyed.count(kind),
        bytes: surveyed.bytes[kind as usize],
    });
    Ok(Plan {
        device,
        trace: ReplayedTrace {
            path: options.trace.display().to_string(),
            header: header.clone(),
            device: name(device, header),
            size: traced,
            span_ns: survey.span,
            kinds: kinds.filter(|total| total.count > 0).collect(),
        },
        description: ReplayDescription {
            scaled_to: options.scale_to,
            tiling: options.tiling,
            passes: options.passes,
            preconditioned: options.preconditioned,
            endurance_cycles: options.endurance.unwrap_or(ASSUMED_ENDURANCE),
            endurance_assumed: options.endurance.is_none(),
            clocks: options.clocks,
            seed: options.seed,
        },
        size,
        scale: options.scale_to.map(|to| Scale { from: traced, to }),
        tiles,
        pass_span,
        drives,
        notes: notes::notes(&notes::Facts {
            options,
            header,
            surveyed,
            header_size,
            traced,
            size,
            span: pass_span,
            policies: &policies,
        }),
        policies,
        workers: workers(&options.drives, size)?,
    })
}

/// Returns the device to replay: the one named `wanted`, else the only one that is written, or the only one
/// with events if none is written.
fn device(
    wanted: Option<&str>,
    header: &TraceHeader,
    survey: &TraceSurvey,
) -> Result<DeviceIndex, PlanError> {
    let all = || (0..survey.devices.len() as u16).map(DeviceIndex);
    let surveyed = |device: DeviceIndex| &survey.devices[usize::from(device.0)];
    if let Some(wanted) = wanted {
        return all().find(|device| name(*device, header) == wanted).ok_or_else(|| PlanError::NoDevice {
            name: wanted.to_owned(),
            devices: all().map(|device| name(device, header)).collect::<Vec<_>>().join(", "),
        });
    }
    let used: Vec<_> = all().filter(|device| surveyed(*device).total() > 0).collect();
    let written: Vec<_> = used.iter().copied().filter(|it| surveyed(*it).written() > Bytes::ZERO).collect();
    match (written.as_slice(), used.as_slice()) {
        (_, []) => Err(PlanError::Empty),
        ([only], _) | ([], [only]) => Ok(*only),
        (_, several) => {
            let listed = several.iter().map(|device| {
                format!("{} ({} written)", name(*device, header), approximately(surveyed(*device).written()))
            });
            Err(PlanError::WhichDevice { devices: listed.collect::<Vec<_>>().join(", ") })
        }
    }
}

fn name(device: DeviceIndex, header: &TraceHeader) -> String {
    let known = header.devices.get(usize::from(device.0)).map(|device| device.name.clone());
    known.unwrap_or_else(|| device.0.to_string())
}

/// A size in words, to a tenth of its unit.
fn approximately(size: Bytes) -> String {
    let unit = [Bytes::GIB, Bytes::MIB, Bytes::KIB].into_iter().find(|unit| size >= *unit);
    unit.map_or(size, |unit| Bytes((size.0 / (unit.0 / 10).max(1)) * (unit.0 / 10).max(1))).to_string()
}

fn whole_gib(size: Bytes) -> Bytes {
    Bytes::GIB * size.0.max(1).div_ceil(Bytes::GIB.0)
}

/// Returns the policies in `asked`, or, if there are none, all that this trace has the events for.
fn policies(asked: &[SimPolicy], surveyed: &DeviceSurvey) -> Result<Vec<SimPolicy>, PlanError> {
    let (possible, named): (&[PolicyKind], _) = match (has_frees(surveyed), has_discards(surveyed)) {
        (true, _) => (
            &[PolicyKind::None, PolicyKind::Online, PolicyKind::Batched, PolicyKind::Smart],
            "none,online,batched,smart,ideal",
        ),
        (false, true) => (&[PolicyKind::None, PolicyKind::Online], "none,online,ideal"),
        (false, false) => (&[PolicyKind::None], "none"),
    };
    let mut all: Vec<_> = possible.iter().map(|kind| SimPolicy::from(*kind)).collect();
    if has_frees(surveyed) || has_discards(surveyed) {
        all.push(SimPolicy::Ideal);
    }
    for &policy in asked {
        if policy.is(PolicyKind::Async) {
            return Err(PlanError::Async);
        }
        let is_possible = match policy {
            SimPolicy::Ideal => all.contains(&policy),
            SimPolicy::Real(choice) => possible.contains(&choice.kind()),
        };
        if !is_possible {
            return Err(PlanError::NoFrees { policy, possible: named });
        }
    }
    Ok(if asked.is_empty() { all } else { distinct(asked.iter().copied()) })
}

/// Whether anything was freed on the device, or known to be free: a trace with frees may not know those
/// of every device.
fn has_frees(surveyed: &DeviceSurvey) -> bool {
    surveyed.count(EventKind::Free) + surveyed.count(EventKind::Unused) > 0
}

fn has_discards(surveyed: &DeviceSurvey) -> bool {
    surveyed.count(EventKind::Discard) + surveyed.count(EventKind::SecureErase) > 0
}

fn geometry(profile: &Profile, size: Bytes) -> Result<FtlConfig, PlanError> {
    FtlConfig::of_drive(profile, size).map_err(|source| PlanError::Geometry {
        profile: profile.name.clone(),
        size,
        source,
    })
}

fn describe(profile: &Profile, toml: &str, size: Bytes) -> Result<DriveDescription, PlanError> {
    Ok(DriveDescription {
        profile: profile.name.clone(),
        model: profile.model.clone(),
        size,
        effective_spare: geometry(profile, size)?.effective_spare(),
        erase_block: profile.geometry.erase_block.value,
        profile_toml: toml.to_owned(),
    })
}

/// How many replays can go at a time: one a processor, as far as the memory reaches.
fn workers(drives: &[(Profile, String)], size: Bytes) -> Result<usize, PlanError> {
    let available = available_memory(Path::new(PROCFS), Path::new(CGROUPS))?;
    let mut workers = processors();
    for (profile, _) in drives {
        let needed = memory(profile, size)?;
        if needed > available {
            return Err(PlanError::Memory { profile: profile.name.clone(), size, needed, available });
        }
        workers = workers.min((available.0 / needed.0.max(1)) as usize);
    }
    Ok(workers.max(1))
}

/// The most memory that a replay's tables take: both maps, valid bits, and what is kept of each block; and a bit for each
/// sector. They take it by what is written, which of a large drive may be little.
pub(crate) fn memory(profile: &Profile, size: Bytes) -> Result<Bytes, PlanError> {
    let config = geometry(profile, size)?;
    let tables = u64::from(config.blocks) * (u64::from(config.pages_per_block) * 17 / 2 + 32);
    Ok(Bytes(tables + size.0 / 512 / 8))
}

/// A size as an argument of a command line: in the largest unit that it is whole in, in one word.
fn argument(size: Bytes) -> String {
    let units = [("GiB", Bytes::GIB), ("MiB", Bytes::MIB), ("KiB", Bytes::KIB)];
    let whole = units.into_iter().find(|(_, unit)| size.0.is_multiple_of(unit.0));
    whole.map_or_else(|| format!("{}B", size.0), |(name, unit)| format!("{}{name}", size.0 / unit.0))
}
