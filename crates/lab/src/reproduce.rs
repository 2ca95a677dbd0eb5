//! The published experiments, repeated beside their figures.
//!
//! An [`ExperimentName`] stands for one or two published documents. Each has a module here with the comparisons it
//! needs (`setup::Setup`), what it measures on the flash model, and the published claims as data: where they
//! stand, their figures, and what they say to be larger than what. The verdicts follow from those
//! ([`Claim::judge`](trimtab_core::document::reproduce::Claim::judge)).

mod czerner;
mod datalight;
mod draft;
mod drives;
mod kernel;
mod measured;
mod model;
mod nagel;
mod progress;
mod purdea;
mod setup;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use trimtab_core::document::reproduce::{ChartPair, Claim, Experiment, Source};
use trimtab_core::document::{Engine, REPRODUCE_SCHEMA, ReproduceDocument};
use trimtab_core::error::chain;
use trimtab_core::interrupt::{Interrupt, Interrupted};
use trimtab_core::profile::Profile;
use trimtab_linux::PROCFS;
use trimtab_linux::environment::environment;

use self::measured::Measured;
use self::progress::Parts;
use self::setup::Setup;
use crate::compare::{CompareError, compare};
use crate::error::LabError;
use crate::progress::Progress;
use trimtab_guest::KernelChoice;
use trimtab_linux::environment::processors;

/// The options of a reproduction.
#[derive(Debug, Clone)]
pub struct ReproduceOptions {
    /// The experiments, in this order.
    pub experiments: Vec<ExperimentName>,
    /// Where the file systems are.
    pub place: ReproducePlace,
    /// The engine that runs the guests.
    pub engine: Engine,
    /// Their kernel in QEMU.
    pub kernel: KernelChoice,
    /// The wall time after which a guest counts as hung.
    pub limit: Duration,
    /// The executable that guests run: trimtab itself.
    pub program: PathBuf,
    /// The command line, for the document.
    pub command: Vec<String>,
}

/// Where the file systems of a reproduction are.
#[derive(Debug, Clone)]
pub enum ReproducePlace {
    /// On emulated drives.
    Emulated {
        /// A drive in place of those of the documents: its profile, and that as text.
        drive: Option<(Box<Profile>, String)>,
        /// Drive seconds per second of this machine's clock, for runs here; without it, guests in virtual time.
        speed: Option<f64>,
    },
    /// In a directory of the user's: only the policies that its mount allows are measured, and no workload that
    /// makes or unmounts its file system.
    Directory {
        /// The directory.
        dir: PathBuf,
        /// The directory of the service's sockets, to check that the service does not trim this one too.
        service: PathBuf,
    },
}

impl ReproducePlace {
    /// How many comparisons may be made side by side. Guests share the processors among them, and their clocks
    /// do not show it.
    fn at_once(&self) -> usize {
        match self {
            Self::Emulated { speed: None, .. } => processors(),
            Self::Emulated { speed: Some(_), .. } | Self::Directory { .. } => 1,
        }
    }
}

/// An experiment that can be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExperimentName {
    /// P. Nagel's kernel tree.
    NagelTree,
    /// A. Purdea's sizes.
    PurdeaSizes,
    /// L. Czerner's evaluation.
    Czerner,
    /// Datalight's fragmentation tests.
    Datalight,
    /// Later changes of the kernel.
    KernelChanges,
    /// Published measurements of drives, beside the flash model alone.
    Drives,
}

/// A name that is no experiment's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no experiment {name:?}; there are nagel-tree, purdea-sizes, czerner, datalight, kernel-changes, drives"
)]
pub struct UnknownExperiment {
    /// The name that was given.
    pub name: String,
}

/// The parts of an experiment.
struct Definition {
    summary: &'static str,
    sources: fn() -> Vec<Source>,
    replaced: &'static [&'static str],
    setups: fn() -> Vec<Setup>,
    model: fn(&mut Measured, &Interrupt) -> Result<(), LabError>,
    claims: fn(&Measured) -> Vec<Claim>,
    charts: fn(&Measured) -> Vec<ChartPair>,
}

