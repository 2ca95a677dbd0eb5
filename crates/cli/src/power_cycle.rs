//! `trimtab bench --across-power-cycle`: does a discard hold when the power goes?

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result};
use trimtab_bench::target::Target;
use trimtab_bench::verify::power_cycle::{PowerCyclePlan, check_power_cycle, plan_power_cycle};
use trimtab_core::Extent;
use trimtab_core::document::BenchDocument;
use trimtab_core::document::bench::BenchDevice;
use trimtab_linux::PROCFS;
use trimtab_linux::environment::uptime;
use trimtab_linux::file::{Output, OutputError};

use crate::{complain, interrupt};

/// The first time, writes and discards areas of `range` and remembers in `file` what they read as;
/// the second, compares, and adds the outcome to the results of an earlier run, which are in a file
/// of their own. Returns the message for the user.
pub fn run(
    target: &dyn Target,
    device: &BenchDevice,
    range: Extent,
    file: &Path,
    earlier: Option<(&Path, BenchDocument)>,
) -> Result<String> {
    if !file.exists() {
        let output = Output::open(file)?;
        // Unlike any earlier plan's, so that what an earlier one wrote is not taken for this one's.
        let seed = SystemTime::UNIX_EPOCH.elapsed()?.as_nanos() as u64;
        plan_power_cycle(target, device, range, seed, &interrupt()?)?.save(&output)?;
        return Ok(format!(
            "Areas of {} are written and discarded; {} says what they read as.\n\
             Now cut the drive's power (shut down and unplug it; a reboot is not enough), start again, and run\n\
             the same command once more. Write nothing to the drive until then.\n",
            device.path,
            file.display()
        ));
    }
    let earlier = earlier.map(|(path, document)| Ok::<_, OutputError>((path, Output::open(path)?, document)));
    let earlier = earlier.transpose()?;
    let cycle = check_power_cycle(target, device, &PowerCyclePlan::load(file)?, &interrupt()?)?;
    let mut text = trimtab_report::bench::power_cycle(&cycle) + "\n";
    if !restarted_since(&cycle.discarded)? {
        complain(
            &"this machine was not restarted since: unless the drive alone lost power, this shows nothing",
        );
    }
    if let Some((path, output, mut document)) = earlier {
        let verify = document.verify.as_mut();
        let verify =
            verify.with_context(|| format!("{} has no verification to add this to", path.display()))?;
        verify.power_cycle = Some(cycle);
        output.replace(&serde_json::to_vec_pretty(&document)?)?;
        text += &format!("Results: {}\n", path.display());
    }
    Ok(text)
}

/// Whether this machine was started after the moment `since`, RFC 3339.
fn restarted_since(since: &str) -> Result<bool> {
    let since = humantime::parse_rfc3339(since).context("the plan says no time that can be read")?;
    Ok(SystemTime::now() - uptime(Path::new(PROCFS))? > since)
}
