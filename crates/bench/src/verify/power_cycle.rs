//! Whether what was discarded reads the same after a power cycle: written and discarded now,
//! checked on a later run, with a plan file between them.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use trimtab_core::Extent;
use trimtab_core::document::bench::{BenchDevice, PowerCycle};
use trimtab_linux::file::{Output, OutputError};
use xxhash_rust::xxh3::xxh3_64;

use super::areas::Layout;
use super::content::{Class, Generation};
use super::stamp::{Stamped, Stamper};
use crate::confined::Confined;
use crate::error::BenchError;
use crate::target::Target;
use trimtab_core::interrupt::Interrupt;

/// The schema name of [`PowerCyclePlan`].
pub const POWER_CYCLE_SCHEMA: &str = "trimtab/power-cycle/1";

/// How many areas are written and discarded, where the range has room for them.
const AREAS: u32 = 16;

/// The data written and discarded before a power cycle, and its contents when read then: schema
/// `trimtab/power-cycle/1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerCyclePlan {
    /// [`POWER_CYCLE_SCHEMA`].
    pub schema: String,
    /// The device.
    pub device: BenchDevice,
    /// When the areas were discarded: RFC 3339, UTC.
    pub discarded: String,
    /// Makes the same data again.
    seed: u64,
    generation: Generation,
    /// Written and not discarded.
    guards: Vec<Extent>,
    /// Written and then discarded.
    areas: Vec<Area>,
}

/// An area that was discarded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Area {
    extent: Extent,
    /// The contents of its blocks, from the first to the last.
    blocks: Vec<Row>,
}

/// Blocks in a row that read alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    count: u64,
    held: Held,
}

/// The contents of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Held {
    Zeros,
    Unchanged,
    /// Something else: its hash.
    Other(u64),
}

impl Held {
    fn of(class: Class, bytes: &[u8]) -> Self {
        match class {
            Class::Zero => Self::Zeros,
            Class::Unchanged => Self::Unchanged,
            Class::Misplaced | Class::Changed => Self::Other(xxh3_64(bytes)),
        }
    }
}

/// Why a power cycle can't be planned or checked.
#[derive(Debug, thiserror::Error)]
pub enum PowerCycleError {
    /// The device failed, or the user asked to stop.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The plan is of another device.
    #[error(
        "the plan is for another device: {} {:?} of {}, and this is {} {:?} of {}",
        planned.model, planned.serial, planned.size, found.model, found.serial, found.size
    )]
    OtherDevice {
        /// The plan's device.
        planned: Box<BenchDevice>,
        /// This one.
        found: Box<BenchDevice>,
    },
    /// The plan can't be written.
    #[error(transparent)]
    Save(#[from] OutputError),
    /// The plan file can't be read.
    #[error("cannot read the plan {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{} is no plan that this version of trimtab wrote", path.display())]
    NotAPlan {
        /// The file.
        path: PathBuf,
        /// Where it goes wrong; none where it is another schema.
        source: Option<serde_json::Error>,
    },
}

impl PowerCyclePlan {
    /// Reads the plan in the file `path`.
    ///
    /// # Errors
    /// A file that can't be read, or holds something else.
    pub fn load(path: &Path) -> Result<Self, PowerCycleError> {
        let failed = |source| PowerCycleError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let not_a_plan = |source| PowerCycleError::NotAPlan { path: path.to_owned(), source };
        let plan: Self =
            serde_json::from_reader(BufReader::new(file)).map_err(|error| not_a_plan(Some(error)))?;
        if plan.schema == POWER_CYCLE_SCHEMA { Ok(plan) } else { Err(not_a_plan(None)) }
    }

    /// Writes it to `file`, which holds all of it or is as before, whenever power fails.
    ///
    /// # Errors
    /// [`PowerCycleError::Save`].
    pub fn save(&self, file: &Output) -> Result<(), PowerCycleError> {
        let text = serde_json::to_vec(self).expect("numbers and texts can be written as JSON");
        Ok(file.replace_durably(&text)?)
    }
}

/// Writes and discards areas of `range`, and returns what they read as now, for
/// [`check_power_cycle`].
///
/// # Errors
/// A command that failed, or the user's wish to stop.
pub fn plan_power_cycle(
    target: &dyn Target,
    device: &BenchDevice,
    range: Extent,
    seed: u64,
    interrupt: &Interrupt,
) -> Result<PowerCyclePlan, BenchError> {
    let target = &Confined::new(target, range);
    let mut stamper = Stamper::new(target, seed, interrupt);
    let layout = Layout::new(range, None, device, AREAS);
    let written = stamper.write(layout.span())?;
    for area in layout.areas() {
        stamper.discard(area)?;
    }
    let discarded = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    target.flush().map_err(BenchError::device("flush"))?;
    let areas = layout.areas().map(|extent| look(&stamper, Stamped { extent, ..written }));
    Ok(PowerCyclePlan {
        schema: POWER_CYCLE_SCHEMA.to_owned(),
        device: device.clone(),
        discarded,
        seed,
        generation: written.generation,
        guards: layout.guards().collect(),
        areas: areas.collect::<Result<_, _>>()?,
    })
}

