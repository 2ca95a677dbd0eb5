//! `trimtab daemon`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use trimtab_keeper::service::control::RUN;
use trimtab_keeper::service::{CONFIG, Config, Log, Options, Service};
use trimtab_keeper::state::Store;
use trimtab_linux::stack::Machine;
use trimtab_linux::tracefs::FreesOptions;

/// Trims what is freed on all mounted file systems, when their drives have time
///
/// Runs until it is told to end; SIGHUP makes it read its configuration again. It logs to stderr. Needs
/// root. What it does, `trimtab status` says.
#[derive(clap::Args)]
pub struct Args {
    /// The configuration [default: /etc/trimtab.toml, if that is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only say whether the configuration can be used
    #[arg(long)]
    check_config: bool,
    /// Where its sockets are
    #[arg(long, value_name = "DIRECTORY", default_value = RUN, hide = true)]
    run: PathBuf,
    /// Where it keeps what it knows [default: $STATE_DIRECTORY, or /var/lib/trimtab]
    #[arg(long, value_name = "DIRECTORY", hide = true)]
    state: Option<PathBuf>,
    /// Run this many times as fast as real time, beside a drive that is emulated that much faster,
    /// and end with the process that started it
    #[arg(long, value_name = "N", hide = true)]
    speed: Option<f64>,
}

pub fn run(args: Args) -> Result<ExitCode> {
    if args.check_config {
        return check(args.config.as_deref());
    }
    if !rustix::process::geteuid().is_root() {
        bail!("only root may trim: run trimtab daemon as root, as trimtab.service does");
    }
    if args.speed.is_some() {
        // A comparison that is killed leaves no service behind.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
            .context("cannot ask to end with the process that started this one")?;
    }
    let options = Options {
        config: args.config,
        run: args.run,
        store: args.state.as_deref().map_or_else(Store::usual, Store::at),
        frees: FreesOptions::default(),
        speed: args.speed.unwrap_or(1.0),
    };
    Service::start(options, Log::to_stderr())?.run()?;
    Ok(ExitCode::SUCCESS)
}

/// Says whether the configuration can be used, and what it names in vain.
fn check(path: Option<&Path>) -> Result<ExitCode> {
    let name = path.unwrap_or(Path::new(CONFIG)).display();
    let Some(config) = Config::find(path)? else {
        eprintln!("there is no {name}: the defaults hold");
        return Ok(ExitCode::SUCCESS);
    };
    eprintln!("{name} can be used");
    // It can be used also where nobody can tell what is mounted, as in a chroot.
    for mount in config.not_mounted(&Machine::live()).unwrap_or_default() {
        eprintln!("{}: no file system on a block device is mounted there yet", mount.display());
    }
    Ok(ExitCode::SUCCESS)
}
