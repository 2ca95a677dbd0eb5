//! `trimtab trace`.

mod synth;

use std::collections::BTreeMap;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use serde::Serialize;
use trimtab_core::trace::{Summary, TraceDevice, TraceEvent, TraceHeader};
use trimtab_core::units::{Bytes, Nanos};
use trimtab_linux::tracefs;
use trimtab_report::printable;
use trimtab_trace::{Columns, Format, TraceError, TraceReader, TraceWriter, open};

use crate::PROGRAM;
use crate::outputs::new_output;
use crate::tallies::{self, Row, counted};

/// Describes traces of block events, and converts them
///
/// Reads trimtab's own traces and tables with their columns (Parquet, Arrow, CSV), blktrace's records and blkparse's
/// text, fio's logs, biosnoop's output, the text of block and mmc events (ftrace, trace-cmd, perf), traces of
/// simulators (DiskSim, SSDsim, MQSim), and the published traces of MSR Cambridge, Alibaba, Tencent, CloudPhysics,
/// SYSTOR '17, SPC, FIU, MiDAS and MobileBlockIO, plain or packed with gzip, zstd or xz.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Describes a trace
    Info {
        #[command(flatten)]
        input: Input,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Converts a trace to trimtab's own format
    Convert {
        #[command(flatten)]
        input: Input,
        /// The file to write
        output: PathBuf,
        /// Replace the file if it exists
        #[arg(long)]
        overwrite: bool,
    },
    /// Adds synthetic frees to a trace that has none
    ///
    /// Takes runs of writes for files, ends the life of a share of them after a time drawn from a log-normal distribution,
    /// and adds a free there: docs/record.md describes the model. Nothing that the trace reads later is freed. Requests
    /// stay as they are, and the header says how the frees were made. The same options give the same trace.
    Synth {
        #[command(flatten)]
        input: Input,
        /// The file to write
        output: PathBuf,
        #[command(flatten)]
        files: synth::Files,
        /// Replace the file if it exists
        #[arg(long)]
        overwrite: bool,
    },
    /// Prints the first events of a trace
    Head {
        #[command(flatten)]
        input: Input,
        /// How many events
        #[arg(short = 'n', value_name = "N", default_value_t = 10)]
        events: usize,
    },
    /// Removes a tracefs instance when the process that started this one has ended
    #[command(hide = true)]
    RemoveInstance { instance: PathBuf },
}

/// Has another process of this program remove each tracefs instance of this process, however that ends.
pub fn guard_instances() {
    tracefs::guard_instances(PathBuf::from(PROGRAM), &["trace", "remove-instance"]);
}

#[derive(clap::Args)]
struct Input {
    /// The trace; for blktrace, its base name or the file of any one processor: the others' are read with it
    #[arg(value_name = "FILE")]
    trace: PathBuf,
    /// The trace's format, if its content doesn't show it: trimtab, blktrace, blkparse, fio1, fio2,
    /// fio3, msr, alibaba, tencent, cloudphysics, systor, spc, fiu, midas, ftrace, mobile, disksim,
    /// mqsim, vscsi, biosnoop, csv or arrow
    #[arg(long)]
    format: Option<Format>,
}

impl Input {
    fn open(&self) -> Result<Box<dyn TraceReader + Send>> {
        Ok(self.open_trace()?)
    }

    fn open_trace(&self) -> Result<Box<dyn TraceReader + Send>, TraceError> {
        open(&self.trace, self.format, Columns::All)
    }
}

