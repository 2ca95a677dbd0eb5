//! The grid of a sweep, as users write it.

use std::io;
use std::path::{Path, PathBuf};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use trimtab_core::document::sim::{Clocks, PolicyClock};
use trimtab_core::policy::SimPolicy;
use trimtab_core::profile::GcPolicy;
use trimtab_core::{Bytes, distinct};
use trimtab_ftl::synthetic::{SyntheticError, SyntheticOptions};
use trimtab_ftl::{GeometryError, Workload};
use trimtab_host::file::read_regular_text;

/// The longest file that is read as a grid, in bytes.
const MOST_TEXT: u64 = 1 << 20;

/// The default seed and spare factor of a synthetic workload: those of `trimtab sim`.
pub(super) const USUAL_SEED: u64 = 1;
pub(super) const USUAL_SPARE: f64 = 0.127;

/// The state that a drive is brought to before a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriveState {
    /// Nothing: it is empty.
    New,
    /// All of it was written in sequence, and then what the profile says.
    #[default]
    Used,
    /// After that it was overwritten at random, three times or as often as the profile says.
    Aged,
}

impl DriveState {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::New, Self::Used, Self::Aged];

    /// The name that grids use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Used => "used",
            Self::Aged => "aged",
        }
    }
}

/// The values whose combinations are the cells of a sweep. A list that isn't given stands for one value, the default
/// of `trimtab sim`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Grid {
    /// Trace files.
    #[serde(deserialize_with = "filled")]
    pub traces: Vec<PathBuf>,
    /// Drive profiles: built-in names, or files that end in `.toml`.
    #[serde(deserialize_with = "filled")]
    pub profiles: Vec<String>,
    /// Policies; if empty, none, online, batched, smart and ideal.
    #[serde(deserialize_with = "filled")]
    pub policies: Vec<SimPolicy>,
    /// Over-provisioning of the drives, (physical - logical) / logical; if empty, each profile's own.
    #[serde(deserialize_with = "filled")]
    pub over_provisioning: Vec<f64>,
    /// Multiples of the recorded think times.
    #[serde(deserialize_with = "filled")]
    pub think_scale: Vec<f64>,
    /// The states that drives are brought to before.
    #[serde(deserialize_with = "filled")]
    pub states: Vec<DriveState>,
    /// The clock that policies go by.
    pub policy_clock: PolicyClock,
    /// The drives' size; none for the traced device's.
    pub size: Option<Bytes>,
    /// Scale addresses to drives of this size.
    pub scale_to: Option<Bytes>,
    /// The device of the traces; none for the only one that is written.
    pub device: Option<String>,
    /// How often each trace is replayed.
    pub passes: Option<u32>,
    /// Whether passes repeat until write amplification is steady.
    pub until_steady: bool,
    /// Program and erase cycles that a block lasts.
    pub endurance: Option<u32>,
    /// Synthetic workloads.
    #[serde(deserialize_with = "filled")]
    pub workloads: Vec<Workload>,
    /// Effective spare factors of the synthetic workloads' flash.
    #[serde(deserialize_with = "filled")]
    pub spare: Vec<f64>,
    /// Its garbage collectors.
    #[serde(deserialize_with = "filled")]
    pub gc: Vec<GcPolicy>,
    /// Its frontiers for the host.
    #[serde(deserialize_with = "filled")]
    pub streams: Vec<u32>,
    /// Its erase blocks.
    pub blocks: Option<u32>,
    /// Mapping pages in each.
    pub pages_per_block: Option<u32>,
    /// How often the measured part of a synthetic workload writes the drive.
    pub drive_writes: Option<f64>,
    /// Seeds of every draw.
    #[serde(deserialize_with = "filled")]
    pub seeds: Vec<u64>,
}

/// A list with at least one value: an empty one would be a sweep of nothing, and is rather a mistake.
fn filled<'de, D: Deserializer<'de>, T: Deserialize<'de>>(text: D) -> Result<Vec<T>, D::Error> {
    let values = Vec::deserialize(text)?;
    match values.is_empty() {
        true => Err(D::Error::custom("an empty list; leave the key out for its default")),
        false => Ok(values),
    }
}

