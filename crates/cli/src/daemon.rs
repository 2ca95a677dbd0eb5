//! `trimtab daemon`.

use std::env;
use std::net::SocketAddr;
use std::path::{self, Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use trimtab_keeper::service::control::RUN;
use trimtab_keeper::service::{CONFIG, Config, Log, Options, Service};
use trimtab_keeper::state::Store;
use trimtab_linux::stack::Machine;
use trimtab_linux::tracefs::FreesOptions;

/// Runs the service, which trims freed space on all mounted file systems when their drives have time
///
/// Runs until it gets SIGTERM or SIGINT; SIGHUP makes it read its configuration again. Logs to stderr. Needs
/// root.
/// `trimtab status` shows its state.
#[derive(clap::Args)]
pub struct Args {
    /// The configuration file [default: /etc/trimtab.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Serve metrics at this address instead of the configured one. It need not be loopback: all who reach it see
    /// the names of mount points and devices
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Only check the configuration
    #[arg(long)]
    check_config: bool,
    /// Log each decision of the policy smart with all it is based on, to a new file for each file system in this
    /// directory: see `trimtab sim --decisions`
    #[arg(long, value_name = "DIRECTORY")]
    decisions: Option<PathBuf>,
    /// The directory of its sockets
    #[arg(long, value_name = "DIRECTORY", default_value = RUN, hide = true)]
    run: PathBuf,
    /// The directory of saved states [default: $STATE_DIRECTORY, or /var/lib/trimtab]
    #[arg(long, value_name = "DIRECTORY", hide = true)]
    state: Option<PathBuf>,
    /// Run this many times as fast as real time, as the emulated drives do, and end with the parent process
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
    if let Some(directory) = args.decisions.as_deref().filter(|directory| !directory.is_dir()) {
        bail!("cannot log decisions in {}: there is no such directory", directory.display());
    }
    if args.speed.is_some() {
        // A killed comparison must not leave its service running.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
            .context("cannot ask to end with the process that started this one")?;
    }
    let state = args.state.map(path::absolute).transpose()?;
    let options = Options {
        config: args.config.map(path::absolute).transpose()?,
        metrics: args.metrics,
        run: path::absolute(args.run)?,
        store: state.as_deref().map_or_else(Store::usual, Store::at),
        decisions: args.decisions.map(path::absolute).transpose()?,
        frees: FreesOptions::default(),
        speed: args.speed.unwrap_or(1.0),
    };
    // A working directory keeps its file system from being unmounted.
    env::set_current_dir("/").context("cannot leave the working directory")?;
    Service::start(options, Log::to_stderr())?.run()?;
    Ok(ExitCode::SUCCESS)
}

/// Checks the configuration, and prints the mount points that it names but are not in use.
fn check(path: Option<&Path>) -> Result<ExitCode> {
    let name = path.unwrap_or(Path::new(CONFIG)).display();
    let Some(config) = Config::find(path)? else {
        eprintln!("{name} does not exist: the defaults apply");
        return Ok(ExitCode::SUCCESS);
    };
    eprintln!("{name} can be used");
    // The configuration is valid even if the mounts can't be read, as in a chroot.
    for mount in config.not_mounted(&Machine::live()).unwrap_or_default() {
        eprintln!("{}: no file system on a block device is mounted there yet", mount.display());
    }
    Ok(ExitCode::SUCCESS)
}