impl ExperimentName {
    /// All of them, in the order of `--all`.
    pub const ALL: [Self; 6] = [
        Self::NagelTree,
        Self::PurdeaSizes,
        Self::Czerner,
        Self::Datalight,
        Self::KernelChanges,
        Self::Drives,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NagelTree => "nagel-tree",
            Self::PurdeaSizes => "purdea-sizes",
            Self::Czerner => "czerner",
            Self::Datalight => "datalight",
            Self::KernelChanges => "kernel-changes",
            Self::Drives => "drives",
        }
    }

    /// The test, in a sentence.
    pub fn summary(self) -> &'static str {
        self.definition().summary
    }

    /// The published documents.
    pub fn sources(self) -> Vec<Source> {
        (self.definition().sources)()
    }

    const fn definition(self) -> &'static Definition {
        match self {
            Self::NagelTree => &nagel::DEFINITION,
            Self::PurdeaSizes => &purdea::DEFINITION,
            Self::Czerner => &czerner::DEFINITION,
            Self::Datalight => &datalight::DEFINITION,
            Self::KernelChanges => &kernel::DEFINITION,
            Self::Drives => &drives::DEFINITION,
        }
    }
}

impl fmt::Display for ExperimentName {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ExperimentName {
    type Err = UnknownExperiment;
    fn from_str(name: &str) -> Result<Self, UnknownExperiment> {
        let found = Self::ALL.into_iter().find(|experiment| experiment.name() == name);
        found.ok_or_else(|| UnknownExperiment { name: name.to_owned() })
    }
}

/// Repeats the experiments and returns the document. `save` is called with the document so far after every
/// comparison.
///
/// A run that fails or is interrupted ends the reproduction: the document then says so in `stopped`, and claims
/// that need what was not measured say that.
///
/// # Errors
/// Errors before the first run starts, and those of `save`.
pub fn reproduce(
    options: &ReproduceOptions,
    interrupt: &Interrupt,
    progress: &mut (dyn Progress + Send),
    save: &mut dyn FnMut(&ReproduceDocument) -> io::Result<()>,
) -> Result<ReproduceDocument, CompareError> {
    let mut document = ReproduceDocument {
        schema: REPRODUCE_SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: options.command.clone(),
        started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        environment: environment(Path::new(PROCFS)).map_err(LabError::from)?,
        experiments: Vec::new(),
        stopped: Some(Interrupted.to_string()),
    };
    save(&document)?;
    let planned = |name: &ExperimentName| setup::possible(options, (name.definition().setups)());
    let plans = options.experiments.iter().map(planned).collect::<Result<Vec<_>, _>>()?;
    let progress = Parts::new(progress, plans.iter().flatten().map(Setup::runs).sum());
    for (name, setups) in options.experiments.iter().zip(plans) {
        let stopped = repeat(*name, setups, options, interrupt, &progress, &mut |experiment| {
            document.experiments.retain(|other| other.name != experiment.name);
            document.experiments.push(experiment);
            save(&document)
        })?;
        if stopped.is_some() {
            document.stopped = stopped;
            save(&document)?;
            return Ok(document);
        }
    }
    document.stopped = None;
    save(&document)?;
    Ok(document)
}

/// Repeats one experiment, with `keep` called after each comparison; returns why it stopped, if it did.
fn repeat(
    name: ExperimentName,
    setups: Vec<Setup>,
    options: &ReproduceOptions,
    interrupt: &Interrupt,
    progress: &Parts,
    keep: &mut dyn FnMut(Experiment) -> io::Result<()>,
) -> Result<Option<String>, CompareError> {
    let (definition, started) = (name.definition(), Instant::now());
    let mut measured = Measured::default();
    (definition.model)(&mut measured, interrupt)?;
    let runs_file_systems = !(definition.setups)().is_empty();
    let finish = |measured: &Measured| {
        let mut replaced: Vec<_> = definition.replaced.iter().map(|&text| text.to_owned()).collect();
        replaced.extend(setup::replaced(options).filter(|_| runs_file_systems));
        Experiment {
            name: name.to_string(),
            summary: definition.summary.to_owned(),
            sources: (definition.sources)(),
            replaced,
            claims: (definition.claims)(measured),
            charts: (definition.charts)(measured),
            comparisons: measured.comparisons().cloned().collect(),
            wall_s: started.elapsed().as_secs_f64(),
        }
    };
    keep(finish(&measured))?;
    if interrupt.is_set() {
        return Ok(Some(Interrupted.to_string()));
    }
    let next = Mutex::new(setups.iter().enumerate());
    // Ends the comparisons that are under way if one fails, or if the user interrupts.
    let stop = interrupt.child();
    let (ended, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..options.place.at_once() {
            let (ended, next, stop) = (ended.clone(), &next, &stop);
            scope.spawn(move || {
                while let Some((place, setup)) = next.lock().ok().and_then(|mut next| next.next())
                    && !stop.is_set()
                {
                    let result = setup.options(options).map_err(CompareError::from);
                    let result =
                        result.and_then(|setup| compare(setup, stop, &mut &*progress, &mut |_| Ok(())));
                    let _ = ended.send((place, setup.name, result));
                }
            });
        }
        drop(ended);
        let mut outcome = Ok(None);
        for (place, name, result) in results {
            let result = match result {
                Ok(comparison) => {
                    let stopped = comparison.stopped.clone();
                    measured.add(place, name, comparison);
                    keep(finish(&measured)).map(|()| stopped).map_err(CompareError::from)
                }
                Err(CompareError::Lab(_)) if interrupt.is_set() => Ok(Some(Interrupted.to_string())),
                // The first comparison shows whether this machine can do any.
                Err(CompareError::Lab(error)) if measured.comparisons().next().is_some() => {
                    Ok(Some(chain(&error)))
                }
                Err(error) => Err(error),
            };
            // What follows the first that stopped was stopped by it.
            if matches!(outcome, Ok(None)) && !matches!(result, Ok(None)) {
                stop.ask();
                outcome = result;
            }
        }
        outcome
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use trimtab_core::document::reproduce::Verdict;

    use super::*;

    #[test]
    fn every_claim_names_a_source_and_a_paragraph_of_its_experiment() {
        for name in ExperimentName::ALL {
            let sources: BTreeSet<_> = name.sources().into_iter().map(|source| source.key).collect();
            let claims = (name.definition().claims)(&Measured::default());
            assert!(!claims.is_empty());
            let mut cited = BTreeSet::new();
            for claim in &claims {
                assert!(!claim.places.is_empty(), "{}", claim.says);
                for place in &claim.places {
                    assert!(sources.contains(&place.source), "{name}: {}", place.source);
                    assert!(!place.paragraph.is_empty());
                    cited.insert(place.source.clone());
                }
            }
            assert_eq!(cited, sources, "{name} cites all of its documents");
            let says: BTreeSet<_> = claims.iter().map(|claim| &claim.says).collect();
            assert_eq!(says.len(), claims.len(), "{name} states each claim once");
        }
    }

    #[test]
    fn nothing_is_confirmed_before_anything_is_measured() {
        for name in ExperimentName::ALL {
            for claim in (name.definition().claims)(&Measured::default()) {
                assert!(
                    matches!(claim.verdict, Verdict::NotMeasured | Verdict::Fitted),
                    "{name}: {} is {:?}",
                    claim.says,
                    claim.verdict
                );
            }
        }
    }

    #[test]
    fn setups_of_an_experiment_have_names_of_their_own() {
        for name in ExperimentName::ALL {
            let setups = (name.definition().setups)();
            let names: BTreeSet<_> = setups.iter().map(|setup| setup.name).collect();
            assert_eq!(names.len(), setups.len(), "{name}");
        }
    }

    #[test]
    fn names_are_parsed_and_unknown_ones_refused() {
        for name in ExperimentName::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        let error = "wood".parse::<ExperimentName>().unwrap_err().to_string();
        assert!(error.contains("nagel-tree, purdea-sizes, czerner, datalight"), "{error}");
    }
}