/// Why a grid is refused.
#[derive(Debug, thiserror::Error)]
pub enum GridError {
    /// It can't be read.
    #[error("cannot read the grid {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It is not TOML.
    #[error("{origin}, line {line}: {message}")]
    Syntax {
        /// The file.
        origin: String,
        /// The line, from 1.
        line: usize,
        /// The reason.
        message: String,
    },
    /// A key or its value is wrong.
    #[error("{origin}: {key}: {message}")]
    Key {
        /// The file.
        origin: String,
        /// The key.
        key: String,
        /// The reason.
        message: String,
    },
}

impl Grid {
    /// Reads a grid from the TOML file `path`, as [`parse`](Self::parse) does.
    ///
    /// # Errors
    /// [`GridError`].
    pub fn read(path: &Path) -> Result<Self, GridError> {
        let failed = |source| GridError::Read { path: path.to_owned(), source };
        Self::parse(&read_regular_text(path, MOST_TEXT).map_err(failed)?, path)
    }

    /// Reads a grid from the text of the TOML file `origin`. Its files are relative to that file's directory.
    ///
    /// # Errors
    /// [`GridError`], which names the key.
    pub fn parse(text: &str, origin: &Path) -> Result<Self, GridError> {
        let name = origin.display().to_string();
        let syntax = |error: toml::de::Error| GridError::Syntax {
            origin: name.clone(),
            line: text[..error.span().map_or(0, |span| span.start)].matches('\n').count() + 1,
            message: error.message().to_owned(),
        };
        let document = toml::Deserializer::parse(text).map_err(syntax)?;
        let mut grid: Self = serde_path_to_error::deserialize(document).map_err(|error| {
            let (path, message) = (error.path().to_string(), error.inner().message().to_owned());
            key_error(&name, &path, message)
        })?;
        let directory = origin.parent().unwrap_or(Path::new(""));
        for trace in &mut grid.traces {
            *trace = directory.join(&trace);
        }
        for profile in grid.profiles.iter_mut().filter(|name| name.ends_with(".toml")) {
            *profile = directory.join(&profile).display().to_string();
        }
        Ok(grid)
    }

    /// Reads a grid from JSON, with the same keys.
    ///
    /// # Errors
    /// [`GridError`], which names the key.
    pub fn from_json(text: &str, origin: &str) -> Result<Self, GridError> {
        let mut document = serde_json::Deserializer::from_str(text);
        serde_path_to_error::deserialize(&mut document).map_err(|error| {
            let message = error.inner().to_string();
            let message = message.split(" at line ").next().unwrap_or_default().to_owned();
            key_error(origin, &error.path().to_string(), message)
        })
    }

    /// Checks the values that no type holds to their limits.
    ///
    /// # Errors
    /// [`GridError::Key`].
    pub fn check(&self, origin: &str) -> Result<(), GridError> {
        let wrong = |key: &str, message: String| Err(key_error(origin, key, message));
        if self.traces.is_empty() && self.workloads.is_empty() {
            return wrong("traces", "the grid names neither traces nor workloads".to_owned());
        }
        let most = Clocks::MOST_THINK_SCALE;
        if let Some(scale) = self.think_scale.iter().find(|scale| !(0.0..=most).contains(*scale)) {
            return wrong("think-scale", format!("{scale} is not between 0 and {most}"));
        }
        if let Some(share) = self.over_provisioning.iter().find(|share| !(**share > 0.0 && **share <= 10.0)) {
            return wrong(
                "over-provisioning",
                format!("{share} must be above 0 and at most 10 (0.07 is 7 %)"),
            );
        }
        if self.size.is_some() && self.scale_to.is_some() {
            return wrong("scale-to", "cannot be used with size".to_owned());
        }
        for (key, size) in [("size", self.size), ("scale-to", self.scale_to)] {
            if size == Some(Bytes::ZERO) {
                return wrong(key, "must be above 0".to_owned());
            }
        }
        if self.passes.is_some() && self.until_steady {
            return wrong("passes", "cannot be used with until-steady".to_owned());
        }
        if self.passes == Some(0) {
            return wrong("passes", "must be 1 or more".to_owned());
        }
        if self.endurance == Some(0) {
            return wrong("endurance", "must be 1 or more".to_owned());
        }
        // Tables of Parquet and Arrow have them as signed numbers.
        if let Some(seed) = self.seeds.iter().find(|seed| **seed > i64::MAX as u64) {
            return wrong("seeds", format!("{seed} is above {}", i64::MAX));
        }
        self.check_effects(origin)?;
        self.check_workloads(origin)?;
        if self.policies.iter().any(|policy| policy.is(trimtab_core::policy::PolicyKind::Async)) {
            return wrong("policies", "async is btrfs's own and can't be simulated".to_owned());
        }
        Ok(())
    }
}

