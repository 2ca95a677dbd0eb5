//! `trimtab compare`: what each discard policy costs and gains.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::builder::NonEmptyStringValueParser;
use trimtab_core::Bytes;
use trimtab_core::policy::PolicyKind;
use trimtab_keeper::service::control::RUN;
use trimtab_lab::compare::{CompareOptions, Place, compare};
use trimtab_lab::fs::FileSystem;
use trimtab_lab::workload::{UnknownWorkload, WorkloadOptions};

use crate::outputs::Outputs;
use crate::progress::Bar;
use crate::{ended, interrupt, profile};

/// Compares discard policies: what each costs while deleting, gains when writing, and wears
///
/// Every run makes a file system on an emulated drive of its own, works on it with real file
/// operations, and verifies the data. Times are model time: what the drive of the profile would
/// have taken, however busy this machine is.
#[derive(clap::Args)]
pub struct Args {
    /// File systems to run on
    #[arg(long, value_name = "FS,...", value_delimiter = ',', default_value = "ext4", conflicts_with = "on")]
    fs: Vec<FileSystem>,
    /// Policies to compare: none, online, batched, smart, and on btrfs async [default:
    /// none,online,batched,smart]
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
    policy: Vec<PolicyKind>,
    /// Workload: fragment or tree; a command after -- is a workload of its own
    #[arg(long, value_name = "NAME", default_value = "fragment", conflicts_with = "command")]
    workload: String,
    /// Tree to unpack and delete: a directory or a tarball [default: a kernel tree's shape]
    #[arg(long, value_name = "PATH")]
    tree: Option<PathBuf>,
    /// Drive profile: a built-in name (see `trimtab drive profiles`) or a file that ends in .toml
    #[arg(long, value_name = "PROFILE", default_value = "micron-m500it", value_parser = NonEmptyStringValueParser::new())]
    drive: String,
    /// Size of the emulated drive; with --on, the most space that the workload may use
    #[arg(long, default_value = "2G")]
    size: Bytes,
    /// How often each policy is run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Seed of file contents and trees
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the results to this file, after every run
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results and an HTML page to this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Run in this directory, on whatever it is mounted on: nothing is mounted or formatted, and
    /// only wall time is known
    #[arg(long, value_name = "DIR", conflicts_with = "drive")]
    on: Option<PathBuf>,
    /// Where the service's sockets are
    #[arg(long, value_name = "DIRECTORY", default_value = RUN, hide = true)]
    run: PathBuf,
    /// A command to run as the workload; {dir} is replaced by the directory to work in
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let outputs = Outputs::new(args.json.as_deref(), args.report.as_deref(), "compare.json")?;
    let options = CompareOptions {
        workload: workload(&args)?,
        place: place(&args)?,
        policies: args.policy,
        runs: args.runs,
        seed: args.seed,
        command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
    };
    let document = compare(options, &interrupt()?, &mut Bar::new(), &mut |document| {
        outputs.save(document, trimtab_report::compare::html)
    })?;
    if !document.runs.is_empty() {
        let out = &mut io::stdout().lock();
        write!(out, "{}", trimtab_report::compare::text(&document, crate::colour()))?;
        if let Some(page) = outputs.page() {
            writeln!(out, "\nReport: {}", page.display())?;
        }
    }
    Ok(ended(document.stopped.as_deref()))
}

fn workload(args: &Args) -> Result<WorkloadOptions> {
    if args.tree.is_some() && args.workload != "tree" {
        bail!("--tree goes with --workload tree");
    }
    Ok(match args.workload.as_str() {
        _ if !args.command.is_empty() => WorkloadOptions::Exec { command: args.command.clone() },
        "fragment" => WorkloadOptions::Fragment,
        "tree" => WorkloadOptions::Tree { source: args.tree.clone() },
        name => return Err(UnknownWorkload { name: name.to_owned() }.into()),
    })
}

fn place(args: &Args) -> Result<Place> {
    if let Some(dir) = &args.on {
        return Ok(Place::Directory { dir: dir.clone(), room: args.size, service: args.run.clone() });
    }
    let (profile, profile_toml) = profile::load(&args.drive)?;
    Ok(Place::Emulated {
        profile: Box::new(profile),
        profile_toml,
        size: args.size,
        file_systems: args.fs.clone(),
        server: std::env::current_exe().context("cannot find the running executable")?,
    })
}