fn look(stamper: &Stamper, area: Stamped) -> Result<Area, BenchError> {
    let mut blocks: Vec<Row> = Vec::new();
    stamper.read(area, |_, class, bytes| {
        let held = Held::of(class, bytes);
        match blocks.last_mut() {
            Some(row) if row.held == held => row.count += 1,
            _ => blocks.push(Row { count: 1, held }),
        }
    })?;
    Ok(Area { extent: area.extent, blocks })
}

/// Reads what `plan` discarded, after a power cycle, and compares. Writes nothing.
///
/// # Errors
/// [`PowerCycleError::OtherDevice`], a command that failed, or the user's wish to stop.
pub fn check_power_cycle(
    target: &dyn Target,
    device: &BenchDevice,
    plan: &PowerCyclePlan,
    interrupt: &Interrupt,
) -> Result<PowerCycle, PowerCycleError> {
    if !plan.device.is_same(device) {
        let (planned, found) = (Box::new(plan.device.clone()), Box::new(device.clone()));
        return Err(PowerCycleError::OtherDevice { planned, found });
    }
    let stamper = Stamper::new(target, plan.seed, interrupt);
    let stamped = |extent| Stamped { extent, generation: plan.generation };
    let mut found =
        PowerCycle { discarded: plan.discarded.clone(), same: 0, returned: 0, different: 0, lost_outside: 0 };
    for area in &plan.areas {
        let mut before = area.blocks.iter().flat_map(|row| (0..row.count).map(|_| row.held));
        stamper.read(stamped(area.extent), |_, class, bytes| {
            let now = Held::of(class, bytes);
            let count = match before.next() {
                Some(before) if before == now => &mut found.same,
                _ if now == Held::Unchanged => &mut found.returned,
                _ => &mut found.different,
            };
            *count += 1;
        })?;
    }
    for guard in &plan.guards {
        found.lost_outside += stamper.lost(stamped(*guard))?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use trimtab_core::Bytes;
    use trimtab_core::profile::DiscardedReads;

    use super::*;
    use crate::memory::{Behaviour, Memory, Returns, device};

    const SIZE: Bytes = Bytes(32 << 20);

    /// The plan for a drive of this behaviour, saved and loaded, and what is found after `between`.
    fn cycled(behaviour: Behaviour, between: impl FnOnce(&Memory)) -> PowerCycle {
        let (device, memory) = (device(&behaviour), Memory::new(behaviour));
        let range = Extent::new(Bytes::ZERO, SIZE);
        let never = Interrupt::never();
        let plan = plan_power_cycle(&memory, &device, range, 1, &never).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plan.json");
        plan.save(&Output::open(&path).unwrap()).unwrap();
        assert_eq!(PowerCyclePlan::load(&path).unwrap(), plan);
        between(&memory);
        check_power_cycle(&memory, &device, &plan, &never).unwrap()
    }

    fn honest() -> Behaviour {
        Behaviour::honest(SIZE)
    }

    #[test]
    fn lasting_discards_are_distinguished_from_returning_data() {
        let stays = cycled(honest(), |_| ());
        assert!(stays.same > 10_000);
        assert_eq!((stays.returned, stays.different, stays.lost_outside), (0, 0, 0));
        let returns = Behaviour { returns: Returns::AfterDelay, ..honest() };
        let returned = cycled(returns, |memory| memory.drop_caches().unwrap());
        assert_eq!((returned.same, returned.returned, returned.different), (0, stays.same, 0));
        let garbage = cycled(Behaviour { reads: DiscardedReads::Garbage, ..honest() }, |_| ());
        assert_eq!((garbage.same, garbage.returned, garbage.different), (0, 0, stays.same));
        let other = cycled(Behaviour { reads: DiscardedReads::Other, ..honest() }, |_| ());
        assert_eq!((other.same, other.different), (stays.same, 0));
    }

    #[test]
    fn lost_data_outside_is_counted() {
        let found = cycled(honest(), |memory| memory.write(Bytes(512), &[1; 1024]).unwrap());
        assert_eq!((found.different, found.lost_outside), (0, 2));
    }

    #[test]
    fn another_device_is_refused_by_name() {
        let (device, memory) = (device(&honest()), Memory::new(honest()));
        let never = Interrupt::never();
        let range = Extent::new(Bytes::ZERO, SIZE);
        let plan = plan_power_cycle(&memory, &device, range, 1, &never).unwrap();
        let other = BenchDevice { serial: "2".to_owned(), ..device };
        let error = check_power_cycle(&memory, &other, &plan, &never).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the plan is for another device: memory \"1\" of 32 MiB, and this is memory \"2\" of 32 MiB"
        );
    }

    #[test]
    fn a_file_that_is_no_plan_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{}").unwrap();
        let error = PowerCyclePlan::load(file.path()).unwrap_err();
        assert!(error.to_string().ends_with("is no plan that this version of trimtab wrote"), "{error}");
        let missing = PowerCyclePlan::load(Path::new("/nonexistent/plan")).unwrap_err();
        assert_eq!(missing.to_string(), "cannot read the plan /nonexistent/plan");
    }
}