impl Grid {
    /// The options of a synthetic workload, with this spare factor.
    pub(super) fn synthetic(&self, workload: Workload, spare: f64) -> SyntheticOptions {
        SyntheticOptions {
            workload,
            blocks: self.blocks.unwrap_or(2048),
            pages_per_block: self.pages_per_block.unwrap_or(256),
            spare,
            gc: GcPolicy::Greedy,
            streams: 1,
            drive_writes: self.drive_writes.unwrap_or(10.0),
            seed: USUAL_SEED,
        }
    }

    /// Refuses keys that change nothing, as no trace or no workload takes them.
    fn check_effects(&self, origin: &str) -> Result<(), GridError> {
        let of_traces = [
            ("profiles", !self.profiles.is_empty()),
            ("policies", !self.policies.is_empty()),
            ("over-provisioning", !self.over_provisioning.is_empty()),
            ("think-scale", !self.think_scale.is_empty()),
            ("states", !self.states.is_empty()),
            ("policy-clock", self.policy_clock != PolicyClock::default()),
            ("size", self.size.is_some()),
            ("scale-to", self.scale_to.is_some()),
            ("device", self.device.is_some()),
            ("passes", self.passes.is_some()),
            ("until-steady", self.until_steady),
            ("endurance", self.endurance.is_some()),
        ];
        let of_workloads = [
            ("spare", !self.spare.is_empty()),
            ("gc", !self.gc.is_empty()),
            ("streams", !self.streams.is_empty()),
            ("blocks", self.blocks.is_some()),
            ("pages-per-block", self.pages_per_block.is_some()),
            ("drive-writes", self.drive_writes.is_some()),
        ];
        let without = |inputs: &str, keys: &[(&str, bool)]| match keys.iter().find(|(_, is_given)| *is_given)
        {
            Some((key, _)) => Err(key_error(origin, key, format!("has no effect without {inputs}"))),
            None => Ok(()),
        };
        if self.traces.is_empty() {
            without("traces", &of_traces)?;
        }
        if self.workloads.is_empty() {
            without("workloads", &of_workloads)?;
        }
        Ok(())
    }

    /// Refuses values that no workload could use. A value that suits some workloads fails in the cells of the others.
    fn check_workloads(&self, origin: &str) -> Result<(), GridError> {
        let wrong = |key: &str, message: String| Err(key_error(origin, key, message));
        if let Some(streams) = self.streams.iter().find(|streams| !(1..=2).contains(*streams)) {
            return wrong("streams", format!("{streams} is neither 1 nor 2"));
        }
        if self.workloads.is_empty() {
            return Ok(());
        }
        for spare in or(&self.spare, USUAL_SPARE) {
            let Err(error) = self.synthetic(Workload::Uniform, spare).check() else { continue };
            let key = match &error {
                SyntheticError::Spare(_) => "spare",
                SyntheticError::DriveWrites(_) => "drive-writes",
                SyntheticError::Geometry(GeometryError::Zero(_)) => "pages-per-block",
                _ => "blocks",
            };
            return wrong(key, error.to_string());
        }
        Ok(())
    }
}

/// The values, or the default if there are none; each once.
pub(super) fn or<T: Copy + PartialEq>(values: &[T], usual: T) -> Vec<T> {
    if values.is_empty() { vec![usual] } else { distinct(values.iter().copied()) }
}

