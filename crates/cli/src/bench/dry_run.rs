//! `trimtab bench --dry-run`: all checks of a run, and its work in words. The device is not touched.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Error, Result};
use trimtab_bench::plan;
use trimtab_core::Bytes;
use trimtab_core::document::bench::{BenchDevice, BenchPlan, Part};
use trimtab_linux::SYSFS;
use trimtab_linux::block::BlockDevice;
use trimtab_linux::claim::{self, Overrides};

use super::{Args, check_profile, check_results, checked_plan, losses, no_discards, options, print};
use crate::{FAILED, UNSUPPORTED, complain};

/// Describes the run that `args` ask for, or prints every reason to refuse it, one a line.
pub fn run(args: &Args, overrides: &Overrides) -> Result<ExitCode> {
    let mut refusals = Vec::new();
    let (block, lost) = match claim::check_all(&args.device, overrides) {
        Ok(check) => (Ok(check.block), losses(check.lost, check.unseen)),
        Err(errors) => {
            refusals.extend(errors.into_iter().map(Error::from));
            (BlockDevice::open(Path::new(SYSFS), &args.device), Vec::new())
        }
    };
    let Ok(block) = block else {
        // Nothing more is known of what is no block device.
        refusals.iter().for_each(|error| complain(&format_args!("{error:#}")));
        return Ok(ExitCode::from(FAILED));
    };
    let device = block.describe()?;
    let unsupported = no_discards(&device);
    unsupported.iter().for_each(complain);
    if args.across_power_cycle.is_none() {
        refusals.extend(check_results(args, None).err());
    }
    let planned = options(args, device).and_then(|options| Ok((checked_plan(&options, &block)?, options)));
    let text = match planned {
        Ok((plan, options)) => {
            refusals.extend(check_profile(args, &plan).err());
            described(&plan, &options.device, &lost)
        }
        Err(error) => {
            refusals.push(error);
            String::new()
        }
    };
    refusals.iter().for_each(|error| complain(&format_args!("{error:#}")));
    match (refusals.as_slice(), unsupported) {
        ([], None) => print(&text),
        ([], Some(_)) => Ok(ExitCode::from(UNSUPPORTED)),
        _ => Ok(ExitCode::from(FAILED)),
    }
}

/// Describes the work that would be done, in words.
fn described(plan: &BenchPlan, device: &BenchDevice, lost: &[String]) -> String {
    let block = device.logical_block;
    let patterns: Vec<_> = plan.patterns.iter().map(|pattern| pattern.name()).collect();
    let operations: Vec<_> = plan.operations.iter().map(|operation| operation.name()).collect();
    let depths: Vec<_> = plan.depths.iter().map(u32::to_string).collect();
    let (Some(largest), Some(smallest)) = (plan.sizes.first(), plan.sizes.last()) else {
        return String::new();
    };
    let time = humantime::format_duration(Duration::from_secs(plan.budget_wall_s as u64));
    let mut text = format!(
        "Would measure {} ({}, {}).\nNothing has been written.\n\n",
        device.path, device.model, device.size
    );
    text += &format!(
        "Lost:        all data in {} ({}), which is written and discarded\n",
        plan.range,
        plan.range.len()
    );
    for line in lost {
        text += &format!("             {line}\n");
    }
    for part in &plan.parts {
        let (name, what) = match part {
            Part::Latency => (
                "Latency:",
                format!(
                    "{} cells: {}; {}; {} sizes from {largest} to {smallest}; depth {}\n             \
                     data is written for each command, in at most half of the time",
                    plan::cells(plan, block).len(),
                    operations.join(", "),
                    patterns.join(", "),
                    plan.sizes.len(),
                    depths.join(", "),
                ),
            ),
            Part::Verify => ("Verify:", "some 300 MiB are written, discarded and read".to_owned()),
            Part::Interference => (
                "Interfere:",
                "random reads and writes of 4 KiB in one half, data and discards in the other".to_owned(),
            ),
            Part::Degradation => (
                "Degrade:",
                format!(
                    "{} are written in sequence twice, and overwritten at random until steady",
                    plan.range.len()
                ),
            ),
            Part::Background => (
                "Background:",
                format!(
                    "{} are written in sequence, overwritten at random or in bursts after pauses, and half of it is \
                     discarded at once",
                    plan.range.len()
                ),
            ),
        };
        text += &format!("{name:<13}{what}\n");
    }
    text += &format!("Time:        about {time}; what doesn't fit is left out and named");
    if plan.parts.contains(&Part::Latency) {
        text += ".\n             The order of latency is: discards, then other operations; one in flight, then\n             \
                 several; unwritten areas, then others; small sizes, then large";
        let rate = Bytes(plan::enough_write_rate(plan, block).ceil() as u64);
        if rate > Bytes::ZERO {
            text += &format!(
                ".\n             A drive that writes less than {rate}/s leaves out some of the last of them: their data\n             \
                 takes too long to write"
            );
        }
    }
    text + "\n"
}
