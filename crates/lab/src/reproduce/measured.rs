//! Measurements, by name.

use std::collections::BTreeMap;

use trimtab_core::Bytes;
use trimtab_core::document::reproduce::SizeSeries;
use trimtab_core::document::{CompareDocument, Run, Step};

/// Everything that an experiment has measured so far.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// By the place of their setup.
    comparisons: BTreeMap<usize, (&'static str, CompareDocument)>,
    figures: BTreeMap<String, f64>,
    /// The sweeps over sizes, on the flash model.
    pub sweeps: Vec<SizeSeries>,
}

/// One run, if it was made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell<'a>(Option<&'a Run>);

impl Measured {
    /// Takes the result of the setup `name`, the one at `place` of its experiment.
    pub fn add(&mut self, place: usize, name: &'static str, comparison: CompareDocument) {
        self.comparisons.insert(place, (name, comparison));
    }

    /// All comparisons, in the order of their setups.
    pub fn comparisons(&self) -> impl Iterator<Item = &CompareDocument> {
        self.comparisons.values().map(|(_, comparison)| comparison)
    }

    /// Keeps a figure of the flash model.
    pub fn keep(&mut self, name: impl Into<String>, value: f64) {
        self.figures.insert(name.into(), value);
    }

    /// A figure of the flash model.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.get(name).copied()
    }

    /// The run of a setup on ext4 under a policy.
    pub fn ext4(&self, setup: &str, policy: &str) -> Cell<'_> {
        self.run(setup, "ext4", policy)
    }

    /// The run of a setup on a file system under a policy.
    pub fn run(&self, setup: &str, fs: &str, policy: &str) -> Cell<'_> {
        let (_, comparison) = match self.comparisons.values().find(|(name, _)| *name == setup) {
            Some(found) => found,
            None => return Cell(None),
        };
        Cell(comparison.runs.iter().find(|run| run.fs == fs && run.policy.to_string() == policy))
    }
}

impl Cell<'_> {
    /// The sum of `of` over the steps of these names; `None` if there is no such step, or one that lacks it.
    fn sum(&self, names: &[&str], of: impl Fn(&Step) -> Option<f64>) -> Option<f64> {
        let steps = self.0?.steps.iter().filter(|step| names.contains(&step.name.as_str()));
        let values = steps.map(of).collect::<Option<Vec<_>>>()?;
        (!values.is_empty()).then(|| values.iter().sum())
    }

    /// Seconds of these steps.
    pub fn time(&self, names: &[&str]) -> Option<f64> {
        self.sum(names, |step| Some(step.length_s))
    }

    /// Discards that reached the device in these steps.
    pub fn discards(&self, names: &[&str]) -> Option<f64> {
        self.sum(names, |step| step.is_counted().then_some(step.discards as f64))
    }

    /// Discards of `least` or more, a power of two, that reached the device in these steps.
    pub fn discards_from(&self, names: &[&str], least: Bytes) -> Option<f64> {
        self.count(names, |from| from >= least)
    }

    /// Shorter discards than `least`, a power of two, that reached the device in these steps.
    pub fn discards_below(&self, names: &[&str], least: Bytes) -> Option<f64> {
        self.count(names, |from| from < least)
    }

    /// The discards of these steps in the buckets whose least sizes `is_of` accepts.
    fn count(&self, names: &[&str], is_of: impl Fn(Bytes) -> bool) -> Option<f64> {
        self.sum(names, |step| {
            let buckets = step.discard_histogram.buckets().filter(|bucket| is_of(bucket.from_bytes));
            step.is_counted().then(|| buckets.map(|bucket| bucket.count as f64).sum())
        })
    }

    /// Bytes that those named.
    pub fn discarded(&self, names: &[&str]) -> Option<f64> {
        self.sum(names, |step| step.is_counted().then_some(step.discard_bytes.0 as f64))
    }

    /// Seconds that discards kept the drive busy in these steps.
    pub fn busy(&self, names: &[&str]) -> Option<f64> {
        self.sum(names, |step| step.discard_busy_s)
    }

    /// Bytes that the host wrote in these steps.
    pub fn written(&self, names: &[&str]) -> Option<f64> {
        self.sum(names, |step| step.is_counted().then_some(step.host_bytes.0 as f64))
    }

    /// Erases in these steps.
    pub fn erases(&self, names: &[&str]) -> Option<f64> {
        self.sum(names, |step| Some(step.erases? as f64))
    }

    /// Pages that were programmed beside the host's own in these steps.
    pub fn extra_pages(&self, names: &[&str]) -> Option<f64> {
        self.sum(names, |step| Some(step.programmed_pages? as f64 - step.host_pages? as f64))
    }

    /// Erases of the whole run.
    pub fn all_erases(&self) -> Option<f64> {
        self.0?.steps.iter().map(|step| Some(step.erases? as f64)).sum()
    }

    /// Write amplification of the whole run.
    pub fn waf(&self) -> Option<f64> {
        let programmed: Option<u64> = self.0?.steps.iter().map(|step| step.programmed_pages).sum();
        let host: Option<u64> = self.0?.steps.iter().map(|step| step.host_pages).sum();
        Some(programmed? as f64 / host? as f64).filter(|waf| waf.is_finite())
    }

    /// Bytes a second of the steps of this name.
    pub fn rate(&self, name: &str) -> Option<f64> {
        Some(self.written(&[name])? / self.time(&[name])?)
    }

    /// Seconds that somebody waited.
    pub fn waited(&self) -> Option<f64> {
        Some(self.0?.waited_s())
    }

    /// The longest read of the probe that was due in these steps, in seconds.
    pub fn longest_read(&self, names: &[&str]) -> Option<f64> {
        let steps = self.0?.steps.iter().filter(|step| names.contains(&step.name.as_str()));
        let longest = steps.filter_map(|step| Some(step.probe?.max_ns.seconds()));
        longest.max_by(f64::total_cmp)
    }

    /// Seconds of the FITRIM number `place`; the last one for `None`.
    pub fn trim(&self, place: Option<usize>) -> Option<f64> {
        let trims = &self.0?.trims;
        let trim = place.map_or_else(|| trims.last(), |place| trims.get(place))?;
        Some(trim.length_s)
    }

    /// Seconds of the longest FITRIM.
    pub fn longest_trim(&self) -> Option<f64> {
        self.0?.trims.iter().map(|trim| trim.length_s).max_by(f64::total_cmp)
    }

    /// Seconds of the longest step of this name.
    pub fn longest(&self, name: &str) -> Option<f64> {
        let steps = self.0?.steps.iter().filter(|step| step.name == name);
        steps.map(|step| step.length_s).max_by(f64::total_cmp)
    }

    /// Bytes that the drive holds at the end and the file system does not use.
    pub fn stale(&self) -> Option<f64> {
        Some(self.0?.stale?.0 as f64)
    }
}

/// One over the other; none where one is missing or the second is zero.
pub(super) fn over(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b?).filter(|ratio| ratio.is_finite())
}

/// The first less the second, zero where the second is larger; none where one is missing.
pub(super) fn beyond(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some((a? - b?).max(0.0))
}

/// Their sum; none where one is missing.
pub(super) fn plus(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? + b?)
}
