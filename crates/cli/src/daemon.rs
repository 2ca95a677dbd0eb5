//! `trimtab daemon`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use trimtab_keeper::service::control::RUN;
use trimtab_keeper::service::{Config, Log, Options, Service};
use trimtab_keeper::state::Store;
use trimtab_lab::keeping::survey;
use trimtab_linux::tracing::FreesOptions;

/// The configuration unless another is named; it needn't be there.
const CONFIG: &str = "/etc/trimtab.toml";

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
}

pub fn run(args: Args) -> Result<ExitCode> {
    let config = args.config.as_deref().unwrap_or(Path::new(CONFIG));
    let must_exist = args.config.is_some();
    if args.check_config {
        if !must_exist && !config.exists() {
            eprintln!("there is no {}: the defaults hold", config.display());
        } else {
            Config::read(config)?;
            eprintln!("{} can be used", config.display());
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !rustix::process::geteuid().is_root() {
        bail!("only root may trim: run trimtab daemon as root, as trimtab.service does");
    }
    let options = Options {
        config: config.to_owned(),
        config_must_exist: must_exist,
        run: args.run,
        store: args.state.as_deref().map_or_else(Store::usual, Store::at),
        frees: FreesOptions::default(),
        survey: Box::new(survey),
    };
    Service::start(options, Log::to_stderr())?.run()?;
    Ok(ExitCode::SUCCESS)
}
