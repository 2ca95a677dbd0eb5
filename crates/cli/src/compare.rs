//! `trimtab compare`: what each discard policy costs and gains.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::builder::NonEmptyStringValueParser;
use trimtab_core::Bytes;
use trimtab_core::document::CompareDocument;
use trimtab_core::policy::PolicyKind;
use trimtab_lab::compare::{CompareOptions, Place, compare};
use trimtab_lab::fs::FileSystem;
use trimtab_lab::workload::{UnknownWorkload, WorkloadOptions};

use crate::progress::Bar;
use crate::{FAILED, complain, interrupt, profile};

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
    /// Policies to compare: none, online, batched, and on btrfs async [default: none,online,batched]
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
    /// A command to run as the workload; {dir} is replaced by the directory to work in
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let outputs = Outputs::new(args.json.as_deref(), args.report.as_deref())?;
    let options = CompareOptions {
        workload: workload(&args)?,
        place: place(&args)?,
        policies: args.policy,
        runs: args.runs,
        seed: args.seed,
        command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
    };
    let document = compare(options, &interrupt()?, &mut Bar::new(), &mut |document| outputs.save(document))?;
    if !document.runs.is_empty() {
        let out = &mut io::stdout().lock();
        write!(out, "{}", trimtab_report::compare::text(&document, crate::colour()))?;
        if let Some(page) = &outputs.page {
            writeln!(out, "\nReport: {}", page.display())?;
        }
    }
    Ok(match &document.stopped {
        None => ExitCode::SUCCESS,
        Some(reason) => {
            complain(reason);
            ExitCode::from(FAILED)
        }
    })
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
        return Ok(Place::Directory { dir: dir.clone(), room: args.size });
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

/// The files that results go to, replaced as a whole at every save.
struct Outputs {
    json: Vec<PathBuf>,
    page: Option<PathBuf>,
}

impl Outputs {
    fn new(json: Option<&Path>, report: Option<&Path>) -> Result<Self> {
        if let Some(dir) = report {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        let paths = json.map(Path::to_owned).into_iter().chain(report.map(|dir| dir.join("compare.json")));
        let outputs = Self { json: paths.collect(), page: report.map(|dir| dir.join("index.html")) };
        for path in outputs.json.iter().chain(&outputs.page) {
            if path.metadata().is_ok_and(|found| !found.is_file()) {
                bail!("cannot write results to {}: it is not a regular file", path.display());
            }
        }
        Ok(outputs)
    }

    /// Writes the document and the page of it.
    fn save(&self, document: &CompareDocument) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(document)?;
        self.json.iter().try_for_each(|path| replace(path, &text))?;
        match &self.page {
            Some(path) => replace(path, trimtab_report::compare::html(document).as_bytes()),
            None => Ok(()),
        }
    }
}

/// Replaces the file at `path`, so that a reader sees the old or the new one and nothing between. A
/// symbolic link stays, and what it names is replaced.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut file = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(parent)
        .map_err(named)?;
    file.write_all(bytes).map_err(named)?;
    file.persist(path).map_err(|error| named(error.error))?;
    Ok(())
}
