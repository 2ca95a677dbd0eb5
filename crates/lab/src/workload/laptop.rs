//! A laptop's days: 24 hours of pauses each, with the work of a person and of the system between them.
//!
//! Sources for its shape:
//! - Eight hours of use a day are those of the client class of JEDEC JESD218 ("Establishing industry
//!   endurance standards for solid-state storage", EE Times, 2010). The night is idle time; a
//!   suspended machine would do nothing in it either.
//! - The day writes about a quarter of the space: the 20 GB a day that makers of computers asked of
//!   Intel's 80 GB X25-M ("How Long Will Intel's SSDs Last?", AnandTech, 2008).
//! - A page that is visited caches responses of 37 KB on average: 2652 KB in 71 requests, the median
//!   desktop page of the HTTP Archive's Web Almanac, 2024.
//! - Files of packages are those of a Debian 12 (113 814 files in /usr with a mean of 48.7 and a
//!   median of 1.9 KB), and replaced as dpkg does it: all new files of a package written, all
//!   synced, all renamed over the old ones.
//! - The shares of the parts, the lengths of the pauses within the working hours (exponential) and the
//!   order of the day are chosen.

mod day;
mod schedule;

use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_core::document::WorkloadDescription;

use self::day::Day;
use self::schedule::{Event, schedule};
use super::Workload;
use super::shape::{fill_once, percent, scale};
use crate::error::LabError;
use crate::stage::Stage;

/// Time from one read of the probe to the next that gives a day enough reads: 17 280.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// The share of the space, in percent, for the first file, which makes the drive a used one: beside what is
/// installed, all that the file system can spare.
const FILL: u64 = 32;
/// The least space.
const LEAST: Bytes = Bytes(128 << 20);
/// The most space that the day is scaled to: more would be more files, and another day's work.
const MOST: Bytes = Bytes(8 << 30);

/// The workload `laptop`.
pub struct LaptopWorkload {
    days: u32,
    schedule_seed: u64,
    seed: u64,
}

impl LaptopWorkload {
    /// This many days with files and contents from `seed`, at the times that `schedule_seed` gives. Writers have the
    /// times in common.
    pub fn new(days: u32, schedule_seed: u64, seed: u64) -> Self {
        Self { days, schedule_seed, seed }
    }
}

impl Workload for LaptopWorkload {
    fn description(&self) -> WorkloadDescription {
        WorkloadDescription {
            name: "laptop".to_owned(),
            summary: format!(
                "{} of a laptop on a used drive that is half full: package updates, a browser's cache, documents, \
                 two builds{each}, a download that is deleted later, and pauses of its own (--idle does not apply)",
                if self.days == 1 { "24 hours".to_owned() } else { format!("{} days", self.days) },
                each = if self.days == 1 { "" } else { " a day" },
            ),
            seed: self.seed,
            delete_steps: vec!["clean".to_owned(), "tidy".to_owned()],
            write_step: Some("download".to_owned()),
            has_pauses: false,
            divisible: true,
        }
    }

    fn names_its_pauses(&self) -> bool {
        true
    }

    fn unmounts(&self) -> bool {
        false
    }

    fn run(&self, stage: &mut Stage) -> Result<(), LabError> {
        let space = scale(stage, LEAST, MOST)?;
        let mut day = Day::new(self.seed, space);
        stage.activity("install", |work| day.install(work))?;
        fill_once(stage, percent(space, FILL), self.seed)?;
        for number in 0..self.days {
            self.run_day(number, &mut day, stage)?;
        }
        Ok(())
    }
}

impl LaptopWorkload {
    /// Does what happens on the day of this number, counted from 0.
    fn run_day(&self, number: u32, day: &mut Day, stage: &mut Stage) -> Result<(), LabError> {
        day.begin();
        for event in schedule(self.schedule_seed, number) {
            match event {
                Event::Pause(name, length) => stage.pause_for(name, length)?,
                Event::Update => stage.activity("update", |work| day.update(work))?,
                Event::Browse => stage.activity("browse", |work| day.browse(work))?,
                Event::Save => stage.activity("save", |work| day.save(work))?,
                Event::Build => stage.activity("build", |work| day.build(work))?,
                Event::Clean => stage.activity("clean", |work| day.clean(work))?,
                Event::Download => stage.activity("download", |work| day.download(work))?,
                Event::Tidy => stage.activity("tidy", |work| day.tidy(work))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use trimtab_core::document::{Run, StepKind};

    use super::*;
    use crate::workload::WorkloadOptions;
    use crate::workload::tests::{names, ran, refused};

    #[test]
    fn a_day_takes_24_hours_of_pauses_of_its_own() {
        let run = ran(WorkloadOptions::Laptop { days: 1 }, LEAST);
        let pauses = run.steps.iter().filter(|step| step.kind == StepKind::Pause);
        let idle: f64 = pauses.map(|step| step.length_s).sum();
        assert!(idle >= 86_400.0, "{idle}");
        for name in
            ["night", "lunch", "evening", "update", "browse", "save", "build", "clean", "download", "tidy"]
        {
            assert!(names(&run).contains(&name), "{name}");
        }
        let short = refused(WorkloadOptions::Laptop { days: 1 }, Bytes(LEAST.0 - 1));
        assert!(short.contains("needs 128 MiB"), "{short}");
    }

    #[test]
    fn a_further_day_follows_with_as_much_work() {
        let [one, three] = [1, 3].map(|days| ran(WorkloadOptions::Laptop { days }, LEAST));
        let count = |run: &Run, name| names(run).iter().filter(|step| **step == name).count();
        for name in ["night", "update", "browse", "save", "build", "download", "tidy"] {
            assert_eq!(count(&three, name), 3 * count(&one, name), "{name}");
        }
        // What was built in the afternoon is deleted on the next morning.
        assert_eq!((count(&one, "clean"), count(&three, "clean")), (1, 5));
    }
}