fn key_error(origin: &str, path: &str, message: String) -> GridError {
    let key = if path == "." { "the grid".to_owned() } else { path.to_owned() };
    GridError::Key { origin: origin.to_owned(), key, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let origin = "dir/grid.toml";
        let grid = Grid::parse(text, Path::new(origin));
        grid.and_then(|grid| grid.check(origin)).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_the_key() {
        for (text, message) in [
            (
                "traces = [\"a\"]\npolicies = [\"fast\"]",
                "dir/grid.toml: policies[0]: there is no policy \"fast\"",
            ),
            ("trace = [\"a\"]", "dir/grid.toml: trace: unknown field `trace`"),
            ("traces = [\"a\"]\nthink-scale = [-1.0]", "dir/grid.toml: think-scale: -1 is not between"),
            (
                "traces = [\"a\"]\nover-provisioning = [0.0]",
                "dir/grid.toml: over-provisioning: 0 must be above",
            ),
            ("traces = [\"a\"]\nstates = [\"old\"]", "dir/grid.toml: states[0]: unknown variant `old`"),
            ("workloads = [\"zipf\"]", "dir/grid.toml: workloads[0]: there is no workload \"zipf\""),
            ("traces = [\"a\"]\npasses = 0", "dir/grid.toml: passes: must be 1 or more"),
            ("seeds = [1]", "dir/grid.toml: traces: the grid names neither"),
            (
                "workloads = [\"uniform\"]\nspare = [0.1, 1.5]",
                "dir/grid.toml: spare: a spare factor of 1.5 is not",
            ),
            ("workloads = [\"uniform\"]\nblocks = 0", "dir/grid.toml: blocks: 0 erase blocks are too few"),
            (
                "workloads = [\"uniform\"]\nblocks = 5000000",
                "dir/grid.toml: blocks: 1280000000 pages are more than",
            ),
            (
                "workloads = [\"uniform\"]\npages-per-block = 0",
                "dir/grid.toml: pages-per-block: the number of pages",
            ),
            (
                "workloads = [\"uniform\"]\ndrive-writes = -1.0",
                "dir/grid.toml: drive-writes: -1 drive writes are not",
            ),
            ("workloads = [\"uniform\"]\nstreams = [3]", "dir/grid.toml: streams: 3 is neither 1 nor 2"),
            (
                "workloads = [\"uniform\"]\nseeds = [1, 9223372036854775807]\nblocks = 0",
                "dir/grid.toml: blocks: 0 erase blocks are too few",
            ),
            ("traces = [\"a\"]\nprofiles = []", "dir/grid.toml: profiles: an empty list; leave"),
            ("traces = [\"a\"]\ngc = [\"fifo\"]", "dir/grid.toml: gc: has no effect without workloads"),
            (
                "workloads = [\"uniform\"]\npolicies = [\"none\"]",
                "dir/grid.toml: policies: has no effect without traces",
            ),
            ("traces = [\"a\"]\nsize = 0", "dir/grid.toml: size: must be above 0"),
            ("traces = [\n\n[", "dir/grid.toml, line "),
        ] {
            assert!(error(text).starts_with(message), "{}", error(text));
        }
        let json = Grid::from_json("{\"traces\": [\"a\"], \"policies\": [\"fast\"]}", "grid").unwrap_err();
        assert!(json.to_string().starts_with("grid: policies[0]: there is no policy \"fast\""), "{json}");
        assert!(!json.to_string().contains(", line "), "{json}");
        let grid =
            Grid::from_json("{\"workloads\": [\"uniform\"], \"seeds\": [9223372036854775808]}", "grid");
        let seed = grid.and_then(|grid| grid.check("grid")).unwrap_err().to_string();
        assert!(seed.starts_with("grid: seeds: 9223372036854775808 is above"), "{seed}");
    }

    #[test]
    fn files_are_relative_to_the_grid() {
        let text = "traces = [\"a.parquet\", \"/b\"]\nprofiles = [\"nvme-tlc\", \"mine.toml\"]";
        let grid = Grid::parse(text, Path::new("dir/grid.toml")).unwrap();
        assert_eq!(grid.traces, [PathBuf::from("dir/a.parquet"), PathBuf::from("/b")]);
        assert_eq!(grid.profiles, ["nvme-tlc", "dir/mine.toml"]);
    }
}