pub fn run(args: Args) -> Result<ExitCode> {
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = match args.verb {
        Verb::Info { input, json } => info(&input, json, &mut out)?,
        Verb::RemoveInstance { instance } => {
            tracefs::remove_after_owner(&instance)
                .with_context(|| format!("cannot remove {}", instance.display()))?;
            Ok(())
        }
        Verb::Convert { input, output, overwrite } => {
            convert(&input, &output, overwrite)?;
            Ok(())
        }
        Verb::Synth { input, output, files, overwrite } => {
            synth::synth(&input, &output, &files, overwrite)?;
            Ok(())
        }
        Verb::Head { input, events } => head(&input, events, &mut out)?,
    };
    match printed.and_then(|()| out.flush()) {
        // A reader that closes the pipe early is no failure.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write to stdout"),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The printed description of a trace.
#[derive(Serialize)]
struct Info {
    header: TraceHeader,
    records: u64,
    events: u64,
    skipped: BTreeMap<&'static str, u64>,
    /// From the first event to the last.
    span_ns: Nanos,
    tallies: Vec<Row>,
}

fn info(input: &Input, json: bool, out: &mut impl Write) -> Result<io::Result<()>> {
    let mut trace = input.open()?;
    let (mut summary, mut first, mut last, mut batch) = (Summary::default(), None, Nanos(0), Vec::new());
    loop {
        trace.next_batch(&mut batch)?;
        let Some(end) = batch.last() else { break };
        first = first.or(batch.first().map(|event| event.at));
        last = end.at;
        batch.iter().for_each(|event| summary.record(event));
    }
    let header = trace.header();
    let info = Info {
        tallies: Row::all(header, &summary),
        header: header.clone(),
        records: trace.counts().records,
        events: trace.counts().events,
        skipped: trace.counts().skipped.clone(),
        span_ns: Nanos(last.0 - first.unwrap_or_default().0),
    };
    if json {
        let text = serde_json::to_string_pretty(&info).context("cannot write the trace's description")?;
        return Ok(writeln!(out, "{text}"));
    }
    Ok(print_info(&info, &trace.counts().to_string(), out))
}

fn print_info(info: &Info, counts: &str, out: &mut impl Write) -> io::Result<()> {
    let header = &info.header;
    writeln!(out, "format       {}", printable(&header.origin))?;
    if !header.command.is_empty() {
        writeln!(out, "made by      {}", printable(&header.command.join(" ")))?;
    }
    if let Some(started) = &header.started {
        writeln!(out, "started      {}", printable(started))?;
    }
    writeln!(out, "span         {} from the first event to the last", info.span_ns)?;
    writeln!(out, "read         {counts}")?;
    if let Some(environment) = &header.environment {
        let machine = format!("Linux {}, {}", environment.kernel, environment.processor);
        writeln!(out, "machine      {}", printable(&machine))?;
    }
    for device in &header.devices {
        writeln!(out, "device       {}", printable(&describe(device)))?;
    }
    for fs in &header.file_systems {
        let fs = format!("{} {} from {}, {}", fs.kind, fs.mount_point, fs.source, fs.options);
        writeln!(out, "file system  {}", printable(&fs))?;
    }
    writeln!(out, "lost         {}", counted(header.lost, "event"))?;
    for gap in &header.gaps {
        writeln!(out, "gap          {}", printable(gap))?;
    }
    writeln!(out)?;
    tallies::print(&info.tallies, out)
}

fn describe(device: &TraceDevice) -> String {
    let mut text = device.name.clone();
    if !device.model.is_empty() {
        text += &format!(", {}", device.model);
    }
    if device.size > Bytes(0) {
        text += &format!(", {}", device.size);
    }
    if device.discard_max > Bytes(0) {
        text += &format!(", discards of {} to {}", device.discard_granularity, device.discard_max);
    }
    text
}

fn convert(input: &Input, output: &Path, overwrite: bool) -> Result<()> {
    let file = new_output(output, overwrite)?;
    let mut trace = input.open()?;
    let draft = file.draft()?;
    let file = draft.file().try_clone().with_context(|| format!("cannot write {}", output.display()))?;
    let mut writer = TraceWriter::on(file, output, trace.header().clone())?;
    let mut batch = Vec::new();
    let damage = loop {
        let read = trace.next_batch(&mut batch);
        if writer.header_mut().devices.len() < trace.header().devices.len() {
            *writer.header_mut() = trace.header().clone();
        }
        writer.write(&batch)?;
        match read {
            Ok(()) if batch.is_empty() => break None,
            Ok(()) => {}
            Err(error) if trace.counts().events == 0 || error.spoils_all() => return Err(error.into()),
            Err(error) => break Some(error),
        }
    };
    *writer.header_mut() = trace.header().clone();
    writer
        .header_mut()
        .gaps
        .extend(damage.as_ref().map(|damage| format!("it was read up to its damage: {damage}")));
    writer.finish()?;
    if overwrite { draft.replace() } else { draft.create() }?;
    let mut out = io::stderr().lock();
    let name = printable(&input.trace.display().to_string());
    let _ = writeln!(out, "{name}: {}", trace.counts());
    for gap in &trace.header().gaps {
        let _ = writeln!(out, "{name}: {}", printable(gap));
    }
    drop(out);
    match damage {
        None => Ok(()),
        Some(damage) => {
            Err(damage).with_context(|| format!("{} has only what came before the damage", output.display()))
        }
    }
}

fn head(input: &Input, events: usize, out: &mut impl Write) -> Result<io::Result<()>> {
    let mut trace = input.open()?;
    let mut printed = writeln!(
        out,
        "{:>14} {:<12} {:<12} {:>16} {:>12} {:>11} {:<15} file system",
        "seconds", "device", "kind", "start", "length", "latency", "process"
    );
    let (mut left, mut batch) = (events, Vec::new());
    while left > 0 && printed.is_ok() {
        trace.next_batch(&mut batch)?;
        if batch.is_empty() {
            break;
        }
        let header = trace.header();
        printed = batch.iter().take(left).try_for_each(|event| print_event(event, header, out));
        left -= left.min(batch.len());
    }
    Ok(printed)
}

fn print_event(event: &TraceEvent, header: &TraceHeader, out: &mut impl Write) -> io::Result<()> {
    let fs = event.fs.and_then(|fs| header.file_systems.get(usize::from(fs.0)));
    let error = if event.error == 0 { String::new() } else { format!(" error {}", event.error) };
    writeln!(
        out,
        "{:>14.9} {:<12} {:<12} {:>16} {:>12} {:>11} {:<15} {}{error}",
        event.at.seconds(),
        printable(&header.devices[usize::from(event.device.0)].name),
        event.kind,
        event.extent.start.0,
        event.extent.len().0,
        event.latency.map_or_else(|| "-".to_owned(), |latency| latency.to_string()),
        printable(&event.process.to_string()),
        printable(fs.map_or("", |fs| fs.mount_point.as_str())),
    )
}
