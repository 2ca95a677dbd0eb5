//! `trimtab trace synth`.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use trimtab_core::units::Nanos;
use trimtab_report::printable;
use trimtab_trace::{SynthError, SynthOptions, TraceWriter, synthesise};

use super::Input;
use crate::outputs::new_output;

/// The files that the trace's writes are taken for.
#[derive(clap::Args)]
pub(super) struct Files {
    /// The share of files that are freed, from 0 to 1; the others are kept
    #[arg(long, value_name = "SHARE", value_parser = share)]
    share: f64,
    /// The median of their life times, such as 90s or 2h
    #[arg(long, value_name = "TIME", value_parser = time)]
    life: Nanos,
    /// The standard deviation of the life times' natural logarithm; at 1, two thirds of all files live for between
    /// a third of the median and three times as long
    #[arg(long, value_name = "SIGMA", value_parser = spread, default_value = "1")]
    spread: f64,
    /// The longest time between two writes to the end of a file
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s")]
    gap: Nanos,
    /// The seed of the random draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn share(text: &str) -> Result<f64> {
    within(text, 1.0).context("a share is a number from 0 to 1")
}

fn spread(text: &str) -> Result<f64> {
    within(text, 10.0).context("a spread is a number from 0 to 10")
}

/// The number, if it is between 0 and `most`.
fn within(text: &str, most: f64) -> Option<f64> {
    text.parse().ok().filter(|number| (0.0..=most).contains(number))
}

fn time(text: &str) -> Result<Nanos> {
    let time = u64::try_from(humantime::parse_duration(text)?.as_nanos()).ok();
    time.filter(|time| *time > 0).map(Nanos).context("it is from 1ns to 584 years")
}

pub(super) fn synth(input: &Input, output: &Path, files: &Files, overwrite: bool) -> Result<()> {
    let options = SynthOptions {
        share: files.share,
        median: files.life,
        spread: files.spread,
        gap: files.gap,
        seed: files.seed,
    };
    let name = input.trace.display();
    if !fs::metadata(&input.trace).with_context(|| format!("{name}"))?.is_file() {
        bail!("{name} is no file, and can't be read twice; copy it to a file");
    }
    let place = new_output(output, overwrite)?;
    let draft = place.draft()?;
    let file = draft.file().try_clone().with_context(|| format!("cannot write {}", output.display()))?;
    let (mut file, mut writer) = (Some(file), None);
    let made = synthesise(&options, &mut || input.open_trace(), &mut |header, events| {
        if let Some(file) = file.take() {
            writer = Some(TraceWriter::on(file, output, header.clone())?);
        }
        writer.as_mut().map_or(Ok(()), |writer| writer.write(events))
    });
    let made = made.map_err(|error| match error {
        SynthError::Trace(error) => error.into(),
        error => anyhow::anyhow!("{name}: {error}"),
    })?;
    if let Some(writer) = writer {
        writer.finish()?;
    }
    if overwrite { draft.replace() } else { draft.create() }?;
    let _ = writeln!(
        io::stderr().lock(),
        "{}: {} files took {}; {} of them were freed, {}, after a median of {}",
        printable(&name.to_string()),
        made.files,
        made.taken,
        made.freed_files,
        made.freed,
        made.median,
    );
    Ok(())
}
